"""Small files of the formats that are converted to Markdown, and the document of a file."""

import io
import zipfile

import pytest

from contrasent.documents.folder import DocumentSource

PROSE = "Rivers carry sand to the sea. The sea grinds it finer."


def pdf(pages, title="", trailer=""):
    """A pdf of pages of lines, written by hand: a font size and a text at each position."""
    objects = {
        1: "<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Count {len(pages)} "
        f"/Kids [{' '.join(f'{10 + 2 * i} 0 R' for i in range(len(pages)))}] >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        4: f"<< /Title ({title}) >>",
    }
    for i, lines in enumerate(pages):
        shown, text = "", "BT /F {} Tf 50 {} Td ({}) Tj ET\n"
        for n, (size, line) in enumerate(lines):
            shown += text.format(size, 750 - 30 * n, line)
        objects[10 + 2 * i] = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] "
            f"/Resources << /Font << /F 3 0 R >> >> /Contents {11 + 2 * i} 0 R >>"
        )
        objects[11 + 2 * i] = f"<< /Length {len(shown)} >>\nstream\n{shown}endstream"
    out, places = b"%PDF-1.4\n", {}
    for number, body in sorted(objects.items()):
        places[number] = len(out)
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start, size = len(out), max(objects) + 1
    table = "".join(
        f"{places.get(n, 0):010d} {'00000 n' if n in places else '65535 f'} \n" for n in range(size)
    )
    end = f"trailer << /Size {size} /Root 1 0 R /Info 4 0 R {trailer} >>\nstartxref\n{start}\n%%EOF"
    return out + f"xref\n0 {size}\n{table}{end}".encode()


def one(folder, name, content):
    """The only document of a file."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (document,) = DocumentSource(folder / name)
    assert document.id == name
    return document


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


def epub():
    package = """<package xmlns="http://www.idpf.org/2007/opf"><metadata
      xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Rivers</dc:title></metadata><manifest>
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
        "in/text/a.xhtml": f"<h1>Two</h1><p>{PROSE}</p>",
        "in/text/b.xhtml": "<h1>One</h1><p>Starts.</p><h2>Bank</h2><p>Mud.</p>",
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
    "<nav><a href=/>Home</a></nav><aside>Menu</aside>"
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


def odt():
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": ODT})


def paged():
    first = [(12, "The banks of a river are made of mud and some-"), (12, "times of stone.")]
    return pdf([first, [], [(12, "It ends here.")]], "Rivers at large")
