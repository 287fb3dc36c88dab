"""Opening a graph with ONNX Runtime or OpenVINO: padded ids and mask in, vectors out."""

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import MissingExtraError, ModelError
from contrasent.processes import limit_onednn_cache, threads
from contrasent.types import Vectors

Run = Callable[[NDArray[np.int64], NDArray[np.int64]], Vectors]
"""Ids (n, t) and mask (n, t), 1 on real tokens, to vectors (n, d)."""

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"

KERNELS = 100
"""How many kernels a graph in OpenVINO may keep, besides those of oneDNN.

It keeps some for each shape that it has met, 5,000 by default, and texts come in ever new shapes:
in int8 some 190 of them took 1.4 GB and each new one more, with this bound and oneDNN's 0.1 GB.
Twenty shapes that come again and again run as fast.
"""

_ALONE = threading.Lock()
"""Held by the first call of a graph in OpenVINO.

Its bindings set up a table in a process's first call; two threads that make it at the same time
wait for each other for ever, one with Python's lock and one with the table's.
"""


def open_session(engine: str, path: Path, precision: str, *, streams: int) -> Run:
    """Open a graph."""
    check_session(engine, path)
    if engine == "onnx":
        return _onnx(path, streams)
    return _openvino(path, precision, streams)


def check_session(engine: str, path: Path) -> None:
    """Find out whether a graph can be opened, without the time that takes."""
    if not path.is_file():
        raise ModelError(f"{path}: is missing; export the model again")
    module = {"onnx": "onnxruntime", "openvino": "openvino"}[engine]
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(module, engine, f"running {path}")


def _onnx(path: Path, streams: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, threads() // streams)
    options.log_severity_level = 3
    # Its threads spin too, and for longer after a call than the call took.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
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


def _openvino(path: Path, precision: str, streams: int) -> Run:
    limit_onednn_cache()
    import openvino

    core = openvino.Core()
    options: dict[str, Any] = {
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": threads(),
        "CPU_RUNTIME_CACHE_CAPACITY": str(KERNELS),
    }
    if precision == "fp32":
        # Left to itself, it computes in bfloat16 where the processor can.
        options["INFERENCE_PRECISION_HINT"] = "f32"
    try:
        compiled = core.compile_model(str(path), "CPU", options)
    except Exception as error:  # a RuntimeError, or whatever a plugin raises
        raise ModelError(f"{path}: OpenVINO cannot open it ({_brief(error)})") from error
    idle: list[Any] = []  # a request is for one call at a time

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
        try:
            request = idle.pop()
        except IndexError:
            request = compiled.create_infer_request()
        found = request.infer(dict(zip(INPUTS, (ids, mask), strict=True)))
        vectors = np.array(found[compiled.output(0)], dtype=np.float32)
        idle.append(request)
        return vectors

    try:
        with _ALONE:
            run(np.zeros((1, 2), np.int64), np.ones((1, 2), np.int64))
    except RuntimeError as error:
        raise ModelError(f"{path}: OpenVINO cannot run it ({_brief(error)})") from error
    return run


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
