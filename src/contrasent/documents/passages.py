"""Documents cut into passages that a model reads whole.

A document that fits is one passage. Of others, sections are cut at their paragraphs and sentences
into parts of about one length, and small neighbouring sections are put together. Passages do not
overlap. Each is embedded and indexed with its title and headings before it, since its own text
seldom repeats what it is about.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from contrasent.documents import sentences
from contrasent.documents.duplicates import near_copies, recurring, without
from contrasent.documents.sections import Document
from contrasent.errors import OptionError
from contrasent.types import batched

_PAGE = re.compile(r"page \d+")
"""A heading that stands for a page; it says nothing of the text below."""
CountTokens = Callable[[Sequence[str]], Sequence[int]]

FEWEST = 16
"""Tokens that a passage must be able to hold."""

PREFIX = 0.25
"""Share of a passage's tokens that its title and headings may take."""

SMALL = 0.25
"""Share of a passage's tokens below which a section joins its neighbour."""

AT_ONCE = 256
"""Documents whose tokens are counted together."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document."""

    id: str  # the document's id, "#" and its place in it
    document: int
    title: str
    headings: tuple[str, ...]  # those above all of its text, outermost first
    order: int
    text: str  # headings within it are lines of it
    prefix: str  # of title and headings what fits before the text
    docstring: bool = False  # whether its document is or holds docstrings

    @property
    def indexed(self) -> str:
        """What is embedded and indexed."""
        return f"{self.prefix}\n{self.text}" if self.prefix else self.text


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
        shown = [
            f"{len(self.passages):,} passages of {len(self.documents):,} documents, "
            f"{self.cut:,} of them cut"
        ]
        if self.boilerplate:
            shown.append(f"removed {self.boilerplate:,} paragraphs that many documents repeat")
        if self.exact or self.near:
            shown.append(f"removed {self.exact:,} copies and {self.near:,} near copies")
        return shown


@dataclass(slots=True)
class _Part:
    """A run of pieces below one heading path, with tokens."""

    headings: tuple[str, ...]
    pieces: list[str]
    tokens: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(self.tokens)


def passages(
    documents: Iterable[Document], *, count_tokens: CountTokens, max_tokens: int
) -> PassageSet:
    """Cut documents, all in memory, into passages without boilerplate and copies."""
    held = list(documents)
    if max_tokens < FEWEST:
        raise OptionError("max_tokens", max_tokens, f"a passage needs at least {FEWEST}")
    common = recurring(held)
    cleaned = [without(document, common) for document in held] if common else held
    removed = sum(map(_paragraphs, held)) - sum(map(_paragraphs, cleaned))
    cutter = _Cutter(count_tokens, max_tokens)
    every = list(cutter.cut(cleaned))
    texts = [passage.indexed for passage in every]
    first = near_copies(texts)
    number: dict[int, int] = {}
    holding: list[list[int]] = [[] for _ in held]
    pieces = [0] * len(held)
    exact = 0
    for i, (passage, original) in enumerate(zip(every, first, strict=True)):
        pieces[passage.document] += 1
        if original == i:
            number[i] = len(number)
        else:
            one, other = (texts[at].casefold().split() for at in (i, original))
            exact += one == other
        if number[original] not in holding[passage.document]:
            holding[passage.document].append(number[original])
    return PassageSet(
        tuple(every[i] for i in number),
        tuple(document.id for document in held),
        tuple(map(tuple, holding)),
        boilerplate=removed,
        exact=exact,
        near=len(every) - len(number) - exact,
        cut=sum(count > 1 for count in pieces),
    )


def _paragraphs(document: Document) -> int:
    return sum(len(section.paragraphs) for section in document.sections)


