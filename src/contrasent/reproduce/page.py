"""The book as one self-contained HTML page that can be sent to a colleague."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

from contrasent.files import atomic_file
from contrasent.pages import document
from contrasent.reproduce import tables
from contrasent.reproduce.entries import Book, ItemEntry
from contrasent.reproduce.figures import draw
from contrasent.reproduce.run import duration
from contrasent.reproduce.text import LAB_NOTE, about, resolved
from contrasent.reproduce.verdict import DEFINITIONS, RULE, WORDS

OWN_STYLE = """
:root { --good: #1b7a4e; --bad: #b23a26; }
@media (prefers-color-scheme: dark) { :root { --good: #57c795; --bad: #f0896f; } }
a { color: inherit; text-decoration-color: var(--faint); text-underline-offset: .2em; }
h2 { border-top: 1px solid var(--line); padding-top: 1.6rem; }
h2 small { color: var(--faint); font-weight: 400; }
.agrees { color: var(--good); font-weight: 600; } .differs { color: var(--bad); font-weight: 600; }
.equivalent { font-weight: 600; } .cannot-tell, .not-run { color: var(--faint); }
.rules dt { font-weight: 600; }
.wide { margin: .8rem 0; }
thead th { min-width: 3.5rem; vertical-align: bottom; overflow-wrap: normal; }
th small { display: block; color: var(--faint); font-weight: 400; }
th.said, td.said, .facts th, .listing th { text-align: left; }
td.said { min-width: 6.5rem; white-space: normal; }
td:first-child { white-space: normal; min-width: 7rem; max-width: 19rem; }
tr.group td { color: var(--faint); font-weight: 600; border-bottom: none; padding-top: .8rem;
  white-space: nowrap; max-width: none; }
.stacked td { line-height: 1.3; } .gap { padding-top: .25rem; }
.facts td { max-width: 16rem; } .contents td:first-child { max-width: 30rem; min-width: 12rem; }
.claims small, .claims details { display: block; } ul { padding-left: 1.2rem; }
@media (max-width: 40rem) {
  th, td { padding: .25rem .45rem; } td:first-child { max-width: 8.5rem; min-width: 6rem; }
  .contents td:first-child { min-width: 9rem; max-width: 11rem; } .listing td { min-width: 11rem; }
}
"""


def write_page(target: Path, found: Book) -> None:
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


def page(found: Book) -> str:
    """The page's text; see :func:`write_page`."""
    items = found["items"]
    names = items[0]["name"] if len(items) == 1 else f"{len(items)} tables and figures"
    title, heading = f"contrasent reproduces {names}", f"Reproduction of {names}"
    parts = [*_front(found), *(_item(item) for item in items)]
    return document(title, heading, parts, style=OWN_STYLE)


def _front(found: Book) -> Iterator[str]:
    run, items = found["run"], found["items"]
    if any(item["scale"] == "lab" for item in items):
        yield f"<p>{escape(LAB_NOTE)}</p>"
    codes = run["codes"]
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
    rows = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)
    yield f"<dl>{rows}</dl>"
    yield (
        "<p class=faint>A value is the mean over seeds ± their standard deviation; intervals are "
        "95 %: t intervals of the mean over seeds, or, of rows that no seed changes (seeds: -), "
        "bootstrap intervals over test items.</p>"
    )
    yield f"<p>{escape(RULE)}</p>"
    used = [scale for scale in DEFINITIONS if any(item["scale"] == scale for item in items)]
    for scale in [*used, ""]:
        where = f" (scale {scale})" if len(used) > 1 and scale else ""
        terms = "".join(
            f"<dt>{tables.word(term) if term in WORDS else term}{where}</dt><dd>{escape(text)}</dd>"
            for term, text in DEFINITIONS[scale].items()
        )
        yield f"<dl class=rules>{terms}</dl>"
    if len(items) > 1:
        yield _contents(items)


def _contents(items: list[ItemEntry]) -> str:
    """Every item with the verdicts on its statements and how much of it was run."""
    head = "".join(f"<th>{word}<small>statements</small></th>" for word in WORDS)
    lines, paper = "", ""
    for item in items:
        if item["paper"] != paper:
            paper = item["paper"]
            lines += tables.heading(paper)
        words = [claim["verdict"]["word"] for claim in item["claims"]]
        counts = "".join(
            f"<td><span class={word.replace(' ', '-')}>{words.count(word) or ''}</span></td>"
            for word in WORDS
        )
        wanted = [row for row in item["rows"] if row["kind"] in ("train", "encoder", "blocked")]
        made = sum(any("ours" in c for c in row["cells"].values()) for row in wanted)
        rows = f"{made} of {len(wanted)}" if wanted else ""
        link = f"<a href='#{escape(item['name'])}'>{escape(item['name'])}</a>"
        lines += f"<tr><td>{link} {escape(item['title'])}</td><td>{rows}</td>{counts}</tr>\n"
    return (
        f"<div class='wide contents'><table><thead><tr><th></th><th>rows run</th>{head}</tr>"
        f"</thead>\n<tbody>{lines}</tbody></table></div>"
    )


def _item(item: ItemEntry) -> str:
    how = "".join(f"<p class=faint>{escape(line)}</p>" for line in about(item))
    drawn = draw(item["figure"], item["name"])
    parts = [
        f"<h2 id='{escape(item['name'])}'>{escape(item['name'])}: {escape(item['title'])} "
        f"<small>{escape(item['source'])}</small></h2>",
        f"<p>{escape(item['about'])}</p>",
        how,
        tables.table(item),
        f"<figure>{drawn}</figure>" if drawn else "",
        *(f"<p class=faint>{escape(line)}</p>" for line in resolved(item)),
        tables.listings(item),
        tables.orders(item),
        tables.claims(item),
        tables.skipped(item),
    ]
    return "\n".join(filter(None, parts))
