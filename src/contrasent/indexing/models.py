"""The model of an index, which searches it, and the base for texts in a language.

A vocabulary that was not made for a language cuts its words into many pieces, or has none for them.
That is measured on the documents of each language; no model is loaded.
"""

import os
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrasent.errors import ModelError, see
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import find_model, open_encoder
from contrasent.model.pretrained import MINILM, installed_bases
from contrasent.search.index import BaseIndex, Hit
from contrasent.search.index import Index as Index
from contrasent.search.opening import open_index as open_index
from contrasent.search.ranking import KNOWN_WEIGHT, OTHER_WEIGHT
from contrasent.search.store import check_encoder
from contrasent.search.words import WORD, language_of, words
from contrasent.text.tokens import Tokenizer
from contrasent.types import Item, Log, Vectors

SAMPLE = 1000  # documents that are sampled
SHARE = 0.05  # share of documents from which a base must know their language
UNCLEAR = "unclear"  # the language of code, of numbers, and of words that no list has
LONGEST = 500  # characters of each
RUN = 24  # characters of a word, or of a run in a script without spaces, that are cut at once
PIECES = 1.45  # tokens per word beyond which the language is not the vocabulary's
SHARED = 100_000  # tokens from which a vocabulary is shared by many languages, and cuts all of them
SHARED_PIECES = 3.0
UNKNOWN = 0.05  # share of unknown words beyond which it is not
CLEAR = 1.35  # tokens per word up to which no other base is tried
BETTER = 1.1  # times the tokens of another base beyond which that one knows the language better
_SCRIPTS = {"cjk": "chinese", "hiragana": "japanese", "katakana": "japanese", "hangul": "korean"}
EXTRA = "pip install 'contrasent[multilingual]' adds a base for about 100 languages"


def model_settings(index: BaseIndex) -> dict[str, Any]:
    """The settings that an index's model was opened with."""
    return {key: index.facts.settings.get(key) for key in ("pooling", "max_seq_length")}


def find_index_model(index: BaseIndex) -> Path:
    """The folder of the model that made an index's vectors."""
    name = index.facts.source
    if not name:
        raise ModelError(
            f"{index.folder}: does not record its model; search with --model or encode=, or encode "
            f"it again by 'contrasent index {index.folder} --model MODEL'"
        )
    if index.folder is not None and Path(name).is_absolute() and not os.path.exists(name):  # noqa: PTH110
        moved = index.folder.parent / Path(name).name  # with the folder that adapt made
        name = str(moved) if moved.is_dir() else name
    try:
        return find_model(name)
    except ModelError as error:
        raise ModelError(f"{error} (the index's model; if it moved, add --model)") from error


def open_index_model(
    index: BaseIndex,
    name: str | None = None,
    *,
    runtime: str | None = None,
    batch_size: int = 64,
    batch_invariant: bool = False,
) -> TaskEncoder:
    """The model that made an index's vectors, or ``name`` if it has moved, with its settings."""
    folder = find_index_model(index) if name is None else find_model(name)
    encoder = open_encoder(folder, runtime=runtime, light=True, **model_settings(index))
    encode = TaskEncoder(encoder, batch_size=batch_size, batch_invariant=batch_invariant)
    option = f"the model {name or index.facts.source}"
    check_encoder(index.facts, index.folder, encode, option=option)
    return encode


BaseIndex.model_opener = staticmethod(open_index_model)


class OpenedBase(NamedTuple):
    """A model for some texts."""

    name: str
    encode: TaskEncoder
    bm25_weight: float  # the weight of BM25 that suits the texts
    remarks: tuple[str, ...] = ()  # a line if the model was named and does not know the language


