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
from contrasent.evaluate.probing import SOLVERS, Outcome, Problem, fits
from contrasent.evaluate.sheet import Sheet
from contrasent.evaluate.vectors import Encoded, encode_distinct
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import RESAMPLES, Keys, item_keys, mean_draws
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
    sheet, values = Sheet(), []
    for task, found in data.items():
        problem = make_problem(task, found, encoded)
        with progress.task(task, fits(problem, solver) * len(seeds), "fits") as advance:
            outcomes = [SOLVERS[solver](problem, seed, advance, device=device) for seed in seeds]
        keys = item_keys_in_order(found)
        values.append(add_outcomes(sheet, task, problem.labels, keys, outcomes, resamples))
    if set(data) == set(TASKS):
        for split in ("test", "dev"):
            sheet.average(AVERAGE, TASKS, split, "accuracy", "", "")
        _add_spread(sheet, AVERAGE, np.mean(values, axis=0))
    return sheet.report(
        {
            "solver": solver,
            "seeds": ", ".join(map(str, seeds)),
            "resamples": resamples,
            **encoded.notes,
        }
    )


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


def add_outcomes(
    sheet: Sheet,
    task: str,
    labels: NDArray[np.int64],
    keys: Keys,
    outcomes: Sequence[Outcome],
    resamples: int,
) -> Floats:
    """Add the rows of a task: means over the seeds.

    ``labels``: (n,) classes. ``keys``: (n,) of the examples.
    """
    tested = np.sort(np.concatenate(outcomes[0].parts))
    # Folds count alike, whatever their size.
    values = np.array(
        [np.mean([(o.guesses == labels)[p].mean() for p in o.parts]) for o in outcomes]
    )
    right, weighted = np.zeros((2, len(labels)))
    for outcome in outcomes:
        right += (outcome.guesses == labels) / len(outcomes)
        for part in outcome.parts:
            scale = len(tested) / (len(part) * len(outcome.parts) * len(outcomes))
            weighted[part] += scale * (outcome.guesses[part] == labels[part])
    own, count = keys[tested], len(tested)
    items = Items("mean", own, weighted[tested][None])
    draws = mean_draws(right[tested], resamples, SEED, own)
    sheet.add(task, "test", "accuracy", values.mean(), count, draws=draws, items=items)
    sheet.add(task, "dev", "accuracy", float(np.mean([o.dev for o in outcomes])), count)
    if task == "MRPC":
        columns = [np.stack([o.guesses, labels])[:, tested] for o in outcomes]
        score = float(np.mean([f1(*pair) for pair in columns]))
        # F1 over several seeds is no mean of items.
        whole = (columns[0] == 1).astype(np.float64)
        items = Items("f1", own, whole)
        sheet.add(task, "test", "f1", score, count, items=items if len(outcomes) == 1 else None)
    _add_spread(sheet, task, values)
    return values


def f1(guesses: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Harmonic mean of precision and recall of class 1; 0 where there is no true positive.

    ``guesses``: (n,) classes. ``labels``: (n,) classes.
    """
    hits = int(((guesses == 1) & (labels == 1)).sum())
    total = int((guesses == 1).sum() + (labels == 1).sum())
    return 2 * hits / total if total else 0.0


def _add_spread(sheet: Sheet, task: str, values: Floats) -> None:
    if len(values) > 1:
        spread = float(values.std(ddof=1))
        sheet.add(task, "test", "accuracy_seed_sd", spread, len(values))
