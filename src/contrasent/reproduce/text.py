"""A book of items as text for a terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from contrasent.reproduce.cells import blocks, number
from contrasent.reproduce.entries import Book, ItemEntry, Needed
from contrasent.reproduce.run import duration
from contrasent.reproduce.verdict import RULE, SEQUENTIAL_RULE, WORDS

WIDTH = 110
MOST = 5
"""Rows that are named where one reason holds for several."""

LAB_NOTE = (
    "Scale lab: a smaller encoder and fewer steps. Only directions and orders of rows count, "
    "values are not comparable with the document's."
)
COLUMNS = {
    "paper": "paper",
    "also": "also",
    "ours": "ours",
    "spread": "sd",
    "interval": "95 %",
    "seeds": "seeds",
    "published": "paper's diff.",
    "gap": "our diff., 95 %",
    "verdict": "verdict",
}
"""Attributes of ``CellTexts``, and what stands above them."""


def text(found: Book) -> str:
    """A book for a terminal."""
    parts = [_item_text(item) for item in found["items"]]
    if any(item["scale"] == "lab" and item["base"] for item in found["items"]):
        parts.insert(0, _wrapped(LAB_NOTE))
    return "\n\n".join([*parts, *_end(found)])


def _end(found: Book) -> Iterator[str]:
    """All claims counted, machine, versions and time."""
    words = [claim["verdict"]["word"] for item in found["items"] for claim in item["claims"]]
    lines = [f"{len(words)} claims: {counted(words)}"] if len(found["items"]) > 1 and words else []
    if any(item["tests"] for item in found["items"]):
        lines.append(_wrapped(RULE))
    if any(item["sequential"] for item in found["items"]):
        lines.append(_wrapped(SEQUENTIAL_RULE))
    run = found["run"]
    if run["seconds"]:
        where = "; ".join([*run["machines"], *run["precisions"], *run["versions"]])
        lines.append(f"computed in {duration(run['seconds'])} on {where}")
    if lines:
        yield "\n".join(lines)


def counted(words: Sequence[str]) -> str:
    """Verdicts and how many there are of each."""
    return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)


def _item_text(item: ItemEntry) -> str:
    lines = [f"{item['name']}  {item['title']} ({item['source']})", *about(item)]
    lines = [_wrapped(line) for line in lines]
    if any(row["facts"] for row in item["rows"]):
        lines += ["", *_facts(item)]
    if any("also" in cell for row in item["rows"] for cell in row["cells"].values()):
        lines.append(f"also: {item['also_source']}")
    for title, block in blocks(item):
        table = [(name, *(getattr(cell, key) for key in COLUMNS)) for _, name, cell in block]
        lines += ["", *_laid_out([(title, *COLUMNS.values()), *table])]
    lines += [*_listings(item), ""]
    lines += [_wrapped(line, "  ") for line in resolved(item)]
    titles = {column["name"]: column["title"] for column in item["columns"]}
    orders = [f"{titles[n]} {o['correlation']:.2f}" for n, o in item["order"].items()]
    if orders:
        rows = max(order["rows"] for order in item["order"].values())
        title = f"rank correlation of the rows' order with the published one, {rows} rows"
        lines.append(_wrapped(f"{title}: {', '.join(orders)}", "  "))
    for claim in item["claims"]:
        why = claim["verdict"]["why"]
        if len(claim["parts"]) == 1:
            why = claim["parts"][0]["why"]
        line = f"{claim['verdict']['word']:<14}{claim['text']}{f' ({why})' if why else ''}"
        lines.append(_wrapped(line, " " * 14))
        if "needed" in claim:
            lines.append(_wrapped(f"{' ' * 14}{still_needed(claim['needed'])}", " " * 14))
    lines += [_wrapped(f"missing: {line}", "  ") for line in missing(item)]
    return "\n".join(lines).rstrip()


def about(item: ItemEntry) -> Iterator[str]:
    """Scale, base, time, and what differences are from."""
    run = item["run"]
    if not item["base"] or not run["seconds"]:
        if item["scale_note"]:
            yield item["scale_note"]
        return
    changes = "".join(f", {k} {v}" for k, v in item["changes"].items())
    runs = f"{run['trained']} training run{'' if run['trained'] == 1 else 's'}, "
    line = f"Scale {item['scale']}{changes}, base {item['base']}; "
    line += f"{runs if run['trained'] else ''}{duration(run['seconds'])}."
    if item["scale"] == "paper":
        line += " Differences are ours less the paper's value."
    elif item["reference"]:
        line += f" Differences and verdicts are against {item['reference']!r}."
    yield f"{line} {item['scale_note']}".strip()


def resolved(item: ItemEntry) -> Iterator[str]:
    """What the seeds of the columns that statements are about can show; of all if there is none."""
    about = {title for claim in item["claims"] for title in claim["columns"]}
    for column in item["columns"]:
        shown = item["resolution"].get(column["name"])
        if shown is None or (about and column["title"] not in about):
            continue
        form = column["forms"]["ours"]
        seeds = f"{shown['seeds']} seed{'' if shown['seeds'] == 1 else 's'}"
        line = (
            f"A seed moves {column['title']} by {number(shown['deviation'], form)} (standard "
            f"deviation, {shown['freedom']:g} degrees of freedom); {seeds} a row tell "
        )
        least = shown["least"]
        line += (
            f"differences from {number(least, form)} on"
            if least is not None
            else "no difference yet"
        )
        if shown["needed"]:
            line += f"; {shown['needed']:,} would decide between any two rows, whatever they give"
        if shown["apart"]:
            line += f". Vary more, and rest on their own seeds: {'; '.join(shown['apart'])}"
        if shown["paired"] is not None:
            line += (
                f". Seed by seed, differences vary {shown['paired']:.2f} times as much as those of "
                "unpaired runs"
            )
        yield f"{line}."


def still_needed(found: Needed) -> str:
    """What would decide a statement, if all goes on as it has."""
    most = max(found["seeds"].values(), default=0)
    runs = sum(found["seeds"].values())
    return (
        f"Would need {runs} more run{'s' if runs > 1 else ''}, up to {most} of a row "
        f"({found['hours']:.1f} h), if differences and spreads stay as they are."
    )


def missing(item: ItemEntry) -> Iterator[str]:
    """What was not run and why, rows with one reason together."""
    reasons: dict[str, list[str]] = {}
    runnable = 0
    for row in item["rows"]:
        runnable += row["kind"] not in ("quote", "facts")
        if row["skipped"]:
            reasons.setdefault(row["skipped"], []).append(row["name"])
    for reason, names in reasons.items():
        rows = "; ".join(names)
        if len(names) > 1 and len(names) == runnable:
            rows = f"all {runnable} rows"
        elif len(names) > MOST:
            rows = f"{'; '.join(names[: MOST - 1])} and {len(names) - MOST + 1} more rows"
        yield f"{rows}: {reason}"
    yield from item["needs"]


def _facts(item: ItemEntry) -> list[str]:
    names = [column["name"] for column in item["columns"]]
    head = ("", *(column["title"] for column in item["columns"]))
    rows = [
        (row["name"], *(row["facts"].get(name, "") for name in names))
        for row in item["rows"]
        if row["facts"]
    ]
    return _laid_out([head, *rows], words=len(head))


def _laid_out(table: list[tuple[str, ...]], words: int = 1) -> list[str]:
    """Lines of a table, its empty columns left out; the first columns and the last are words."""
    used = [i for i in range(len(table[0])) if not i or any(line[i] for line in table[1:])]
    widths = {i: max(len(line[i]) for line in table) for i in used}
    left = {*range(words), len(COLUMNS)}
    return [
        "  ".join(
            line[i].ljust(widths[i]) if i in left else line[i].rjust(widths[i]) for i in used
        ).rstrip()
        for line in table
    ]


def _listings(item: ItemEntry) -> Iterator[str]:
    """What each model finds for each query."""
    found = item["listings"]
    for i, (query, _) in enumerate(next(iter(found.values()), ())):
        yield f"\n{query}"
        for name, listing in found.items():
            yield f"  {name}"
            yield from (f"    {score:.2f}  {hit}" for score, hit in listing[i][1])


def _wrapped(line: str, indent: str = "") -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
