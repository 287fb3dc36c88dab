"""Documents cut into passages that a model reads whole, each below its title and headings."""

# A document that fits is one passage. Of others, sections are cut at their paragraphs and sentences
# into parts of about one length, and small neighbouring sections are put together, without overlap.

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from contrasent.documents import sentences
from contrasent.documents.duplicates import near_copies, recurring, without
from contrasent.documents.sections import Document, Section
from contrasent.errors import OptionError
from contrasent.types import batched

CountTokens = Callable[[Sequence[str]], Sequence[int]]
Place = tuple[tuple[str, ...], int]  # headings, outermost first, and page; 0 where there are none
_Piece = tuple[str, int, Place]  # some text, its tokens, and where it stands

FEWEST = 16  # tokens that a passage must be able to hold
PREFIX = 0.25  # share of a passage's tokens that its title and headings may take
SMALL = 0.25  # share of a passage's tokens below which a section joins its neighbour
AT_ONCE = 256  # documents whose tokens are counted together


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document."""

    id: str  # the document's id, "#" and its number in it, from 1
    document: int
    title: str
    headings: tuple[str, ...]  # those above all of its text, outermost first
    order: int
    text: str  # headings within it are lines of it
    prefix: str  # of title and headings what fits before the text
    docstring: bool = False  # whether its document is or holds docstrings
    places: tuple[tuple[int, Place], ...] = ()  # of its sections, and where in ``text`` they begin

    @property
    def indexed(self) -> str:
        """The text that is embedded and indexed."""
        return f"{self.prefix}\n{self.text}" if self.prefix else self.text

    @property
    def row(self) -> tuple[str, str, dict[str, Any]]:
        """Text, id and metadata of its row in an index."""
        body = len(self.prefix) + 1 if self.prefix else 0  # where the own text begins
        about: dict[str, Any] = {
            "document": self.id.rpartition("#")[0],
            "title": self.title,
            "headings": list(self.headings),
            "body": body,
        }
        if self.places and self.places[0][1][1]:
            about["page"] = self.places[0][1][1]
        if len(self.places) > 1:
            found = [[body + at, list(names), page] for at, (names, page) in self.places]
            about["sections"] = found
        return self.indexed, self.id, about


@dataclass(frozen=True, slots=True)
class PassageSet:
    """All passages of some documents."""

    passages: tuple[Passage, ...]
    documents: tuple[str, ...]
    # by document; what was removed is stood for by what it copies
    holding: tuple[tuple[int, ...], ...]
    boilerplate: int = 0  # paragraphs removed because many documents have them
    exact: int = 0  # copies letter for letter, but for case and white space
    near: int = 0
    cut: int = 0

    def lines(self) -> list[str]:
        """The counts for a person, a line each."""
        of = f"{len(self.documents):,} documents, {self.cut:,} of them cut"
        shown = [f"{len(self.passages):,} passages of {of}"]
        if self.boilerplate:
            shown.append(f"removed {self.boilerplate:,} paragraphs that many documents repeat")
        if self.exact or self.near:
            shown.append(f"removed {self.exact:,} copies and {self.near:,} near copies")
        return shown


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of pieces below one heading path."""

    headings: tuple[str, ...]
    heads: list[_Piece]  # the headings as lines
    pieces: list[_Piece]

    @property
    def size(self) -> int:
        return sum(tokens for _, tokens, _ in self.pieces)


def passages(
    documents: Iterable[Document], *, count_tokens: CountTokens, max_tokens: int
) -> PassageSet:
    """Cut documents, all in memory, into passages without boilerplate and copies."""
    held = list(documents)
    common = recurring(held)
    cleaned = [without(document, common) for document in held] if common else held
    every = list(cut(cleaned, count_tokens, max_tokens))
    texts = [passage.indexed for passage in every]
    first = near_copies(texts)
    number: dict[int, int] = {}
    holding: list[list[int]] = [[] for _ in held]
    exact = 0
    for i, (passage, original) in enumerate(zip(every, first, strict=True)):
        if original == i:
            number[i] = len(number)
        else:
            exact += texts[i].casefold().split() == texts[original].casefold().split()
        if number[original] not in holding[passage.document]:
            holding[passage.document].append(number[original])
    return PassageSet(
        tuple(every[i] for i in number),
        tuple(document.id for document in held),
        tuple(map(tuple, holding)),
        boilerplate=_paragraphs(held) - _paragraphs(cleaned),
        exact=exact,
        near=len(every) - len(number) - exact,
        cut=sum(passage.order == 1 for passage in every),
    )


