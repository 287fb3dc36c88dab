"""Weights in safetensors, nothing unpickled, and the golden vectors stored with a model.

Golden vectors are those of probe texts, in golden/, since some servers read every *.safetensors
next to config.json as weights; golden/weights.json has the sha256 of each file of weights, which
loading compares.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from contrasent.errors import ModelError
from contrasent.files import atomic_file, read_object, write_json
from contrasent.types import Finding, Tokens, Vectors

SAME = 1e-4  # relative error below which vectors count as the same: float32 on other hardware
NEAR = 0.985  # cosine above which all texts suggest the same model with fewer bits

NAME = "golden/vectors.safetensors"
FORMAT = "contrasent-golden-1"
WEIGHTS = "golden/weights.json"

USUAL_HEADS = (
    (), ("Tanh",), ("Tanh", "Identity"), ("ReLU", "Identity"), ("ReLU", "Identity", "Identity"),
)  # fmt: skip
"""Activations of the dense layers of heads that are made here, with one that is fitted on top."""

PROBES = (
    "A short sentence.",
    "Two people talk about the weather while they wait for the bus.",
    "lower case, without a capital",
    "UPPER CASE IS NOT LOWER CASE",
    "Mixed Case Is neither",
    "The café façade in Łódź; a naïve coöperation.",
    "Zürich, Malmö and São Paulo are cities.",
    "12 apples cost 3.50 euros, 1,000 cost 2.9e2.",
    "What?! No... (yes) \u2013 \u201cperhaps\u201d \u2026",
    "e-mail: nobody@example.org, https://example.org/a?b=c#d",
    "word",
    ".",
    " leading and  doubled   spaces ",
    "a\ttab and\na line break",
    "def add(a, b): return a + b  # code",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002",
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u2014 \u0433\u043e\u0440\u043e\u0434.",
    "zero\u200bwidth, soft\u00adhyphen, bell\u0007 and a no-break\u00a0space",
    "\u0627\u0644\u0642\u0627\u0647\u0631\u0629 \u0645\u062f\u064a\u0646\u0629",
    "emoji \U0001f600 and \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "x\u00b2 + y\u00b2 = z\u00b2, \u03b1 \u2260 \u03b2",
    "e\u0301 is \u00e9, and \ufb01 is fi",
    "The model must read all of this sentence, which has about forty words in it, because some "
    "programs cut texts at thirty-two tokens without telling anybody, and then the vectors of long "
    "texts differ from those of the original while the short ones agree.",
    "It rains on the hill and in the valley. " * 80,
)
"""Texts on which programs that load a model are known to differ: case, accents, space, scripts,
length."""


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The settings of an encoder that determine its vectors, and a hash of all that does."""

    identity: str
    pooling: str
    head: bool  # whether there is a head on the pooled vector
    normalize: bool  # whether vectors are scaled to unit length
    lower_case: bool
    max_seq_length: int  # texts are truncated to this many tokens
    dimension: int


@dataclass(frozen=True, slots=True, eq=False)
class Golden:
    """Golden vectors."""

    texts: tuple[str, ...]
    tokens: Tokens
    vectors: Vectors  # (n, d) float32
    config: EncoderConfig


def write_golden(folder: Path, golden: Golden) -> None:
    """Write golden vectors and the weights' digests of a model; equal models, equal bytes."""
    from safetensors.numpy import save

    arrays: dict[str, Any] = {
        "vectors": golden.vectors,
        "ids": golden.tokens.ids,
        "offsets": golden.tokens.offsets,
    }
    header = {"format": FORMAT, "texts": list(golden.texts), "facts": asdict(golden.config)}
    # One key: safetensors writes several in an order that changes from call to call.
    data = save(arrays, {"golden": json.dumps(header)})
    with atomic_file(folder / NAME, "wb") as stream:
        stream.write(data)
    weights = [*folder.glob("*.safetensors"), *folder.glob("[0-9]*_*/*.safetensors")]
    names = sorted(path.relative_to(folder).as_posix() for path in weights)
    write_json(folder / WEIGHTS, {name: digest(folder / name) for name in names})


