"""The parts of an item as HTML: its table, what models found, its statements, what is missing."""

from collections import Counter
from html import escape

from contrasent.reproduce.cells import CellTexts, blocks, cell_texts, should_transpose
from contrasent.reproduce.entries import ColumnEntry, ItemEntry, RowEntry
from contrasent.reproduce.text import missing

FEW = 2
"""So many columns have their numbers side by side; more columns have them one below another."""

Line = tuple[str, CellTexts]
"""What stands before a line, as HTML, and the cell."""


def table(item: ItemEntry) -> str:
    """The document's table: facts, or published and measured numbers."""
    if any(row["facts"] for row in item["rows"]):
        return _facts(item)
    rows = [row for row in item["rows"] if row["cells"]]
    columns = [c for c in item["columns"] if any(c["name"] in row["cells"] for row in rows)]
    transposed = should_transpose(len(columns), len(rows))
    if len(columns) > FEW and not transposed:
        return _stacked(item, columns, rows)
    parts = []
    for title, block in blocks(item):
        if transposed:
            lines: list[Line | str] = [(escape(name), cell) for _, name, cell in block]
            parts.append(_wide(item, _name(item, block[0][0]), lines))
        else:
            own = [row for row, _, _ in block]
            lines = _grouped(own, [(_name(item, row), cell) for row, _, cell in block])
            parts.append(_wide(item, escape(title), lines))
    return "\n".join(parts)


def _facts(item: ItemEntry) -> str:
    head = "".join(f"<th>{escape(column['title'])}</th>" for column in item["columns"])
    names = [column["name"] for column in item["columns"]]
    lines = "".join(
        f"<tr><td>{_name(item, row)}</td>"
        + "".join(f"<td class=said>{escape(row['facts'].get(name, ''))}</td>" for name in names)
        + "</tr>\n"
        for row in item["rows"]
        if row["facts"]
    )
    return _framed(f"<th></th>{head}", lines, "facts")


def _wide(item: ItemEntry, title: str, lines: list[Line | str]) -> str:
    """A table with all of a cell's numbers side by side, one cell a line."""
    heads = {
        "paper": "paper",
        "also": escape(item["also_source"]),
        "ours": "ours",
        "interval": "95 %",
        "seeds": "seeds",
        "published": "paper's difference",
        "difference": "our difference",
        "word": "verdict",
    }
    cells = [line[1] for line in lines if not isinstance(line, str)]
    used = [key for key in heads if any(getattr(cell, key) for cell in cells)]
    head = "".join(f"<th{' class=said' * (k == 'word')}>{heads[k]}</th>" for k in used)
    body = ""
    for line in lines:
        if isinstance(line, str):
            body += line
            continue
        body += f"<tr><td>{line[0]}</td>{''.join(_td(line[1], key) for key in used)}</tr>\n"
    return _framed(f"<th>{title}</th>{head}", body)


def _grouped(rows: list[RowEntry], lines: list[Line]) -> list[Line | str]:
    """Lines of a table, with the headings that several rows share."""
    found: list[Line | str] = []
    group = ""
    for row, line in zip(rows, lines, strict=True):
        if row["group"] != group:
            group = row["group"]
            found.append(heading(group))
        found.append(line)
    return found


def heading(text: str) -> str:
    """A line of a table above the rows that belong together."""
    return f"<tr class=group><td>{escape(text)}</td></tr>\n"


def _td(cell: CellTexts, key: str) -> str:
    if key == "word":
        more = f"<small>{escape(cell.more)}</small>" if cell.more else ""
        return f"<td class=said>{word(cell.word)}{more}</td>"
    if key == "ours":
        return f"<td>{_mean(cell)}</td>"
    if key == "difference":
        return f"<td>{_minus(cell.difference)}<small>{_minus(cell.bounds)}</small></td>"
    return f"<td>{_minus(getattr(cell, key))}</td>"


def _stacked(item: ItemEntry, columns: list[ColumnEntry], rows: list[RowEntry]) -> str:
    """A table with all of a cell's numbers one below another."""
    texts = {(r["name"], c["name"]): _texts(r, c) for r in rows for c in columns}
    counts = Counter(cell.seeds for cell in texts.values() if cell.seeds not in ("", "-"))
    usual = counts.most_common(1)[0][0] if counts else ""
    head = "".join(f"<th>{escape(column['title'])}</th>" for column in columns)
    lines, group = "", ""
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            lines += heading(group)
        cells = "".join(_stack(texts[row["name"], c["name"]], usual) for c in columns)
        seeds = {texts[row["name"], c["name"]].seeds for c in columns} - {""}
        name = _name(item, row, "no seed changes it" if seeds == {"-"} else "")
        lines += f"<tr><td>{name}</td>{cells}</tr>\n"
    more = ", where nothing else is said" if len(counts) > 1 else ""
    notes = [f"{_seeds(usual)} a value{more}"] if usual else []
    if any(cell.also for cell in texts.values()):
        notes.append(f"In brackets: {item['also_source']}")
    if any(cell.difference for cell in texts.values()):
        against = "the published value" if item["scale"] == "paper" else repr(item["reference"])
        notes.append(f"\N{GREEK CAPITAL LETTER DELTA}: difference from {against}")
    note = f"<p class=faint>{escape('. '.join(notes))}.</p>" if notes else ""
    return note + _framed(f"<th></th>{head}", lines, "stacked")