def _paragraphs(documents: Iterable[Document]) -> int:
    return sum(len(section.paragraphs) for one in documents for section in one.sections)


def cut(
    documents: Iterable[Document], count_tokens: CountTokens, max_tokens: int
) -> Iterator[Passage]:
    """Cut documents into passages, each document by itself."""
    if max_tokens < FEWEST:
        raise OptionError("max_tokens", max_tokens, f"a passage needs at least {FEWEST}")
    yield from _Cutter(count_tokens, max_tokens).cut(documents)


class _Cutter:
    def __init__(self, count_tokens: CountTokens, max_tokens: int) -> None:
        self._count, self._most = count_tokens, max_tokens
        self._special = count_tokens([""])[0]
        self._prefixes: dict[tuple[str, tuple[str, ...]], tuple[str, int]] = {}

    def _counted(self, texts: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Texts with their tokens, the special ones aside."""
        return (
            (text, n - self._special) for text, n in zip(texts, self._count(texts), strict=True)
        )

    def cut(self, documents: Iterable[Document]) -> Iterator[Passage]:
        """Cut all documents, counting the tokens of many at once."""
        for batch in batched(enumerate(documents), AT_ONCE):
            texts = [_texts(section) for _, document in batch for section in document.sections]
            counted = iter(self._counted([text for some in texts for text in some]))
            lengths, made = iter(map(len, texts)), list[tuple[int, Document, _Part]]()
            for number, document in batch:
                parts = []
                for section in document.sections:
                    place, depth = (section.headings, section.page), len(section.headings)
                    pieces = [(*one, place) for one in islice(counted, next(lengths))]
                    parts.append(_Part(section.headings, pieces[:depth], pieces[depth:]))
                made += [(number, document, part) for part in self._grouped(document, parts)]
            yield from self._fitted(made)

    def _grouped(self, document: Document, parts: list[_Part]) -> Iterator[_Part]:
        """The parts of a document as passages: put together where small, cut where long."""
        whole = _joined(parts)
        if whole.size <= self._room(document, whole):
            yield whole
            return
        groups: list[list[_Part]] = []
        for part in parts:
            if groups and min(_joined(groups[-1]).size, part.size) < SMALL * self._most:
                together = _joined([*groups[-1], part])
                if together.size <= self._room(document, together):
                    groups[-1].append(part)
                    continue
            groups.append([part])
        for part in map(_joined, groups):
            yield from self._balanced(part, self._room(document, part))

    def _balanced(self, part: _Part, room: int) -> Iterator[_Part]:
        """Cut a part at its pieces, each of them within the room, into parts of about one size."""
        room = max(room, 1)
        pieces = list(self._within(part.pieces, room))
        left, taken, start = sum(size for _, size, _ in pieces), 0, 0
        for i, (_, size, _) in enumerate(pieces):
            count = -(-(left + taken) // room)  # parts that the rest takes at least
            if taken and (taken + size > room or taken >= (left + taken) / count):
                yield replace(part, pieces=pieces[start:i])
                start, taken = i, 0
            taken += size
            left -= size
        yield replace(part, pieces=pieces[start:])

    def _within(self, pieces: Iterable[_Piece], room: int) -> Iterator[_Piece]:
        """Pieces longer than the room cut at sentences, else words, else letters."""
        for text, size, place in pieces:
            if size > room and len(text) > 1:
                finer = self._counted(_finer(text, -(-size // room) + 1))
                yield from self._within(((*one, place) for one in finer), room)
            else:
                yield text, size, place

    def _fitted(self, made: list[tuple[int, Document, _Part]]) -> Iterator[Passage]:
        """Passages; those that are longer together than their pieces were are cut again."""
        while True:
            found, orders = list[Passage](), Counter[int]()
            for number, document, part in made:
                text, places = _text_and_places(part.pieces)
                prefix = self._prefix(document.title, part.headings)[0]
                name = f"{document.id}#{orders[number] + 1}"
                where = (name, number, document.title, part.headings, orders[number])
                found.append(Passage(*where, text, prefix, document.docstring, places))
                orders[number] += bool(text)
            counts = self._count([passage.indexed for passage in found])
            if max(counts, default=0) <= self._most:
                yield from (passage for passage in found if passage.text)
                return
            made = [
                (number, document, half)
                for (number, document, part), count in zip(made, counts, strict=True)
                for half in (
                    [part] if count <= self._most else self._balanced(part, part.size // 2)
                )
            ]

    def _room(self, document: Document, part: _Part) -> int:
        return self._most - self._special - self._prefix(document.title, part.headings)[1]

    def _prefix(self, title: str, headings: tuple[str, ...]) -> tuple[str, int]:
        """Of title and headings what fits, and its tokens: all, the ends, or words of the last."""
        key = (title, headings)
        if key not in self._prefixes:
            most = PREFIX * (self._most - self._special)
            tries = self._counted(prefixes(title, headings))
            self._prefixes[key] = next((one for one in tries if one[1] <= most), ("", 0))
        return self._prefixes[key]


def prefixes(title: str, headings: tuple[str, ...]) -> list[str]:
    """What may stand before a passage, the best first: all, the ends, or words of the last."""
    last = headings[-1] if headings else title
    words = last.split()
    tries = [
        "\n".join(filter(None, (title, end))) for end in (" > ".join(headings), *headings[-1:])
    ]
    return [*tries, last, *(" ".join(words[:n]) for n in (24, 16, 8, 4, 2) if n < len(words))]


def _texts(section: Section) -> list[str]:
    """The headings of a section as lines, and its paragraphs in lines or sentences."""
    texts = [f"{name}\n" for name in section.headings]
    for text in section.paragraphs:
        found = text.splitlines(keepends=True) if "\n" in text else sentences.split(text)
        texts += [*found[:-1], f"{found[-1]}\n"]
    return texts


def _text_and_places(pieces: Sequence[_Piece]) -> tuple[str, tuple[tuple[int, Place], ...]]:
    """The text of pieces, and where in it each stretch of one place begins."""
    text = "".join(text for text, *_ in pieces)
    blank, at = len(text) - len(text.lstrip("\n ")), 0
    places: list[tuple[int, Place]] = []
    for piece, _, place in pieces:
        if not places or places[-1][1] != place:
            places.append((max(0, at - blank), place))
        at += len(piece)
    return text.strip("\n "), tuple(places)


def _joined(parts: Sequence[_Part]) -> _Part:
    """Parts as one below the headings that all share; other headings become lines of the text."""
    above = parts[0].headings
    for part in parts:
        above = above[: _shared(above, part.headings)]
    whole = _Part(above, parts[0].heads[: len(above)], [])
    for part in parts:
        whole.pieces.extend(part.heads[_shared(above, part.headings) :] + part.pieces)
        above = part.headings
    return whole


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return [*(a == b for a, b in zip(one, other, strict=False)), False].index(False)


def _finer(piece: str, count: int) -> list[str]:
    """A piece cut into sentences, or about ``count`` parts at spaces, or at letters."""
    found = sentences.split(piece)
    if len(found) > 1:
        return found
    size = -(-len(piece) // count)
    if size < 2:
        return list(piece)
    return re.findall(rf".{{{-(-size // 2)},{size - 1}}} |.{{1,{size}}}", piece, re.DOTALL)
