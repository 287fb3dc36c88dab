"""Bytes to text: UTF-8, else what the file declares, else the most likely of some encodings.

The words that an encoding gives should be such as people write: of one script, without signs and
capitals within. Times that share count chardet's knowledge of languages, and how usual it is.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from contrasent.documents.archives import Reason, Skip
from contrasent.errors import OptionError

SAMPLE = 1 << 16  # bytes at the start of a file that are searched for a declaration, and UTF-16
KNOWN = 1 << 13  # bytes of lines beyond ASCII by which an encoding is guessed
LONGEST = 40  # letters of a word that are looked at
WESTERN = "cp1252"
UNKNOWN = 0.003  # chardet's confidence in an encoding that it does not name

_MARKS = [
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_USUAL = {  # how usual each encoding is
    WESTERN: 1.35,
    **dict.fromkeys(("cp1250", "iso-8859-2", "cp1251", "koi8-u", "cp1253", "iso-8859-7", "cp1254",
                     "cp1255", "cp1256", "cp1257"), 1.0),
    **dict.fromkeys(("tis-620", "cp932", "euc-jp", "gb18030", "big5", "cp949"), 0.3),
}  # fmt: skip
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,30})|<meta[^>]{0,300}?charset\s*=\s*["']?"""
    rb"""([\w.:-]{2,30})|@charset\s+"([\w.:-]{2,30})"|coding[:=][ \t]*([\w.-]{2,30})""",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\s\x00-\x2c./:-@\[-`{-~]+")
_EDGES = "“”„‚‘’'–—…«»‹›§¶±×€£¼½¾©®™°•·¡¿²³\xa0$+*%-"  # signs around words
_WITHIN = re.compile("[\\d'’·–±\u200c-]+")
_SCRIPTS = {
    "FEMININE": "LATIN", "MASCULINE": "LATIN",  # ordinals
    **dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "IDEOGRAPHIC",
                     "FULLWIDTH"), "EASTERN"),
}  # fmt: skip


class Encoding(NamedTuple):
    """The encoding of a text, and whether it was guessed."""

    name: str
    guessed: bool = False


def encoding_of(blocks: Iterable[bytes], given: str = "") -> Encoding:
    """The encoding of a file that is read in blocks; ``given``: of one that is not UTF-8."""
    utf8, valid, start, strange = codecs.getincrementaldecoder("utf-8")(), True, b"", b""
    for block in blocks:
        if not start:
            start = block[:SAMPLE]
            if stated := marked(start):
                return Encoding(stated)
            if b"\0" in start:
                raise Skip(Reason.BINARY)
        if valid:
            try:
                utf8.decode(block)
                continue
            except UnicodeDecodeError:
                valid = False
        strange += _beyond_ascii(block)
        if len(strange) > KNOWN:
            break
    with suppress(UnicodeDecodeError):
        if valid:
            utf8.decode(b"", final=True)
            return Encoding("utf-8")
    if declared := _declared(start) or given:
        return Encoding(declared)
    sample = strange or _beyond_ascii(start)
    # UTF-8 with some foreign bytes, as two files put together have.
    rest = sample.decode("utf-8", "ignore")
    whole = sum(len(letter.encode()) for letter in rest if not letter.isascii())
    mostly_utf8 = whole >= 8 and whole > 4 * (len(sample) - len(rest.encode()))
    return Encoding("utf-8" if mostly_utf8 else _guess(sample[:KNOWN]), guessed=True)


def _beyond_ascii(data: bytes) -> bytes:
    """The lines that are not of ASCII alone."""
    return b"".join(line for line in data.splitlines(keepends=True) if not line.isascii())


def named(name: str) -> str:
    """The encoding that a text names, Latin-1 as browsers read it; "" if there is none."""
    with suppress(LookupError, UnicodeError):
        "a".encode(name)  # base64 is a codec, but not of text
        found = codecs.lookup(name).name
        return WESTERN if found == "iso8859-1" else found
    return ""


def known(name: str) -> str:
    """An encoding that was given, by the name that Python has for it; "" if none was."""
    if name and not named(name):
        problem = (
            "is not an encoding; use for instance cp1252, iso-8859-2, cp1251, shift_jis or gb18030"
        )
        raise OptionError("--encoding", name, problem)
    return named(name)


def marked(start: bytes) -> str:
    """The encoding that the first bytes name, or that zeros between letters show; "" if none."""
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    some = start[:1000]
    for name, zeros, letters in (
        ("utf-16-le", some[1::2], some[::2]),
        ("utf-16-be", some[::2], some[1::2]),
    ):
        if len(zeros) > 3 and zeros.count(0) > 0.6 * len(zeros) and letters.count(0) == 0:
            with suppress(UnicodeDecodeError):
                shown = start[: len(start) // 2 * 2].decode(name)
                return name if all(c.isprintable() or c.isspace() for c in shown[:200]) else ""
    return ""


def decode(data: bytes, given: str = "") -> tuple[str, Encoding]:
    r"""The text and its encoding; its lines end in "\n"."""
    encoding = encoding_of([data], given)
    text = data.decode(encoding.name, FOREIGN)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", ""), encoding


def _foreign(error: UnicodeError) -> tuple[str, int]:
    """Bytes that an encoding does not have, as Windows-1252."""
    assert isinstance(error, UnicodeDecodeError)
    found = error.object[error.start : error.end]
    return found.decode(WESTERN, "replace"), error.end


FOREIGN = "contrasent-western"
"""How to decode bytes that an encoding does not have: as Windows-1252."""
codecs.register_error(FOREIGN, _foreign)


def _declared(start: bytes) -> str:
    for found in _DECLARED.finditer(start[:2048]):
        name = named(next(filter(None, found.groups())).decode("ascii", "ignore"))
        if name and name not in ("utf-8", "utf-16", "utf-32"):
            return WESTERN if name == "ascii" else name
    return ""


@lru_cache(maxsize=256)
def _guess(sample: bytes) -> str:
    """The most likely encoding of a text; Windows-1252 where that gives the same."""
    confidence = dict[str, float]()
    with suppress(ImportError):
        from chardet import detect_all

        for one in detect_all(sample, include_encodings=[*_USUAL], ignore_threshold=True):
            found = codecs.lookup(str(one["encoding"] or "ascii"))
            confidence[found.name] = one["confidence"]

    def likely(name: str) -> float:
        language = UNKNOWN + confidence.get(codecs.lookup(name).name, 0.0)
        return language * _USUAL[name] * _natural(sample, name) ** 4

    best = max(_USUAL, key=likely)
    same = sample.decode(best, "replace") == sample.decode(WESTERN, "replace")
    return WESTERN if same else best


def _natural(sample: bytes, encoding: str) -> float:
    """The share of the words beyond ASCII that somebody could have written."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return 0.0
    words = [word[:LONGEST] for word in _WORD.findall(text) if not word.isascii()]
    return sum(map(_is_natural, words)) / max(1, len(words))


def _is_natural(word: str) -> bool:
    """True of a word of one script (or two, of the East), without signs and capitals within."""
    parts = _WITHIN.split(word.strip(_EDGES))
    text = "".join(parts)
    scripts = {*map(_script, text)}
    if "EASTERN" in scripts:
        return scripts <= {"EASTERN", "LATIN"}
    signs = any(not c.isalpha() and unicodedata.category(c) != "Mn" for c in text)
    cased = all(part[1:] == part[1:].lower() or part.isupper() for part in parts)
    return cased and not signs and len(scripts) <= 1


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    name = unicodedata.name(letter, "").partition(" ")[0]
    return _SCRIPTS.get(name, name)
