"""Reproductions that are killed and gone on with, and two processes on one queue.

Started by ``test_reproduce_queue.py`` as ``python killed_reproductions.py BASE HOME``; prints JSON.
Everything heavy is imported once, the runs are forks of this process. The measure is made up, so
that no data set is needed.
"""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from torch.optim import AdamW

from contrasent.report import Report, Row
from contrasent.reproduce import measures
from contrasent.reproduce.plan import Planner
from contrasent.reproduce.results import book
from contrasent.reproduce.run import environment, run
from contrasent.reproduce.store import ResultStore
from contrasent.reproduce.tables import ItemFolder
from kills import ended, fork, passed, prepared
from tiny_models import made_sentences

SENTENCES = made_sentences()
RECIPE = """
title = "Two crops and the base"
source = "our own"
about = "An item for tests."
cost = "medium"
reference = "plain"

[evaluations.made]
kind = "sts"
tasks = ["STSB"]

[columns.made]
evaluation = "made"
metric = "spearman"

[templates.unsup]
objective = "simcse"
corpus = "wiki"

[scale.lab]
sentences = 60
set = { max_steps = 5, batch_size = 8, save_steps = 2, precision = "fp32", learning_rate = 1e-3 }

[[rows]]
name = "base"
encoder = "@base"
pooling = "cls"
expected = { made = 10.0 }

[[rows]]
name = "plain"
use = "unsup"
expected = { made = 50.0 }

[[rows]]
name = "crop {percent}"
use = "unsup"
set = { view = "crop" }
axes = { percent = [20, 40] }
expected = { made = [40.0, 30.0] }

[[claims]]
name = "plain-is-better"
text = "No crop is better than crops."
column = "made"
better = "plain"
than = ["crop 20", "crop 40"]
"""
OTHER = RECIPE.replace("percent = [20, 40]", "percent = [40]").replace("[40.0, 30.0]", "[30.0]")
OTHER = OTHER.replace('than = ["crop 20", "crop 40"]', 'than = ["crop 40"]')


def measured(told, encode, folder, **options):
    """A number that depends on every weight; a line a call tells that it was asked."""
    vectors = encode(SENTENCES[:12]).astype(float)
    with told.open("a") as stream:
        stream.write("measured\n")
    value = float(np.sin(50 * vectors.sum()))
    return Report((Row("STSB", "test", "spearman", "all", value, 12),))


def reproduce(base, home, results, items, seeds):
    """What ``contrasent reproduce`` does, with the made measure; writes its report."""
    entry = measures.MEASURES["sts"]
    measures.MEASURES["sts"] = replace(entry, run=partial(measured, results / "told"))
    results.mkdir(exist_ok=True)
    own = ItemFolder(home / "recipes")
    wanted = own.find(items)
    data, scale = home / "data", own.scales["lab"]
    found = Planner(results, data, scale, own.corpora, base=str(base)).plan(wanted, seeds)
    made, _ = run(found, ResultStore(results), data)
    (results / "made").write_text(str(made))
    told = book(wanted, results, "lab")
    (results / "book.json").write_text(json.dumps(told))


PLACES = ((AdamW, "step"), (Path, "replace"), (Path, "rename"), (shutil, "rmtree"))


child = partial(fork, places=PLACES)


def facts(results, status):
    found = json.loads((results / "book.json").read_text())
    for item in found["items"]:
        del item["run"]
    lines = (results / "told").read_text().splitlines()
    models = sorted(p.name for p in (results / "models").iterdir())
    return {"status": status, "items": found["items"], "asked": len(lines), "models": models}


def main():
    base, home = prepared()
    measures.texts_digest = lambda kind, options, folder: "made"
    for name, text in (
        ("recipes/simcse/table1.toml", RECIPE),
        ("recipes/simcse/table2.toml", OTHER),
        ("data/wiki/wiki1m_for_simcse.txt", "\n".join(SENTENCES[:90]) + "\n"),
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    assert environment()["versions"]

    table = partial(reproduce, base, home, items=["simcse:table1"], seeds=2)
    told = {"whole": [], "killed": [], "shared": [], "later": []}
    whole = home / "whole"
    told["whole"].append(facts(whole, [ended(child(partial(table, results=whole)))]))
    count = told["count"] = passed()
    random = np.random.default_rng(5)
    for trial in range(2):
        results = home / f"killed{trial}"
        run_again = partial(table, results=results)
        # Three stretches of the whole, each killed somewhere in its first third or so.
        points = [int(random.integers(3, count // 3)) for _ in range(3)]
        statuses = [ended(child(run_again, kill_at=point)) for point in points]
        statuses.append(ended(child(run_again)))
        told["killed"].append({"points": points, **facts(results, statuses)})
    shared = home / "shared"
    pids = [child(partial(table, results=shared)) for _ in range(2)]
    told["shared"].append(facts(shared, [ended(pid) for pid in pids]))
    # Another item, and more seeds, on the results of the first.
    for items, seeds in ((["simcse:table2"], 2), (["all"], 2), (["simcse:table1"], 3)):
        more = partial(reproduce, base, home, whole, items, seeds)
        status = ended(child(more))
        told["later"].append({"made": int((whole / "made").read_text()), "status": status})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
