"""Transfer: how much do fixed vectors tell a linear classifier?

The seven tasks of SentEval (Conneau and Kiela, 2018; SimCSE, Table E.1): MR, CR, SUBJ and MPQA by
ten folds, SST2 by its dev set, TREC and MRPC by ten folds of the training set. MRPC's features are
|u - v| and u * v.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError, check_choice
from contrasent.evaluate.bootstrap import RESAMPLES, Keys, bounds, item_keys, mean_draws
from contrasent.evaluate.probing import SOLVERS, Outcome, Problem, fits
from contrasent.evaluate.vectors import Encoded, encode_distinct
from contrasent.report import Items, ItemsByRow, Report, Row
from contrasent.text.transfer import Labelled, transfer_set
from contrasent.types import EncodeFn

TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
AVERAGE = "Transfer7"
SEED = 1111

Floats = NDArray[np.float64]


def transfer(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = TASKS,
    solver: str = "fast",
    seeds: Sequence[int] = (SEED,),
    device: str | None = None,
    resamples: int = RESAMPLES,
    folder: Path | None = None,
) -> Report:
    """Score a model on the transfer tasks of SentEval.

    Each distinct sentence of all tasks is encoded once, in one call. Vectors are used as the model
    gives them. Nothing here touches the random state of numpy or torch.

    Args:
        encode: the model.
        tasks: some of "MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC".
        solver: "fast" (convex, two minutes), "senteval" (the published procedure) or
            "senteval_prototype" (its quick settings).
        seeds: one run for each; with more than one, rows "accuracy_seed_sd" give the spread.
        device: of torch, such as "cuda", for SentEval's solvers; numpy on two threads if None.
        resamples: bootstrap resamples over distinct test sentences for the 95 % intervals, one of
            several tasks in all of them together; 0 for none.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        For each task rows "accuracy" of split "test" and of split "dev" (the accuracy by which L2
        weights were chosen), and "f1" for MRPC; values are means over the seeds. With all seven
        tasks, rows of task "Transfer7" hold their plain mean.

    Raises:
        OptionError: an unknown task or solver, no seed, or a device that cannot be used.
        DataError: data that are missing or not official, or vectors that are not finite.
    """
    for task in tasks:
        check_choice("tasks", task, TASKS)
    check_choice("solver", solver, SOLVERS)
    if not seeds or not tasks:
        raise OptionError("seeds" if not seeds else "tasks", "", "name at least one")
    data = {task: transfer_set(task, folder=folder) for task in tasks}
    texts = [t for found in data.values() for part in found.values() for t in _texts(part)]
    encoded = encode_distinct(encode, texts)
    scored = {}
    for task, found in data.items():
        problem = make_problem(task, found, encoded)
        with progress.task(task, fits(problem, solver) * len(seeds), "fits") as advance:
            outcomes = [SOLVERS[solver](problem, seed, advance, device=device) for seed in seeds]
        scored[task] = _Scored(task, problem, item_keys_in_order(found), outcomes, resamples)
    rows = [row for s in scored.values() for row in s.rows()]
    items = {key: own for s in scored.values() for key, own in s.items().items()}
    if set(scored) == set(TASKS):
        rows += _average(list(scored.values()), len(seeds))
        key = (AVERAGE, "test", "accuracy", "")
        items[key] = tuple((task, "test", "accuracy", "") for task in TASKS)
    notes = {
        "solver": solver,
        "seeds": ", ".join(map(str, seeds)),
        "resamples": resamples,
        **encoded.notes,
    }
    return Report(tuple(rows), notes, items)


def make_problem(task: str, parts: dict[str, Labelled], encoded: Encoded) -> Problem:
    """Features of a task, its examples in SentEval's order (by length, then class)."""
    ordered = {split: _order(part) for split, part in parts.items()}
    names = _names(parts)
    features = [_features(parts[name], ordered[name], encoded) for name in names]
    labels = [parts[name].labels[ordered[name]] for name in names]
    sizes = {name: len(parts[name]) for name in names}
    return Problem(
        np.concatenate(features),
        np.concatenate(labels),
        train=sizes.get("all", sizes.get("train", 0)),
        dev=sizes.get("dev", 0),
        classes=6 if task == "TREC" else 2,
    )


def item_keys_in_order(parts: dict[str, Labelled]) -> Keys:
    """(n,) keys of a task's examples, in the order of :func:`make_problem`."""
    keys = [item_keys(*_texts(parts[name]))[_order(parts[name])] for name in _names(parts)]
    return np.concatenate(keys)


