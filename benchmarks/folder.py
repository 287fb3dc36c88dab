"""A folder of 80 kinds of files and 20 questions whose answers are known.

    python -m benchmarks.folder [--keep FOLDER]

Printed: for each question the place of the file that answers it among the documents found, and how
many stand in the first three. It ends with 1 where fewer than 18 do. Searched is as 'contrasent
index' and 'contrasent search' do by default, with the installed bases.
"""

import argparse
import gzip
import json
import sys
import tempfile
from pathlib import Path

DOCUMENTS = Path(__file__).resolve().parents[1] / "tests" / "documents"
FEWEST = 18  # answers in the first three
PLACES = 3

CODE = {
    "js": "// Debounces the search box.\nfunction debounce(call, wait) {\n  return call;\n}",
    "ts": "// Formats a price in kroner.\nexport function price(value: number) {\n}",
    "tsx": "// The sign-in dialogue.\nexport function SignIn() {\n  return <form/>;\n}",
    "java": "/** Parses flight schedules. */\npublic class ScheduleParser {\n}",
    "kt": "// Keeps the route of a bicycle ride.\nclass RideRecorder {\n}",
    "c": "/* Reads the thermometer over I2C. */\nint read_thermometer(int bus) {\n  return 0;\n}",
    "cpp": "// A ring buffer of audio frames.\nclass AudioRing {\n};",
    "h": "/* The pins of the board. */\n#define LED_PIN 13",
    "cs": "// Prints shipping labels.\npublic class LabelPrinter {\n}",
    "go": "// Retry calls with exponential backoff.\nfunc Retry(n int) error {\n\treturn nil\n}",
    "rs": "/// Compresses images of receipts.\nfn shrink(data: &[u8]) -> Vec<u8> {\n    vec![]\n}",
    "rb": "# Sends birthday greetings.\ndef greet(person)\nend",
    "php": "<?php\n// Validates coupon codes.\nfunction coupon($code) {\n}",
    "swift": "// Draws the weather icon.\nfunc icon() {\n}",
    "scala": "// Folds invoices into totals.\nobject Totals {\n}",
    "pl": "# Rotates the mail logs.\nsub rotate {\n}",
    "lua": "-- Moves the enemy ships.\nfunction ships()\nend",
    "r": "# Fits the growth curve of larvae.\nfit <- function(x) x",
    "jl": "# Solves the heat equation.\nfunction heat(u)\nend",
    "sh": "# Backs up the photo library to the attic disk.\nrsync -a photos/ /mnt/attic",
    "ps1": "# Maps the printers of the second floor.\nAdd-Printer",
    "sql": "-- Members who have not paid the fee.\nCREATE VIEW unpaid AS SELECT 1;",
    "css": "/* The dark theme. */\nbody {\n  color: white;\n}",
    "dart": "// The shopping basket.\nclass Basket {\n}",
    "ex": "# Counts votes.\ndefmodule Votes do\nend",
    "hs": "-- Parses chess moves.\nmove :: String -> Int\nmove _ = 1",
    "vue": "<!-- The booking calendar. -->\n<template></template>",
    "proto": "// A reading of the water meter.\nmessage Reading {\n}",
    "tf": "# The bucket of the archive.\nresource \"bucket\" \"archive\" {\n}",
}  # fmt: skip
TEXT = {
    "handbook.md": "---\ntitle: Handbook\nauthor: Ann Lee\ntags: [rules]\n---\n# Travel\n\nTrips "
    "by train are booked in second class.\n\n# Pets\n\nDogs may come to the office on Fridays.\n",
    "more.markdown": "# Parking\n\nBicycles stand behind the bakery.\n",
    "widget.mdx": "# Widgets\n\nA widget shows the weather.\n",
    "soup.txt": "Boil the lentils for forty minutes.\n\nAdd the vinegar at the very end.\n",
    "plain.text": "The piano was tuned in May.\n\nIt sounds well.\n",
    "server.log": "10:00 started\n\n10:05 the cooling fan of rack seven failed\n\n10:06 replaced\n",
    "garden.rst": "Garden\n======\n\nRoses want sun and a deep soil.\n",
    "choir.html": "<h1>Choir</h1><p>The choir rehearses on Tuesday evenings in the chapel.</p>",
    "club.htm": "<h1>Chess</h1><p>The chess club meets in the library.</p>",
    "faq.xhtml": "<html><body><p>Keys are left with the neighbour.</p></body></html>",
    "plan.org": "* Harvest\n\n** Apples\n\nApples are picked in the last week of September.\n",
    "manual.adoc": "= Oven\n\n== Cleaning\n\nThe oven cleans itself at 480 degrees.\n",
    "thesis.tex": "\\title{Glaciers}\\begin{document}\\section{Melt} The Rhone glacier loses eight "
    "metres of ice a year.\\end{document}",
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\nThe treasure lies under the lighthouse.\n",
    "talk.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nWelcome to the talk about bees.\n",
    "deploy.yaml": "service:\n  name: billing\n  port: 8443\n\nreplicas: 3\n",
    "site.yml": "theme: ocean\nlanguage: en\n",
    "tool.toml": "[build]\ntarget = 'arm64'\n",
    "app.ini": "[window]\nwidth = 1280\n",
    "net.cfg": "gateway = 10.0.0.1\n",
    "nginx.conf": "client_max_body_size 40m;\n",
    "app.properties": "cache.minutes=15\n",
    "books.bib": "@book{eco, title={The Name of the Rose}, author={Eco, Umberto}}\n",
    "dentist.ics": "BEGIN:VEVENT\nSUMMARY:Dentist, Doctor Weiss\nDTSTART:20240611\nEND:VEVENT\n",
    "card.vcf": "BEGIN:VCARD\nFN:Paul Klein\nTEL:555-7788\nEND:VCARD\n",
    "species.xml": "<list><bird><name>Kestrel</name><nest>church tower</nest></bird></list>",
    "package.json": '{"name": "kite", "license": "MIT"}',
    "rows.json": '[{"id": 1, "text": "The museum is closed on Mondays."}]',
    "reviews.jsonl": '{"_id": "r1", "title": "Kettle", "text": "It boils in three minutes."}\n',
    "more.ndjson": '{"text": "The tent weighs two kilograms."}\n',
    "staff.csv": "name;city;phone\nBo Smith;Oslo;555-0100\nCy Young;Rome;555-0199\n",
    "tides.tsv": "port\thigh water\nBrest\t06:12\nDover\t11:48\n",
    "Bruecke.md": "# Brücke\n\nDie Brücke ist wegen des Hochwassers bis Ostern gesperrt.\n",
    "notes.xyz": "The spare key hangs behind the clock.\n",
    "README": "This folder holds all that the club knows.\n",
    "tool.py": '"""Tools."""\n\n\ndef leap_year(year):\n    """Whether a year has 366 days."""\n',
}  # fmt: skip
QUESTIONS = {
    "on which day may dogs come to the office": "handbook.md",
    "how long do the lentils boil": "soup.txt",
    "which fan failed": "server.log",
    "when does the choir rehearse": "choir.html",
    "when are apples picked": "plan.org",
    "at what temperature does the oven clean itself": "manual.adoc",
    "how fast does the Rhone glacier melt": "thesis.tex",
    "where is the treasure": "film.srt",
    "port of the billing service": "deploy.yaml",
    "where do kestrels nest": "species.xml",
    "phone number of Cy Young": "staff.csv",
    "high water in Dover": "tides.tsv",
    "who is responsible for the boiler room": "duty.xlsx",
    "retry with exponential backoff": "tool.go",
    "which members have not paid": "tool.sql",
    "how many geese did Ann count": "ducks.eml",
    "what does the bread for the ducks cost": "ducks.eml",
    "when does the newsletter go out": "list.mbox",
    "the meeting about the new roof": "roof.msg",
    "wie lange ist die Brücke gesperrt": "Bruecke.md",
}
"""Questions, and the file that answers each."""


