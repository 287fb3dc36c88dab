"""What the name of a column, and the cells below it, say about its part in training and search."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

QUERY, POSITIVE, NEGATIVE, TEXT, TITLE = "query", "positive", "negative", "text", "title"
SCORE, LABEL, ID, FACT = "score", "label", "id", "fact"
NUMBER, DATE, LINK, CODE = "number", "date", "link", "code"
"""Kinds of cells; the others are of the kind ``TEXT``."""

NAMES: dict[str, tuple[str, ...]] = {
    QUERY: (
        "query", "question", "anchor", "premise", "q", "sentence1", "sent0", "question1",
        "search_query", "user_query", "user_question", "prompt",
        "instruction", "input", "frage", "pregunta", "domanda",
    ),
    POSITIVE: (
        "positive", "pos", "positives", "answer", "answers", "hypothesis", "response", "reply",
        "accepted_answer", "best_answer", "positive_passage", "passage", "document", "sentence2",
        "sent1", "question2", "paraphrase", "antwort", "respuesta", "risposta",
        "r\u00e9ponse", "output", "completion", "context",
    ),
    NEGATIVE: (
        "negative", "neg", "negatives", "hard_neg", "hard_negative", "hard_negatives", "sent2",
        "negative_passage", "wrong_answer",
    ),
    TITLE: (
        "title", "titel", "titre", "heading", "headline", "name", "subject", "betreff", "question",
    ),
    TEXT: (
        "text", "body", "content", "contents", "abstract", "passage", "document", "article",
        "answer", "description", "message", "review", "summary", "sentence", "sentences",
        "paragraph", "texts",
    ),
    SCORE: (
        "score", "similarity", "similarity_score", "relatedness", "relatedness_score", "rating",
        "gold", "gold_score", "sts_score",
    ),
    LABEL: (
        "label", "labels", "class", "category", "categories", "kategorie", "topic", "tag", "tags",
        "is_duplicate", "gold_label", "entailment", "sentiment", "intent", "status", "priority",
        "lang", "language", "type", "kind", "group", "department", "split", "genre", "relevance",
        "relevant", "is_relevant", "rel", "grade", "match", "is_match", "is_correct", "correct",
        "is_good", "is_answer", "is_positive",
    ),
    ID: (
        "_id", "id", "ids", "doc_id", "docid", "pid", "qid", "uuid", "guid", "ticket", "ticket_no",
        "case", "number", "no", "nr", "key", "index", "idx", "row", "code", "sku", "isbn", "doi",
        "slug",
    ),
    FACT: (
        "name", "first_name", "last_name", "company", "date", "datum", "day", "time", "timestamp",
        "created", "updated", "modified", "year", "month", "author", "user", "username",
        "customer", "agent", "owner", "assignee", "email", "e_mail", "phone", "telephone", "city",
        "country", "address", "url", "link", "href", "source", "file", "filename", "file_name",
        "path", "image", "dataset", "origin", "version", "model", "price", "count", "clicks",
        "views", "votes", "upvotes", "length",
    ),
}  # fmt: skip
"""Names of columns by their role, the ones that count more first; in small letters, with _."""

WORDS = {
    QUERY: {"question", "query", "frage"},
    POSITIVE: {"answer", "response", "reply", "antwort"},
    NEGATIVE: {"negative"},
}
"""Words at an end of a name that say its role, as in customer_question and "Answer text"."""

NEVER = re.compile(
    r"(?:.*_)?(?:ids?|uuid|slug|url|link|path|file|filename|date|time|timestamp|at|by|to|email|"
    r"number|no|nr|code|key|count|length|label|lang|language|type|class|category|status|score|tags?)"
)
"""Names of columns that are not trained on, such as ticket_id and created_at."""
LONGEST = 4  # words of a name
ROW_IDS = ("_id", "id", "doc_id", "docid", "pid", "uuid")
"""Names of columns whose values name rows in an index."""

_NUMBERED = re.compile(r"[_ ]?\d+$")
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:[,. '\u202f]\d{3})+|\d+)?(?:[.,]\d+)?(?:e[-+]?\d+)?", re.I)
_UNITS = re.compile(r"^[$\u20ac\u00a3\u00a5]\s*|\s*(?:%|[$\u20ac\u00a3\u00a5]|EUR|USD|GBP|CHF)$")
_TIME = (
    r"(?:[T ,]+\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp][Mm])?(?:\s?Z|\s?[-+]\d\d:?\d\d)?)?"
)
_MONTH = r"(?:jan|feb|mar|m\u00e4r|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-z\u00e4]*\.?"
_DATE = re.compile(
    rf"(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.](?:\d{{4}}|\d{{2}})|"
    rf"\d{{1,2}}\.?[ -]{_MONTH}[ -]\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}}){_TIME}|\d{{1,2}}:\d{{2}}"
    r"(?::\d{2})?",
    re.I,
)
_SUFFIXES = (
    "pdf|docx?|xlsx?|pptx?|txt|md|html?|csv|tsv|jsonl?|xml|png|jpe?g|gif|svg|mp[34]|wav|zip|gz|eml|"
    "msg|odt|ods|rtf|py|js|c|h|cpp|java"
)
_LINK = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://|www\.)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|"
    r"(?:[A-Za-z]:\\|\.{0,2}/|\\\\)\S.*|[\w.+-]+(?:[/\\][\w .+-]+)+\.\w{1,5}|"
    rf"[\w.+-]+\.(?:{_SUFFIXES})",
    re.I,
)
_UNSPACED = re.compile("[\u2e80-\u9fff\u0e00-\u0eff]")
_CODE = re.compile(r"#?[A-Za-z]{0,8}[-_#./:]?[A-Za-z0-9._/:#-]*\d[A-Za-z0-9._/:#-]*")


def plain_name(name: str) -> str:
    """A column's name in the form of ``NAMES``."""
    return re.sub(r"[\s\-.]+", "_", name.strip().casefold()).strip("_?:") or name


