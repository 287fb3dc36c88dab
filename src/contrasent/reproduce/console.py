"""A report of items as text, Markdown, LaTeX and CSV, from its plain data (``results.book``).

Pictures and texts are made from these data alone. "run" holds everything that differs from
one run to the next.
"""

import csv
import io
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from decimal import Decimal
from statistics import median

from contrasent.progress import duration
from contrasent.report import laid_out
from contrasent.reproduce.store import Json
from contrasent.reproduce.table_verdicts import CHOSEN, RULE, WORDS, counted

WIDTH = 110
MOST_DECIMALS = 4  # as documents print; smaller values, such as learning rates, are not rounded
MOST_ROWS = 5  # rows named if one reason holds for several

LAB_NOTE = (
    "Scale lab: a smaller encoder and fewer steps. Only directions and the order of "
    "rows count; values are not comparable with the paper's."
)
SHOWN = "Mean ± standard deviation over seeds (published)."
# Texts of a cell, and their headers.
COLUMNS = {
    "paper": "paper",
    "ours": "ours",
    "spread": "sd",
    "interval": "95 %",
    "seeds": "seeds",
    "published": "paper's diff.",
    "difference": "our diff., 95 %",
    "verdict": "verdict",
}


def forms(published: Iterable[float], ours: Iterable[float], *, points: bool) -> dict[str, str]:
    """The format specifications of a column's numbers, by "paper" and "ours"."""
    printed = list(published)
    exponents = [Decimal(repr(value)).normalize().as_tuple().exponent for value in printed]
    places = max((-e for e in exponents if isinstance(e, int) and e < 0), default=0)
    if places > MOST_DECIMALS:
        return {"paper": "g", "ours": "g"}
    largest = max(map(abs, [*printed, *ours]), default=0.0)
    wanted = 3 if largest < 10 else 2 if largest < 100 else 1 if largest < 10_000 else 0
    return {"paper": f".{places}f", "ours": f".{max(places, 2 if points or places else wanted)}f"}


def number(value: float, form: str, *, signed: bool = False) -> str:
    """A formatted number, with its sign if ``signed``; without negative zero."""
    text = format(value, f"{'+' if signed else ''}{form}")
    if not any(digit in text for digit in "123456789"):
        return text.lstrip("+-")
    return text.replace("e-0", "e-").replace("e+0", "e+")


def between(low: float, high: float, form: str, *, signed: bool = False) -> str:
    """A formatted interval."""
    return f"[{number(low, form, signed=signed)}, {number(high, form, signed=signed)}]"


def p_value(p: float) -> str:
    """A p value in a few digits."""
    return "p < 0.001" if p < 0.001 else f"p {p:.2f}" if p >= 0.1 else f"p {p:.3f}"


def cell_texts(cell: Json, column: Json) -> dict[str, str]:
    """A cell of a report as texts, empty if there is no value."""
    paper, ours = column["forms"]["paper"], column["forms"]["ours"]
    texts = dict.fromkeys(COLUMNS, "")
    if "paper" in cell:
        texts["paper"] = number(cell["paper"], paper)
    if "ours" in cell:
        texts["ours"] = number(cell["ours"], ours)
        texts["seeds"] = str(cell["seeds"] or "-")  # "-" if another seed would change nothing
    if "sd" in cell:
        texts["spread"] = number(cell["sd"], ours)
    if "low" in cell:
        texts["interval"] = between(cell["low"], cell["high"], ours)
    if gap := cell.get("difference"):
        texts["difference"] = number(gap["ours"], ours, signed=True)
        if "paper" in gap:
            texts["published"] = number(gap["paper"], paper, signed=True)
        if "low" in gap:
            texts["difference"] += f" {between(gap['low'], gap['high'], ours, signed=True)}"
    if verdict := cell.get("verdict"):
        more = [f"tolerance {gap['tolerance']:g}"] if gap and "tolerance" in gap else []
        more += [p_value(verdict["p"])] if verdict["p"] is not None else []
        texts["verdict"] = f"{verdict['word']} ({', '.join(more)})" if more else verdict["word"]
    return texts


def text(book: Json) -> str:
    """A report for a terminal."""
    parts = [_wrapped(LAB_NOTE)] if _is_lab(book) else []
    parts += map(_item_text, book["items"])
    words = [word for item in book["items"] for word in _words(item)]
    lines = [f"{len(words)} claims: {counted(words)}"] if len(book["items"]) > 1 and words else []
    run = book["run"]
    if run["seconds"]:
        where = "; ".join([*run["machines"], *run["precisions"], *run["versions"]])
        lines += [_wrapped(RULE), f"computed in {duration(run['seconds'])} on {where}"]
    return "\n\n".join(filter(None, [*parts, "\n".join(lines)]))


