"""Pairs of a query and what it should find, made of passages without labels: a maker a function.

None of these queries was typed by a person, but for those of click logs. Each maker stands for one
way of searching: by a title, by a question, by a sentence on the same matter. What a
passage has in common with a query that was taken from it is the trap: the makers take the query's
text out of what it should find, and :func:`without_copied` takes out of a query words that stand in
both.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from contrasent.documents.passages import Passage
from contrasent.documents.prose import summary_and_explanation
from contrasent.search.words import words

FEWEST_WORDS = 4  # words of a sentence that says something
QUESTION_WORDS = 3  # words of a question that does
COMMON = 3
"""A heading of more documents than this, such as "Introduction", asks for nothing in particular."""

_MARKED = re.compile(
    r"(?:^|\n)\s*Q(?:uestion)?\s*[.:]\s*(?P<question>[^\n]+?)\s*\n+\s*A(?:nswer)?\s*[.:]\s*"
    r"(?P<answer>.+?)(?=\n\s*Q(?:uestion)?\s*[.:]|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_MARKS = ("?", "？", "؟")


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and what it should find."""

    query: str
    text: str  # the passage's, without what the query was taken from
    passage: int
    maker: str
    old: bool = False  # of text that the base was made of, in an update


@dataclass(frozen=True, slots=True)
class Source:
    """Passages that pairs are made of."""

    passages: Sequence[Passage]
    numbers: Sequence[int]
    split: Callable[[str], list[str]]
    seed: int

    def __iter__(self) -> Iterator[tuple[int, Passage]]:
        return ((number, self.passages[number]) for number in self.numbers)


Maker = Callable[[Source], Iterator[Pair]]


def random_of(seed: int, purpose: int, passage: int) -> np.random.Generator:
    """A generator for one passage, whatever the order in which passages are taken."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, passage, purpose, 7]))


def pieces(text: str) -> list[str]:
    """A text's words, or its characters where it is written without spaces; see :func:`joined`."""
    spaced = text.split()
    return spaced if 3 * len(spaced) >= len(words(text)) else [c for c in text if not c.isspace()]


def joined(parts: Sequence[str]) -> str:
    """Pieces as a text: characters side by side, words with a space between."""
    return ("" if all(len(part) == 1 for part in parts) else " ").join(parts)


def _as_indexed(passage: Passage, text: str) -> str:
    """A part of a passage's text with the title and headings that are indexed before it."""
    return f"{passage.prefix}\n{text}" if passage.prefix else text


def without_copied(
    query: str, text: str, terms: Callable[[str], list[str]], share: float, seed: int
) -> str:
    """A query without some of the words that stand in the text it should find."""
    # A person who has not seen the text uses other words; search by words gains falsely otherwise.
    there = set(terms(text))
    random = np.random.default_rng(seed)
    parts, space = pieces(query), " "
    if len(parts) > len(query.split()):  # characters: words of unspaced scripts are about a pair
        parts, space = ["".join(parts[at : at + 2]) for at in range(0, len(parts), 2)], ""
    left = [w for w in parts if not (there & set(terms(w)) and random.random() < share)]
    return space.join(left)


# ---------------------------------------------------------------------- the makers


def title_to_passage(source: Source) -> Iterator[Pair]:
    """The title and the headings of each passage, as far as they are the document's own."""
    named: dict[int, set[str]] = {}
    for passage in source.passages:
        named.setdefault(passage.document, set()).update((passage.title, *passage.headings))
    headings = Counter(name for names in named.values() for name in sorted(names) if name)
    for number, passage in source:
        telling = [name for name in passage.headings if headings[name] <= COMMON]
        parts = [part for part in (passage.title, *telling) if part]
        if parts and headings[passage.title] <= COMMON:
            yield Pair(" ".join(dict.fromkeys(parts)), passage.text, number, "title")


def first_sentence(source: Source) -> Iterator[Pair]:
    """The first sentence of each passage is the query, the rest of it the answer."""
    for number, passage in source:
        first, *rest = ([] if passage.docstring else source.split(passage.text)) or [""]
        if rest and len(pieces(first)) >= FEWEST_WORDS:
            yield Pair(first, _as_indexed(passage, " ".join(rest)), number, "first sentence")


def inverse_cloze(source: Source) -> Iterator[Pair]:
    """A sentence of each passage is the query for the others (Lee et al., 2019, Section 4)."""
    for number, passage in source:
        sentences = source.split(passage.text)
        usable = [i for i, s in enumerate(sentences) if len(pieces(s)) >= FEWEST_WORDS]
        if len(sentences) < 3 or not usable:
            continue
        taken = usable[int(random_of(source.seed, 1, number).integers(len(usable)))]
        rest = [s for i, s in enumerate(sentences) if i != taken]
        yield Pair(sentences[taken], _as_indexed(passage, " ".join(rest)), number, "sentence")


def question_to_answer(source: Source) -> Iterator[Pair]:
    """Headings and titles that are questions, "Q: ... A: ..." and questions that open a passage."""
    for number, passage in source:
        marked = list(_MARKED.finditer(passage.text))
        for match in marked:
            yield Pair(match["question"], match["answer"].strip(), number, "question")
        if marked:
            continue
        titles = [name for name in (passage.title, *passage.headings) if _is_question(name)]
        first, *rest = source.split(passage.text) or [""]
        if titles:
            yield Pair(titles[-1], passage.text, number, "question")
        elif rest and _is_question(first):
            yield Pair(first, _as_indexed(passage, " ".join(rest)), number, "question")


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(_MARKS) and len(pieces(text)) >= QUESTION_WORDS


def summary_to_explanation(source: Source) -> Iterator[Pair]:
    """The summary of a docstring is the query for the prose that explains it."""
    for number, passage in source:
        if passage.docstring:
            summary, explanation = summary_and_explanation(passage.text.replace("\n", "\n\n"))
            if explanation:
                yield Pair(summary, _as_indexed(passage, explanation), number, "docstring")


def clicks(
    log: Sequence[tuple[str, Mapping[int, float]]], holding: Sequence[Sequence[int]]
) -> Maker:
    """A maker of pairs from a click log.

    A query is to find the passage of the opened document that shares most words with it. It belongs
    to the part of the documents (training, choosing, proving) in which the one lies that was
    opened most often for it, and to that part alone.
    """

    def opened(source: Source) -> Iterator[Pair]:
        wanted = set(source.numbers)
        for query, counts in log:
            if wanted.isdisjoint(holding[max(counts, key=lambda document: counts[document])]):
                continue
            terms = set(words(query))
            for document in counts:
                there = [number for number in holding[document] if number in wanted]
                texts = [source.passages[at].indexed for at in there]
                shared = [len(terms.intersection(words(text))) for text in texts]
                if there:
                    best = shared.index(max(shared))
                    yield Pair(query, texts[best], there[best], "click")

    return opened
