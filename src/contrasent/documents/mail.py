"""Mail as RFC 5322 writes it, alone or many in an mbox file: headers, own text and attachments."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from mimetypes import guess_extension
from typing import IO, Any

from contrasent.documents.archives import Skip
from contrasent.documents.encodings import decode, named
from contrasent.documents.html import html_text
from contrasent.documents.markup import without_tags
from contrasent.documents.sections import one_line
from contrasent.documents.text_formats import read_calendar
from contrasent.text.roles import words_in

LONGEST = 50_000_000  # bytes of one mail with its attachments
LONGEST_HEADER = 2000  # characters
LINE = 1 << 20  # bytes of a line that are read at once
FULL = 0.5  # share of the words of HTML that a plain text beside it must have to be read instead
MACHINES = ("message/delivery-status", "application/pgp-signature", "application/pkcs7-signature")
TEXTS = ("text/plain", "text/html")
HEADERS = ("from", "to", "cc", "date", "subject")

_FORWARDED = re.compile(r"\A\s*(?:fwd?|wg|tr|rv|i)\s*:", re.IGNORECASE)
_ORIGINAL = re.compile(  # a whole mail below the answer, as Outlook leaves it
    r"^-{2,20} ?(?:original message|urspr\w{1,9}liche nachricht|message d.origine|mensaje original"
    r"|messaggio originale|oorspronkelijk bericht) ?-{2,20}$"
    r"|^_{20,99}\n{1,2}\*{0,2}(?:from|von|de|da|van)\b"
    r"|^\*{0,2}(?:from|von|de|da|van)\s?:.{1,200}?\s\*{0,2}"
    r"(?:sent|gesendet|envoy\w|enviado(?: el)?|inviato|verzonden)\s?:",
    re.IGNORECASE | re.MULTILINE,
)
_SAYS = re.compile(r"[\d@<].{0,200}[:：]\**$", re.DOTALL)  # "On 3 May 2024 Ann wrote:"


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail."""

    metadata: dict[str, Any]  # those of HEADERS that it has
    text: str
    attachments: list[tuple[str, bytes]]


