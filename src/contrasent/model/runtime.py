"""Exported models: one graph from token ids to vectors, used without torch and transformers.

A folder of export.json, the graph (encoder.onnx, or encoder.xml and encoder.bin) and the tokenizer.
In bfloat16 a graph for OpenVINO is made in memory, of a model that numpy computes.
"""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import (
    MissingExtraError,
    ModelError,
    OptionError,
    OutputError,
    brief,
    check_choice,
)  # fmt: skip
from contrasent.files import write_json
from contrasent.model.base import BUDGET, Encoder, Prompts, by_budget, cores_for
from contrasent.model.description import describe
from contrasent.model.golden import EncoderConfig, digest
from contrasent.model.numpy_model import NumpyModel
from contrasent.processes import BF16, instructions, limit_onednn_cache, threads
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens, Vectors

MASKED = -1e4  # added to the scores of padding
ACTIVATIONS = ("gelu", "relu")  # of a graph made from a numpy model
NAME = "export.json"
FORMAT = "contrasent-export-1"
EXPORTS = ("onnx", "onnx-int8", "openvino", "openvino-int8")
DECIDING = re.compile(r"(tokenizer_|sentence_\S+_)?config\.json|(modules|tokenizer)\.json")
RUNTIMES = ("torch", "numpy", *EXPORTS)
GRAPHS = {"onnx": "encoder.onnx", "openvino": "encoder.xml"}

Run = Callable[[NDArray[np.int64], NDArray[np.int64]], Vectors]
"""Ids (n, t) and mask (n, t), 1 on real tokens, to vectors (n, d)."""

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"

KERNELS = 100
"""Kernels that a graph in OpenVINO may keep, besides those of oneDNN: by default 5,000, some for
each shape it has met. In int8 some 190 shapes took 1.4 GB, with this bound 0.1 GB, as fast."""

_ALONE = threading.Lock()
"""Held by the first call of a graph in OpenVINO, whose bindings set up a table: two threads that do
so at the same time wait for each other forever, one with Python's lock, one with the table's."""


@dataclass(frozen=True, slots=True)
class Export:
    """The content of ``export.json``."""

    engine: str
    precision: str
    facts: EncoderConfig  # the settings of the torch model, named as in the file
    # largest difference of a component from torch's vectors, on the compared sentences
    difference: float
    cosine: float
    compared: int
    # sha256 of the source model's files, by name; empty if the export lies elsewhere
    sources: dict[str, str] = field(default_factory=dict)
    # versions of the exporting libraries, and the quantization
    made: dict[str, Any] = field(default_factory=dict)
    # sha256 of the graph's files, by name; empty if none was stored
    graph: dict[str, str] = field(default_factory=dict)
    # sizes that the model's vectors were trained to be cut to
    matryoshka_dims: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Its name for ``--runtime``."""
        return self.engine if self.precision == "fp32" else f"{self.engine}-{self.precision}"


def write_export(folder: Path, export: Export) -> None:
    """Write ``export.json``."""
    write_json(folder / NAME, {"format": FORMAT, **asdict(export)})


def read_export(folder: Path) -> Export:
    """Read ``export.json``."""
    path = folder / NAME
    try:
        data = json.loads(path.read_text("utf-8"))
        if data.pop("format") != FORMAT:
            raise ModelError(f"{path}: is not an export that this version reads ({FORMAT})")
        data["matryoshka_dims"] = tuple(data.get("matryoshka_dims", ()))
        export = Export(**{**data, "facts": EncoderConfig(**data["facts"])})
    except OSError as error:
        raise ModelError(
            f"{folder}: contains no exported model; create one with 'contrasent export'"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: is damaged ({error}); export the model again") from error
    if export.name not in EXPORTS:
        raise ModelError(f"{path}: {export.name!r} is not a runtime ({', '.join(EXPORTS)})")
    return export


def source_files(model: Path) -> dict[str, str]:
    """The sha256 of every file that determines a model's vectors, by its path in the folder."""
    digests: dict[str, str] = {}
    for path in sorted([*model.glob("*"), *model.glob("[0-9]*_*/*")]):
        decides = path.suffix == ".safetensors" or DECIDING.fullmatch(path.name)
        if path.is_file() and decides and path.name != "golden.safetensors":
            digests[path.relative_to(model).as_posix()] = digest(path)
    return digests


