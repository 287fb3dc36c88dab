# mypy: disable-error-code="no-untyped-call, arg-type"
"""The documents of :mod:`benchmarks.fidelity`: in every format, of sentences that are known.

Each maker gives files as ``File(format, name, content, sentences)``. A sentence holds a word that
no other has, and signs that readers are known to lose: &, <, *, brackets, quotes, umlauts. What one
reader once lost stands in ``tests/documents`` by itself; here a document has all that its format
has, as the usual libraries write it.
"""

import csv
import io
import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from email.message import EmailMessage, MIMEPart
from html import escape
from pathlib import Path
from typing import Any

_SYLLABLES = [a + b for a in "bdfglmnprtvz" for b in ("a", "e", "o", "u", "or", "el")]
_LATIN = (
    "The {0} ledger of R&D at AT&T closed at 3 < 5 and 7 > 6.",
    "Call Map<String, Integer> of {0} before 2*3*4 is due.",
    'He said "{0} is shut", it\'s 5 % off, see C:\\tools\\new.',
    "Straße, señor and naïve {0} met at 10:30 on 2024-05-03.",
    "Set {0}_max_len to [a-z]+ and __init__ to 0.",
    "Press <Ctrl> and <Enter> to save {0} once.",
    "Version 1.2.10 of {0} costs 1,234.50 euros (net).",
    "The {0} pump starts slowly when the valve is shut.",
    "Note #4 of {0} ~stays~ as `it` is | so.",
    "Whoever borrows the {0} ladder signs the sheet and brings it back before the yard closes at six.",
)
_ALL = (*_LATIN, "Łódź, Αθήνα and {0} answer “no” – or “yes…” at 20 °C.")
_PLAIN = _LATIN[6:8]
_HEADINGS = ("Rules of {0} & sons", "The {0} ladder", "Fees for {0} <new>")


class Sentences:
    """Sentences, none of them twice in any document, and all that were given."""

    made = 0

    def __init__(self, templates: Sequence[str] = _ALL) -> None:
        self.templates, self.given = templates, list[str]()

    def __call__(self, template: str = "") -> str:
        """The next one; ``template``: with the word in its place {0}."""
        count = Sentences.made
        number, word = count + 7, ""
        while len(word) < 8:
            word += _SYLLABLES[number % 71]
            number = number * 37 // 71 + 11 * len(word) + count
        template = template or self.templates[count % len(self.templates)]
        Sentences.made += 1
        self.given.append(template.format(f"{word}{count + 1}"))
        return self.given[-1]

    def escaped(self, template: str = "") -> str:
        """The next one for HTML and XML."""
        return escape(self(template))

    def heading(self) -> str:
        """The next heading."""
        return self(_HEADINGS[Sentences.made % len(_HEADINGS)])

    def several(self, count: int = 3) -> list[str]:
        """Some in a row."""
        return [self() for _ in range(count)]


@dataclass(frozen=True, slots=True)
class File:
    """A document."""

    format: str
    name: str
    content: bytes
    sentences: list[str]  # that stand in it as text
    hidden: list[str] = field(default_factory=list)  # that must not be read, but named


def _saved(file: Any) -> bytes:
    stream = io.BytesIO()
    file.save(stream)
    return stream.getvalue()


