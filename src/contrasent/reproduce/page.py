"""The book as one self-contained HTML page that can be sent to a colleague."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from contrasent.evaluate.page import STYLE
from contrasent.files import atomic_file
from contrasent.reproduce.figures import draw
from contrasent.reproduce.run import duration
from contrasent.reproduce.text import LAB_NOTE, cell_texts
from contrasent.reproduce.verdict import ABSENT, AGREES, DIFFERS, OPEN

WORDS = (AGREES, DIFFERS, OPEN, ABSENT)
OWN_STYLE = """
.agrees { color: #2f9e6e; } .differs { color: #c9533f; font-weight: 600; }
.not-decidable, .not-run { color: var(--faint); }
tr.group td { color: var(--faint); font-weight: 600; border-bottom: none; padding-top: .8rem; }
h2 small { color: var(--faint); font-weight: 400; } nav { columns: 2 22rem; font-size: 14px; }
th:last-child { text-align: left; }
td.said { text-align: left; white-space: normal; min-width: 11rem; }
"""


def write_page(target: Path, found: dict[str, Any]) -> None:
    """Write a book, atomically.

    Args:
        target: the file.
        found: what ``report.book`` gives.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written.
    """
    text = page(found)
    with atomic_file(target) as stream:
        stream.write(text)


def page(found: dict[str, Any]) -> str:
    """The page's text; see :func:`write_page`."""
    items = found["items"]
    names = items[0]["name"] if len(items) == 1 else f"{len(items)} tables and figures"
    return (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>contrasent reproduces {escape(names)}</title>\n"
        f"<style>{STYLE}{OWN_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Reproduction of {escape(names)}</h1>\n"
        + "\n".join([*_front(found), *(_item(item) for item in items)])
        + "\n</body>\n</html>\n"
    )


def _front(found: dict[str, Any]) -> Iterator[str]:
    run, items = found["run"], found["items"]
    if any(item["scale"] == "lab" for item in items):
        yield f"<p>{escape(LAB_NOTE)}</p>"
    facts = {
        "machine": "; ".join(run["machines"]),
        "precision": ", ".join(run["precisions"]),
        "versions": "; ".join(run["versions"]),
        "source of training": ", ".join(run["codes"]),
        "computing time": duration(run["seconds"]),
        "base": ", ".join(sorted({item["base"] for item in items if item["base"]})),
    }
    rows = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)
    yield f"<dl>{rows}</dl>"
    yield (
        "<p class=faint>Intervals are 95 % t intervals of the mean over seeds. A direction agrees "
        "or differs when the interval of the difference of two rows (Welch, over seeds) leaves "
        "zero out; all else is not decidable with so many seeds.</p>"
    )
    if len(items) > 1:
        yield f"<nav><ul>{''.join(_entry(item) for item in items)}</ul></nav>"


def _entry(item: dict[str, Any]) -> str:
    words = [claim["verdict"]["word"] for claim in item["claims"]]
    counts = ", ".join(
        f"<span class={_class(w)}>{words.count(w)} {w}</span>" for w in WORDS if w in words
    )
    said = f" – {counts}" if counts else ""
    title = escape(item["title"])
    return f"<li><a href='#{escape(item['name'])}'>{escape(item['name'])}</a> {title}{said}</li>"


def _item(item: dict[str, Any]) -> str:
    parts = [
        f"<h2 id='{escape(item['name'])}'>{escape(item['name'])}: {escape(item['title'])} "
        f"<small>{escape(item['source'])}</small></h2>",
        f"<p>{escape(item['about'])}</p>",
        f"<p class=faint>{escape(_how(item))}</p>",
    ]
    drawn = draw(item["figure"])
    body = [_table(item), f"<figure>{drawn}</figure>" if drawn else "", _listings(item)]
    return "\n".join(filter(None, [*parts, *body, _orders(item), _claims(item), _skipped(item)]))


def _how(item: dict[str, Any]) -> str:
    run = item["run"]
    if not run["seconds"]:
        return item["scale_note"] or ""
    trained = f"{run['trained']} training runs, " if run["trained"] else ""
    changes = "".join(f", {k} {v}" for k, v in item["changes"].items())
    told = f"Scale {item['scale']}{changes}; {trained}{duration(run['seconds'])}."
    if item["scale"] == "lab" and item["reference"]:
        told += f" A row's verdict is about its difference from {item['reference']!r}."
    return f"{told} {item['scale_note']}".strip()


