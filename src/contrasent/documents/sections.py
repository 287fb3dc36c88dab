"""The structure of a document: a title, and text below headings, in order."""

import re
import unicodedata
from dataclasses import dataclass

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\ufeff\ufffe]")
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of text below one heading path."""

    headings: tuple[str, ...]
    paragraphs: tuple[str, ...]  # with line breaks in it one is set out in lines: code, a table
    page: int = 0  # that it begins on, from 1; 0 where there are none


@dataclass(frozen=True, slots=True)
class Document:
    """One document."""

    id: str  # path relative to the source, "#" and a table's row; unique
    title: str
    sections: tuple[Section, ...]
    docstring: bool = False  # whether its text is or holds docstrings


class SectionBuilder:
    """Collects headings and paragraphs in the order in which a parser meets them."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self._sections: list[tuple[tuple[str, ...], list[str]]] = []
        self._heads: list[tuple[int, str]] = []
        self._text_first = False

    def heading(self, level: int, text: str) -> None:
        """Open a section; those of the same level or below end."""
        text = one_line(text)
        if not text:
            return
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, text))
        self._heads.append((level, text))
        self._sections.append((tuple(name for _, name in self._open), []))

    def paragraph(self, text: str) -> None:
        """Add prose: white space becomes single spaces."""
        self._add(one_line(text))

    def lines(self, text: str) -> None:
        """Add text whose line breaks and indents matter: code, a table."""
        kept = [line.rstrip() for line in clean(text).expandtabs(4).splitlines()]
        self._add("\n".join(line for line in kept if line))

    def _add(self, text: str) -> None:
        if not text.strip():
            return
        if not self._sections:
            self._text_first = True
            self._sections.append(((), []))
        self._sections[-1][1].append(text)

    def finish(self, title: str = "") -> tuple[str, tuple[Section, ...]]:
        """Give the title and the sections."""
        # A first heading, alone at the highest level before all text, is the title, unless given;
        # it goes if it says the same as the given one.
        title = one_line(title)
        lone, sections = "", self._sections
        if self._heads and not self._text_first:
            level, first = self._heads[0]
            if all(other > level for other, _ in self._heads[1:]):
                lone = first
            elif not title and not sections[0][1] and self._heads[1][0] == level:
                # A title in a word processor is often a heading like all others.
                title, sections = first, sections[1:]
        if lone and (not title or title.casefold().startswith(lone.casefold())):
            title, drop = (title if title.casefold() == lone.casefold() else lone), 1
        else:
            drop = 0
        found = []
        for i, (headings, paragraphs) in enumerate(sections):
            # A heading without text below it is text, unless the next one stands below it.
            shown = headings[drop:]
            after = sections[i + 1][0] if i + 1 < len(sections) else ()
            if paragraphs:
                found.append(Section(shown, tuple(paragraphs)))
            elif shown and after[: len(headings)] != headings:
                found.append(Section(shown[:-1], (shown[-1],)))
        return title, tuple(found)


def one_line(text: str) -> str:
    """Prose without control characters, its white space single spaces."""
    return " ".join(clean(text).split())


def clean(text: str) -> str:
    """Text in Unicode's composed form, without control characters and halves of characters."""
    if text.isascii() and text.isprintable():
        return text
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    return _HALF.sub("", _CONTROL.sub("", text))