class Exported(Encoder):
    """An encoder that ONNX Runtime or OpenVINO computes, as one graph."""

    def __init__(
        self, export: Export, tokenizer: Tokenizer, graph: Any, prompts: Prompts | None = None
    ) -> None:
        self.export, self.tokenizer, self._graph = export, tokenizer, graph
        self.runtime = export.name
        self.prompts = prompts or Prompts()
        self._sessions: dict[int, Run] = {}
        self._opening = threading.Lock()
        self.lower_case = export.facts.lower_case
        self.matryoshka_dims = export.matryoshka_dims

    @classmethod
    def open(cls, folder: str | Path, *, model: Path | None = None) -> "Exported":
        """Open an export."""
        place = Path(folder)
        export = read_export(place)
        prompts = Prompts.read(place)
        if (
            model is not None
            and export.sources
            and (source_files(model) != export.sources or describe(model).prompts != prompts)
        ):
            raise ModelError(
                f"{place}: does not match the current weights, settings or prompts of {model}; "
                "export it again (contrasent export ... --overwrite)"
            )
        tokenizer = Tokenizer.load(place, max_seq_length=export.facts.max_seq_length)
        graph = place / GRAPHS[export.engine]
        check_session(export.engine, graph)
        for name, saved in export.graph.items():
            if digest(place / name) != saved:
                raise ModelError(
                    f"{place / name}: has changed since the export (sha256 differs); copy "
                    "it or export the model again"
                )
        return cls(export, tokenizer, graph, prompts)

    @property
    def config(self) -> EncoderConfig:
        """The settings of the source model."""
        return self.export.facts

    @property
    def identity(self) -> str:
        """The identity of the source model."""
        return self.config.identity

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        return self.export.facts.dimension

    def check(self, *, pooling: str | None, max_seq_length: int | None) -> None:
        """Reject settings that differ from those fixed in the graph."""
        fixed = self.export.facts
        stated = (
            ("--pooling", pooling, fixed.pooling),
            ("--max-seq-length", max_seq_length, fixed.max_seq_length),
        )
        for option, wanted, had in stated:
            if wanted is not None and wanted != had:
                problem = f"is {had!r} in the export; export the model again to change it"
                raise OptionError(option, wanted, problem)

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenized sentences, in calls of those of similar widths."""
        # One long row would pad all others to its width.
        run, widths = self._session(1), self._widths(tokens)
        calls = by_budget(widths, len(tokens), budget=max(BUDGET, int(widths.sum())))
        if len(calls) == 1:
            return self._call(run, tokens)
        out = np.empty((len(tokens), self.dimension), np.float32)
        for rows in calls:
            out[rows] = self._call(run, tokens.select(rows))
        return out

    def encode_tokens(self, tokens: Tokens, batch_size: int) -> Vectors:
        """Vectors of distinct rows in calls of at most ``batch_size`` of them."""
        # By padded width, with as many rows in each call of a width, so that shapes are few.
        cores = cores_for(tokens)
        call = partial(self._call, self._session(cores))
        return self._by_cores(call, tokens, batch_size, self._widths(tokens), cores)

    def _session(self, streams: int) -> Run:
        """The graph, opened for a number of concurrent calls; cached, as opening is slow."""
        with self._opening:
            if streams not in self._sessions:
                how = self.export.engine, self._graph, self.export.precision
                self._sessions[streams] = open_session(*how, streams=streams)
            return self._sessions[streams]

    def _call(self, run: Run, tokens: Tokens) -> Vectors:
        pad = self.tokenizer.specials.pad
        ids, mask = tokens.pad(pad)
        width = ids.shape[1]
        more = ((0, 0), (0, self._width(width) - width))
        ids = np.pad(ids, more, constant_values=pad)
        return run(ids, np.pad(mask.astype(np.int64), more))

    def _widths(self, tokens: Tokens) -> NDArray[np.int64]:
        return np.array([self._width(length) for length in tokens.lengths.tolist()], np.int64)

    def _width(self, tokens: int) -> int:
        """The padded width for a longest row of this many tokens.

        OpenVINO makes kernels for each new shape, which takes about as long as a call in int8, and
        keeps memory for them: few widths, an eighth apart at most. In float32 the padding would
        cost more than it saves.
        """
        if self.export.engine == "onnx":
            return tokens
        step = 4
        if self.export.precision != "fp32":
            while 8 * step < tokens:
                step *= 2
        return min(-(-tokens // step) * step, self.max_seq_length)


def check_engine(engine: str) -> None:
    """Reject an engine without export, before torch is used."""
    check_choice("--to", engine, GRAPHS)
    needed = {"onnx": "onnx", "onnxscript": "onnx", "onnxruntime": "onnx"}
    if engine == "openvino":
        needed["openvino"] = "openvino"
    for package, extra in needed.items():
        if find_spec(package) is None:
            raise MissingExtraError(package, extra, f"exporting to {engine}")


def check_target(target: Path, overwrite: bool) -> None:
    """Reject a folder that exists, unless it is an export that may be replaced."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / NAME).is_file():
        raise OutputError(f"{target}: is not an export; choose another folder with -o")
    if not overwrite:
        raise OutputError(f"{target}: already exists; choose another -o, or add --overwrite")


