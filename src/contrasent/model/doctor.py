"""Compare a model's vectors with its golden vectors, and find the cause of a difference."""

import numpy as np

from contrasent.model.golden import EncoderConfig, Golden
from contrasent.types import Finding, Vectors

SAME = 1e-4  # relative error below which vectors count as the same: float32 on other hardware
NEAR = 0.985  # cosine above which all texts point to the same model with fewer bits


def _wrong(check: str, message: str) -> Finding:
    return Finding(check, False, message)


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
    """Compare vectors as they are computed now with the golden ones, setting by setting."""
    now, then = computed.config, saved.config
    findings = [*_settings(now, then), *_tokens(computed, saved)]
    if now.dimension != then.dimension:
        return [*findings, _dimension(now.dimension, then.dimension)]
    comparison = Comparison(computed.vectors, saved.vectors)
    if comparison.same:
        return [*findings, Finding("vectors", True, comparison.summary)]
    if all(finding.good for finding in findings):
        same = now.identity == then.identity
        if comparison.cosine >= NEAR and not same:
            findings.append(_wrong("precision", f"weights have fewer bits: {comparison.summary}"))
        else:
            cause = "the same weights compute differently here" if same else "weights differ"
            findings.append(_wrong("weights", f"{cause} from those that were saved"))
    return [*findings, _wrong("vectors", comparison.summary)]


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


def _tokens(computed: Golden, saved: Golden) -> list[Finding]:
    limit = min(computed.config.max_tokens, saved.config.max_tokens)
    differ = []
    for row, text in enumerate(saved.texts):
        have, want = computed.tokens[row], saved.tokens[row]
        # Texts that are cut elsewhere are another matter: their beginnings are compared.
        until = None if max(len(have), len(want)) < limit else limit - 1
        if not np.array_equal(have[:until], want[:until]):
            differ.append(text)
    if not differ:
        return [Finding("tokenisation", True, f"{len(saved.texts)} probes give the same ids")]
    return [
        _wrong(
            "tokenisation",
            f"{len(differ)} of {len(saved.texts)} probes give other ids, first "
            f"{differ[0][:40]!r}: tokenizer.json is not the one that was saved",
        )
    ]


def _dimension(have: int, want: int) -> Finding:
    return _wrong(
        "dimension", f"vectors have {have} dimensions and had {want}: another model or head"
    )
