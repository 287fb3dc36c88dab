"""Sentences of any language: where a paragraph may be cut."""

import re

_CLOSING = "[\"'”’»)\\]」』）】》〉]*"
_END = re.compile(
    rf"(?P<spaced>[.!?…]{_CLOSING}\s+)(?=\S)"
    rf"|[。！？｡．]{_CLOSING}\s*"
    r"|[।॥؟۔።፧៕။྾།‼⁇⁈⁉]+\s*"
    # "zurückgewiesen.2. Der", "tragen.Tatbestand": full stops whose space was lost.
    r"|(?<=[^\W\d_][^\W\d_][^\W\d_]\.)(?=\d{1,3}[. ]*[A-ZÄÖÜ]|[A-ZÄÖÜ][a-zäöüß]{2,}[ ,\d])"
)
_ABBREVIATED = re.compile(
    r"""(?:^|[\s("'„“«/])(?:
      \w | \d{1,2} | [IVXLC]+ | (?:\w{1,4}\.)+\w{1,4}
    | mr|mrs|ms|dr|prof|st|sr|jr|inc|ltd|co|corp|vs|etc|al|cf|fig|figs|eq|eqs|sec|ref|refs|no|nos
    | vol|pp|ed|eds|approx|resp|dept|est|min|max|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec
    | abs|art|nr|rn|rz|rdnr|az|urt|beschl|bd|bl|buchst|gem|vgl|bzw|ca|ggf|sog|ziff|anm|aufl|hrsg
    | tz|kap|lit|verf|str|hs|halbs|nrn|ff|alt|evtl|inkl|insb|usw|st|mio|mrd|tel|entsch|bgbl|sen
    | mme|mlle|art|chap|env|ex|sra|srta|pág|núm|ud|uds|sig|dott
    )\.$""",
    re.VERBOSE | re.IGNORECASE,
)


def split(text: str) -> list[str]:
    """The sentences of a paragraph with the white space that follows each: joined, the text."""
    pieces, start = [], 0
    for match in _END.finditer(text):
        end = match.end()
        # " . " ends a sentence in text whose words and marks were set apart, small letters or not.
        apart = text[match.start() - 1 : match.start()].isspace()
        if match["spaced"] and not apart and _goes_on(text, start, match):
            continue
        if start < end < len(text):
            pieces.append(text[start:end])
            start = end
    pieces.append(text[start:])
    return pieces


def _goes_on(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence goes on after the mark: in a small letter, or after an abbreviation."""
    dot = match.start() + 1
    abbreviated = text[dot].isspace() and _ABBREVIATED.search(text[max(start, dot - 12) : dot])
    return text[match.end()].islower() or bool(abbreviated)
