"""``contrasent encode --engine`` and ``--shard`` on a tiny encoder."""

import json
import sys

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import invoke, printed, run
from contrasent.encoding import job
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError, UserError


@pytest.fixture(autouse=True)
def no_model_is_open():
    job.opened.cache_clear()


@pytest.fixture
def source(tmp_path, sentences):
    table = pa.table({"key": [f"k{n}" for n in range(60)], "body": sentences[:60]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=13)
    return tmp_path / "in.parquet"


def stored(folder):
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def test_the_vectors_are_the_models(tmp_path, bert, source, sentences):
    from contrasent.encoder.encoder import TorchEncoder

    columns = ("--text", "body", "--id", "key", "--shard-rows", "25", "--keep-text")
    said = printed(
        *("encode", bert, source, "-o", tmp_path / "v", "--engine", "local", *columns),
        *("--pooling", "mean", "--unit", "--dimensions", "8"),
    )
    wanted = TorchEncoder.load(bert, pooling="mean").encode(sentences[:60])[:, :8]
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    table = stored(tmp_path / "v")
    assert table.column("id").to_pylist() == [f"k{n}" for n in range(60)]
    assert table.column("text").to_pylist() == sentences[:60]
    assert np.array(table.column("vector").to_pylist()) == pytest.approx(wanted, abs=1e-5)
    assert (said["texts"], said["shards"], said["complete"]) == (60, 3, True)
    assert said["overhead_a_shard"] >= 0
    footer = json.loads(pq.read_metadata(tmp_path / "v" / "shard-000001.parquet")
                        .metadata[b"contrasent"])  # fmt: skip
    assert (footer["model"], footer["unit"], footer["dimensions"]) == (said["identity"], True, 8)


def test_rows_are_documents_unless_a_prompt_is_named(tmp_path, bert, source, sentences):
    """In shards and in a file alike."""
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.model.base import Prompts

    texts = {"query": "find: ", "document": "say: ", "other": "rhyme: "}
    encoder = TorchEncoder.load(bert, pooling="mean")
    encoder.prompts = Prompts(texts, "other")
    model = tmp_path / "prompted"
    encoder.save(model)
    for options, name in (((), "document"), (("--prompt", "query"), "query")):
        job.opened.cache_clear()
        folder = tmp_path / name
        command = ("encode", model, source, "-o", folder, "--engine", "local")
        run(*command, "--text", "body", *options)
        wanted = encoder.encode(sentences[:60], prompt=texts[name])
        found = np.array(stored(folder).column("vector").to_pylist())
        assert found == pytest.approx(wanted, abs=1e-5)
        run(*command[:3], "-o", tmp_path / f"{name}.npy", "--text", "body", *options)
        assert np.load(tmp_path / f"{name}.npy") == pytest.approx(wanted, abs=1e-5)
        assert manifest(folder)["facts"]["prompt"] == texts[name]


def test_a_stopped_overwrite_continues_without_it(tmp_path, bert, source, monkeypatch):
    command = ("encode", bert, source, "-o", tmp_path / "v", "--text", "body", "--pooling", "cls",
               "--shard-rows", "20")  # fmt: skip
    run(*command)
    make = job.Job.run

    def stopped(self, shard, advance):
        if shard:
            raise KeyboardInterrupt
        return make(self, shard, advance)

    with monkeypatch.context() as patch:
        patch.setattr(job.Job, "run", stopped)
        note = invoke(*command, "--overwrite").stderr
    assert "the same command without --overwrite continues" in note
    assert printed(*command)["encoded_shards"] == 2


def test_the_share_that_makes_the_last_shard_checks_them_all(tmp_path, bert, source):
    command = ("encode", bert, source, "-o", tmp_path / "v", "--text", "body", "--pooling", "cls",
               "--shard-rows", "7")  # fmt: skip
    for share, count, words in (
        ("2/2", 4, "5 shards are still missing"),
        ("1/2", 5, "complete: all 9 shards checked, 60 rows"),
    ):
        text = run(*command, "--shard", share)
        assert f"in {count} of 9 shards" in text and words in text
        assert manifest(tmp_path / "v")["complete"] == (share == "1/2")
    with pytest.raises(OutputError, match="started with different settings"):
        run(*command, "--engine", "local", "--unit")
    before = stored(tmp_path / "v")
    for again in (("--engine", "local"), ("--shard", "1/2")):
        said = printed(*command, *again)
        assert (said["encoded"], said["complete"]) == (0, True)
    assert stored(tmp_path / "v").equals(before)
    assert printed(*command, "--engine", "local", "--overwrite")["encoded"] == 60
    assert stored(tmp_path / "v").equals(before)
    (tmp_path / "v" / "shard-000003.parquet").write_bytes(b"damaged")
    with pytest.raises(
        InputError, match=r"shard-000003\.parquet: is not a complete file of vectors"
    ):
        run(*command, "--engine", "local")


def test_overwrite_deletes_nothing_before_all_that_is_named_is_there(tmp_path, bert, source):
    """Nor what is not part of the vectors."""
    command = ("encode", bert, source, "-o", tmp_path / "v", "--engine", "local", "--text", "body")
    command += ("--pooling", "cls", "--overwrite")
    run(*command)
    before = stored(tmp_path / "v")
    (tmp_path / "v" / "notes.md").write_text("from May\n")
    for error, changed in (
        (UserError, ("encode", "no-model", *command[2:])),
        (InputError, ("encode", bert, tmp_path / "none", *command[3:])),
        (OptionError, (*command, "--text", "none")),
        (OutputError, command),
    ):
        with pytest.raises(error):
            run(*changed)
        assert stored(tmp_path / "v").equals(before)
    assert (tmp_path / "v" / "notes.md").is_file()


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_urls_in_and_out(tmp_path, bert, source):
    system = fsspec.filesystem("memory")
    system.put_file(str(source), "/in/a.parquet")
    run("encode", bert, "memory://in/*.parquet", "-o", "memory://out", "--text", "body",
        "--pooling", "cls", "--dtype", "float16")  # fmt: skip
    run("encode", bert, source, "-o", tmp_path / "v", "--text", "body", "--engine", "local",
        "--pooling", "cls", "--dtype", "float16")  # fmt: skip
    with system.open("/out/shard-000000.parquet") as stream:
        there = pq.read_table(stream)
    assert there.equals(stored(tmp_path / "v"))
    assert there.schema.field("vector").type == pa.list_(pa.float16(), 32)
    for folder in ("/in", "/out"):
        system.rm(folder, recursive=True)


def test_a_bad_row_is_named_and_the_other_shards_stay(tmp_path, bert):
    lines = [json.dumps({"text": f"sentence {n}" if n != 12 else 12}) for n in range(20)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    command = ("encode", bert, tmp_path / "t.jsonl", "-o", tmp_path / "v", "--engine", "local",
               "--shard-rows", "5", "--pooling", "cls")  # fmt: skip
    with pytest.raises(UserError, match=r"t\.jsonl:13: .*contains 12"):
        run(*command)
    assert sorted(path.name for path in (tmp_path / "v").glob("*.parquet")) == [
        "shard-000000.parquet",
        "shard-000001.parquet",
    ]


@pytest.mark.parametrize(("options", "error", "words"), [
    (["--engine", "rya"], OptionError, "did you mean 'ray'"),
    (["--engine", "local", "--dtype", "int9"], OptionError, "did you mean 'int8'"),
    (["--shard", "4/3"], OptionError, "must be i/n"),
    (["--shard", "1/3", "--overwrite"], OptionError, "shards of other"),
    (["--engine", "local", "--worker-gpus", "1"], OptionError, "needs --engine ray"),
    (["--engine", "local", "--id", "none"], OptionError, "unknown column"),
    (["--engine", "local", "-o", "v.npy"], OptionError, "must be a folder"),
    (["--id", "key", "-o", "v.npy"], OptionError, "must be a folder: --engine.*--id"),
    (["--engine", "local", "-o", "full"], OutputError, "not a folder of vectors"),
    (["--engine", "local", "-o", "nothing://x/y"], InputError, "nothing"),
])  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path, bert, source, options, error, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    with pytest.raises(error, match=words):
        invoke("encode", bert, source, "-o", "v", "--text", "body", "--pooling", "cls", *options)
    assert not (tmp_path / "v").exists() and not (tmp_path / "v.npy").exists()


def test_what_is_not_installed_is_named(tmp_path, bert, source, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contrasent\[ray\]'"):
        run("encode", bert, source, "-o", tmp_path / "v", "--engine", "ray", "--text", "body")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match=r"s3fs: pip install 'contrasent\[cloud\]'"):
        run("encode", bert, source, "-o", "s3://bucket/v", "--text", "body")


def test_an_index_of_shards_is_that_of_a_stream(tmp_path, bert, source):
    from contrasent.search.index import Index

    columns = ("--column", "body", "--id", "key", "--pooling", "cls")
    run("index", source, "--model", bert, "-o", tmp_path / "one", *columns)
    run("encode", bert, source, "-o", tmp_path / "v", *columns, "--engine", "local", "--keep-text")
    run(
        *("index", tmp_path / "v", "--model", bert, "-o", tmp_path / "two"),
        *("--encoded", "--pooling", "cls"),
    )
    one, two = Index.open(tmp_path / "one"), Index.open(tmp_path / "two")
    assert np.array(two.vectors) == pytest.approx(np.array(one.vectors), abs=1e-6)
    assert list(two.every()) == list(one.every())
    assert [row.id for row in one.every()] == [f"k{n}" for n in range(60)]
    assert one.model == two.model
