"""An index that is searchable before all is encoded ends as one that was made whole."""

import shutil
import time
from contextlib import closing

import numpy as np
import pytest
from index_states import assert_same, state

from contrasent import errors, index_folder, sync_index
from contrasent.indexing import tiers
from contrasent.indexing.models import open_index_model
from contrasent.metrics import normalize
from contrasent.model import static
from contrasent.model.base import TaskEncoder
from contrasent.model.static import StaticModel
from contrasent.search.doctor import examine
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker
from contrasent.search.tiers import BASE, EARLY, FIRST
from contrasent.search.writer import Writer


@pytest.fixture(scope="module")
def lines(tmp_path_factory, sentences):
    """A table of 600 texts in three blocks, some of them there twice, also in different blocks."""
    texts = [f"{text} {n // 3}" for n, text in enumerate((sentences * 20)[:590])]
    path = tmp_path_factory.mktemp("table") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*texts, *texts[:300:30]]))
    return path


@pytest.fixture(scope="module")
def made(lines, bert, tmp_path_factory):
    """A way to index the table, and the state of an index made whole."""

    def index(target, **given):
        return index_folder(lines, target, model=bert, pooler="mean", **given)

    whole = tmp_path_factory.mktemp("whole") / "index"
    index(whole)
    return index, state(whole)


def test_both_tiers_end_as_an_index_made_whole(made, tmp_path, monkeypatch):
    index, whole = made
    first = index(tmp_path / "index", fast=True)
    assert first.unfinished == len(first.index) == 600
    kinds = np.bincount(first.index.tiers.kinds, minlength=3)
    assert kinds.tolist() == [480, 120, 0]  # a fifth of the rows taught
    assert first.index.search("a map", encode=TaskEncoder(open_index_model(first.index).encoder))
    assert not examine(tmp_path / "index")[0].message.startswith("0")
    done = index(tmp_path / "index")
    assert not done.unfinished
    assert_same(tmp_path / "index", whole)
    # By itself, where encoding takes long; and the sample of a run that was killed is kept.
    monkeypatch.setattr(tiers, "LONG", -1.0)
    monkeypatch.setattr(tiers, "FEW_CHARACTERS", 0)
    said = []
    index(tmp_path / "long", log=said.append)
    assert "can be searched after" in said[-1]
    assert_same(tmp_path / "long", whole)


def test_ctrl_c_keeps_the_blocks_that_are_done(made, tmp_path):
    index, whole = made
    encode, calls = open_index_model(index(tmp_path / "index", fast=True).index), []

    def stopped(sentences):
        calls.append(len(sentences))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(sentences)

    second = tiers.SecondTier(tmp_path / "index", stopped, keep_every=0.0)
    with pytest.raises(KeyboardInterrupt):
        while second.turn():
            pass
    with closing(Index.open(tmp_path / "index")) as left:
        assert (left.unfinished, calls[0]) == (344, 256)
    sync_index(tmp_path / "index")
    assert_same(tmp_path / "index", whole)


def test_what_queries_find_is_encoded_first_and_others_may_write_meanwhile(made, tmp_path):
    index, whole = made
    opened = index(tmp_path / "index", fast=True).index
    encode = open_index_model(opened)
    query = ["a copper lamp"]
    given = opened.query_vectors(query, encode)
    (best,) = opened.find(query, given, tiers.CANDIDATES, opened.ranker)
    second = tiers.SecondTier(tmp_path / "index", encode, keep_every=0.0)
    assert second.turn(query, given) == 344
    newer = opened.refreshed()
    assert (newer.tiers.kinds[best.rows] >= EARLY).all() and FIRST in newer.tiers.kinds
    for row in (best.rows[0], 599):  # a snapshot stays as it was
        assert np.array_equal(opened.rows([row])[0].text, newer.rows([row])[0].text)
    with Writer(tmp_path / "index") as writer:
        texts = [row.text for row in newer.rows([300])]
        writer.delete(["300"])
        writer.add(texts, encode, ids=["300"])
    while second.turn():
        pass
    with closing(Index.open(tmp_path / "index")) as done:
        assert done.facts.tier == {} and len(done) == 600
        _, same = whole
        assert np.allclose(done.vectors[:300], same[:300], atol=1e-6)
        assert np.allclose(done.vectors[600], same[300], atol=1e-6)


def test_scores_are_z_scores_of_each_kind(made, tmp_path):
    index, _ = made
    opened = index(tmp_path / "index", fast=True).index
    query, kept = opened.query_vectors(["a lamp"], open_index_model(opened)), opened.tiers
    (found,) = opened.find(["a lamp"], query, 600, Ranker(0.0))
    for row, score in zip(found.rows, found.scores, strict=True):
        expected = float(opened.vectors[row] @ query[0])
        if kept.kinds[row] == FIRST:
            own, base = kept.static @ query[0], kept.base @ query[0]
            expected = (expected - own.mean()) / own.std() * base.std() + base.mean()
        assert score == pytest.approx(expected, abs=1e-4)
    assert sorted(found.scores, reverse=True) == list(found.scores)


