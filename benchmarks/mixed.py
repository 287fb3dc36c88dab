"""Folders of mixed small files with questions about them, for :mod:`benchmarks.confidence`.

A line of ``mixed.tsv`` is a note, a mail or a row of a table, and a question that it answers in
other words; or a question that none of them answers.
"""

import csv
from collections.abc import Collection
from pathlib import Path

with Path(__file__).with_suffix(".tsv").open(encoding="utf-8", newline="") as _stream:
    LINES = [*csv.DictReader(_stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
FILES = [line for line in LINES if line["kind"] in ("note", "mail")]
ROWS = [line for line in LINES if line["kind"] == "row"]
FOREIGN = [line["question"] for line in LINES if line["kind"] == "foreign"]


def write_folder(folder: Path, chosen: Collection[int]) -> dict[str, str]:
    """Write some of the files, and the whole table; the questions, with the document of each."""
    asked = dict[str, str]()
    for number in chosen:
        line = FILES[number]
        name, text = f"note-{number}.{('md', 'txt')[number % 2]}", line["text"]
        if line["kind"] == "mail":
            head = f"From: a@example.org\nTo: b@example.org\nSubject: {line['subject']}\n"
            head += "Date: Mon, 3 Jun 2024 09:00:00 +0000\nContent-Type: text/plain\n"
            name, text = f"mail-{number}.eml", f"{head}\n{text}"
        (folder / name).write_text(f"{text}\n", "utf-8")
        asked[line["question"]] = name
    table = ["article,supplier,stock,note", *(line["text"] for line in ROWS)]
    (folder / "stock.csv").write_text("\n".join(table) + "\n", "utf-8")
    return asked | {line["question"]: f"stock.csv#{n}" for n, line in enumerate(ROWS, 1)}