def _zipped(files: dict[str, str | bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


# ---------------------------------------------------------------------- office


def word() -> Iterator[File]:
    """By python-docx: prose, lists, tables in tables, notes, comments, boxes, changes, controls."""
    import docx
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    s, file = Sentences(), docx.Document()

    def add(before: str, after: str) -> None:
        run = f"<w:r><w:t>{s.escaped()}</w:t></w:r>"
        spaces = f"{nsdecls('w')} xmlns:v='urn:schemas-microsoft-com:vml'"
        tag, _, rest = before.partition(">")
        file.add_paragraph()._p.append(parse_xml(f"{tag} {spaces}>{rest}{run}{after}"))

    file.core_properties.title = s.heading()
    for level in (1, 2, 1):
        file.add_heading(s.heading(), level)
        for text in s.several(6):
            file.add_paragraph(text)
        for style in ("List Bullet", "List Number", "Quote"):
            file.add_paragraph(s(), style=style)
    file.add_paragraph(s("Drill of {0}:\t7 euros\tand more"))
    runs = file.add_paragraph()
    for number, part in enumerate(s("Half of {0} is bold, the rest is not.").split(" ")):
        runs.add_run(part + " ").bold = number % 2 == 0
    broken = file.add_paragraph()
    broken.add_run(s("Line one of {0}.")).add_break()
    broken.add_run(s("Line two of {0}."))
    table = file.add_table(rows=3, cols=2)
    for cell in (cell for row in table.rows for cell in row.cells):
        cell.text = s()
    table.cell(0, 0).merge(table.cell(0, 1))
    inner = table.cell(2, 1).add_table(rows=1, cols=1)
    inner.cell(0, 0).text = s("A table in a table holds {0}.")
    box = "<w:r><w:pict><v:shape><v:textbox><w:txbxContent><w:p>"
    add(box, "</w:p></w:txbxContent></v:textbox></v:shape></w:pict></w:r>")
    add("<w:ins>", "</w:ins>")
    add("<w:sdt><w:sdtContent>", "</w:sdtContent></w:sdt>")
    add("<w:hyperlink w:anchor='x'>", "</w:hyperlink>")
    file.sections[0].header.paragraphs[0].text = s("The header of {0}")
    file.sections[0].footer.paragraphs[0].text = s("The footer of {0}")
    file.add_comment(file.paragraphs[2].runs[0], text=s("A comment on {0}."), author="Ann")
    yield File("docx", "plain.docx", _with_notes(_saved(file), s), s.given)


def _with_notes(data: bytes, s: Sentences) -> bytes:
    """A docx with two footnotes and an endnote, whose first id is 1."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    links = overrides = references = ""
    for kind, count in (("footnote", 2), ("endnote", 1)):
        notes = ""
        for n in range(1, count + 1):
            run, mark = f"<w:r><w:t>{s.escaped()}</w:t></w:r>", f'<w:{kind}Reference w:id="{n}"/>'
            notes += f'<w:{kind} w:id="{n}"><w:p>{run}</w:p></w:{kind}>'
            run = f"<w:r><w:t>{s.escaped()}</w:t></w:r>"
            references += f"<w:p>{run}<w:r>{mark}</w:r></w:p>"
        files[f"word/{kind}s.xml"] = f"<w:{kind}s {space}>{notes}</w:{kind}s>".encode()
        links += f'<Relationship Id="{kind}" Type="{kinds}/{kind}s" Target="{kind}s.xml"/>'
        overrides += f'<Override PartName="/word/{kind}s.xml" ContentType="{types}.{kind}s+xml"/>'
    for name, end, more in (
        ("word/_rels/document.xml.rels", b"</Relationships>", links),
        ("[Content_Types].xml", b"</Types>", overrides),
        ("word/document.xml", b"<w:sectPr", references),
    ):
        head, _, tail = files[name].rpartition(end)
        files[name] = head + more.encode() + end + tail
    return _zipped({**files})


def slides() -> Iterator[File]:
    """By python-pptx: titles, bullets, a table, a text box, a group and a speaker's note."""
    import pptx
    from pptx.util import Inches

    s, file = Sentences(), pptx.Presentation()
    for _ in range(3):
        slide = file.slides.add_slide(file.slide_layouts[1])
        slide.shapes.title.text = s.heading()
        slide.placeholders[1].text = "\n".join(s.several(4))
        box = slide.shapes.add_textbox(Inches(1), Inches(5), Inches(4), Inches(1))
        box.text_frame.text = s()
        grid = slide.shapes.add_table(2, 2, Inches(1), Inches(6), Inches(4), Inches(1)).table
        for cell in (grid.cell(row, column) for row in range(2) for column in range(2)):
            cell.text = s()
        group = slide.shapes.add_group_shape()
        group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = s()
    slide.notes_slide.notes_text_frame.text = s("The speaker notes {0}.")
    yield File("pptx", "slides.pptx", _saved(file), s.given)


def by_libreoffice() -> Iterator[File]:
    """A page of HTML as LibreOffice writes it in docx, odt, rtf and pdf; none without it."""
    program = shutil.which("soffice")
    if program is None:
        return
    for form in ("docx", "odt", "rtf", "pdf"):
        s = Sentences(_LATIN if form in ("rtf", "pdf") else _ALL)
        body = ""
        for level in (1, 2, 1):
            body += f"<h{level}>{escape(s.heading())}</h{level}>"
            body += "".join(f"<p>{s.escaped()}</p>" for _ in range(6))
            body += f"<ul><li>{s.escaped()}</li><li>{s.escaped()}</li></ul>"
        body += f"<table border=1><tr><td>{s.escaped()}</td><td>{s.escaped()}</td></tr></table>"
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            page.write_text(f"<html><meta charset=utf-8><body>{body}</body></html>", "utf-8")
            command = [program, f"-env:UserInstallation=file://{folder}/profile", "--headless"]
            command += ["--infilter=HTML (StarWriter)", "--convert-to", form, "--outdir", folder]
            subprocess.run([*command, str(page)], check=True, capture_output=True, timeout=120)
            content = (Path(folder) / f"page.{form}").read_bytes()
        yield File(form, f"libreoffice.{form}", content, s.given)


def open_document() -> Iterator[File]:
    """odt by hand: lists, notes, a table, a text box, spans and broken lines."""
    s = Sentences()
    text = lambda: f"<text:p>{s.escaped()}</text:p>"  # noqa: E731
    note = f"<text:note><text:note-citation>1</text:note-citation><text:note-body>{text()}"
    cell = f"<table:table-row><table:table-cell>{text()}</table:table-cell></table:table-row>"
    box = f"<draw:frame><draw:text-box>{text()}</draw:text-box></draw:frame>"
    spanned = s.escaped("Part of {0} is bold")
    body = (
        f'<text:h text:outline-level="1">{escape(s.heading())}</text:h>'
        f"{''.join(text() for _ in range(12))}"
        f"<text:list><text:list-item>{text()}</text:list-item></text:list>"
        f"<text:p>{s.escaped()}{note}</text:note-body></text:note></text:p>"
        f"<table:table>{cell}</table:table><text:p>{box}{s.escaped()}</text:p>"
        f"<text:p>{spanned[:6]}<text:span>{spanned[6:]}</text:span></text:p>"
        f"<text:p>{s.escaped()}<text:line-break/>{s.escaped()}</text:p>"
    )
    name = "urn:oasis:names:tc:opendocument:xmlns:"
    spaces = " ".join(f'xmlns:{one}="{name}{one}:1.0"' for one in ("office", "text", "table"))
    content = (
        f'<office:document-content {spaces} xmlns:draw="{name}drawing:1.0"><office:body>'
        f"<office:text>{body}</office:text></office:body></office:document-content>"
    )
    mime = "application/vnd.oasis.opendocument.text"
    yield File("odt", "hand.odt", _zipped({"mimetype": mime, "content.xml": content}), s.given)


def rich_text() -> Iterator[File]:
    """rtf by hand: escaped letters, Unicode, a table."""
    s = Sentences()

    def coded() -> str:
        text = s().replace("\\", "\\\\").replace("{", "\\{").replace("}", "\\}")
        return "".join(c if c.isascii() else f"\\u{ord(c)}?" for c in text)

    body = "".join(f"\\pard {coded()}\\par\n" for _ in range(20))
    body += f"\\trowd\\cellx3000\\cellx6000 {coded()}\\intbl\\cell {coded()}\\intbl\\cell\\row\n"
    content = f"{{\\rtf1\\ansi\\ansicpg1252\\deff0{{\\fonttbl{{\\f0 Times;}}}}\n{body}}}"
    yield File("rtf", "hand.rtf", content.encode("ascii"), s.given)


# ---------------------------------------------------------------------- PDF


def reportlab_pdfs() -> Iterator[File]:
    """By reportlab: headings, one to three columns, a table, and lines around each page."""
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph, Spacer, Table

    styles = getSampleStyleSheet()

    def furnish(canvas: Any, document: Any) -> None:
        canvas.drawString(50, A4[1] - 40, "Nordhaven Boat Yard")
        canvas.drawString(280, 30, f"Page {document.page} of 4")

    for frames in (1, 2, 3):
        s, stream, width = Sentences(_LATIN), io.BytesIO(), (A4[0] - 100) / frames
        story: list[Any] = []
        for level in (1, 2, 1, 2):
            story.append(Paragraph(escape(s.heading()), styles[f"Heading{level}"]))
            for _ in range(5):
                story.append(Paragraph(escape(" ".join(s.several())), styles["Normal"]))
                story.append(Spacer(1, 6))
        story.append(Table([[s("Due on {0}"), "7"], [s("Cell of {0}"), s("Rate of {0}")]]))
        story += [Spacer(1, 12), Paragraph(s("The end of {0}."), styles["Normal"])]
        boxes = [Frame(50 + n * width, 60, width - 12, A4[1] - 130) for n in range(frames)]
        template = BaseDocTemplate(stream, pagesize=A4, title="(anonymous)")
        around = {"onPage": furnish} if frames < 3 else {}
        template.addPageTemplates(PageTemplate(frames=boxes, **around))
        template.build(story)
        yield File("pdf", f"reportlab{frames}.pdf", stream.getvalue(), s.given)


def other_pdfs() -> Iterator[File]:
    """By fpdf2, with justified lines, and by matplotlib, with embedded outlines of letters."""
    import matplotlib as mpl
    from fpdf import FPDF
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    s, page = Sentences(_LATIN), FPDF()
    page.set_title("Microsoft Word - draft3.docx")
    for _ in range(3):
        page.add_page()
        page.set_font("Times", "B", 18)
        page.multi_cell(0, 10, s.heading(), new_x="LMARGIN", new_y="NEXT")
        page.set_font("Times", size=12)
        for _ in range(4):
            page.multi_cell(0, 6, " ".join(s.several()), new_x="LMARGIN", new_y="NEXT")
            page.ln(4)
    yield File("pdf", "fpdf.pdf", bytes(page.output()), s.given)

    for kind in (3, 42):
        s, stream = Sentences(_LATIN), io.BytesIO()
        with mpl.rc_context({"pdf.fonttype": kind}):
            figure = Figure((8, 11))
            FigureCanvasPdf(figure)
            figure.text(0.1, 0.95, s("The plot of {0} and more"), size=18)
            for at in range(12):
                figure.text(0.1, 0.9 - 0.06 * at, s(), size=9, parse_math=False)
            figure.savefig(stream, format="pdf")
        yield File("pdf", f"matplotlib{kind}.pdf", stream.getvalue(), s.given)


# ---------------------------------------------------------------------- HTML, books and mail


def pages() -> Iterator[File]:
    """HTML with forms, SVG, lists and tables within one another; also in another encoding."""
    for encoding in ("utf-8", "cp1252"):
        s = Sentences(_LATIN if encoding == "cp1252" else _ALL)
        q = s.escaped
        head = f"<meta charset={encoding}><title>{escape(s.heading())}</title>"
        body = (
            f"<header><h1>{escape(s.heading())}</h1></header><main><p>{q()}<p>{q()}<br>{q()}"
            f"<h2><svg viewBox='0 0 9 9'><path d='M1 2z'/></svg>{escape(s.heading())}</h2>"
            f"<form action=x><div><p>{q()}</p><label>{q()}</label><input value='{q()}'>"
            f"<select><option>{q()}</option></select><textarea>{q()}</textarea>"
            f"<button>{q()}</button></div></form>"
            f"<dl><dt>{q()}<dd>{q()}</dl><ul><li>{q()}<ul><li>{q()}</ul><li><p>{q()}</p></ul>"
            f"<table><caption>{q()}</caption><tr><th>{q()}<td>{q()}<tr><td>{q()}<td>"
            f"<table><tr><td>{q()}</table></table><pre>{q()}\n  {q()}</pre>"
            f"<blockquote>{q()}</blockquote><details><summary>{q()}</summary>{q()}</details>"
            f"<figure><img alt='{q()}'><figcaption>{q()}</figcaption></figure>"
            f"<div>{q()}<div>{q()}</div>{q()}</div><p>A<i>B</i> x<sup>2</sup> {q()}</p>"
            f"<section><h3>{escape(s.heading())}</h3>{q()}</section><noscript>{q()}</noscript>"
            "</main><script>var x = '<p>no</p>';</script>"
        )
        content = f"<!doctype html><html><head>{head}</head><body>{body}</body></html>"
        yield File("html", f"{encoding}.html", content.encode(encoding), s.given)


def books() -> Iterator[File]:
    """epub with chapters of escaped names, tags that are text, and an order of its own."""
    s, spine, items, files = Sentences(), "", "", dict[str, str | bytes]()
    title = s.heading()
    for number in (2, 1, 3):
        name = f"text/chapter%20{number}.xhtml"
        items += f'<item id="c{number}" href="{name}" media-type="application/xhtml+xml"/>'
        spine += f'<itemref idref="c{number}"/>'
        body = f"<h1>{escape(s.heading())}</h1>"
        body += "".join(f"<p>{s.escaped()}</p>" for _ in range(12))
        body += f"<dl><dt>{s.escaped()}</dt><dd>{s.escaped()}</dd></dl>"
        body += f"<table><tr><td>{s.escaped()}</td></tr></table>"
        files[f"in/text/chapter {number}.xhtml"] = (
            '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
            f"<title>x</title></head><body>{body}</body></html>"
        )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{escape(title)}</dc:title></metadata><manifest>{items}</manifest>"
        f"<spine>{spine}</spine></package>"
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="in/book.opf"/></rootfiles></container>'
    )
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": container,
             "in/book.opf": package, **files}  # fmt: skip
    yield File("epub", "book.epub", _zipped(files), s.given)


