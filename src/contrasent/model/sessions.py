"""Opening a graph with ONNX Runtime or OpenVINO: padded ids and mask in, vectors out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import MissingExtraError, ModelError
from contrasent.types import Vectors

Run = Callable[[NDArray[np.int64], NDArray[np.int64]], Vectors]
"""Ids (n, t) and mask (n, t), 1 on real tokens, to vectors (n, d)."""

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"


def threads() -> int:
    """How many threads to compute with: OMP_NUM_THREADS, or one a core that may be used."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else (os.cpu_count() or 1)


def open_session(engine: str, path: Path, precision: str) -> Run:
    """Open a graph.

    Args:
        engine: "onnx" or "openvino".
        path: of the graph.
        precision: "fp32" (no operation is computed with fewer bits) or "int8".

    Raises:
        ModelError: it is missing or damaged.
        MissingExtraError: the runtime is not installed.
    """
    if not path.is_file():
        raise ModelError(f"{path}: is missing; export the model again")
    return _onnx(path) if engine == "onnx" else _openvino(path, precision)


def _onnx(path: Path) -> Run:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", f"running {path}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime has a kind of its own for each complaint
        raise ModelError(f"{path}: ONNX Runtime cannot open it ({_brief(error)})") from error

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
        (vectors,) = session.run([OUTPUT], dict(zip(INPUTS, (ids, mask), strict=True)))
        return np.asarray(vectors, dtype=np.float32)

    return run


def _openvino(path: Path, precision: str) -> Run:
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError("openvino", "openvino", f"running {path}") from error
    core = openvino.Core()
    options: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads(),
    }
    if precision == "fp32":
        # Left to itself, it computes in bfloat16 where the processor can.
        options["INFERENCE_PRECISION_HINT"] = "f32"
    try:
        compiled = core.compile_model(str(path), "CPU", options)
    except Exception as error:  # a RuntimeError, or whatever a plugin raises
        raise ModelError(f"{path}: OpenVINO cannot open it ({_brief(error)})") from error
    request = compiled.create_infer_request()

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
        found = request.infer(dict(zip(INPUTS, (ids, mask), strict=True)))
        return np.array(found[compiled.output(0)], dtype=np.float32)

    return run


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
