"""From a docstring, of any style, to its summary and the English prose that explains it."""

import inspect
import re

from contrasent.documents import sentences

LONGEST = 80  # words of an explanation; it ends with the sentence that reaches them
SHORTEST = 8  # words below which the text after a summary explains nothing

_SECTION = re.compile(
    r"""\s*(?: >>> | \.\.\.\s | \$\s | ``` | ~~~ | \# | In\s\[
    | [:@](?![\w:.+-]+`)[a-z]                                     # :param x:, @return, no role
    | (?:(?:other|keyword)\s)?
      (?:arg(?:ument)?s?|param(?:eter)?s?|kwargs|returns?|yields?|receives?|raises?|exceptions?
        |warn(?:ing)?s?|examples?|usage|see\salso|references?|notes?|attributes?|inputs?|outputs?
        |shapes?|methods?|options?|fields?|todo|tests?|authors?|copyright|license|requires?)
      \s*(?::|$) )""",
    re.IGNORECASE | re.VERBOSE,
)
_RULE = re.compile(r"\s*([-=~^*#+_.\"'`])\1{2,}[\s=-]*$")
_LISTED = re.compile(r"\s*([-*+•|]\s|\(?\w{1,2}[.)]\s|\+-|\||\.\.)")
_TITLE = re.compile(r"\S*(?:\s\S+)?$|[\w.]*\w\(.*\)(?:\s*->.*|\s*[:=].*)?$")  # or a signature

_MARKUP = [
    (re.compile(r":[\w.:+-]+:`(?:~(?:[\w.]*\.)?|[!.])?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"\[[^\[\]]+\]_{1,2}"), ""),
    (re.compile(r"(?<!\w)\[`?[~!]?([\w.*]+)`?\](?!\()|\[([^\]]+)\]\([^)\s]*\)"), r"\1\2"),
    (re.compile(r"`([^`<]+?)(?:\s*<[^>`]*>)?`_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])"), r"\1"),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;:)](?:\s|$))"), ""),
]
_CODE = re.compile(r"[{}\\<>|=@^~#$]|%\(|::|https?:|www\.|\.\.|__|\*\*|--|TODO|FIXME")
_BOILERPLATE = re.compile(
    r"""\.|(?:deprecated|(?:new|added|changed|removed)\sin|copyright|licensed|author|notes?|warning
      |see|refer|read\smore|please|(?:adapted|copied|taken)\sfrom
      |for\s(?:more\s|an?\s)?(?:details|info|information|examples?))\b""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_COMMON = frozenset(
    re.findall(r"\w+", """
    a an the this that these it its is are was be been has have do does can may must should will not
    no or and but if when where which who what how than then so as at by for from in into of off on
    out over to up with without each every all any some such only other same more most one two you
    your we there here also used using use
    """)
)  # fmt: skip


def summary_and_explanation(docstring: str) -> tuple[str, str]:
    """Split a docstring into its first sentence and the prose before its first section."""
    found = _sentences(docstring)
    if not found or not _is_summary(found[0]):
        return "", ""
    explanation, count = list[str](), 0
    for sentence in filter(_is_prose, found[1:]):
        if count >= LONGEST:
            break
        explanation.append(sentence)
        count += len(_WORD.findall(sentence))
    return found[0], " ".join(explanation) if count >= SHORTEST else ""


def _is_prose(sentence: str) -> bool:
    """Whether a whole English sentence follows, and not code, a table or mathematics."""
    words = _WORD.findall(sentence)
    first = sentence.partition(" ")[0]
    return (
        4 <= len(words) <= LONGEST
        and _is_text(sentence, words)
        and sentence.endswith((".", "!", "?", '."', ".)"))
        and sum(word.lower() in _COMMON for word in words) >= 0.2 * len(words)
        and not (first.isalpha() and first.islower())
    )


def _is_summary(sentence: str) -> bool:
    """A summary may lack a full stop and be short, but not be code."""
    words = _WORD.findall(sentence)
    fits = len(words) <= 40 and len(sentence.split()) >= 3 and sentence[0].isalpha()
    return fits and not sentence.endswith((":", ",")) and _is_text(sentence, words)


def _is_text(sentence: str, words: list[str]) -> bool:
    letters = sum(map(len, words)) + sentence.count(" ")
    odd = _CODE.search(sentence) or _BOILERPLATE.match(sentence)
    return letters >= 0.85 * len(sentence) and not odd


def _sentences(docstring: str) -> list[str]:
    """The sentences before the first section, one line each, without titles, lists and code."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        kept, ended = list[str](), False
        for line in block.splitlines():
            ended = bool(_SECTION.match(line))
            set_in = line[:1].isspace() and (not kept or kept[-1].endswith(":"))
            if ended or set_in or _LISTED.match(line):
                break
            kept.append(line.strip())
            if _RULE.match(line):
                kept.clear()
        text = without_markup(" ".join(kept))
        if found or not _TITLE.match(text):
            found += filter(None, map(str.strip, sentences.split(text)))
        if ended:
            break
    return found


def without_markup(text: str) -> str:
    """A line without inline mark-up: roles, literals, links and emphasis by their text."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()