def mails() -> Iterator[File]:
    """Mails in plain text, in HTML and of many parts, each alone and all in an mbox."""
    made = list[File]()

    def part(kind: str, content: str, name: str = "") -> MIMEPart:
        one = MIMEPart()
        one.set_content(content, subtype=kind)
        if name:
            one.add_header("Content-Disposition", "attachment", filename=name)
        return one

    for kind in ("plain", "html", "mixed"):
        s, mail = Sentences(), EmailMessage()
        mail["Subject"] = s("Re: order of {0}")
        mail["From"], mail["To"] = "Ann Lee <ann@example.org>", "bo@example.org"
        mail["Date"] = "Tue, 5 Mar 2024 10:00:00 +0000"
        if kind == "plain":
            mail.set_content("\n\n".join(s.several(8)), cte="quoted-printable")
        elif kind == "html":
            mail.set_content(" \n")
            shown = "".join(f"<p>{s.escaped()}</p>" for _ in range(6))
            mail.add_alternative(f"<html><body>{shown}</body></html>", subtype="html")
        else:
            mail.make_mixed()
            mail.attach(part("plain", s()))
            mail.attach(part("html", f"<p>{s.escaped()}</p>"))
            mail.attach(part("csv", f"item,about\nDrill,{s('Rents {0} by the hour')}\n", "a.csv"))
            mail.attach(part("markdown", f"# {s('Bill {0}')}\n\n{s('Pay for {0}.')}\n", "b.md"))
            inner = EmailMessage()
            inner["Subject"] = s("Inner words of {0}")
            inner.set_content(s())
            mail.add_attachment(inner)
        made.append(File("eml", f"{kind}.eml", bytes(mail), s.given))
    yield from made
    box = b"".join(b"From ann\n" + one.content.rstrip() + b"\n\n" for one in made)
    yield File("mbox", "all.mbox", box, [text for one in made for text in one.sentences])


