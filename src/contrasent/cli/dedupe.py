"""``contrasent dedupe INDEX``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import OptionError

SHOWN = 10


@options.command
def dedupe(
    index: Path,
    threshold: Annotated[float, typer.Option(min=-1, max=1)] = 0.95,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    remove: bool = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Find texts that nearly repeat an earlier one; the first of each kind is kept.

    The file of -o has one line for each text: its id, its text, and for a near-duplicate the id of
    the text it repeats and their score.

    Options:
        index: Index folder.
        threshold: Cosine from which two texts count as the same.
        output: Write all of it to FILE.jsonl.
        remove: Remove the near-duplicates from the index.
    """
    if output is not None:
        if output.suffix != ".jsonl":
            raise OptionError("-o", str(output), "must end in .jsonl")
        options.check_new(output, overwrite)
    from contrasent.files import atomic_file, short
    from contrasent.search.opening import numbered_rows, open_index, open_writer
    from contrasent.search.scan import near_duplicates

    opened = numbered_rows(open_index(index))
    kept, found = near_duplicates(opened, threshold)
    total = len(opened)

    def named(row: int) -> dict[str, Any]:
        (one,) = opened.rows([row])
        return {"id": one.id, "text": one.text, "metadata": one.metadata}

    if output is not None:
        repeats = {pair.second: pair for pair in found}
        with atomic_file(output) as stream:
            for row in sorted([*kept.tolist(), *repeats]):
                one = repeats.get(row)
                of = {"repeats": opened.rows([one.first])[0].id if one else None}
                line = {**named(row), **of, "score": one.score if one else None}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    pairs: list[dict[str, Any]] = [
        {"score": pair.score, "kept": named(pair.first), "repeat": named(pair.second)}
        for pair in sorted(found, key=lambda pair: -pair.score)
    ]
    if remove and pairs:
        with open_writer(index) as writer:
            writer.delete([pair["repeat"]["id"] for pair in pairs])
    lines = [
        f"{pair['score']:.4f}  {short(pair['repeat']['text'], 90)}\n"
        f"        {short(pair['kept']['text'], 90)}"
        for pair in pairs[:SHOWN]
    ]
    if len(pairs) > SHOWN:
        lines.append(f"... and {len(pairs) - SHOWN:,} more: -o FILE.jsonl writes all")
    done = "removed" if remove else "found"
    lines.append(
        f"{len(pairs):,} near-duplicates {done} among {total:,} texts at {threshold:g} and more"
    )
    facts = {
        "index": str(index),
        "threshold": threshold,
        "texts": total,
        "kept": len(kept),
        "near_duplicates": len(pairs),
        "removed": len(pairs) if remove else 0,
        "pairs": pairs,
    }
    return options.Output(facts, "\n".join(lines))
