"""Shards that know nothing of one another: exact rows, once each, however often they are begun."""

import json
import multiprocessing
from dataclasses import replace

import numpy as np
import openers
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openers import Numbers, made, run, vectors

from commands import until
from contrasent.encoding import job as jobs
from contrasent.encoding.engines import Local
from contrasent.encoding.inputs import Folder
from contrasent.encoding.job import begin, chosen_shards, gather, read_begun
from contrasent.encoding.shards import read_facts
from contrasent.errors import InputError, OptionError, OutputError, UserError

TEXTS = [f"text {number * number % 397}" for number in range(250)]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return str(tmp_path / "texts.txt")


@pytest.fixture(autouse=True)
def no_model_is_open():
    jobs.opened.cache_clear()


def stored(folder):
    """All columns of all shards, in the order of their names."""
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_rows_are_exact_and_the_folder_says_what_it_is(tmp_path, source):
    job = made(source, tmp_path / "v")
    assert run(job) == list(range(13))
    manifest = gather(job.output)
    rows = stored(tmp_path / "v")
    assert [row["id"] for row in rows] == [str(n) for n in range(250)]
    assert [row["text"] for row in rows] == TEXTS
    assert np.array_equal([row["vector"] for row in rows], vectors(TEXTS))
    assert manifest.complete
    assert manifest == read_begun(Folder(str(tmp_path / "v")))
    assert [shard["rows"] for shard in manifest.shards] == [20] * 12 + [10]
    with (tmp_path / "v" / "shard-000012.parquet").open("rb") as stream:
        footer, count = read_facts(stream, "shard 12")
    assert (footer["model"], footer["shard"], footer["of"], count) == ("numbers", 12, 13, 10)
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == sorted(
        ["manifest.json", *(shard["name"] for shard in manifest.shards)]
    )


def test_what_is_there_is_found_by_one_listing_and_not_made_again(tmp_path, source):
    job = made(source, tmp_path / "v")
    run(job)
    for name in ("shard-000003.parquet", "shard-000011.parquet"):
        (tmp_path / "v" / name).unlink()
    (tmp_path / "v" / ".shard-000003.parquet.abcdefgh").write_bytes(b"half")
    before = {path: path.read_bytes() for path in (tmp_path / "v").glob("*.parquet")}
    for path in before:
        path.write_bytes(b"")  # so that nobody can read it
    assert run(job) == [3, 11]
    for path, content in before.items():
        assert not path.stat().st_size
        path.write_bytes(content)
    gather(job.output)
    assert np.array_equal([row["vector"] for row in stored(tmp_path / "v")], vectors(TEXTS))


def test_jobs_that_begin_at_the_same_time_are_of_one_folder(tmp_path, source, monkeypatch):
    job, read = made(source, tmp_path / "v"), Folder.read

    def begin_meanwhile(folder, name):
        found = read(folder, name)
        monkeypatch.setattr(Folder, "read", read)
        assert begin(job) == list(range(13))
        return found

    monkeypatch.setattr(Folder, "read", begin_meanwhile)
    assert begin(job) == list(range(13))


def test_shares_of_machines_are_all_shards_once(tmp_path, source):
    made_by = [run(made(source, tmp_path / "v"), share=f"{n}/4") for n in (3, 1, 4)]
    with pytest.raises(InputError, match=r"3 of 13 shards are missing \(1, 5, 9\)"):
        gather(str(tmp_path / "v"))
    made_by.append(run(made(source, tmp_path / "v"), share="2/4"))
    assert sorted(n for numbers in made_by for n in numbers) == list(range(13))
    for wrong in ("0/4", "5/4", "3", "a/b", "3/", "-1/4"):
        with pytest.raises(OptionError, match="i/n"):
            chosen_shards(wrong, [1, 2])