def write_folder(folder: Path) -> int:
    """Write the files; the number of their kinds."""
    sys.path.insert(0, str(DOCUMENTS))
    import sample_files as made

    from benchmarks.attack.documents import parquet

    head = "From: Ann Lee <ann@x.org>\nTo: Bo <bo@x.org>\nDate: Tue, 5 Mar 2024 10:00:00 +0000\n"
    duty = [["room", "person"], ["boiler room", "Fatima"], ["roof", "Jonas"]]
    cells = [{"cell_type": "markdown", "source": ["# Bees\n", "A hive holds forty thousand bees."]}]
    files: dict[str, str | bytes] = {
        **TEXT,
        **{f"tool.{suffix}": f"{text}\n" for suffix, text in CODE.items()},
        "bees.ipynb": json.dumps({"cells": cells}),
        "duty.xlsx": made.xlsx({"Duty": duty}),
        "shifts.ods": made.ods([["day", "cook"], ["Monday", "Ines"], ["Sunday", "Olaf"]]),
        "river.docx": made.docx(),
        "river.pptx": made.pptx(),
        "river.pdf": made.paged(),
        "river.epub": made.epub(),
        "river.odt": made.odt(),
        "letter.rtf": r"{\rtf1\ansi The landlord pays for the chimney.\par}",
        "facts.parquet": parquet([{"id": "1", "text": "The bell weighs nine tons."}]),
        "old.zip": made.zipped({"letters/a.md": "# Letter\n\nThe harbour freezes in January.\n"}),
        "packed.md.gz": gzip.compress(b"# Cellar\n\nThe wine is in the cellar.\n"),
        "ducks.eml": made.EML.replace("Forty ducks", "Ann counted seven geese and forty ducks"),
        "list.mbox": f"From a\n{head}Subject: News\n\nThe newsletter goes out on Sunday.\n",
        "roof.msg": made.msg("Roof", "The meeting about the new roof is at noon."),
        "blank.md": "", "passwords.txt": "swordfish", "picture.png": bytes(range(256)),
    }  # fmt: skip
    for name, content in files.items():
        if isinstance(content, str):
            content = content.encode("latin-1" if name == "ducks.eml" else "utf-8")
        (folder / name).write_bytes(content)
    return len({name.partition(".")[2] for name in files})


def main() -> int:
    """Make the folder, index it, ask."""
    from contrasent import index_folder, search_index

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder to leave the files and the index in")
    with tempfile.TemporaryDirectory() as place:
        home = parser.parse_args().keep or Path(place)
        source, index = home / "files", home / "index"
        source.mkdir(parents=True)
        kinds = write_folder(source)
        made = index_folder(source, index, as_text=["*.xyz"], log=print)
        assert made.documents is not None
        print(f"{kinds} kinds of files, {made.documents.documents} documents, {made.model}")
        print(*made.documents.skipped_lines(), sep="\n")
        good = 0
        for (question, answer), hits in zip(
            QUESTIONS.items(), search_index(index, list(QUESTIONS)), strict=True
        ):
            names = list(dict.fromkeys(hit.metadata["document"] for hit in hits))
            at = next((n for n, name in enumerate(names, 1) if name.startswith(answer)), 0)
            good += 0 < at <= PLACES
            print(f"{at or '-':>3}  {question}: {', '.join(names[:PLACES])}")
    print(f"{good} of {len(QUESTIONS)} in the first {PLACES}")
    return 0 if good >= FEWEST else 1


if __name__ == "__main__":
    sys.exit(main())
