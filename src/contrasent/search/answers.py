"""The sentence of a passage that answers a query, and the words of the query in it."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.documents.sections import sentences
from contrasent.metrics import normalize
from contrasent.progress import check_deadline
from contrasent.search.index import Hit, grouped
from contrasent.search.words import WORD, Analyzer
from contrasent.types import EncodeFn, Vectors, for_task

LONGEST = 300  # characters of an answer
HEADING, WORD_OR_TWO = 40, 20
"""Characters below which a sentence without a full stop, or any, says too little: it is a heading,
and the next sentence belongs to the answer, as it does to a question."""
FIRST, LEAST, ENCODED = 8, 2, 32
"""Sentences that are encoded of the first hit, of each hit, and in one search. The others of a
text, chosen by their words, are not compared by vectors: encoding takes most of a search's time."""
SHARED = 0.3  # the gain of a sentence with all of the query's words, as a cosine
BEFORE = 80
"""Characters that are shown before the first word of the query in a sentence that is too long."""
WRAPPED = range(60, 91)  # line lengths that suggest wrapping
BEHIND = 0.5  # penalty of a task or a table-of-contents entry, as a cosine
# "- [ ] call the bank", "TODO: call", "Scope ..... 7", "1.2 Scope 7", a list of links within a page
_LISTED = re.compile(
    r"^\s*(?:[-*+•]\s+)?(?:\[[ xX✓]\]|☐|☑|TODO\b|FIXME\b|\[[^]\n]{1,99}\]\(#)"
    r"|(?:\.\s?){4,}\d*\s*$|^\s*\d+\s*$|^\s*\d+(?:\.\d+)*\.?\s[^.!?\n]{1,80}\s\d{1,4}\s*$"
)
_ALONE = re.compile(r"^([^\n]{0,58}[^.!?:;,\s])\n(?=[^\n])(?![a-zß-ÿ])", re.MULTILINE)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Where in a hit's text the answer stands."""

    start: int  # first character; ``end`` is one past the last
    end: int
    marks: tuple[Span, ...]  # (start, end) of words of the query within the answer
    # whether the sentence extends before the answer, and after it
    cut: tuple[bool, bool] = (False, False)
    listed: bool = False  # it is a task, or an entry of a table of contents

    def to_json(self, hit: Hit) -> dict[str, Any]:
        """The answer with its text and where it stands; offsets are those of the hit's text."""
        facts = {"start": self.start, "end": self.end, "marks": [list(m) for m in self.marks]}
        headings, page = place_of(hit, self.start)
        facts |= {"cut": list(self.cut), "headings": headings, "page": page, "listed": self.listed}
        return {"text": hit.text[self.start : self.end], **facts}


@dataclass(frozen=True, slots=True)
class _Passage:
    """The sentences of a hit: where they are, and the share of the query's words in each."""

    text: str
    spans: list[Span]
    shares: list[float]
    breaks: list[int]  # where its sections begin
    places: dict[int, int]  # of encoded sentences, by their number, the position in all texts

    def listed(self, n: int) -> bool:
        """True if a sentence is a task or a table-of-contents entry."""
        return bool(_LISTED.search(self.text[slice(*self.spans[n])]))

    def leads_on(self, first: int, n: int) -> bool:
        """True if a sentence is a heading or a question that the next one belongs to."""
        (start, end), (following, _) = self.spans[n : n + 2]
        if self.listed(n) or any(end <= place <= following for place in self.breaks):
            return False
        stopped = self.text.endswith((".", "!", "。", "…", "！"), start, end)
        short = end - first < WORD_OR_TWO if stopped else end - start < HEADING
        return short or self.text.endswith(("?", ":", "？", "："), start, end)


