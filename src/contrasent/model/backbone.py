"""Loading a transformers encoder strictly: no weight may be missing, new, or of another shape."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from contrasent.errors import ModelError
from contrasent.model import dropout as dropout_
from contrasent.text.tokens import Tokenizer


def load_backbone(
    folder: Path, *, dropout: float | None = None, attention_dropout: float | None = None
) -> nn.Module:
    """Load an encoder without pooling layer, in float32."""
    import torch
    from transformers import AutoConfig, AutoModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder}: no safetensors weights in it (pickled weights are never read; "
            "convert them with safetensors.torch.save_file)"
        )
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises many kinds here, all about the file
        raise ModelError(f"{folder / 'config.json'}: {_brief(error)}") from error
    if type(config) not in MODEL_MAPPING or not _is_text_encoder(config):
        raise ModelError(f"{folder}: {config.model_type!r} is not a text encoder")
    dropout_.configure(config, dropout, attention_dropout)
    kind: Any = MODEL_MAPPING[type(config)]
    options = {"add_pooling_layer": False}
    known = inspect.signature(kind.__init__).parameters
    try:
        with _quiet():
            model, info = AutoModel.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                # They are refused below, with their names.
                ignore_mismatched_sizes=True,
                **{k: v for k, v in options.items() if k in known},
            )
    except Exception as error:  # and here, about the weights
        raise ModelError(f"{folder}: the weights cannot be loaded: {_brief(error)}") from error
    _refuse_incomplete(folder, info)
    _refuse_left_over(folder, info, set(model.state_dict()))
    return model  # type: ignore[no-any-return]


def _is_text_encoder(config: Any) -> bool:
    needed = ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings")
    both = getattr(config, "is_encoder_decoder", False)
    return not both and all(hasattr(config, key) for key in needed)


def longest_input(config: Any) -> int:
    """How many tokens an encoder's positions allow."""
    return int(config.max_position_embeddings) - first_position(config)


def first_position(config: Any) -> int:
    """The position of a row's first token: RoBERTa and its kin number from pad + 1."""
    offset = config.model_type in {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"}
    return int(config.pad_token_id) + 1 if offset else 0


def check_vocabulary(backbone: nn.Module, tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer with ids that the encoder has no embedding for."""
    config: Any = backbone.config
    if tokenizer.size > int(config.vocab_size):
        raise ModelError(
            f"{folder}: the tokenizer has {tokenizer.size} entries and the encoder "
            f"{config.vocab_size}; they are not of one model"
        )


def _refuse_incomplete(folder: Path, info: dict[str, Any]) -> None:
    missing = sorted(k for k in info.get("missing_keys", ()) if not k.startswith("pooler."))
    if missing:
        raise ModelError(
            f"{folder}: {len(missing)} weights are missing and would be random "
            f"({', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''})"
        )
    for name, stored, wanted in sorted(info.get("mismatched_keys", ())):
        raise ModelError(
            f"{folder}: the weights do not fit config.json: {name} has shape {tuple(stored)} and "
            f"should have {tuple(wanted)}"
        )


def _refuse_left_over(folder: Path, info: dict[str, Any], known: set[str]) -> None:
    """Refuse weights of further layers than config.json has; heads may be left over."""

    def pattern(key: str) -> str:
        return re.sub(r"\d+", "N", key)

    patterns = {pattern(key) for key in known}
    extra = sorted(
        key
        for key in info.get("unexpected_keys", ())
        # A head's model keeps its encoder under a prefix such as "bert.".
        if any(part in patterns for part in (pattern(key), pattern(key).partition(".")[2]))
    )
    if extra:
        raise ModelError(
            f"{folder}: {len(extra)} weights have no place in the model that config.json describes "
            f"({extra[0]})"
        )


def _brief(error: BaseException) -> str:
    """The first two lines of a message, as one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers, whose reports become errors here, for the block."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
