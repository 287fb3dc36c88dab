"""The first half of ``contrasent demo``: a language model learns to find explanations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasent import pictures
from contrasent.documents.docstrings import InstalledDocumentation
from contrasent.documents.sections import sentences
from contrasent.encoder.encoder import TorchEncoder
from contrasent.evaluate.validation import RetrievalValidation
from contrasent.files import render, write_text
from contrasent.model.pretrained import resolve
from contrasent.train.fit import fit
from contrasent.train.page import HELD_OUT, curves
from contrasent.train.run import Run

PAIRS = "simcse_supervised"
POOLER = "mean"
SETTINGS: dict[str, Any] = {
    "pooling": POOLER,
    "head": "none",
    "max_seq_length": 64,
    "batch_size": 64,
}
STEPS = {
    "sentences": {"max_steps": 40, "eval_steps": 20, "learning_rate": 3e-5, "dropout": 0.1},
    "pairs": {"max_steps": 60, "eval_steps": 20, "learning_rate": 3e-4, "dropout": 0.0},
}
"""Settings of each step on top of those, in the order of the steps."""

JUDGED = 5  # one in so many summaries judges
SHOWN = 3  # summaries whose best explanation is shown before and after


@dataclass(frozen=True, slots=True)
class Lesson:
    """A step of learning: what it learned from, and its run."""

    name: str
    run: Run


def table(lessons: Sequence[Lesson], base: str) -> list[str]:
    """Lines to print: MRR@10 of each best step, its gain on other summaries, and what is kept."""
    lines = ["MRR@10 of the right explanation for summaries held out, and the gain on others:"]
    rows = [(f"{Path(base).name} as it is", lessons[0].run.base_score, "")]
    for lesson in lessons:
        gain, remark = lesson.run.gain, "" if lesson.run.kept else "  not proven, not kept"
        shown = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]" if gain else ""
        rows.append((lesson.name, lesson.run.score, shown + remark))
    return lines + [f"    {name:40s} {score:.3f}  {gain}".rstrip() for name, score, gain in rows]


def learn(
    documentation: InstalledDocumentation, folder: Path, *, base: str, objective: str, **run: Any
) -> list[Lesson]:
    """Train on the documentation's sentences by a method, then on summaries and explanations.

    Every fifth summary and its explanation take no part in the pairs, and judge. A step that is
    not proven better leaves the weights as they were. Leaves ``learning.html`` and a model a
    step in the folder; ``run`` is for :func:`fit`.
    """
    explained = {doc.id: " ".join(doc.sections[0].paragraphs) for doc in documentation}
    pairs = [(text, explained[name]) for text, name in documentation.summaries]
    questions, answers = map(list, zip(*pairs[::JUDGED], strict=True))
    judge = RetrievalValidation("summaries", {"explanations": (questions, answers)})
    hidden = {text.casefold() for text in questions}
    lines = dict.fromkeys(line.strip() for text in explained.values() for line in sentences(text))
    corpora: dict[str, Sequence[Any]] = {
        "sentences": [line for line in lines if line.casefold() not in hidden],
        "pairs": [pair for n, pair in enumerate(pairs) if n % JUDGED],
    }
    lessons, model = list[Lesson](), base
    for (name, settings), method in zip(STEPS.items(), (objective, PAIRS), strict=True):
        place, chosen = folder / name, SETTINGS | settings
        again = run | {"resume": run.get("resume", False) and place.is_dir()}
        how = {"output_dir": place, "base": model, "evaluate": judge, **again}
        done = fit(method, corpora[name], chosen, **how)
        lessons.append(Lesson(f"{method}, {len(corpora[name]):,} {name}", done))
        model = str(done.folder)
    write_text(folder / "learning.html", _page(lessons, base, questions, answers))
    return lessons


def _page(
    lessons: Sequence[Lesson], base: str, questions: Sequence[str], answers: Sequence[str]
) -> str:
    """The curve of both steps, one after the other, and what three summaries find."""
    drawn, steps = dict[str, list[pictures.Point]](), 0
    for lesson in lessons:
        (points,) = curves(lesson.run.log)[HELD_OUT].values()
        drawn[lesson.name] = [(steps + step, value, low, high) for step, value, low, high in points]
        steps += lesson.run.steps
    encoders = (TorchEncoder.load(resolve(base), pooling=POOLER), lessons[-1].run.encoder)
    first, last = (e.similarity(questions[:SHOWN], answers).argmax(axis=1) for e in encoders)
    return render(
        "learning.html",
        heading="Learning by contrast",
        window=": learning by contrast",
        base=base,
        name=Path(base).name,
        lessons=lessons,
        curve=pictures.panels({"MRR@10 of summaries held out, 95 % interval": drawn}),
        judged=len(questions),
        examples=[
            (questions[n], [(answers[place], place == n) for place in (first[n], last[n])])
            for n in range(min(SHOWN, len(questions)))
        ],
    )
