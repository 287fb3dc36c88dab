"""Importing checkpoints written by the code of SimCSE, ESimCSE, DiffCSE and SimCSE++.

All are edits of one code base: encoder (bert.*, roberta.*), a head on [CLS] (mlp.*, later pooler.*)
and training's own parts. The head belongs to supervised SimCSE alone, whose files look like
unsupervised SimCSE's, so there is an option.
"""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.heads import dense_of
from contrasent.encoder.tensors import read_tensors, save_tensors, without_weights
from contrasent.errors import ModelError, OptionError
from contrasent.files import read_object

METHODS = ("unsup-simcse", "sup-simcse", "esimcse", "diffcse", "simcse++")
WEIGHTS = "model.safetensors"
BODIES = ("bert.", "roberta.", "")
HEADS = ("mlp.", "pooler.")
TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json")


def import_checkpoint(
    folder: Path, *, method: str | None = None, max_seq_length: int | None = None
) -> tuple[TorchEncoder, str]:
    """Read a released or trained checkpoint of the four papers."""
    if method is not None and method not in METHODS:
        raise OptionError("--method", method, "is unknown", choices=METHODS)
    config = _config(folder)
    if not (folder / WEIGHTS).is_file():
        raise without_weights(folder)
    weights = read_tensors(folder / WEIGHTS)
    body = _body(weights, folder)
    detected = _method(weights, folder, method)
    head = _head(weights, folder, detected) if detected == "sup-simcse" else None
    with tempfile.TemporaryDirectory() as place:
        bare = Path(place)
        (bare / "config.json").write_text(json.dumps(config), "utf-8")
        save_tensors(bare / WEIGHTS, body)
        for path in (path for pattern in TOKENIZER for path in folder.glob(pattern)):
            (bare / path.name).write_bytes(path.read_bytes())
        try:
            encoder = TorchEncoder.load(bare, pooling="cls", max_seq_length=max_seq_length)
        except ModelError as error:
            raise ModelError(str(error).replace(str(bare), str(folder))) from error
    encoder.source = None
    if head is not None:
        top = dense_of(head["weight"], head["bias"], nn.Tanh())
        encoder.head = top.to(encoder.device).eval()
    return encoder, detected


def _config(folder: Path) -> dict[str, Any]:
    config = read_object(folder / "config.json", needed=True)
    if config.get("model_type") not in ("bert", "roberta"):
        raise ModelError(f"{folder / 'config.json'}: is not from a BERT or RoBERTa model")
    if (folder / "modules.json").is_file():
        raise ModelError(f"{folder}: is already a complete model; no import needed")
    return {key: value for key, value in config.items() if key != "architectures"}


def _body(weights: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The encoder's weights, without prefix."""
    for prefix in BODIES:
        inside = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        body = {k: v for k, v in inside.items() if k.startswith(("embeddings.", "encoder."))}
        if body:
            return {k: v for k, v in body.items() if not k.endswith("position_ids")}
    raise ModelError(f"{folder / WEIGHTS}: contains no encoder (bert.*, roberta.* or embeddings.*)")


def _method(weights: Iterable[str], folder: Path, method: str | None) -> str:
    """The method of a checkpoint: by its keys, else as stated by the user."""
    keys = tuple(weights)
    detected = None
    if any(key.startswith(("electra_head.", *(f"{head}net." for head in HEADS))) for key in keys):
        detected = "diffcse"
    elif any(key.startswith("momentum_model.") for key in keys):
        detected = "esimcse"
    if detected is not None and method not in (None, detected):
        raise OptionError("--method", method, f"{folder / WEIGHTS} has the keys of {detected}")
    if detected is None and method is None:
        raise OptionError(
            "--method",
            "",
            f"the files of {folder} do not show whether its vector is [CLS] before the head "
            "(unsup-simcse, esimcse, simcse++, diffcse) or after it (sup-simcse); choose one",
        )
    return str(detected or method)


def _head(weights: dict[str, Any], folder: Path, method: str) -> dict[str, Any]:
    """Weight and bias of the tanh head."""
    for head in HEADS:
        names = {kind: f"{head}dense.{kind}" for kind in ("weight", "bias")}
        if weights.keys() >= set(names.values()):
            return {kind: weights[name].float() for kind, name in names.items()}
    raise OptionError(
        "--method", method, f"{folder / WEIGHTS} has no head (mlp.dense or pooler.dense)"
    )