def test_an_unfinished_index_follows_its_documents(bert, tmp_path, sentences):
    folder, given = tmp_path / "notes", {"model": bert, "pooler": "mean"}
    folder.mkdir()
    for n in range(40):
        (folder / f"{n}.md").write_text(f"{sentences[n % len(sentences)]} Note {n}.\n")
    index_folder(folder, tmp_path / "index", fast=True, **given)
    (folder / "3.md").write_text("A note that was changed.\n")
    (folder / "7.md").unlink()
    outcome = sync_index(tmp_path / "index")
    assert (outcome.changed, outcome.deleted, outcome.rows) == (1, 1, 39)
    index_folder(folder, tmp_path / "whole", **given)
    with (
        closing(Index.open(tmp_path / "index")) as one,
        closing(Index.open(tmp_path / "whole")) as other,
    ):
        assert one.facts.tier == {}
        vectors = {row.id: other.vectors[row.row] for row in other.every()}
        for row in one.every():
            assert np.allclose(one.vectors[row.row], vectors[row.id], atol=1e-6)


def test_static_vectors_are_ridge_regressions(bert):
    from contrasent.model.opening import open_encoder

    encoder = open_encoder(bert, pooler="mean", light=True)
    texts = ["a map of the town", "the lamp is lit", "rain on the town", "a lamp", "a map"]
    wanted = encoder.encode(texts)
    model = StaticModel(encoder, texts, wanted)
    made = model([*texts, "snow", ""])
    assert made.shape == (7, encoder.dimension) and np.isfinite(made).all()
    # The same by stacked least squares, from counts made in a loop.
    tokens, _ = encoder.tokenise(texts)
    ids, special = sorted(set(tokens.ids.tolist())), encoder.tokenizer.specials.all
    count = np.array([[list(row).count(i) for i in ids] for row in tokens], float)
    rare = static.RARITY / (static.RARITY + count.sum(0) / count.sum())
    given = normalize(count * rare * [i not in special for i in ids])
    alone = model._alone(np.array(ids, np.int32))
    alone -= alone.mean(axis=0)
    wanted = normalize(wanted)

    def ridge(left, right, penalty):
        more = np.sqrt(penalty) * np.eye(left.shape[1])
        zeros = np.zeros((left.shape[1], right.shape[1]))
        return np.linalg.lstsq(np.vstack([left, more]), np.vstack([right, zeros]))[0]

    table = alone @ ridge(normalize(given @ alone), wanted, static.MAP_RIDGE)
    plain = given @ table
    missing = wanted * np.linalg.norm(plain, axis=1, keepdims=True) - plain
    table += ridge(given, missing, static.TOKEN_RIDGE)
    assert np.allclose(made[:5], normalize(given @ table), atol=1e-4)


def test_bad_input_is_a_line_and_loses_nothing(made, bert, tiny, tmp_path, lines, run):
    index, whole = made
    target, broken = tmp_path / "index", tmp_path / "broken"
    index(target, fast=True)
    for given, said in (
        ({"fast": True, "uri": "a.db"}, "--fast"),
        ({"fast": True, "metric": "dot"}, "--fast"),
        ({"max_tokens": 9}, "was begun with"),
    ):
        with pytest.raises(errors.UserError, match=said):
            index(target, **given)
    with pytest.raises(errors.UserError, match="cannot be compared"):  # another base
        index_folder(lines, target, model=tiny["roberta"], pooler="mean")
    for command in (["dedupe", target], ["adapt", target, "-o", tmp_path / "out"]):
        _, err = run(*command, code=2)
        assert "are not encoded yet" in err and len(err.splitlines()) == 1
    _, err = run("search", target, "a lamp")
    assert "600 of 600 rows are not encoded yet" in err
    assert "first tier: 600 rows are not encoded by the model yet" in run("doctor", target)[0]
    shutil.copytree(target, broken)
    since = broken / Index.open(broken).facts.tier["file"]
    data = bytearray(since.read_bytes())
    data[5] ^= 1
    since.write_bytes(data)
    for change in (lambda: None, lambda: since.write_bytes(data[:100]), since.unlink):
        change()
        with pytest.raises(errors.InputError, match="is damaged"):
            Index.open(broken)
    run("index", target, "--sync")
    assert_same(target, whole)


def test_a_server_goes_on_with_an_unfinished_index(made, tmp_path):
    from contrasent.serve.library import Library

    index, whole = made
    opened = index(tmp_path / "index", fast=True).index
    encode = open_index_model(opened)
    library = Library(opened, opened.model)
    library.search(library.newest(), ["a lamp"], encode(["a lamp"]), k=3)
    assert len(library.asked) == 1
    with library.encoding_on(encode):
        while len([*(tmp_path / "index").glob("vectors*")]) > 1:
            time.sleep(0.01)
    assert_same(tmp_path / "index", whole)
    assert not library.asked
    assert BASE > EARLY > FIRST
