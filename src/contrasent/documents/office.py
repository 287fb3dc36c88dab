"""Office files and books to sections: docx, odt and msg by xberg, pptx and epub by their XML.

xberg leaves out the numbers that Word counts itself, and runs of spaces in odt; these are put where
it finds them.
"""

import asyncio
import json
import posixpath
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from contrasent.documents.archives import Reason, Report, Skip, check_members, expands
from contrasent.documents.encodings import decode
from contrasent.documents.html import add_html
from contrasent.documents.sections import Parsed, SectionBuilder

Element = ElementTree.Element
MEDIA = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".msg": "application/vnd.ms-outlook",
}
_PROPERTIES = {
    "title": "title", "creator": "author", "subject": "subject", "keywords": "tags",
    "keyword": "tags", "modified": "date", "date": "date", "created": "date",
}  # fmt: skip
_EMBEDDED = re.compile(
    r"\A(?:[^/]+/)*(?:embeddings/|charts/chart|Object )[^/]*(?:/content\.xml)?\Z"
)
_REWRITTEN = re.compile(r"content\.xml|styles\.xml|word/\w+\.xml")
_MISREAD = {  # by xberg: what was moved away, tabs of headers, returns; runs of spaces, frames
    ".docx": [
        (re.compile(rb"<w:moveFrom [^<>]*[^/<>]>.*?</w:moveFrom>", re.DOTALL), b""),
        (re.compile(rb"<w:ptab [^<>]*/>"), b"<w:tab/>"),
        (re.compile(rb"<w:cr ?/>"), b"<w:br/>"),
    ],
    ".odt": [
        (re.compile(rb"<text:s(?: [^<>]*)?/>|<text:s(?: [^<>]*)?></text:s>"), b" "),
        (re.compile(rb"</draw:frame>"), b"</draw:frame> "),
    ],
}
_MARK = re.compile(r"\[(?:\^|cmt:)[\w-]{1,20}\]")  # of a note, in the text
_LOCK, _MANIFEST = "META-INF/encryption.xml", "META-INF/manifest.xml"
_NUMBER = ("numPr/{*}numId", "numPr/{*}ilvl")
_TITLES = ("title", "ctrTitle")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_ROMAN = (
    ("m", 1000), ("cm", 900), ("d", 500), ("cd", 400), ("c", 100), ("xc", 90), ("l", 50),
    ("xl", 40), ("x", 10), ("ix", 9), ("v", 5), ("iv", 4), ("i", 1),
)  # fmt: skip


def read_word(suffix: str, data: bytes, skip: Report) -> Parsed:
    """Title, sections and metadata of a docx or an odt."""
    builder = SectionBuilder()
    with opened(data) as archive:
        about = properties(archive)
        report_embedded(archive, skip)
        if suffix == ".odt" and _counted(archive):
            skip(Reason.NUMBERS, "")
        data = _rewritten(archive, suffix)
    for node in extracted(data, suffix).document.nodes:
        content, layer = json.loads(str(node.content)), str(node.content_layer)
        if layer == "body":
            _add(builder, content)
        else:
            builder.notes.append(content.get("text", ""))
    return builder.finish(about.pop("title", ""), about)


def extracted(data: bytes, suffix: str) -> Any:
    """A file as xberg reads it."""
    try:
        import xberg
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None
    keep = dict.fromkeys(("include_headers", "include_footers", "include_footnotes"), True)
    config = xberg.ExtractionConfig(
        use_cache=False,
        disable_ocr=True,
        enable_quality_processing=False,
        include_document_structure=True,
        max_archive_depth=1,
        content_filter=xberg.ContentFilterConfig(strip_repeating_text=False, **keep),
    )
    given = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=MEDIA[suffix])
    return asyncio.run(xberg.extract(given, config)).results[0]


def _add(builder: SectionBuilder, content: dict[str, Any]) -> None:
    """Add a node of what xberg read."""
    text = _MARK.sub("", content.get("text") or "")
    match content["node_type"]:
        case "title" | "heading":
            builder.heading(content.get("level", 1), text)
        case "table":
            rows = dict[int, list[str]]()
            for cell in content["grid"]["cells"]:
                rows.setdefault(cell["row"], []).append(_MARK.sub("", cell["content"]))
            builder.table(rows.values())
        case "code" | "raw_block":
            builder.lines(text or content.get("content", ""))
        case "definition_item":
            builder.paragraph(f"{content['term']}: {content['definition']}")
        case "image":
            builder.paragraph(content.get("description") or "")
        case "group" | "list" | "quote" | "page_break" | "slide":
            pass  # what they hold follows
        case _ if "\n" in text:
            builder.block(text)
        case _:
            builder.paragraph(text)


