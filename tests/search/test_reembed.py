"""Another model's vectors in an index's place: encoded anew, killed and resumed."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from whole_states import encoder

from contrasent.errors import ModelError, OutputError
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.opening import reembed
from contrasent.search.ranking import Ranker
from contrasent.search.writer import Writer

TEXTS = [f"entry {n} of the ledger" for n in range(700)]
old, new = encoder(1, 6), encoder(2, 9)


@pytest.fixture
def folder(tmp_path):
    """Two segments, some rows deleted, and settings of all kinds."""
    index = Index.build(old, TEXTS[:600], metadata=[{"n": n} for n in range(600)], model="old")
    index.save(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.add(TEXTS[600:], old, metadata=[{"n": n} for n in range(600, 700)])
        writer.delete(["3", "644"])
        writer.set(settings={"note": 0.5, "pooling": "cls"})
        writer.set(ranker=Ranker(0.3, map_share=0.5), learned=Learned(np.eye(6, dtype=np.float32)))
    return tmp_path / "index"


def rows_of(index):
    """{id: (text, metadata, vector)}"""
    numbers = index.numbers()
    vectors = index.vectors[numbers]
    hits = index.rows(numbers)
    return {h.id: (h.text, h.metadata, v.tolist()) for h, v in zip(hits, vectors, strict=True)}


def check_renewed(index, encode):
    found = rows_of(index)
    assert len(found) == 698 and "3" not in found and "644" not in found
    for name, (text, metadata, vector) in found.items():
        assert (text, metadata) == (TEXTS[int(name)], {"n": int(name)})
        (expected,) = encode([text])
        assert vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)


def test_all_but_the_vectors_stays(folder):
    before = Index.open(folder)
    made = reembed(folder, new, model="new", source="there", settings={"pooling": "cls"})
    check_renewed(made, new)
    assert (made.model, made.facts.source, made.dimension) == ("new", "there", 9)
    assert made.facts.generation == before.facts.generation + 1
    stored = made.facts.settings
    assert stored == {"note": 0.5, "pooling": "cls"} and made.ranker == Ranker(0.3)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert len(made.search(new(["x"]), k=700, where={"n": {"$lt": 10}})[0]) == 9
    (hit,) = made.search("entry 12", encode=new, k=1)[0]
    assert hit.text == TEXTS[12]
    check_renewed(before, old)  # who has it open still reads the old vectors
    assert before.refreshed().model == "new"
    with pytest.raises(ModelError, match="vectors of model 'new'"):
        made.check_model("old")


def test_the_old_index_answers_meanwhile(folder):
    seen = []

    def encode(texts):
        seen.append(Index.open(folder).search("entry 7", encode=old, k=3, model="old"))
        with pytest.raises(OutputError, match="is writing to this index"), Writer(folder, wait=0.1):
            pass
        return new(texts)

    expected = Index.open(folder).search("entry 7", encode=old, k=3)
    reembed(folder, encode, model="new")
    assert len(seen) == 3 and all(hits == expected for hits in seen)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_reembed import new
from contrasent.search.opening import reembed

made = 0

def encode(texts):
    global made
    made += len(texts)
    if made > 520:
        os.kill(os.getpid(), signal.SIGKILL)
    return new(texts)

reembed(Path(sys.argv[1]), encode, model="new")
"""


def killed(folder):
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", KILLED, folder, here], timeout=600)
    assert done.returncode == -signal.SIGKILL
    assert Index.open(folder).model == "old"
    assert folder.with_name(".index.encoded").is_dir()


def test_kill_and_resume(folder):
    killed(folder)
    check_renewed(Index.open(folder), old)
    asked = []

    def encode(texts):
        asked.extend(texts)
        return new(texts)

    check_renewed(reembed(folder, encode, model="new"), new)
    live = [text for n, text in enumerate(TEXTS) if n not in (3, 644)]
    # Of 698 texts two blocks of 256 were whole.
    assert asked == live[512:]


def test_what_was_begun_for_another_model_is_begun_anew(folder):
    killed(folder)
    encode = encoder(5, 4)
    made = reembed(folder, encode, model="other")
    assert (made.model, len(made)) == ("other", 698)
    for text, _, vector in rows_of(made).values():
        (expected,) = encode([text])
        assert vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)


def test_vectors_that_are_wrong_change_nothing(folder):
    before = Index.open(folder).facts.generation

    def encode(texts):
        return np.full((len(texts), 3), np.nan, dtype=np.float32)

    with pytest.raises(ModelError, match="NaN"):
        reembed(folder, encode, model="new")
    assert Index.open(folder).facts.generation == before
    check_renewed(Index.open(folder), old)
