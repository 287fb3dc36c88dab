"""Writing an encoder as one graph, for ONNX Runtime or OpenVINO."""

# `input_ids` and `attention_mask`, (n, t) int64, give `sentence_embedding`, (n, d) float32,
# compared with torch before it is kept.

import logging
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasent.errors import ModelError
from contrasent.files import atomic_folder
from contrasent.model.encoder import Encoder
from contrasent.model.golden import PROBES, digest
from contrasent.model.prompts import NAME as PROMPTS
from contrasent.model.runtime import (
    GRAPHS,
    INPUTS,
    OUTPUT,
    Export,
    Exported,
    check_engine,
    check_target,
    source_files,
    write_export,
)
from contrasent.types import Vectors

ATTENTION = "contrasent_graph"
LIMIT = 1e-5
"""Largest difference from torch that an export in float32 may have."""
VERY_LOW = -1e9


class Graph(nn.Module):
    """An encoder as a function of two tensors, with attention in operations every runtime has."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.backbone, self.head = encoder.backbone, encoder.head
        self.pooler = encoder.pooler
        self.all_layers = len(encoder.pooler.layers) > 1
        self.normalise = encoder.normalise
        config: Any = self.backbone.config
        if getattr(config, "_attn_implementation", None) != "eager":
            _register()
            cast(Any, self.backbone).set_attn_implementation(ATTENTION)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(n, t) ids and mask to (n, d) vectors."""
        # `input_ids`: (n, t) int64. `attention_mask`: (n, t) int64, 1 on real tokens.
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
        return nn.functional.normalize(vectors, dim=-1) if self.normalise else vectors


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as two products; torch's fused kernel leaves checks for rows without any key."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if attention_mask is not None:
        scores = scores + attention_mask
    return torch.matmul(scores.softmax(-1), value).transpose(1, 2), None


def _added_mask(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Any,
    attention_mask: Tensor,
    dtype: torch.dtype = torch.float32,
    **kwargs: Any,
) -> Tensor:
    """What is added to the scores: (n, 1, 1, t), or (n, 1, t, t) under a sliding window."""
    from transformers.masking_utils import bidirectional_mask_function

    visible = attention_mask[:, None, None, :].bool()
    if mask_function is not bidirectional_mask_function:
        rows = torch.arange(q_length)[None, None, :, None]
        columns = torch.arange(kv_length)[None, None, None, :]
        visible = visible & mask_function(None, None, rows, columns)
    # Not (1 - visible) * low: OpenVINO takes that for the zero and the scale of an int8 tensor.
    return torch.where(visible, torch.zeros((), dtype=dtype), torch.full((), VERY_LOW, dtype=dtype))


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION, _attend)
    AttentionMaskInterface.register(ATTENTION, _added_mask)


def export(
    model: Path,
    target: Path,
    *,
    engine: str,
    calibration: Sequence[str] | None = None,
    pooler: str | None = None,
    max_tokens: int | None = None,
    overwrite: bool = False,
) -> Export:
    """Write a model's graph into a folder of its own, and compare it with torch."""
    check_engine(engine)
    check_target(target, overwrite)
    encoder = Encoder.load(model, pooler=pooler, max_tokens=max_tokens, device="cpu")
    if not encoder.pooler.exportable:
        raise ModelError(
            f"{model}: pooled by {encoder.pooling!r}, which a graph cannot do; use it with torch"
        )
    texts = [*PROBES, "", *(calibration or ())[:64]]
    logging.getLogger("contrasent.model.encoder").setLevel(logging.ERROR)  # a probe is too long
    wanted = encoder.encode(texts, batch=8)
    beside = model.resolve() in target.resolve().parents
    written = Export(
        engine,
        "fp32" if calibration is None else "int8",
        encoder.config,
        difference=0.0,
        cosine=1.0,
        compared=len(texts),
        sources=source_files(model) if beside else {},
        made=_versions(engine),
    )
    with atomic_folder(target) as folder:
        encoder.tokenizer.save(folder)
        if encoder.prompts.texts:
            shutil.copy2(model / PROMPTS, folder / PROMPTS)
        graph = folder / GRAPHS["onnx"]
        write_onnx(encoder, graph)
        if calibration is not None:
            from contrasent.model.quantise import quantise

            written.made.update(quantise(graph, encoder.tokenizer, list(calibration)))
        if engine == "openvino":
            _to_openvino(graph, folder / GRAPHS["openvino"])
        files = sorted(folder.glob(f"{graph.stem}.*"))
        written = replace(written, graph={path.name: digest(path) for path in files})
        write_export(folder, written)
        found = Exported.load(folder).encode(texts, batch=8)
        difference, cosine = _difference(found, wanted)
        if calibration is None and difference > LIMIT:
            raise ModelError(
                f"{model}: the graph's vectors differ from torch's by {difference:.1e}, more than "
                f"{LIMIT:.0e}; this kind of model cannot be exported to {engine}"
            )
        written = replace(written, difference=difference, cosine=cosine)
        write_export(folder, written)
    return written


def _difference(found: Vectors, wanted: Vectors) -> tuple[float, float]:
    """Largest difference of a component, relative to the largest one above 1; smallest cosine."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / np.maximum(lengths, 1e-30)
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max())), float(cosines.min())


def write_onnx(encoder: Encoder, path: Path) -> None:
    """Write the graph; the encoder's attention is replaced, so use it for nothing else after."""
    graph = Graph(encoder).eval()
    ids = torch.full((3, 9), encoder.tokenizer.specials.pad, dtype=torch.int64)
    ids[:, :5] = torch.arange(5, 10)
    mask = torch.zeros_like(ids)
    mask[0], mask[1, :5], mask[2, :5] = 1, 1, 1
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                (ids, mask),
                dynamo=True,
                verbose=False,
                input_names=list(INPUTS),
                output_names=[OUTPUT],
                dynamic_shapes=dict.fromkeys(INPUTS, free),
            )
            cast(Any, program).save(str(path), external_data=False)
    except Exception as error:  # torch raises many kinds here, all about the model
        kind = type(encoder.backbone).__name__
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"torch cannot write a graph of {kind}: {reason}") from error


def _to_openvino(onnx: Path, xml: Path) -> None:
    import openvino

    model = openvino.Core().read_model(str(onnx))
    openvino.save_model(model, str(xml), compress_to_fp16=False)
    del model  # it maps the file
    onnx.unlink()


def _versions(engine: str) -> dict[str, Any]:
    from importlib.metadata import version

    packages = ["torch", "transformers", "onnx", "onnxruntime"]
    packages += ["openvino"] if engine == "openvino" else []
    return {"versions": {name: version(name) for name in packages}}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on itself for the block."""
    names = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")
    loggers = [logging.getLogger(name) for name in names]
    loggers.append(logging.getLogger("torch.onnx._internal.exporter._registration"))
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