def opened(data: bytes) -> zipfile.ZipFile:
    """The archive that an office file is, unless it is locked or unpacks to far too much."""
    check_unlocked(data)
    archive = zipfile.ZipFile(BytesIO(data))
    if any(map(expands, check_members(archive, len(data)))):
        raise Skip(Reason.EXPANDS)
    if _MANIFEST in archive.namelist() and b"encryption-data" in archive.read(_MANIFEST):
        raise Skip(Reason.ENCRYPTED)
    return archive


def check_unlocked(data: bytes) -> None:
    """Refuse a file of Office with a password, which is an archive within a compound file."""
    if data.startswith(b"\xd0\xcf\x11\xe0") and "EncryptedPackage".encode("utf-16-le") in data:
        raise Skip(Reason.ENCRYPTED)


def properties(archive: zipfile.ZipFile, *parts: str) -> dict[str, Any]:
    """Title, author, last change, subject and tags, as the file states them."""
    about = dict[str, Any]()
    for name in parts or ("docProps/core.xml", "meta.xml"):
        for element in parsed(archive, name).iter():
            key, text = _PROPERTIES.get(local(element)), (element.text or "").strip()
            if key in ("author", "tags") and text:
                about.setdefault(key, []).append(text)
            elif key == "date" and not parts:  # a book's first date is that of its publication
                about[key] = max(about.get(key, ""), text)
            elif key and text:
                about.setdefault(key, text)
    return about


def report_embedded(archive: zipfile.ZipFile, skip: Report, charts: str = "none") -> None:
    """Report parts that are files of their own, and charts, unless those are read."""
    for name in archive.namelist():
        if _EMBEDDED.match(name) and charts not in name:
            skip(Reason.EMBEDDED, f"#{name}")


def parsed(archive: zipfile.ZipFile, name: str) -> Element:
    """A part of an archive, as XML; an empty element if it is not there."""
    try:
        return ElementTree.fromstring(archive.read(name))
    except KeyError:
        return Element("none")


def local(element: Element) -> str:
    """The name of an element without that of its space."""
    return str(element.tag).rpartition("}")[2]


def attribute(element: Element | None, name: str) -> str:
    """An attribute in any namespace; "" if there is none."""
    if element is None:
        return ""
    return next((v for key, v in element.attrib.items() if key.rpartition("}")[2] == name), "")


def link_of(element: Element) -> str:
    """The id of the part that an element of an Office file stands for."""
    return next((value for key, value in element.attrib.items() if key.endswith("}id")), "")


