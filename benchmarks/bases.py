"""Which statements of the papers hold on two bases, and which on one of them alone.

    python -m benchmarks.bases FIRST/results SECOND/results --target bases.md

Takes the folders of results that ``contrasent reproduce`` made with each base.
"""

import argparse
from pathlib import Path

from contrasent.files import write_text
from contrasent.reproduce.results import stored_book
from contrasent.reproduce.store import Json
from contrasent.reproduce.table_verdicts import AGREES, CHOSEN, DIFFERS, EQUIVALENT, OPEN, WORDS

DECIDED = (AGREES, DIFFERS, EQUIVALENT)


def page(first: Json, second: Json) -> str:
    """Markdown: the verdicts of both, counted, then the statements that either decides.

    Args:
        first: the book of one base.
        second: that of the other.
    """
    books = [_statements(book) for book in (first, second)]
    names = [next(i["base"] for i in book["items"] if i["base"]) for book in (first, second)]
    shared = [name for name in books[0] if name in books[1]]
    words = {name: tuple(book[name][1]["verdict"]["word"] for book in books) for name in shared}
    used = [w for w in WORDS if w != CHOSEN or any(w in pair for pair in words.values())]
    lines = [
        "# Two bases",
        "",
        f"{len(shared)} statements are in both books: of {names[0]} (down) and of {names[1]} "
        "(across).",
        "",
        "| | " + " | ".join(used) + " |",
        "| --- |" + " --- |" * len(used),
    ]
    for down in used:
        counts = [list(words.values()).count((down, across)) for across in used]
        if any(counts):
            lines.append(f"| **{down}** | " + " | ".join(str(n or "") for n in counts) + " |")
    both = [n for n in shared if words[n][0] in DECIDED and words[n][0] == words[n][1]]
    against = [n for n in shared if set(words[n]) <= set(DECIDED) and words[n][0] != words[n][1]]
    one = [n for n in shared if sum(word in DECIDED for word in words[n]) == 1]
    for title, chosen in (
        ("The same on both", both),
        ("Decided otherwise", against),
        ("Decided on one alone", one),
    ):
        if chosen:
            lines += ["", f"## {title} ({len(chosen)})", ""]
            lines += [f"| statement | {names[0]} | {names[1]} |", "| --- | --- | --- |"]
            for name in chosen:
                verdicts = " | ".join(_verdict(book[name][1]) for book in books)
                item, claim = books[0][name]
                lines.append(f"| {claim['text']} ({item['source']}) | {verdicts} |")
    return "\n".join(lines) + "\n"


def _statements(book: Json) -> dict[str, tuple[Json, Json]]:
    return {f"{i['name']}#{c['name']}": (i, c) for i in book["items"] for c in i["claims"]}


def _verdict(claim: Json) -> str:
    """The word, and the effect of the part that differs, else of the weakest, if any was run."""
    word = str(claim["verdict"]["word"])
    run = [part for part in claim["parts"] if "effect" in part]
    if not run:
        return word
    part = max(run, key=lambda part: (part["word"] == OPEN, part["p"] or 0.0))
    differing = [part for part in run if word == part["word"] == DIFFERS]
    part = min(differing, key=lambda part: part["p"] or 0.0, default=part)
    return f"{word} ({part['effect']['ours']:+.3g})"


def main() -> None:
    """Read two folders of results and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--target", type=Path, required=True)
    given = parser.parse_args()
    write_text(given.target, page(stored_book(given.first), stored_book(given.second)))


if __name__ == "__main__":
    main()