def test_other_models_inputs_and_settings_are_refused(tmp_path, source):
    run(made(source, tmp_path / "v"))
    for changes, words in (
        ({"prompt": "query: "}, "prompt"),
        ({"dtype": "int8"}, "dtype"),
        ({"size": 21}, "rows_a_shard"),
        ({"opener": Numbers(identity="another")}, "model"),
    ):
        with pytest.raises(OutputError, match=rf"different settings \({words}\)"):
            run(made(source, tmp_path / "v", **changes))
    other = made(source, tmp_path / "w", Numbers(identity="another"))
    run(other)
    shard = tmp_path / "v" / "shard-000002.parquet"
    shard.write_bytes((tmp_path / "w" / shard.name).read_bytes())
    with pytest.raises(InputError, match=r"shard-000002.parquet: is of another model"):
        gather(str(tmp_path / "v"))
    shard.write_bytes((tmp_path / "v" / "shard-000001.parquet").read_bytes())
    with pytest.raises(InputError, match=r"shard-000002.parquet: is of different input"):
        gather(str(tmp_path / "v"))
    shard.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a complete file of vectors"):
        gather(str(tmp_path / "v"))
    manifest = tmp_path / "w" / "manifest.json"
    whole = json.loads(manifest.read_text())
    for key, value in (("inputs", [["a", "b"]]), ("inputs", 3), ("rows_a_shard", "x"),
                       ("rows_a_shard", 0), ("inputs", [["a", 1, "", -5]])):  # fmt: skip
        manifest.write_text(json.dumps(whole | {"facts": whole["facts"] | {key: value}}))
        with pytest.raises(InputError, match="damaged manifest"):
            gather(str(tmp_path / "w"))
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "precious").touch()
    with pytest.raises(OutputError, match="not a folder of vectors"):
        run(made(source, tmp_path / "u"))
    with pytest.raises(InputError, match="manifest missing"):
        gather(str(tmp_path / "u"))


@pytest.mark.parametrize("number", [2, 12])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_shard_with_too_few_or_too_many_rows_is_named(tmp_path, source, number, change):
    run(made(source, tmp_path / "v"))
    path = tmp_path / "v" / f"shard-{number:06d}.parquet"
    whole = pq.read_table(path)
    rows = len(whole) + change
    more = pa.concat_tables([whole, whole])[:rows]
    pq.write_table(more.replace_schema_metadata(pq.read_metadata(path).metadata), path)
    with pytest.raises(InputError, match=f"{path.name}: has {rows} rows, not {rows - change}; rem"):
        gather(str(tmp_path / "v"))
    assert not read_begun(Folder(str(tmp_path / "v"))).complete


def test_a_worker_with_another_model_makes_nothing(tmp_path, source):
    job = replace(made(source, tmp_path / "v"), settings={"model": "as it should be"})
    begin(job)
    done = job.run(0, lambda rows: None)
    assert "a different model under that name" in done.problem
    assert not list((tmp_path / "v").glob("shard*"))


@pytest.mark.slow
def test_a_process_that_dies_costs_its_shard_once(tmp_path, source, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", openers.__file__.rpartition("/")[0], prepend=":")
    job = made(source, tmp_path / "v", Numbers(TEXTS[125], "kill", str(tmp_path)), size=60)
    run(job, Local(2))
    assert (tmp_path / "happened").exists()
    gather(job.output)
    assert [row["text"] for row in stored(tmp_path / "v")] == TEXTS
    assert np.array_equal([row["vector"] for row in stored(tmp_path / "v")], vectors(TEXTS))


@pytest.mark.slow
def test_a_process_that_always_dies_ends_the_run_with_the_reason(tmp_path, source, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", openers.__file__.rpartition("/")[0], prepend=":")
    job = made(source, tmp_path / "v", Numbers(TEXTS[125], "always", str(tmp_path)), size=125)
    begin(job)
    with pytest.raises(UserError, match=r"a worker died 4 times \(out of memory\?\)"):
        list(Local(2).run(job, [0, 1], lambda rows: None))


@pytest.mark.slow
def test_workers_end_with_the_run_and_leave_no_part_of_a_shard(tmp_path, source, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", openers.__file__.rpartition("/")[0], prepend=":")
    job = made(source, tmp_path / "v", Numbers(home=str(tmp_path), hold=True), size=50)
    done = Local(2).run(job, begin(job), lambda rows: None)
    next(done)
    try:
        until(lambda: list((tmp_path / "v").glob(".shard*")))  # the fifth waits
        done.close()
        assert not multiprocessing.active_children()
        assert not list((tmp_path / "v").glob(".shard*"))
    finally:
        (tmp_path / "go").touch()
