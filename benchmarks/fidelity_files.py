# mypy: disable-error-code="no-untyped-call, arg-type"
"""The documents of :mod:`benchmarks.fidelity`: in every format, of sentences that are known.

Each maker gives files as ``File(format, name, content, sentences)``. A sentence holds a word that
no other has, and signs that readers are known to lose: &, <, *, brackets, quotes, umlauts.
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
from textwrap import wrap
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
_WIDER = ("Łódź, Αθήνα and {0} answer “no” – or “yes…” at 20 °C.",)
_HEADINGS = ("Rules of {0} & sons", "The {0} ladder", "Fees for {0} <new>")


@dataclass(slots=True)
class Sentences:
    """Sentences, none of them twice, and all that were given."""

    templates: Sequence[str] = _LATIN + _WIDER
    count: int = 0
    given: list[str] = field(default_factory=list)

    def __call__(self, template: str = "") -> str:
        """The next one; ``template``: with the word in its place {0}."""
        number, word = self.count + 7, ""
        while len(word) < 8:
            word += _SYLLABLES[number % 71]
            number = number * 37 // 71 + 11 * len(word) + self.count
        template = template or self.templates[self.count % len(self.templates)]
        self.count += 1
        self.given.append(template.format(f"{word}{self.count}"))
        return self.given[-1]

    def heading(self) -> str:
        """The next heading."""
        return self(_HEADINGS[self.count % len(_HEADINGS)])

    def several(self, count: int = 3) -> list[str]:
        """Some in a row."""
        return [self() for _ in range(count)]


_NUMBERS = Sentences()


@dataclass(frozen=True, slots=True)
class File:
    """A document."""

    format: str
    name: str
    content: bytes
    sentences: list[str]  # that stand in it as text
    pictured: list[str] = field(default_factory=list)  # that no reader finds without OCR: named


def _sentences(templates: Sequence[str] = _LATIN + _WIDER) -> Sentences:
    """Sentences with words that no other file has."""
    made = Sentences(templates, count=_NUMBERS.count)
    _NUMBERS.count += 500
    return made


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


# ---------------------------------------------------------------------- Word and what it is in


def word() -> Iterator[File]:
    """By python-docx: prose, tabs, lists, tables in tables, notes, text boxes, numbered headings."""
    import docx
    from docx.oxml import OxmlElement, parse_xml
    from docx.oxml.ns import nsdecls, qn

    s, file = _sentences(), docx.Document()
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
    broken.add_run(s("Line one of {0}."))
    broken.add_run().add_break()
    broken.add_run(s("Line two of {0}."))
    table = file.add_table(rows=3, cols=2)
    for row in table.rows:
        for cell in row.cells:
            cell.text = s()
    inner = table.cell(2, 1).add_table(rows=1, cols=1)
    inner.cell(0, 0).text = s("A table in a table holds {0}.")
    wide = table.cell(0, 0).merge(table.cell(0, 1))
    assert wide.text
    box = (
        f"<w:r {nsdecls('w')}><w:pict><v:shape xmlns:v='urn:schemas-microsoft-com:vml'><v:textbox>"
        f"<w:txbxContent><w:p><w:r><w:t>{escape(s())}</w:t></w:r></w:p></w:txbxContent></v:textbox>"
        "</v:shape></w:pict></w:r>"
    )
    anchor = file.add_paragraph(s("This paragraph anchors {0}."))
    anchor._p.append(parse_xml(box))
    inserted = OxmlElement("w:ins")
    inserted.append(parse_xml(f"<w:r {nsdecls('w')}><w:t>{escape(s())}</w:t></w:r>"))
    file.add_paragraph()._p.append(inserted)
    control = parse_xml(
        f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p><w:r><w:t>{escape(s())}</w:t></w:r></w:p>"
        "</w:sdtContent></w:sdt>"
    )
    file.element.body.insert(3, control)
    link = OxmlElement("w:hyperlink")
    link.set(qn("w:anchor"), "x")
    link.append(parse_xml(f"<w:r {nsdecls('w')}><w:t>{escape(s())}</w:t></w:r>"))
    file.add_paragraph()._p.append(link)
    symbols = parse_xml(
        f"<w:r {nsdecls('w')}><w:t xml:space='preserve'>{s('Twenty{0}').removeprefix('Twenty')} co</w:t>"
        "<w:noBreakHyphen/><w:t>op</w:t></w:r>"
    )
    s.given[-1] = s.given[-1].removeprefix("Twenty") + " co-op"
    file.add_paragraph()._p.append(symbols)
    section = file.sections[0]
    section.header.paragraphs[0].text = s("The header of {0}")
    section.footer.paragraphs[0].text = s("The footer of {0}")
    file.add_comment(file.paragraphs[2].runs[0], text=s("A comment on {0}."), author="Ann")
    yield File("docx", "plain.docx", _with_notes(_saved(file), s), s.given)

    s, file = _sentences(), docx.Document()
    outline = (
        '<w:abstractNum w:abstractNumId="77"><w:multiLevelType w:val="multilevel"/>'
        '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
        '<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="decimal"/>'
        '<w:lvlText w:val="%1.%2"/></w:lvl></w:abstractNum>'
    )
    letters = (
        '<w:abstractNum w:abstractNumId="78"><w:lvl w:ilvl="0"><w:start w:val="3"/>'
        '<w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1)"/></w:lvl></w:abstractNum>'
    )
    numbering = file.part.numbering_part.element
    for number, xml in ((77, outline), (78, letters)):
        numbering.insert(0, parse_xml(xml.replace(">", f" {nsdecls('w')}>", 1)))
        numbering.append(
            parse_xml(
                f'<w:num {nsdecls("w")} w:numId="{number}"><w:abstractNumId w:val="{number}"/></w:num>'
            )
        )
    for label, level, number in (
        ("1.", 0, 77), ("1.1", 1, 77), ("1.2", 1, 77), ("2.", 0, 77), ("2.1", 1, 77),
        ("c)", 0, 78), ("d)", 0, 78),
    ):  # fmt: skip
        text = s(f"{label} The duties of {{0}}")
        shown = text.removeprefix(label + " ")
        para = file.add_heading(shown, level + 1) if number == 77 else file.add_paragraph(shown)
        para._p.get_or_add_pPr().append(
            parse_xml(
                f'<w:numPr {nsdecls("w")}><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
            )
        )
        file.add_paragraph(s())
    yield File("docx", "numbered.docx", _saved(file), s.given)


def _with_notes(data: bytes, s: Sentences) -> bytes:
    """A docx with two footnotes and an endnote, whose first id is 1."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    links = overrides = references = ""
    for kind, count in (("footnote", 2), ("endnote", 1)):
        notes = "".join(
            f'<w:{kind} w:id="{n}"><w:p><w:r><w:t>{escape(s())}</w:t></w:r></w:p></w:{kind}>'
            for n in range(1, count + 1)
        )
        files[f"word/{kind}s.xml"] = f"<w:{kind}s {space}>{notes}</w:{kind}s>".encode()
        links += f'<Relationship Id="{kind}" Type="{kinds}/{kind}s" Target="{kind}s.xml"/>'
        overrides += f'<Override PartName="/word/{kind}s.xml" ContentType="{types}.{kind}s+xml"/>'
        references += "".join(
            f'<w:p><w:r><w:t>{escape(s())}</w:t></w:r><w:r><w:{kind}Reference w:id="{n}"/></w:r></w:p>'
            for n in range(1, count + 1)
        )
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

    s, file = _sentences(), pptx.Presentation()
    for _ in range(3):
        slide = file.slides.add_slide(file.slide_layouts[1])
        slide.shapes.title.text = s.heading()
        slide.placeholders[1].text = "\n".join(s.several(4))
        box = slide.shapes.add_textbox(Inches(1), Inches(5), Inches(4), Inches(1))
        box.text_frame.text = s()
        grid = slide.shapes.add_table(2, 2, Inches(1), Inches(6), Inches(4), Inches(1)).table
        for row in range(2):
            for column in range(2):
                grid.cell(row, column).text = s()
        group = slide.shapes.add_group_shape()
        group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = s()
    slide.notes_slide.notes_text_frame.text = s("The speaker notes {0}.")
    yield File("pptx", "slides.pptx", _saved(file), s.given)


