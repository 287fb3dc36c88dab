"""Small files of the formats that are converted to Markdown, and the document of a file."""

import io
import json
import struct
import zipfile
from datetime import datetime
from itertools import pairwise

import pytest

from contrasent.documents.folder import DocumentSource

PROSE = "Rivers carry sand to the sea. The sea grinds it finer."


def pdf(pages, title="", **given):
    """A pdf of pages of lines, each with the size of its letters."""
    canvas_of, stream = pytest.importorskip("reportlab.pdfgen.canvas").Canvas, io.BytesIO()
    canvas = canvas_of(stream, pagesize=(600, 800), invariant=True, **given)
    canvas.setTitle(title)
    for lines in pages:
        for n, (size, line) in enumerate(lines):
            canvas.setFont("Helvetica", size)
            canvas.drawString(50, 750 - 30 * n, line)
        canvas.showPage()
    canvas.save()
    return stream.getvalue()


def one(folder, name, content):
    """The only document of a file."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (document,) = DocumentSource(folder / name)
    assert document.id == name
    return document


def read(reader, data):
    """What a reader makes of a file's bytes, and what it reports to be passed over."""
    passed = []
    return reader(data, lambda reason, part: passed.append((reason, part))), passed


def saved(file):
    stream = io.BytesIO()
    file.save(stream)
    return stream.getvalue()


def zipped(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


XHTML = "<html xmlns='http://www.w3.org/1999/xhtml'><head><title/></head>"


def epub():
    package = """<package xmlns="http://www.idpf.org/2007/opf"><metadata
      xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Rivers</dc:title>
      <dc:date>1998-06-01</dc:date><dc:date>2024-03-02</dc:date></metadata><manifest>
      <item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
      <item id="b" href="text/b.xhtml" media-type="application/xhtml+xml"/>
      <item id="a" href="text/a.xhtml" media-type="application/xhtml+xml"/></manifest>
      <spine><itemref idref="n"/><itemref idref="b"/><itemref idref="a"/></spine></package>"""
    container = '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    return zipped({
        "META-INF/container.xml":
            f'{container}<rootfile full-path="in/book.opf"/></rootfiles></container>',
        "in/book.opf": package,
        "in/nav.xhtml": "<ol><li>Contents</li></ol>",
        "in/text/a.xhtml": f"<meta charset='latin1'><h1>Zw\xf6</h1>{PROSE}".encode("latin-1"),
        "in/text/b.xhtml": f"{XHTML}<h1>One</h1><p>Starts.</p><h2>Bank</h2><p>Mud.</p>",
    })  # fmt: skip


def docx():
    file = pytest.importorskip("docx").Document()
    file.core_properties.title = "The river"
    file.add_paragraph(PROSE)
    file.add_heading("Banks", level=1)
    table = file.add_table(rows=2, cols=2)
    for cell, text in zip((c for row in table.rows for c in row.cells), "abcd", strict=True):
        cell.text = text
    file.add_paragraph("Mud.")
    file.add_heading("Left", level=2)
    file.add_paragraph("One.", style="List Bullet")
    file.sections[0].footer.paragraphs[0].text = "Imprint"
    return saved(file)


def pptx():
    file = pytest.importorskip("pptx").Presentation()
    file.core_properties.title = "Rivers"
    for name in ("Banks", "Delta"):
        slide = file.slides.add_slide(file.slide_layouts[1])
        slide.shapes.title.text = name
        slide.placeholders[1].text = f"One {name}.\nTwo."
    grid = slide.shapes.add_table(1, 2, 0, 0, 100, 100).table
    grid.cell(0, 0).text, grid.cell(0, 1).text = "a", "b"
    return saved(file)


HTML = (
    "<html><head><title>River</title><style>p{}</style></head><body>"
    "<nav>Home</nav><aside><a href=/>Menu</a></aside>"
    "<h1>River</h1><p>Rivers carry sand<br>and <b>mud</b>.<p>They flow &amp; turn."
    "<h2>Banks</h2><pre>if x:\n    flow</pre>"
    "<table><tr><th>a<th>b<tr><td>1<td>2</table><p>After.</p>"
    "<script>var x = '<p>no</p>';</script><footer>Imprint</footer></body></html>"
)
RST = (
    "=====\nRiver\n=====\n\nCarries :term:`sand <s>` and ``mud``::\n\n    flow(x)\n      deeper\n\n"
    ".. toctree::\n   :maxdepth: 2\n\n   other\n\n.. a comment\n   of two lines\n\n"
    "Banks\n-----\n\n* one\n* two\n\nLeft\n~~~~\n\nEnd `here <http://x.y>`_.\n"
)
ODT = (
    '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:text>'
    '<text:h text:outline-level="1">River</text:h><text:p>Mud.</text:p>'
    '<text:h text:outline-level="2">Bank</text:h><text:p>Sand.</text:p>'
    "</office:text></office:body></office:document-content>"
)


