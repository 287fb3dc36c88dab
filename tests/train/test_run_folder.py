"""A run's folder: what it rejects to touch, its log, and what a kill leaves behind."""

import json
import os
from pathlib import Path

import pytest

from contrasent.encoder.tensors import read_checkpoint
from contrasent.errors import ModelError, OutputError
from contrasent.text.corpus import open_corpus
from contrasent.train.plan import make_plan
from contrasent.train.run import HELD_OUT, SHARES, TERMS, Run, RunFolder, curves

STATED = {"settings": {"learning_rate": 1e-3, "batch_size": 8}, "corpus": {"sha256": "ab"}}
STATED |= {"processes": 1}
ASK = {"resume": False, "overwrite": False, "needed": 0}


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def opened(folder, stated=STATED, **options):
    return RunFolder(folder).open(stated, **(ASK | options))


def test_an_empty_or_new_folder_is_taken(tmp_path):
    assert opened(tmp_path / "a" / "new") is False
    (tmp_path / "b").mkdir()
    assert opened(tmp_path / "b") is False
    assert json.loads((tmp_path / "b" / "run" / "settings.json").read_text()) == STATED


@pytest.mark.parametrize("options", [{}, {"resume": True}])
def test_a_run_that_ended_before_its_first_step_is_no_obstacle(tmp_path, options):
    """A blank cell in row 900,000 is mended and the command given again."""
    run = tmp_path / "m" / "run"
    run.mkdir(parents=True)
    (run / ".settings.json.contrasent-1").write_text("{")
    assert opened(tmp_path / "m", **options) is False
    (run / "tokens").mkdir()
    other = STATED | {"corpus": {"sha256": "cd"}}
    assert opened(tmp_path / "m", other, **options) is False
    assert json.loads((run / "settings.json").read_text()) == other
    (run / "log.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(OutputError):
        opened(tmp_path / "m", **options)


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
def test_a_folder_of_other_things_is_never_touched(tmp_path, options):
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    with pytest.raises(OutputError, match="contains 'run'") as caught:
        opened(tmp_path, **options)
    assert "choose another" in str(caught.value)
    assert names(tmp_path) == ["run", "thesis.txt"]
    assert names(tmp_path / "run") == ["notes"]


def test_a_model_that_is_no_run_is_not_resumed_into(tmp_path):
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(OutputError, match=r"contains 'modules.json' and no run to resume"):
        opened(tmp_path, resume=True)
    with pytest.raises(OutputError, match=r"contains 'modules.json'; for a model, --overwrite"):
        opened(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    said = r"files that are not part of a model, such as 'notes.txt'"
    with pytest.raises(OutputError, match=said):
        opened(tmp_path, overwrite=True)
    (tmp_path / "notes.txt").unlink()
    assert opened(tmp_path, overwrite=True) is False
    assert names(tmp_path) == ["run"]


def test_a_run_is_resumed_or_overwritten(tmp_path):
    opened(tmp_path)
    place = RunFolder(tmp_path)
    place.write_log({"step": 1})
    assert opened(tmp_path, resume=True) is False  # no checkpoint yet
    place.checkpoint.write_bytes(b"x")
    assert opened(tmp_path, resume=True) is True
    # Resuming is the safe one of the two.
    assert opened(tmp_path, resume=True, overwrite=True) is True
    with pytest.raises(OutputError, match="already contains a run; --resume continues it"):
        opened(tmp_path)
    assert opened(tmp_path, overwrite=True) is False
    assert names(tmp_path / "run") == [".lock", "settings.json"]


@pytest.mark.parametrize(("change", "message"), [
    ({"settings": {"learning_rate": 2e-3, "batch_size": 8}},
     "the run there has learning_rate 0.001, now it is 0.002"),
    ({"settings": {"learning_rate": 1e-3}}, "has batch_size 8, now it is None"),
    ({"processes": 2}, "has processes 1, now it is 2; use the same, or --overwrite"),
    ({"new": 1}, "has new None, now it is 1"),
])  # fmt: skip
def test_other_settings_are_rejected_by_name(tmp_path, change, message):
    opened(tmp_path)
    RunFolder(tmp_path).write_log({"step": 1})
    with pytest.raises(OutputError, match=message):
        opened(tmp_path, STATED | change, resume=True)


@pytest.mark.parametrize("group", ["settings", "objective"])
def test_a_parameter_with_the_name_of_a_setting_is_compared_too(tmp_path, group):
    stated = STATED | {"objective": {"name": "own.py", "batch_size": 8}}
    opened(tmp_path, stated)
    RunFolder(tmp_path).write_log({"step": 1})
    with pytest.raises(OutputError, match="the run there has batch_size 8, now it is 9"):
        opened(tmp_path, stated | {group: stated[group] | {"batch_size": 9}}, resume=True)


def test_another_evaluation_is_rejected(bert, tmp_path):
    def stated(evaluate, rows=4):
        (tmp_path / "pairs.tsv").write_text("a\tb\tscore\n" + "a boat\ta ship\t3\n" * rows)
        return make_plan(corpus, {}, method="simcse", base=bert, evaluate=evaluate).config({}, 1)

    file, corpus = str(tmp_path / "pairs.tsv"), open_corpus([f"a boat {i}" for i in range(9)])
    first = stated(file)
    opened(tmp_path / "m", first)
    place = RunFolder(tmp_path / "m")
    place.checkpoint.write_bytes(b"x")
    assert opened(tmp_path / "m", stated(file), resume=True) is True
    for other in (stated(file, 5), stated(lambda encode: None)):
        with pytest.raises(OutputError, match=r"has evaluation 'sha256 .*', now it is '"):
            opened(tmp_path / "m", other, resume=True)


def test_the_same_text_in_another_file_is_the_same_corpus(tmp_path):
    """So that a copied folder of results can be gone on with."""
    opened(tmp_path, STATED | {"corpus": {"source": "/old/corpus.txt", "sha256": "ab"}})
    RunFolder(tmp_path).checkpoint.write_bytes(b"x")
    stated = STATED | {"corpus": {"source": "/new/corpus.txt", "sha256": "ab"}}
    assert opened(tmp_path, stated, resume=True) is True
    changed = STATED | {"corpus": {"source": "/old/corpus.txt", "sha256": "cd"}}
    said = r"a different text, '/old/corpus\.txt', than '/old/corpus"
    with pytest.raises(OutputError, match=said):
        opened(tmp_path, changed, resume=True)


def test_no_room(tmp_path):
    with pytest.raises(OutputError, match=r"are needed and .* MB are free"):
        opened(tmp_path / "m", needed=10**18)


def test_what_a_kill_left_is_swept(tmp_path):
    opened(tmp_path)
    RunFolder(tmp_path).write_log({"step": 1})
    run = tmp_path / "run"
    for name in (".checkpoint.safetensors.contrasent-1", ".log.jsonl.contrasent-2", ".mine"):
        (run / name).write_text("")
    for name in (".best-8.contrasent-3", ".tokens.contrasent-4"):
        (run / name).mkdir()
        (run / name / "model.safetensors").write_text("half")
    opened(tmp_path, resume=True)
    assert names(run) == [".lock", ".mine", "log.jsonl", "settings.json"]


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
def test_a_second_run_says_who_holds_the_folder(tmp_path, options):
    place = RunFolder(tmp_path)
    place.open(STATED, **ASK)
    before = names(place.home)
    with pytest.raises(OutputError, match=rf"process {os.getpid()} on .+ is training into this"):
        opened(tmp_path, STATED | {"processes": 2}, **options)
    assert names(place.home) == before and json.loads(place.settings.read_text()) == STATED
    place.close()
    opened(tmp_path, **options)


def test_the_log_is_cut(tmp_path):
    place = RunFolder(tmp_path)
    opened(tmp_path)
    place.cut_log(5)  # there is none
    for step in (0, 1, 5, 6, 10):
        place.write_log({"step": step})
    with place.log.open("a") as stream:
        stream.write('{"step": 1')  # a kill in the middle of a line
    place.cut_log(5)
    assert place.log.read_text() == '{"step": 0}\n{"step": 1}\n{"step": 5}\n'
    place.cut_log(-1)
    assert place.log.read_text() == ""


def made(folder, text):
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling" / "config.json").write_text(text)
    (folder / "model.safetensors").write_text(text)
    (folder / "modules.json").write_text(text)


def test_a_run_is_a_table_of_html(tmp_path):
    run = Run(
        **{"folder": tmp_path / "<m>", "steps": 10, "seconds": 1.25, "sentences_per_second": 5.0},
        **{"score": 0.5, "best_step": 8, "base_score": 0.25, "metric": "mrr@10", "improved": True},
    )
    made = run._repr_html_()
    assert made.startswith("<table><tr><th></th><th>run</th></tr><tr><td>folder</td>")
    assert "&lt;m&gt;" in made and "<td>improved</td><td>True</td>" in made
    assert made.endswith(
        "<td>base</td><td>0.250</td></tr><tr><td>mrr@10</td><td>0.500 (step 8)</td></tr></table>"
    )


def test_publishing_can_be_repeated(tmp_path):
    place = RunFolder(tmp_path / "m")
    opened(tmp_path / "m")
    run = Run(
        **{"folder": tmp_path / "m", "steps": 10, "seconds": 1.0, "sentences_per_second": 5.0},
        **{"score": 0.5, "best_step": 8, "history": [(0, 0.1), (8, 0.5)]},
    )
    made(place.last, "last")
    place.publish(run)
    assert (tmp_path / "m" / "model.safetensors").read_text() == "last"
    made(place.best, "best")
    (tmp_path / "m" / ".1_Pooling.new").mkdir()  # left by a kill
    place.publish(run)
    for name in ("model.safetensors", "modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "m" / name).read_text() == "best"
    assert names(tmp_path / "m") == ["1_Pooling", "model.safetensors", "modules.json", "run"]
    assert place.finished() == run
    stored = json.loads(place.result.read_text())
    place.result.write_text(json.dumps(stored | {"of a newer version": 1}))
    assert place.finished() == run
    assert RunFolder(tmp_path / "other").finished() is None


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"\x10" * 64])
def test_a_damaged_checkpoint(tmp_path, content):
    path = tmp_path / "c.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"c.safetensors: not a readable checkpoint"):
        read_checkpoint(path)
    with pytest.raises(ModelError, match="not a readable checkpoint"):
        read_checkpoint(Path(tmp_path / "absent"))


def test_curves_are_the_numbers_of_the_log():
    row = {"task": "t", "metric": "m", "value": 0.5, "low": None, "high": 0.7}
    drift = {"neighbor_overlap": 0.9, "measured_at": 0}
    terms = {"loss": 3.0, "shares": {"contrast": 1.0}, "cosine_positive": 0.8}
    found = curves([
        {"step": 1, **terms, **drift}, {"step": 2, "loss": 2.0, "evaluation": [row], **drift},
    ])  # fmt: skip
    assert found == {
        TERMS: {"loss": [(1, 3.0, 3.0, 3.0), (2, 2.0, 2.0, 2.0)]},
        HELD_OUT: {"t m": [(2, 0.5, 0.5, 0.7)]},
        "neighbor overlap": {"neighbor_overlap": [(0, 0.9, 0.9, 0.9)]},
        SHARES: {"contrast": [(1, 1.0, 1.0, 1.0)]},
        "cosines": {"cosine_positive": [(1, 0.8, 0.8, 0.8)]},
    }
    assert [*found][:3] == [TERMS, HELD_OUT, "neighbor overlap"]
    long = curves([{"step": n, "loss": 1.0} for n in range(801)])[TERMS]["loss"]
    assert [point[0] for point in long] == [*range(0, 801, 3)]
