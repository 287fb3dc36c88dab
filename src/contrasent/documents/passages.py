"""Documents cut into passages that a model reads whole, each below its title and headings."""

# A document that fits is one passage. In others, sections are cut at paragraphs and sentences into
# parts of about equal length, and small neighboring sections are joined, without overlap.

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from contrasent.documents.sections import Document, Section, sentences
from contrasent.errors import OptionError
from contrasent.types import batched

CountTokens = Callable[[Sequence[str]], Sequence[int]]
Row = tuple[str, str, dict[str, Any]]
"""A passage: the text that is indexed, its id, and its place."""
_Place = tuple[tuple[str, ...], int]  # headings, outermost first, and page; 0 where there are none

FEWEST = 16  # tokens that a passage must be able to hold
PREFIX = 0.25  # share of a passage's tokens that its title and headings may take
SMALL = 0.25  # share of a passage's tokens below which a section joins its neighbor
AT_ONCE = 256  # documents whose tokens are counted together


class _Piece(NamedTuple):
    text: str
    size: int  # tokens
    place: _Place


class _Prefix(NamedTuple):
    text: str
    size: int  # tokens
    held: tuple[str, ...]  # the names, of title and headings, that stand in it whole


class _Part(NamedTuple):
    """A run of pieces below one heading path."""

    headings: tuple[str, ...]
    heads: list[_Piece]  # the headings as lines
    pieces: list[_Piece]

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


def cut(
    documents: Iterable[Document], count_tokens: CountTokens, max_seq_length: int
) -> Iterator[Row]:
    """Cut documents into passages, each document by itself."""
    if max_seq_length < FEWEST:
        raise OptionError("max_seq_length", max_seq_length, f"a passage needs at least {FEWEST}")
    cutter = _Cutter(count_tokens, max_seq_length)
    for batch in batched(documents, AT_ONCE):
        yield from cutter.cut(batch)