# ---------------------------------------------------------------------- text


def markdown() -> Iterator[File]:
    """Markdown whose title stands in front matter of YAML or TOML, or as a heading."""
    for number, front in enumerate(("---\ntitle: {0}\n---\n", "+++\ntitle = '{0}'\n+++\n", "")):
        s = Sentences()
        mark = lambda: "".join("\\" * (c in "\\`*_{}[]<>()#+-.!|~&") + c for c in s())  # noqa: E731, B023
        body = front.format(s("The title of {0}")) if front else ""
        body += f"\n# {s('Rules of {0}')}\n\n" + "".join(f"{mark()}\n\n" for _ in range(12))
        body += f"- {mark()}\n- {mark()}\n\n> {mark()}\n\n```\n{s()}\n```\n\n"
        body += f"| a | b |\n| --- | --- |\n| {mark()} | {mark()} |\n\n"
        body += f"<div>{s.escaped()}</div>\n\n<details>\n\n{mark()}\n\n</details>\n\n"
        body += f"Set `{s('code of <{0}> & *co*')}` here and [{mark()}](http://x.y/z).\n\n"
        body += f"Term {mark()}[^1]\n\n[^1]: {mark()}\n\n2 < 3 and {s('a * b of {0}')}\n"
        yield File("md", f"front{number}.md", body.encode(), s.given)


