"""``contrasent demo``: contrastive learning and search, on text that every machine has."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contrasent.cli import options
from contrasent.cli.adapt import DEFAULT_BASE, Resume, carry_out, summary
from contrasent.errors import import_extra

if TYPE_CHECKING:
    from contrasent.adapt.run import Adaptation
    from contrasent.documents.docstrings import InstalledDocumentation
    from contrasent.search.index import Index
    from contrasent.types import EncodeFn

LEARNER = "contrasent-small"  # by name: what resolves it needs numpy, which --help does without

QUESTIONS = (
    "how do I make a temporary directory that is removed afterwards?",
    "how do I run a command and read what it prints?",
    "how do I read a configuration file with sections?",
)


EVERY = 4  # one in this many summaries is a query to learn from; every second one is held out


@options.command
def demo(
    output: Annotated[Path, typer.Option("--output", "-o")] = Path("demo"),
    only: Annotated[Literal["learn", "search"] | None, typer.Option()] = None,
    base: str = LEARNER,
    objective: str = "simcse",
    model: str = DEFAULT_BASE,
    names: Annotated[int, typer.Option(min=200)] = 2000,
    budget: str = "2m",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    resume: Resume = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Train a model, and search, on the documentation of the installed packages.

    Documentation strings are read as text; nothing is imported or run. Each first sentence, a
    summary, should find the explanation that follows it.

    First a language model is trained, on sentences alone and then on four fifths of the pairs; the
    other pairs evaluate it. Then a sentence encoder searches the explanations with BM25 and
    vectors, learns from a quarter of the summaries as user queries, and answers three questions.

    Options:
        output: Folder for models, index and reports.
        only: Run one of the two parts, learn or search.
        base: Language model to train.
        objective: Method to train on sentences.
        model: Model to search with.
        names: Maximum number of documented names to read.
        budget: Time limit for learning to search: 90s, 30m, 2h.
        seed: Random seed.
    """
    seconds = options.parse_budget(budget)
    if only != "search":
        from contrasent.model.pretrained import resolve
        from contrasent.pictures import check_matplotlib

        import_extra("torch", "train", "learning (--only search does without)")
        check_matplotlib()
        resolve(base)
    from contrasent.documents.docstrings import InstalledDocumentation, installed_sources

    source = InstalledDocumentation(installed_sources(), names)
    facts: dict[str, Any] = {"folder": str(output)}
    lines: list[str] = []
    again: dict[str, Any] = {"seed": seed, "resume": resume, "overwrite": overwrite}
    if only != "search":
        from contrasent.train.demo import learn, table

        place = output / "learned"
        with options.resumable(f"--resume continues {output}"):
            lessons = learn(source, place, base=base, objective=objective, **again)
        facts["learned"] = [
            {"name": lesson.name, **asdict(lesson.run), "folder": str(lesson.run.folder)}
            for lesson in lessons
        ]
        lines += [*table(lessons, base), f"curve, map and examples: {place / 'learning.html'}"]
    if only != "learn":
        searched, search_facts = _search(source, output / "search", model, seconds, **again)
        facts |= search_facts
        lines += searched
    return options.Output(facts, "\n".join(lines))


def _search(
    source: "InstalledDocumentation", output: Path, model: str, seconds: float, **again: Any
) -> tuple[list[str], dict[str, Any]]:
    """Index, learn from queries, and answer: lines to print, and facts."""
    from contrasent.files import short, write_json
    from contrasent.indexing.models import open_index_model
    from contrasent.search.index import Index

    with tempfile.TemporaryDirectory() as place:
        queries = Path(place) / "summaries.jsonl"
        with queries.open("w", encoding="utf-8") as stream:
            for query, document in source.summaries[::EVERY]:
                stream.write(json.dumps({"query": query, "document": document}) + "\n")
        done = carry_out(source, output, model=model, queries=queries, budget=seconds, **again)
    folder = done.folder / "index"
    index = Index.open(folder)
    encode = open_index_model(index)
    evaluated = done.folder / "held_out.json"
    if not evaluated.is_file():  # else an earlier run has added the summaries to what is searched
        write_json(evaluated, _gains(done, index, encode, source.summaries[1::2], again["seed"]))
    gains = json.loads(evaluated.read_text("utf-8"))
    known = {row.metadata["document"] for row in index.every()}
    index.close()
    _add_summaries(folder, encode, [pair for pair in source.summaries if pair[1] in known])
    index = Index.open(folder)
    answered = _answers(index, encode)
    lines = []
    for answer in answered:
        lines.append(answer["question"])
        lines += [
            f"    {score:5.2f}  {name}: {short(text, 100)}" for name, score, text in answer["found"]
        ]
    lines.append(f"nDCG@10 on {gains['queries']:,} held-out summaries")
    lines.append(f"    {'vectors alone':34s} {gains['vectors']:.3f}")
    lines += [f"    {name:34s} {gains[name]['shown']}" for name in PARTS]
    lines += [summary(done), f"in a browser: contrasent serve {done.folder}"]
    return lines, {**done.facts, "answers": answered, "held_out": gains}


PARTS = ("BM25 adds", "queries add", "together")


def _gains(
    done: "Adaptation",
    index: "Index",
    encode: "EncodeFn",
    summaries: Sequence[tuple[str, str]],
    seed: int,
) -> dict[str, Any]:
    """The gains of BM25 and of learning over vectors alone, on held-out summaries."""
    from contrasent.adapt.bench import Bench, Query, difference
    from contrasent.search.ranking import Ranker
    from contrasent.types import for_task

    places = index.row_documents.numbers
    known = [(text, places[name]) for text, name in summaries if name in places]
    queries = [Query(text, {n: 1.0}, n) for text, n in known]
    vectors = for_task(encode, "query")([text for text, _ in known])
    bench = Bench(index, queries, vectors, index.learned)
    default = Ranker(done.facts["default"]["bm25_weight"])
    alone, both, learned = bench.values([Ranker(0.0), default, index.ranker])
    gains = {
        name: difference(queries, values, seed=seed)
        for name, values in zip(PARTS, (both - alone, learned - both, learned - alone), strict=True)
    }
    facts: dict[str, Any] = {"queries": len(known), "vectors": float(alone.mean())}
    return facts | {name: {**asdict(gain), "shown": str(gain)} for name, gain in gains.items()}


def _add_summaries(folder: Path, encode: "EncodeFn", summaries: Sequence[tuple[str, str]]) -> None:
    """Make each summary a passage of its document, after learning and evaluation."""
    from contrasent.search.writer import Writer

    with Writer(folder) as writer:
        writer.update(
            [f"{name}\n{text}" for text, name in summaries],
            encode,
            ids=[f"{name}#summary" for _, name in summaries],
            metadata=[
                {"document": name, "title": name, "headings": [], "body": len(name) + 1}
                for _, name in summaries
            ],
        )


def _answers(index: "Index", encode: "EncodeFn") -> list[dict[str, Any]]:
    """The best passage of each of the first three documents for each question."""
    from contrasent.search.index import grouped

    vectors = index.query_vectors(QUESTIONS, encode)
    answered = []
    for question, hits in zip(
        QUESTIONS, index.search_documents(QUESTIONS, vectors, 3), strict=True
    ):
        first = [hits[group[0]] for group in grouped(hits)]
        lines = [hit.text[hit.metadata["body"] :].strip().partition("\n")[0] for hit in first]
        named = [
            (hit.metadata["document"], hit.score, line)
            for hit, line in zip(first, lines, strict=True)
        ]
        answered.append({"question": question, "found": named})
    return answered
