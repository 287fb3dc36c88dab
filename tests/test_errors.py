"""Errors: one line that names the place, the value and the nearest valid one."""

import pytest

from contrasent import errors
from contrasent.errors import DataError, InputError, ModelError, OptionError, UserError, suggestion


def test_one_tree():
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert len(kinds) == 9
    assert all(issubclass(kind, UserError) for kind in kinds)
    assert all(kind.__base__ in (UserError, Exception) for kind in kinds)  # one level deep
    assert {DataError, ModelError, errors.OutputError, errors.TrainingError} < set(kinds)


def test_places():
    error = InputError("notes.csv", "a cell is blank", line=12)
    assert (str(error), error.path) == ("notes.csv:12: a cell is blank", "notes.csv")
    assert error.line == 12
    assert str(InputError("notes.csv", "empty")) == "notes.csv: empty"


def test_options_and_missing_extras():
    error = OptionError("--pooler", "maen", "no such pooler", choices=("mean", "max"))
    assert str(error) == "--pooler 'maen': no such pooler; did you mean 'mean'? (one of max, mean)"
    assert (error.option, error.value) == ("--pooler", "maen")
    assert str(OptionError("lr", -1.0, "must be positive")) == "lr -1.0: must be positive"
    error = errors.MissingExtraError("pyarrow", "parquet", "reading a parquet file")
    expected = "reading a parquet file needs the package pyarrow: pip install 'contrasent[parquet]'"
    assert str(error) == expected


@pytest.mark.parametrize(("value", "expected"), [
    ("heldot", "; did you mean 'heldout'? (one of heldout, none, stsb)"),
    ("zzzzzzz", "; one of heldout, none, stsb"), ("", "; one of heldout, none, stsb"),
])  # fmt: skip
def test_suggestions(value, expected):
    assert suggestion(value, ("stsb", "none", "heldout")) == expected
    assert suggestion(value, ()) == ""
