"""The first half of ``contrasent demo``: a language model learns to find explanations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import pictures
from contrasent.documents.docstrings import InstalledDocumentation
from contrasent.documents.sections import sentences
from contrasent.encoder.encoder import TorchEncoder
from contrasent.evaluate.validation import RetrievalValidation, confirming
from contrasent.files import render, write_text
from contrasent.metrics import alignment, normalize, uniformity
from contrasent.model.pretrained import resolve
from contrasent.report import Report, Row, laid_out
from contrasent.train.fit import fit
from contrasent.train.run import HELD_OUT, Run, curves
from contrasent.types import Numbers

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

HELD_OUT_SHARE = 5  # one in this many summaries is held out
NUMBERS = ("alignment", "uniformity")
MAPPED = 200  # summaries on the map
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
    start = f"{lessons[0].run.base_score:.3f}"
    rows = [
        ("MRR@10 on held-out summaries", "validation", "test gain", "95 % CI", "verdict"),
        (f"{Path(base).name} (base)", start, "", "", "starting point"),
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
    write_text(folder / "learning.html", _page(lessons, base, questions, answers))
    return lessons


def _page(
    lessons: Sequence[Lesson], base: str, questions: Sequence[str], answers: Sequence[str]
) -> str:
    """What contrast changed: the curve, alignment and uniformity, a map, and three examples."""
    drawn, steps = dict[str, list[pictures.Point]](), 0
    for lesson in lessons:
        (points,) = curves(lesson.run.log)[HELD_OUT].values()
        drawn[lesson.name] = [(steps + step, value, low, high) for step, value, low, high in points]
        steps += lesson.run.steps
    encoders = {"before": TorchEncoder.load(resolve(base), pooling=POOLER)}
    encoders["after"] = lessons[-1].run.encoder
    texts = (questions, answers)
    sides = {n: [normalize(e.encode(side)) for side in texts] for n, e in encoders.items()}
    ranks, best, spaces = list[Numbers](), list[Numbers](), dict[str, Report]()
    for name, (left, right) in sides.items():
        cosines = left @ right.T
        best.append(cosines.argmax(axis=1))
        ranks.append((cosines > cosines.diagonal()[:, None]).sum(axis=1) + 1)
        values = alignment(left, right), uniformity(right)
        rows = [Row("", "", m, "", v, len(left)) for m, v in zip(NUMBERS, values, strict=True)]
        spaces[name] = Report(tuple(rows))
    gains = 1 / ranks[1] - 1 / ranks[0]
    order = confirming(np.arange(len(gains)))
    order = order[np.argsort(-gains[order], kind="stable")]
    shown = [n for n in order[:2].tolist() if gains[n] > 0]
    shown += [n for n in order[-1:].tolist() if gains[n] < 0]
    return render(
        "learning.html",
        heading="Contrastive learning",
        window=": contrastive learning",
        base=base,
        name=Path(base).name,
        lessons=lessons,
        expected="" if lessons[0].run.kept else EXPECTED,
        curve=pictures.panels({"MRR@10 on held-out summaries, 95 % CI": drawn}),
        plane=pictures.plane(spaces),
        map=pictures.maps({n: (a[:MAPPED], b[:MAPPED]) for n, (a, b) in sides.items()}),
        measured=[s.one(metric=m).value for m in NUMBERS for s in spaces.values()],
        mapped=min(MAPPED, len(questions)),
        held_out=len(questions),
        others=len(order),
        counts=[int((np.sign(gains[order]) == sign).sum()) for sign in (1, 0, -1)],
        examples=[
            (
                questions[n],
                [(int(of[n]), answers[at[n]]) for of, at in zip(ranks, best, strict=True)],
            )
            for n in shown
        ],
    )
