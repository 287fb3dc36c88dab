"""Transfer: the accuracy of a linear classifier on fixed vectors, from many or few examples.

SentEval's seven tasks (SimCSE, Table E.1); MRPC's features are |u - v| and u * v. Few-shot:
logistic regression with C = 1 (MTEB's protocol); each draw has new examples, the same test items.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.datasets.labeled import Labeled, transfer_set
from contrasent.errors import DataError, OptionError, check_choice
from contrasent.evaluate.classifier import (
    ClassifierOutcome,
    ClassifierProblem,
    Logistic,
    Optimum,
    SentEval,
    Solver,
    classify,
    count_of_splits,
    pair_features,
    sorted_pairs,
)
from contrasent.evaluate.vectors import Cached, ReportBuilder, encode_distinct
from contrasent.metrics import item_f1
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import RESAMPLES, Keys, draw_counts, item_keys, mean_draws
from contrasent.types import EncodeFn

TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
AVERAGE = "Transfer7"
SEED = 1111  # SentEval's
SOLVERS = {
    "fast": "logistic regression, L2 by cross-validation",
    "senteval": "SentEval's, Adam with early stopping",
}

FEW_SHOT_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC")
FEW_SHOT_AVERAGE = "FewShot6"
SHOTS = (8, 16)
DRAWS = 10

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def transfer(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = TASKS,
    solver: str = "fast",
    seeds: Sequence[int] = (SEED,),
    resamples: int = RESAMPLES,
    folder: str | Path | None = None,
) -> Report:
    """Score a model on the transfer tasks of SentEval, by the optimum or by its own classifier.

    For each task rows "accuracy" of split "test" and of split "dev" (the accuracy by which L2
    weights were chosen), and "f1" for MRPC; values are means over the seeds of the folds, and with
    several seeds "accuracy_seed_sd" gives the spread (of solver "senteval", whose folds are fixed,
    over first weights and batches). With all seven tasks, rows of task
    "Transfer7" hold their plain mean. Vectors are used as the model gives them.
    """
    for task in tasks:
        check_choice("tasks", task, TASKS)
    check_choice("solver", solver, SOLVERS)
    if not seeds or not tasks:
        raise OptionError("seeds" if not seeds else "tasks", "", "give at least one")
    data = {task: transfer_set(task, folder=folder) for task in tasks}
    texts = [t for splits in data.values() for part in splits.values() for t in _texts(part)]
    encoded = encode_distinct(encode, texts)
    builder, values = ReportBuilder(resamples), []
    for task, splits in data.items():
        problem, keys = make_problem(task, splits, encoded)
        solvers: list[Solver]
        if solver == "senteval":
            solvers = [SentEval(problem, seed) for seed in seeds]
        else:
            solvers = [Optimum(problem)] * len(seeds)
        number = len(seeds) * count_of_splits(problem, solvers[0])
        with progress.task(task, number, "fits") as advance:
            pairs = zip(solvers, seeds, strict=True)
            outcomes = [classify(problem, one, seed, advance) for one, seed in pairs]
        values.append(add_outcomes(builder, task, problem.labels, keys, outcomes))
    if set(data) == set(TASKS):
        for split in ("test", "dev"):
            builder.average(AVERAGE, TASKS, split, "accuracy", "", "")
        _add_spread(builder, AVERAGE, np.mean(values, axis=0))
    how = {"classifier": SOLVERS[solver]}
    drawn = {"seeds": ", ".join(map(str, seeds)), "resamples": resamples}
    return builder.report({**how, **drawn, **encoded.notes})


def make_problem(
    task: str, parts: dict[str, Labeled], encoded: Cached
) -> tuple[ClassifierProblem, Keys]:
    """Features and keys of a task, its examples in SentEval's order (by length, then class)."""
    features, labels, keys = [], [], []
    for part in (parts[name] for name in ("all", "train", "dev", "test") if name in parts):
        second = part.second or [""] * len(part)
        order = sorted_pairs(part.first, second, part.labels)
        sides = [encoded(side)[order] for side in _texts(part)]
        features.append(sides[0] if len(sides) == 1 else pair_features(*sides))
        labels.append(part.labels[order])
        keys.append(item_keys(*_texts(part))[order])
    sizes = {name: len(part) for name, part in parts.items()}
    train, classes = sizes.get("all", sizes.get("train", 0)), 6 if task == "TREC" else 2
    columns = np.concatenate(features), np.concatenate(labels)
    problem = ClassifierProblem(*columns, train=train, dev=sizes.get("dev", 0), classes=classes)
    return problem, np.concatenate(keys)


def _texts(part: Labeled) -> list[Sequence[str]]:
    return [part.first] if part.second is None else [part.first, part.second]


