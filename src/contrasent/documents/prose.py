"""From a docstring, of any style, to its summary and the English prose that explains it."""

import inspect
import re

from contrasent.documents import sentences

LONGEST = 80  # words of an explanation; it ends with the sentence that reaches them
SHORTEST = 8  # words below which the text after a summary explains nothing

_STOP = re.compile(
    r"""^\s*(
      (args?|arguments?|(other\s)?param(eter)?s?|keyword\sarg(ument)?s|kwargs|returns?|yields?|
       receives?|raises?|except(ion)?s?|warns?|examples?|usage|references?|see\salso|notes?|
       attributes?|inputs?|outputs?|shapes?|methods?|todo|tests?|doctests?|options?|fields?|
       properties|members|authors?|license|copyright|caveats?|warnings?|defaults?|requires?|
       tips?|syntax|history|changes|side\seffects|implementation\snotes?)\s*:.*
    | (parameters|returns?|yields|raises|examples?|references|see\salso|notes?|attributes|
       usage|warnings?|doctest)\s*$
    | [:@](param|parameter|arg|type|return|returns|rtype|raise|raises|ivar|cvar|var|yield|keyword|
       kwarg|note|deprecated|meta|since)\b.*
    | >>>.* | \.\.\.\s.* | \$\s.* | ```.* | ~~~.* | \#\s?.* | In\s\[\d+\].*
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
_UNDERLINE = re.compile(r"^\s*([-=~^*#+_.\"'`])\1{2,}[\s=-]*$")
_LISTED = re.compile(r"^\s*([-*+•|]\s|\(?\w{1,2}[.)]\s|\+-|\||:\w[\w ]*:\s|\.\.)")
_SIGNATURE = re.compile(r"^\s*[\w.]*\w\(.*\)(\s*->.*|\s*[:=].*)?$", re.DOTALL)

_MARKUP = [
    (re.compile(r":[\w.+-]+(?::[\w.+-]+)*:`([^`]*)`"), lambda m: _role(m[1])),
    (re.compile(r"``(.+?)``"), lambda m: m[1]),
    (re.compile(r"(?<!\w)\[`?[~!]?([\w.*]+)`?\](?!\()(_{0,2})"), lambda m: "" if m[2] else m[1]),
    (re.compile(r"\[([^\]]+)\]\([^)\s]*\)"), lambda m: m[1]),
    (re.compile(r"`([^`<]+?)\s*<[^>`]*>`_{1,2}"), lambda m: m[1]),
    (re.compile(r"`([^`]+)`_{0,2}"), lambda m: m[1]),
    (re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])"), lambda m: m[1]),
    (re.compile(r"\s+"), lambda m: " "),
    (re.compile(r" (?=[.,;:)])"), lambda m: ""),
]
_ODD = re.compile(r"""[{}\\<>|=@^~#$]|%\(|::|->|https?:|www\.|\.\.|__|\bTODO\b|\bFIXME\b|\*\*|--""")
_BOILERPLATE = re.compile(
    r"""^(deprecated|new\sin|added\sin|changed\sin|removed\sin|copyright|licensed|
      this\sfile\sis|author|note\b|notes\b|warning|see\b|refer\b|for\smore\s(details|info)|
      for\sdetails|for\san?\sexamples?\b|read\smore|please\s(see|refer)|adapted\sfrom|
      copied\sfrom|taken\sfrom|this\s(function|method|class|module)\sis\sdeprecated|
      \.)""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_COMMON = frozenset(
    re.findall(r"\w+", """
    a an the this that these those it its is are was were be been being has have had do does can
    could may might must shall should will would not no nor or and but if when where while which who
    what how than then so as at by for from in into of off on onto out over to up with without under
    between through during before after above below each every all any some such only other same
    both more most one two you your we our they their there here also used using use
    """)
)  # fmt: skip


def summary_and_explanation(docstring: str) -> tuple[str, str]:
    """Split a docstring into its first sentence and the prose before its first section."""
    found = _sentences(docstring)
    if not found or not _is_summary(found[0]):
        return "", ""
    summary, explanation = found[0], list[str]()
    count = 0
    for sentence in found[1:]:
        if count >= LONGEST:
            break
        if is_prose(sentence) and not _BOILERPLATE.match(sentence):
            explanation.append(sentence)
            count += len(sentence.split())
    text = " ".join(explanation)
    return summary, text if len(_WORD.findall(text)) >= SHORTEST else ""


def is_prose(sentence: str) -> bool:
    """Whether a line reads like an English sentence, and not like code, a table or mathematics."""
    words = _WORD.findall(sentence)
    if (
        not 4 <= len(words) <= LONGEST
        or _ODD.search(sentence)
        or not sentence.endswith((".", "!", "?", '."', ".)"))
    ):
        return False
    letters = sum(len(word) for word in words) + sentence.count(" ")
    common = sum(word.lower() in _COMMON for word in words)
    first = sentence.split(maxsplit=1)[0]
    return (
        letters >= 0.85 * len(sentence)
        and common >= 0.2 * len(words)
        and not (first.isalpha() and first.islower())
    )


def _is_summary(sentence: str) -> bool:
    """A summary may lack a full stop and be short, but not be code."""
    words = _WORD.findall(sentence)
    letters = sum(len(word) for word in words) + sentence.count(" ")
    return (
        len(words) <= 40
        and len(sentence.split()) >= 3
        and sentence[0].isalpha()
        and letters >= 0.85 * len(sentence)
        and not sentence.endswith((":", ","))
        and not _ODD.search(sentence)
        and not _BOILERPLATE.match(sentence)
    )


def _sentences(docstring: str) -> list[str]:
    """The sentences before the first section, one line each."""
    found: list[str] = []
    for block in _blocks(docstring):
        if block[0][0].isspace():
            continue
        lines, ended = _before_section(block)
        text = without_markup(" ".join(line.strip() for line in lines))
        # A first paragraph of two words, or a signature, is a title: the summary follows it.
        titled = not found and (len(text.split()) < 3 or _SIGNATURE.match(text))
        if not _LISTED.match(block[0]) and not titled:
            found.extend(part.strip() for part in sentences.split(text))
        if ended and (found or not _UNDERLINE.match(block[-1])):
            break
    return found


def _blocks(docstring: str) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in inspect.cleandoc(docstring).splitlines():
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _before_section(block: list[str]) -> tuple[list[str], bool]:
    """The lines of a paragraph before a heading or a list in it, and whether a heading ends it."""
    for i, line in enumerate(block):
        if _UNDERLINE.match(line):
            return block[: max(i - 1, 0)], True
        if _STOP.match(line):
            return block[:i], True
        if i and (_LISTED.match(line) or (line[0].isspace() and block[i - 1].endswith(":"))):
            return block[:i], False
    return block, False


def without_markup(text: str) -> str:
    """A line without inline mark-up: roles, literals, links and emphasis by their text."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


def _role(content: str) -> str:
    """What Sphinx shows of a role: the title before <target>, or the last name after a tilde."""
    title = content.rpartition("<")[0].strip() if content.endswith(">") else content
    return title.rsplit(".", 1)[-1] if title.startswith("~") else title.lstrip("!.")
