"""A report of items as one self-contained HTML page that can be sent to a colleague."""

from typing import Any

from contrasent.pages import render
from contrasent.reproduce.console import LAB_NOTE, about, missing, noise, orders
from contrasent.reproduce.figures import draw
from contrasent.reproduce.schema import Book, ItemEntry, RowEntry, cell_texts, duration
from contrasent.reproduce.summary import EXPLAINED, forests
from contrasent.reproduce.table_verdicts import DEFINITIONS, RULE, WORDS


def page(found: Book) -> str:
    """The page's text."""
    items = found["items"]
    names = items[0]["name"] if len(items) == 1 else f"{len(items)} tables and figures"
    scales = [scale for scale in DEFINITIONS if any(item["scale"] == scale for item in items)]
    return render(
        "reproduction.html",
        window=f" reproduces {names}",
        heading=f"Reproduction of {names}",
        lab_note=LAB_NOTE if any(item["scale"] == "lab" for item in items) else "",
        run=_run(found),
        rule=RULE,
        rules=[
            (term, f" (scale {scale})" if len(scales) > 1 and scale else "", text)
            for scale in [*scales, ""]
            for term, text in DEFINITIONS[scale].items()
        ],
        words=WORDS,
        items=[_item(item) for item in items],
        pictures=list(forests(found).values()) if len(items) > 1 else [],
        explained=EXPLAINED,
        cell_texts=cell_texts,
    )


def _run(found: Book) -> list[tuple[str, str]]:
    run, items, codes = found["run"], found["items"], found["run"]["codes"]
    facts = {
        "base": ", ".join(sorted({item["base"] for item in items if item["base"]})),
        "scale": "; ".join(sorted({f"{i['scale']}: {i['scale_title']}" for i in items})),
        "training runs": str(run["trained"] or ""),
        "computing time": duration(run["seconds"]) if run["seconds"] else "",
        "machine": "; ".join(run["machines"]),
        "precision": ", ".join(run["precisions"]),
        "versions": "; ".join(run["versions"]),
        "source of training": ", ".join(codes[:2])
        + (f" and {len(codes) - 2} other states of it" if len(codes) > 2 else ""),
    }
    return [(name, text) for name, text in facts.items() if text]


def _item(item: ItemEntry) -> dict[str, Any]:
    words = [claim["verdict"]["word"] for claim in item["claims"]]
    wanted = [row for row in item["rows"] if row["kind"] in ("train", "encoder", "blocked")]
    made = sum(any("ours" in c for c in row["cells"].values()) for row in wanted)
    rows = [row for row in item["rows"] if row["cells"] or row["facts"]]
    named = {name for row in rows for name in (*row["cells"], *row["facts"])}
    against = "the published value" if item["scale"] == "paper" else repr(item["reference"])
    notes = [f"\N{GREEK CAPITAL LETTER DELTA}: difference from {against}"]
    if any("also" in cell for row in rows for cell in row["cells"].values()):
        notes.append(f"In brackets: {item['also_source']}")
    return {
        **item,
        "made": f"{made} of {len(wanted)}" if wanted else "",
        "counts": [(word, words.count(word)) for word in WORDS],
        "lines": list(about(item)),
        "notes": notes if made else [],
        "shown": [column for column in item["columns"] if column["name"] in named],
        "tabled": [(row, _remark(item, row)) for row in rows],
        "drawn": draw(item["figure"], item["name"]),
        "more": [*noise(item), *orders(item)],
        "missing": list(missing(item)),
    }


def _remark(item: ItemEntry, row: RowEntry) -> str:
    remarks = [row["note"]]
    if row["kind"] == "quote":
        own = row["source"] == item["source"]
        remarks.append("quoted" if own else f"quoted from {row['source']}")
    return "; ".join(filter(None, remarks))
