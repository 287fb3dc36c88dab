"""Damaged documents of every format, and files that expand to far more than they weigh.

    python -m benchmarks.attack [mutants] [bombs] [--count N]

``contrasent index`` reads each: 200 mutants of each format, four of all formats at a time, and
every bomb alone. A traceback, a crash, a time beyond the limit, escape sequences in what is
printed, more than 1 GiB and no index are failures, printed as they are found. Exit 1: one failed.
"""

import argparse
import gzip
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path += [str(TESTS), str(TESTS / "documents")]  # makers of small models and documents

PROSE = "Rivers carry sand to the sea. The sea grinds it finer.\n"
MEMORY = 1 << 30
"""Bytes that a command may take."""
CASES = {"mutants": 200, "bombs": 46}
# Control characters but tab and line ends, and those that turn the direction of text.
ESCAPES = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def samples() -> dict[str, bytes]:
    """A whole document of each format, by its suffix."""
    import sample_files as made

    from contrasent.documents.text_formats import SETTINGS

    settings = "web:\n  port: 8080\n  password: 'swordfish'\n\ndb:\n  name: rivers\n"
    source = "// Adds sand.\nfunc Add(a int) int {\n\n  return a\n}\n\nfunc Sub() {}\n"
    rows = [{"id": str(n), "text": f"{PROSE} {n}"} for n in range(5)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    table = "id{0}text\n" + "".join(f"{n}{{0}}Rivers carry sand, {n} grains.\n" for n in range(5))
    markdown = f"---\ntitle: River\n---\n# Banks\n\n{PROSE}\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    text = (markdown + "* *mud* `x` [link](http://a.b)\n\n<b>sand</b>\n").encode()
    code = f'"""{PROSE}"""\n\n\nclass River:\n    """Flows."""\n\n    def flow(self): ...\n'
    return {
        **{name[1:]: content.encode() for name, (content, *_) in made.TEXTS.items()},
        **dict.fromkeys((".md", ".markdown", ".mdx"), text),
        **dict.fromkeys((".txt", ".text", ".log"), PROSE.encode() * 3),
        **dict.fromkeys((".htm", ".xhtml"), made.HTML.encode()),
        **dict.fromkeys((".jsonl", ".ndjson"), lines),
        **dict.fromkeys((".py", ".pyi"), code.encode()),
        **dict.fromkeys(SETTINGS, settings.encode()),
        **dict.fromkeys((".go", ".sql", ".js"), source.encode()),  # one reader has all code
        "-object.json": made.TEXTS["a.json"][0].encode(),
        **dict.fromkeys(
            (".xlsx", ".xlsm"), made.xlsx({"Staff": made.STAFF, "More": [["Form", "x"]]})
        ),
        ".xls": made.xls(made.STAFF),
        ".ods": made.ods(made.STAFF),
        ".eml": made.EML.encode("latin-1"),
        ".mbox": made.MBOX.encode(),
        ".msg": made.msg(),
        ".json": json.dumps(rows).encode(),
        ".csv": table.format(";").encode(),
        ".tsv": table.format("\t").encode(),
        ".parquet": parquet(rows),
        ".docx": made.docx(),
        ".pptx": made.pptx(),
        ".pdf": made.paged(),
        ".epub": made.epub(),
        ".odt": made.odt(),
        ".zip": made.zipped({"a.md": text, "b/c.csv": table.format(",")}),
        ".md.gz": gzip.compress(text),
        ".csv.gz": gzip.compress(table.format(",").encode()),
    }


def parquet(rows: list[dict[str, str]], **options: object) -> bytes:
    """A file of parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream, **options)
    return stream.getvalue()


def mutant(data: bytes, draw: random.Random) -> bytes:
    """A document with some bytes changed, repeated, or cut off."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 8, 32))):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    at = draw.randrange(len(changed))
    kind = draw.randrange(8)
    if kind == 0:
        return bytes(changed[:at])
    if kind == 1:
        return bytes(changed[:at] + changed[at : at + 40] * draw.choice((2, 100, 5000)))
    return bytes(changed)


def mutants(home: Path, count: int) -> Iterator[tuple[str, Path, float]]:
    """Folders with four mutants of each format: a name, the folder and the seconds it may take."""
    from contrasent.documents.parsers import FORMATS
    from contrasent.documents.text_formats import CODE

    draw, whole = random.Random("mutants"), samples()
    if lacking := set(FORMATS) - {*CODE} - whole.keys():
        raise SystemExit(f"no sample of the format {', '.join(sorted(lacking))}")
    for first in range(0, count, 4):
        folder = home / f"mutants{first}"
        folder.mkdir()
        for suffix, data in whole.items():
            for number in range(first, min(first + 4, count)):
                (folder / f"{number:04}{suffix}").write_bytes(mutant(data, draw))
        yield folder.name, folder, 300.0


# --------------------------------------------------------------------------- bombs


def many_rows(row: bytes, count: int) -> bytes:
    """A gzip file of one row again and again; made piece by piece."""
    head, block = zlib.compressobj(9, wbits=31), row * 100_000
    parts = [head.compress(b"id,text\n"), *(head.compress(block) for _ in range(count // 100_000))]
    return b"".join([*parts, head.flush()])


def many_members(count: int, content: bytes = b"", name: str = "{}.txt") -> bytes:
    """A zip archive of many files of one content, written by hand: zipfile takes minutes."""
    packed = zlib.compress(content, 9)[2:-4]
    crc, method = zlib.crc32(content), 8 if content else 0
    data = packed if content else b""
    local, central = io.BytesIO(), io.BytesIO()
    for number in range(count):
        title = name.format(number).encode()
        facts = struct.pack(
            "<HHHHHIIIHH", 20, 0, method, 0, 33, crc, len(data), len(content), len(title), 0
        )
        at = local.tell()
        local.write(b"PK\3\4" + facts + title + data)
        tail = struct.pack("<HHHII", 0, 0, 0, 0, at)
        central.write(b"PK\1\2\x14\0" + facts + tail + title)
    size, start = central.tell(), local.tell()
    many = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start
    ) + struct.pack("<4sIQI", b"PK\6\7", 0, start + size, 1)
    few = min(count, 0xFFFF)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, few, few, size, start, 0)
    return local.getvalue() + central.getvalue() + many + end


def zipped(files: dict[str, bytes]) -> bytes:
    """A packed zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def repacked(content: bytes, name: str, new: bytes) -> bytes:
    """An archive with another content of one of its files."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        return zipped({one: new if one == name else old.read(one) for one in old.namelist()})


def paragraphs(count: int) -> bytes:
    """A document of a word processor with one paragraph again and again."""
    from sample_files import docx

    with zipfile.ZipFile(io.BytesIO(docx())) as old:
        text = old.read("word/document.xml")
    many = b"<w:body>" + b"<w:p><w:r><w:t>A paragraph.</w:t></w:r></w:p>" * count
    return repacked(docx(), "word/document.xml", text.replace(b"<w:body>", many))


def flate_page(size: int) -> bytes:
    """A pdf whose only page is packed zeros or spaces."""
    stream = zlib.compress(b" " * size, 9)
    head = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Count 1/Kids[3 0 R]>>endobj\n"
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>endobj\n"
    )
    return (
        head
        + b"4 0 obj<</Length %d/Filter/FlateDecode>>stream\n" % len(stream)
        + stream
        + b"\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
    )


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    + "]>"
)


def bombs() -> dict[str, Callable[[], bytes]]:
    """What makes each; those of the suite are in ``tests/documents/test_worker.py``."""
    from sample_files import docx, epub, odt, xlsx

    many, gb, laughs = 5_000_000, 1 << 30, f"{LAUGHS}<a>&a9;</a>".encode()
    nested = b"Content-Type: message/rfc822\n\n"
    parts = b"Content-Type: multipart/mixed; boundary=b\n\n", b"--b\nContent-Type: a/b\n\nx\n"
    page = b"%d 0 obj<</Type/Page/Parent 2 0 R>>endobj\n"
    return {
        "prose rows.csv.gz": lambda: many_rows(b"7,Rivers carry sand to the sea.\n", 2 * many),
        "rows.jsonl.gz": lambda: many_rows(b'"a"\n', 4 * many),
        "blank rows.jsonl.gz": lambda: many_rows(b"\n", 20 * many),
        "small members.zip": lambda: many_members(300_000, b"a b c"),
        "hidden members.zip": lambda: many_members(1_000_000, b"", ".{}"),
        "large members.zip": lambda: many_members(2_000, PROSE.encode() * 100_000),
        "tables.zip": lambda: many_members(200, b"id,text\n" + b"1,a\n" * 1_000_000, "{}.csv"),
        "nested.zip": lambda: zipped({"a.zip": zipped({"b.zip": zipped({"c.txt": b"x" * many})})}),
        "gzip in.zip": lambda: zipped({"a.csv.gz": many_rows(b"1,a\n", 1_000_000)}),
        "spaces.md.gz": lambda: gzip.compress(b" " * gb, 9),
        "laughs.odt": lambda: repacked(odt(), "content.xml", laughs),
        "laughs.docx": lambda: repacked(docx(), "word/document.xml", laughs),
        "laughs.html": lambda: laughs,
        "laughs.xml": lambda: laughs,
        "spaces.docx": lambda: repacked(docx(), "word/document.xml", b" " * gb),
        "spaces.epub": lambda: repacked(epub(), "in/text/a.xhtml", b" " * gb),
        "spaces.xlsx": lambda: repacked(xlsx({"a": []}), "xl/worksheets/sheet1.xml", b" " * gb),
        "spaces.pdf": lambda: flate_page(gb),
        "paragraphs.docx": lambda: paragraphs(2_000_000),
        "deep.docx": lambda: repacked(docx(), "word/document.xml", b"<a>" * many),
        "deep.odt": lambda: repacked(odt(), "content.xml", b"<text:p>" * many),
        "deep.xml": lambda: b"<a>" * many + b"x" + b"</a>" * many,
        "deep.pdf": lambda: b"%PDF-1.4\n1 0 obj" + b"[" * many + b"\ntrailer<</Root 1 0 R>>",
        "pages.pdf": lambda: b"%PDF-1.4\n" + b"".join(page % n for n in range(300_000)),
        "deep.json": lambda: b"[" * 10 * many,
        "deep rows.json": lambda: b"[" + b'{"text":' * 100_000,
        "deep object.json": lambda: b'{"a":' * 1_000_000,
        "number.json": lambda: b"[" + b"9" * 4 * many + b"]",
        "deep.ipynb": lambda: b'{"cells": ' + b"[" * 4 * many,
        "keys.jsonl": lambda: b"{" + b",".join(b'"k%d":1' % n for n in range(2_000_000)) + b"}\n",
        "columns.csv": lambda: b",".join(b"c%d" % n for n in range(3_000_000)) + b"\n",
        "uneven.csv": lambda: b"text,id\n" + b"a\n" * 4 * many,
        "quote.csv": lambda: b'text\n"' + PROSE.encode() * 1_500_000,
        "brackets.py": lambda: b"x = " + b"(" * many,
        "definitions.py": lambda: b"def f(): pass\n" * 1_000_000,
        "quotes.md": lambda: b"> " * 2_000_000 + b"a",
        "brackets.md": lambda: b"[" * 2_000_000 + b"a",
        "groups.rtf": lambda: b"{\\rtf1" + b"{" * many,
        "tags.html": lambda: b"<div>" * many + b"a",
        "line.txt": lambda: b"word " * 6 * many,
        "braces.tex": lambda: b"\\emph{" * 1_000_000,
        "parquet.parquet": expanding_parquet,
        "mails.mbox": lambda: b"From a\nSubject: b\n\n" * 2_000_000,
        "line.mbox": lambda: b"From a\n\n" + b"word " * 6 * many,
        "parts.eml": lambda: parts[0] + parts[1] * 300_000,
        "nested.eml": lambda: nested * 50_000 + b"\nx",
    }


def expanding_parquet() -> bytes:
    """Half a kilobyte that expands to a gigabyte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, stream = pa.array(["x" * 52_000] * 20_000, pa.large_string()), io.BytesIO()
    pq.write_table(
        pa.table({"text": rows}), stream, compression="brotli", store_schema=False,
        write_statistics=False, row_group_size=1_000_000, data_page_size=1 << 30,
    )  # fmt: skip
    return stream.getvalue()


def bombed(home: Path, count: int) -> Iterator[tuple[str, Path, float]]:
    """Each bomb in a folder: its name, the folder and the seconds it may take."""
    for name, make in list(bombs().items())[:count]:
        folder = home / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_bytes(make())
        yield name, folder, 45.0


def fault(folder: Path, model: Path, seconds: float) -> tuple[str, str, float, int]:
    """Index a folder that also holds a whole document.

    Returns:
        What is wrong or "", what was printed, the seconds taken and the most bytes of a process.
    """
    (folder / "whole.md").write_text(PROSE)
    words = ["index", folder, "-o", f"{folder}-ix", "--model", model, "--quiet"]
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "contrasent", *map(str, words)], stdout=output, stderr=output
        )
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            if time.monotonic() - began > seconds * load:
                process.kill()
                ended = os.wait4(process.pid, 0)
                break
            time.sleep(0.01)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    status, memory = os.waitstatus_to_exitcode(ended[1]), ended[2].ru_maxrss << 10
    faults = {
        "hang": status == -9,
        "traceback": "Traceback (most recent call last)" in text or "Fatal Python error" in text,
        "escape": bool(ESCAPES.search(text)),
        f"status {status}": status != 0,
        "memory": memory > MEMORY,
    }
    wrong = next((name for name, found in faults.items() if found), "")
    return wrong, text, time.monotonic() - began, memory


def tiny_model(folder: Path) -> Path:
    """A model with random weights, by the tests' own makers."""
    from contrasent.encoder.backbone import quiet
    from contrasent.encoder.encoder import TorchEncoder
    from tiny_models import write_backbone, write_tokenizer

    bare = folder.with_name("bare")
    with quiet():
        write_backbone("bert", bare, write_tokenizer("bert", bare))
    TorchEncoder.load(bare, pooling="mean", normalize=True).save(folder)
    return folder


def main() -> int:
    """Run the cases one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="mutants, bombs; both by default")
    parser.add_argument("--count", type=int, help="inputs of each case, instead of its own number")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    failed = 0
    for case in options.cases or CASES:
        count, tried, slowest, most = options.count or CASES[case], 0, 0.0, 0
        with tempfile.TemporaryDirectory(prefix="attack-") as place:
            home = Path(place)
            model = tiny_model(home / "model")
            for name, folder, seconds in (mutants if case == "mutants" else bombed)(home, count):
                wrong, text, taken, memory = fault(folder, model, seconds)
                tried, slowest, most = tried + 1, max(slowest, taken), max(most, memory)
                if wrong:
                    failed += 1
                    print(f"{name}: {wrong}\n{text[-1600:]}", flush=True)
        print(f"{case}: {tried} runs, slowest {slowest:.1f} s, most memory {most >> 20:,} MB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