class Candidates:
    """The sentences of hits that may answer queries; ``texts`` are those to be encoded."""

    def __init__(
        self, queries: Sequence[str], results: Sequence[Sequence[Hit]], analyzer: Analyzer
    ) -> None:
        self.analyzer = analyzer
        self.wanted = [set(analyzer(query)) for query in queries]
        self.texts: list[str] = []
        self._passages = [
            self._choose(hits, wanted, ENCODED // len(queries))
            for hits, wanted in zip(results, self.wanted, strict=True)
        ]

    def _choose(self, hits: Sequence[Hit], wanted: set[str], room: int) -> list[_Passage]:
        """Choose sentences to encode: more of hits that come first, and are shown as such."""
        passages = []
        for hit in hits:
            check_deadline()
            spans = _sentences(hit)
            terms = (set(self.analyzer(hit.text[a:b])) for a, b in spans)
            shares = [len(wanted & some) / max(1, len(wanted)) for some in terms]
            passages.append(_Passage(hit.text, spans, shares, [i for i, *_ in _sections(hit)], {}))
        groups = grouped(hits)
        order = [group[0] for group in groups] + [i for group in groups for i in group[1:]]
        for rank, i in enumerate(order, 1):
            scored, few = passages[i], min(max(LEAST, FIRST // rank), room)
            if len(scored.spans) > 1 and few > 1:
                order_of = {n: (scored.listed(n), -share) for n, share in enumerate(scored.shares)}
                best = sorted(order_of, key=order_of.__getitem__)[:few]
                for n in best:
                    start, end = scored.spans[n]
                    scored.places[n] = len(self.texts)
                    self.texts.append(scored.text[start : min(end, start + LONGEST)])
                room -= len(best)
        return passages

    def best(self, queries: Vectors | None, vectors: Vectors | None) -> list[list[Answer]]:
        """The answer in each hit; queries (q, d) and ``texts`` (n, d); None for terms alone."""
        cosines = np.zeros((len(self.wanted), len(self.texts)), dtype=np.float32)
        if queries is not None and vectors is not None and len(self.texts):
            cosines = normalize(queries) @ normalize(vectors).T
        return [
            [self._answer(passage, scores, wanted) for passage in some]
            for some, scores, wanted in zip(self._passages, cosines, self.wanted, strict=True)
        ]

    def _answer(self, one: _Passage, cosines: NDArray[np.float32], wanted: set[str]) -> Answer:
        check_deadline()
        text, spans, places = one.text, one.spans, one.places
        scores = {
            n: SHARED * one.shares[n]
            + (float(cosines[places[n]]) if places else 0.0)
            - BEHIND * one.listed(n)
            for n in places or range(len(spans))
        }
        n = max(scores, key=lambda n: scores[n])
        (start, end), listed = spans[n], one.listed(n)
        while n + 1 < len(spans) and spans[n + 1][1] - start <= LONGEST and one.leads_on(start, n):
            n, end = n + 1, spans[n + 1][1]
        marks = self._marks(text, start, end, wanted)
        if end - start <= LONGEST:
            return Answer(start, end, tuple(marks), listed=listed)
        first, last = _window(text, start, end, marks)
        marks = [mark for mark in marks if mark[0] >= first and mark[1] <= last]
        return Answer(first, last, tuple(marks), (first > start, last < end), listed)

    def _marks(self, text: str, start: int, end: int, wanted: set[str]) -> list[Span]:
        """Words whose terms are wanted; pairs of letters in scripts without spaces."""
        found = list[Span]()
        for match in WORD.finditer(text, start, end):
            (a, b), unspaced = match.span(), match["unspaced"] is not None
            pairs = [(at, min(at + 2, b)) for at in range(a, max(a + 1, b - 1))]
            for first, last in pairs if unspaced else [(a, b)]:
                if wanted.isdisjoint(self.analyzer(text[first:last])):
                    continue
                if unspaced and found and first <= found[-1][1]:
                    first, _ = found.pop()
                found.append((first, last))
        return found


def answers(
    queries: Sequence[str],
    vectors: Vectors,
    results: Sequence[Sequence[Hit]],
    encode: EncodeFn,
    analyzer: Analyzer,
) -> list[list[Answer]]:
    """The sentence of each hit that is nearest to its query, by vectors (q, d) and words."""
    found = Candidates(queries, results, analyzer)
    return found.best(vectors, for_task(encode, "document")(found.texts) if found.texts else None)


def facts_of(hit: Hit) -> dict[str, Any]:
    """The metadata of a hit, by name."""
    return hit.metadata if isinstance(hit.metadata, dict) else {}


def path_of(hit: Hit, root: str) -> Path | None:
    """The file that a hit is a passage of, if it lies in the indexed folder."""
    document = facts_of(hit).get("document")
    if not root or not isinstance(document, str) or not document:
        return None
    # A row of a table; the name may be too long for a file.
    while "#" in document and not os.path.exists(Path(root, document)):  # noqa: PTH110
        document = document.rpartition("#")[0]
    inside = Path(document)
    return None if ".." in inside.parts or inside.is_absolute() else Path(root) / inside


def place_of(hit: Hit, at: int) -> tuple[list[str], int | None]:
    """The headings above a place in a hit's text, outermost first, and its page."""
    whole = facts_of(hit)
    within = [(names, page) for start, names, page in _sections(hit) if start <= at]
    headings, page = within[-1] if within else (whole.get("headings"), whole.get("page"))
    names = [str(name) for name in headings] if isinstance(headings, list) else []
    return names, page if isinstance(page, int) and page else None


def set_apart(text: str) -> str:
    """A text of the same length in which a line separator follows headings, cells and items."""
    return _ALONE.sub("\\1\u2028", text)


def _sections(hit: Hit) -> list[tuple[int, Any, Any]]:
    """Where the sections of a passage begin, with their headings and pages."""
    try:
        sections = [(start, names, page) for start, names, page in facts_of(hit)["sections"]]
    except (KeyError, TypeError, ValueError):  # the metadata of a table may hold anything
        return []
    return sections if all(isinstance(start, int) for start, *_ in sections) else []


def _sentences(hit: Hit) -> list[Span]:
    """Spans of the sentences in a hit's own text, after its title and headings."""
    facts, text = facts_of(hit), hit.text
    first = facts.get("body")
    if not isinstance(first, int) or not 0 <= first < len(text):
        first = 0
    if "document" not in facts and len(text.strip()) <= LONGEST:
        return [_stripped(text, 0, len(text))]
    spans = []
    for start, end in _blocks(text, first):
        offset = start
        for piece in sentences(text[start:end]):
            span = _stripped(text, offset, offset + len(piece))
            offset += len(piece)
            if any(map(str.isalnum, text[slice(*span)])):
                spans.append(span)
    return spans or [_stripped(text, first, len(text))]


def _blocks(text: str, first: int) -> Iterator[Span]:
    """Paragraphs, list items and other standalone lines; wrapped lines are joined."""
    start = line = first
    for match in re.compile(r"[^\S\n]*\n\s*").finditer(text, first):
        following = text[match.end() : match.end() + 1]
        last = text[match.start() - 1]
        wrapped = match.start() - line in WRAPPED and last not in ".!?:;"
        line = match.end()
        if match[0].count("\n") > 1 or not (
            (following.islower() and last not in ".!?") or (wrapped and following.isalnum())
        ):
            yield start, match.start()
            start = match.end()
    yield start, len(text)


def _stripped(text: str, start: int, end: int) -> Span:
    """A span without the white space around it."""
    piece = text[start:end]
    first = start + len(piece) - len(piece.lstrip())
    return first, max(first, start + len(piece.rstrip()))


def _window(text: str, start: int, end: int, marks: list[Span]) -> Span:
    """The part of a sentence with most of the marks, cut at spaces where there are some."""

    def held(first: int) -> int:
        return sum(first <= a and b <= first + LONGEST - BEFORE for a, b in marks)

    first = max((a for a, _ in marks), key=held, default=start)
    begin = start
    if first - start > BEFORE:
        begin = max(start, min(first - BEFORE, end - LONGEST))
        space = text.find(" ", begin, first)
        begin = space + 1 if space >= 0 else begin
    stop = min(end, begin + LONGEST)
    space = text.rfind(" ", begin + LONGEST // 2, stop)
    return begin, space if stop < end and space >= 0 else stop
