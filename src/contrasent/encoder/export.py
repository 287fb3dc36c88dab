"""Writing an encoder as one graph, for ONNX Runtime or OpenVINO.

``input_ids`` and ``attention_mask``, (n, t) int64, give ``sentence_embedding``, (n, d) float32,
compared with torch before it is kept.
"""

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError
from contrasent.files import atomic_folder
from contrasent.model import runtime
from contrasent.model.base import PROMPTS, Prompts, by_budget
from contrasent.model.golden import PROBES, Comparison, digest
from contrasent.text.tokens import Tokenizer

STRENGTH = 0.7
"""How much of the unevenness moves from activations to weights: alpha of SmoothQuant.

The smallest cosine of all-MiniLM-L6-v2's vectors to those in full precision was best between 0.6
and 0.8; beyond, the weights of the feed-forward part's second product suffer.
"""
FEWEST = 16
BATCH_TOKENS = 512
LARGEST = 2_000_000_000  # bytes of weights that int8 is made of: a message of protobuf holds 2 GB

Inputs = dict[str, NDArray[np.int64]]


def quantize(graph: Path, tokenizer: Tokenizer, sentences: list[str]) -> dict[str, Any]:
    """Replace a float32 graph by one whose matrix products are computed in int8."""
    if len(sentences) < FEWEST:
        raise OptionError("calibration", len(sentences), f"sentences; at least {FEWEST} are needed")
    import onnx
    from onnxruntime import quantization

    tokens, _ = tokenizer(sentences)
    calls = by_budget(tokens.lengths, len(sentences), budget=BATCH_TOKENS)
    padded = [tokens.select(rows).pad(tokenizer.specials.pad) for rows in calls]
    batches: list[Inputs] = [
        dict(zip(runtime.INPUTS, (ids, mask.astype(np.int64)), strict=True)) for ids, mask in padded
    ]
    model = onnx.load(str(graph))
    # Only products with a constant matrix.
    matrices = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    nodes = (node for node in model.graph.node if node.op_type == "MatMul")
    products = [node for node in nodes if node.input[1] in matrices]
    _smooth(model, products, batches)
    # Its root logger recommends a preparation that changes nothing here.
    with _quiet(""), tempfile.TemporaryDirectory(dir=graph.parent) as folder:
        smoothed = Path(folder) / "smoothed.onnx"
        onnx.save(model, str(smoothed))
        quantization.quantize_static(
            str(smoothed),
            str(graph),
            SimpleNamespace(get_next=partial(next, iter(batches), None)),
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
    return {
        "quantization": "int8, activations per tensor, weights per column, smoothed",
        "calibration_sentences": len(sentences),
        "quantized_products": len(products),
    }


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
    largest: dict[str, NDArray[np.float32]] = {}
    for batch in batches:
        for name, values in zip(names, session.run(names, batch), strict=True):
            top = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            largest[name] = np.maximum(largest[name], top) if name in largest else top
    return largest


EXPORTERS = (
    "torch.onnx", "torch.onnx._internal.exporter._registration", "onnxscript", "onnx_ir",
    "torch.export",
)  # fmt: skip
LIMIT = 1e-5  # largest difference from torch that an export in float32 may have


class Graph(nn.Module):
    """An encoder as a function of two tensors, with attention in widely supported operations."""

    def __init__(self, encoder: TorchEncoder) -> None:
        super().__init__()
        self.backbone, self.head = encoder.backbone, encoder.head
        self.pooler = encoder.pooler
        self.all_layers = encoder.pooler.layers != (-1,)
        self.normalize = encoder.normalize
        # Torch's fused kernel would add checks for rows without keys to the graph.
        cast(Any, self.backbone).set_attn_implementation("eager")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(n, t) ids and mask to (n, d) vectors."""
        output = self.backbone(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=self.all_layers,
            return_dict=True,
        )
        states = output.hidden_states if self.all_layers else (output.last_hidden_state,)
        vectors = self.pooler(tuple(states), input_ids, attention_mask.bool())
        if self.head is not None:
            vectors = self.head(vectors)
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors


def export(
    model: Path,
    target: Path,
    *,
    engine: str,
    calibration: Sequence[str] | None = None,
    pooling: str | None = None,
    max_seq_length: int | None = None,
    overwrite: bool = False,
) -> runtime.Export:
    """Write a model's graph into a folder of its own, and compare it with torch."""
    runtime.check_engine(engine)
    runtime.check_target(target, overwrite)
    encoder = TorchEncoder.load(model, pooling=pooling, max_seq_length=max_seq_length, device="cpu")
    if not encoder.pooler.rule.exportable:
        raise ModelError(
            f"{model}: pooling {encoder.pooling!r} cannot be exported; use the model with torch"
        )
    if calibration is not None and (size := sum(p.nbytes for p in encoder.parameters())) > LARGEST:
        problem = f"int8 is made of at most {LARGEST / 1e9:g} GB of weights, not {size / 1e9:.1f}"
        raise ModelError(f"{model}: {problem}; export it without --int8")
    texts = [*PROBES, "", *(calibration or ())[:64]]
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)  # a probe is too long
    wanted = encoder.encode(texts, batch_size=8)
    packages = ["torch", "transformers", "onnx", "onnxruntime"]
    packages += ["openvino"] if engine == "openvino" else []
    inside = model.resolve() in target.resolve().parents
    written = runtime.Export(
        engine,
        "fp32" if calibration is None else "int8",
        encoder.config,
        difference=0.0,
        cosine=1.0,
        compared=len(texts),
        sources=runtime.source_files(model) if inside else {},
        made={"versions": {name: version(name) for name in packages}},
        matryoshka_dims=encoder.matryoshka_dims,
    )
    with atomic_folder(target) as folder:
        encoder.tokenizer.save(folder)
        if encoder.prompts != Prompts():
            shutil.copy2(model / PROMPTS, folder / PROMPTS)
        graph = folder / runtime.GRAPHS["onnx"]
        write_onnx(encoder, graph)
        if calibration is not None:
            written.made.update(quantize(graph, encoder.tokenizer, list(calibration)))
            graph.with_name(f"{graph.name}.data").unlink(missing_ok=True)  # of a large model
        if engine == "openvino":
            import openvino

            read = openvino.Core().read_model(str(graph))
            place = folder / runtime.GRAPHS["openvino"]
            openvino.save_model(read, str(place), compress_to_fp16=False)
            del read  # the file is mapped
            for path in folder.glob(f"{graph.name}*"):  # with the data of a large model
                path.unlink()
        files = sorted(folder.glob(f"{graph.stem}.*"))
        written = replace(written, graph={path.name: digest(path) for path in files})
        runtime.write_export(folder, written)
        exported = runtime.Exported.open(folder).encode(texts, batch_size=8)
        a, b = exported.astype(np.float64), wanted.astype(np.float64)
        difference = float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))
        if calibration is None and difference > LIMIT:
            raise ModelError(
                f"{model}: the graph's vectors differ from torch's by {difference:.1e}, more than "
                f"{LIMIT:.0e}; this kind of model cannot be exported to {engine}"
            )
        written = replace(
            written, difference=difference, cosine=Comparison(exported, wanted).cosine
        )
        runtime.write_export(folder, written)
    return written


def write_onnx(encoder: TorchEncoder, path: Path) -> None:
    """Write the graph; the encoder's attention is replaced, so do not use it afterwards."""
    graph = Graph(encoder).eval()
    ids = torch.full((3, 9), encoder.tokenizer.specials.pad, dtype=torch.int64)
    ids[:, :5] = torch.arange(5, 10)
    mask = torch.zeros_like(ids)
    mask[0], mask[1, :5], mask[2, :5] = 1, 1, 1
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with _quiet(*EXPORTERS), torch.no_grad():
            program = torch.onnx.export(
                graph,
                (ids, mask),
                dynamo=True,
                verbose=False,
                input_names=list(runtime.INPUTS),
                output_names=[runtime.OUTPUT],
                dynamic_shapes=dict.fromkeys(runtime.INPUTS, free),
            )
            cast(Any, program).save(str(path), external_data=False)
    except Exception as error:  # torch raises many types here, all about the model
        kind = type(encoder.backbone).__name__
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"torch cannot export {kind}: {reason}") from error


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence warnings and loggers for the block; "" is the root logger."""
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in map(logging.getLogger, names):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield
