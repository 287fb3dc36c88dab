"""``contrasent demo``: ``contrasent adapt`` on text that every machine has."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli.adapt import DEFAULT_BASE, carry_out, show
from contrasent.cli.options import Json, Overwrite, Quiet, emit, parse_budget, quieten

if TYPE_CHECKING:
    from contrasent.adapt.shipping import Adaptation

QUESTIONS = (
    "how do I make a temporary directory that is removed afterwards?",
    "how do I run a command and read what it prints?",
    "how do I read a configuration file with sections?",
)
LR = 1e-4


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the model, its index and its report.")
    ] = Path("demo-model"),
    base: Annotated[str, typer.Option(help="Model to begin from.")] = DEFAULT_BASE,
    names: Annotated[int, typer.Option(min=200, help="Documented names to read at most.")] = 2000,
    steps: Annotated[int, typer.Option(min=1, help="Training steps at most.")] = 30,
    budget: Annotated[str, typer.Option(help="Time to spend at most: 90s, 30m, 2h.")] = "15m",
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a killed run.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Adapt a model to the documentation of the installed packages; show that it searches better.

    The documentation strings of the packages beside this one are read as text (nothing is
    imported or run). The first sentence of each is a query, the prose that explains it is what
    the query should find. What searches best is proven on names that nothing was trained on or
    chosen by, and then answers three questions. See ``contrasent adapt`` for documents of your own.
    """
    quieten(quiet)
    seconds = parse_budget(budget)
    from contrasent.adapt.formats.docstrings import InstalledDocumentation
    from contrasent.adapt.training import TrainingPlan

    done = carry_out(
        InstalledDocumentation(names),
        output,
        quiet=quiet,
        base=base,
        budget=seconds,
        plans=(TrainingPlan("docstrings", ("docstring",), LR),),
        steps=steps,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
    )
    answers = _answers(done)
    if as_json:
        emit({**done.facts, "folder": str(done.folder), "answers": answers})
        return
    for answer in answers:
        typer.echo(answer["question"])
        for name, score, text in answer["found"]:
            typer.echo(f"    {score:.2f}  {name}: {text}")
    show(done)


def _answers(done: "Adaptation") -> list[dict[str, Any]]:
    from contrasent.model.encoder import Encoder
    from contrasent.search.hybrid import searcher
    from contrasent.search.index import Index

    encoder = Encoder.load(done.folder)
    search = searcher(Index.open(done.folder / "index")).search
    found = search(list(QUESTIONS), encode=encoder.encode, k=3)
    return [
        {"question": question, "found": [_found(hit) for hit in hits]}
        for question, hits in zip(QUESTIONS, found, strict=True)
    ]


def _found(hit: Any) -> tuple[str, float, str]:
    text = hit.text.removeprefix(hit.metadata["title"]).strip().splitlines()
    return hit.metadata["document"], hit.score, text[0] if text else ""
