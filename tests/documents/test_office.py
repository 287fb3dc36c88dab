"""PDF, Word, PowerPoint and EPUB, each from a file made here."""

import io
import zipfile

import pytest

from contrasent.documents.folder import Document, Section, open_documents
from contrasent.errors import MissingExtraError

PROSE = "Rivers carry sand to the sea. The sea grinds it finer."


def pdf(pages, title="", outline=()):
    """A pdf of pages of lines, written by hand: text at positions, and an outline."""
    kids = " ".join(f"{10 + 2 * i} 0 R" for i in range(len(pages)))
    objects = {
        1: "<< /Type /Catalog /Pages 2 0 R /Outlines 5 0 R >>",
        2: f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        4: f"<< /Title ({title}) >>",
    }
    first = 10 + 2 * len(pages)
    last = first + len(outline) - 1
    objects[5] = (
        f"<< /Type /Outlines /First {first} 0 R /Last {last} 0 R >>" if outline else "<< >>"
    )
    for i, lines in enumerate(pages):
        shown = "".join(
            f"BT /F 12 Tf 50 {750 - 16 * n} Td ({line}) Tj ET\n" for n, line in enumerate(lines)
        )
        objects[10 + 2 * i] = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] "
            f"/Resources << /Font << /F 3 0 R >> >> /Contents {11 + 2 * i} 0 R >>"
        )
        objects[11 + 2 * i] = f"<< /Length {len(shown)} >>\nstream\n{shown}endstream"
    for i, (name, page) in enumerate(outline):
        follows = f"/Next {first + i + 1} 0 R" if i + 1 < len(outline) else ""
        target = f"[{10 + 2 * page} 0 R /Fit]"
        objects[first + i] = f"<< /Title ({name}) /Parent 5 0 R {follows} /Dest {target} >>"
    out, places = b"%PDF-1.4\n", {}
    for number, body in sorted(objects.items()):
        places[number] = len(out)
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start, size = len(out), max(objects) + 1
    out += f"xref\n0 {size}\n".encode()
    for number in range(size):
        place = places.get(number)
        out += (
            f"{place or 0:010d} {'00000' if place else '65535'} {'n' if place else 'f'} \n".encode()
        )
    return (
        out
        + f"trailer << /Size {size} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{start}\n%%EOF".encode()
    )


def one(folder, name, content):
    (folder / name).write_bytes(content)
    (document,) = open_documents(folder / name)
    return document


def test_a_pdf_has_paragraphs_headings_and_no_running_lines(tmp_path):
    pytest.importorskip("pypdf")
    pages = [
        ["Annals of Rivers", "Banks", "The banks of a river are made of mud, sand and some-",
         "times stone.", "They move.", "page 1"],
        ["Annals of Rivers", "A paragraph may go on over the end of one page and on", "page 2"],
        ["Annals of Rivers", "the next one.", "Delta", "Here it ends.", "page 3"],
    ]  # fmt: skip
    content = pdf(pages, "Rivers at large", [("Banks", 0), ("Delta", 2)])
    document = one(tmp_path, "a.pdf", content)
    assert document.title == "Rivers at large"
    assert document.sections == (
        Section(("Banks",), (
            "The banks of a river are made of mud, sand and sometimes stone.",
            "They move.",
            "A paragraph may go on over the end of one page and on the next one.",
        )),
        Section(("Delta",), ("Here it ends.",)),
    )  # fmt: skip


def test_a_scan_has_no_text_and_a_broken_pdf_is_broken(tmp_path):
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(pdf([["Text of a page."]]))
    (tmp_path / "b.pdf").write_bytes(pdf([[], []]))
    (tmp_path / "c.pdf").write_bytes(b"%PDF-1.4 and no more")
    source = open_documents(tmp_path)
    assert [d.id for d in source] == ["a.pdf"]
    examples = {reason: skipped.examples for reason, skipped in source.report.skipped.items()}
    assert examples == {"no text (a scan?)": ["b.pdf"], "broken": ["c.pdf"]}


