"""Keys that documents hold by accident: the lines are left out, and counted."""

import re
from collections.abc import Iterable
from dataclasses import replace

from contrasent.documents.sections import Section

KEY = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
    | \b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b                     # Amazon
    | \bsk-(?:proj-|ant-|live-|or-)?[A-Za-z0-9_-]{20,}            # OpenAI, Anthropic and others
    | \b(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}               # Stripe
    | \bgh[pousr]_[A-Za-z0-9]{36,}\b | \bgithub_pat_[A-Za-z0-9_]{40,}
    | \bglpat-[A-Za-z0-9_-]{20,}
    | \bxox[abposr]-[A-Za-z0-9-]{10,}                             # Slack
    | \bAIza[0-9A-Za-z_-]{35}\b | \bya29\.[0-9A-Za-z_-]{20,}      # Google
    | \bhf_[A-Za-z]{30,}\b                                        # Hugging Face
    | \bnpm_[A-Za-z0-9]{36}\b | \bpypi-[A-Za-z0-9_-]{50,}
    | \bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}                # SendGrid
    | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}
    | \b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]{6,}@                # passwords in addresses
    """,
    re.VERBOSE,
)
_HINTS = tuple(
    (
        "-----BEGIN AKIA ASIA ABIA ACCA sk- k_live_ k_test_ gh glpat- xox AIza ya29. hf_ npm_ pypi- SG. "
        "eyJ ://"
    ).split()
)
"""One of them stands in every key."""


def without_keys(sections: Iterable[Section]) -> tuple[tuple[Section, ...], int]:
    """Sections without the lines that hold a key, and how many such lines there were."""
    kept, found, inside = [], 0, False
    for section in sections:
        paragraphs = []
        for text in section.paragraphs:
            if inside or any(hint in text for hint in _HINTS):
                text, count, inside = _clean(text, inside)
                found += count
            if text:
                paragraphs.append(text)
        if paragraphs:
            kept.append(replace(section, paragraphs=tuple(paragraphs)))
    return tuple(kept), found


def _clean(text: str, inside: bool) -> tuple[str, int, bool]:
    """A paragraph without its lines with keys; ``inside`` of a private key nothing is kept."""
    lines, count = [], 0
    for line in text.split("\n"):
        if inside:
            inside = "-----END" not in line
            continue
        if KEY.search(line):
            count += 1
            inside = "PRIVATE KEY-----" in line and "-----END" not in line
            continue
        lines.append(line)
    return "\n".join(lines).strip("\n"), count, inside