class _Cutter:
    def __init__(self, count_tokens: CountTokens, max_seq_length: int) -> None:
        self._count, self._most = count_tokens, max_seq_length
        self._special = count_tokens([""])[0]
        self._prefixes: dict[tuple[str, tuple[str, ...]], _Prefix] = {}

    def _counted(self, texts: Sequence[str], place: _Place = ((), 0)) -> Iterator[_Piece]:
        """Texts with their tokens, without special ones."""
        for text, size in zip(texts, self._count(texts), strict=True):
            yield _Piece(text, size - self._special, place)

    def cut(self, documents: Sequence[Document]) -> Iterator[Row]:
        """Cut documents, counting the tokens of all at once."""
        texts = [_texts(section) for document in documents for section in document.sections]
        counted = iter(self._counted([text for some in texts for text in some]))
        lengths, grouped = iter(map(len, texts)), list[tuple[Document, _Part]]()
        for document in documents:
            parts = []
            for section in document.sections:
                place, depth = (section.headings, section.page), len(section.headings)
                pieces = [one._replace(place=place) for one in islice(counted, next(lengths))]
                parts.append(_Part(section.headings, pieces[:depth], pieces[depth:]))
            grouped += [(document, part) for part in self._grouped(document, parts)]
        # Passages that got too long when their pieces were joined are cut again.
        while True:
            rows, orders = list[Row](), Counter[str]()
            for document, part in grouped:
                row = self._row(document, part, orders[document.id] + 1)
                rows.append(row)
                orders[document.id] += row[2]["body"] < len(row[0])
            counts = self._count([text for text, *_ in rows])
            if max(counts, default=0) <= self._most:
                yield from (row for row in rows if row[2]["body"] < len(row[0]))
                return
            made, grouped = grouped, []
            for (document, part), count in zip(made, counts, strict=True):
                fits = count <= self._most
                halves = [part] if fits else self._balanced(part, part.size // 2)
                grouped += [(document, half) for half in halves]

    def _grouped(self, document: Document, parts: list[_Part]) -> Iterator[_Part]:
        """The parts of a document as passages: put together where small, cut where long."""
        whole = self._told(document, _joined(parts), set())
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
        told = set[tuple[str, ...]]()
        for group in groups:
            part = self._told(document, _joined(group), told)
            yield from self._balanced(part, self._room(document, part))

    def _told(self, document: Document, part: _Part, told: set[tuple[str, ...]]) -> _Part:
        """A part with what its prefix cannot hold of title and headings as text, once each."""
        held = self._prefix(document.title, part.headings).held
        names = (document.title, *part.headings)
        ways = [names[:n] for n, name in enumerate(names, 1) if name and name not in held]
        lines = [f"{way[-1]}\n" for way in ways if way not in told]
        told.update(ways)
        place = next((piece.place for piece in part.pieces), ((), 0))
        return part._replace(pieces=[*self._counted(lines, place), *part.pieces])

    def _balanced(self, part: _Part, room: int) -> Iterator[_Part]:
        """Cut a part between its pieces, which all fit the room, into parts of about one size."""
        room = max(room, 1)
        pieces = list(self._within(part.pieces, room))
        left, taken, start = sum(piece.size for piece in pieces), 0, 0
        for i, (_, size, _) in enumerate(pieces):
            count = -(-(left + taken) // room)  # fewest parts for the rest
            if taken and (taken + size > room or taken >= (left + taken) / count):
                yield part._replace(pieces=pieces[start:i])
                start, taken = i, 0
            taken += size
            left -= size
        yield part._replace(pieces=pieces[start:])

    def _within(self, pieces: Iterable[_Piece], room: int) -> Iterator[_Piece]:
        """Pieces longer than the room cut at sentences, else words, else letters."""
        for piece in pieces:
            if piece.size > room and len(piece.text) > 1:
                finer = _finer(piece.text, -(-piece.size // room) + 1)
                yield from self._within(self._counted(finer, piece.place), room)
            else:
                yield piece

    def _row(self, document: Document, part: _Part, number: int) -> Row:
        """The passage of a part, with the place of each section if it holds several."""
        prefix = self._prefix(document.title, part.headings).text
        text = "".join(piece.text for piece in part.pieces)
        body = len(prefix) + 1 if prefix else 0  # where the own text begins
        offset, places = body - (len(text) - len(text.lstrip("\n "))), list[tuple[int, _Place]]()
        for piece in part.pieces:
            if not places or places[-1][1] != piece.place:
                places.append((max(body, offset), piece.place))
            offset += len(piece.text)
        about: dict[str, Any] = {
            **document.metadata,
            "document": document.id,
            "title": document.title,
            "headings": list(part.headings),
            "body": body,
        }
        if places and (page := places[0][1][1]):
            about["page"] = page
        if len(places) > 1:
            about["sections"] = [[offset, list(names), page] for offset, (names, page) in places]
        text = text.strip("\n ")
        return f"{prefix}\n{text}" if prefix else text, f"{document.id}#{number}", about

    def _room(self, document: Document, part: _Part) -> int:
        return self._most - self._special - self._prefix(document.title, part.headings).size

    def _prefix(self, title: str, headings: tuple[str, ...]) -> _Prefix:
        """As much of title and headings as fits, with its tokens: all, ends, or last words."""
        key = (title, headings)
        if key not in self._prefixes:
            last = headings[-1] if headings else title
            words = last.split()
            ends = ((title, *headings), (title, *headings[-1:]), (last,))
            tries = [(_headed(*names), names) for names in ends]
            tries += [(" ".join(words[:n]), ()) for n in (24, 16, 8, 4, 2) if n < len(words)]
            most = PREFIX * (self._most - self._special)
            counted = self._counted([text for text, _ in tries])
            sized = zip(counted, tries, strict=True)
            fitting = (
                _Prefix(text, one.size, held) for one, (text, held) in sized if one.size <= most
            )
            self._prefixes[key] = next(fitting, _Prefix("", 0, ()))
        return self._prefixes[key]


def _texts(section: Section) -> list[str]:
    """The headings of a section as lines, and its paragraphs in lines or sentences."""
    texts = [f"{name}\n" for name in section.headings]
    for text in section.paragraphs:
        pieces = text.splitlines(keepends=True) if "\n" in text else sentences(text)
        texts += [*pieces[:-1], f"{pieces[-1]}\n"]
    return texts


def _headed(title: str, *headings: str) -> str:
    return "\n".join(filter(None, (title, " > ".join(headings))))


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
    parts = sentences(piece)
    if len(parts) > 1:
        return parts
    size = -(-len(piece) // count)
    if size < 2:
        return list(piece)
    return re.findall(rf".{{{-(-size // 2)},{size - 1}}} |.{{1,{size}}}", piece, re.DOTALL)