def tables() -> Iterator[File]:
    """csv of several styles of headers, separators and encodings, and one with lines above."""
    heads = (
        ["name", "city", "note"], ["name", "note", "note"], ["", "city", "note"],
        ["name", "2nd city", "note"], ["Who?", "Where?", "What do they say?"],
        ["name", "2023", "2024"], ["name", "city (DE)", "note [text]"],
        ["name", "The city in which they live at the time of writing this", "note"],
    )  # fmt: skip
    forms = ((",", "utf-8"), (";", "cp1252"), ("\t", "utf-8"), ("|", "utf-8-sig"), (";", "utf-16"))
    for number, head in enumerate(heads):
        s, stream = Sentences(("Señor {0} sings", "Likes {0} & tea", "Says 3 < {0}")), io.StringIO()
        mark, encoding = forms[number % len(forms)]
        writer = csv.writer(stream, delimiter=mark)
        writer.writerow(head)
        writer.writerows([s("Person {0}"), "Ulm", s()] for _ in range(30))
        yield File("csv", f"{number}.csv", stream.getvalue().encode(encoding), s.given)
    s = Sentences(("Sees {0}",))
    lines = [s("Report of {0} 2024"), "", "Name;City;Note"]
    lines += [f"{s('Person {0}')};Ulm;{s()}" for _ in range(10)]
    yield File("csv", "lines_above.csv", "\n".join(lines).encode(), s.given)