class _Cutter:
    def __init__(self, count_tokens: CountTokens, max_tokens: int) -> None:
        self._count, self._most = count_tokens, max_tokens
        self._special = count_tokens([""])[0]
        self._prefixes: dict[tuple[str, tuple[str, ...]], tuple[str, int]] = {}

    def _tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of texts without the special ones."""
        return [n - self._special for n in self._count(texts)] if texts else []

    def cut(self, documents: Iterable[Document]) -> Iterator[Passage]:
        """Cut all documents, counting the tokens of many at once."""
        for batch in batched(enumerate(documents), AT_ONCE):
            parts = [[*_parts(document)] for _, document in batch]
            flat = [part for some in parts for part in some]
            counts = iter(self._tokens([piece for part in flat for piece in part.pieces]))
            for part in flat:
                part.tokens = list(islice(counts, len(part.pieces)))
            made = [
                (number, document, text)
                for (number, document), some in zip(batch, parts, strict=True)
                for text in self._grouped(document, some)
            ]
            yield from self._fitted(made)

    def _grouped(self, document: Document, parts: list[_Part]) -> Iterator[_Part]:
        """The parts of a document as passages: put together where small, cut where long."""
        whole = _joined(parts, self._tokens)
        if whole.size <= self._room(document, whole.headings):
            yield whole
            return
        groups: list[list[_Part]] = []
        small = SMALL * self._most
        for part in parts:
            last = groups[-1] if groups else None
            if last and min(sum(one.size for one in last), part.size) < small:
                together = _joined([*last, part], self._tokens)
                if together.size <= self._room(document, together.headings):
                    last.append(part)
                    continue
            groups.append([part])
        for group in groups:
            part = _joined(group, self._tokens)
            yield from self._balanced(part, self._room(document, part.headings))

    def _balanced(self, part: _Part, room: int) -> Iterator[_Part]:
        """Cut a part at its pieces, each of them within the room, into parts of about one size."""
        pieces, tokens = self._within(part.pieces, part.tokens, room)
        left, taken = sum(tokens), 0
        start = 0
        for i, size in enumerate(tokens):
            count = -(-(left + taken) // room)  # parts that the rest takes at least
            if taken and (taken + size > room or taken >= (left + taken) / count):
                yield _Part(part.headings, pieces[start:i], tokens[start:i])
                start, taken = i, 0
            taken += size
            left -= size
        yield _Part(part.headings, pieces[start:], tokens[start:])

    def _within(
        self, pieces: Sequence[str], tokens: Sequence[int], room: int
    ) -> tuple[list[str], list[int]]:
        """Pieces longer than the room cut at lines, else sentences, else words, else letters."""
        fitting, sizes = list[str](), list[int]()
        for piece, size in zip(pieces, tokens, strict=True):
            if size <= room or len(piece) < 2:
                fitting.append(piece)
                sizes.append(size)
                continue
            finer = _finer(piece, -(-size // room) + 1)
            more, counts = self._within(finer, self._tokens(finer), room)
            fitting += more
            sizes += counts
        return fitting, sizes

    def _fitted(self, made: list[tuple[int, Document, _Part]]) -> Iterator[Passage]:
        """Passages; those that are longer together than their pieces were are cut again."""
        whole = list[tuple[int, Document, _Part]](made)
        while True:
            shown = [self._shown(document, part) for _, document, part in whole]
            counts = self._count(
                [f"{prefix}\n{text}" if prefix else text for prefix, text in shown]
            )
            if all(count <= self._most for count in counts):
                break
            finer = []
            for (number, document, part), count in zip(whole, counts, strict=True):
                halves = [part] if count <= self._most else _halves(part)
                finer += [(number, document, half) for half in halves]
            whole = finer
        places: dict[int, int] = {}
        for (number, document, part), (prefix, text) in zip(whole, shown, strict=True):
            if text:
                order = places[number] = places.get(number, -1) + 1
                name = f"{document.id}#{order}"
                where = (name, number, document.title, part.headings, order)
                yield Passage(*where, text, prefix, document.docstring)

    def _shown(self, document: Document, part: _Part) -> tuple[str, str]:
        return self._prefix(document.title, part.headings)[0], "".join(part.pieces).strip("\n ")

    def _room(self, document: Document, headings: tuple[str, ...]) -> int:
        return self._most - self._special - self._prefix(document.title, headings)[1]

    def _prefix(self, title: str, headings: tuple[str, ...]) -> tuple[str, int]:
        """Of title and headings what fits, and its tokens: all, the ends, or words of the last."""
        key = (title, headings)
        if key not in self._prefixes:
            tries = prefixes(title, headings)
            counts = self._tokens(tries)
            most = PREFIX * (self._most - self._special)
            fits = (pair for pair in zip(tries, counts, strict=True) if pair[1] <= most)
            self._prefixes[key] = next(fits, ("", 0))
        return self._prefixes[key]


def prefixes(title: str, headings: tuple[str, ...]) -> list[str]:
    """What may stand before a passage, the best first: all, the ends, or words of the last."""
    headings = tuple(name for name in headings if not _PAGE.fullmatch(name))
    names = [name for name in (title, " > ".join(headings)) if name]
    last = headings[-1:] or ((title,) if title else ())
    words = last[0].split() if last else []
    tries = ["\n".join(names), "\n".join(filter(None, (title, *headings[-1:]))), *last]
    return tries + [" ".join(words[:n]) for n in (24, 16, 8, 4, 2) if n < len(words)]


def _parts(document: Document) -> Iterator[_Part]:
    for section in document.sections:
        pieces: list[str] = []
        for paragraph in section.paragraphs:
            found = (
                paragraph.splitlines(keepends=True)
                if "\n" in paragraph
                else sentences.split(paragraph)
            )
            pieces += [*found[:-1], f"{found[-1]}\n"]
        yield _Part(section.headings, pieces)


def _joined(parts: list[_Part], count: Callable[[Sequence[str]], list[int]]) -> _Part:
    """Parts as one below the headings that all share; other headings become lines of the text."""
    if len(parts) == 1:
        return parts[0]
    common = parts[0].headings
    for part in parts[1:]:
        same = [a == b for a, b in zip(common, part.headings, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    pieces, tokens, above = list[str](), list[int](), common
    heads = []
    for part in parts:
        shared = 0
        while (
            shared < min(len(above), len(part.headings)) and above[shared] == part.headings[shared]
        ):
            shared += 1
        heads.append([f"{name}\n" for name in part.headings[shared:]])
        above = part.headings
    counts = iter(count([head for some in heads for head in some]))
    for part, some in zip(parts, heads, strict=True):
        pieces += [*some, *part.pieces]
        tokens += [*islice(counts, len(some)), *part.tokens]
    return _Part(common, pieces, tokens)


def _finer(piece: str, count: int) -> list[str]:
    """A piece cut into sentences, or about ``count`` parts at spaces, or at letters."""
    found = sentences.split(piece)
    if len(found) > 1:
        return found
    size = max(-(-len(piece) // count), 1)
    parts, start = [], 0
    while start < len(piece):
        end = start + size
        if end < len(piece):
            space = piece.rfind(" ", start + size // 2, end)
            end = space + 1 if space >= 0 else end
        parts.append(piece[start:end])
        start = end
    return parts


def _halves(part: _Part) -> list[_Part]:
    """A part in two, at a piece or within its only one."""
    pieces = part.pieces if len(part.pieces) > 1 else _finer(part.pieces[0], 2)
    middle = (len(pieces) + 1) // 2
    return [_Part(part.headings, some) for some in (pieces[:middle], pieces[middle:]) if some]
