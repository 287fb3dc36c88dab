"""Bytes to text: UTF-8, else what the file declares, else Windows-1252 unless another is better.

An encoding is possible if the words that it gives could be written so: of one script, without signs
and capitals within. Of possible ones chardet's knowledge of languages chooses.
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

SAMPLE = 1 << 16  # bytes at the start of a file in which a declaration is sought, and UTF-16
KNOWN = 1 << 13  # bytes of lines beyond ASCII by which an encoding is guessed
LONGEST = 40  # letters of a word that are looked at
WESTERN = "cp1252"
BETTER = 1.35  # times Windows-1252's score that another must reach
NATURAL = 0.1  # share of words by which another must be more natural

_MARKS = [
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_OTHERS = (
    "cp1250", "iso-8859-2", "cp1251", "koi8-u", "cp1253", "iso-8859-7", "cp1254", "cp1255",
    "cp1256", "cp1257", "tis-620", "cp932", "euc-jp", "gb18030", "big5", "cp949",
)  # fmt: skip
_SEVERAL = ("cp932", "euc-jp", "gb18030", "big5", "cp949")  # bytes a letter
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,30})|<meta[^>]{0,300}?charset\s*=\s*["']?"""
    rb"""([\w.:-]{2,30})|@charset\s+"([\w.:-]{2,30})"|coding[:=][ \t]*([\w.-]{2,30})""",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\s\x00-\x2c./:-@\[-`{-~]+")
_EDGES = "“”„‚‘’'–—…«»‹›§¶±×€£¼½¾©®™°•·¡¿²³\xa0$+*%-"  # signs around words
_WITHIN = re.compile("[\\d'’·–±\u200c-]+")
_HUMP = re.compile("[A-Z]?[^A-Z]+|[A-Z]+")  # "Co" in "GmbHCo"
_SCRIPTS = {
    "FEMININE": "LATIN", "MASCULINE": "LATIN",  # ordinals
    **dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "IDEOGRAPHIC",
                     "FULLWIDTH"), "EASTERN"),
}  # fmt: skip
_ASCII = "".join(map(chr, range(33, 127)))


class Encoding(NamedTuple):
    """The encoding of a text, and whether it was guessed."""

    name: str
    guessed: bool = False


def encoding_of(blocks: Iterable[bytes], given: str = "") -> Encoding:
    """The encoding of a file that is read in blocks; ``given``: of one that is not UTF-8."""
    utf8, start, strange = codecs.getincrementaldecoder("utf-8")(), b"", list[bytes]()
    valid, size = True, 0
    for block in blocks:
        if len(start) < SAMPLE:
            if not start and (stated := marked(block)):
                return Encoding(stated)
            start += block[: SAMPLE - len(start)]
            if b"\0" in start:
                raise Skip(Reason.BINARY)
        if valid:
            try:
                utf8.decode(block)
                continue
            except UnicodeDecodeError:
                valid = False
        lines = [line for line in block.splitlines() if not line.isascii()]
        strange += lines
        size += sum(map(len, lines))
        if size > KNOWN:
            break
    with suppress(UnicodeDecodeError):
        if valid:
            utf8.decode(b"", final=True)
            return Encoding("utf-8")
    if declared := _declared(start):
        return Encoding(declared)
    sample = b"\n".join(strange) or b"\n".join(
        line for line in start.splitlines() if not line.isascii()
    )
    if given:
        return Encoding(given)
    if _mostly_utf8(sample):
        return Encoding("utf-8", guessed=True)
    return Encoding(_guess(sample[:KNOWN]), guessed=True)


def known(name: str) -> str:
    """An encoding that was given, by the name that Python has for it; "" if none was."""
    try:
        return codecs.lookup(name).name if name else ""
    except LookupError:
        problem = (
            "is not an encoding; use for instance cp1252, iso-8859-2, cp1251, shift_jis or gb18030"
        )
        raise OptionError("--encoding", name, problem) from None


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


def _mostly_utf8(data: bytes) -> bool:
    """True of UTF-8 with some foreign bytes, as two files put together have."""
    rest = data.decode("utf-8", "ignore")
    whole = sum(len(letter.encode()) for letter in rest if not letter.isascii())
    return whole >= 8 and whole > 4 * (len(data) - len(rest.encode()))


def _declared(start: bytes) -> str:
    for found in _DECLARED.finditer(start[:2048]):
        name = next(filter(None, found.groups())).decode("ascii", "ignore").casefold()
        with suppress(LookupError):
            known = codecs.lookup(name).name
            if known not in ("utf-8", "utf-16", "utf-32"):
                # Browsers read Latin-1 as Windows-1252.
                return WESTERN if known in ("iso8859-1", "ascii") else known
    return ""


@lru_cache(maxsize=256)
def _guess(sample: bytes) -> str:
    """Windows-1252, unless the words of another encoding are clearly more likely."""
    natural = {name: _natural(sample, name) for name in (WESTERN, *_OTHERS)}
    least = max(natural.values()) - NATURAL
    plain = natural[WESTERN] >= least  # its words are as good as any
    scores = {
        name: 0.0
        for name, share in natural.items()
        if share >= least and not (plain and name in _SEVERAL)
    }
    try:
        from chardet import detect_all
    except ImportError:
        return WESTERN if plain else max(natural, key=natural.__getitem__)
    for one in detect_all(sample, include_encodings=[*scores, WESTERN], ignore_threshold=True):
        found = codecs.lookup(str(one["encoding"] or "ascii"))
        for name in scores:
            if codecs.lookup(name).name == found.name:
                scores[name] = one["confidence"] * (BETTER if name == WESTERN else 1.0)
    best = max(scores, key=scores.__getitem__)
    same = sample.decode(best, "replace") == sample.decode(WESTERN, "replace")
    return WESTERN if same else best


def _natural(sample: bytes, encoding: str) -> float:
    """The share of the words beyond ASCII that somebody could have written; -1 if it is none."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return -1.0
    words = [word[:LONGEST] for word in _WORD.findall(text) if not word.isascii()]
    known = _is_eastern if encoding in _SEVERAL else _is_natural
    return sum(map(known, words)) / max(1, len(words))


def _is_natural(word: str) -> bool:
    """True of a word of one script, without signs and capitals within."""
    parts = [hump for part in _WITHIN.split(word.strip(_EDGES)) for hump in _HUMP.findall(part)]
    text = "".join(parts)
    return (
        all(letter.isalpha() or unicodedata.category(letter) == "Mn" for letter in text)
        and len({*map(_script, text)}) <= 1
        and all(part[1:] == part[1:].lower() or part.isupper() for part in parts)
    )


def _is_eastern(word: str) -> bool:
    """True of a word in letters of China, Japan or Korea, with ASCII around or between."""
    core = word.strip(_ASCII)
    return core != "" and all(c.isascii() or _script(c) == "EASTERN" for c in core)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    name = unicodedata.name(letter, "").partition(" ")[0]
    return _SCRIPTS.get(name, name)
