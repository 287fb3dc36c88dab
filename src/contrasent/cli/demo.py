"""``contrasent demo``: ``contrasent adapt`` on text that every machine has."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.adapt import DEFAULT_BASE, AdaptedModel, Resume, carry_out, summary

if TYPE_CHECKING:
    from contrasent.adapt.shipping import Adaptation

QUESTIONS = (
    "how do I make a temporary directory that is removed afterwards?",
    "how do I run a command and read what it prints?",
    "how do I read a configuration file with sections?",
)


@options.command
def demo(
    output: AdaptedModel = Path("demo-model"),
    base: str = DEFAULT_BASE,
    names: Annotated[int, typer.Option(min=200)] = 2000,
    budget: str = "15m",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    resume: Resume = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Adapt a model to the documentation of the installed packages; show that it searches better.

    The documentation strings of the installed packages are read as text (nothing is imported or
    run). The first sentence of each is a query, which should find the prose that explains it. The
    best search is proven on names that took no part in learning or selection, and then answers
    three questions. See ``contrasent adapt`` for documents of your own.

    Options:
        base: Model to begin from.
        names: Documented names to read at most.
        budget: Time to spend at most: 90s, 30m, 2h.
        seed: Seed of everything random.
    """
    seconds = options.parse_budget(budget)
    from contrasent.documents.docstrings import InstalledDocumentation

    done = carry_out(
        InstalledDocumentation(names),
        output,
        base=base,
        budget=seconds,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
    )
    answers = _answers(done)
    lines = []
    for answer in answers:
        lines.append(answer["question"])
        lines += [f"    {score:.2f}  {name}: {text}" for name, score, text in answer["found"]]
    facts = {**done.facts, "folder": str(done.folder), "answers": answers}
    return options.Output(facts, "\n".join([*lines, summary(done)]))


def _answers(done: "Adaptation") -> list[dict[str, Any]]:
    from contrasent.model.encoder import Encoder
    from contrasent.search.index import Index

    encoder = Encoder.load(done.folder)
    index = Index.open(done.folder / "index")
    found = index.search(list(QUESTIONS), encode=encoder.encode, k=3)
    answers = []
    for question, hits in zip(QUESTIONS, found, strict=True):
        lines = [
            hit.text.removeprefix(hit.metadata["title"]).strip().partition("\n")[0] for hit in hits
        ]
        named = [
            (hit.metadata["document"], hit.score, line)
            for hit, line in zip(hits, lines, strict=True)
        ]
        answers.append({"question": question, "found": named})
    return answers
