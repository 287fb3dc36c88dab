"""``contrasent demo`` from installed packages to three answers, small."""

import json

import pytest
import typer
from typer.testing import CliRunner

from contrasent.adapt import selection
from contrasent.cli.demo import QUESTIONS, demo
from contrasent.documents import docstrings

app = typer.Typer()
app.command("demo")(demo)


@pytest.fixture(scope="module")
def packages(tmp_path_factory, sentences):
    """Functions, each with a short summary and a longer explanation."""
    folder = tmp_path_factory.mktemp("site")
    long = [text for text in sentences if len(text.split()) > 8]
    short = [text for text in sentences if len(text.split()) <= 8]
    for n, (summary, explanation) in enumerate(zip(short, long, strict=False)):
        body = f"{summary}\n\n    {explanation}"
        text = f'def f{n}():\n    """{body}\n    """\n'
        (folder / f"m{n}.py").write_text(text)
    return folder


def test_it_learns_proves_saves_and_answers(tmp_path, bert, packages, monkeypatch):
    from contrasent.model.encoder import Encoder

    Encoder.load(bert, pooler="mean", normalise=True).save(tmp_path / "base")
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    monkeypatch.setattr(
        docstrings, "installed_sources", lambda: docstrings.sources_below([packages])
    )
    monkeypatch.setattr(selection, "MIN_PAIRS", 64)
    arguments = ["--base", tmp_path / "base", "-o", tmp_path / "m"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    facts = json.loads(result.stdout)
    documents = facts["reading"]["documents"]
    assert documents > 120
    kinds = facts["verdict"]["kinds"]
    assert 20 <= kinds["docstring"]["queries"] <= documents * 4 // 5  # the first fifth chose
    assert kinds["docstring"].keys() == {"before", "after", "queries", "difference"}
    assert any(one["candidate"]["name"] == "mapped, 1" for one in facts["trials"])
    assert [one["question"] for one in facts["answers"]] == list(QUESTIONS)
    assert all(len(one["found"]) == 3 for one in facts["answers"])
    assert all(name.startswith("m") for name, _, _ in facts["answers"][0]["found"])
    assert Encoder.load(tmp_path / "m").encode(["a text"]).shape[0] == 1

    again = CliRunner().invoke(app, [*map(str, arguments), "--resume"], catch_exceptions=False)
    lines = again.stdout.splitlines()
    assert lines[0] == QUESTIONS[0]
    assert lines[-1].startswith(f"{tmp_path / 'm'}: ")
    refused = CliRunner().invoke(app, [*map(str, arguments)])
    assert "--overwrite" in str(refused.exception)
