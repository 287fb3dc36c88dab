"""The first half of ``contrasent demo``: a language model learns to find explanations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasent.documents.docstrings import InstalledDocumentation
from contrasent.documents.sections import sentences
from contrasent.evaluate.validation import RetrievalValidation
from contrasent.report import laid_out
from contrasent.train.fit import fit
from contrasent.train.run import Run

PAIRS = "simcse_supervised"
SETTINGS: dict[str, Any] = {
    "pooling": "mean",
    "head": "none",
    "max_seq_length": 64,
    "batch_size": 64,
}
STEPS = {
    "sentences": {"max_steps": 40, "eval_steps": 20, "learning_rate": 3e-5, "dropout": 0.1},
    "pairs": {"max_steps": 60, "eval_steps": 20, "learning_rate": 3e-4, "dropout": 0.0},
}
"""Settings of each step on top of those, in the order of the steps."""

HELD_OUT_SHARE = 5  # one in so many summaries is held out
EXPECTED = (
    "This is expected for sentences alone: unlike pairs, they do not show which explanation "
    "follows a summary."
)
"""Why the first step may not help."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A step of learning: what it learned from, and its run."""

    name: str
    run: Run

    @property
    def verdict(self) -> str:
        """Whether it improved, and what became of its weights."""
        if self.run.kept:
            return "improved; saved"
        gain = self.run.gain
        worse = gain is not None and gain.high is not None and gain.high < 0
        return f"{'worse' if worse else 'no reliable improvement'}; discarded"


def table(lessons: Sequence[Lesson], base: str) -> list[str]:
    """Lines to print: MRR@10 by which each best step is chosen, its gain on others, the verdict."""
    start = (
        f"{Path(base).name} (base)",
        f"{lessons[0].run.base_score:.3f}",
        "",
        "",
        "starting point",
    )
    rows = [
        ("MRR@10 on held-out summaries", "validation", "test gain", "95 % CI", "verdict"),
        start,
    ]
    for lesson in lessons:
        gain, ends = lesson.run.gain, ("", "")
        if gain is not None:
            ends = f"{gain.value:+.3f}", f"[{gain.low:+.3f}, {gain.high:+.3f}]"
        rows.append((lesson.name, f"{lesson.run.score:.3f}", *ends, lesson.verdict))
    return [*laid_out(rows, left=(0, 4)), *([EXPECTED] if not lessons[0].run.kept else [])]


def learn(
    documentation: InstalledDocumentation, folder: Path, *, base: str, objective: str, **run: Any
) -> list[Lesson]:
    """Train on the documentation's sentences by a method, then on summaries and explanations."""
    # Every fifth summary and its explanation are held out.
    explained = {doc.id: " ".join(doc.sections[0].paragraphs) for doc in documentation}
    pairs = [(text, explained[name]) for text, name in documentation.summaries]
    questions, answers = map(list, zip(*pairs[::HELD_OUT_SHARE], strict=True))
    evaluator = RetrievalValidation("summaries", {"explanations": (questions, answers)})
    hidden = {text.casefold() for text in questions}
    lines = dict.fromkeys(line.strip() for text in explained.values() for line in sentences(text))
    corpora: dict[str, Sequence[Any]] = {
        "sentences": [line for line in lines if line.casefold() not in hidden],
        "pairs": [pair for n, pair in enumerate(pairs) if n % HELD_OUT_SHARE],
    }
    lessons, model = list[Lesson](), base
    for (name, settings), method in zip(STEPS.items(), (objective, PAIRS), strict=True):
        place, chosen = folder / name, SETTINGS | settings
        again = run | {"resume": run.get("resume", False) and place.is_dir()}
        how = {"output_dir": place, "base": model, "evaluate": evaluator, **again}
        done = fit(method, corpora[name], chosen, **how)
        lessons.append(Lesson(f"{method}, {len(corpora[name]):,} {name}", done))
        model = str(done.folder)
    return lessons