def model_identity(
    model: Any,
    arrays: Mapping[str, NDArray[Any]],
    head: Sequence[str],
    config: Mapping[str, Any],
    usual: Mapping[str, Any],
) -> str:
    """A hash of what determines a model's vectors: weights, tokenizer, settings, prompts.

    ``head``: activations of the dense layers. ``config``: the backbone's config.json, whose unusual
    settings count where they differ from ``usual``, so that other identities stay as they were.
    """
    hashed = hashlib.sha256()
    settings = (model.pooling, model.normalize, model.lower_case, model.max_seq_length)
    hashed.update(repr(settings).encode())
    if unusual := _unusual(tuple(head), model.normalize, config, usual):
        hashed.update(repr(unusual).encode())
    if prompts := sorted(item for item in model.prompts.texts.items() if item[1]):
        hashed.update(repr((prompts, model.prompts.default)).encode())
    hashed.update(model.tokenizer.to_str().encode())
    for key, value in sorted(arrays.items()):
        hashed.update(key.encode())
        hashed.update(np.ascontiguousarray(value).data)
    return hashed.hexdigest()


def _unusual(
    head: tuple[str, ...], normalize: bool, config: Mapping[str, Any], usual: Mapping[str, Any]
) -> list[Any]:
    """The unusual settings of a model that its weights do not show."""
    found: list[Any] = []
    # Vectors that are scaled may come from a layer that is only a product.
    if head not in USUAL_HEADS and not (normalize and set(head) == {"Identity"}):
        found.append(head)
    for key in ("hidden_act", "activation"):
        if usual.get(key) == "gelu" != config.get(key, "gelu"):
            found.append(config[key])
    epsilon = usual.get("layer_norm_eps")
    own = rounded(config.get("layer_norm_eps", epsilon)) if epsilon else epsilon
    if own not in (epsilon, 1e-12, 1e-5):
        found.append(own)
    return found + ["bidirectional"] * (config.get("is_causal") is False)


def rounded(number: float) -> float:
    """The shortest number that is the same in float32, in which models and files hold them."""
    return float(str(np.float32(number)))


