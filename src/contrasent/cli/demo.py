"""``contrasent demo``: the whole chain on text that every machine has."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli.options import Json, Overwrite, Quiet, emit, quieten
from contrasent.errors import DataError, OutputError

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder
    from contrasent.search.index import Index
    from contrasent.text.docstrings import Documented
    from contrasent.train.settings import Settings
    from contrasent.types import EncodeFn

BASE = "all-MiniLM-L6-v2"
SETTINGS: dict[str, Any] = {
    "batch": 64,
    "steps": 70,
    "lr": 1e-4,
    "warmup": 0.1,
    "max_tokens": 64,
    "checkpoint_every": 40,
}
OBJECTIVE = {"symmetric": True}
HELDOUT = 1000
FEWEST_HELDOUT = 200
INDEXED = 8000
QUESTIONS = (
    "how do I make a temporary directory that is removed afterwards?",
    "how do I run a command and read what it prints?",
    "how do I read a configuration file with sections?",
)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")] = Path(
        "demo-model"
    ),
    index: Annotated[Path, typer.Option(help="Folder for the index.")] = Path("demo-index"),
    heldout: Annotated[
        int, typer.Option(min=FEWEST_HELDOUT, help="Pairs to measure on.")
    ] = HELDOUT,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = SETTINGS["steps"],
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of the training.")] = 0,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on the documentation of the installed packages; show that it searches better.

    The documentation strings of the packages beside this one are read as text (nothing is
    imported or run). Each gives a pair: its first sentence, and the prose that explains it. Some
    pairs are held out; the others train all-MiniLM-L6-v2. Before and after, each held-out
    explanation looks for its own first sentence among all held-out ones.
    """
    quieten(quiet)
    for target in (output, index):
        if target.exists() and any(target.iterdir()) and not overwrite:
            raise OutputError(f"{target}: is there already; --overwrite replaces it")
    from contrasent.train.settings import Settings

    settings = Settings(**{**SETTINGS, "steps": steps, "seed": seed})
    say = _Teller(as_json)
    train, kept, everything = _read(say, heldout, seed)
    facts = _learn(say, train, kept, settings, output)
    _answer(say, facts.pop("encoder"), everything, output, index, facts)
    if as_json:
        emit(facts)
    else:
        typer.echo(
            f'\nnext:\n  contrasent search {index} "how do I ...?"\n'
            f'  contrasent similarity {output} "one text" "another"\n'
            "  contrasent train YOUR.txt -o my-model      (a sentence a line; or a csv of pairs)"
        )


class _Teller:
    """Prints a step of the demo with the time it began, unless JSON is wanted."""

    def __init__(self, silent: bool) -> None:
        self.silent, self.began = silent, time.monotonic()

    def __call__(self, text: str) -> None:
        if not self.silent:
            typer.echo(f"[{time.monotonic() - self.began:4.0f} s] {text}")


def _read(
    say: _Teller, heldout: int, seed: int
) -> "tuple[list[Documented], list[Documented], list[Documented]]":
    from contrasent.text.docstrings import pairs, read_documentation, split

    say("reading the documentation of the installed packages")
    everything = read_documentation()
    usable = pairs(everything)
    train, kept = split(usable, heldout=heldout, seed=seed)
    if len(kept) < FEWEST_HELDOUT or len(train) < 2 * SETTINGS["batch"]:
        raise DataError(
            f"the installed packages document only {len(usable):,} pairs, too few to train on and "
            "to measure on; install some packages with documentation, such as numpy and scipy"
        )
    say(
        f"{len(everything):,} documented names; {len(train):,} pairs to train on, "
        f"{len(kept):,} held out"
    )
    return train, kept, everything


def _learn(
    say: _Teller,
    train: "list[Documented]",
    kept: "list[Documented]",
    settings: "Settings",
    output: Path,
) -> dict[str, Any]:
    from contrasent.evaluate.paired import paired_difference
    from contrasent.evaluate.retrieval import rank_documents, ranking_report
    from contrasent.model.card import Facts
    from contrasent.model.pretrained import resolve
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare

    learner = prepare(resolve(BASE), "simcse_supervised", OBJECTIVE, settings)
    queries = [pair.explanation for pair in kept]
    documents = [pair.summary for pair in kept]

    def rank(encode: "EncodeFn") -> Any:
        return rank_documents(encode, queries, documents, range(len(kept)))

    say(f"{BASE} looks for the sentence that each held-out explanation belongs to")
    before = rank(learner.encoder.encode)
    say(f"training for {settings.steps} steps of {settings.batch} pairs")
    run = fit(
        learner,
        [(pair.explanation, pair.summary) for pair in train],
        settings,
        folder=output,
        facts=Facts(base=BASE),
        overwrite=True,
    )
    say(f"trained, {run.sentences_per_second:.0f} pairs a second; looking again")
    after = rank(learner.encoder.encode)
    reports = [ranking_report(ranking) for ranking in (before, after)]
    change = paired_difference(before.reciprocal(10), after.reciprocal(10))
    for metric in ("mrr@10", "recall@1", "recall@10"):
        old, new = (report.one(metric=metric) for report in reports)
        say(f"  {metric:9s}  before {_interval(old)}   after {_interval(new)}")
    say(
        f"  mrr@10 changed by {change.value:+.3f}, 95 % interval {change.low:+.3f} to "
        f"{change.high:+.3f}, p {change.p:.4f}"
    )
    return {
        "encoder": learner.encoder,
        "model": str(output),
        "pairs": {"train": len(train), "heldout": len(kept)},
        "before": reports[0].to_json()["rows"],
        "after": reports[1].to_json()["rows"],
        "difference": change._asdict(),
        "sentences_per_second": run.sentences_per_second,
    }


def _interval(row: Any) -> str:
    return f"{row.value:.3f} ({row.low:.3f} to {row.high:.3f})"


def _answer(
    say: _Teller,
    encoder: "Encoder",
    everything: "list[Documented]",
    output: Path,
    index: Path,
    facts: dict[str, Any],
) -> None:
    from contrasent.search.index import Index

    names = searchable(everything)
    say(f"indexing {len(names):,} documented names")
    made = Index.create(
        index,
        encoder.encode,
        ((f"{name}: {summary}", name, None) for name, summary in names),
        model=encoder.identity,
        source=str(output.resolve()),
        overwrite=True,
    )
    facts["index"] = str(index)
    facts["answers"] = _ask(say, made, encoder)


def searchable(documented: "list[Documented]", limit: int = INDEXED) -> list[tuple[str, str]]:
    """Names that people look for, with their summaries: public, and the shortest names first."""
    public = [d for d in documented if not any(p.startswith("_") for p in d.name.split("."))]
    ordered = sorted(public, key=lambda d: (d.name.count("."), d.name))
    chosen: dict[str, str] = {}
    seen: set[str] = set()
    for d in ordered:
        if d.name not in chosen and d.summary not in seen and len(chosen) < limit:
            chosen[d.name] = d.summary
            seen.add(d.summary)
    return list(chosen.items())


def _ask(say: _Teller, index: "Index", encoder: "Encoder") -> list[dict[str, Any]]:
    answers = []
    for question, hits in zip(
        QUESTIONS, index.search(list(QUESTIONS), encode=encoder.encode, k=3), strict=True
    ):
        say(question)
        for hit in hits:
            say(f"    {hit.score:.2f}  {hit.text[:100]}")
        answers.append({"question": question, "found": [[h.id, h.score] for h in hits]})
    return answers
