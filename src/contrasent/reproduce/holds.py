"""The first page of a book: what holds, what does not, what cannot be told, and what would help."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasent.evaluate import pictures
from contrasent.files import write_text
from contrasent.pages import minus
from contrasent.reproduce.cells import between, number, p_value
from contrasent.reproduce.entries import Book, ClaimEntry, Effect, ItemEntry, VerdictEntry
from contrasent.reproduce.items import MARGIN
from contrasent.reproduce.text import LAB_NOTE, still_needed
from contrasent.reproduce.verdict import ABSENT, AGREES, DIFFERS, EQUIVALENT, OPEN, RULE, WORDS

HEADINGS = {
    AGREES: "What holds",
    DIFFERS: "What does not hold",
    EQUIVALENT: "Where there is no difference that matters",
    OPEN: "What cannot be told",
    ABSENT: "What was not run",
}
COUNTED = {
    AGREES: "hold",
    DIFFERS: "do not",
    EQUIVALENT: "with no difference that matters",
    OPEN: "cannot be told",
    ABSENT: "were not run",
}
COLOURS = {AGREES: "#2f9e6e", DIFFERS: "#c9533f", EQUIVALENT: "#3d7edb", OPEN: "#8a8f98"}
LINEAR = 1.0
"""Points up to which the picture's axis is even, and logarithmic beyond; of other units a tenth."""

TICKS = (-10.0, -3.0, -1.0, -MARGIN, MARGIN, 1.0, 3.0, 10.0)

MANY = 60
"""Statements of more than one document; above it each has a picture of its own."""

LETTERS = 74
"""Of a statement, beside its line in the picture."""

NEAREST = 3
"""Decided statements that are named as the nearest to falling."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a document and the part that its verdict hangs on.

    Attributes:
        part: the part that differs, else the weakest one; None if none was run.
    """

    item: ItemEntry
    claim: ClaimEntry
    part: VerdictEntry | None

    @property
    def word(self) -> str:
        """The verdict."""
        return self.claim["verdict"]["word"]

    @property
    def p(self) -> float | None:
        """Of :attr:`part`, adjusted for the table."""
        return self.part["p"] if self.part is not None else None

    @property
    def effects(self) -> list[Effect]:
        """Of all parts that were run, that of :attr:`part` first."""
        own = [self.part] if self.part is not None else []
        others = [part for part in self.claim["parts"] if part is not self.part]
        return [part["effect"] for part in (*own, *others) if "effect" in part]


def statements(found: Book) -> list[Statement]:
    """All statements of a book with their own comparisons, in its order."""
    return [
        Statement(item, claim, _deciding(claim))
        for item in found["items"]
        for claim in item["claims"]
    ]


def _deciding(claim: ClaimEntry) -> VerdictEntry | None:
    run = [part for part in claim["parts"] if "effect" in part]
    differing = [part for part in run if part["word"] == DIFFERS]
    if differing:
        return min(differing, key=lambda part: part["p"] or 0.0)
    return max(run, key=lambda part: (part["word"] == OPEN, part["p"] or 0.0), default=None)


def page(found: Book, pictures: Mapping[str, str], book: str = "") -> str:
    """The page as Markdown."""
    every = statements(found)
    scales = {item["scale"] for item in found["items"]}
    bases = sorted({item["base"] for item in found["items"] if item["base"]})
    seeds = sorted({item["run"].get("seeds", 0) for item in found["items"]} - {0})
    many = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds))
    lines = [
        "# What holds",
        "",
        f"{len(every)} statements: {_counted(every)}."
        + (f" {LAB_NOTE}" if "lab" in scales else "")
        + (f" Base: {', '.join(bases)}." if bases else "")
        + (f" Seeds of a row: {many}." if many else "")
        + (f" All tables: [{Path(book).name}]({book})." if book else ""),
        "",
    ]
    explained = (
        "A line is a statement, and what lies to the right of zero speaks for it. Thick: the "
        "comparison that its verdict hangs on, with its 95 % interval; thin: its others. Within "
        f"the band differences do not matter. {RULE}"
    )
    if "" in pictures:
        lines += [
            f"![Every statement, its effect and 95 % interval]({pictures['']})",
            "",
            explained,
        ]
    else:
        lines += _by_document(every)
    for word in WORDS:
        own = [one for one in every if one.word == word]
        if own:
            lines += ["", f"## {HEADINGS[word]} ({len(own)})"]
            for why, alike in _by_want(own).items() if word == ABSENT else [("", own)]:
                lines += ["", *([f"{why}:", ""] if why else []), *(f"- {_line(o)}" for o in alike)]
    if "" not in pictures:
        lines += ["", "## Every effect", "", explained]
        for paper, file in pictures.items():
            alt = f"Every statement of {paper}, its effect and 95 % interval"
            lines += ["", f"### {_sentence(paper)}", "", f"![{alt}]({file})"]
    lines += ["", "## What would change our minds", ""]
    lines += [f"- {line}" for line in _minds(found, every)]
    return "\n".join(lines) + "\n"