class _Headers(policy.Compat32):
    """Headers whose bytes beyond ASCII are text, as RFC 6532 has them."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        data = value.replace("\0", "").encode("ascii", "surrogateescape")
        return value if value.isascii() else decode(data)[0]


def messages(stream: IO[bytes]) -> Iterator[bytes | None]:
    """The mails of an mbox file, each from a line "From " after a blank one; None if too long."""
    lines, size, blank, whole = list[bytes](), 0, True, True
    while line := stream.readline(LINE):
        if blank and whole and line.startswith(b"From "):
            if lines:
                yield b"".join(lines) if size <= LONGEST else None
            lines, size = [], 0
        else:
            size += len(line)
            if size <= LONGEST:  # ">From " was "From "
                lines.append(line[1:] if line.startswith(b">From ") else line)
        blank, whole = not line.strip(), line.endswith(b"\n")
    if lines:
        yield b"".join(lines) if size <= LONGEST else None


def parse_mail(data: bytes) -> Mail:
    """The texts of a mail in their order, and what is attached; unreadable parts are left out."""
    # By the older policy: the newer one takes seconds for a header of a few thousand characters.
    message = BytesParser(policy=_Headers()).parsebytes(data)
    texts, attachments = list[str](), list[tuple[str, bytes]]()
    for number, part in enumerate(_parts(message), 1):
        name, kind = _decoded_header(_stated(part.get_filename)), part.get_content_type()
        if kind == "message/rfc822":
            attachments += [(name or f"{number}.eml", one.as_bytes()) for one in part.get_payload()]
        elif kind == "text/calendar":  # an invitation, as a file or not
            sections = read_calendar(_decoded(part))[1]
            texts.append("\n\n".join(one for some in sections for one in some.paragraphs))
        elif kind in TEXTS and not name:
            texts.append(_read(part))
        elif kind not in MACHINES and (name or not kind.startswith("multipart/")):
            suffix = guess_extension(kind) or ".txt" * kind.startswith("text/")
            attachments.append((name or f"{number}{suffix}", _payload(part)))
    headers = {name: _decoded_header(message.get(name)) for name in HEADERS}
    headers["date"] = day_of(headers["date"])
    text = "\n\n".join(dict.fromkeys(filter(str.strip, texts)))
    return Mail({name: value for name, value in headers.items() if value}, text, attachments)


def _parts(message: Any) -> Iterator[Any]:
    """The parts of a mail, except those of mails within it; of alternatives the one with text."""
    if message.get_content_maintype() != "multipart" or not message.is_multipart():
        yield message
        return
    parts = message.get_payload()
    for part in _chosen(parts) if message.get_content_subtype() == "alternative" else parts:
        yield from _parts(part)


def _chosen(parts: Sequence[Any]) -> Iterator[Any]:
    """The plain text of parts that say the same, or the fullest if it says less."""
    texts = [
        [one for one in _parts(part) if one.get_content_type() in TEXTS and not one.get_filename()]
        for part in parts
    ]
    words = [sum(words_in([_read(one)]) for one in some) for some in texts]
    best = max(range(len(parts)), key=words.__getitem__, default=0)
    for at, some in enumerate(texts):
        rich = any(one.get_content_type() == "text/html" for one in some)
        if some and not rich and words[at] >= FULL * words[best]:
            best = at
            break
    for at, part in enumerate(parts):
        if at == best or not texts[at]:
            yield part
        else:  # pictures and invitations may be beside the text that is not chosen
            beside = _parts(part)
            yield from (x for x in beside if x.get_filename() or x.get_content_maintype() != "text")


def _read(part: Any) -> str:
    """The text of a part; of HTML what is seen, what is quoted as in plain text."""
    text = _decoded(part)
    if part.get_content_type() != "text/html":
        return text
    try:
        return html_text(text)
    except Skip:
        return without_tags(text)


def _stated(read: Callable[[], object]) -> object:
    """The value of a header; "" if it names an encoding that is none."""
    with suppress(LookupError, ValueError):
        return read() or ""
    return ""


def _decoded_header(value: object) -> str:
    """A header as text, cut if it is long."""
    text = re.sub(r"(?i)=\?iso-8859-1(?=[?*])", "=?cp1252", str(value or "")[:LONGEST_HEADER])
    with suppress(LookupError, ValueError, HeaderParseError):  # an unknown character set
        text = str(make_header(decode_header(text)))
    return one_line(text)


def day_of(text: object) -> str:
    """The day of a mail's date as YYYY-MM-DD; "" if it is not a date."""
    with suppress(TypeError, ValueError, IndexError, OverflowError):
        return parsedate_to_datetime(str(text)).date().isoformat()
    return ""


def _payload(part: Any) -> bytes:
    with suppress(Exception):  # such as an unknown encoding
        return bytes(part.get_payload(decode=True) or b"")
    return b""


def _decoded(part: Any) -> str:
    data, charset = _payload(part), named(str(_stated(part.get_content_charset)))
    with suppress(LookupError, ValueError):
        return data.decode(charset).replace("\r\n", "\n").replace("\0", "")
    with suppress(Skip):
        return decode(data)[0]
    return ""


def own_text(text: str, subject: str) -> str:
    """The text of a mail without what it quotes; all of it if it only quotes."""
    if not _FORWARDED.match(subject) and (original := _ORIGINAL.search(text)):
        text = text[: original.start()] if text[: original.start()].strip() else text
    lines, quoting = list[str](), False
    for line in text.splitlines():
        if not line.startswith(">"):
            lines.append(line)
        elif not quoting:
            while lines and not lines[-1].strip():
                lines.pop()
            start = len(lines)
            while start and lines[start - 1].strip():
                start -= 1
            if len(lines) - start <= 3 and _SAYS.search("\n".join(lines[start:])):
                del lines[start:]
            lines.append("")
        quoting = line.startswith(">")
    return "\n".join(lines) if any(map(str.strip, lines)) else text
