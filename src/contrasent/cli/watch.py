"""``contrasent watch INDEX NEW_TEXT``."""

from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contrasent.adapt.watch import Watch

DRIFTED = 3
SHOWN = 4


@options.command
def watch(
    index: options.IndexFolder,
    new_text: str,
    model: str | None = None,
    column: options.Column = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    fail_on_drift: bool = False,
) -> options.Output:
    """Has the text drifted from what an index is made of, and does its model still serve it?

    Compares vectors, words, lengths, new groups of texts, and how well queries made of old and of
    new text find what they should; says whether to index the new text or to adapt once more.

    Options:
        new_text: File or folder: documents, or rows as the index was made of.
        model: Where the index's model is now, if it has moved.
        seed: Of everything random.
        fail_on_drift: Exit 3 if the text has drifted.
    """
    from contrasent.adapt.watch import watch as look
    from contrasent.cli.search import model_of
    from contrasent.search.opening import local_index

    with local_index(index) as opened:
        encoder = model_of(opened, model, options.Loading()).encoder
        found = look(
            opened,
            new_text,
            encoder,
            model=model or "",
            text_column=column,
            seed=seed,
            say=options.note,
        )
    facts = {"index": str(index), "new_text": new_text, **found.as_dict()}
    status = DRIFTED if fail_on_drift and found.drifted else 0
    return options.Output(facts, "\n".join(_lines(found)), status=status)


def _lines(found: "Watch") -> "Iterator[str]":
    """All of it, the conclusion and what to type in the last lines."""
    both, old, new = found.samples, found.old_tokens, found.new_tokens
    yield (
        f"{'told apart':16s} {both.accuracy:.3f} [{both.low:.3f}, {both.high:.3f}] of the texts "
        f"(0.5: not at all), p = {both.p:.3g}, {both.old:,} old and {both.new:,} new documents"
    )
    unknown = (
        "" if new.unknown is None else f"unknown {old.unknown or 0:.2%} -> {new.unknown:.2%}, "
    )
    yield f"{'words':16s} {unknown}pieces a word {old.pieces:.2f} -> {new.pieces:.2f}"
    yield f"{'cut':16s} {old.cut:.1%} -> {new.cut:.1%} of the texts"
    yield f"{'far from all':16s} {found.far:.1%} of the new texts (1 % by chance)"
    for group in found.groups[:SHOWN]:
        yield f"  {group.texts:>5,} texts  {', '.join(group.terms)}"
        yield from (f"               {options.shortened(text)}" for text in group.examples)
    if more := found.groups[SHOWN:]:
        yield f"  ... and {len(more)} smaller groups: --json shows all"
    if found.served is None:
        yield f"{'search':16s} too few queries can be made of one of the sides"
    for name, one in (found.served or {}).items():
        yield (
            f"nDCG@10, {name:7s} {one.old:.3f} -> {one.new:.3f}  {one.new - one.old:+.3f} "
            f"[{one.low:+.3f}, {one.high:+.3f}]"
        )
    if found.known:
        yield f"note: {found.known:,} of the new texts are in the index already"
    if found.command:
        yield f"type: {found.command}"
    yield f"{found.conclusion}: {found.reason}"