def is_named(name: str, role: str) -> bool:
    """Whether a name is one of a role's, or has its word at an end; negatives may be numbered."""
    plain = plain_name(name)
    if role == NEGATIVE and plain not in NAMES[role]:
        plain = _NUMBERED.sub("", plain)
    if name.strip().casefold() in NAMES[role] or plain in NAMES[role]:
        return True
    ends = {plain.split("_")[0], plain.split("_")[-1]} & WORDS.get(role, set())
    return bool(ends) and NEVER.fullmatch(plain) is None


def is_known(name: str) -> bool:
    """Whether a name says what a column holds; a sentence such as "What is the answer?" is none."""
    short = len(name.split()) + name.endswith((".", "!", "?")) <= LONGEST
    return short and any(is_named(name, role) for role in NAMES)


def is_never_trained_on(name: str) -> bool:
    """Whether the name is that of ids, dates, labels, files or the like."""
    named = any(is_named(name, role) for role in (ID, FACT, LABEL, SCORE))
    return named or NEVER.fullmatch(plain_name(name)) is not None


def kind_of(cell: Any) -> str:
    """The kind of a cell's contents; "" of an empty one."""
    if isinstance(cell, bool):
        return CODE
    if isinstance(cell, int | float):
        return NUMBER
    if not isinstance(cell, str) or not (text := cell.strip()):
        return ""
    if len(text) > 200:
        return TEXT
    if any(map(str.isdigit, text)):
        if _NUMBER.fullmatch(_UNITS.sub("", text)):
            return NUMBER
        if _DATE.fullmatch(text):
            return DATE
    if _LINK.fullmatch(text):
        return LINK
    return CODE if _CODE.fullmatch(text) else TEXT


def is_year(cell: str) -> bool:
    """Whether a cell is a year, as names of columns may be."""
    return re.fullmatch(r"(?:19|20)\d\d", cell.strip()) is not None


def kind_of_column(cells: Iterable[Any]) -> str:
    """The kind of nearly all cells of a column; "" where all are empty."""
    kinds = Counter(filter(None, map(kind_of, cells)))
    if not kinds:
        return ""
    kind, count = kinds.most_common(1)[0]
    return kind if count >= 0.9 * kinds.total() else TEXT


def words_in(cells: Sequence[Any]) -> float:
    """The mean number of words of cells that have some; two characters of Chinese are one."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    counts = [max(len(text.split()), len(_UNSPACED.findall(text)) / 2) for text in texts]
    return sum(counts) / max(1, len(counts))
