"""Word, PowerPoint and EPUB to sections.

Word and PowerPoint by python-docx and python-pptx (MIT, pure Python upon lxml). An EPUB is a zip of
HTML pages with a list of their order: ebooklib, which reads it too, is under the AGPL.
"""

import posixpath
import re
import zipfile
from collections.abc import Iterable
from typing import IO, Any
from urllib.parse import unquote
from xml.etree import ElementTree

from contrasent.adapt.formats.html import read_html
from contrasent.adapt.sections import Section, SectionBuilder, one_line
from contrasent.errors import MissingExtraError

LARGEST = 1 << 29
"""Bytes that a file may take when it is unpacked."""

_HEADING = re.compile(r"^(?:heading|überschrift|titre|título) ?(\d)", re.IGNORECASE)


def check_unpacked(stream: IO[bytes]) -> None:
    """Refuse what is no zip, or one that would unpack to more than ``LARGEST`` bytes."""
    try:
        with zipfile.ZipFile(stream) as archive:
            size = sum(info.file_size for info in archive.infolist())
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise ValueError(str(error)) from error
    if size > LARGEST:
        raise ValueError(f"it unpacks to {size:,} bytes")
    stream.seek(0)


def read_docx(stream: IO[bytes]) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a Word document, tables in place, no headers or footers."""
    try:
        from docx import Document as open_docx
        from docx.table import Table
    except ImportError as error:
        raise MissingExtraError("python-docx", "documents", "reading docx") from error
    check_unpacked(stream)
    builder = SectionBuilder()
    try:
        file = open_docx(stream)
        title = file.core_properties.title or ""
        for item in file.iter_inner_content():
            if isinstance(item, Table):
                builder.lines(
                    _rows([_distinct(cell.text for cell in row.cells)] for row in item.rows)
                )
                continue
            style = (item.style.name if item.style is not None else None) or ""
            if style == "Title":
                title = item.text
            elif found := _HEADING.match(style):
                builder.heading(int(found[1]), item.text)
            else:
                builder.paragraph(item.text)
    except (KeyError, ValueError, AttributeError, SyntaxError, TypeError, OSError) as error:
        raise ValueError(str(error)) from error
    return builder.finish("" if title == "Word Document" else title)


def _distinct(cells: Iterable[str]) -> str:
    """A row; merged cells, which are given once for each place they take, once."""
    texts = [one_line(cell) for cell in cells]
    kept = [text for i, text in enumerate(texts) if text and (i == 0 or text != texts[i - 1])]
    return " | ".join(kept)


def _rows(rows: Iterable[list[str]]) -> str:
    return "\n".join(row for cells in rows for row in cells if row)


def read_pptx(stream: IO[bytes]) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a presentation: a section a slide, its notes last."""
    try:
        from pptx import Presentation
    except ImportError as error:
        raise MissingExtraError("python-pptx", "documents", "reading pptx") from error
    check_unpacked(stream)
    builder = SectionBuilder()
    try:
        file = Presentation(stream)
        title = file.core_properties.title or ""
        for number, slide in enumerate(file.slides, 1):
            head = slide.shapes.title
            name = one_line(head.text_frame.text) if head is not None else ""
            builder.heading(1, name or f"{number}")
            for shape in slide.shapes:
                if head is None or shape.shape_id != head.shape_id:
                    _add_shape(builder, shape)
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                for paragraph in slide.notes_slide.notes_text_frame.paragraphs:
                    builder.paragraph(paragraph.text)
    except (KeyError, ValueError, AttributeError, SyntaxError, TypeError, OSError) as error:
        raise ValueError(str(error)) from error
    return builder.finish("" if title == "PowerPoint Presentation" else title)


def _add_shape(builder: SectionBuilder, shape: Any) -> None:
    for inner in getattr(shape, "shapes", ()):  # a group
        _add_shape(builder, inner)
    if getattr(shape, "has_table", False):
        rows = shape.table.rows
        builder.lines(_rows([_distinct(cell.text for cell in row.cells)] for row in rows))
    elif getattr(shape, "has_text_frame", False):
        for paragraph in shape.text_frame.paragraphs:
            builder.paragraph(paragraph.text)


def read_epub(stream: IO[bytes]) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a book, in its reading order."""
    check_unpacked(stream)
    try:
        with zipfile.ZipFile(stream) as archive:
            return _book(archive)
    except (KeyError, AttributeError, zipfile.BadZipFile, ElementTree.ParseError) as error:
        raise ValueError(f"no whole epub ({error})") from error


def _book(archive: zipfile.ZipFile) -> tuple[str, tuple[Section, ...]]:
    container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
    place = container.find(".//{*}rootfile").attrib["full-path"]  # type: ignore[union-attr]
    package = ElementTree.fromstring(archive.read(place))
    title = one_line(package.findtext(".//{*}metadata/{*}title") or "")
    pages = {
        item.attrib["id"]: item.attrib["href"]
        for item in package.iterfind("{*}manifest/{*}item")
        if item.get("media-type") in ("application/xhtml+xml", "text/html")
        and "nav" not in item.get("properties", "").split()
    }
    sections: list[Section] = []
    for reference in package.iterfind("{*}spine/{*}itemref"):
        if href := pages.get(reference.attrib["idref"]):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(href)))
            chapter, found = read_html(archive.read(name).decode("utf-8", "replace"))
            above = (chapter,) if chapter and chapter.casefold() != title.casefold() else ()
            sections += [Section(above + one.headings, one.paragraphs) for one in found]
    return title, tuple(sections)
