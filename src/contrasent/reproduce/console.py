"""A report of items as text for a terminal, and the lines that pages share with it."""

import textwrap
from collections.abc import Iterator, Sequence
from statistics import median

from contrasent.reproduce.cells import Book, Json, cell_texts, duration, number
from contrasent.reproduce.table_verdicts import RULE, WORDS

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
    "difference": "our diff., 95 %",
    "verdict": "verdict",
}
"""Texts of a cell, and what stands above them."""


def text(found: Book) -> str:
    """A report for a terminal."""
    parts = [_item_text(item) for item in found["items"]]
    if any(item["scale"] == "lab" and item["base"] for item in found["items"]):
        parts.insert(0, _wrapped(LAB_NOTE))
    words = [claim["verdict"]["word"] for item in found["items"] for claim in item["claims"]]
    lines = [f"{len(words)} claims: {counted(words)}"] if len(found["items"]) > 1 and words else []
    run = found["run"]
    if run["seconds"]:
        where = "; ".join([*run["machines"], *run["precisions"], *run["versions"]])
        lines += [_wrapped(RULE), f"computed in {duration(run['seconds'])} on {where}"]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])


def counted(words: Sequence[str]) -> str:
    """Verdicts and how many there are of each."""
    return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)


def _item_text(item: Json) -> str:
    lines = [f"{item['name']}  {item['title']} ({item['source']})", *about(item)]
    lines = [_wrapped(line) for line in lines]
    columns, rows = item["columns"], item["rows"]
    if any(row["facts"] for row in rows):
        head = ("", *(column["title"] for column in columns))
        facts = [(r["name"], *(r["facts"].get(c["name"], "") for c in columns)) for r in rows]
        lines += ["", *_laid_out([head, *facts], words=len(head))]
    if has_second(rows):
        lines.append(f"also: {item['also_source']}")
    for column in columns:
        cells = [(row["name"], row["cells"].get(column["name"])) for row in rows]
        shown = [(name, vars(cell_texts(cell, column))) for name, cell in cells if cell]
        if shown:
            table = [(name, *(cell[key] for key in COLUMNS)) for name, cell in shown]
            lines += ["", *_laid_out([(column["title"], *COLUMNS.values()), *table])]
    listings = item["listings"]
    for i, (query, _) in enumerate(next(iter(listings.values()), ())):
        lines.append(f"\n{query}")
        for name, listing in listings.items():
            lines += [f"  {name}", *(f"    {score:.2f}  {hit}" for score, hit in listing[i][1])]
    lines += ["", *(_wrapped(line, "  ") for line in (*noise(item), *orders(item)))]
    for claim in item["claims"]:
        verdict = claim["verdict"]
        why = claim["parts"][0]["why"] if len(claim["parts"]) == 1 else verdict["why"]
        line = f"{verdict['word']:<14}{claim['text']}{f' ({why})' if why else ''}"
        lines.append(_wrapped(line, " " * 14))
    lines += [_wrapped(f"missing: {line}", "  ") for line in missing(item)]
    return "\n".join(lines).rstrip()


def has_second(rows: Sequence[Json]) -> bool:
    """Whether rows have values of a second document."""
    return any("also" in cell for row in rows for cell in row["cells"].values())


def about(item: Json) -> Iterator[str]:
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


def noise(item: Json) -> Iterator[str]:
    """How far a seed moves the columns that statements are about; all columns if there is none."""
    titles = {title for claim in item["claims"] for title in claim["columns"]}
    for column in item["columns"]:
        cells = [row["cells"].get(column["name"], {}) for row in item["rows"]]
        spreads = [cell["sd"] for cell in cells if "sd" in cell]
        if spreads and (not titles or column["title"] in titles):
            middle = number(median(spreads), column["forms"]["ours"])
            rows = "1 row" if len(spreads) == 1 else f"median of {len(spreads)} rows"
            yield f"A seed moves {column['title']} by {middle} (standard deviation, {rows})."


def orders(item: Json) -> Iterator[str]:
    """The rank correlations of our rows with the published ones, in a line."""
    titles = {column["name"]: column["title"] for column in item["columns"]}
    found = [f"{titles[n]} {o['correlation']:.2f}" for n, o in item["order"].items()]
    if found:
        rows = max(order["rows"] for order in item["order"].values())
        title = f"rank correlation of the rows' order with the published one, {rows} rows"
        yield f"{title}: {', '.join(found)}"


def missing(item: Json) -> Iterator[str]:
    """What was not run and why, rows with one reason together."""
    reasons: dict[str, list[str]] = {}
    runnable = sum(row["kind"] not in ("quote", "facts") for row in item["rows"])
    for row in item["rows"]:
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


def _laid_out(table: list[tuple[str, ...]], words: int = 1) -> list[str]:
    """Lines of a table, its empty columns left out; the first columns and the last are words."""
    columns = []
    for i, column in enumerate(zip(*table, strict=True)):
        if not i or any(column[1:]):
            width, left = max(map(len, column)), i < words or i == len(COLUMNS)
            columns.append([cell.ljust(width) if left else cell.rjust(width) for cell in column])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _wrapped(line: str, indent: str = "") -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
