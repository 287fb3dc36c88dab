"""Loading a transformers encoder strictly: no weight may be missing, new, or of another shape."""

import inspect
from pathlib import Path
from typing import Any

from torch import nn

from contrasent.errors import ModelError
from contrasent.model import dropout as dropout_
from contrasent.text.tokens import Tokenizer


def load_backbone(
    folder: Path, *, dropout: float | None = None, attention_dropout: float | None = None
) -> nn.Module:
    """Load an encoder without pooling layer, in float32.

    Args:
        folder: a transformers folder with safetensors weights.
        dropout: probability for hidden states, or None for the folder's own.
        attention_dropout: probability for attention weights, or None for the folder's own.

    Raises:
        ModelError: it is no text encoder, or weights are missing, do not fit, or are pickled.
    """
    import torch
    from transformers import AutoConfig, AutoModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder}: no safetensors weights in it (pickled weights are never read; "
            "convert them with safetensors.torch.save_file)"
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{folder / 'config.json'}: {_first_line(error)}") from error
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "num_hidden_layers"):
        raise ModelError(f"{folder}: {config.model_type!r} is not a text encoder")
    dropout_.configure(config, dropout, attention_dropout)
    kind: Any = MODEL_MAPPING[type(config)]
    options = {"add_pooling_layer": False}
    known = inspect.signature(kind.__init__).parameters
    try:
        model, info = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **{k: v for k, v in options.items() if k in known},
        )
    except Exception as error:  # transformers raises many kinds here, all about the files
        raise ModelError(f"{folder}: the weights cannot be loaded: {_first_line(error)}") from error
    _refuse_incomplete(folder, info)
    return model  # type: ignore[no-any-return]


def longest_input(config: Any) -> int:
    """How many tokens an encoder's positions allow."""
    positions = int(config.max_position_embeddings)
    # RoBERTa and its kin number positions from pad + 1.
    offset = config.model_type in {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"}
    return positions - int(config.pad_token_id) - 1 if offset else positions


def check_vocabulary(backbone: nn.Module, tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer with ids that the encoder has no embedding for.

    Raises:
        ModelError: they do not fit.
    """
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
    wrong = sorted(
        str(k[0] if isinstance(k, tuple) else k) for k in info.get("mismatched_keys", ())
    )
    if wrong:
        raise ModelError(f"{folder}: weights of another shape than config.json says: {wrong[0]}")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
