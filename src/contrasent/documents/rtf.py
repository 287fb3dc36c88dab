"""Rich Text Format to sections: text, tables, notes, lists' labels and headings by their styles."""

import codecs
import re
from dataclasses import dataclass, replace
from typing import Any

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Parsed, Section, SectionBuilder, one_line

DEEPEST = 1000  # groups in one another
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+"
    rb"|([^\\{}\r\n]+)"
)
_SIGNS = {
    "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“",
    "rdblquote": "”", "bullet": "•", "tab": "\t", "line": "\n", "emspace": " ", "enspace": " ",
    "qmspace": " ", "softline": "\n", "lbr": "\n",
}  # fmt: skip
_UNSEEN = {  # groups without text of the document
    "colortbl", "pict", "object", "themedata", "datastore", "listtable", "listoverridetable",
    "rsidtbl", "generator", "xmlnstbl", "fldinst", "filetbl", "revtbl", "latentstyles", "mmathPr",
    "colorschememapping", "sp", "pgdsctbl", "bkmkstart", "bkmkend", "atnid", "atnauthor", "atndate",
    "nonshppict", "ftnsep", "ftnsepc", "aftnsep", "aftnsepc", "pn", "userprops", "docvar",
    "private", "falt", "panose",
}  # fmt: skip
_SEEN = {"shpinst", "shptxt", "annotation", "fldrslt", "footnote"}  # though they are optional
_APART = {
    "footnote", "annotation", "header", "headerl", "headerr", "headerf", "footer", "footerl",
    "footerr", "footerf",
}  # fmt: skip
_ABOUT = {"title": "title", "author": "author", "keywords": "tags", "subject": "subject"}
_CHARSETS = {
    128: "cp932", 129: "cp949", 134: "gb18030", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _State:
    """What holds in a group."""

    place: str = "text"  # or the group that the text belongs to; "" if it is not read
    fallback: int = 1  # signs that stand in for one of Unicode
    font: int = -1
    optional: bool = False  # the next word names a group that may be passed over


class _Reader:
    def __init__(self, builder: SectionBuilder) -> None:
        self.builder, self.notes, self.about = builder, list[str](), dict[str, Any]()
        self._state, self._above = _State(), list[_State]()
        self._text, self._bytes = dict[str, list[str]](), bytearray()
        self._level, self._style, self._skipped = 0, -1, 0
        self._fonts, self._styles, self._encoding = dict[int, str](), dict[int, int](), "cp1252"
        self._row, self._rows = list[str](), list[str]()

    def read(self, data: bytes) -> None:
        """Follow the marks of a file."""
        at = 0
        while at < len(data):
            token = _TOKEN.match(data, at)
            if token is None:
                at += 1
                continue
            at = token.end()
            word, number, code, sign, group, text = token.groups()
            if code is not None or text is not None:
                self._put(bytes([int(code, 16)]) if code else text)
                continue
            if word == b"u":
                self._flush_bytes()
                self._put_text(chr(int(number or 0) % 65536))
                self._skipped = self._state.fallback
                continue
            self._flush_bytes()
            if group == b"{":
                if len(self._above) > DEEPEST:
                    raise Skip(Reason.BROKEN)
                self._above.append(self._state)
            elif group == b"}":
                self._close()
            elif sign is not None:
                self._sign(sign)
            elif word == b"bin":
                at += max(0, int(number or 0))
            elif word is not None:
                self._word(word.decode("ascii"), int(number) if number else None)
        self._flush_bytes()
        self._paragraph()
        self._table()

    def _put(self, text: bytes) -> None:
        """Add letters, but for those that stand in for one of Unicode."""
        if self._skipped:
            taken = min(self._skipped, len(text))
            self._skipped, text = self._skipped - taken, text[taken:]
        self._bytes += text

    def _flush_bytes(self) -> None:
        if self._bytes:
            encoding = self._fonts.get(self._state.font, self._encoding)
            text = bytes(self._bytes).decode(encoding, "replace")
            self._bytes.clear()
            self._put_text(text)

    def _put_text(self, text: str) -> None:
        if self._state.place:
            self._text.setdefault(self._state.place, []).append(text)

    def _sign(self, sign: bytes) -> None:
        shown = {b"~": " ", b"_": "-", b"*": "", b"-": ""}.get(sign, sign.decode("latin-1"))
        if sign == b"*":
            self._state = replace(self._state, optional=True)
        elif sign in (b"\r", b"\n"):
            self._paragraph()
        elif self._skipped:
            self._skipped -= 1
        elif sign != b":":
            self._put_text(shown)

    def _word(self, word: str, number: int | None) -> None:
        state, self._skipped = self._state, 0
        if word in _UNSEEN or (state.optional and word not in _SEEN):
            self._state = replace(state, place="", optional=False)
        elif not state.place:
            pass
        elif (
            word in _APART
            or word in ("fonttbl", "stylesheet", "info")
            or (state.place == "info" and word in _ABOUT)
        ):
            self._text[word] = []
            self._state = replace(state, place=word, optional=False)
        elif word in _SIGNS:
            self._put_text(_SIGNS[word])
        elif word in ("par", "sect", "page"):
            self._paragraph()
        elif word in ("cell", "nestcell"):
            self._row.append(self._taken())
        elif word in ("row", "nestrow"):
            self._rows.append(" | ".join(filter(None, map(one_line, self._row))))
            self._row.clear()
        else:
            self._property(word, number)

    def _property(self, word: str, number: int | None) -> None:
        state = self._state
        if word == "uc":
            self._state = replace(state, fallback=number or 0)
        elif word == "f" and number is not None:
            self._state = replace(state, font=number)
        elif word == "fcharset" and state.place == "fonttbl":
            self._fonts[state.font] = _CHARSETS.get(number or 0, self._encoding)
        elif word == "ansicpg" and number:
            try:
                self._encoding = codecs.lookup(f"cp{number}").name
            except LookupError:
                self._encoding = "cp1252"
        elif word in ("pard", "plain") and word == "pard":
            self._level = 0
        elif word == "s" and number is not None:
            self._style = number
            self._level = self._styles.get(number, self._level)
        elif word == "outlinelevel" and number is not None:
            self._level = min(number + 1, 6) if number < 9 else 0

    def _close(self) -> None:
        state = self._state
        self._state = self._above.pop() if self._above else _State()
        if state.place == self._state.place and state.place != "stylesheet":
            return
        if state.place == "stylesheet":
            name = "".join(self._text.pop("stylesheet", []))
            if found := re.match(r"\s*(?:heading|überschrift|titre|título) (\d)", name, re.I):
                self._styles[self._style] = int(found[1])
        elif state.place in _ABOUT:
            self.about[_ABOUT[state.place]] = self._taken(state.place)
        elif state.place in _APART:
            self.notes.append(self._taken(state.place))

    def _taken(self, place: str = "") -> str:
        return "".join(self._text.pop(place or self._state.place, []))

    def _paragraph(self) -> None:
        """End a paragraph."""
        if self._state.place != "text":
            self._put_text("\n")
            return
        text = self._taken().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if self._row and text.strip():
            self._row[-1] += f" {text}"
            return
        if text.strip():
            self._table()
        if self._level:
            self.builder.heading(self._level, text)
        elif "\n" in text:
            self.builder.block(text)
        else:
            self.builder.paragraph(text)

    def _table(self) -> None:
        if self._row:
            self._rows.append(" | ".join(filter(None, map(one_line, self._row))))
            self._row.clear()
        self.builder.lines("\n".join(self._rows))
        self._rows.clear()


def read_rtf(data: bytes) -> Parsed:
    """Title, sections and metadata of a file; headers, footers and notes follow its text."""
    if not data.lstrip()[:5].startswith(b"{\\rtf"):
        raise Skip(Reason.BROKEN)
    builder = SectionBuilder()
    reader = _Reader(builder)
    reader.read(data)
    title, sections, about = builder.finish(reader.about.pop("title", ""), reader.about)
    if notes := list(dict.fromkeys(filter(None, map(one_line, reader.notes)))):
        sections = (*sections, Section((), tuple(notes)))
    return title, sections, about