def open_base(
    texts: Iterable[str],
    name: str | None = None,
    *,
    firsts: Sequence[str] = (),
    log: Log = lambda line: None,
    pooling: str | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 64,
) -> OpenedBase:
    """Open the model of a name, or the installed base that knows the language of some texts."""
    # A random thousand of these are examined, and the first texts of files.
    sample, chosen = sampled(texts, SAMPLE), None
    if name is None and sample:
        chosen = choose_base(sample, installed_bases(), firsts)
        log(f"base: {chosen.name}; {chosen.reason}")
    name = chosen.name if chosen else name or MINILM
    how: dict[str, Any] = {"pooling": pooling, "max_seq_length": max_seq_length}
    encoder = open_encoder(find_model(name), light=True, **how)
    encode = TaskEncoder(encoder, batch_size=batch_size)
    if chosen:
        return OpenedBase(name, encode, chosen.fit.bm25_weight)
    language = fit(sample, encoder.tokenizer)
    remark = (
        "the model's vocabulary does not match the language of the texts "
        f"({language.pieces:.1f} tokens per word): BM25 weight {language.bm25_weight:g} "
        "(--bm25-weight)"
    )
    return OpenedBase(name, encode, language.bm25_weight, () if language.known else (remark,))


def find_hits(
    opened: BaseIndex,
    queries: list[str],
    encode: TaskEncoder,
    *,
    rows: bool,
    exact: bool,
    **how: Any,
) -> tuple[list[str], Vectors, list[list[Hit]]]:
    """The queries without typing errors, their vectors and their hits, as in `search_index`."""
    texts = queries if exact else opened.repaired(queries, encode.encoder.tokenizer.knows)
    vectors = opened.query_vectors(texts, encode)
    search = opened.search if rows else opened.search_documents
    return texts, vectors, search(texts, vectors=vectors, **how)


class Fit(NamedTuple):
    """How a vocabulary cuts some texts: tokens per word, and whether it knows their language."""

    pieces: float
    known: bool
    unknown: float = 0.0

    @property
    def bm25_weight(self) -> float:
        """Weight of BM25 in a score."""
        return KNOWN_WEIGHT if self.known else OTHER_WEIGHT


class Base(NamedTuple):
    """The base that was chosen for some texts."""

    name: str
    fit: Fit
    reason: str
    tokenizer: Tokenizer  # loading the base while this exists need not read it again


def choose_base(
    texts: Iterable[str],
    bases: Mapping[str, Callable[[], Tokenizer]],
    firsts: Sequence[str] = (),
) -> Base:
    """The base that knows the languages of some documents, the first one if none does better."""
    # A language counts from a share of 5 % of the texts, or of ``firsts``, one of each file.
    samples = [sample for sample in (list(islice(texts, SAMPLE)), firsts[:SAMPLE]) if sample]
    every = [text for sample in samples for text in sample]
    (name, load), *others = bases.items()
    languages = {text: language_name(text) for text in every}
    groups = dict[str, list[str]]()
    for text, language in languages.items():
        alone = language == UNCLEAR and others  # each may be of another language
        groups.setdefault(f"{language} {len(groups)}" if alone else language, []).append(text)

    def share(chosen: Collection[str]) -> float:
        inside = {text for group in chosen for text in groups[group]}
        return max((len([t for t in one if t in inside]) / len(one) for one in samples), default=0)

    tokenizer, compared = load(), ""
    best, fits = fit(every, tokenizer), _fits(groups, tokenizer)
    if any(not one.known or one.pieces > CLEAR for one in fits.values()):
        for other, load in others:
            other_tokenizer = load()
            rival = _fits(groups, other_tokenizer)
            better = [
                group
                for group, (pieces, known, unknown) in fits.items()
                if rival[group].known
                and (
                    unknown > UNKNOWN or (pieces > CLEAR and pieces > BETTER * rival[group].pieces)
                )
            ]
            if (part := share(better)) >= SHARE:
                inside = [text for group in better for text in groups[group]]
                compared = f"; {name}: {_cut(fit(inside, tokenizer))}"
                compared += _of(part, better) if part < 1 else ""
                name, tokenizer, fits = other, other_tokenizer, rival
                best = fit(every, tokenizer)
            else:
                compared = f"; {other}: {_cut(fit(every, other_tokenizer))}"
    # A single text of unclear language proves little.
    known = [group for group in fits if not (others and group.startswith(UNCLEAR))]
    lost = [group for group in known if not fits[group].known]
    part, extra = share(lost), "" if others else f"; {EXTRA}"
    if best.known:
        reason = f"its vocabulary knows the language ({_cut(best)}{compared})"
        if part >= SHARE:
            reason += f", but not that{_of(part, lost)}{extra}"
        return Base(name, best, reason, tokenizer)
    reason = (
        f"no installed base knows the language ({_cut(best)}{compared}): BM25 weight "
        f"{OTHER_WEIGHT:g} (--bm25-weight){extra}"
    )
    return Base(name, best, reason + see("wrong-language"), tokenizer)


