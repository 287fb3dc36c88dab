"""Has the text drifted from what an index was made of, and does its model still serve it?

Five looks at samples of both: a two-sample test on vectors, how the tokenizer takes the words, how
much is cut, which new texts lie far from all that is indexed, and how well queries made of the text
find what they should (:mod:`contrasent.adapt.served`). They end in one conclusion.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.candidates import encode_all
from contrasent.adapt.indexed import (
    index_documents,
    knows_documents,
    passage_of,
    read_passages,
    row_numbers,
    sampled,
)
from contrasent.adapt.novelty import OWN, UNUSUAL, Group, far_texts, grouped, nearest_to_index
from contrasent.adapt.served import Served, Side, search_both
from contrasent.adapt.shipping import is_adapted
from contrasent.errors import InputError
from contrasent.evaluate.two_samples import TwoSamples, compare_samples
from contrasent.model.prompts import Model, TaskEncoder
from contrasent.search.exact import unit
from contrasent.search.hybrid import Fusion, own_fusion
from contrasent.search.index import Index
from contrasent.types import for_task

SAMPLE = 2000
"""Texts of either side that are looked at, at most."""
LEVEL = 0.05
APART = 0.6
"""Accuracy from which a drift that is no chance matters: six of ten texts are recognised."""


@dataclass(frozen=True, slots=True)
class TokenUse:
    """How a tokenizer takes texts, as far as the model reads them.

    Attributes:
        cut: share of them that are longer than the model reads.
        unknown: share of the pieces that stand for none it knows; None if it knows all.
        pieces: that a word is cut into, on average.
    """

    texts: int
    cut: float
    unknown: float | None
    pieces: float


@dataclass(frozen=True, slots=True)
class Watch:
    """What came of a look at new text.

    Attributes:
        samples: whether the text has drifted, and how far.
        known: new texts that the index holds already; they were left out.
        old_tokens: how the tokenizer takes the index's text.
        far: share of new texts that lie farther from the index than 99 % of its own texts do from
            those of other documents.
        groups: these texts in groups, if they are more than chance would have.
        served: by "model", "BM25" and "both", how well queries find what they should; None where
            too few can be made.
        conclusion: "nothing", "index" or "adapt": what to do.
    """

    samples: TwoSamples
    known: int
    old_tokens: TokenUse
    new_tokens: TokenUse
    far: float
    groups: tuple[Group, ...]
    served: dict[str, Served] | None
    conclusion: str
    reason: str
    command: str

    @property
    def drifted(self) -> bool:
        """Whether the drift is no chance, and large enough to matter."""
        return alarm(self.samples)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"drifted": self.drifted, **asdict(self)}


def alarm(samples: TwoSamples) -> bool:
    """Whether two samples differ by more than chance, and by enough to matter."""
    return samples.p <= LEVEL and samples.accuracy >= APART


def watch(
    index: Index,
    new_text: str | Path,
    encoder: Model,
    *,
    model: str = "",
    text_column: str | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Watch:
    """Compare new text with what an index holds.

    At most 2,000 texts of either side are looked at, of as many documents as that allows; the order
    in which texts are given changes nothing.
    """
    index.check_model(encoder.identity, "the model")
    rows = row_numbers(index)
    passages, documents = read_passages(
        str(new_text),
        documents=knows_documents(index, rows),
        text_column=text_column,
        count_tokens=lambda texts: encoder.tokenise(texts)[0].lengths.tolist(),
        max_tokens=encoder.max_tokens,
    )
    held = {index.named(int(row))["text"] for row in rows}
    fresh = [at for at, passage in enumerate(passages) if passage.indexed not in held]
    if not fresh:
        raise InputError(str(new_text), "holds no text that the index does not hold already")
    encode = TaskEncoder(encoder)
    chosen = sampled(fresh, documents, lambda at: passages[at].indexed, limit=SAMPLE, seed=seed)
    say(f"encoding {len(chosen):,} of {len(fresh):,} new texts")
    vectors = encode_all(for_task(encode, "document"), [passages[at].indexed for at in chosen])
    new = Side([passages[at] for at in chosen], [documents[at] for at in chosen], unit(vectors))
    own = index_documents(index, rows)
    old = _old_side(index, rows, own, set(documents), seed)
    say(f"comparing them with {len(old.passages):,} of {len(rows):,} old ones")
    samples = compare_samples(
        old.vectors,
        new.vectors,
        old_documents=old.documents,
        new_documents=new.documents,
        seed=seed,
    )
    far = _far(index, rows, own, old, new)
    groups: tuple[Group, ...] = ()
    if len(far) >= UNUSUAL * len(new.passages):
        groups = grouped([new.texts[at] for at in far], new.vectors[far], old.texts, seed=seed)
    fusion = own_fusion(index.manifest.settings) or Fusion()
    served = search_both(old, new, encode, fusion, seed=seed, say=say)
    conclusion, reason = _conclusion(samples, groups, served)
    name = model or index.manifest.source
    return Watch(
        samples,
        len(passages) - len(fresh),
        token_use(encoder, old.texts),
        token_use(encoder, new.texts),
        len(far) / len(new.passages),
        groups,
        served,
        conclusion,
        reason,
        _command(conclusion, str(new_text), name, str(index.folder)),
    )


def _old_side(
    index: Index, rows: NDArray[np.int64], documents: list[str], there: set[str], seed: int
) -> Side:
    """A sample of the index, without documents that the new text has as well."""
    left = [at for at, document in enumerate(documents) if document not in there]

    def text_of(place: int) -> str:
        return str(index.named(int(rows[place]))["text"])

    chosen = sampled(left, documents, text_of, limit=SAMPLE, seed=seed)
    places = rows[np.array(chosen, dtype=np.int64)]
    hits = [index.hit(int(row), 0.0) for row in places]
    passages = [passage_of(hit.text, hit.id, hit.metadata, 0) for hit in hits]
    return Side(passages, [documents[at] for at in chosen], unit(index.vectors_of(places)))


def _far(
    index: Index, rows: NDArray[np.int64], documents: list[str], old: Side, new: Side
) -> NDArray[np.int64]:
    """Places of new texts that lie far from the index."""
    looked_at = old.documents[:OWN]
    of_document: dict[str, list[int]] = {document: [] for document in looked_at}
    for row, document in zip(rows, documents, strict=True):
        if document in of_document:
            of_document[document].append(int(row))
    own = [np.array(of_document[document]) for document in looked_at]
    among = nearest_to_index(index, old.vectors[: len(own)], own=own)
    return far_texts(among, nearest_to_index(index, new.vectors))


def token_use(encoder: Model, texts: Sequence[str]) -> TokenUse:
    """How a model's tokenizer takes texts."""
    tokenizer = encoder.tokenizer
    unknown_id = tokenizer.specials.unknown
    pieces = words = unknown = 0
    for encoding in tokenizer.backend.encode_batch(list(texts)):
        read = [
            pair
            for pair in zip(encoding.ids, encoding.word_ids, strict=True)
            if pair[1] is not None
        ]
        pieces += len(read)
        words += len({word for _, word in read})
        unknown += sum(number == unknown_id for number, _ in read)
    _, cut = encoder.tokenise(texts, encoder.prompts.of_task("document"))
    share = None if unknown_id is None else unknown / max(1, pieces)
    return TokenUse(len(texts), float(cut.mean()), share, pieces / max(1, words))


def _conclusion(
    samples: TwoSamples, groups: Sequence[Group], served: dict[str, Served] | None
) -> tuple[str, str]:
    """What to do, and why."""
    apart = alarm(samples)
    if not apart and not groups:
        return "nothing", "the new text is like the old"
    what = "the text has drifted" if apart else "some of the text is of a new kind"
    if served is None:
        return "index", f"{what}, and too few queries can be made to say how the model serves it"
    if served["model"].high >= 0:
        return "index", f"{what}, and the model is not proven to serve it worse than the old"
    return "adapt" if apart else "index", f"{what}, and the model finds less in it than in the old"


def _command(conclusion: str, new_text: str, model: str, index: str) -> str:
    """What to type."""
    if conclusion == "nothing":
        return ""
    if is_adapted(Path(model)):
        update = f"contrasent adapt {new_text} --update {model} -o {Path(model).name}-updated"
        return update if conclusion == "adapt" else f"{update} --budget 2m"
    if conclusion == "adapt":
        return f"contrasent adapt OLD_AND_NEW_TEXT --base {model} -o adapted"
    return f"contrasent index {model} {new_text} -o {index} --add"
