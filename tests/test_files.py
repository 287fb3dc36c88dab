"""Writing: whole or not at all, and an OutputError that names the target."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from commands import mounted
from contrasent import errors, files
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.tensors import write_checkpoint
from contrasent.errors import DataError, ModelError, OptionError, OutputError, UserError, suggestion
from contrasent.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    minus,
    recover_folder,
    remove_temporaries,
    write_json,
)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture(scope="session")
def full(tmp_path_factory):
    with mounted(tmp_path_factory.mktemp("full"), "size=64k") as folder:
        yield folder


@pytest.fixture(scope="session")
def read_only(tmp_path_factory):
    with mounted(tmp_path_factory.mktemp("read_only"), "ro") as folder:
        yield folder


def test_a_file_appears_whole(tmp_path):
    target = tmp_path / "deep" / "a.txt"
    with atomic_file(target) as stream:
        stream.write("nouveau – 新\n")
        stream.flush()
        assert not target.exists()
    assert target.read_bytes() == "nouveau – 新\n".encode()
    assert target.stat().st_mode & 0o777 == 0o644
    assert names(target.parent) == ["a.txt"]
    with atomic_file(target, "wb") as raw:
        raw.write(b"\x00\xff")
    assert target.read_bytes() == b"\x00\xff"


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be written to the disk there")
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_renamed_is_on_the_disk_and_so_is_its_name(tmp_path, monkeypatch, overwrite):
    """Content before the name, and the folder that holds the name after it."""
    seen, fsync = [], os.fsync

    def spy(handle):
        fsync(handle)
        seen.append((os.fstat(handle).st_ino, target.exists() and target.stat().st_ino))

    monkeypatch.setattr(os, "fsync", spy)
    target = tmp_path / "a.txt"
    if overwrite:
        target.write_text("old")
    with atomic_file(target) as stream:
        stream.write("new")
    own = target.stat().st_ino
    content, holder = seen
    assert content[0] == own != content[1]  # before it has the name
    assert holder == (tmp_path.stat().st_ino, own)  # after it
    seen.clear()
    target = tmp_path / "a folder"
    if overwrite:
        target.mkdir()
    with atomic_folder(target) as folder:
        (folder / "b.txt").write_text("new")
    own = target.stat().st_ino
    before = [inode for inode, named in seen if named != own]
    after = [inode for inode, named in seen if named == own]
    assert {own, (target / "b.txt").stat().st_ino} <= set(before)
    assert after == [tmp_path.stat().st_ino]


@pytest.mark.skipif(os.name == "nt", reason="rights are others there")
@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_who_may_read_is_as_the_umask_says(tmp_path, umask):
    before = os.umask(umask)
    try:
        with atomic_folder(tmp_path / "m") as folder:
            (folder / "sub").mkdir(0o700)
            (folder / "sub" / "a.txt").touch(0o600)
        write_json(tmp_path / "m" / "b.json", 1)
    finally:
        os.umask(before)
    for path in (tmp_path / "m", *(tmp_path / "m").rglob("*")):
        right = 0o777 if path.is_dir() else 0o666
        assert path.stat().st_mode & 0o777 == right & ~umask, path


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_what_fails_leaves_the_old_one(tmp_path, error):
    file, folder = tmp_path / "a.txt", tmp_path / "m"
    file.write_text("old")
    folder.mkdir()
    (folder / "old").write_text("1")
    raised = OutputError if error is OSError else error
    with pytest.raises(raised), atomic_file(file) as stream:
        stream.write("new")
        raise error("no")
    with pytest.raises(raised), atomic_folder(folder) as temporary:
        (temporary / "new").write_text("2")
        raise error("no")
    assert (file.read_text(), names(folder), names(tmp_path)) == ("old", ["old"], ["a.txt", "m"])


def test_a_folder_takes_the_place_of_the_old_one(tmp_path):
    target = tmp_path / "m"
    with atomic_folder(target) as folder:
        (folder / "old").write_text("1")
    with atomic_folder(target) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "new").write_text("2")
        (folder / "sub" / "new").chmod(0o600)
        assert names(target) == ["old"]
    assert names(target) == ["sub"]
    assert (target / "sub" / "new").stat().st_mode & 0o777 == 0o644
    assert (target / "sub").stat().st_mode & 0o777 == 0o755
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_folder_stays_one(tmp_path, there):
    (tmp_path / "disk").mkdir()
    (tmp_path / "m").symlink_to("disk/real")
    if there:
        (tmp_path / "disk" / "real").mkdir()
        (tmp_path / "disk" / "real" / "old").write_text("1")
    with atomic_folder(tmp_path / "m") as folder:
        (folder / "new").write_text("2")
    assert (tmp_path / "m").is_symlink() and names(tmp_path) == ["disk", "m"]
    assert names(tmp_path / "disk") == ["real"] and names(tmp_path / "disk" / "real") == ["new"]


def test_a_folder_does_not_replace_a_file(tmp_path):
    target = tmp_path / "notes"
    target.write_text("mine")
    with pytest.raises(OutputError, match="a file has that name"), atomic_folder(target):
        pass
    assert (target.read_text(), names(tmp_path)) == ("mine", ["notes"])


def test_a_second_rename_that_fails_is_undone(tmp_path, monkeypatch):
    target = tmp_path / "m"
    target.mkdir()
    (target / "old").write_text("1")
    rename = Path.rename

    def fail_into_place(self, other):
        if Path(other) == target and not self.name.endswith("-old"):
            raise OSError(5, "Input/output error")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", fail_into_place)
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    with pytest.raises(OutputError, match="Input/output error"), atomic_folder(target) as folder:
        (folder / "new").write_text("2")
    assert (names(target), names(tmp_path)) == (["old"], ["m"])


def test_a_kill_between_the_renames_is_recovered(tmp_path):
    aside, target = tmp_path / ".m.contrasent-old", tmp_path / "m"
    aside.mkdir()
    (aside / "old").write_text("1")
    recover_folder(target)
    assert (names(tmp_path), names(target)) == (["m"], ["old"])
    recover_folder(target)  # nothing to do
    # If the new one is in place already, it stays.
    aside.mkdir()
    recover_folder(target)
    assert names(target) == ["old"]
    with atomic_folder(target) as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path) == ["m"]


def test_hidden_files_of_others_are_no_leftovers(tmp_path):
    (tmp_path / ".env.template").write_text("mine")
    (tmp_path / ".env.old").write_text("mine")
    for name in ("env", "env[1]", "other"):
        (tmp_path / f".{name}.contrasent-0a1b2c3d").mkdir()
    recover_folder(tmp_path / "env")
    remove_temporaries(tmp_path, "env", "env[1]")
    with atomic_folder(tmp_path / "env"):
        pass
    assert names(tmp_path) == [".env.old", ".env.template", ".other.contrasent-0a1b2c3d", "env"]


def test_json_is_readable_and_in_order(tmp_path):
    write_json(tmp_path / "a.json", {"z": 1, "a": ["é", 0.1], "path": "caf\udce9"})
    text = (tmp_path / "a.json").read_text("utf-8")
    assert text.endswith("\n")
    assert "é" in text
    stored = [("z", 1), ("a", ["é", 0.1]), ("path", "caf\udce9")]
    assert list(json.loads(text).items()) == stored
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["z"] == 1


def test_writable_is_checked_before_work(tmp_path):
    check_writable(tmp_path / "new" / "er", 1000)
    assert names(tmp_path / "new" / "er") == []
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            OutputError, match=f"{target}: cannot write .*; choose another target, or ch"
        ):
            check_writable(target)
    free = shutil.disk_usage(tmp_path).free
    check_writable(tmp_path, free // 2)
    with pytest.raises(OutputError, match=r"MB are needed and \d+ MB are free") as caught:
        check_writable(tmp_path, 2 * free)
    needed, found = map(int, re.findall(r"(\d+) MB are", str(caught.value)))
    assert needed == round(2 * free / 1e6) and found == pytest.approx(free / 1e6, rel=0.1)


def test_a_full_disk_leaves_the_old_file(full):
    target = full / "a"
    write_json(target, "old")
    with pytest.raises(OutputError, match="No space left on device"), atomic_file(target) as stream:
        stream.write("x" * 200_000)
    with pytest.raises(OutputError, match="No space left"), atomic_folder(full / "m") as folder:
        (folder / "big").write_bytes(b"x" * 200_000)
    assert (names(full), json.loads(target.read_text())) == (["a"], "old")


def test_a_full_disk_while_tensors_are_written(full, bert):
    import torch

    encoder = TorchEncoder.load(bert, pooling="mean")
    with pytest.raises(OutputError, match=r"m: cannot write \(.*[Nn]o space left.*; free some"):
        encoder.save(full / "m")
    optimizer = torch.optim.AdamW(encoder.parameters())
    with pytest.raises(OutputError, match=r"c.safetensors: cannot write \(.*[Nn]o space left"):
        write_checkpoint(full / "c.safetensors", encoder, optimizer, {"step": 1})
    assert set(names(full)) <= {"a"}


def test_a_read_only_folder(read_only):
    for write in (check_writable, lambda target: write_json(target, 1)):
        with pytest.raises(OutputError, match=r"new: cannot write \(Read-only file system\)"):
            write(read_only / "new")
    with pytest.raises(OutputError, match="Read-only"), atomic_folder(read_only / "new"):
        pass


def test_one_tree():
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert len(kinds) == 9
    assert all(issubclass(kind, UserError) for kind in kinds)
    assert all(kind.__base__ in (UserError, Exception) for kind in kinds)  # one level deep
    assert {DataError, ModelError, errors.OutputError, errors.TrainingError} < set(kinds)


def test_options_and_missing_extras():
    error = OptionError("--pooling", "maen", "no such pooler", choices=("mean", "max"))
    assert str(error) == "--pooling 'maen': no such pooler; did you mean 'mean'? (one of max, mean)"
    assert (error.option, error.value) == ("--pooling", "maen")
    assert (
        str(OptionError("learning_rate", -1.0, "must be positive"))
        == "learning_rate -1.0: must be positive"
    )
    error = errors.MissingExtraError("pyarrow", "parquet", "reading a parquet file")
    expected = "reading a parquet file needs the package pyarrow: pip install 'contrasent[parquet]'"
    assert str(error) == expected


@pytest.mark.parametrize(("value", "expected"), [
    ("heldot", "; did you mean 'heldout'? (one of heldout, none, stsb)"),
    ("STSB", "; did you mean 'stsb'? (one of heldout, none, stsb)"),
    ("zzzzzzz", "; one of heldout, none, stsb"), ("", "; one of heldout, none, stsb"),
])  # fmt: skip
def test_suggestions(value, expected):
    assert suggestion(value, ("stsb", "none", "heldout")) == expected
    assert suggestion(value, ()) == ""


def test_only_numbers_get_a_minus_sign():
    assert minus("-0.01 [-0.02, +0.01]") == "\u22120.01 [\u22120.02, +0.01]"
    for text in ("-", "--budget 20m", "my-notes.csv", "all-MiniLM-L6-v2", "2026-11-23", "-k"):
        assert minus(text) == text