def _item_text(item: Json) -> str:
    head = f"{item['name']}  {item['title']} ({item['source']})"
    lines = [_wrapped(line) for line in (head, *about(item))]
    columns, rows = item["columns"], item["rows"]
    if any(row["facts"] for row in rows):
        titles = ("", *(column["title"] for column in columns))
        facts = [(r["name"], *(r["facts"].get(c["name"], "") for c in columns)) for r in rows]
        lines += ["", *laid_out([titles, *facts], left=range(len(titles)))]
    for column in columns:
        cells = [(row["name"], row["cells"].get(column["name"])) for row in rows]
        shown = [(name, *cell_texts(cell, column).values()) for name, cell in cells if cell]
        if shown:
            titles = (column["title"], *COLUMNS.values())
            lines += ["", *laid_out([titles, *shown], left=(0, len(COLUMNS)))]
    lines += [*_listing(item), "", *(_wrapped(line, "  ") for line in noise(item))]
    lines += [_wrapped(f"{word:<14}{claim}", " " * 14) for word, claim in _statements(item)]
    lines += [_wrapped(f"missing: {line}", "  ") for line in missing(item)]
    lines += [_wrapped(f"note: {line}", "  ") for line in item["needs"]]
    return "\n".join(lines).rstrip()


def cells_csv(book: Json) -> str:
    """Every cell of the tables, one per line, numbers unrounded; formulas are escaped."""
    keys = ("paper", "ours", "sd", "low", "high", "seeds")
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(("item", "row", "column", *keys, "verdict"))
    for item in book["items"]:
        for row in item["rows"]:
            for column, cell in row["cells"].items():
                # A spreadsheet would take a name that begins so for a formula.
                names = [
                    f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
                    for name in (item["name"], row["name"], column)
                ]
                numbers = (cell.get(key, "") for key in keys)
                table.writerow((*names, *numbers, cell.get("verdict", {}).get("word", "")))
    return stream.getvalue()


def compact(item: Json) -> list[list[str]]:
    """An item as a table with its header: our mean ± deviation (published), or its facts."""
    columns = [
        column
        for column in item["columns"]
        if any(column["name"] in {**row["cells"], **row["facts"]} for row in item["rows"])
    ]
    table = [["", *(column["title"] for column in columns)]]
    for row in item["rows"]:
        line = [row["name"]]
        for column in columns:
            texts = cell_texts(row["cells"].get(column["name"], {}), column)
            ours = " ± ".join(filter(None, (texts["ours"], texts["spread"])))
            paper = f"({texts['paper']})" if texts["paper"] else ""
            fact = row["facts"].get(column["name"], "")
            line.append(" ".join(filter(None, (ours, paper))) + fact)
        if row["cells"] or row["facts"]:
            table.append(line)
    return table


def latex(book: Json) -> str:
    r"""The tables for LaTeX, with booktabs; captions say what was computed."""
    parts = ["% Needs \\usepackage{booktabs}."]
    for item in book["items"]:
        table = compact(item)
        head, *rows = [" & ".join(map(_latex_text, row)) + r" \\" for row in table]
        shown = [SHOWN] if any(row["cells"] for row in item["rows"]) else []
        caption = " ".join([f"{item['title']} ({item['source']}).", *about(item), *shown])
        parts += [
            "",
            r"\begin{table}",
            rf"\caption{{{_latex_text(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table[0]) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *rows, r"\bottomrule"),
            *(r"\end{tabular}", r"\end{table}"),
        ]
    return "\n".join([*parts, ""])


