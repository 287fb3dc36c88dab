"""index --model: another model for an index that exists."""

import numpy as np
import pytest

from commands import invoke, printed, run
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker
from contrasent.search.writer import Writer
from tiny_models import made_sentences


@pytest.fixture
def built(tmp_path, models):
    (tmp_path / "notes.txt").write_text("\n".join(made_sentences()[:400]) + "\n")
    run(
        "index", tmp_path / "notes.txt", "--model", models / "mean", "-o", tmp_path / "index",
        "--bm25-weight", 0.4,
    )  # fmt: skip
    return tmp_path / "index"


def test_another_model(built, models, tmp_path):
    before = Index.open(built)
    said = printed("index", built, "--model", models / "cls")
    run("index", tmp_path / "notes.txt", "--model", models / "cls", "-o", tmp_path / "fresh")
    made, fresh = Index.open(built), Index.open(tmp_path / "fresh")
    assert (said["texts"], said["former"], said["identity"]) == (400, before.model, fresh.model)
    rows = np.arange(400)
    assert made.vectors[rows] == pytest.approx(fresh.vectors[rows], abs=1e-5)
    assert made.facts.source == fresh.facts.source
    assert made.ranker == before.ranker == Ranker(0.4)
    assert "encoded again with" in run("index", built, "--model", models / "mean")


def test_texts_that_the_other_model_cuts_are_counted(models, tmp_path):
    words = " ".join(made_sentences()[:30])
    (tmp_path / "long.md").write_text(f"# Long\n\n{words}\n")
    index = tmp_path / "index"
    invoke("index", tmp_path / "long.md", "--model", models / "mean", "-o", index)
    rows = len(Index.open(index))
    said = invoke("index", index, "--model", models / "cls", "--max-seq-length", 12).stderr
    hint = "(--max-seq-length); index the source again to cut passages to fit"
    assert f"{rows} of {rows} texts were truncated to 12 tokens {hint}" in said
    # What this model cuts is longer than it can read.
    size = Index.open(index).vectors.shape[1]
    with Writer(index) as writer:
        writer.add([words * 9], lambda texts: np.ones((1, size)), ids=["long"])
    said = invoke("index", index, "--model", models / "mean").stderr
    assert f"1 of {rows + 1} texts were truncated to 64 tokens; index the source again" in said
