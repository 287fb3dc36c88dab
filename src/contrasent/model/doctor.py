"""Compare a model's vectors with its golden vectors, and find the cause of a difference."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.model.encoder import Encoder
from contrasent.model.golden import EncoderConfig, Golden
from contrasent.model.poolers import POOLERS, pooler_class
from contrasent.types import Finding, Vectors

SAME = 1e-4  # relative error below which vectors count as the same: float32 on other hardware
NEAR = 0.985  # cosine above which all texts point to the same model with fewer bits
ALIKE = 0.9999  # cosine above which a variation counts as the explanation
LENGTHS = (16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192)


def _wrong(check: str, message: str) -> Finding:
    return Finding(check, False, message)


class Comparison:
    """Vectors (n, d) against golden ones."""

    def __init__(self, vectors: Vectors, golden: Vectors) -> None:
        a, b = vectors.astype(np.float64), golden.astype(np.float64)
        long_a, long_b = (np.maximum(np.linalg.norm(v, axis=1), 1e-30) for v in (a, b))
        error = np.linalg.norm(a - b, axis=1) / long_b
        self.cosines = (a * b).sum(axis=1) / (long_a * long_b)
        self.scale = float(np.median(long_a / long_b))
        self.same, self.cosine = bool(error.max() <= SAME), float(self.cosines.min())
        error_text = f"largest relative error {error.max():.1e}"
        self.summary = f"{error_text}, smallest cosine {self.cosine:.6f}"


def examine_folder(encoder: Encoder, golden: Golden) -> list[Finding]:
    """Check a loaded folder against its golden vectors, setting by setting."""
    now, then = encoder.config, golden.config
    findings = [*_settings(now, then), *_tokens(encoder, golden)]
    if now.dimension != then.dimension:
        return [*findings, _dimension(now.dimension, then.dimension)]
    found = Comparison(encoder.encode(golden.texts, batch=1), golden.vectors)
    if found.same:
        return [*findings, Finding("vectors", True, found.summary)]
    if all(finding.good for finding in findings):
        same = now.identity == then.identity
        if found.cosine >= NEAR and not same:
            findings.append(_wrong("precision", f"weights have fewer bits: {found.summary}"))
        else:
            cause = "the same weights compute differently here" if same else "weights differ"
            findings.append(_wrong("weights", f"{cause} from those that were saved"))
    return [*findings, _wrong("vectors", found.summary)]


def _settings(now: EncoderConfig, then: EncoderConfig) -> list[Finding]:
    rows = (
        ("pooling", now.pooling, then.pooling, "1_Pooling/config.json"),
        ("head", now.head, then.head, "the Dense module in modules.json"),
        ("normalisation", now.normalise, then.normalise, "the Normalize module in modules.json"),
        ("lower_case", now.lower_case, then.lower_case, "do_lower_case in sentence_bert_config"),
        ("truncation", now.max_tokens, then.max_tokens, "max_seq_length in sentence_bert_config"),
    )
    return [
        Finding(check, have == want, f"{_shown(want)}" if have == want else
                f"is {_shown(have)} and was {_shown(want)}: see {where}")
        for check, have, want, where in rows
    ]  # fmt: skip


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _tokens(encoder: Encoder, golden: Golden) -> list[Finding]:
    tokens, _ = encoder.tokenise(golden.texts, encoder.prompts.text())
    limit = min(encoder.max_tokens, golden.config.max_tokens)
    differ = []
    for row, text in enumerate(golden.texts):
        have, want = tokens[row], golden.tokens[row]
        # Texts that are cut elsewhere are another matter: their beginnings are compared.
        until = None if max(len(have), len(want)) < limit else limit - 1
        if not np.array_equal(have[:until], want[:until]):
            differ.append(text)
    if not differ:
        return [Finding("tokenisation", True, f"{len(golden.texts)} probes give the same ids")]
    return [
        _wrong(
            "tokenisation",
            f"{len(differ)} of {len(golden.texts)} probes give other ids, first "
            f"{differ[0][:40]!r}: tokenizer.json is not the one that was saved",
        )
    ]


def _dimension(have: int, want: int) -> Finding:
    return _wrong(
        "dimension", f"vectors have {have} dimensions and had {want}: another model or head"
    )


def examine_vectors(vectors: Vectors, golden: Golden, folder: Path) -> list[Finding]:
    """Check vectors that another program gave for the probes; the model's folder explains them."""
    if vectors.shape[1] != golden.vectors.shape[1]:
        return [_dimension(vectors.shape[1], golden.vectors.shape[1])]
    found = Comparison(vectors, golden.vectors)
    last = _wrong("vectors", found.summary)
    if found.same:
        return [Finding("vectors", True, found.summary)]
    if found.cosine >= ALIKE and abs(found.scale - 1) > 0.01:
        before = "scaled to length one" if golden.config.normalise else "not scaled"
        problem = f"the directions match, the lengths do not: vectors were {before}"
        return [_wrong("normalisation", problem), last]
    finding = _partly(found, golden) or _explain(vectors, golden, folder)
    if finding is None and found.cosine >= NEAR:
        finding = _wrong("precision", f"the same model with fewer bits: {found.summary}")
    if finding is None:
        finding = _wrong("weights", "no variation of this model gives such vectors")
    if finding.check == "truncation":
        finding = _where_cut(vectors, golden, folder) or finding
    return [finding, last]