def add_outcomes(
    builder: ReportBuilder,
    task: str,
    labels: NDArray[np.int64],
    keys: Keys,
    outcomes: Sequence[ClassifierOutcome],
) -> Floats:
    """Add the rows of a task: means over the seeds."""
    tested = np.sort(np.concatenate(outcomes[0].parts))
    # Folds have equal weight, regardless of their size.
    values = np.array(
        [np.mean([(o.guesses == labels)[p].mean() for p in o.parts]) for o in outcomes]
    )
    right, weighted = np.zeros((2, len(labels)))
    for outcome in outcomes:
        right += (outcome.guesses == labels) / len(outcomes)
        for part in outcome.parts:
            scale = len(tested) / (len(part) * len(outcome.parts) * len(outcomes))
            weighted[part] += scale * (outcome.guesses[part] == labels[part])
    tested_keys, count = keys[tested], len(tested)
    items = Items("mean", tested_keys, weighted[tested][None])
    draws = mean_draws(right[tested], builder.resamples, SEED, tested_keys)
    builder.add(task, "test", "accuracy", values.mean(), count, draws=draws, items=items)
    builder.add(task, "dev", "accuracy", float(np.mean([o.dev for o in outcomes])), count)
    if task == "MRPC":
        columns = [(np.stack([o.guesses, labels])[:, tested] == 1).astype(float) for o in outcomes]
        score = float(np.mean([item_f1(pair)[0] for pair in columns]))
        # F1 over several seeds is not a mean of items.
        items = Items("f1", tested_keys, columns[0])
        builder.add(task, "test", "f1", score, count, items=items if len(outcomes) == 1 else None)
    _add_spread(builder, task, values)
    return values


def _add_spread(builder: ReportBuilder, task: str, values: Floats) -> None:
    if len(values) > 1:
        builder.add(task, "test", "accuracy_seed_sd", values.std(ddof=1), len(values))


def few_shot(
    encode: EncodeFn,
    sets: Mapping[str, Mapping[str, Labeled]] | None = None,
    *,
    shots: Sequence[int] = SHOTS,
    draws: int = DRAWS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Report:
    """Score a model on classification from few examples.

    Each set has rows "accuracy@K", K examples per class: the mean over the draws. Several sets also
    have their plain mean, "FewShot6" by default. A set without a test split is split at random:
    examples come from one half, the other is tested.
    """
    data = sets or {task: transfer_set(task, folder=folder) for task in FEW_SHOT_TASKS}
    builder = ReportBuilder(resamples, seed)
    context = f"{draws} draws of {max(shots)}, seed {seed}"
    for task, (keys, guessed) in guess_items(encode, data, shots, draws, seed).items():
        for k, right in guessed.items():
            items = Items("mean", keys, right.mean(axis=0)[None], context=context)
            more: Any = {"draws": _resampled(right, keys, resamples, seed), "items": items}
            builder.add(task, "test", f"accuracy@{k}", float(right.mean()), len(keys), **more)
    for k in shots if len(data) > 1 else ():
        name = FEW_SHOT_AVERAGE if tuple(data) == FEW_SHOT_TASKS else "mean"
        builder.average(name, tuple(data), "test", f"accuracy@{k}", "", "")
    return builder.report({"few-shot draws": draws, "seed": seed, "resamples": resamples})


def guess_items(
    encode: EncodeFn,
    sets: Mapping[str, Mapping[str, Labeled]],
    shots: Sequence[int],
    draws: int,
    seed: int,
) -> dict[str, tuple[Keys, dict[int, Floats]]]:
    """By set, the keys (n,) of its test sentences and, by examples a class, (draws, n) 0 or 1."""
    random = np.random.default_rng((seed, 1))
    # The examples of each set to draw from, and those to test.
    parted: dict[str, tuple[Labeled, Labeled]] = {}
    for task, parts in sets.items():
        if "test" in parts:
            parted[task] = parts["train"], parts["test"]
            continue
        whole = parts["all"]
        first, second = (
            Labeled(tuple(whole.first[i] for i in rows), None, whole.labels[rows])
            for rows in np.split(random.permutation(len(whole)), [len(whole) // 2])
        )
        parted[task] = first, second
    chosen = {  # (draws, classes, most shots)
        task: np.stack([_draw(task, pool.labels, max(shots), random) for _ in range(draws)])
        for task, (pool, _) in parted.items()
    }
    drawn = {task: [parted[task][0].first[i] for i in rows.flat] for task, rows in chosen.items()}
    texts = [side for task, (_, test) in parted.items() for side in (test.first, drawn[task])]
    encoded = encode_distinct(encode, texts)
    guessed = {}
    for task, (pool, test) in parted.items():
        labels, classes = pool.labels[chosen[task].ravel()], int(pool.labels.max()) + 1
        model = Logistic(encoded(drawn[task]), labels, classes)
        place = np.arange(len(labels)).reshape(chosen[task].shape)
        features = model.transformed(encoded(test.first))
        right = {}
        for k in shots:
            subsets = [place[d, :, :k].ravel() for d in range(draws)]
            # Mean cross-entropy of features over `scale`: C = 1 is this L2 weight.
            weights = model.fit(subsets, [1 / (len(s) * model.scale**2) for s in subsets])
            guessed_right = [model.predict(w, features) == test.labels for w in weights]
            right[k] = np.array(guessed_right, dtype=np.float64)
        guessed[task] = item_keys(test.first), right
    return guessed


def _draw(task: str, labels: Integers, count: int, random: np.random.Generator) -> Integers:
    """(classes, count) rows, without repetition."""
    members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    smallest = min(map(len, members))
    if smallest < count:
        raise DataError(f"{task}: a class has {smallest} examples; {count} are needed")
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