def _names(parts: dict[str, Labelled]) -> list[str]:
    return [name for name in ("all", "train", "dev", "test") if name in parts]


def _order(part: Labelled) -> NDArray[np.int64]:
    seconds = part.second or [""] * len(part)
    keys = [
        (len(a.split()), len(b.split()), int(y))
        for a, b, y in zip(part.first, seconds, part.labels, strict=True)
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _texts(part: Labelled) -> list[Sequence[str]]:
    return [part.first] if part.second is None else [part.first, part.second]


def _features(part: Labelled, order: NDArray[np.int64], encoded: Encoded) -> NDArray[np.float32]:
    u = encoded(part.first)[order]
    if part.second is None:
        return u
    v = encoded(part.second)[order]
    return np.concatenate([np.abs(u - v), u * v], axis=1)


class _Scored:
    """One task's outcomes over the seeds, as numbers."""

    def __init__(
        self,
        task: str,
        problem: Problem,
        keys: Keys,
        outcomes: Sequence[Outcome],
        resamples: int,
    ) -> None:
        self.task, self.outcomes, self.keys = task, outcomes, keys
        self.labels = problem.labels
        self.tested = np.sort(np.concatenate(outcomes[0].parts))
        self.values = np.array([self._accuracy(outcome) for outcome in outcomes])
        right = np.mean([(o.guesses == problem.labels)[self.tested] for o in outcomes], axis=0)
        self.draws = mean_draws(right, resamples, SEED, keys[self.tested])

    def _accuracy(self, outcome: Outcome) -> float:
        """Mean over the folds, as SentEval prints it; over the test set where there is one."""
        right = outcome.guesses == self.labels
        return float(np.mean([right[part].mean() for part in outcome.parts]))

    def rows(self) -> list[Row]:
        count = len(self.tested)
        value = float(self.values.mean())
        dev = float(np.mean([outcome.dev for outcome in self.outcomes]))
        rows = [
            Row(self.task, "test", "accuracy", "", value, count, *bounds(self.draws)),
            Row(self.task, "dev", "accuracy", "", dev, count),
        ]
        if self.task == "MRPC":
            scores = [f1(o.guesses[self.tested], self.labels[self.tested]) for o in self.outcomes]
            rows.append(Row(self.task, "test", "f1", "", float(np.mean(scores)), count))
        return rows + _spread(self.task, self.values)

    def items(self) -> ItemsByRow:
        """The examples behind the test rows; of F1 with one seed only, since it is no mean."""
        keys, right = self.keys[self.tested], np.zeros(len(self.labels))
        for outcome in self.outcomes:
            for part in outcome.parts:  # folds count alike, whatever their size
                scale = len(self.tested) / (len(part) * len(outcome.parts) * len(self.outcomes))
                right[part] += scale * (outcome.guesses[part] == self.labels[part])
        found: ItemsByRow = {
            (self.task, "test", "accuracy", ""): Items("mean", keys, right[self.tested][None])
        }
        if self.task == "MRPC" and len(self.outcomes) == 1:
            columns = np.stack([self.outcomes[0].guesses, self.labels])[:, self.tested]
            key = (self.task, "test", "f1", "")
            found[key] = Items("f1", keys, (columns == 1).astype(np.float64))
        return found


def f1(guesses: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Harmonic mean of precision and recall of class 1; 0 where there is no true positive."""
    hits = int(((guesses == 1) & (labels == 1)).sum())
    total = int((guesses == 1).sum() + (labels == 1).sum())
    return 2 * hits / total if total else 0.0


def _spread(task: str, values: Floats) -> list[Row]:
    if len(values) < 2:
        return []
    spread = float(values.std(ddof=1))
    return [Row(task, "test", "accuracy_seed_sd", "", spread, len(values))]


def _average(scored: Sequence[_Scored], seeds: int) -> list[Row]:
    values = np.mean([s.values for s in scored], axis=0)
    draws = np.mean([s.draws for s in scored], axis=0)
    count = sum(len(s.tested) for s in scored)
    dev = float(np.mean([outcome.dev for s in scored for outcome in s.outcomes]))
    return [
        Row(AVERAGE, "test", "accuracy", "", float(values.mean()), count, *bounds(draws)),
        Row(AVERAGE, "dev", "accuracy", "", dev, count),
        *_spread(AVERAGE, values),
    ]
