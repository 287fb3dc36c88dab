"""``contrasent demo`` from installed packages to three answers, small."""

import json
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from contrasent.cli.demo import PARTS, QUESTIONS, demo
from contrasent.documents import docstrings

module = import_module("contrasent.cli.demo")
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


def test_it_searches_learns_and_answers(tmp_path, bert, packages, monkeypatch):
    from contrasent.encoder.encoder import Encoder
    from contrasent.search.index import Index

    Encoder.load(bert, pooler="mean", normalise=True).save(tmp_path / "base")
    sources = [((path.stem,), path) for path in sorted(packages.iterdir())]
    monkeypatch.setattr(docstrings, "installed_sources", lambda: sources)
    judged = []
    gains = module._gains
    monkeypatch.setattr(
        module,
        "_gains",
        lambda done, index, *rest: (
            judged.extend(row.text for row in index.every()) or gains(done, index, *rest)
        ),
    )
    arguments = ["--base", tmp_path / "base", "-o", tmp_path / "s"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    facts = json.loads(result.stdout)
    assert facts["documents"] > 120
    assert facts["queries"]["users"] == (facts["documents"] + 3) // 4
    held_out = facts["held_out"]
    assert held_out["queries"] == facts["documents"] // 2
    words, learning, together = (held_out[name]["value"] for name in PARTS)
    assert words + learning == pytest.approx(together)
    assert [one["question"] for one in facts["answers"]] == list(QUESTIONS)
    assert all(len(one["found"]) == 3 for one in facts["answers"])
    assert all(name.startswith("m") for name, _, _ in facts["answers"][0]["found"])
    # While they teach and judge, no summary is in what is searched: it would find itself.
    asked = json.loads((tmp_path / "s" / "queries.jsonl").read_text().splitlines()[0])
    assert len(judged) == facts["documents"]
    assert not any(asked["query"] in text for text in judged)

    def searched():
        return [row.text for row in Index.open(tmp_path / "s" / "index").every()]

    assert len(searched()) == 2 * facts["documents"]
    assert sum(text.endswith("\n" + asked["query"]) for text in searched()) == 1

    again = CliRunner().invoke(app, [*map(str, arguments), "--resume"], catch_exceptions=False)
    assert len(searched()) == len(judged) * 2  # those that are there are replaced
    lines = again.stdout.splitlines()
    assert f"{held_out['vectors']:.3f}" in again.stdout
    assert lines[0] == QUESTIONS[0]
    assert lines[-1] == f"see it in a browser: contrasent serve {tmp_path / 's'}"
    refused = CliRunner().invoke(app, [*map(str, arguments)])
    assert "--overwrite" in str(refused.exception)
