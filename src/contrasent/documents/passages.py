"""Documents cut into passages that a model reads whole, each below its title and headings."""

# A document that fits is one passage. Of others, sections are cut at their paragraphs and sentences
# into parts of about one length, and small neighbouring sections are put together, without overlap.

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from contrasent.documents import sentences
from contrasent.documents.duplicates import near_copies, recurring, without
from contrasent.documents.sections import Document
from contrasent.errors import OptionError
from contrasent.types import batched

CountTokens = Callable[[Sequence[str]], Sequence[int]]

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
    page: int = 0  # that it begins on; 0 where there are none

    @property
    def indexed(self) -> str:
        """What is embedded and indexed."""
        return f"{self.prefix}\n{self.text}" if self.prefix else self.text

    @property
    def row(self) -> tuple[str, str, dict[str, Any]]:
        """Text, id and metadata of its row in an index."""
        about = {
            "document": self.id.rpartition("#")[0],
            "title": self.title,
            "headings": list(self.headings),
            "body": len(self.prefix) + 1 if self.prefix else 0,  # where the own text begins
        }
        return self.indexed, self.id, about | ({"page": self.page} if self.page else {})


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


@dataclass(slots=True)
class _Part:
    """A run of pieces below one heading path, with tokens."""

    headings: tuple[str, ...]
    pieces: list[str]
    tokens: list[int] = field(default_factory=list)
    page: int = 0

    @property
    def size(self) -> int:
        return sum(self.tokens)


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
        for part in parts:
            last = groups[-1] if groups else []
            if last and min(sum(one.size for one in last), part.size) < SMALL * self._most:
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
        left, taken, start = sum(tokens), 0, 0
        for i, size in enumerate(tokens):
            count = -(-(left + taken) // room)  # parts that the rest takes at least
            if taken and (taken + size > room or taken >= (left + taken) / count):
                yield _Part(part.headings, pieces[start:i], tokens[start:i], part.page)
                start, taken = i, 0
            taken += size
            left -= size
        yield _Part(part.headings, pieces[start:], tokens[start:], part.page)

    def _within(
        self, pieces: Sequence[str], tokens: Sequence[int], room: int
    ) -> tuple[list[str], list[int]]:
        """Pieces longer than the room cut at lines, else sentences, else words, else letters."""
        fitting, sizes = list[str](), list[int]()
        for piece, size in zip(pieces, tokens, strict=True):
            more, counts = [piece], [size]
            if size > room and len(piece) > 1:
                finer = _finer(piece, -(-size // room) + 1)
                more, counts = self._within(finer, self._tokens(finer), room)
            fitting += more
            sizes += counts
        return fitting, sizes

    def _fitted(self, made: list[tuple[int, Document, _Part]]) -> Iterator[Passage]:
        """Passages; those that are longer together than their pieces were are cut again."""
        while True:
            found, orders = list[Passage](), Counter[int]()
            for number, document, part in made:
                text = "".join(part.pieces).strip("\n ")
                prefix = self._prefix(document.title, part.headings)[0]
                name = f"{document.id}#{orders[number] + 1}"
                where = (name, number, document.title, part.headings, orders[number])
                found.append(Passage(*where, text, prefix, document.docstring, part.page))
                orders[number] += bool(text)
            counts = self._count([passage.indexed for passage in found])
            if max(counts, default=0) <= self._most:
                break
            made = [
                (number, document, half)
                for (number, document, part), count in zip(made, counts, strict=True)
                for half in ([part] if count <= self._most else _halves(part))
            ]
        yield from (passage for passage in found if passage.text)

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
    names = [name for name in (title, " > ".join(headings)) if name]
    last = headings[-1:] or ((title,) if title else ())
    words = last[0].split() if last else []
    tries = ["\n".join(names), "\n".join(filter(None, (title, *headings[-1:]))), *last]
    return tries + [" ".join(words[:n]) for n in (24, 16, 8, 4, 2) if n < len(words)]


def _parts(document: Document) -> Iterator[_Part]:
    for section in document.sections:
        pieces: list[str] = []
        for text in section.paragraphs:
            found = text.splitlines(keepends=True) if "\n" in text else sentences.split(text)
            pieces += [*found[:-1], f"{found[-1]}\n"]
        yield _Part(section.headings, pieces, page=section.page)


def _joined(parts: list[_Part], count: Callable[[Sequence[str]], list[int]]) -> _Part:
    """Parts as one below the headings that all share; other headings become lines of the text."""
    if len(parts) == 1:
        return parts[0]
    common = parts[0].headings
    for part in parts:
        common = common[: _shared(common, part.headings)]
    heads, above = [], common
    for part in parts:
        below = part.headings[_shared(above, part.headings) :]
        heads.append([f"{name}\n" for name in below])
        above = part.headings
    counts = iter(count([head for some in heads for head in some]))
    pieces, tokens = list[str](), list[int]()
    for part, some in zip(parts, heads, strict=True):
        pieces += [*some, *part.pieces]
        tokens += [*islice(counts, len(some)), *part.tokens]
    return _Part(common, pieces, tokens, parts[0].page)


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return [*(a == b for a, b in zip(one, other, strict=False)), False].index(False)


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
    halves = (pieces[:middle], pieces[middle:])
    return [_Part(part.headings, some, page=part.page) for some in halves if some]
