"""``contrasent threshold INDEX --pairs FILE | --unlabelled``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.cli import options
from contrasent.errors import InputError, OptionError, OutputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from contrasent.evaluate.threshold import Threshold
    from contrasent.search.index import Index


@options.command
def threshold(
    index: options.IndexFolder,
    pairs: Path | None = None,
    unlabelled: bool = False,
    precision: float = 0.95,
    alpha: float = 0.001,
    model: str | None = None,
    seed: int = 0,
) -> options.Output:
    """Find what score means "the same" in an index, with its interval, and keep it there.

    'search --threshold auto' and the server's page use it; 'dedupe' does if it is of --pairs. With
    pairs the precision is guaranteed with 95 % confidence where they are enough, for pairs like
    these. Without, the score is that which unrelated texts hardly ever reach.

    Options:
        pairs: Rated pairs: two texts and 1 (the same) or 0 in each row of a table.
        unlabelled: Of the index's own rows, without any ratings.
        precision: Of --pairs: share of those above it that are to be the same.
        alpha: Of --unlabelled: share of pairs taken at random that may reach it.
        model: Where the index's model is now, if it has moved.
        seed: Of what is drawn.
    """
    if (pairs is None) == (not unlabelled):
        raise OptionError("--pairs", str(pairs or ""), "choose --pairs FILE or --unlabelled")
    from contrasent.search.index import Index
    from contrasent.search.opening import in_milvus
    from contrasent.search.writer import Writer

    rated = None if pairs is None else read_same_pairs(pairs)
    if in_milvus(index):
        raise OutputError(f"{index}: is in Milvus, whose index keeps no threshold of ours")
    opened = Index.open(index)
    facts: dict[str, Any] = {}
    if rated is None:
        found, facts = _of_rows(opened, alpha, seed)
    else:
        found = _of_pairs(opened, rated, precision, model, seed)
    with Writer(index) as writer:
        writer.keep_setting("threshold", asdict(found))
    lines = [_line(found)]
    for what, share in facts.items():
        words = what.replace("_", " ")
        lines.append(f"{words}: median {share['median']:.4f}, {share['reach']:.1%} reach it")
    lines.append(f'use it: contrasent search {index} "..." --threshold auto')
    return options.Output({"index": str(index), **asdict(found), **facts}, "\n".join(lines))


def _of_rows(index: "Index", alpha: float, seed: int) -> "tuple[Threshold, dict[str, Any]]":
    """A threshold from random pairs of rows, and what rows that belong together score."""
    import numpy as np

    from contrasent.evaluate.threshold import from_random
    from contrasent.search.pairs import following_scores, neighbour_scores, random_scores

    near = neighbour_scores(index, seed=seed)
    found = from_random(random_scores(index, seed=seed), near, alpha=alpha)

    def facts(scores: "NDArray[np.float32]") -> dict[str, float]:
        reach = float((scores >= found.value).mean())
        return {"median": float(np.median(scores)), "reach": reach}

    following = following_scores(index, seed=seed)
    return found, {"nearest_other_row": facts(near), "rows_in_sequence": facts(following)}


def _of_pairs(
    index: "Index",
    rated: "tuple[list[str], list[str], NDArray[Any]]",
    precision: float,
    model: str | None,
    seed: int,
) -> "Threshold":
    """A threshold from rated pairs, encoded by the index's model."""
    import numpy as np

    from contrasent.cli.search import model_of
    from contrasent.evaluate.threshold import from_pairs
    from contrasent.search.checks import check_vectors
    from contrasent.types import for_task

    encode = for_task(model_of(index, model, options.Loading()), "document")
    first, second = (
        check_vectors(encode(texts), len(texts), index.dimension, index.metric)
        for texts in rated[:2]
    )
    scores = np.einsum("ij,ij->i", first, second)
    return from_pairs(scores, rated[2], precision=precision, seed=seed)


def _line(found: "Threshold") -> str:
    """The threshold, its interval and what it promises, in one line."""
    shown = f"threshold {found.value:.4f} [{found.low:.4f}, {found.high:.4f}]"
    if found.basis == "random":
        return f"{shown}: of pairs taken at random at most {found.wanted:.3%} reach it"
    sure = "guaranteed with 95 % confidence" if found.guaranteed else "estimated; too few pairs"
    return (
        f"{shown}: precision {found.wanted:g}, {sure} ({found.pairs:,} pairs); "
        f"{found.found:.1%} of the same pairs reach it"
    )


def read_same_pairs(path: Path) -> "tuple[list[str], list[str], NDArray[Any]]":
    """Texts, texts, and whether each pair is the same, from a table with labels 0 and 1."""
    import numpy as np

    from contrasent.text.corpus import read_labelled_pairs

    read = read_labelled_pairs(path)
    other = np.flatnonzero((read.scores != 0) & (read.scores != 1))
    if len(other):
        value = float(read.scores[other[0]])
        problem = f"pair {other[0] + 1} has the label {value:g}; 1 is the same and 0 is not"
        raise InputError(path, problem)
    return read.first, read.second, read.scores == 1
