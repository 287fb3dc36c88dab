"""The evaluation that decides in ``contrasent train``, and the line on its outcome."""

from pathlib import Path
from typing import TYPE_CHECKING

from contrasent.errors import OptionError, TrainingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contrasent.text.corpus import Corpus
    from contrasent.train.monitor import Evaluate
    from contrasent.train.run import Run
    from contrasent.train.settings import Settings

BLIND = {
    "documents": "it sees whether sentences find the rest of their own held-out documents, and not "
    "whether people's questions find them",
    "neighbours": "it sees how much of the base is left on held-out sentences, and not whether "
    "what changed is better",
}
"""The limits of evaluations without labels."""
BETTER = "pairs (two columns) or --evaluate FILE with labelled pairs show more"


def evaluation(
    wanted: str | None, source: "Corpus", settings: "Settings"
) -> "tuple[str, Evaluate | None, NDArray[np.int64] | None, str]":
    """Choose what decides which model is kept."""
    if wanted is not None or source.width > 1:
        name = wanted or "heldout"
        judge, rows, note = _named(name, source, settings)
        return name, judge, rows, note or _blind(name)
    problem = ""
    for name in ("documents", "neighbours")[not source.documents :]:
        try:
            judge, rows, _ = _named(name, source, settings)
            why = f"not --evaluate documents, the default: {problem}\n" if problem else ""
            return name, judge, rows, why + _blind(name)
        except TrainingError as error:
            problem = str(error)
    return "none", None, None, f"nothing is evaluated: {problem}"


def _blind(name: str) -> str:
    return f"--evaluate {name}: {BLIND[name]}; {BETTER}" if name in BLIND else ""


def _named(
    evaluator: str, source: "Corpus", settings: "Settings"
) -> "tuple[Evaluate | None, NDArray[np.int64] | None, str]":
    """An evaluation, the rows to train on, and a note on what was held out."""
    if evaluator == "none":
        return None, None, ""
    if evaluator == "stsb":
        from contrasent.evaluate.sts import sts
        from contrasent.text.datasets import sts_pairs

        sts_pairs("STSB", split="dev")  # missing data are an error before any training
        return lambda encode: sts(encode, tasks=("STSB",), split="dev"), None, ""
    from contrasent.evaluate import validation
    from contrasent.text import heldout

    needs = {
        "heldout": (source.width > 1, "a corpus of pairs; this one has single sentences"),
        "documents": (source.width == 1 and source.documents, "sentences, and --documents"),
        "neighbours": (source.width == 1, "a corpus of sentences; this one has pairs"),
    }
    fits, what = needs.get(evaluator, (True, ""))
    if not fits:
        raise OptionError("--evaluate", evaluator, f"needs {what}")
    count, seed = settings.heldout, settings.seed
    if evaluator == "heldout":
        split = heldout.hold_out(source, count, seed=seed)
        sides = split.queries, split.documents
        if source.scored:
            return validation.LabelledValidation(*sides, split.scores), split.train, split.note
        pools = {"pairs": (split.queries, split.pool)}
        found = validation.RetrievalValidation(evaluator, pools, split.relevant)
        return found, split.train, split.note
    if evaluator == "documents":
        rows, documents = heldout.hold_out_documents(source, count, seed=seed)
        return validation.RetrievalValidation(evaluator, heldout.passages(documents)), rows, ""
    if evaluator == "neighbours":
        rows, texts = heldout.hold_out_sentences(source, count, seed=seed)
        return validation.NeighbourValidation(texts), rows, ""
    if not Path(evaluator).is_file():
        problem = "neither a file of labelled pairs nor one of the names"
        raise OptionError("--evaluate", evaluator, problem, choices=(*needs, "none", "stsb"))
    from contrasent.text.corpus import read_labelled_pairs

    labels = read_labelled_pairs(evaluator)
    return validation.LabelledValidation(labels.first, labels.second, labels.scores), None, ""


def outcome(run: "Run", evaluator: str) -> str:
    """The last line of a run that was evaluated: whether it improved, and which model is there."""
    kept, base, gain = run.kept or 0, run.base_score, run.gain
    place = {0: "the base", run.steps: "the last step"}.get(kept, f"step {kept}")
    model = f"the model is {place}"
    if run.improved is False and kept == 0:
        model += f" (--keep trained leaves step {run.best_step})"
    if evaluator == "neighbours":
        left = f"{run.score:.4f} of the base's neighbours are left"
        if run.improved is False:
            return f"too much is lost: {left}; {model}"
        return f"sentences alone show no gain, {left}; {model}"
    found = f"step {run.best_step}, {evaluator} {run.metric} {run.score:.4f}"
    if base is not None:
        found += f", before training {base:.4f}"
    if gain is not None and gain.low is not None:
        interval = f"95 % interval {gain.low:+.4f} to {gain.high:+.4f}"
        found += f"; on {gain.count} others {gain.value:+.4f}, {interval}"
    if run.improved is False:
        ahead = run.score is not None and base is not None and run.score > base
        return f"{'not proven better' if ahead else 'no improvement'}: {found}; {model}"
    return f"best model: {found}" + ("" if kept == run.best_step else f"; {model}")
