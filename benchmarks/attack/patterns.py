"""Regular expressions on hostile text: each reads 1 MB within a second."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.attack.bench import Bench

SIZE = 1_000_000
SECONDS = 1.0
MARKS = (
    "a <!-- ", "![", "[^", "[a](", "<http:", "*a _b ", "> ", "a.", "<![CDATA[", "`", "``a ", "- ",
    "|a", "|a\n|-\n", "\n\n", "&#1;", "<a ", "<script", "</script ", "[a]: b\n", "[[", "]]", "**a",
    "_", "\\", "a\u2010\n", "---\n", "title: ", "title: a\n", ":a:`", "::\n", "a/", "://", "x://a:",
    "sk-aaaaaaaaaaaaaaaaaaaa-", "eyJaaaaaaaaaa.", "-----BEGIN A", "AAAA", "gh", '"', "(a.b.",
    "Z. ", "z.B. ", "1.", "。", "a… »", "# a\n", "\t", "    a\n", "a\\\n", " \n", "a ", "ab.cD",
    "-\n", "a:1\n", "a-\nb", "sk_live_", "github_pat_", "x" * 30 + "://",
)  # fmt: skip
SHORT = ("_ABBREVIATED",)
"""Patterns that meet forty characters at most."""
ANCHORED = ("_SECRET_NAME", "_OPTION", "_GRID")
"""Patterns that are tried at the start of a text only."""


def patterns() -> Iterator[tuple[str, str, Callable[[str], object]]]:
    """The regular expressions that documents and answers meet: name, pattern, and use."""
    from contrasent.documents import (
        encodings,
        mail,
        office,
        parsers,
        pdf,
        rst,
        rtf,
        sections,
        text_formats,
    )
    from contrasent.search import answers, words

    def inside(value: Any) -> Iterator[re.Pattern[str]]:
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
            yield value
        elif isinstance(value, list | tuple):
            for part in value:
                yield from inside(part)

    documents = (encodings, mail, office, parsers, pdf, rst, rtf, sections, text_formats)
    for module in (*documents, answers, words):
        for name, value in vars(module).items():
            if name in SHORT:
                continue
            for number, pattern in enumerate(inside(value)):
                use = pattern.match if name in ANCHORED else partial(pattern.sub, "")
                yield f"{module.__name__}.{name}[{number}]", pattern.pattern, use


class _LateError(Exception):
    pass


def _late(*_: object) -> None:
    raise _LateError


def linear(bench: Bench) -> None:
    """Each pattern on each mark again and again, substituted everywhere."""
    signal.signal(signal.SIGVTALRM, _late)
    known = list(patterns())
    for number in bench.numbers(min(bench.count, len(MARKS))):
        text = MARKS[number] * (SIZE // len(MARKS[number]))
        for name, pattern, use in known:
            # Of those that are fast on a tenth, even a quadratic one takes no second.
            if seconds(use, text[: SIZE // 10]) > SECONDS / 100:
                taken = seconds(use, text)
                bench.slowest = max(bench.slowest, taken)
                if taken > SECONDS:
                    bench.fail("slow pattern", f"{name} on {MARKS[number]!r}", pattern)


def seconds(use: Callable[[str], object], text: str) -> float:
    """Processor time of a pattern on a text; it is stopped when it takes far too long."""
    began = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 3 * SECONDS)
    try:
        use(text)
    except _LateError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.process_time() - began


CASES = {"regular expressions": (linear, len(MARKS))}
