"""Few-shot classification: what do eight or sixteen examples a class teach a linear classifier?

Logistic regression on the vectors as they are, to its optimum: summed cross-entropy plus half the
squared weights (C = 1 in scikit-learn's terms, MTEB's protocol), the bias free. The examples are
drawn anew several times; the test items are the same for every draw.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError
from contrasent.evaluate.convex import Logistic
from contrasent.evaluate.sheet import Sheet
from contrasent.evaluate.vectors import encode_distinct
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import RESAMPLES, Keys, draw_counts, item_keys
from contrasent.text.transfer import Labelled, transfer_set
from contrasent.types import EncodeFn

TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC")
AVERAGE = "FewShot6"
SHOTS = (8, 16)
DRAWS = 10

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def few_shot(
    encode: EncodeFn,
    sets: Mapping[str, Mapping[str, Labelled]] | None = None,
    *,
    shots: Sequence[int] = SHOTS,
    draws: int = DRAWS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> Report:
    """Score a model on classification from few examples.

    Args:
        encode: the model.
        sets: by default MR, CR, SUBJ, MPQA, SST2 and TREC. A set without a test split is parted at
            random: examples come from one half, the other is tested.
        shots: examples a class.
        draws: how often examples are drawn.
        resamples: bootstrap resamples for the 95 % intervals, over distinct test sentences and over
            the draws of examples; 0 for none.
        seed: of the draws and the bootstrap.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        Of each set rows "accuracy@K", K examples a class: the mean over the draws. Of several sets
        also their plain mean, "FewShot6" by default.

    Raises:
        DataError: data that are missing, a class with too few examples, or vectors that are not
            finite.
    """
    data = few_shot_sets(folder) if sets is None else sets
    sheet = Sheet()
    for task, (keys, guessed) in guess_items(encode, data, shots, draws, seed).items():
        for k, right in guessed.items():
            items = Items("mean", keys, right.mean(axis=0)[None])
            drawn = _resampled(right, keys, resamples, seed)
            accuracy = float(right.mean())
            sheet.add(task, "test", f"accuracy@{k}", accuracy, len(keys), draws=drawn, items=items)
    for k in shots if len(data) > 1 else ():
        name = AVERAGE if tuple(data) == TASKS else "mean"
        sheet.average(name, tuple(data), "test", f"accuracy@{k}", "", "")
    return sheet.report({"few-shot draws": draws, "seed": seed, "resamples": resamples})


def few_shot_sets(folder: Path | None = None) -> dict[str, dict[str, Labelled]]:
    """The six tasks on single sentences, by split."""
    return {task: transfer_set(task, folder=folder) for task in TASKS}


def guess_items(
    encode: EncodeFn,
    sets: Mapping[str, Mapping[str, Labelled]],
    shots: Sequence[int],
    draws: int,
    seed: int,
) -> dict[str, tuple[Keys, dict[int, Floats]]]:
    """Which test items are right after each draw.

    Only the examples that are drawn are encoded, not whole training sets.

    Args:
        encode: see :func:`few_shot`, as the four others.
        sets: by name and split.
        shots: examples a class.
        draws: of examples.
        seed: of the draws.

    Returns:
        Of each set the keys (n,) of its test sentences, and for each number of examples a class
        (draws, n) of 0 and 1.
    """
    random = np.random.default_rng((seed, 1))
    parted = {task: _parted(task, parts, random) for task, parts in sets.items()}
    chosen = {
        task: [_draw(task, pool.labels, max(shots), random) for _ in range(draws)]
        for task, (pool, _) in parted.items()
    }
    texts: list[Sequence[str]] = []
    for task, (pool, test) in parted.items():
        texts += [test.first, [pool.first[i] for rows in chosen[task] for i in rows.ravel()]]
    encoded = encode_distinct(encode, texts)
    guessed = {}
    for task, (pool, test) in parted.items():
        rows = np.stack(chosen[task])  # (draws, classes, most shots)
        flat = rows.ravel()
        model = Logistic(
            encoded([pool.first[i] for i in flat]), pool.labels[flat], int(pool.labels.max()) + 1
        )
        place = np.arange(len(flat)).reshape(rows.shape)
        features = encoded(test.first)
        right = {}
        for k in shots:
            subsets = [place[d, :, :k].ravel() for d in range(draws)]
            # Mean cross-entropy of features over `scale`: C = 1 is this L2 weight.
            weights = model.fit(subsets, [1 / (len(s) * model.scale**2) for s in subsets])
            found = [model.predict(w, features) == test.labels for w in weights]
            right[k] = np.array(found, dtype=np.float64)
        guessed[task] = item_keys(test.first), right
    return guessed


def _parted(
    task: str, parts: Mapping[str, Labelled], random: np.random.Generator
) -> tuple[Labelled, Labelled]:
    """What examples are drawn from, and what is tested."""
    if "test" in parts:
        return parts["train"], parts["test"]
    whole = parts["all"]
    order = random.permutation(len(whole))
    halves = (order[: len(whole) // 2], order[len(whole) // 2 :])
    pool, test = (
        Labelled(tuple(whole.first[i] for i in rows), None, whole.labels[rows]) for rows in halves
    )
    return pool, test


def _draw(task: str, labels: Integers, count: int, random: np.random.Generator) -> Integers:
    """(classes, count) rows, without repetition."""
    members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    fewest = min(map(len, members))
    if fewest < count:
        raise DataError(f"{task}: a class has {fewest} examples, {count} are to be drawn")
    return np.stack([random.choice(rows, count, replace=False) for rows in members])


def _resampled(right: Floats, keys: Keys, resamples: int, seed: int) -> Floats:
    """(r,) mean accuracy over resamples of test items and, independently, of draws."""
    draws, n = right.shape
    random = np.random.default_rng((seed, 2))
    blocks = []
    for counts in draw_counts([n], resamples, seed, keys):
        by_draw = counts @ right.T.astype(np.float32) / n
        share = random.multinomial(draws, np.full(draws, 1 / draws), size=len(counts)) / draws
        blocks.append((by_draw * share).sum(axis=1))
    return np.concatenate(blocks) if blocks else np.empty(0)