def open_session(engine: str, path: Any, precision: str, *, streams: int) -> Run:
    """Open a graph in a file, or one of OpenVINO that was made in memory."""
    return _onnx(path, streams) if engine == "onnx" else _openvino(path, precision, streams)


def check_session(engine: str, path: Path) -> None:
    """Check cheaply whether a graph can be opened."""
    if not path.is_file():
        raise ModelError(f"{path}: is missing; export the model again")
    module = {"onnx": "onnxruntime", "openvino": "openvino"}[engine]
    if find_spec(module) is None:
        raise MissingExtraError(module, engine, f"running {path}")


def _onnx(path: Path, streams: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, threads() // streams)
    options.log_severity_level = 3
    # Its threads spin, for longer after a call than the call took.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime has its own type for each error
        raise ModelError(f"{path}: ONNX Runtime cannot open it ({brief(error)})") from error

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
        (vectors,) = session.run([OUTPUT], dict(zip(INPUTS, (ids, mask), strict=True)))
        return np.asarray(vectors, dtype=np.float32)

    return run


def _openvino(path: Any, precision: str, streams: int) -> Run:
    limit_onednn_cache()
    import openvino

    core = openvino.Core()
    options: dict[str, Any] = {
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": threads(),
        "CPU_RUNTIME_CACHE_CAPACITY": str(KERNELS),
    }
    if precision == "fp32":
        # By default it computes in bfloat16 if the processor can.
        options["INFERENCE_PRECISION_HINT"] = "f32"
    source = str(path) if isinstance(path, Path) else path
    try:
        compiled = core.compile_model(source, "CPU", options)
    except Exception as error:  # a RuntimeError, or whatever a plugin raises
        raise ModelError(f"{path}: OpenVINO cannot open it ({brief(error)})") from error
    idle: list[Any] = []  # a request serves one call at a time

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vectors:
        try:
            request = idle.pop()
        except IndexError:
            request = compiled.create_infer_request()
        outputs = request.infer(dict(zip(INPUTS, (ids, mask), strict=True)))
        vectors = np.array(outputs[compiled.output(0)], dtype=np.float32)
        idle.append(request)
        return vectors

    try:
        with _ALONE:
            run(np.zeros((1, 2), np.int64), np.ones((1, 2), np.int64))
    except RuntimeError as error:
        raise ModelError(f"{path}: OpenVINO cannot run it ({brief(error)})") from error
    return run


def computes_in_bfloat16() -> bool:
    """Whether this machine supports bfloat16 graphs."""
    return find_spec("openvino") is not None and not BF16.isdisjoint(instructions())


def in_bfloat16(encoder: Encoder) -> Encoder:
    """The same encoder in bfloat16, twice as fast; itself if unsupported.

    Its vectors have cosines of at least .9999 with the encoder's.
    """
    if type(encoder) is not NumpyModel or not computes_in_bfloat16():
        return encoder
    backbone = encoder.backbone
    plain = backbone.relative is None and backbone.projection is None and not encoder.head
    known = backbone.activation in ACTIVATIONS and encoder.pooling in ("mean", "cls")
    if not (plain and known):
        return encoder
    nested = encoder.matryoshka_dims
    export = Export("openvino", "bf16", encoder.config, 0.0, 1.0, 0, matryoshka_dims=nested)
    return Exported(export, encoder.tokenizer, _graph(encoder), encoder.prompts)


def _graph(model: NumpyModel) -> Any:
    """The forward pass as a graph: ids (n, t) and mask (n, t) in, vectors (n, d) out."""
    import openvino
    from openvino import opset13 as ops

    backbone = model.backbone
    heads, size = backbone.heads, backbone.size

    def numbers(values: Any) -> Any:
        return ops.constant(np.ascontiguousarray(values, np.float32))

    def places(*values: int) -> Any:
        return ops.constant(np.array(values, np.int64))

    def linear(x: Any, weight: NDArray[Any], bias: NDArray[Any]) -> Any:
        return ops.add(ops.matmul(x, numbers(weight), False, False), numbers(bias))

    def norm(x: Any, of: Any) -> Any:
        x = ops.mvn(x, places(-1), True, float(of.epsilon), "inside_sqrt")
        return ops.add(ops.multiply(x, numbers(of.weight)), numbers(of.bias))

    def activated(x: Any) -> Any:
        return ops.relu(x) if backbone.activation == "relu" else ops.gelu(x, "erf")

    ids, mask = (ops.parameter([-1, -1], np.int64, name=name) for name in INPUTS)
    zero, one = (ops.constant(np.int64(n)) for n in (0, 1))
    count = ops.gather(ops.shape_of(ids), one, zero)
    order = ops.range(zero, count, one, output_type="i64")
    if backbone.pad is not None:
        counted = ops.convert(ops.not_equal(ids, ops.constant(np.int64(backbone.pad))), "i64")
        order = ops.add(ops.multiply(ops.cum_sum(counted, one), counted), places(backbone.pad))
    x = ops.gather(numbers(backbone.words), ids, zero)
    x = norm(ops.add(x, ops.gather(numbers(backbone.positions), order, zero)), backbone.norm)
    real = ops.convert(mask, "f32")
    hidden = ops.multiply(ops.subtract(numbers(1.0), real), numbers(MASKED))
    hidden = ops.unsqueeze(hidden, places(1, 2))
    for layer in backbone.stack:
        qkv = linear(x, layer.qkv.weight, layer.qkv.bias)
        qkv = ops.reshape(qkv, places(0, 0, 3 * heads, size // heads), True)
        parts = ops.split(ops.transpose(qkv, places(0, 2, 1, 3)), one, 3).outputs()
        seen = ops.transpose(ops.scaled_dot_product_attention(*parts, hidden), places(0, 2, 1, 3))
        seen = ops.reshape(seen, places(0, 0, size), True)
        seen = linear(seen, layer.output.weight, layer.output.bias)
        x = norm(ops.add(seen, x), layer.attention_norm)
        inner = activated(linear(x, layer.up.weight, layer.up.bias))
        x = norm(ops.add(linear(inner, layer.down.weight, layer.down.bias), x), layer.norm)
    if model.pooling == "cls":
        pooled = ops.gather(x, zero, one)
    else:
        weights = ops.unsqueeze(real, places(2))
        total = ops.reduce_sum(ops.multiply(x, weights), places(1), False)
        pooled = ops.divide(total, ops.reduce_sum(weights, places(1), False))
    if model.normalize:
        pooled = ops.normalize_l2(pooled, places(1), 1e-12, "max")
    return openvino.Model([pooled], [ids, mask], "encoder")
