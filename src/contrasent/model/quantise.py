"""Eight-bit integers for the matrix products of a graph, with ranges learnt from sentences."""

# A few dimensions of activations are far larger than the rest: they are divided, and the weights'
# rows multiplied, by factors that even them out (SmoothQuant, 2023, equation 4).

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.model.calls import by_budget
from contrasent.model.runtime import INPUTS
from contrasent.text.tokens import Tokenizer

STRENGTH = 0.7
"""How much of the unevenness moves from activations to weights: alpha of SmoothQuant.

The smallest cosine of all-MiniLM-L6-v2's vectors to those in full precision was best between 0.6
and 0.8; beyond, the weights of the feed-forward part's second product suffer.
"""
FEWEST = 16
BATCH_TOKENS = 512

Inputs = dict[str, NDArray[np.int64]]


def quantise(graph: Path, tokenizer: Tokenizer, sentences: list[str]) -> dict[str, Any]:
    """Replace a float32 graph by one whose matrix products are computed in int8."""
    if len(sentences) < FEWEST:
        raise OptionError("calibration", len(sentences), f"sentences; {FEWEST} at least are needed")
    import onnx
    from onnxruntime import quantization

    batches = list(_batches(tokenizer, sentences))
    model = onnx.load(str(graph))
    products = [node for node in model.graph.node if _has_weights(node, model)]
    _smooth(model, products, batches)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it recommends a preparation that changes nothing here
    try:
        with tempfile.TemporaryDirectory(dir=graph.parent) as folder:
            smoothed = Path(folder) / "smoothed.onnx"
            onnx.save(model, str(smoothed))
            quantization.quantize_static(
                str(smoothed),
                str(graph),
                _reader(batches),
                quant_format=quantization.QuantFormat.QDQ,
                op_types_to_quantize=["MatMul"],
                nodes_to_quantize=[node.name for node in products],
                per_channel=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                calibrate_method=quantization.CalibrationMethod.MinMax,
                extra_options={
                    "WeightSymmetric": True,
                    "OpTypesToExcludeOutputQuantization": ["MatMul"],
                },
            )
    finally:
        root.setLevel(level)
    return {
        "quantisation": "int8, activations per tensor, weights per column, smoothed",
        "calibration_sentences": len(sentences),
        "quantised_products": len(products),
    }


def _batches(tokenizer: Tokenizer, sentences: list[str]) -> Iterator[Inputs]:
    tokens, _ = tokenizer(sentences)
    for rows in by_budget(tokens.lengths, len(sentences), budget=BATCH_TOKENS):
        ids, mask = tokens.select(rows).pad(tokenizer.specials.pad)
        yield dict(zip(INPUTS, (ids, mask.astype(np.int64)), strict=True))


def _reader(batches: list[Inputs]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(batches)

        def get_next(self) -> Any:
            return next(self.left, None)

    return Reader()


def _has_weights(node: Any, model: Any) -> bool:
    """Whether a node is a product with a constant matrix."""
    return node.op_type == "MatMul" and any(
        tensor.name == node.input[1] and len(tensor.dims) == 2 for tensor in model.graph.initializer
    )


def _smooth(model: Any, products: list[Any], batches: list[Inputs]) -> None:
    """Even out the activations in front of products, in place; the graph's function is the same."""
    from onnx import helper, numpy_helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    largest = _largest(model, sorted({node.input[0] for node in products}), batches)
    for name, values in largest.items():
        consumers = [node for node in products if node.input[0] == name]
        shared = {
            node.input[1]: numpy_helper.to_array(weights[node.input[1]]) for node in consumers
        }
        rows = np.max([np.abs(w).max(axis=1) for w in shared.values()], axis=0)
        factors = np.maximum(values, 1e-5) ** STRENGTH / np.maximum(rows, 1e-5) ** (1 - STRENGTH)
        factors = np.clip(factors / np.median(factors), 1e-2, 1e2).astype(np.float32)
        divide = numpy_helper.from_array((1 / factors).astype(np.float32), f"{name}_evening")
        model.graph.initializer.append(divide)
        even = f"{name}_even"
        multiply = helper.make_node("Mul", [name, divide.name], [even], name=f"{name}_evened")
        first = min(list(model.graph.node).index(node) for node in consumers)
        model.graph.node.insert(first, multiply)
        for weight, array in shared.items():
            scaled = (array * factors[:, None]).astype(np.float32)
            weights[weight].CopyFrom(numpy_helper.from_array(scaled, weight))
        for node in consumers:
            node.input[0] = even


def _largest(model: Any, names: list[str], batches: list[Inputs]) -> dict[str, NDArray[np.float32]]:
    """For each tensor, the largest magnitude of each of its last axis' positions."""
    import onnxruntime
    from onnx import ModelProto, helper

    watched = ModelProto()
    watched.CopyFrom(model)
    for name in names:
        watched.graph.output.append(helper.make_tensor_value_info(name, 1, None))
    session = onnxruntime.InferenceSession(
        watched.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: dict[str, NDArray[np.float32]] = {}
    for batch in batches:
        for name, values in zip(names, session.run(names, batch), strict=True):
            top = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            found[name] = np.maximum(found[name], top) if name in found else top
    return found
