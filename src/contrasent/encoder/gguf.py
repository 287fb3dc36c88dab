"""Language models in GGUF files, read by transformers and kept as model folders.

A GGUF holds weights in blocks of few bits with their scales (the format of llama.cpp), the sizes of
the model and its tokenizer. They are dequantized once, to float32, into the user's cache.
"""

from pathlib import Path
from typing import Any

import torch

from contrasent.encoder.backbone import LONGEST, quiet
from contrasent.encoder.tensors import save_tensors
from contrasent.errors import ModelError, brief, import_extra
from contrasent.files import write_object
from contrasent.model.description import ORIGIN
from contrasent.text.tokens import Tokenizer

MAGIC = b"GGUF"
PRIVATE = ("_name_or_path", "_model_name_or_path", "quantization_config", "transformers_version")
"""Keys of a configuration that say where a file lay and who read it."""
FACTS = ("general.license", "general.organization", "general.name", "general.source.url")


def convert(source: Path, folder: Path) -> None:
    """Write a GGUF's model into an existing folder: float32 weights, tokenizer, origin."""
    fields = _checked(source)
    import_extra("accelerate", "llm", f"reading {source}")  # transformers reads GGUF files with it
    from transformers import AutoModel, AutoTokenizer

    named: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    named["trust_remote_code"] = False  # beside it may lie a model with code
    try:
        with quiet():
            fast = AutoTokenizer.from_pretrained(source.parent, **named)
            model, report = AutoModel.from_pretrained(
                source.parent, dtype=torch.float32, output_loading_info=True, **named
            )
    except Exception as error:  # transformers raises many types here, all about the file
        kind = fields.get("general.architecture")
        problem = f"transformers cannot read this {kind} model from GGUF ({brief(error)})"
        raise ModelError(f"{source}: {problem}; use a model folder with safetensors") from error
    if report["missing_keys"]:
        lacking = ", ".join(sorted(report["missing_keys"])[:3])
        raise ModelError(f"{source}: weights are missing ({lacking}, ...)")
    config = {k: v for k, v in model.config.to_dict().items() if k not in PRIVATE}
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    write_object(folder / "config.json", config)
    save_tensors(folder / "model.safetensors", model.state_dict())
    # An attribute, which GPT-2 has by another name; T5 has no such limit.
    longest = int(getattr(model.config, "max_position_embeddings", LONGEST))
    names = dict(fast.special_tokens_map)
    Tokenizer(fast.backend_tokenizer, max_seq_length=longest, names=names).save(folder)
    # License, maker, name and source of the model, as far as the file states them.
    stated = {key.split(".", 1)[1]: fields.get(key) for key in FACTS}
    known = {key: str(value) for key, value in stated.items() if value}
    write_object(folder / ORIGIN, {"file": source.name, **known})


def _checked(source: Path) -> dict[str, Any]:
    """The single values of a GGUF, once it is known to be whole and to have a tokenizer."""
    with source.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ModelError(f"{source}: not a GGUF file (it does not start with {MAGIC.decode()})")
    gguf = import_extra("gguf", "llm", f"reading {source}")
    cut = f"{source}: the file is cut off or damaged; copy it again"
    try:
        reader = gguf.GGUFReader(source)
        fields = {key: field.contents() for key, field in reader.fields.items() if field.data}
    except Exception as error:  # numpy raises many kinds here, all about the file
        raise ModelError(cut) from error
    if any(t.data_offset + t.n_bytes > source.stat().st_size for t in reader.tensors):
        raise ModelError(cut)
    if not fields.get("tokenizer.ggml.tokens"):
        raise ModelError(f"{source}: contains no tokenizer; use a file of the whole model")
    return fields