def test_a_word_document_has_headings_and_tables_in_their_places(tmp_path):
    docx = pytest.importorskip("docx")
    file = docx.Document()
    file.core_properties.title = ""
    file.add_paragraph("The river", style="Title")
    file.add_paragraph(PROSE)
    file.add_heading("Banks", level=1)
    table = file.add_table(rows=2, cols=2)
    for cell, text in zip((c for row in table.rows for c in row.cells), "abcd", strict=True):
        cell.text = text
    table.rows[0].cells[0].merge(table.rows[0].cells[1])
    file.add_heading("Left", level=2)
    file.add_paragraph("One.", style="List Bullet")
    file.sections[0].footer.paragraphs[0].text = "Imprint"
    stream = io.BytesIO()
    file.save(stream)
    assert one(tmp_path, "a.docx", stream.getvalue()) == Document(
        "a.docx",
        "The river",
        (
            Section((), (PROSE,)),
            Section(("Banks",), ("a b\nc | d",)),
            Section(("Banks", "Left"), ("One.",)),
        ),
    )


def test_a_presentation_has_a_section_a_slide(tmp_path):
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    file.core_properties.title = "Rivers"
    slide = file.slides.add_slide(file.slide_layouts[1])
    slide.shapes.title.text = "Banks"
    slide.placeholders[1].text = "One.\nTwo."
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    bare = file.slides.add_slide(file.slide_layouts[6])
    grid = bare.shapes.add_table(1, 2, 0, 0, 100, 100).table
    grid.cell(0, 0).text, grid.cell(0, 1).text = "a", "b"
    stream = io.BytesIO()
    file.save(stream)
    assert one(tmp_path, "a.pptx", stream.getvalue()) == Document(
        "a.pptx",
        "Rivers",
        (Section(("Banks",), ("One.", "Two.", "Say it slowly.")), Section(("2",), ("a | b",))),
    )


def test_an_epub_is_read_in_the_order_of_its_spine(tmp_path):
    package = """<package xmlns="http://www.idpf.org/2007/opf"><metadata
      xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Rivers</dc:title></metadata><manifest>
      <item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
      <item id="b" href="text/b%20b.xhtml" media-type="application/xhtml+xml"/>
      <item id="a" href="text/a.xhtml" media-type="application/xhtml+xml"/></manifest>
      <spine><itemref idref="n"/><itemref idref="b"/><itemref idref="a"/></spine></package>"""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="in/book.opf"/></rootfiles></container>',
        )
        archive.writestr("in/book.opf", package)
        archive.writestr("in/nav.xhtml", "<ol><li>Contents</li></ol>")
        archive.writestr("in/text/a.xhtml", f"<h1>Two</h1><p>{PROSE}</p>")
        archive.writestr("in/text/b b.xhtml", "<h1>One</h1><p>Starts.</p><h2>Bank</h2><p>Mud.</p>")
    assert one(tmp_path, "a.epub", stream.getvalue()) == Document(
        "a.epub",
        "Rivers",
        (
            Section(("One",), ("Starts.",)),
            Section(("One", "Bank"), ("Mud.",)),
            Section(("Two",), (PROSE,)),
        ),
    )


def test_an_office_file_that_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("contrasent.adapt.formats.office.LARGEST", 1000)
    with zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", "x" * 1001)
    (tmp_path / "b.md").write_text(PROSE)
    pytest.importorskip("docx")
    source = open_documents(tmp_path)
    assert [d.id for d in source] == ["b.md"]
    assert source.report.skipped["broken"].examples == ["a.docx"]


def test_a_parser_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch):
    for module in ("pypdf", "docx", "pptx"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    for name in ("a.pdf", "b.docx", "c.pptx"):
        (tmp_path / name).write_bytes(b"any")
    with pytest.raises(MissingExtraError, match=r"pip install 'contrasent\[documents\]'"):
        list(open_documents(tmp_path))
    (tmp_path / "d.md").write_text(PROSE)
    source = open_documents(tmp_path)
    assert [d.id for d in source] == ["d.md"]
    reasons = list(source.report.skipped)
    assert len(reasons) == 3
    assert all("contrasent[documents]" in reason for reason in reasons)
