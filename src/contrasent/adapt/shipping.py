"""The output of an adaptation: the model, its index and the report, for people and programs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from contrasent.adapt.candidates import Candidate, Trial
from contrasent.adapt.judging import Sealed
from contrasent.adapt.page import page
from contrasent.adapt.reading import Reading
from contrasent.adapt.selection import Selection
from contrasent.adapt.splitting import SEALED, SELECT
from contrasent.adapt.teaching import AGAIN
from contrasent.adapt.verdict import FEWEST, PROOF, Verdict
from contrasent.adapt.work import discard
from contrasent.errors import OutputError
from contrasent.files import check_writable, remove_temporaries, write_json, write_text
from contrasent.model.card import CardMetadata, card
from contrasent.model.encoder import Encoder
from contrasent.search.building import create
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts
from contrasent.search.sync import count_rows
from contrasent.types import Vectors

REPORT = "report.json"
PAGE = "report.html"
INDEX = "index"
WORK = "work"


@dataclass(frozen=True, slots=True, eq=False)
class Adaptation:
    """The outcome of an adaptation."""

    folder: Path
    shipped: Candidate  # "base" where nothing was proven better
    verdict: Verdict
    trials: tuple[Trial, ...]
    facts: dict[str, Any]  # as in report.json

    @property
    def improved(self) -> bool:
        """Whether something better than the base was shipped."""
        return self.verdict.improved


def check_target(target: Path, *, resume: bool, overwrite: bool) -> None:
    """Reject, before any work, an output that exists or cannot be written."""
    there = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if there and overwrite and not resume:
        if not (target / REPORT).is_file() and not (target / WORK).is_dir():
            raise OutputError(f"{target}: was not made by contrasent adapt; choose another folder")
        shutil.rmtree(target)
    elif there and ((target / REPORT).is_file() or not (target / WORK).is_dir()):
        raise OutputError(f"{target}: is there already; choose another name or add --overwrite")
    check_writable(target)
    for name in (INDEX, REPORT, PAGE):
        remove_temporaries(target, name)
    remove_temporaries(target / WORK)


def is_adapted(folder: Path) -> bool:
    """Whether a folder is what an adaptation left: a model with its index and report."""
    return (folder / REPORT).is_file() and (folder / INDEX).is_dir()


def finished(target: Path) -> Adaptation | None:
    """The outcome of a complete adaptation; None if there is none."""
    path = target / REPORT
    if not path.is_file():
        return None
    remove_temporaries(target, WORK)
    facts = json.loads(path.read_text("utf-8"))
    trials = TypeAdapter(tuple[Trial, ...]).validate_python(facts["trials"])
    verdict = TypeAdapter(Verdict).validate_python(facts["verdict"])
    shipped = TypeAdapter(Candidate).validate_python(facts["shipped"])
    return Adaptation(target, shipped, verdict, trials, facts)


def tidied(done: Adaptation, keep_candidates: bool) -> Adaptation:
    """Delete what a complete adaptation worked with, unless its candidates are wanted."""
    work = done.folder / WORK
    if work.is_dir() and not keep_candidates:
        discard(work)
    return done


def ship(
    target: Path,
    *,
    selection: Selection,
    chosen: Candidate,
    sealed: Sealed,
    reading: Reading,
    parts: NDArray[np.int8],
    base_name: str,
    user_queries: int | None,
    say: Callable[[str], None],
) -> Adaptation:
    """Leave the chosen candidate, or the base if the verdict is no, with index and report."""
    work, verdict = selection.work, sealed.verdict
    shipped = chosen if verdict.improved else selection.tried[0].candidate
    encoder = selection.encoder(shipped)
    _publish(target, encoder, work.folder / "model", base_name, shipped, verdict)
    say(f"indexing {len(reading.passages):,} passages")
    vectors = selection.passages(shipped)
    _index(target, encoder, vectors, reading, shipped)
    facts = {
        "format": 1,
        "base": base_name,
        "shipped": asdict(shipped),
        "chosen": asdict(chosen),
        "improved": verdict.improved,
        "verdict": asdict(verdict),
        "trials": [asdict(trial) for trial in selection.tried],
        "reading": {**reading.facts, "lines": reading.lines},
        "changes": sealed.changes,
        "held_out": {
            name: [reading.documents[at] for at in np.flatnonzero(parts == part)]
            for name, part in (("choose", SELECT), ("judge", SEALED))
        },
        "queries": {"from_people": user_queries, "sealed": sealed.queries},
        "seconds": round(work.seconds(), 1),
        "advice": advice(verdict, user_queries),
    }
    write_text(target / PAGE, page(facts, target))
    write_json(target / REPORT, facts)
    done = finished(target)
    if done is None:
        raise OutputError(f"{target / REPORT}: was deleted while it was being written")
    return done


def advice(verdict: Verdict, user_queries: int | None) -> list[str]:
    """Suggestions, a line each."""
    lines = []
    if user_queries is None:
        lines.append(
            "these queries were made, not typed by people; with real ones (--queries FILE) the "
            "choice and the proof are about your users"
        )
    elif not verdict.improved and AGAIN in verdict.kinds:
        return ["more queries may teach more; until then the default search is the better choice"]
    queries = [change.queries for change in verdict.kinds.values()]
    documents = sum(queries) // max(1, len(queries))
    if not verdict.improved and documents < FEWEST:
        lines.append(f"a gain cannot be proven on so little: {PROOF}")
    elif not verdict.improved:
        lines.append(
            "more text or another --base may change the verdict; until then the base is the better "
            "choice"
        )
    return lines


def _publish(
    target: Path,
    encoder: Encoder,
    staged: Path,
    base_name: str,
    shipped: Candidate,
    verdict: Verdict,
) -> None:
    """Put a model's files at the top of the folder, what makes it a model last."""
    facts = CardMetadata(base=Path(base_name).name if Path(base_name).is_dir() else base_name)
    text = card(encoder, facts) + f"\n## Adaptation\n\n{shipped.name}: {verdict.reason}.\n"
    encoder.save(staged, card=text)
    for path in sorted(staged.iterdir(), key=lambda p: p.name == "modules.json"):
        place = target / path.name
        if place.is_dir():
            shutil.rmtree(place)
        path.rename(place)


def _index(
    target: Path, encoder: Encoder, vectors: Vectors, reading: Reading, shipped: Candidate
) -> None:
    place = {text: vector for text, vector in zip(reading.texts, vectors, strict=True)}
    rows = []
    for passage in reading.passages:
        text, name, about = passage.row
        rows.append((text, name, about | {"document": reading.documents[passage.document]}))
    count_rows(reading.files, rows)
    create(
        target / INDEX,
        lambda texts: np.stack([place[text] for text in texts]),
        rows,
        Facts(
            model=encoder.identity,
            source=str(target.resolve()),
            ranker=(shipped.fusion or Ranker(0.0)).to_json(),
            origin=reading.origin,
        ),
        overwrite=True,
        documents=reading.files,
    )