def _latex_text(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special["±"] = r"$\pm$"
    escaped = re.sub(r"[\\~^&%$#_{}±]", lambda m: special.get(m[0], "\\" + m[0]), text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


def markdown(book: Json) -> str:
    """The tables and their statements as Markdown, the verdicts of each document counted first."""
    papers: dict[str, list[str]] = {}
    for item in book["items"]:
        papers.setdefault(item["paper"], []).extend(_words(item))
    heads = [word for word in WORDS if any(word in words for words in papers.values())]
    parts = [f"# {len(book['items'])} tables and figures reproduced\n"]
    if _is_lab(book):
        parts.append(f"{LAB_NOTE}\n")
    if heads:
        counts = [[paper, *(str(w.count(head)) for head in heads)] for paper, w in papers.items()]
        parts += [*_markdown_table([["statements of", *heads], *counts]), f"\n{RULE}\n"]
    for item in book["items"]:
        parts += [f"## {item['name']}: {item['title']}\n", f"{item['source']}. {item['about']}\n"]
        parts += [f"{line}\n" for line in about(item)]
        if len(table := compact(item)) > 1:
            parts += [*_markdown_table(table), ""]
            if any(row["cells"] for row in item["rows"]):
                parts.append(f"{SHOWN}\n")
        parts += [f"{line}\n" for line in noise(item)]
        if listed := _listing(item):
            parts += ["```text", "\n".join(listed).lstrip("\n"), "```", ""]
        lines = [f"**{word}**: {claim}" for word, claim in _statements(item)]
        lines += [f"missing: {line}" for line in missing(item)]
        for row in item["rows"]:
            quoted = f"quoted from {row['source']}" if row["kind"] == "quote" else ""
            if remark := "; ".join(filter(None, (row["note"], quoted))):
                lines.append(f"{row['name']}: {remark}")
        parts += [*(f"- {line}" for line in (*lines, *item["needs"])), ""]
    return "\n".join(parts)


def _markdown_table(table: list[list[str]]) -> list[str]:
    head, *rows = ["| " + " | ".join(t.replace("|", r"\|") for t in row) + " |" for row in table]
    return [head, "| --- |" + " ---: |" * (len(table[0]) - 1), *rows]


def numbers(book: Json) -> str:
    """All numbers as JSON."""
    return json.dumps(book, indent=2, ensure_ascii=False) + "\n"


REPORTS = {".md": markdown, ".tex": latex, ".csv": cells_csv}
"""The forms of a report in a file, by its suffix."""


def _words(item: Json) -> list[str]:
    return [claim["verdict"]["word"] for claim in item["claims"]]


def _is_lab(book: Json) -> bool:
    return any(item["scale"] == "lab" and item["base"] for item in book["items"])


def _listing(item: Json) -> list[str]:
    """The nearest texts to each query, by row."""
    lines, listings = [], item["listings"]
    for i, (query, _) in enumerate(next(iter(listings.values()), ())):
        lines.append(f"\n{query}")
        for name, listing in listings.items():
            lines += [f"  {name}", *(f"    {score:.2f}  {hit}" for score, hit in listing[i][1])]
    return lines


def _statements(item: Json) -> Iterator[tuple[str, str]]:
    """The verdict on each statement, and the statement with the numbers that decide it."""
    for claim in item["claims"]:
        verdict = claim["verdict"]
        alone = len(claim["parts"]) == 1 and verdict["word"] != CHOSEN
        why = claim["parts"][0]["why"] if alone else verdict["why"]
        yield verdict["word"], f"{claim['text']}{f' ({why})' if why else ''}"


def about(item: Json) -> Iterator[str]:
    """Scale, base, time, and the reference of differences."""
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
    """Seed noise of the columns that statements are about; of all if there are none."""
    titles = {title for claim in item["claims"] for title in claim["columns"]}
    for column in item["columns"]:
        cells = [row["cells"].get(column["name"], {}) for row in item["rows"]]
        spreads = [cell["sd"] for cell in cells if "sd" in cell]
        if spreads and (not titles or column["title"] in titles):
            middle = number(median(spreads), column["forms"]["ours"])
            rows = "1 row" if len(spreads) == 1 else f"median of {len(spreads)} rows"
            yield f"A seed moves {column['title']} by {middle} (standard deviation, {rows})."


def missing(item: Json) -> Iterator[str]:
    """Rows that were not run, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    runnable = sum(row["kind"] not in ("quote", "facts", "derived") for row in item["rows"])
    for row in item["rows"]:
        if row["skipped"]:
            reasons.setdefault(row["skipped"], []).append(row["name"])
    for reason, names in reasons.items():
        rows = "; ".join(names)
        if len(names) > 1 and len(names) == runnable:
            rows = f"all {runnable} rows"
        elif len(names) > MOST_ROWS:
            rows = f"{'; '.join(names[: MOST_ROWS - 1])} and {len(names) - MOST_ROWS + 1} more rows"
        yield f"{rows}: {reason}"


def _wrapped(line: str, indent: str = "") -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