def _partly(measured: Comparison, golden: Golden) -> Finding | None:
    """The property that the wrong texts share, where others are right."""
    wrong = measured.cosines < ALIKE
    if not wrong.any() or wrong.mean() > 0.8:
        return None
    lengths = golden.tokens.lengths
    if lengths[wrong].min() > lengths[~wrong].max():
        return _wrong(
            "truncation",
            f"texts of {lengths[wrong].min()} tokens and more differ, shorter ones do not: "
            f"they are cut elsewhere than at {golden.config.max_tokens}",
        )
    texts = [text for text, bad in zip(golden.texts, wrong, strict=True) if bad]
    if all(text != text.lower() for text in texts):
        return Finding("lower_case", False, f"texts with capitals differ, first {texts[0][:40]!r}")
    return _wrong(
        "tokenisation", f"{len(texts)} of {len(golden.texts)} texts differ, first {texts[0][:40]!r}"
    )


def _explain(vectors: Vectors, golden: Golden, folder: Path) -> Finding | None:
    """The variation of the model whose vectors these are."""
    texts = list(golden.texts)
    config = golden.config
    short = golden.tokens.lengths < min(32, config.max_tokens)
    if config.head:
        bare = Encoder.load(folder, head="none", check=False)
        if bare.dimension == config.dimension and _alike(bare, texts, vectors, short):
            return _wrong("head", "the dense head is left out")
    for name in POOLERS:
        if name == config.pooling or not pooler_class(name).portable:
            continue
        for head in (None, "none") if config.head else (None,):
            other = Encoder.load(folder, pooler=name, head=head, check=False)
            if other.dimension == config.dimension and _alike(other, texts, vectors, short):
                more = ", and the dense head is left out" if head else ""
                return _wrong(
                    "pooling", f"tokens are pooled by {name} and not by {config.pooling}{more}"
                )
    return None


def _alike(
    encoder: Encoder, texts: Sequence[str], vectors: Vectors, rows: NDArray[np.bool_]
) -> bool:
    return bool((Comparison(encoder.encode(texts), vectors).cosines[rows] >= ALIKE).all())


def _where_cut(vectors: Vectors, golden: Golden, folder: Path) -> Finding | None:
    longest = int(golden.tokens.lengths.argmax())
    text = [golden.texts[longest]]
    for length in LENGTHS:
        if length >= golden.config.max_tokens:
            break
        shorter = Encoder.load(folder, max_tokens=length, check=False)
        if Comparison(shorter.encode(text), vectors[[longest]]).cosine >= ALIKE:
            return _wrong(
                "truncation",
                f"texts are cut at {length} tokens and not at {golden.config.max_tokens}",
            )
    return None