def workbooks() -> Iterator[File]:
    """xlsx by openpyxl and xlsxwriter, ods by odfpy: headers, merged cells, notes, hidden sheets."""
    import openpyxl
    import xlsxwriter
    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table, TableCell, TableRow
    from odf.text import P
    from openpyxl.comments import Comment

    s, hidden, book = Sentences(), Sentences(), openpyxl.Workbook()
    book.active.title = "Staff"
    book.active.append(["Name", "Name", "City", ""])
    for _ in range(10):
        book.active.append([s(), s(), "Ulm", s()])
    book.active["A5"].comment = Comment(s("A comment on {0}"), "Ann")
    merged = book.create_sheet("Merged")
    merged.append(["Region", "City", "Share", "Since"])
    for start in (2, 5, 8):
        region = s("Region {0}")
        for row in range(start, start + 3):
            city = s("City {0}")
            merged.append([region, city, 0.256, date(2024, 3, 5)])
            merged.cell(row, 3).number_format = "0.0%"
            s.given.append(f"Region: {region}; City: {city}; Share: 25.6%; Since: 2024-03-05")
        merged.merge_cells(start_row=start, end_row=start + 2, start_column=1, end_column=1)
    salaries = book.create_sheet("Salaries")
    salaries.append(hidden.several(2))
    salaries.sheet_state = "hidden"
    yield File("xlsx", "openpyxl.xlsx", _saved(book), s.given, hidden.given)

    s, stream = Sentences(), io.BytesIO()
    with xlsxwriter.Workbook(stream) as written:
        page = written.add_worksheet("Prices")
        page.write_row(0, 0, ["Item", "Price (EUR)", "Note"])
        for row in range(1, 9):
            page.write_row(row, 0, [s(), row * 1.5, s()])
        page.write_rich_string(9, 0, "Half ", written.add_format({"bold": True}), s())
        page.write_formula(9, 2, '="a"&"b"', None, s("Computed {0}"))
        page.insert_textbox(12, 1, s("A box of {0}"))
    yield File("xlsx", "xlsxwriter.xlsx", stream.getvalue(), s.given)

    s, sheet, table = Sentences(), OpenDocumentSpreadsheet(), Table(name="Staff")
    for values in [["Name", "Name", "Note"], *([s(), s(), s()] for _ in range(10))]:
        line = TableRow()
        for value in values:
            cell = TableCell(valuetype="string")
            cell.addElement(P(text=value))
            line.addElement(cell)
        table.addElement(line)
    sheet.spreadsheet.addElement(table)
    stream = io.BytesIO()
    sheet.write(stream)
    yield File("ods", "odf.ods", stream.getvalue(), s.given)


def records() -> Iterator[File]:
    """json, json lines and a notebook; objects within objects."""
    for name in ("rows.jsonl", "list.json", "lines.json"):
        s = Sentences()
        rows: list[Any] = [
            {"title": s("Title {0}"), "text": " ".join(s.several(2)), "at": {"town": s(), "n": 3}}
            for _ in range(10)
        ]
        content = json.dumps(rows) if name == "list.json" else "\n".join(map(json.dumps, rows))
        yield File("json", name, content.encode(), s.given)
    s, cells = Sentences(_LATIN[3:]), list[dict[str, Any]]()
    mark = lambda: "".join("\\" * (c in "\\`*_[]<>#~|&") + c for c in s())  # noqa: E731
    for _ in range(5):
        prose = [f"# {s('Step {0}')}\n", "\n", *(f"{mark()}\n\n" for _ in range(3))]
        cells.append({"cell_type": "markdown", "source": prose})
        cells.append({"cell_type": "code", "source": f"x = 1  # {s()}", "outputs": []})
    yield File("ipynb", "steps.ipynb", json.dumps({"cells": cells}).encode(), s.given)