def by_libreoffice() -> Iterator[File]:
    """A page of HTML as LibreOffice writes it in docx, odt, rtf and pdf; none without it."""
    program = shutil.which("soffice")
    if program is None:
        return
    for form, output in (("docx", "docx"), ("odt", "odt"), ("rtf", "rtf"), ("pdf", "pdf")):
        s = _sentences(_LATIN if form in ("rtf", "pdf") else _LATIN + _WIDER)
        body = "".join(
            f"<h{level}>{escape(s.heading())}</h{level}>"
            + "".join(f"<p>{escape(text)}</p>" for text in s.several(6))
            + f"<ul><li>{escape(s())}</li><li>{escape(s())}</li></ul>"
            for level in (1, 2, 1)
        )
        body += f"<table border=1><tr><td>{escape(s())}</td><td>{escape(s())}</td></tr></table>"
        body += f"<p>Spaces   of {escape(s('{0} end here.'))}</p>"
        s.given[-1] = f"Spaces of {s.given[-1]}"
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            page.write_text(f"<html><meta charset=utf-8><body>{body}</body></html>", "utf-8")
            command = [program, f"-env:UserInstallation=file://{folder}/profile", "--headless"]
            command += ["--infilter=HTML (StarWriter)"]
            command += ["--convert-to", output, "--outdir", folder, str(page)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            content = (Path(folder) / f"page.{output}").read_bytes()
        yield File(form, f"libreoffice.{form}", content, s.given)


def text_documents() -> Iterator[File]:
    """odt by hand, with runs of spaces and tabs as it codes them, lists, notes and a table."""
    s = _sentences()
    spaced = s("Runs of {0} spaces, and a tab")
    shown = (
        escape(spaced)
        .replace(" of ", '<text:s text:c="3"/>of ')
        .replace(" and ", "<text:tab/>and ")
    )
    body = f'<text:h text:outline-level="1">{escape(s.heading())}</text:h><text:p>{shown}</text:p>'
    body += "".join(f"<text:p>{escape(text)}</text:p>" for text in s.several(12))
    body += (
        f"<text:list><text:list-item><text:p>{escape(s())}</text:p></text:list-item></text:list>"
    )
    body += (
        f"<text:p>{escape(s('A noted word of {0}.'))}<text:note><text:note-citation>1"
        f"</text:note-citation><text:note-body><text:p>{escape(s())}</text:p></text:note-body>"
        f"</text:note></text:p>"
    )
    body += (
        f"<table:table><table:table-row><table:table-cell><text:p>{escape(s())}</text:p>"
        f"</table:table-cell></table:table-row></table:table>"
    )
    body += (
        f"<text:p><draw:frame><draw:text-box><text:p>{escape(s())}</text:p></draw:text-box>"
        f"</draw:frame>{escape(s())}</text:p>"
    )
    first, second = s("Part of {0} is bold"), s("Broken by {0}")
    body += f"<text:p>{escape(first)[:6]}<text:span>{escape(first)[6:]}</text:span></text:p>"
    body += f"<text:p>{escape(second)}<text:line-break/>{escape(s())}</text:p>"
    name = "urn:oasis:names:tc:opendocument:xmlns:"
    spaces = " ".join(f'xmlns:{one}="{name}{one}:1.0"' for one in ("office", "text", "table"))
    spaces += f' xmlns:draw="{name}drawing:1.0"'
    content = (
        f"<office:document-content {spaces}><office:body><office:text>{body}</office:text>"
        "</office:body></office:document-content>"
    )
    mime = "application/vnd.oasis.opendocument.text"
    yield File("odt", "spaces.odt", _zipped({"mimetype": mime, "content.xml": content}), s.given)


def rich_text() -> Iterator[File]:
    """rtf by hand: escaped letters, Unicode, a table, a tab."""
    s = _sentences(_LATIN)

    def coded(text: str) -> str:
        text = text.replace("\\", "\\\\").replace("{", "\\{").replace("}", "\\}")
        return "".join(c if c.isascii() else f"\\'{ord(c):02x}" for c in text)

    body = "".join(f"\\pard {coded(text)}\\par\n" for text in s.several(20))
    body += f"\\pard {coded(s('Drill of {0}:'))}\\tab {coded(s('Seven of {0}'))}\\par\n"
    wide = s("Athens of {0} in Greek: Αθήνα.")
    shown = "".join(c if c.isascii() else f"\\u{ord(c)}?" for c in wide)
    body += f"\\pard \\b {shown}\\b0\\par\n"
    body += "\\trowd\\cellx3000\\cellx6000 "
    body += f"{coded(s())}\\intbl\\cell {coded(s())}\\intbl\\cell\\row\n"
    font = "{\\fonttbl{\\f0 Times New Roman;}}"
    content = f"{{\\rtf1\\ansi\\ansicpg1252\\deff0{font}\n{body}}}"
    yield File("rtf", "hand.rtf", content.encode("ascii"), s.given)


# ---------------------------------------------------------------------- PDF


def reportlab_pdfs() -> Iterator[File]:
    """By reportlab: headings, columns, rows across columns, footers, forms, notes, a scan, a table."""
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas
    from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph, Spacer, Table

    styles = getSampleStyleSheet()

    def flowing(frames: int, s: Sentences, furniture: bool) -> bytes:
        stream, width = io.BytesIO(), (A4[0] - 100) / frames
        boxes = [Frame(50 + n * width, 60, width - 12, A4[1] - 130) for n in range(frames)]

        def furnish(canvas: Any, document: Any) -> None:
            if furniture:
                canvas.drawString(50, A4[1] - 40, "Nordhaven Boat Yard")
                canvas.drawString(280, 30, f"Page {document.page} of 4")

        story: list[Any] = []
        for level in (1, 2, 1, 2):
            story.append(Paragraph(escape(s.heading()), styles[f"Heading{level}"]))
            for _ in range(5):
                story.append(Paragraph(escape(" ".join(s.several(3))), styles["Normal"]))
                story.append(Spacer(1, 6))
        table = Table([[s(), s("Due on {0}")], [s("Cell of {0}"), s("Rate of {0}")]])
        story += [table, Spacer(1, 12), Paragraph(s("The end of {0}."), styles["Normal"])]
        template = BaseDocTemplate(stream, pagesize=A4, title="(anonymous)")
        template.addPageTemplates(PageTemplate(frames=boxes, onPage=furnish))
        template.build(story)
        return stream.getvalue()

    for frames, furniture in ((1, True), (2, False), (2, True), (3, False)):
        s = _sentences(_LATIN)
        content = flowing(frames, s, furniture)
        yield File("pdf", f"reportlab{frames}{furniture}.pdf", content, s.given)

    s, stream = _sentences(_LATIN), io.BytesIO()
    canvas = Canvas(stream, pagesize=A4)
    left, right = s.several(4), s.several(4)
    parts = [[wrap(one, 40, break_on_hyphens=False) for one in some] for some in (left, right)]
    lines = [[line for one in some for line in one] for some in parts]
    for row in range(max(map(len, lines))):  # drawn row by row, across both columns
        for at, column in zip((50, 310), lines, strict=True):
            if row < len(column):
                canvas.drawString(at, 750 - 14 * row, column[row])
    canvas.showPage()
    for page in range(3):  # a short last line above a footer
        canvas.setFont("Helvetica-Bold", 16)
        canvas.drawString(50, 780, s.heading())
        canvas.setFont("Helvetica", 11)
        canvas.drawString(50, 750, s("< {0} begins with a sign."))
        canvas.drawString(50, 735, s())
        canvas.drawString(50, 70, s("A day of {0} costs 7."))
        canvas.drawString(50, 40, f"Page {page + 1} of 3")
        canvas.showPage()
    canvas.drawString(50, 750, s())
    canvas.acroForm.textfield(name="who", value=s("The field of {0}"), x=50, y=700, width=300)
    canvas.acroForm.checkbox(name=s("Agree with {0}"), checked=True, x=50, y=650)
    canvas.acroForm.choice(name="color", value=s("The choice of {0}"), options=[s.given[-1], "b"],
                           x=50, y=600, width=200, height=20)  # fmt: skip
    canvas.textAnnotation(s("A note on {0}."), [50, 500, 80, 530], addtopage=1)
    canvas.freeTextAnnotation(s("A text box of {0}."), [50, 400, 300, 430], addtopage=1)
    canvas.showPage()
    pictured = _sentences(_LATIN)
    canvas.drawImage(ImageReader(_picture(pictured.several(2))), 50, 300, 500, 400)
    canvas.showPage()
    canvas.drawString(50, 750, s())
    canvas.setPageRotation(90)
    canvas.showPage()
    canvas.drawString(50, 750, s())
    canvas.save()
    yield File("pdf", "drawn.pdf", stream.getvalue(), s.given, pictured.given)


def _picture(texts: Sequence[str]) -> io.BytesIO:
    """A page as a scanner sees it."""
    from PIL import Image, ImageDraw

    image, stream = Image.new("L", (1000, 800), 255), io.BytesIO()
    for at, text in enumerate(texts):
        ImageDraw.Draw(image).text((40, 60 + 60 * at), text, fill=0)
    image.save(stream, "PNG")
    stream.seek(0)
    return stream


def other_pdfs() -> Iterator[File]:
    """By fpdf2, with justified lines, and by matplotlib, with embedded outlines of letters."""
    import matplotlib as mpl
    from fpdf import FPDF
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    s, page = _sentences(_LATIN), FPDF()
    page.set_title("Microsoft Word - draft3.docx")
    for _ in range(3):
        page.add_page()
        page.set_font("Times", "B", 18)
        page.multi_cell(0, 10, s.heading(), new_x="LMARGIN", new_y="NEXT")
        page.set_font("Times", size=12)
        for _ in range(4):
            page.multi_cell(0, 6, " ".join(s.several(3)), new_x="LMARGIN", new_y="NEXT")
            page.ln(4)
    yield File("pdf", "fpdf.pdf", bytes(page.output()), s.given)

    for kind in (3, 42):
        s, stream = _sentences(_LATIN), io.BytesIO()
        with mpl.rc_context({"pdf.fonttype": kind}):
            figure = Figure((8, 11))
            FigureCanvasPdf(figure)
            figure.text(0.1, 0.95, s("The plot of {0} and more"), size=18)
            for at in range(12):
                figure.text(0.1, 0.9 - 0.06 * at, s(), size=9, parse_math=False)
            figure.savefig(stream, format="pdf")
        yield File("pdf", f"matplotlib{kind}.pdf", stream.getvalue(), s.given)


# ---------------------------------------------------------------------- HTML and books


def _page(s: Sentences) -> str:
    """HTML of most that stands in pages."""
    q = lambda: escape(s())  # noqa: E731
    return (
        f"<header><h1>{escape(s.heading())}</h1></header><main><p>{q()}<p>{q()}<br>{q()}"
        f"<h2><svg viewBox='0 0 9 9'><path d='M1 2z'/></svg>{escape(s.heading())}</h2>"
        f"<form action=x><div><p>{q()}</p><label>{q()}</label><input value='{q()}'>"
        f"<select><option>{q()}</option></select><textarea>{q()}</textarea>"
        f"<button>{q()}</button></div></form>"
        f"<dl><dt>{q()}<dd>{q()}</dl><ul><li>{q()}<ul><li>{q()}</ul><li><p>{q()}</p></ul>"
        f"<table><caption>{q()}</caption><tr><th>{q()}<td>{q()}<tr><td>{q()}<td>"
        f"<table><tr><td>{q()}</table></table>"
        f"<pre>{q()}\n  {q()}</pre><blockquote>{q()}</blockquote><details><summary>{q()}</summary>"
        f"{q()}</details><figure><img src='data:image/png;base64,iVBORw0KGgo=' alt='{q()}'>"
        f"<figcaption>{q()}</figcaption></figure><div>{q()}<div>{q()}</div>{q()}</div>"
        f"<p>{escape(s()[:9])}<b>{escape(s.given[-1][9:])}</b></p>"
        f"<p>A<i>B</i> x<sup>2</sup> {q()}</p><section><h3>{escape(s.heading())}</h3>{q()}</section>"
        f"<noscript>{q()}</noscript><math><mi>x</mi></math></main>"
    )


def pages() -> Iterator[File]:
    """HTML whole, in fragments, in other encodings; with forms, SVG, definition lists."""
    for name, encoding in (("page.html", "utf-8"), ("page.htm", "cp1252"), ("x.xhtml", "utf-8")):
        s = _sentences(_LATIN if encoding == "cp1252" else _LATIN + _WIDER)
        title = escape(s.heading())
        head = f"<meta charset={encoding}><title>{title}</title><style>p {{color: red}}</style>"
        content = f"<!doctype html><html><head>{head}</head><body>{_page(s)}"
        content += "<script>var x = '<p>no</p>';</script></body></html>"
        yield File("html", name, content.encode(encoding), s.given)
    s = _sentences()
    whole = f"<form id=aspnetForm><table><tr><td>{_page(s)}</table></form>"
    yield File("html", "fragment.html", whole.encode(), s.given)


def books() -> Iterator[File]:
    """epub with chapters of escaped names, tags that are text, and an order of its own."""
    s, spine, items, files = _sentences(), "", "", dict[str, str | bytes]()
    title = s.heading()
    for number in (2, 1, 3):
        name = f"text/chapter%20{number}.xhtml"
        items += f'<item id="c{number}" href="{name}" media-type="application/xhtml+xml"/>'
        spine += f'<itemref idref="c{number}"/>'
        body = f"<h1>{escape(s.heading())}</h1>" + "".join(
            f"<p>{escape(text)}</p>" for text in s.several(12)
        )
        body += f"<dl><dt>{escape(s())}</dt><dd>{escape(s())}</dd></dl>"
        body += f"<table><tr><td>{escape(s())}</td></tr></table>"
        files[f"in/text/chapter {number}.xhtml"] = (
            f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
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


# ---------------------------------------------------------------------- mail


def mails() -> Iterator[File]:
    """Eight shapes of mails, each alone and all in an mbox."""
    s, made = _sentences(), list[tuple[str, bytes, list[str]]]()

    def mail(name: str, message: EmailMessage) -> None:
        message["Subject"] = s("Re: order of {0}")
        message["From"], message["To"] = "Ann Lee <ann@example.org>", "bo@example.org"
        message["Date"] = "Tue, 5 Mar 2024 10:00:00 +0000"
        made.append((name, bytes(message), [*s.given]))
        s.given.clear()

    def text(kind: str, content: str, name: str = "") -> MIMEPart:
        part = MIMEPart()
        part.set_content(content, subtype=kind)
        if name:
            part.add_header("Content-Disposition", "attachment", filename=name)
        return part

    def html() -> str:
        return f"<html><body>{''.join(f'<p>{escape(x)}</p>' for x in s.several(6))}</body></html>"

    plain = EmailMessage()
    plain.set_content("\n\n".join(s.several(8)), cte="quoted-printable")
    mail("plain", plain)
    page = EmailMessage()
    page.set_content(html(), subtype="html")
    mail("html", page)
    both = EmailMessage()
    both.set_content(" \n")
    both.add_alternative(html(), subtype="html")
    mail("blank", both)
    stub = EmailMessage()
    stub.set_content("Your program shows no HTML.")
    stub.add_alternative(html(), subtype="html")
    mail("stub", stub)
    mixed = EmailMessage()
    mixed.make_mixed()
    mixed.attach(text("plain", s()))
    picture = MIMEPart()
    picture.set_content(b"x" * 50, "image", "png", disposition="inline", filename="pic.png")
    mixed.attach(picture)
    mixed.attach(text("plain", s()))
    mixed.attach(text("html", f"<p>{escape(s())}</p>"))
    mail("mixed", mixed)
    attached = EmailMessage()
    attached.set_content("")
    attached.make_mixed()
    attached.attach(text("csv", f"item,about\nDrill,{s('Rents {0} by the hour')}\n", "a.csv"))
    attached.attach(text("markdown", f"# {s('Bill {0}')}\n\n{s('Four euros for {0}.')}\n", "b.md"))
    mail("attached", attached)
    forwarded = EmailMessage()
    forwarded.set_content(s())
    inner = EmailMessage()
    inner["Subject"] = s("Inner words of {0}")
    inner.set_content(s())
    forwarded.add_attachment(inner)
    mail("forwarded", forwarded)
    invited = EmailMessage()
    invited.make_alternative()
    event = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART:20240506T120000Z\r\n"
    event += f"SUMMARY:{s('Meeting of {0}')}\r\nLOCATION:{s('Room {0}')}\r\n"
    event += f"DESCRIPTION:{s('We talk of {0}')[:20]}\r\n {s.given[-1][20:]}\r\n"
    calendar = text("calendar", event + "END:VEVENT\r\nEND:VCALENDAR\r\n")
    calendar.set_param("method", "REQUEST")
    invited.attach(calendar)
    mail("invited", invited)
    old = EmailMessage()
    mail("latin", old)
    name, head, given = made.pop()
    body = Sentences(_LATIN[:4], count=_NUMBERS.count)
    _NUMBERS.count += 100
    content = "\n\n".join(body.several(4))
    made.append((name, head.rstrip() + b"\n\n" + content.encode("cp1252"), given + body.given))
    for name, content_, given in made:
        yield File("eml", f"{name}.eml", content_, given)
    box = b"".join(b"From ann\n" + content_.rstrip() + b"\n\n" for _, content_, _ in made)
    yield File("mbox", "all.mbox", box, [one for _, _, given in made for one in given])


# ---------------------------------------------------------------------- text


def markdown() -> Iterator[File]:
    """Markdown with every kind of front matter."""
    fronts = (
        "---\ntitle: {0}\n---\n",
        "---\ntitle: >-\n  {0}\n  and more\nsummary: |\n  {1}\n  Second line.\n---\n",
        '---\ntitle: "{0}"\ntags: [a, b]\nauthor:\n  - Ann Lee\n  - Bo\n---\n',
        "---\ntitle: '{0}'\ndate: 2024-03-05\ndescription: {1}\n  goes on\n---\n",
        "+++\ntitle = '{0}'\ndate = 2024-03-05\n+++\n",
        "---\nlayout: page\nheader:\n  title: {0}\n  note: {1}\n---\n",
        "---\n# a comment\ntitle: {0} # another\n...\n",
        "",
    )
    for number, front in enumerate(fronts):
        s = _sentences()
        titles = [s("The title of {0}"), s("A summary of {0} in words")]
        s.given = [one for at, one in enumerate(titles) if f"{{{at}}}" in front]
        marked = lambda text: "".join("\\" * (c in "\\`*_{}[]<>()#+-.!|~&") + c for c in text)  # noqa: E731
        body = front.format(*titles) + f"\n# {marked(s.heading())}\n\n"
        for text in s.several(12):
            body += f"{marked(text)}\n\n"
        body += f"- {marked(s())}\n- {marked(s())}\n\n> {marked(s())}\n\n```\n{s()}\n```\n\n"
        body += f"| a | b |\n| --- | --- |\n| {marked(s())} | {marked(s())} |\n\n"
        body += f"<div>{escape(s())}</div>\n\n<details>\n\n{marked(s())}\n\n</details>\n\n"
        body += f"Set `{s('code of <{0}> & *co*')}` here and [{marked(s())}](http://x.y/z).\n\n"
        body += f"Term {marked(s())}[^1]\n\n[^1]: {marked(s())}\n\n2 < 3 and {s('a * b of {0}')}\n"
        yield File("md", f"front{number}.md", body.encode(), s.given)


def tables() -> Iterator[File]:
    """csv of twelve styles of headers, with preambles, ragged rows and other separators."""
    heads = {
        "plain": ["name", "city", "note"], "twice": ["name", "note", "note"],
        "empty": ["name", "", "note"], "digit": ["name", "2nd city", "note"],
        "dot": ["no.", "city.", "note."], "asked": ["Who?", "Where?", "What do they say?"],
        "long": ["name", "The city in which they live at the time of writing this", "note"],
        "year": ["name", "2023", "2024"], "unit": ["name", "city (DE)", "note [text]"],
        "upper": ["NAME", "CITY", "NOTE"], "coded": ["name_id", "cityName", "note-text"],
        "first": ["", "city", "note"],
    }  # fmt: skip
    short = ("Sees {0}", "Likes {0} & tea", "Says 3 < {0}")
    for name, head in heads.items():
        s, stream = _sentences(short), io.StringIO()
        writer = csv.writer(stream)
        writer.writerow(head)
        for _ in range(30):
            writer.writerow([s("Person {0}"), "Ulm", s()])
        yield File("csv", f"{name}.csv", stream.getvalue().encode(), s.given)
    for name, mark, encoding in (
        ("semi.csv", ";", "cp1252"), ("tab.tsv", "\t", "utf-8"), ("pipe.csv", "|", "utf-8"),
        ("bom.csv", ",", "utf-8-sig"), ("wide.csv", ";", "utf-16"), ("tabbed.csv", "\t", "utf-8"),
    ):  # fmt: skip
        s, stream = _sentences(("Straße of {0}", "Señor {0} sings")), io.StringIO()
        writer = csv.writer(stream, delimiter=mark)
        writer.writerow(["name", "note"])
        writer.writerows([s(), s()] for _ in range(30))
        yield File("csv", name, stream.getvalue().encode(encoding), s.given)
    s = _sentences(short)
    lines = [f"{s('Report of {0} 2024')}", "", "Name;City;Note"]
    lines += [f"{s('Person {0}')};Ulm;{s()}" for _ in range(10)]
    yield File("csv", "preamble.csv", "\n".join(lines).encode(), s.given)
    s = _sentences(short)
    lines = ["name,city,note", *(f"{s('Person {0}')},Ulm,{s()}" for _ in range(25))]
    lines += [f"{s('Late {0}')},Ulm", f"{s('Person {0}')},Bonn,{s()},{s('extra of {0}')}"]
    lines += [f"{s('Person {0}')},Ulm,{s()}" for _ in range(3)]
    yield File("csv", "ragged.csv", "\n".join(lines).encode(), s.given)
    s = _sentences(short)
    lines = ["name,city,note", f"{s('Person {0}')},Ulm", f"{s('Person {0}')},Ulm,{s()},{s()}"]
    lines += [f"{s('Person {0}')},Ulm,{s()}" for _ in range(30)]
    yield File("csv", "ragged_first.csv", "\n".join(lines).encode(), s.given)


def sheets() -> Iterator[File]:
    """xlsx by openpyxl and xlsxwriter, ods by odfpy: headers, merged cells, percents, dates, notes."""
    import openpyxl
    from openpyxl.comments import Comment

    s, book = _sentences(), openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Staff"
    heads = (["Name", "Name", "City", ""], ["No.", "2nd", "How many?", "A very long name " * 3])
    sheet.append(heads[0])
    for _ in range(10):
        sheet.append([s(), s(), "Ulm", s()])
    other = book.create_sheet("Odd")
    other.append([s("Above {0}")])
    other.append([])
    other.append(heads[1])
    for _ in range(10):
        other.append([s(), s(), 3, s()])
    other["A5"].comment = Comment(s("A comment on {0}"), "Ann")
    merged = book.create_sheet("Merged")
    merged.append(["Region", "City", "Share", "Since", "Pays"])
    for _ in range(3):
        region, start = s("Region {0}"), merged.max_row + 1
        for _ in range(3):
            city = s("City {0}")
            merged.append([region, city, 0.256, date(2024, 3, 5), 1234.5])
            s.given.append(f"Region: {region}; City: {city}; Share: 25.6%; Since: 2024-03-05")
            merged.cell(merged.max_row, 3).number_format = "0.0%"
        merged.merge_cells(start_row=start, end_row=start + 2, start_column=1, end_column=1)
    yield File("xlsx", "openpyxl.xlsx", _saved(book), s.given)

    s = _sentences()
    book = openpyxl.Workbook()
    book.active.append(["Name", "Note"])
    book.active.append([s(), s()])
    hidden = book.create_sheet("Salaries")
    hidden.append(["Name", "Pay"])
    secret = _sentences().several(2)
    hidden.append(secret)
    hidden.sheet_state = "hidden"
    yield File("xlsx", "hidden.xlsx", _saved(book), s.given, secret)

    import xlsxwriter

    s, stream = _sentences(), io.BytesIO()
    with xlsxwriter.Workbook(stream) as written:
        page = written.add_worksheet("Prices")
        page.write_row(0, 0, ["Item", "Price (EUR)", "Note"])
        for row in range(1, 9):
            page.write_row(row, 0, [s(), row * 1.5, s()])
        page.write_rich_string(9, 0, "Half ", written.add_format({"bold": True}), s())
        page.write_formula(9, 2, '="a"&"b"', None, s("Computed {0}"))
        page.insert_textbox(12, 1, s("A box of {0}"))
    yield File("xlsx", "xlsxwriter.xlsx", stream.getvalue(), s.given)

    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table, TableCell, TableRow
    from odf.text import P

    s, text = _sentences(), OpenDocumentSpreadsheet()
    table = Table(name="Staff")
    for values in [["Name", "Name", "Note"], *([s(), s(), s()] for _ in range(10))]:
        line = TableRow()
        for value in values:
            line.addElement(_odf_text(value))
        table.addElement(line)
    row = TableRow()
    cell = TableCell(valuetype="percentage", value="0.256")
    cell.addElement(P(text="25.6%"))
    for one in (_odf_text(s("Share of {0}")), cell):
        row.addElement(one)
    s.given.append("25.6%")
    table.addElement(row)
    text.spreadsheet.addElement(table)
    stream = io.BytesIO()
    text.write(stream)
    yield File("ods", "odf.ods", stream.getvalue(), s.given)


def _odf_text(text: str) -> Any:
    from odf.table import TableCell
    from odf.text import P

    cell = TableCell(valuetype="string")
    cell.addElement(P(text=text))
    return cell


def records() -> Iterator[File]:
    """json and json lines, also where the suffix says the other, and objects within objects."""
    for name in ("rows.jsonl", "list.json", "lines.json"):
        s = _sentences()
        rows = [{"title": s("Title {0}"), "text": " ".join(s.several(2))} for _ in range(10)]
        lines = [json.dumps(row, ensure_ascii=name == "lines.json") for row in rows]
        content = json.dumps(rows) if name == "list.json" else "\n".join(lines)
        yield File("json", name, content.encode(), s.given)
    s = _sentences()
    one = {"name": s("Name {0}"), "tags": s.several(2), "at": {"town": s(), "n": 3}}
    yield File("json", "nested.json", json.dumps({"people": [one]}).encode(), s.given)
    s = _sentences()
    people: list[Any] = []
    for _ in range(5):
        people.append({"name": s("Name {0}"), "about": {"town": s(), "tags": s.several(2)}})
    yield File("json", "nested.jsonl", "\n".join(map(json.dumps, people)).encode(), s.given)


def notebooks() -> Iterator[File]:
    """A notebook: prose, code and what it printed."""
    s = _sentences(_LATIN[3:])
    marked = lambda text: "".join("\\" * (c in "\\`*_[]<>#~|&") + c for c in text)  # noqa: E731
    cells: list[dict[str, Any]] = []
    for _ in range(5):
        prose = [f"# {s('Step {0}')}\n", "\n", *(f"{marked(one)}\n\n" for one in s.several(3))]
        cells.append({"cell_type": "markdown", "source": prose})
        cells.append({"cell_type": "code", "source": f"x = 1  # {s()}", "outputs": []})
    cells.append({"cell_type": "raw", "source": s("A raw cell of {0}.")})
    yield File("ipynb", "steps.ipynb", json.dumps({"cells": cells}).encode(), s.given)


def sources() -> Iterator[File]:
    """Texts whose marks are of their own: TeX, code, settings, plain text, captions, XML."""
    s = _sentences(
        (*_LATIN[6:8], "The {0} method of R\\&D is 5\\% better.", "It is {0}\\_x and so on.")
    )
    parts = [s("The title of {0}"), s("The abstract of {0} says so.")]
    body = f"\\documentclass{{article}}\n\\title{{{parts[0]}}}\n\\begin{{document}}\n\\maketitle\n"
    body += f"\\begin{{abstract}}\n{parts[1]}\n\\end{{abstract}}\n"
    for _ in range(4):
        body += f"\\section{{{s('Rules of {0}')}}}\n{' '.join(s.several(3))}\n\n"
        body += f"\\begin{{itemize}}\\item {s()}\\item {s()}\\end{{itemize}}\n"
        body += f"Text\\footnote{{{s('A note of {0}.')}}} with \\textbf{{{s('bold {0} words')}}}.\n"
        body += f"\\begin{{figure}}\\caption{{{s('A caption of {0}.')}}}\\end{{figure}}\n"
    shown = [one.replace("\\&", "&").replace("\\%", "%").replace("\\_", "_") for one in s.given]
    yield File("tex", "paper.tex", (body + "\\end{document}\n").encode(), shown)

    for name, mark in (
        ("a.go", "//"),
        ("a.sql", "--"),
        ("a.yaml", "#"),
        ("a.sh", "#"),
        ("a.js", "//"),
    ):
        s = _sentences()
        lines = [f"{mark} {one}\nfunc{n}()\n" for n, one in enumerate(s.several(11))]
        yield File("code", name, "\n".join(lines).encode(), s.given)
    s = _sentences(_LATIN[4:8])
    code = f'"""{s("The module of {0} starts.")}"""\n\n'
    for number in range(6):
        code += f'def f{number}():\n    """{s("The task of {0} is shown.")}"""\n    # {s()}\n    return 1\n\n'
    yield File("code", "a.py", code.encode(), s.given)
    s = _sentences()
    minified = ";".join(f'var a{n}="{s("minified {0} text")}"' for n in range(60))
    yield File("code", "a.min.js", minified.encode(), [], s.given)
    s = _sentences()
    yield File("txt", "a.txt", "\n\n".join(s.several(22)).encode(), s.given)
    s = _sentences(_LATIN)
    yield File("txt", "latin.txt", "\n".join(s.several(20)).encode("cp1252"), s.given)
    s = _sentences(_LATIN[7:8])
    times = "{}\n00:00:{:02d},000 --> 00:00:{:02d},900\n{}\n"
    captions = [times.format(n, n, n, one) for n, one in enumerate(s.several(20), 1)]
    yield File("srt", "a.srt", "\n".join(captions).encode(), s.given)
    s = _sentences()
    inner = "".join(f"<item id='{n}'><name>{escape(s())}</name></item>" for n in range(11))
    prose = f"<p>{escape(s())} <b>{escape(s())}</b></p><q note='{escape(s())}'>x</q>"
    yield File("xml", "a.xml", f"<all>{inner}{prose}</all>".encode(), s.given)
    s = _sentences(_LATIN[6:8])
    text = "\n\n".join(s.several(10)) + f"\n\n{s('Rules of {0}')}\n{'=' * 30}\n\n* {s()}\n* {s()}\n"
    text += (
        f"\n.. note::\n\n   {s()}\n\nterm\n   {s()}\n\n======  ======\na       b\n======  ======\n"
    )
    text += f"1       {s('c{0}')}\n======  ======\n\n::\n\n    {s()}\n"
    yield File("rst", "a.rst", text.encode(), s.given)
    s = _sentences()
    for name, mark in (("a.org", "*"), ("a.adoc", "=")):
        s = _sentences(_LATIN[6:8])
        text = f"{mark} {s('Top of {0}')}\n\n" + "\n\n".join(s.several(8))
        yield File(name[2:], name, text.encode(), s.given)


MAKERS: tuple[Callable[[], Iterator[File]], ...] = (
    word, slides, text_documents, rich_text, by_libreoffice, reportlab_pdfs, other_pdfs, pages,
    books, mails, markdown, tables, sheets, records, notebooks, sources,
)  # fmt: skip