def digest(path: Path) -> str:
    """The sha256 of a file: 0.05 s for 90 MB."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_published(path: Path, sha256: str, remedy: str) -> None:
    """Raise a ModelError if a file is not the published one."""
    actual = digest(path)
    if actual != sha256:
        problem = f"sha256 {actual[:12]}... is not the published file's ({sha256[:12]}...)"
        raise ModelError(f"{path}: {problem}; {remedy}")


def changed_weights(folder: Path) -> list[Path]:
    """The files of weights that changed since they were saved; none without digests."""
    saved = ((folder / name, value) for name, value in read_object(folder / WEIGHTS).items())
    return [path for path, value in saved if path.is_file() and digest(path) != value]


def check_weights(folder: Path) -> None:
    """Raise a ModelError if the weights changed since they were saved."""
    for path in changed_weights(folder):
        raise ModelError(
            f"{path}: has changed since it was saved (sha256 differs); copy it again, or "
            f"accept the change with 'contrasent doctor {folder} --write'"
        )


def read_golden(folder: Path) -> Golden:
    """Read a model's golden vectors."""
    path = folder / NAME
    if not path.is_file():
        raise ModelError(
            f"{folder}: has no golden vectors to compare with; if the model is correct, save "
            "them with 'contrasent doctor MODEL --write'"
        )
    try:
        with safe_open(path, framework="numpy") as stored:
            header = json.loads((stored.metadata() or {})["golden"])
            if header.pop("format") != FORMAT:
                raise ModelError(f"{path}: is not a file of golden vectors ({FORMAT})")
            arrays = {name: stored.get_tensor(name) for name in ("vectors", "ids", "offsets")}
        texts = tuple(str(text) for text in header["texts"])
        config = EncoderConfig(**header["facts"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: is damaged ({error}); save the golden vectors again") from error
    vectors = np.asarray(arrays["vectors"], dtype=np.float32)
    if vectors.shape != (len(texts), config.dimension) or len(arrays["offsets"]) != len(texts) + 1:
        raise ModelError(f"{path}: is damaged (its shapes disagree); save the golden vectors again")
    return Golden(texts, Tokens(arrays["ids"], arrays["offsets"]), vectors, config)


def save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays as safetensors."""
    from safetensors.numpy import save_file

    save_file(arrays, path, metadata={"format": "pt"})


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a safetensors file as arrays; bfloat16, which numpy lacks, as float32."""
    with readable(path), safe_open(path, framework="numpy") as stored, path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        parts, arrays = json.loads(stream.read(size)), {}
        for name in stored.keys():  # noqa: SIM118
            if parts[name]["dtype"] != "BF16":
                arrays[name] = stored.get_tensor(name)
                continue
            start, end = parts[name]["data_offsets"]
            # The upper half of a float32 has its sign, its exponent and its first bits.
            halves = np.fromfile(path, "<u2", (end - start) // 2, offset=8 + size + start)
            bits = np.left_shift(halves, 16, dtype=np.uint32)
            arrays[name] = bits.view(np.float32).reshape(parts[name]["shape"])
        return arrays


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise a ModelError if a safetensors file is missing or damaged."""
    try:
        yield
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{path}: missing or not readable as safetensors ({error})") from error


class Comparison:
    """Vectors (n, d) against golden ones."""

    def __init__(self, vectors: Vectors, golden: Vectors) -> None:
        a, b = vectors.astype(np.float64), golden.astype(np.float64)
        long_a, long_b = (np.maximum(np.linalg.norm(v, axis=1), 1e-30) for v in (a, b))
        error = np.linalg.norm(a - b, axis=1) / long_b
        self.same = bool(error.max() <= SAME)
        self.cosine = float(((a * b).sum(axis=1) / (long_a * long_b)).min())
        error_text = f"largest relative error {error.max():.1e}"
        self.summary = f"{error_text}, smallest cosine {self.cosine:.6f}"


def compare_golden(computed: Golden, saved: Golden) -> list[Finding]:
    """Compare the vectors computed now with the golden ones, setting by setting."""
    now, then = computed.config, saved.config
    findings = [*_settings(now, then), *_tokens(computed, saved)]
    if now.dimension != then.dimension:
        sizes = f"vectors have {now.dimension} dimensions, saved were {then.dimension}"
        return [*findings, Finding("dimension", False, f"{sizes}: a different model or head")]
    comparison = Comparison(computed.vectors, saved.vectors)
    if comparison.same:
        return [*findings, Finding("vectors", True, comparison.summary)]
    if all(finding.good for finding in findings):
        same = now.identity == then.identity
        if comparison.cosine >= NEAR and not same:
            findings.append(
                Finding("precision", False, f"weights have fewer bits: {comparison.summary}")
            )
        else:
            cause = "the same weights compute differently here" if same else "weights differ"
            findings.append(Finding("weights", False, f"{cause} from those that were saved"))
    return [*findings, Finding("vectors", False, comparison.summary)]


SETTINGS = (
    ("pooling", "pooling", "1_Pooling/config.json"),
    ("head", "head", "the Dense module in modules.json"),
    ("normalization", "normalize", "the Normalize module in modules.json"),
    ("lower_case", "lower_case", "do_lower_case in sentence_bert_config"),
    ("truncation", "max_seq_length", "max_seq_length in sentence_bert_config"),
)
"""The checks of settings, each with its field and the place in a model folder."""


def _settings(now: EncoderConfig, then: EncoderConfig) -> Iterator[Finding]:
    for check, field, where in SETTINGS:
        have, want = _shown(getattr(now, field)), _shown(getattr(then, field))
        differs = f"is {have}, saved was {want}; see {where}"
        yield Finding(check, have == want, want if have == want else differs)


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _tokens(computed: Golden, saved: Golden) -> list[Finding]:
    limit = min(computed.config.max_seq_length, saved.config.max_seq_length)
    differ = []
    for row, text in enumerate(saved.texts):
        have, want = computed.tokens[row], saved.tokens[row]
        # If texts are truncated differently, their beginnings are compared.
        until = None if max(len(have), len(want)) < limit else limit - 1
        if not np.array_equal(have[:until], want[:until]):
            differ.append(text)
    if not differ:
        return [Finding("tokenization", True, f"{len(saved.texts)} probes give the same ids")]
    counts = f"{len(differ)} of {len(saved.texts)} probes give other ids, first {differ[0][:40]!r}"
    return [Finding("tokenization", False, f"{counts}: tokenizer.json differs from the saved one")]
