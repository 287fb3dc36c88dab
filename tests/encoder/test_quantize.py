"""Smoothing in front of int8 products: the paper's equation, and the same function."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from contrasent.encoder import export


@pytest.fixture
def graph():
    """Two products of one input, whose second column is forty times the others."""
    random = np.random.default_rng(3)
    weights = {name: random.normal(size=(4, 3)).astype(np.float32) for name in ("v", "w")}
    nodes = [helper.make_node("MatMul", ["x", name], [f"x_{name}"], name=name) for name in weights]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 4])]
    outputs = [helper.make_tensor_value_info(f"x_{name}", 1, ["n", 3]) for name in weights]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    made = helper.make_graph(nodes, "products", inputs, outputs, stored)
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(made, opset_imports=opset, ir_version=10)
    onnx.checker.check_model(model)
    rows = random.normal(size=(6, 4)).astype(np.float32) * np.array([1, 40, 1, 1], np.float32)
    return model, weights, rows


def run(model, rows):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": rows})


def test_activations_are_evened_out_as_the_paper_says(graph):
    model, weights, rows = graph
    before = run(model, rows)
    export._smooth(model, list(model.graph.node), [{"x": rows[:2]}, {"x": rows[2:]}])
    wanted = []
    for column in range(4):
        activation = max(abs(float(row[column])) for row in rows)
        weight = max(abs(float(v)) for array in weights.values() for v in array[column])
        wanted.append(activation**export.STRENGTH / weight ** (1 - export.STRENGTH))
    middle = sorted(wanted)
    wanted = np.array(wanted) / ((middle[1] + middle[2]) / 2)
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert 1 / stored["x_evening"] == pytest.approx(wanted, rel=1e-5)
    for name, array in weights.items():
        assert stored[name] == pytest.approx(array * wanted[:, None], rel=1e-5)
    assert [node.op_type for node in model.graph.node] == ["Mul", "MatMul", "MatMul"]
    for one, two in zip(before, run(model, rows), strict=True):
        assert two == pytest.approx(one, abs=1e-5)
    evened = np.abs(rows * stored["x_evening"]).max(axis=0)
    assert evened.max() / evened.min() < np.abs(rows).max() / np.abs(rows).max(axis=0).min() / 3