def _table(item: dict[str, Any]) -> str:
    if not any(row["cells"] or row["facts"] for row in item["rows"]):
        return ""
    several = len(item["columns"]) > 1
    head = "<th></th>"
    for column in item["columns"]:
        title = escape(column["title"])
        facts = all(column["name"] in r["facts"] for r in item["rows"] if r["facts"])
        if facts and any(r["facts"] for r in item["rows"]):
            head += f"<th>{title}</th>"
            continue
        said = f"{title}: " if several else ""
        head += f"<th>{said}paper</th><th>{said}ours</th><th>verdict</th>"
    lines = [f"<thead><tr>{head}</tr></thead>\n<tbody>"]
    group = ""
    for row in item["rows"]:
        if row["group"] != group:
            group = row["group"]
            lines.append(f"<tr class=group><td>{escape(group)}</td></tr>")
        lines.append(f"<tr><td>{_name(row)}</td>{_cells(item, row)}</tr>")
    return f"<div class=wide><table>{''.join(lines)}</tbody></table></div>"


def _name(row: dict[str, Any]) -> str:
    remarks = [row["note"]]
    if row["source"]:
        remarks.append(f"quoted from {row['source']}")
    remark = "; ".join(filter(None, remarks))
    small = f"<small>{escape(remark)}</small>" if remark else ""
    return f"{escape(row['name'])}{small}"


def _cells(item: dict[str, Any], row: dict[str, Any]) -> str:
    found = ""
    for column in item["columns"]:
        name = column["name"]
        if row["facts"]:
            found += f"<td class=said>{escape(row['facts'].get(name, ''))}</td>"
            continue
        cell = row["cells"].get(name)
        if cell is None:
            found += "<td></td><td></td><td></td>"
            continue
        paper, ours, interval, seeds, difference, _ = cell_texts(cell)
        also = f"<small>{item['also_source']}: {cell['also']:g}</small>" if "also" in cell else ""
        small = ", ".join(filter(None, [interval, _seeds(seeds)]))
        mine = f"{ours}<small>{small}</small>" if ours else "–"
        found += f"<td>{paper}{also}</td><td>{mine}</td>{_verdict(cell, difference)}"
    return found


def _seeds(count: str) -> str:
    return f"{count} seed{'' if count == '1' else 's'}" if count.isdigit() else ""


def _verdict(cell: dict[str, Any], difference: str) -> str:
    said = cell.get("verdict")
    if said is None:
        return "<td></td>"
    why = said["why"] or difference
    word = f"<span class={_class(said['word'])}>{said['word']}</span>"
    return f"<td class=said>{word}<small>{escape(why)}</small></td>"


def _class(word: str) -> str:
    return word.replace(" ", "-")


def _listings(item: dict[str, Any]) -> str:
    found = item["listings"]
    if not found:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in found)
    lines = [f"<thead><tr><th>query</th>{head}</tr></thead>\n<tbody>"]
    for i, (query, _) in enumerate(next(iter(found.values()))):
        cells = "".join(
            "<td>" + "<br>".join(f"{s:.2f} {escape(text)}" for s, text in listing[i][1]) + "</td>"
            for listing in found.values()
        )
        lines.append(f"<tr><td>{escape(query)}</td>{cells}</tr>")
    return f"<div class='wide listing'><table>{''.join(lines)}</tbody></table></div>"


def _orders(item: dict[str, Any]) -> str:
    titles = {column["name"]: column["title"] for column in item["columns"]}
    return "".join(
        f"<p>{escape(titles[name])}: rank correlation of the order of {order['rows']} rows with "
        f"the published one {order['correlation']:.2f}.</p>"
        for name, order in item["order"].items()
    )


def _claims(item: dict[str, Any]) -> str:
    lines = []
    for claim in item["claims"]:
        said = claim["verdict"]
        parts = "".join(
            f"<li><span class={_class(part['word'])}>{part['word']}</span>: "
            f"{escape(part['text'])} <small class=faint>{escape(part['why'])}</small></li>"
            for part in claim["parts"]
        )
        lines.append(
            f"<li><span class={_class(said['word'])}>{said['word']}</span>: "
            f"{escape(claim['text'])}<details><summary>{escape(said['why'])}</summary>"
            f"<ul>{parts}</ul></details></li>"
        )
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _skipped(item: dict[str, Any]) -> str:
    rows = [row for row in item["rows"] if row["skipped"]]
    needs = [f"<li>{escape(need)}</li>" for need in item["needs"]]
    if not rows and not needs:
        return ""
    lines = [f"<li>{escape(row['name'])}: {escape(row['skipped'])}</li>" for row in rows]
    title = f"{len(rows)} rows are missing, or not all of their seeds are there"
    return f"<details><summary>{title}</summary><ul>{''.join([*needs, *lines])}</ul></details>"
