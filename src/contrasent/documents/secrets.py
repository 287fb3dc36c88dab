"""Keys that documents hold by accident: what holds one is left out, and counted."""

import re
from collections.abc import Iterable
from dataclasses import replace

from contrasent.documents.sections import Section

_KEY = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b                     # Amazon
    | \bsk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}                    # OpenAI, Anthropic and others
    | \b(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}               # Stripe
    | \bgh[pousr]_[A-Za-z0-9]{36,}\b | \bgithub_pat_[A-Za-z0-9_]{40,}
    | \bglpat-[A-Za-z0-9_-]{20,}
    | \bxox[abposr]-[A-Za-z0-9-]{10,}                             # Slack
    | \bAIza[0-9A-Za-z_-]{35}\b | \bya29\.[0-9A-Za-z_-]{20,}      # Google
    | \bhf_[A-Za-z]{30,}\b                                        # Hugging Face
    | \bnpm_[A-Za-z0-9]{36}\b | \bpypi-[A-Za-z0-9_-]{50,}
    | \bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}              # SendGrid
    | \beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,}          # JSON Web Token
    # user:password of an address, unless it stands for one
    | \b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{1,99}:(?!pass|secret|[<{$*])[^\s/@]{6,99}@
    """,
    re.VERBOSE,
)
_HINTS = (  # one of them stands in every key
    "-----BEGIN", "AKIA", "ASIA", "ABIA", "ACCA", "sk-", "k_live_", "k_test_", "gh", "glpat-",
    "xox", "AIza", "ya29.", "hf_", "npm_", "pypi-", "SG.", "eyJ", "://",
)  # fmt: skip
_END = "-----END"
# In the lines of a private key: base 64, or a header.
_OF_KEY = re.compile(r"[A-Za-z0-9+/=]{30}|^[\w-]+: |^[A-Za-z0-9+/=]*$")


def without_keys(sections: Iterable[Section]) -> tuple[tuple[Section, ...], int]:
    """Sections without the lines, in prose sentences, that hold a key, and how many those were."""
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
    """A paragraph without what holds a key; ``inside`` says that a private key goes on."""
    mark = "\n" if "\n" in text else " "
    lines, count = [], 0
    for line in text.split("\n") if mark == "\n" else re.split(r"(?<=[.!?]) ", text):
        if inside and (_END in line or _OF_KEY.search(line)):
            inside = _END not in line
            continue
        inside = False
        if not _KEY.search(line):
            lines.append(line)
            continue
        count += 1
        inside = "PRIVATE KEY" in line and _END not in line
    return mark.join(lines).strip("\n"), count, inside
