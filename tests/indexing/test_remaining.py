"""An index that words search before all is encoded ends as one that was made whole."""

from contextlib import closing

import numpy as np
import pytest
from index_states import assert_same, logged, state

from commands import until
from contrasent import errors, index_folder, sync_index
from contrasent.indexing import remaining
from contrasent.indexing.changes import change_model
from contrasent.indexing.following import _Follower
from contrasent.indexing.models import open_index_model
from contrasent.indexing.remaining import RemainingRows
from contrasent.search.doctor import examine
from contrasent.search.index import Index
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
        return index_folder(lines, target, model=bert, pooling="mean", **given)

    whole = tmp_path_factory.mktemp("whole") / "index"
    index(whole)
    return index, state(whole)


@pytest.fixture
def long(monkeypatch):
    """As if encoding took long."""
    monkeypatch.setattr(remaining, "LONG", -1.0)


@pytest.fixture
def turns(monkeypatch):
    """What each turn of one block leaves."""
    left, turn = [], RemainingRows.turn
    monkeypatch.setattr(remaining, "KEEP_EVERY", 0.0)
    monkeypatch.setattr(RemainingRows, "turn", lambda *given: left.append(turn(*given)) or left[-1])
    return left


def stopped(make, *given, **how):
    """Make an index whose encoding is stopped before it begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remaining, "LONG", -1.0)
        patch.setattr(RemainingRows, "turn", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            make(*given, **how)


def test_what_was_searchable_at_once_ends_as_an_index_made_whole(made, long, tmp_path, turns):
    index, whole = made
    said = []
    index(tmp_path / "at once", log=said.append)
    assert ": BM25 search works now; 600 passages left to encode, about " in said[-1]
    assert_same(tmp_path / "at once", whole)
    stopped(index, tmp_path / "index")
    with closing(Index.open(tmp_path / "index")) as early:
        assert early.unfinished == len(early) == 600
        assert early.search("a map", encode=open_index_model(early))[0]
    assert [finding.good for finding in examine(tmp_path / "index")] == [True]
    turns.clear()
    assert len(index(tmp_path / "index").index) == 600
    assert turns == [344, 88, 0]
    assert logged(tmp_path / "index") == 0
    assert_same(tmp_path / "index", whole)


def test_ctrl_c_keeps_the_blocks_that_are_done(made, tmp_path):
    index, whole = made
    stopped(index, tmp_path / "index")
    with closing(Index.open(tmp_path / "index")) as early:
        encode, calls = open_index_model(early), []

    def interrupted(sentences):
        calls.append(len(sentences))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(sentences)

    with pytest.raises(KeyboardInterrupt):
        RemainingRows(tmp_path / "index", interrupted).turn()
    with closing(Index.open(tmp_path / "index")) as left:
        assert (left.unfinished, calls[0], left.bm25_only) == (344, 256, "BM25 only: 42 % encoded")
    sync_index(tmp_path / "index")
    assert_same(tmp_path / "index", whole)


def test_a_text_is_encoded_once_in_whatever_blocks_it_is(made, tmp_path, turns):
    index, whole = made
    stopped(index, tmp_path / "index")
    with closing(Index.open(tmp_path / "index")) as early:
        encode, texts = open_index_model(early), {row.text for row in early.every()}
    calls = []
    rest = RemainingRows(tmp_path / "index", lambda some: calls.extend(some) or encode(some))
    while rest.turn():
        pass
    beyond = {text for n, text in enumerate(calls) if text in calls[:n]}
    assert set(calls) == texts and not beyond
    assert_same(tmp_path / "index", whole)


def test_others_may_remove_rows_meanwhile(made, tmp_path, turns):
    index, (_, vectors) = made
    stopped(index, tmp_path / "index")
    with closing(Index.open(tmp_path / "index")) as early:
        encode = open_index_model(early)
    rest = RemainingRows(tmp_path / "index", encode)
    assert rest.turn() == 344
    with Writer(tmp_path / "index") as writer:  # 590 has the text of row 0
        writer.delete(["0", "300"])
    while rest.turn():
        pass
    with closing(Index.open(tmp_path / "index")) as done:
        kept = np.delete(np.arange(600), [0, 300])
        assert np.allclose(done.vectors[kept], vectors[kept], rtol=0, atol=1e-6)
        assert not done.facts.encoding and done.numbers().tolist() == kept.tolist()
    assert [finding.good for finding in examine(tmp_path / "index")] == [True]


def test_what_was_encoded_for_another_state_is_not_kept(made, tmp_path, turns):
    index, whole = made
    stopped(index, tmp_path / "index")
    with closing(Index.open(tmp_path / "index")) as early:
        encode = open_index_model(early)

    def overtaken(sentences):
        if not overtaking:
            overtaking.append(RemainingRows(tmp_path / "index", encode).turn())
        return encode(sentences)

    overtaking = []
    rest = RemainingRows(tmp_path / "index", overtaken)
    assert rest.turn() == 344 and overtaking == [344]
    while rest.turn():
        pass
    assert_same(tmp_path / "index", whole)


def test_an_unfinished_index_follows_its_documents(bert, tmp_path, sentences):
    folder, given = tmp_path / "notes", {"model": bert, "pooling": "mean"}
    folder.mkdir()
    for n in range(40):
        (folder / f"{n}.md").write_text(f"{sentences[n % len(sentences)]} Note {n}.\n")
    stopped(index_folder, folder, tmp_path / "index", **given)
    (folder / "3.md").write_text("A note that was changed.\n")
    (folder / "7.md").unlink()
    outcome = sync_index(tmp_path / "index")
    assert (outcome.changed, outcome.deleted, outcome.rows) == (1, 1, 39)
    index_folder(folder, tmp_path / "whole", **given)
    with (
        closing(Index.open(tmp_path / "index")) as one,
        closing(Index.open(tmp_path / "whole")) as other,
    ):
        assert one.facts.encoding == {}
        vectors = {row.id: other.vectors[row.row] for row in other.every()}
        for row in one.every():
            assert np.allclose(one.vectors[row.row], vectors[row.id], atol=1e-6)


def test_bad_input_is_a_line_and_loses_nothing(made, tiny, tmp_path, lines, run):
    index, whole = made
    target = tmp_path / "index"
    stopped(index, target)
    for other, name in (
        ({"max_seq_length": 9}, "--max-seq-length"),
        ({"metric": "dot", "gitignore": False}, "--no-ignore and --metric"),
    ):
        with pytest.raises(errors.OutputError, match=f"started with another {name};"):
            index(target, **other)
    with pytest.raises(errors.UserError, match="cannot be compared"):  # another base
        index_folder(lines, target, model=tiny["roberta"], pooling="mean")
    for command in (
        ["dedupe", target],
        ["adapt", target, "-o", tmp_path / "out"],
        ["search", target, "a lamp", "--vectors-only"],
    ):
        _, err = run(*command, code=2)
        assert "are not encoded yet" in err and len(err.splitlines()) == 1
    out, err = run("search", target, "a lamp")
    assert "BM25 only: 0 % encoded" in err and "· BM25 " in out
    assert "BM25 only: 600 rows are not encoded yet" in run("doctor", target)[0]
    run("index", target, "--sync")
    assert_same(target, whole)


def test_a_server_goes_on_with_an_unfinished_index(made, tmp_path, turns):
    from contrasent.serve.library import Library

    index, whole = made
    stopped(index, tmp_path / "index")
    opened = Index.open(tmp_path / "index")
    encode = open_index_model(opened)
    library = Library(opened, encode.encoder)
    assert library.newest.index.bm25_only == "BM25 only: 0 % encoded"
    assert library.search(library.newest, ["a lamp"], encode(["a lamp"]), k=3)[0]
    with library.followed(encode):
        until(lambda: 0 in turns)
    assert turns == [344, 88, 0]
    assert_same(tmp_path / "index", whole)


def test_a_server_encodes_on_when_the_disk_has_room_again(made, tmp_path, monkeypatch, turns):
    from contrasent.serve import library as library_

    index, whole = made
    stopped(index, tmp_path / "index")
    opened = Index.open(tmp_path / "index")
    encode, turn, full = open_index_model(opened), RemainingRows.turn, [True]

    def failing(rest):
        if full and full.pop():
            raise errors.OutputError("cannot write (database or disk is full)")
        return turn(rest)

    monkeypatch.setattr(RemainingRows, "turn", failing)
    monkeypatch.setattr(library_, "LOOK_EVERY", 0.01)
    with library_.Library(opened, encode.encoder).followed(encode):
        until(lambda: 0 in turns)
    assert_same(tmp_path / "index", whole)


def test_an_index_of_another_model_is_not_encoded_on(made, bert, lines, tmp_path, turns):
    """It may have been replaced since encoding began, by one whose vectors are as long."""
    index, _ = made
    stopped(index, tmp_path / "index")
    with closing(Index.open(tmp_path / "index")) as early:
        rest = RemainingRows(tmp_path / "index", open_index_model(early))
    assert rest.turn()
    how = {"model": bert, "pooling": "cls", "overwrite": True}
    stopped(index_folder, lines, tmp_path / "index", **how)
    with pytest.raises(errors.ModelError, match="cannot be compared"):
        rest.turn()
    with closing(Index.open(tmp_path / "index")) as new:
        assert new.unfinished == 600


def test_a_watch_takes_up_the_new_model_of_its_index(bert, tmp_path):
    """It had opened the one before, which another process replaced meanwhile."""
    notes, index = tmp_path / "notes", tmp_path / "index"
    notes.mkdir()
    (notes / "a.md").write_text("The ferry leaves at noon.\n")
    index_folder(notes, index, model=bert, pooling="mean")
    follower = _Follower(index, None, 64)
    for pooling in ("mean", "cls"):
        change_model(index, bert, pooling=pooling)
        (notes / "a.md").write_text(f"The kettle is on the stove, {pooling}.\n")
        assert follower.sync().changed == 1


def test_a_server_says_which_searches_need_all_vectors(made, tmp_path):
    from contrasent.serve.guard import ApiError
    from contrasent.serve.library import Library

    index, _ = made
    stopped(index, tmp_path / "index")
    opened = Index.open(tmp_path / "index")
    encode = open_index_model(opened)
    for weight, how in ((None, {"threshold": 1.0}), (0.0, {})):
        library = Library(opened, encode.encoder, bm25_weight=weight)
        with pytest.raises(ApiError, match="BM25 only: 0 % encoded; a threshold") as found:
            library.search(library.newest, ["a lamp"], encode(["a lamp"]), k=3, **how)
        assert found.value.code == "not_encoded"
