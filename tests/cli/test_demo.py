"""``contrasent demo`` from installed packages to three answers, small."""

import json
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from contrasent.cli.demo import LEARNER, PARTS, QUESTIONS, demo
from contrasent.documents import docstrings
from contrasent.model.pretrained import SMALL

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


@pytest.fixture
def sources(packages, monkeypatch):
    """These are all that is installed."""
    found = [((path.stem,), path) for path in sorted(packages.iterdir())]
    monkeypatch.setattr(docstrings, "installed_sources", lambda: found)
    return found


@pytest.mark.slow
def test_it_searches_learns_and_answers(tmp_path, bert, sources, monkeypatch):
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.search.index import Index

    TorchEncoder.load(bert, pooling="mean", normalize=True).save(tmp_path / "base")
    judged = []
    gains = module._gains
    monkeypatch.setattr(
        module,
        "_gains",
        lambda done, index, *rest: (
            judged.extend(row.text for row in index.every()) or gains(done, index, *rest)
        ),
    )
    arguments = ["--only", "search", "--model", tmp_path / "base", "-o", tmp_path / "d"]
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
    asked = json.loads((tmp_path / "d" / "search" / "queries.jsonl").read_text().splitlines()[0])
    assert len(judged) == facts["documents"]
    assert not any(asked["query"] in text for text in judged)

    def searched():
        return [row.text for row in Index.open(tmp_path / "d" / "search" / "index").every()]

    assert len(searched()) == 2 * facts["documents"]
    assert sum(text.endswith("\n" + asked["query"]) for text in searched()) == 1

    again = CliRunner().invoke(app, [*map(str, arguments), "--resume"], catch_exceptions=False)
    assert len(searched()) == len(judged) * 2  # those that are there are replaced
    lines = again.stdout.splitlines()
    assert f"{held_out['vectors']:.3f}" in again.stdout
    assert lines[0] == QUESTIONS[0]
    assert lines[-1] == f"in a browser: contrasent serve {tmp_path / 'd' / 'search'}"
    refused = CliRunner().invoke(app, [*map(str, arguments)])
    assert "--overwrite" in str(refused.exception)


def test_the_model_that_learns_is_the_installed_one():
    assert LEARNER == SMALL


def test_it_learns_by_a_method_and_draws_the_curve(tmp_path, bert, sources, monkeypatch):
    from contrasent.train import demo as lessons

    quick = {"max_steps": 2, "eval_steps": 2, "batch_size": 4}
    monkeypatch.setattr(lessons, "STEPS", {n: s | quick for n, s in lessons.STEPS.items()})
    trained, fit = [], lessons.fit

    def seen(method, corpus, settings, **options):
        trained.append((method, list(corpus), options["base"]))
        return fit(method, corpus, settings, **options)

    monkeypatch.setattr(lessons, "fit", seen)
    summaries = [text for text, _ in docstrings.InstalledDocumentation(sources, 2000).summaries]
    for n in range(0, len(summaries), 8):  # explanations that repeat the summaries of others
        path, text = tmp_path / f"repeats{n}.py", " ".join(summaries[n : n + 8])
        path.write_text(f'"""Here stand summaries from {n} on.\n\n{text}"""\n')
        sources.append(((path.stem,), path))
    place = tmp_path / "d" / "learned"
    arguments = ["--only", "learn", "--base", bert, "-o", tmp_path / "d", "--objective", "esimcse"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    alone, pairs = json.loads(result.stdout)["learned"]
    assert [step for step, _ in pairs["history"]] == [0, 2]
    (first, lines, base), (second, taught, start) = trained
    assert (first, second, base) == ("esimcse", "simcse_supervised", str(bert))
    # The second begins from what the first left, which is the base where no gain was proven.
    assert start == str(place / "sentences")
    expected = alone["score"] if alone["kept"] else alone["base_score"]
    assert pairs["base_score"] == pytest.approx(expected, abs=1e-6)
    # Summaries that judge are in neither corpus, nor are their explanations among the pairs.
    source = docstrings.InstalledDocumentation(sources, 2000)
    judged = dict((name, text) for text, name in source.summaries[:: lessons.HELD_OUT_SHARE])
    explained = {one.id: one.sections[0].paragraphs[0] for one in source}
    assert set(judged.values()).isdisjoint([*lines, *(text for text, _ in taught)])
    assert len(set(lines) & set(summaries)) > len(judged)  # others are there
    assert {explained[name] for name in judged}.isdisjoint(text for _, text in taught)
    page = (place / "learning.html").read_text("utf-8")
    assert page.count("<svg") == 3  # alignment and uniformity, map, curve
    assert "simcse_supervised" in page and ": Adaptation" not in page
    monkeypatch.setattr(lessons, "_page", lambda *_: "")  # drawing takes longer than the rest
    again = CliRunner().invoke(app, [*map(str, arguments), "--resume"], catch_exceptions=False)
    words = again.stdout.splitlines()
    scores = (alone["base_score"], alone["score"], pairs["score"])
    assert [f"{x:.3f}" in line for x, line in zip(scores, words[1:], strict=False)] == [True] * 3
    assert words[-1] == f"curve, map and examples: {place / 'learning.html'}"


@pytest.mark.parametrize("kept", [0, 2])
def test_a_lesson_that_is_not_proven_is_said_not_to_be_kept(kept, tmp_path):
    from contrasent.train.demo import Lesson, table
    from contrasent.train.run import Gain, Run

    gain = Gain(-0.02, -0.03, -0.01, 50) if not kept else Gain(0.1, 0.05, 0.15, 50)
    run = Run(
        folder=tmp_path, steps=2, seconds=1.0, sentences_per_second=1.0, score=0.25, best_step=2,
        base_score=0.2, kept=kept, gain=gain,
    )  # fmt: skip
    start, line, *why = table([Lesson("simcse, 9 sentences", run)], "a-base")[1:]
    assert start.split() == ["a-base", "(base)", "0.200", "starting", "point"]
    assert ("-0.020  [-0.030, -0.010]  worse; discarded" in line) is (not kept) is bool(why)
    assert line.endswith("improved; saved") is bool(kept)