def odt(content=ODT):
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def paged():
    first = [(12, "The banks of a river are made of mud and some-"), (12, "times of stone.")]
    return pdf([first, [], [(12, "It ends here.")]], "Rivers at large")


def xlsx(sheets):
    """A workbook of sheets of rows of texts."""
    book = pytest.importorskip("openpyxl").Workbook()
    book.remove(book.active)
    book.properties.creator = "Ann Lee"
    book.properties.created = datetime(2099, 3, 5)  # later than the time at which it is written
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return saved(book)


def ods(rows):
    """A workbook with one sheet of rows of texts."""
    name = "urn:oasis:names:tc:opendocument:xmlns:"
    cell = (
        '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    ).format
    held = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    spaces = " ".join(f'xmlns:{one}="{name}{one}:1.0"' for one in ("office", "table", "text"))
    return zipped({
        "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
        "META-INF/manifest.xml": "<manifest/>",
        "content.xml": f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="Staff">{held}</table:table></office:spreadsheet>'
            "</office:body></office:document-content>",
    })  # fmt: skip


STAFF = [["name", "city", "phone"], ["Bo Smith", "Oslo", "555-0100"], ["Cy", "Rome", "555-0199"]]
HEAD = "From: Ann Lee <ann@x.org>\nTo: Bo <bo@x.org>\nDate: Tue, 5 Mar 2024 10:00:00 +0000\n"
QUOTED = "On 3 May 2024 at 10:00 Bo <bo@x.org>\nwrote:\n> How many geese?\n> Tell me.\n"
EML = (
    HEAD + 'Subject: Re: Ducks\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n'
    f"--b\nContent-Type: text/plain; charset=latin-1\n\nForty ducks caf\xe9.\n\n{QUOTED}\n--b\n"
    'Content-Type: text/markdown\nContent-Disposition: attachment; filename="bill.md"\n\n'
    "# Bill\n\nFour euros for bread.\n\n--b\nContent-Type: message/rfc822\n\n"
    f"{HEAD}Subject: Inner\n\nGeese too.\n\n--b--\n"
)
MBOX = (
    f"From ann\n{HEAD}Subject: One\n\nHello from box one.\n>From here on.\n\nFrom bo\n"
    "Subject: Two\nContent-Type: text/html\n\n<p>The <b>second</b>.</p>"
    "<blockquote>A whale.</blockquote>\n"
)


def compound(tree):
    """A compound file, as Outlook writes: streams, and storages of streams, by name."""
    none, end, sectors, table = 0xFFFFFFFF, 0xFFFFFFFE, [], []

    def put(data):
        first, count = len(sectors), -(-len(data) // 512)
        for n in range(count):
            sectors.append(data[512 * n : 512 * n + 512].ljust(512, b"\0"))
            table.append(first + n + 1 if n + 1 < count else end)
        return first

    entries = [["Root Entry", 5, none, none, end, 0]]  # name, kind, next, inner, start, size

    def add(parent, inner):
        numbers = []
        for name, held in sorted(inner.items(), key=lambda item: (len(item[0]), item[0])):
            numbers.append(len(entries))
            if isinstance(held, dict):
                entries.append([name, 1, none, none, 0, 0])
                add(numbers[-1], held)
            else:  # smaller ones would be kept elsewhere
                entries.append([name, 2, none, none, put(held.ljust(4096, b"\0")), 4096])
        for one, other in pairwise(numbers):
            entries[one][2] = other
        entries[parent][3] = numbers[0]

    add(0, tree)
    rows = b""
    for name, kind, following, inner, start, size in entries:
        raw = name.encode("utf-16-le")
        facts = len(raw) + 2, kind, 1, none, following, inner, 0, start, size
        rows += raw.ljust(64, b"\0") + struct.pack("<HBBIII16xI16xIQ", *facts)
    directory, first = put(rows), len(sectors)
    table += [0xFFFFFFFD] + [none] * (127 - len(table))
    assert len(table) == 128
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16
    head += struct.pack("<HHHHH6x", 62, 3, 0xFFFE, 9, 6)
    head += struct.pack("<10I", 0, 1, directory, 0, 4096, end, 0, end, 0, first)
    tail = struct.pack("<128I", *table)
    return head + struct.pack("<108I", *[none] * 108) + b"".join(sectors) + tail


def msg(subject="Ducks", body="The pond is full.", attached="bill.txt"):
    def text(value):
        return value.encode("utf-16-le")

    return compound({
        "__substg1.0_0037001F": text(subject), "__substg1.0_007D001F": text(HEAD),
        "__substg1.0_1000001F": text(f"{body}\r\n\r\n{QUOTED}"),
        "__substg1.0_0C1A001F": text("Ann Lee"), "__substg1.0_0C1F001F": text("ann@x.org"),
        "__properties_version1.0": b"\0" * 32,
        "__attach_version1.0_#00000000": {
            "__substg1.0_37010102": b"Four euros.".ljust(4096), "__substg1.0_3707001F":
            text(attached), "__properties_version1.0": struct.pack("<QIIQ", 0, 0x37050003, 6, 1),
        },
    })  # fmt: skip


def xls(rows):
    """A workbook of Excel before 2007, with one sheet of rows of texts."""

    def record(kind, data):
        return struct.pack("<HH", kind, len(data)) + data

    begin, end = struct.pack("<HHHHII", 0x600, 5, 0, 0, 0, 0), record(0x0A, b"")
    name = struct.pack("<BB", 5, 0) + b"Staff"
    place = 4 + len(begin) + 10 + len(name) + len(end)
    book = record(0x809, begin) + record(0x85, struct.pack("<IH", place, 0) + name) + end
    book += record(0x809, struct.pack("<HHHHII", 0x600, 16, 0, 0, 0, 0))
    for row, texts in enumerate(rows):
        for column, text in enumerate(texts):
            head = struct.pack("<HHHHB", row, column, 0, len(text), 1)
            book += record(0x204, head + text.encode("utf-16-le"))
    return compound({"Workbook": book + end})


NOTEBOOK = [
    {"cell_type": "markdown", "source": ["# River\n", "\n", "It *flows*."]},
    {"cell_type": "code", "source": "x = 1\nx", "outputs": [{"text": "no"}]},
]
LONG = "A long line of prose that was broken at some width and"

TEXTS = {
    "a.ipynb": (json.dumps({"cells": NOTEBOOK}), "River", [((), ("It flows.", "x = 1\nx"))]),
    "a.txt": (f"{LONG}\ngoes on.\n\nN\u2010\n   ext.\n", "", [((), (f"{LONG} goes on.", "Next."))]),
    "c.md": ("A slide\x0bof two\x0clines.\n", "", [((), ("A slide of two lines.",))]),
    # A first heading with nothing below it is the title.
    "a.md": ("# Travel\n\n# Meals\n\nForty euros.\n\n# Hotels\n\nNone.\n", "Travel", [
        (("Meals",), ("Forty euros.",)), (("Hotels",), ("None.",))]),
    "b.md": ("# Mud\n\n<div>\n<b>Wet</b> &amp; 2 < 3 > 1.\n<style>b {x: y}</style>\n</div>\n\n"
        "Dry<br/>H<sub>2</sub>O[^1]\n\n| a<br>b |\n|-|\n\n[^1]: Lee 'The sea'\n",
        "Mud", [((), ("Wet & 2 < 3 > 1.", "Dry H2O^1", "a b")), ((), ("[^1]: Lee 'The sea'",))]),
    "b.py": ("def broken(:\n    pass\n", "", [((), ("def broken(:\n    pass",))]),
    "a.rtf": (r"{\rtf1\ansi Rivers carry mud.\par Sand too.\par}", "", [
        ((), ("Rivers carry mud.", "Sand too."))]),
    "a.html": (HTML, "River", [
        ((), ("Rivers carry sand and mud.", "They flow & turn.")),
        (("Banks",), ("if x:\n    flow", "a | b\n1 | 2", "After.", "Imprint"))]),
    "a.rst": (RST, "River", [
        ((), ("Carries sand and mud", "flow(x)\n  deeper")),
        (("Banks",), ("one", "two")), (("Banks", "Left"), ("End here.",))]),
    "a.go": ("package main\n\n// Adds.\nfunc Add(a int) int {\n\n  return a\n}\n\nfunc Sub() {}\n",
        "a.go", [((), ("package main",)), (("Add",), ("// Adds.\nfunc Add(a int) int {\n  return a"
        "\n}",)), (("Sub",), ("func Sub() {}",))]),
    "a.sql": ("-- Boats.\nCREATE TABLE boats (id INT);\n\nSELECT 1;\n", "a.sql", [
        (("boats",), ("-- Boats.\nCREATE TABLE boats (id INT);", "SELECT 1;"))]),
    "a.yaml": ("web:\n  port: 8080\n  password: swordfish9\n\ndb:\n  port: 1\n", "a.yaml", [
        ((), ("web:\n  port: 8080", "db:\n  port: 1"))]),
    "a.toml": ("[tool]\nname = 'x'\n", "a.toml", [((), ("[tool]\nname = 'x'",))]),
    "a.json": ('{"name": "x \\"y\\"", "n": [1, {"m": 2}], "db": {"password": "hunter2x"}}',
        "a.json", [
        ((), ('name: x "y"\nn:\n - 1\n -\n  m: 2\ndb:',))]),
    "a.ics": ("BEGIN:VCALENDAR\r\nUID:1\r\nSUMMARY:Tea\\, and\r\n  cake\r\n"
        "DTSTART:20240506T120000Z\r\nEND:VCALENDAR\r\n", "", [
        ((), ("Summary: Tea, and cake\nDtstart: 2024-05-06 12:00",))]),
    "a.vcf": ("BEGIN:VCARD\nFN:Ann Lee\nTEL;TYPE=home:555\nEND:VCARD\n", "", [
        ((), ("Fn: Ann Lee\nTel: 555",))]),
    "b.vcf": ("BEGIN:VCARD\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=4D=C3=BC=6C=6C=65=72;=4A=\n"
        "=C3=B6=72=67;;;\nNOTE;QUOTED-PRINTABLE:One=0D=0Atwo\nEND:VCARD\n", "", [
        ((), ("N: Müller Jörg\nNote: One\ntwo",))]),
    "a.xml": ("<a><p v='1'><name>Al</name><city>Bern</city></p><p>The <b>bold</b> one.</p></a>",
        "", [
        ((), ("v: 1; name: Al; city: Bern", "The bold one."))]),
    "a.tex": ("\\documentclass{a}\\title{My \\emph{River}}\\author{Ann}\n\\begin{document}\n"
        "\\maketitle\\section{Banks}\\label{x} Of \\emph{mud} \\cite{a}. % no\n"
        "\\begin{itemize}\\item 5\\% up\\end{itemize}\\end{document}", "My River", [
        (("Banks",), ("Of mud.", "5% up"))]),
    "b.tex": ("G\\\"odel, {\\'E}t\\'{e}, na\\\"{\\i}f, Stra{\\ss}e, \\c{c}a, \\O re, Espa\\~na"
        "\\footnote{Old.} at \\href{http://a.b}{home}.", "", [
        ((), ("Gödel, Été, naïf, Straße, ça, Øre, España Old. at http://a.b home.",))]),
    "c.tex": ("\\title[T]{On {T}rees\\thanks{By X.}}\n\\begin{document}\nMud.\\date{5 {M}ay}\n"
        "\\end{document}", "On Trees By X.", [((), ("Mud.",))]),
    "d.tex": ("\\title{T}\\begin{document}\\section[Up]{On $x_{i}$}One\\\\[2pt]two\\\\three."
        "\\begin{lstlisting}[language=C]\n  7 % 3 {\n}\\end{lstlisting}Ends.", "T", [
        (("On $x_i$",), ("One two three.", "  7 % 3 {\n}", "Ends."))]),
    "a.xhtml": (f"{XHTML}<script src='x'/><p>Mud.</p><br/>Sand.", "", [
        ((), ("Mud.", "Sand."))]),
    "a.srt": ("1\n00:00:01,000 --> 00:00:02,000\nHello <i>there</i>,\n\n2\n00:00:03,000 --> "
        "00:00:04,000\ncaptain.\n", "", [((), ("Hello there, captain.",))]),
    "a.vtt": ("WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000\nAhoy.\n", "", [((), ("Ahoy.",))]),
    "b.vtt": ("WEBVTT\n\n" + "".join(f"00:{n}.000 --> 00:{n}.900\n \nAhoy {n}.\n \n" for n in range(
        20, 31)), "", [((), (" ".join(f"Ahoy {n}." for n in range(20, 30)), "Ahoy 30."))]),
    "a.org": ("* River\n\n** Banks\n\nMud.\n#+begin_src sh\n  ls\n#+end_src\n| a | b |\n|---+---|\n"
        "| c | d |\n\nSand.\n-----\nEnd.\n", "River", [
        (("Banks",), ("Mud.", "  ls", "a | b\nc | d", "Sand.", "End."))]),
    "a.adoc": ("= River\n\n== Banks\n\nMud.\n\n[source]\n----\nx = 1\n----\n\n[NOTE]\n===="
        "\nWet.\n====\n\nLeft\n----\nSand.\n", "River", [
        (("Banks",), ("Mud.", "[source]", "x = 1", "[NOTE]", "Wet.")), (("Left",), ("Sand.",))]),
    "b.org": ("* River\n\n#+begin_src md\n```\nls\n```\n#+END_SRC\n\n** Banks\n\nMud.\n", "River", [
        ((), ("```\nls\n```",)), (("Banks",), ("Mud.",))]),
    "b.adoc": ("---\ntitle: Ferries\nauthor: Bo\n---\n\n== Times\n\n----\nname | age\n-----+----\n"
        "Bob  | 3\n----\n\nThe crew:\n--\nBob.\n--\n\n== Fares\n\nTwo.\n", "Ferries", [
        (("Times",), ("name | age\n-----+----\nBob  | 3", "The crew:", "Bob.")),
        (("Fares",), ("Two.",))]),
}  # fmt: skip
"""Files of text, and what is read of them: content, title, sections."""