def related(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """What a part of an Office file refers to: kind and name by id."""
    folder, name = posixpath.split(part)
    links = dict[str, tuple[str, str]]()
    for link in parsed(archive, f"{folder}/_rels/{name}.rels"):
        target = unquote(link.get("Target", ""))
        target = target[1:] if target[:1] == "/" else posixpath.normpath(f"{folder}/{target}")
        links[link.get("Id", "")] = link.get("Type", "").rpartition("/")[2], target
    return links


def _counted(archive: zipfile.ZipFile) -> bool:
    """True if an odt has lists or headings with numbers, which are not read."""
    parts = [parsed(archive, name) for name in ("content.xml", "styles.xml")]
    numbered = {
        attribute(style, "name")
        for part in parts
        for style in part.iterfind(".//{*}list-style")
        if any(attribute(level, "num-format") for level in style)
    }
    lists = parts[0].iterfind(".//{*}list")
    return not numbered.isdisjoint(attribute(one, "style-name") for one in lists)


def _rewritten(archive: zipfile.ZipFile, suffix: str) -> bytes:
    """The archive with what xberg misreads written as it reads it."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as copy:
        for part in archive.namelist():
            content = archive.read(part)
            for pattern, replacement in _MISREAD[suffix] if _REWRITTEN.fullmatch(part) else ():
                content = pattern.sub(replacement, content)
            # Word on the web writes "document2.xml".
            part = re.sub(r"\A(word/(?:_rels/)?document)\d+\.xml", r"\1.xml", part)
            if part == "word/document.xml":
                content = _numbered(archive, content)
            copy.writestr(part, content)
    return stream.getvalue()


# ---------------------------------------------------------------------- numbers of Word


class _Numbering:
    """Counts as Word does: a list for each abstract numbering, levels below start again."""

    def __init__(self, numbering: Element, styles: Element) -> None:
        # Levels by abstract numbering, which of these a list has, and its own starts; counts.
        self._levels, self._lists = dict[str, dict[int, Element]](), dict[str, str]()
        self._starts, self._counts = dict[tuple[str, int], int](), dict[str, dict[int, int]]()
        linked = dict[str, str]()
        for one in numbering.iterfind("{*}abstractNum"):
            name = attribute(one, "abstractNumId")
            self._levels[name] = {_depth(level): level for level in one.iterfind("{*}lvl")}
            linked[_value(one, "styleLink")] = name
            linked[name] = _value(one, "numStyleLink")
        for one in numbering.iterfind("{*}num"):
            name, abstract = attribute(one, "numId"), _value(one, "abstractNumId")
            self._lists[name] = linked.get(linked.get(abstract) or "?", abstract)
            for level in one:
                if start := _value(level, "startOverride"):
                    self._starts[name, _depth(level)] = int(start)
        paths = ("basedOn", *(f"pPr/{{*}}{path}" for path in _NUMBER))
        self._styles = {
            attribute(one, "styleId"): [_value(one, path) for path in paths]
            for one in styles.iterfind("{*}style")
        }

    def label(self, style: str, number: str, level: str) -> str:
        """The label of the next paragraph of that style, or with that number of its own."""
        own, seen = style, set[str]()
        while not number and style in self._styles and style not in seen:
            seen.add(style)
            above, number, given = self._styles[style]
            level, style = level or given, above
        name = self._lists.get(number, "")
        levels = self._levels.get(name, {})
        styled = (at for at, one in levels.items() if own and _value(one, "pStyle") == own)
        depth = int(level or next(styled, 0))
        if depth not in levels:
            return ""
        counts = self._counts.setdefault(name, {})
        start = self._starts.pop((number, depth), None)
        if start is None:
            start = counts[depth] + 1 if depth in counts else _start(levels[depth])
        counts[depth] = start
        for deeper in [at for at in counts if at > depth]:
            del counts[deeper]
        if _value(levels[depth], "numFmt") in ("bullet", "none"):
            return ""

        def shown(match: re.Match[str]) -> str:
            one = levels.get(at := int(match[1]) - 1)
            if one is None:
                return ""
            return _in_form(counts.setdefault(at, _start(one)), _value(one, "numFmt"))

        return re.sub(r"%([1-9])", shown, _value(levels[depth], "lvlText"))


def _depth(level: Element) -> int:
    return int(attribute(level, "ilvl") or 0)


def _start(level: Element) -> int:
    return int(_value(level, "start") or 1)


def _value(element: Element, path: str) -> str:
    return attribute(element.find(f"{{*}}{path}"), "val")


def _in_form(number: int, form: str) -> str:
    shown = f"{number:02d}" if form == "decimalZero" else str(number)
    if form.endswith("Letter"):
        shown = chr(97 + (number - 1) % 26) * ((number - 1) // 26 + 1)
    elif form.endswith("Roman"):
        shown = ""
        for sign, worth in _ROMAN:
            shown += sign * (number // worth)
            number %= worth
    return shown.upper() if form.startswith("upper") else shown


def _numbered(archive: zipfile.ZipFile, content: bytes) -> bytes:
    """The text of a docx with the numbers of its headings and lists, if there are any."""
    if "word/numbering.xml" not in archive.namelist():
        return content
    counted = _Numbering(parsed(archive, "word/numbering.xml"), parsed(archive, "word/styles.xml"))
    for _, (prefix, space) in ElementTree.iterparse(BytesIO(content), ["start-ns"]):
        with suppress(ValueError):  # "ns1" is one that the parser gives itself
            ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(content)
    space = root.tag.removesuffix("document")
    for one in root.iter(f"{space}p"):
        about = one.find(f"{space}pPr")
        if about is None:
            continue
        if label := counted.label(*(_value(about, path) for path in ("pStyle", *_NUMBER))):
            run = Element(f"{space}r")
            ElementTree.SubElement(run, f"{space}t", {_SPACE: "preserve"}).text = f"{label} "
            one.insert(1, run)
    return bytes(ElementTree.tostring(root, "utf-8"))


# ---------------------------------------------------------------------- slides and books


def read_slides(data: bytes, skip: Report) -> Parsed:
    """Title, sections and metadata of a pptx, one section per slide with its notes."""
    builder = SectionBuilder()
    with opened(data) as archive:
        about, shown = properties(archive), related(archive, "ppt/presentation.xml")
        listed = parsed(archive, "ppt/presentation.xml").iterfind("{*}sldIdLst/{*}sldId")
        for number, one in enumerate(listed, 1):
            part = shown.get(link_of(one), ("", ""))[1]
            slide, builder.page = parsed(archive, part), number
            if slide.get("show") == "0":
                skip(Reason.HIDDEN_SHEET, f", slide {number}")
                continue
            _add_shapes(builder, slide)
            for kind, target in related(archive, part).values():
                if kind == "notesSlide":
                    _add_shapes(builder, parsed(archive, target), notes=True)
                elif kind in ("diagramData", "comments", "chart"):
                    root = parsed(archive, target)
                    values = (one.text for one in root.iter() if local(one) in ("v", "text"))
                    found = dict.fromkeys(filter(None, (*_paragraphs(root), *values)))
                    builder.lines("\n".join(found))
        report_embedded(archive, skip, charts="/charts/")
    return builder.finish(about.pop("title", ""), about)


def _add_shapes(builder: SectionBuilder, slide: Element, *, notes: bool = False) -> None:
    """The title of a slide as a heading, and then its texts and tables."""
    shapes = [(attribute(one.find(".//{*}ph"), "type"), one) for one in _shapes(slide)]
    for kind, shape in sorted(shapes, key=lambda one: one[0] not in _TITLES):
        if kind in ("sldNum", "dt", "hdr", "sldImg") or (notes and kind == "ftr"):
            continue
        if (table := shape.find(".//{*}tbl")) is not None:
            rows = table.iterfind("{*}tr")
            builder.table((" ".join(_paragraphs(cell)) for cell in row) for row in rows)
            continue
        texts = _paragraphs(shape)
        if kind in _TITLES and texts and not notes:
            builder.heading(1, " ".join(texts))
        else:
            for text in texts:
                builder.paragraph(text)


def _shapes(element: Element) -> Iterator[Element]:
    for one in element:
        if local(one) in ("sp", "graphicFrame", "cxnSp"):
            yield one
        elif local(one) != "Fallback":  # the same for older programs
            yield from _shapes(one)


def _paragraphs(element: Element) -> list[str]:
    """The texts of the paragraphs of DrawingML within an element."""
    texts = list[str]()
    for one in (one for one in element.iter() if local(one) == "p"):
        runs = (x for x in one.iter() if local(x) in ("t", "br"))
        texts.append("".join("\n" if local(x) == "br" else x.text or "" for x in runs))
    return [text for text in texts if text.strip()]


def read_epub(data: bytes, skip: Report) -> Parsed:
    """Title, sections and metadata of an epub, in the order of its spine."""
    builder = SectionBuilder()
    with opened(data) as archive:
        root = parsed(archive, "META-INF/container.xml").find(".//{*}rootfile")
        part = attribute(root, "full-path")
        package, about = parsed(archive, part), properties(archive, part)
        about.pop("subject", None)
        items = {one.get("id"): one for one in package.iterfind("{*}manifest/{*}item")}
        locked = {unquote(attribute(one, "URI")) for one in parsed(archive, _LOCK).iter()}
        for one in package.iterfind("{*}spine/{*}itemref"):
            item = items.get(one.get("idref"))
            if item is None or "nav" in item.get("properties", "").split():
                continue
            href = posixpath.join(posixpath.dirname(part), unquote(item.get("href", "")))
            name = posixpath.normpath(href)
            if name in locked:
                raise Skip(Reason.ENCRYPTED)
            if name in archive.namelist():
                add_html(builder, decode(archive.read(name))[0])
    return builder.finish(about.pop("title", ""), about)