def _stack(cell: CellTexts, usual: str) -> str:
    if cell == CellTexts():
        return "<td></td>"
    delta = "\N{GREEK CAPITAL LETTER DELTA}"
    measured = {
        _minus(cell.interval): cell.interval,
        _seeds(cell.seeds): cell.seeds not in ("", "-", usual),
        f"paper {_minus(cell.paper)}{f' ({_minus(cell.also)})' if cell.also else ''}": cell.paper,
    }
    compared = {
        f"{delta} {_minus(cell.gap)}": cell.difference,
        f"paper {delta} {_minus(cell.published)}": cell.published,
        f"{word(cell.word)}{f' ({escape(cell.more)})' if cell.more else ''}": cell.word,
    }
    first, last = (
        "".join(f"<small>{text}</small>" for text, there in lines.items() if there)
        for lines in (measured, compared)
    )
    return f"<td>{_mean(cell)}{first}{f'<div class=gap>{last}</div>' if last else ''}</td>"


def _seeds(count: str) -> str:
    return f"{count} seed{'' if count == '1' else 's'}"


def _mean(cell: CellTexts) -> str:
    if not cell.ours:
        return "–" if cell.word else ""
    spread = f" <span class=faint>± {cell.spread}</span>" if cell.spread else ""
    return f"<b>{_minus(cell.ours)}</b>{spread}"


def _texts(row: RowEntry, column: ColumnEntry) -> CellTexts:
    return cell_texts(row["cells"].get(column["name"]), column)


def _framed(head: str, lines: str, kind: str = "") -> str:
    return (
        f"<div class='wide {kind}'><table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _name(item: ItemEntry, row: RowEntry, *more: str) -> str:
    remarks = [row["note"], *more]
    if row["kind"] == "quote":
        own = row["source"] == item["source"]
        remarks.append("quoted" if own else f"quoted from {row['source']}")
    remark = "; ".join(filter(None, remarks))
    small = f"<small>{escape(remark)}</small>" if remark else ""
    return f"{escape(row['name'])}{small}"


def _minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen; a lone hyphen stays."""
    return text if text == "-" else text.replace("-", "\N{MINUS SIGN}")


def word(text: str) -> str:
    """A verdict, marked so that the page colours it."""
    return f"<span class={text.replace(' ', '-')}>{text}</span>" if text else ""


def listings(item: ItemEntry) -> str:
    """What each row's model finds for each query."""
    found = item["listings"]
    if not found:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in found)
    lines = ""
    for i, (query, _) in enumerate(next(iter(found.values()))):
        cells = "".join(
            "<td>" + "<br>".join(f"{s:.2f} {escape(text)}" for s, text in listing[i][1]) + "</td>"
            for listing in found.values()
        )
        lines += f"<tr><td>{escape(query)}</td>{cells}</tr>\n"
    return _framed(f"<th>query</th>{head}", lines, "listing")


def orders(item: ItemEntry) -> str:
    """Rank correlation of our rows' order with the published one."""
    if not item["order"]:
        return ""
    titles = {column["name"]: column["title"] for column in item["columns"]}
    several = len(titles) > 1
    values = ", ".join(
        f"{escape(titles[name]) + ' ' if several else ''}{_minus(format(o['correlation'], '.2f'))}"
        for name, o in item["order"].items()
    )
    rows = max(order["rows"] for order in item["order"].values())
    return f"<p>Rank correlation of the order of {rows} rows with the published one: {values}.</p>"


def claims(item: ItemEntry) -> str:
    """The document's statements with our verdicts; what they rest on is folded away."""
    lines = ""
    for claim in item["claims"]:
        whole, parts = claim["verdict"], claim["parts"]
        line = f"{word(whole['word'])}: {escape(claim['text'])}"
        if len(parts) == 1:
            only = parts[0]
            named = f"{only['text']}: " if only["why"] else ""
            line += f"<small class=faint>{escape(named)}{_minus(escape(only['why']))}</small>"
        else:
            inner = "".join(
                f"<li>{word(part['word'])}: {escape(part['text'])} "
                f"<small class=faint>{_minus(escape(part['why']))}</small></li>"
                for part in parts
            )
            line += f"<details><summary>{escape(whole['why'])}</summary><ul>{inner}</ul></details>"
        lines += f"<li>{line}</li>\n"
    return f"<ul class=claims>{lines}</ul>" if lines else ""


def skipped(item: ItemEntry) -> str:
    """What was not run and why."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in missing(item))
    return f"<p class=faint>Missing:</p><ul class=faint>{lines}</ul>" if lines else ""