def sources() -> Iterator[File]:
    """Texts whose marks are of their own: TeX, code, plain text, captions, XML, rst, org, adoc."""
    s = Sentences((*_PLAIN, "The {0} method of R\\&D is 5\\% better.", "It is {0}\\_x and so on."))
    body = f"\\documentclass{{article}}\n\\title{{{s('The title of {0}')}}}\n\\begin{{document}}\n"
    body += f"\\maketitle\n\\begin{{abstract}}\n{s()}\n\\end{{abstract}}\n"
    for _ in range(4):
        body += f"\\section{{{s('Rules of {0}')}}}\n{' '.join(s.several())}\n\n"
        body += f"\\begin{{itemize}}\\item {s()}\\item {s()}\\end{{itemize}}\n"
        body += f"Text\\footnote{{{s('A note of {0}.')}}} with \\textbf{{{s('bold {0} words')}}}.\n"
        body += f"\\begin{{figure}}\\caption{{{s('A caption of {0}.')}}}\\end{{figure}}\n"
    shown = [one.replace("\\&", "&").replace("\\%", "%").replace("\\_", "_") for one in s.given]
    yield File("tex", "paper.tex", (body + "\\end{document}\n").encode(), shown)

    for suffix, mark in (("go", "//"), ("sql", "--"), ("yaml", "#"), ("js", "//")):
        s = Sentences()
        lines = [f"{mark} {one}\nfunc{n}()\n" for n, one in enumerate(s.several(11))]
        yield File("code", f"a.{suffix}", "\n".join(lines).encode(), s.given)
    s = Sentences(_LATIN[4:8])
    code = f'"""{s("The module of {0} starts.")}"""\n\n'
    for number in range(6):
        code += f'def f{number}():\n    """{s("The task of {0} is shown.")}"""\n    # {s()}\n\n'
    yield File("code", "a.py", code.encode(), s.given)
    s = Sentences()
    minified = ";".join(f'var a{n}="{s("minified {0} text")}"' for n in range(60))
    yield File("code", "a.min.js", minified.encode(), [], s.given)
    s = Sentences()
    yield File("txt", "a.txt", "\n\n".join(s.several(22)).encode(), s.given)
    s = Sentences(_LATIN)
    yield File("txt", "latin.txt", "\n".join(s.several(20)).encode("cp1252"), s.given)
    s = Sentences(_LATIN[7:8])
    times = "{}\n00:00:{:02d},000 --> 00:00:{:02d},900\n{}\n"
    captions = [times.format(n, n, n, one) for n, one in enumerate(s.several(20), 1)]
    yield File("srt", "a.srt", "\n".join(captions).encode(), s.given)
    s = Sentences()
    inner = "".join(f"<item id='{n}'><name>{s.escaped()}</name></item>" for n in range(11))
    inner += f"<p>{s.escaped()} <b>{s.escaped()}</b></p><q note='{s.escaped()}'>x</q>"
    yield File("xml", "a.xml", f"<all>{inner}</all>".encode(), s.given)
    s = Sentences(_PLAIN)
    text = "\n\n".join(s.several(10)) + f"\n\n{s('Rules of {0}')}\n{'=' * 30}\n\n* {s()}\n* {s()}\n"
    rule = "======  ======\n"
    text += f"\n.. note::\n\n   {s()}\n\nterm\n   {s()}\n\n{rule}a       b\n{rule}"
    text += f"1       {s('c{0}')}\n{rule}\n::\n\n    {s()}\n"
    yield File("rst", "a.rst", text.encode(), s.given)
    for suffix, mark in (("org", "*"), ("adoc", "=")):
        s = Sentences(_PLAIN)
        text = f"{mark} {s('Top of {0}')}\n\n" + "\n\n".join(s.several(8))
        yield File(suffix, f"a.{suffix}", text.encode(), s.given)


MAKERS: tuple[Callable[[], Iterator[File]], ...] = (
    word, slides, by_libreoffice, open_document, rich_text, reportlab_pdfs, other_pdfs, pages,
    books, mails, markdown, tables, workbooks, records, sources,
)  # fmt: skip
