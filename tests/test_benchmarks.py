"""What the benchmarks on collections are asked: no option without an effect, and one line."""

import sys
from importlib import import_module

import pytest

MISSING = "there is no folder "


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("teaching", [], "the following arguments are required: COLLECTION"),
        ("teaching", ["scifact", "--seed", "1"], f"argument COLLECTION: {MISSING}"),
        ("confidence", ["scifact:1500"], f"argument COLLECTION: {MISSING}"),
        ("confidence", ["--seed=1"], "unrecognized arguments: --seed=1"),
        ("gain", ["scifact", "--seed", "1"], f"argument COLLECTION: {MISSING}"),
    ],
)
def test_what_cannot_be_measured_is_one_line(name, given, said, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, *given])
    with pytest.raises(SystemExit, match="2"):
        import_module(f"benchmarks.{name}").main()
    where = tmp_path / "ir" / "scifact" if said.endswith(MISSING) else ""
    assert capsys.readouterr().err.endswith(f"error: {said}{where}\n")
