"""Training runs that are killed at chosen instants and resumed, each in a process of its own.

Started by ``test_resume.py`` as ``python killed_runs.py BASE HOME``; prints JSON. Everything heavy
is imported once, the runs are forks of this process.
"""

import hashlib
import itertools
import json
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from contrasent.report import Report, Row
from contrasent.text.views import DeleteWords, Identity, RepeatTokens
from contrasent.train import fit as module
from contrasent.train.prepare import prepare
from contrasent.train.run import RunFolder
from contrasent.train.settings import Settings
from contrasent.train.step import StepRunner
from kills import ended, fork, passed, prepared
from tiny_models import made_sentences

SENTENCES = made_sentences()[:90]
COMMON = {"batch_size": 8, "max_steps": 17, "learning_rate": 3e-3, "dropout": 0.2, "seed": 5}
COMMON |= {"warmup_ratio": 0.2}
HALVES = {"gradient_accumulation_steps": 2}
KINDS = {
    # A view of words and one of tokens, evaluation, geometry, best and last.
    "views": ("simcse", {}, {"save_steps": 4, "eval_steps": 3, "geometry_every": 5}),
    # Statistics of BatchNorm, accumulation, hard negatives, no evaluation.
    "pairs": ("simcse_supervised", {"alpha": 2.0}, HALVES | {"head": "batchnorm"}),
    # A momentum encoder and a queue; several epochs.
    "queue": ("esimcse", {}, {"save_steps": 5, "eval_steps": 4, "early_stopping_patience": 3}),
}


def evaluate(encode):
    """A number that rises and falls with the weights."""
    vectors = encode(SENTENCES[:12]).astype(float)
    value = float(np.sin(50 * vectors.sum()))
    return Report((Row("made", "dev", "spearman", "", value, 12),))


def train(base, folder, kind, *, resume):
    name, parameters, changes = KINDS[kind]
    settings = Settings(**(COMMON | {"save_steps": 6} | changes))
    learner = prepare(base, name, parameters, settings)
    rows = SENTENCES
    if kind == "views":
        learner.views = (DeleteWords(percent=25), RepeatTokens(rate=0.5, rule="paper"))
    if kind == "pairs":
        rows = [(SENTENCES[i], SENTENCES[i + 1], SENTENCES[i + 2], "a map") for i in range(60)]
        learner.views = (Identity(), RepeatTokens(rate=0.5, rule="paper"))
    judge = evaluate if kind != "pairs" else None
    module.geometry_on_stsb = lambda: evaluate
    # A checkpoint has the time taken: a second with each look.
    module.time = SimpleNamespace(monotonic=itertools.count().__next__)
    module.fit(learner, rows, settings, output_dir=folder, resume=resume, evaluate=judge)


def inside_log(instants):
    """In the middle of a line of the log."""
    write = RunFolder.write_log

    def counted(place, line, *, kept=True):
        if not kept:
            write(place, line, kept=False)
            return
        text = json.dumps(line)
        with place.log.open("a") as stream:
            stream.write(text[: len(text) // 2])
            stream.flush()
            whole = place.log.stat().st_size - len(text) // 2
            instants()
        os.truncate(place.log, whole)
        write(place, line)

    RunFolder.write_log = counted


PLACES = ((StepRunner, "take"), (Path, "replace"), (Path, "rename"), (os, "fsync"))
ENDS = (*PLACES, (Path, "unlink"), (shutil, "rmtree"))


def child(function, *, kill_at=None, places=PLACES):
    """Call a function in a fork; what ended it."""
    return ended(fork(function, places, kill_at=kill_at, watch=inside_log))


def keep_steps():
    """Keep what a finished run drops, to compare it."""
    RunFolder._drop_steps = lambda *given: None


STAMPED = ("result.json", "report.html")  # they have times


def digests(folder):
    """Every file of a model folder but the times; hidden ones too."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in STAMPED)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def runs(base, home, kind, kills):
    """An uninterrupted run, then runs killed once or twice; yields what became of each."""
    reference = home / kind
    status = child(partial(train, base, reference, kind, resume=False))
    count = passed()
    yield {"kills": [], "status": [status], "count": count, "files": digests(reference)}
    random = np.random.default_rng(len(kind))
    for number in range(kills):
        folder = home / f"{kind}{number}"
        # Every stretch of the run is hit; every second one is killed again while it goes on.
        first = int(random.integers(number * count // kills, (number + 1) * count // kills)) + 1
        points = [first] + ([int(random.integers(1, count - first + 2))] if number % 2 else [])
        statuses = []
        for i, point in enumerate([*points, None]):
            run = partial(train, base, folder, kind, resume=i > 0)
            statuses.append(child(run, kill_at=point))
        yield {"kills": points, "status": statuses, "files": digests(folder)}


def ends(base, home):
    """Runs by a method's name that are killed at each of their last instants: what they leave."""

    def train(*, resume=True):
        given = {"max_steps": 6, "batch_size": 8, "save_steps": 4, "max_seq_length": 32}
        given |= {"base": base, "keep": "last", "resume": resume}
        found = module.fit("simcse", SENTENCES, output_dir=folder, **given)
        assert found.steps == 6

    def left():
        page = (folder / "report.html").read_text()
        return digests(folder) | {
            "report.html": re.sub(r"in \d+ s, [\d,]+|seconds?</dt><dd>[^<]+", "", page)
        }

    folder = home / "ends"
    statuses = [child(partial(train, resume=False), places=ENDS)]
    count, files = passed(), left()
    for point in range(count, count - 45, -5):
        shutil.rmtree(folder)
        first = child(partial(train, resume=False), places=ENDS, kill_at=point)
        statuses.append((first, child(train, places=ENDS)))
        if left() != files:
            yield {
                "point": count - point,
                "differ": sorted(set(files.items()) ^ set(left().items())),
            }
    yield {"statuses": statuses}


def main():
    base, home = prepared()
    found = list(ends(base, home))  # first: it drops what the others keep
    keep_steps()
    wanted = {"views": 4, "pairs": 2, "queue": 2}
    stated = {kind: list(runs(base, home, kind, kills)) for kind, kills in wanted.items()}
    sys.stdout.write(json.dumps(stated | {"ends": found}))


if __name__ == "__main__":
    main()