def write(target: Path, found: Book, book: str = "") -> list[Path]:
    """Write the page, and its picture beside it."""
    folders = {item["paper"]: item["name"].partition(":")[0] for item in found["items"]}
    drawn = forests(found) or {"": "<svg xmlns='http://www.w3.org/2000/svg'/>"}
    files = {
        paper: target.with_name(f"{target.stem}{f'-{folders[paper]}' if paper else ''}.svg")
        for paper in drawn
    }
    for paper, picture in drawn.items():
        # On a page of its own the picture knows no text colour: it brings paper and ink.
        ink = '<svg style="color:#1c2127;background:#fff" '
        write_text(files[paper], picture.replace("<svg ", ink, 1))
    write_text(target, page(found, {paper: file.name for paper, file in files.items()}, book))
    return [target, *files.values()]


def _by_document(every: list[Statement]) -> list[str]:
    """A table: verdicts, counted for each document."""
    heads = [word for word in WORDS if any(one.word == word for one in every)]
    lines = ["| document | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for paper in dict.fromkeys(one.item["paper"] for one in every):
        own = [one.word for one in every if one.item["paper"] == paper]
        counts = " | ".join(str(own.count(word)) for word in heads)
        lines.append(f"| {_sentence(paper)} | {counts} |")
    return lines


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counted(every: list[Statement]) -> str:
    words = [one.word for one in every]
    return ", ".join(f"{words.count(word)} {COUNTED[word]}" for word in WORDS if word in words)


def _line(one: Statement) -> str:
    text = f"{one.claim['text']} ({one.item['source']}"
    if one.part is None or "effect" not in one.part:
        return f"{text})"
    text += f"; {_effect(one.part['effect'])}"
    p = one.part["p"]
    text += f", {p_value(p)}" if p is not None else ""
    parts = len(one.claim["parts"])
    text += f"; {one.claim['verdict']['why']}" if parts > 1 else ""
    return f"{text})"


def _effect(effect: Effect) -> str:
    form = ".2f" if effect["points"] else ".3f"
    text = number(effect["ours"], form, signed=True)
    if effect["low"] is not None and effect["high"] is not None:
        text += f" {between(effect['low'], effect['high'], form, signed=True)}"
    return text


def _minds(found: Book, every: list[Statement]) -> Iterator[str]:
    """What could turn verdicts: more seeds, other bases and lengths, what was not run."""
    decided = [one for one in every if one.word in (AGREES, DIFFERS) and one.part is not None]
    by_p = sorted(decided, key=lambda one: -(one.p or 0.0))
    nearest = [
        f"{one.claim['text'].rstrip('.')} ({p_value(one.p or 0.0)})" for one in by_p[:NEAREST]
    ]
    if nearest:
        yield (
            "Further seeds could turn what is decided, in one table of twenty at most. The "
            f"nearest to it: {'; '.join(nearest)}."
        )
    needed = [(one, one.claim["needed"]) for one in every if "needed" in one.claim]
    for one, more in sorted(needed, key=lambda own: own[1]["hours"]):
        yield f"{one.claim['text']} {still_needed(more)}"
    hopeless = [one for one in every if one.word == OPEN and one.item["sequential"]]
    if left := len(hopeless) - len(needed):
        yield f"{left} more need rows that are missing, or more seeds than can be promised."
    smallest = {one.item["name"]: _least(one) for one in every if one.word == OPEN}
    known = [f"{name} {least:.2g}" for name, least in smallest.items() if least is not None]
    if known:
        yield (
            "More seeds, of what cannot be told. With those that were run a table tells "
            f"differences from so much on: {', '.join(known)}. `--decide` adds seeds where they "
            "decide most."
        )
    scales = sorted({i["scale_title"] for i in found["items"] if i["base"]})
    if scales:
        yield (
            f"All of it is of {'; '.join(scales)}. Another base, or a longer training, may say "
            "otherwise: statements about either are statements about these."
        )
    if absent := sum(one.word == ABSENT for one in every):
        yield f"What the {absent} that were not run need stands above them."


def _by_want(absent: list[Statement]) -> dict[str, list[Statement]]:
    """Statements that were not run, by what their rows say that they need."""
    found: dict[str, list[Statement]] = {}
    for one in absent:
        texts = [part["text"] for part in one.claim["parts"] if part["word"] == ABSENT]
        rows = [r for r in one.item["rows"] if r["skipped"] and any(r["name"] in t for t in texts)]
        wanted = dict.fromkeys(want for row in rows for want in row["skipped"].split("; "))
        why = "; ".join(wanted) or "other tables, which were not run"
        found.setdefault(_sentence(why), []).append(one)
    return found


def _least(one: Statement) -> float | None:
    """The difference that the seeds of a statement's table tell, in its first column."""
    titles = {column["name"]: column["title"] for column in one.item["columns"]}
    shown = [
        r for name, r in one.item["resolution"].items() if titles[name] in one.claim["columns"]
    ]
    return None if one.item["sequential"] or not shown else shown[0]["least"]


def forests(found: Book) -> dict[str, str]:
    """All statements with their effects and intervals, as SVG."""
    every = [one for one in statements(found) if one.effects]
    papers = list(dict.fromkeys(one.item["paper"] for one in every))
    if len(every) <= MANY or len(papers) < 2:
        papers = [""]
    drawn = {}
    for place, paper in enumerate(papers):
        own = [one for one in every if paper in ("", one.item["paper"])]
        if own:
            drawn[paper] = _forest(own, f"holds{place}" if place else "holds")
    return drawn


def _forest(every: list[Statement], name: str) -> str:
    panels = [[one for one in every if one.effects[0]["points"] is unit] for unit in (True, False)]
    panels = [panel for panel in panels if panel]
    heights = [len(panel) + 2 for panel in panels]
    with pictures.canvas(0.19 * sum(heights) + 0.6, len(panels), ratios=heights) as (figure, grid):
        for axes, panel in zip([grid] if len(panels) == 1 else list(grid), panels, strict=True):
            _panel(axes, panel)
        for word in COLOURS:
            if any(one.word == word for one in every):
                figure.axes[0].plot([], [], "o", color=COLOURS[word], markersize=5, label=word)
        pictures.add_legend(figure, figure.axes[0])
        return pictures.as_svg(figure, name)


def _panel(axes: Any, panel: list[Statement]) -> None:
    points = panel[0].effects[0]["points"]
    for place, one in enumerate(panel):
        colour = COLOURS[one.word]
        for k, effect in enumerate(one.effects):
            ends = effect["low"], effect["high"]
            thick = not k
            if None not in ends:
                axes.plot(
                    ends,
                    [place] * 2,
                    color=colour,
                    linewidth=2.2 if thick else 0.7,
                    alpha=1 if thick else 0.6,
                )
            axes.plot(
                effect["ours"],
                place,
                "o" if thick else "|",
                color=colour,
                markersize=5 if thick else 4,
            )
    axes.axvline(0, color=pictures.INK, linewidth=0.8)
    axes.set_xscale("symlog", linthresh=LINEAR if points else LINEAR / 10)
    if points:
        axes.axvspan(-MARGIN, MARGIN, color=pictures.INK, alpha=0.08, linewidth=0)
        left, right = axes.get_xlim()
        ticks = [tick for tick in TICKS if left <= tick <= right]
        axes.set_xticks(ticks, [minus(f"{tick:g}") for tick in ticks])
    texts = [f"{one.item['name']}  {one.claim['text'].rstrip('.')}" for one in panel]
    axes.set_yticks(
        range(len(panel)), [t if len(t) <= LETTERS else f"{t[: LETTERS - 1]}\u2026" for t in texts]
    )
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.set_ylim(len(panel) - 0.4, -0.6)
    axes.set_xlabel(
        "difference in the statement's favour" + (", points" if points else ", in its own unit")
    )