def sampled(items: Iterable[Item], count: int) -> list[Item]:
    """Up to ``count`` items in order, drawn at random with a fixed seed."""
    draw, sample = random.Random(0), list[tuple[int, Item]]()
    for number, item in enumerate(items):
        place = number if number < count else draw.randrange(number + 1)
        if place < count:
            sample[place : place + 1] = [(number, item)]
    return [item for _, item in sorted(sample, key=itemgetter(0))]


def language_name(text: str) -> str:
    """The language of a text by its stop words, else its script if that is not Latin."""
    text = text[:LONGEST]
    if (name := language_of([text])) != "none":
        return name
    scripts = Counter(
        unicodedata.name(letter, "").partition(" ")[0].casefold()
        for letter in text
        if letter.isalpha()
    )
    ((script, _),) = scripts.most_common(1) or [("latin", 0)]
    return UNCLEAR if script == "latin" else _SCRIPTS.get(script, script)


def _fits(groups: Mapping[str, Sequence[str]], tokenizer: Tokenizer) -> dict[str, Fit]:
    return {group: fit(texts, tokenizer) for group, texts in groups.items()}


def _of(part: float, groups: Iterable[str]) -> str:
    """A share of the documents and the first of its languages."""
    names = list(dict.fromkeys(group.partition(" ")[0] for group in groups))
    return f" of {100 * part:.0f} % of the documents ({', '.join(names[:5])})"


def fit(texts: Iterable[str], tokenizer: Tokenizer) -> Fit:
    """How a tokenizer cuts the words of some texts; it knows the language of no words at all."""
    # Words, and runs of scripts without spaces, of the first texts.
    runs = Counter[str]()
    for text in islice(texts, SAMPLE):
        for match in WORD.finditer(text[:LONGEST]):
            run = match[0]
            runs.update(run[at : at + RUN] for at in range(0, len(run), RUN))
    counts = np.fromiter(runs.values(), np.int64, len(runs))
    counted = counts * np.fromiter((len(words(run)) for run in runs), np.int64, len(runs))
    if not (count := int(counted.sum())):
        return Fit(1.0, True)
    # One by one, since a model may read only a few tokens.
    tokens, _ = tokenizer(list(runs))
    before, after = tokenizer.frame
    inside = tokens.lengths - len(before) - len(after)
    # An unknown token may stand for many letters: it is the words of its run that are unknown.
    marks = np.add.reduceat(tokens.ids == tokenizer.specials.unknown, tokens.offsets[:-1])
    share = float((counted * (marks / np.maximum(1, inside))).sum() / count)
    pieces = int((inside * counts).sum()) / count
    few = pieces <= PIECES or (pieces <= SHARED_PIECES and tokenizer.size >= SHARED)
    return Fit(pieces, few and share <= UNKNOWN, share)


def _cut(fit: Fit) -> str:
    unknown = f", {100 * fit.unknown:.0f} % unknown" if fit.unknown > UNKNOWN else ""
    return f"{fit.pieces:.1f} tokens per word{unknown}"
