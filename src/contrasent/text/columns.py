"""The one rule for the part of every column: trained on, searched, or neither.

Known names decide, then contents; ids, dates, labels and paths are not trained on. Where two
readings are left, an error shows the two commands that part them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from contrasent.errors import InputError, OptionError
from contrasent.text import roles
from contrasent.text.roles import (
    CODE,
    FACT,
    ID,
    LABEL,
    NAMES,
    NEGATIVE,
    NUMBER,
    POSITIVE,
    QUERY,
    SCORE,
    TEXT,
    TITLE,
    is_named,
    is_never_trained_on,
)
from contrasent.text.tables import MEMORY, Columns, Table, as_number, brief, is_empty

FIELD = "field"
SAMPLE = 200  # rows by which the part of a column is decided
SHORTEST = 40  # mean characters from which a column is taken for a text by its length
FACTS = 20  # columns besides text, title and id that become metadata
PROSE, BRIEF = 3.0, 2.5  # mean words of a text, and of what is none next to one
CLASSES = 10  # distinct short values up to which a column is one of labels
GRADES = 5  # distinct values up to which a label may grade pairs
SHOWN = 12  # columns that a line names
PAIR_LABELS = {
    "entailment", "neutral", "contradiction", "true", "false", "yes", "no", "duplicate",
}  # fmt: skip
SORTING = re.compile(
    r"(?:.*_)?(?:categor(?:y|ies)|kategorie|topic|tags?|lang|language|locale|type|kind|group|"
    r"department|team|split|subset|domain|genre|intent|sentiment|status|priority|source|ids?|name)"
)
"""Names of columns that sort rows of any kind, rather than judge pairs."""

Scored = str | int | bool | None
"""The column of scores; True for one by a known name, None if there is one, False for none."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of a table that are read, in the order of their parts, and those that are not."""

    table: Table
    places: tuple[tuple[str, int], ...]  # roles and positions, that of the scores last
    note: str = ""  # what else should be known before training
    stated: bool = False  # whether they were chosen by whoever reads them

    @property
    def chosen(self) -> tuple[int, ...]:
        """The positions of the columns that are read."""
        return tuple(at for _, at in self.places)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are read, or their positions."""
        return tuple(self.table.columns[at] for at in self.chosen)

    @property
    def scored(self) -> bool:
        """Whether the last column is that of scores."""
        return self.places[-1][0] == SCORE


def spoken(names: Sequence[str], places: Iterable[tuple[str, int]]) -> str:
    """The role of every column: "query: question, positive: answer; not used: ticket"."""
    by_role = dict[str, list[str]]()
    for role, at in places:
        by_role.setdefault(role, []).append(names[at])
    left = [name for at, name in enumerate(names) if at not in {at for _, at in places}]
    parts = [f"{role}: {_listed(columns)}" for role, columns in by_role.items()]
    return ", ".join(parts) + (f"; not used: {_listed(left)}" if left else "")


def _listed(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:57]}..." for name in names[:SHOWN]]
    return ", ".join([*shown, *[f"{len(names) - SHOWN} more"] * (len(names) > SHOWN)])


def training_roles(
    table: Table, columns: Columns | None = None, score: Scored = None, *, single: bool = False
) -> Roles:
    """The columns to train on; ``single``: one column of texts is wanted.

    Raises:
        InputError: no column holds text, or there are two readings.
        OptionError: there is no such column.
    """
    if columns is not None:
        texts = [table.position(column) for column in columns]
        at = None if score is None or score is False else _score(table, score)
        return replace(_roles(table, texts, at), stated=True)
    if table.header is None and table.names is not None:
        places = ",".join(map(str, range(len(table.names))))
        problem = f"the first row is either column names or data, {brief(', '.join(table.names))}"
        if single:
            problem += ": choose --column by name, or by position, or give a file with one"
            raise InputError(table.source, problem)
        remedy = f"{_command(table, table.names)} for column names, {_command(table, [places])}"
        raise InputError(table.source, f"{problem}: {remedy} for data")
    if table.names is None and table.form == MEMORY:
        kinds = [roles.kind_of(cell) for cell in table.first or ()]
        at = _score(table, score, kinds) if score else None
        return _roles(table, [n for n in range(len(table.columns)) if n != at], at)
    cells = _sample(table)
    kinds = [roles.kind_of_column(column) for column in cells]
    at = _score(table, score, kinds, cells)
    texts = [
        n for n in range(len(kinds)) if n != at and _is_training_text(table, n, cells[n], kinds[n])
    ]
    if not texts:
        problem = f"no column of {_listed(table.columns)} contains text"
        if kinds == [NUMBER]:
            problem = f"column {table.columns[0]!r} contains numbers, not text"
            raise InputError(table.source, problem)
        remedy = "--column, or give a file with one" if single else "--columns"
        raise InputError(table.source, f"{problem}; choose it with {remedy}")
    found = _pair(table, texts, cells, single=single)
    _check_lists(table, [] if single else found, cells)
    return _roles(table, found, at, _labeled(table, found, cells, kinds) if at is None else "")


def _roles(table: Table, texts: Sequence[int], score: int | None, note: str = "") -> Roles:
    parts = [TEXT] * len(texts)
    if len(texts) > 1 and score is None:
        parts = [QUERY, POSITIVE, *[NEGATIVE] * (len(texts) - 2)]
    ends = [] if score is None else [(SCORE, score)]
    return Roles(table, (*zip(parts, texts, strict=True), *ends), note)


def text_column(table: Table) -> int:
    """The one column of texts to encode."""
    return training_roles(table, score=False, single=True).chosen[0]


def _command(table: Table, names: Sequence[str]) -> str:
    chosen = ",".join(names)
    quoted = f'"{chosen}"' if any(not (c.isalnum() or c in "_,.-") for c in chosen) else chosen
    source = f'"{table.source}"' if " " in table.source else table.source
    return f"contrasent train {source} --columns {quoted}"


def _sample(table: Table) -> list[list[Any]]:
    """The first cells of each column that hold something."""
    columns: list[list[Any]] = [[] for _ in table.columns]
    for _, cells in islice(table.stream(), SAMPLE):
        for column, cell in zip(columns, cells or (), strict=False):
            if not is_empty(cell):
                column.append(cell)
    return columns


def _score(
    table: Table, score: Scored, kinds: Sequence[str] = (), cells: Sequence[Sequence[Any]] = ()
) -> int | None:
    """The column of scores: the chosen one, or one of a known name that holds numbers."""
    if score is False:
        return None
    if isinstance(score, str | int) and not isinstance(score, bool):
        return table.position(score, "score")
    plain = [roles.plain_name(column) for column in table.columns]
    rated = [plain.index(name) for name in ("label", "labels") if name in plain]
    named = [plain.index(name) for name in NAMES[SCORE] if name in plain]
    named = named or [at for at in rated if kinds and kinds[at] == NUMBER]
    if score is True:
        if table.names is None and kinds.count(NUMBER) == 1:
            return kinds.index(NUMBER)
        if not named:
            known = ", ".join(NAMES[SCORE][:4])
            problem = f"{table.source} has no score column with a known name ({known}); name it"
            raise OptionError("score", "", problem, choices=table.columns)
        return named[0]
    if not named or kinds[named[0]] != NUMBER or kinds.count(TEXT) < 2:
        return None
    if named[0] in rated and all(
        number is None or number.is_integer() for number in map(as_number, cells[named[0]])
    ):
        return None  # of classes
    # Where a question has its answer, the number says how good it is, not how alike they are.
    paired = sum(is_named(name, role) for role in (QUERY, POSITIVE) for name in table.columns)
    strong = {"query", "question", "anchor", "answer"} & set(plain)
    return None if paired > 1 and strong else named[0]


def _is_training_text(table: Table, at: int, cells: Sequence[Any], kind: str) -> bool:
    """Whether a column holds texts to train on, by its name, else by what it holds."""
    if kind == NUMBER or (cells and not any(isinstance(cell, str) for cell in cells)):
        return False
    if len(table.columns) == 1:
        return True
    name = table.columns[at]
    if table.names is not None:
        known = any(is_named(name, role) for role in (QUERY, POSITIVE, NEGATIVE, TEXT))
        if known or at in _short_answer(table):
            return True
        if is_never_trained_on(name) and roles.words_in(cells) < 2 * PROSE:  # no sentences
            return False
    return kind == TEXT and not _is_label(cells)


def _is_label(cells: Sequence[Any]) -> bool:
    """Whether a column repeats a few short values."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    distinct = set(texts)
    few = 0 < len(distinct) <= CLASSES and len(texts) >= max(10, 4 * len(distinct))
    return few and roles.words_in(list(distinct)) < PROSE and max(map(len, distinct)) <= 30


def _pair(
    table: Table, texts: list[int], cells: Sequence[Sequence[Any]], *, single: bool
) -> list[int]:
    """One column of sentences, or query, positive and negatives."""
    if single:
        return _one(table, texts, cells)
    if table.names is None and 2 < len(texts) < len(cells):
        raise _ambiguous(table, texts[:2], texts[:3])
    if table.names is None or len(texts) == 1:
        return texts
    query, positive = _named(table, texts, QUERY), _named(table, texts, POSITIVE)
    positive = [at for at in positive if at not in query] or _short_answer(table)
    negative = [at for at in texts if is_named(table.columns[at], NEGATIVE)]
    others = [at for at in texts if at not in (*query, *positive, *negative)]
    if (query and positive) or not others:
        return [*query, *positive, *negative]
    if not (query or positive):
        return _unnamed_pair(table, texts, cells)
    ways = [[*query, at, *positive, *negative] for at in others]
    if len(ways) > 1:
        raise _ambiguous(table, *ways[:2])
    return ways[0]


def _named(table: Table, texts: Sequence[int], role: str) -> list[int]:
    """The column whose name counts most for a role, if there is one."""
    plain = {roles.plain_name(table.columns[at]): at for at in reversed(texts)}
    exact = [plain[name] for name in NAMES[role] if name in plain]
    return (exact or [at for at in texts if is_named(table.columns[at], role)])[:1]


def _short_answer(table: Table) -> list[int]:
    """The column "a" next to "q"; by itself it is not a known name."""
    plain = [roles.plain_name(name) for name in table.columns]
    return [plain.index("a")] if "a" in plain and {"q", "question", "query"} & {*plain} else []


def _one(table: Table, texts: list[int], cells: Sequence[Sequence[Any]]) -> list[int]:
    """The one column of sentences: the only one, one of the name, or the only one of prose."""
    plain = [roles.plain_name(name) for name in table.names or [""] * len(cells)]
    named = [at for at in texts if plain[at] in ("text", "sentence", "texts", "sentences")]
    for found in (texts, named, _longest(texts, cells)):
        if len(found) == 1:
            return found
    problem = f"has {len(texts)} columns of text ({_listed([table.columns[at] for at in texts])})"
    raise InputError(table.source, f"{problem}; choose one with --column, or give a file with one")


def _unnamed_pair(table: Table, texts: list[int], cells: Sequence[Sequence[Any]]) -> list[int]:
    """A pair of columns without known names, or the only column of prose with such a name."""
    long = _longest(texts, cells)
    sentences = [at for at in texts if is_named(table.columns[at], TEXT)]
    if len(texts) == 2 == len(long) and len(sentences) != 1:
        return texts
    title = _named(table, [at for at in texts if at not in sentences], TITLE)
    if len(sentences) == 1 and set(long) <= set(sentences) and not title:
        return sentences
    if not sentences and len(long) != 1:
        raise _ambiguous(table, texts[:2], texts[:3])
    main = (sentences or long)[:1]
    other = [at for at in (*title, *texts) if at not in main][:1]
    raise _ambiguous(table, main, [*other, *main])


def _longest(texts: Sequence[int], cells: Sequence[Sequence[Any]]) -> list[int]:
    """The columns of prose, if others next to them hold a word or two; else all."""
    words = {at: roles.words_in(cells[at]) for at in texts}
    long = [at for at in texts if words[at] >= PROSE]
    brief = any(words[at] < BRIEF for at in texts if at not in long)
    return long if long and brief else list(texts)


def _ambiguous(table: Table, *readings: Sequence[int]) -> InputError:
    """The error of a table with two readings, and the commands that part them."""
    said = ("sentences", "pairs", "pairs with a hard negative")
    ways = [
        f"{_command(table, [table.columns[at] for at in texts])} ({said[min(3, len(texts)) - 1]})"
        for texts in readings
    ]
    problem = f"the columns {_listed(table.columns)} have more than one reading"
    return InputError(table.source, f"{problem}; choose: {', or '.join(ways)}")


def _labeled(
    table: Table, texts: Sequence[int], cells: Sequence[Sequence[Any]], kinds: Sequence[str]
) -> str:
    """A warning where pairs have labels, which may say that they do not belong together."""
    for at, column in enumerate(cells if len(texts) > 1 and table.names else ()):
        values = Counter(str(value) for value in column)
        if at not in texts and len(values) > 1 and _judges(table.columns[at], values, kinds[at]):
            counts = [f"{value} {n}" for value, n in values.most_common(GRADES)]
            more = [f"{len(values) - GRADES} others"] * (len(values) > GRADES)
            return (
                f"{table.columns[at]} has the values {', '.join(counts + more)} in the first "
                f"{len(column)} rows, but every row is used as a matching pair; remove rows that "
                "do not match"
            )
    return ""


def _judges(name: str, values: Counter[str], kind: str) -> bool:
    """Whether values may grade pairs: scores by name, or a few that repeat."""
    if is_named(name, SCORE):
        return True
    if len(values) > GRADES or max(map(len, values)) > 30:
        return False
    if is_named(name, LABEL) and (
        kind == NUMBER or any(value.casefold() in PAIR_LABELS for value in values)
    ):
        return True
    sorting = SORTING.fullmatch(roles.plain_name(name)) or any(
        is_named(name, role) for role in (FACT, ID)
    )
    return not sorting and values.total() > len(values)


def _check_lists(table: Table, texts: Sequence[int], cells: Sequence[Sequence[Any]]) -> None:
    """Reject lists of positives or negatives in place of which there is no text to train on."""
    for role in (POSITIVE, NEGATIVE):
        named = [at for at, name in enumerate(table.names or ()) if is_named(name, role)]
        listed = [at for at in named if any(isinstance(cell, list) for cell in cells[at])]
        if listed and texts and not set(named) & set(texts):
            problem = f"column {table.columns[listed[0]]!r} contains lists, not text"
            remedy = 'write rows {"query": ..., "pos": [...], "neg": [...]} as jsonl'
            raise InputError(table.source, f"{problem}; {remedy}, or choose --columns")


# ---------------------------------------------------------------------- documents


def document_roles(table: Table) -> list[tuple[str, int]]:
    """Roles and places of columns in a document, by names or by the longest texts.

    Roles: "text" (the main one first), "title", "id"; "fact" of short columns next to a text;
    "field" of all where no column holds texts; nothing where none holds words.
    """
    names, cells = table.columns, _sample(table)
    plain, places = [roles.plain_name(name) for name in names], range(len(names))

    def first(role: str, known: Sequence[str], but: int = -1) -> list[tuple[str, int]]:
        found = [at for name in known for at in places if plain[at] == name and at != but]
        return [(role, at) for at in found[:1]]

    rows = max(map(len, cells), default=0)
    lengths = [
        sum(len(as_text(cell)) for cell in column if not isinstance(cell, int | float))
        for column in cells
    ]
    known = (first(TEXT, [name]) for name in NAMES[TEXT])
    text = next((found for found in known if found and lengths[found[0][1]]), [])
    if not text:
        at = max(places, key=lengths.__getitem__, default=-1)
        if at < 0 or lengths[at] < SHORTEST * rows:
            texts = (as_text(c) for column in cells for c in column if not isinstance(c, bool))
            worded = any(map(str.isalpha, "".join(texts)))
            return [(FIELD, at) for at in places] if worded else []
        text = [(TEXT, at)]
    main = text[0][1]
    text += [*first(TITLE, NAMES[TITLE], main), *first(ID, roles.ROW_IDS, main)]
    left = [at for at in places if table.names and at not in {at for _, at in text}]
    long = [at for at in left if lengths[at] > SHORTEST * rows]
    text += [(TEXT, at) for at in long if roles.kind_of_column(cells[at]) == TEXT]
    return [*text, *((FACT, at) for at in [at for at in left if at not in long][:FACTS])]


def codes(table: Table, places: Iterable[int]) -> frozenset[int]:
    """Those of some columns that hold codes that users search for, such as product numbers."""
    cells = [[one for one in some if not isinstance(one, bool)] for some in _sample(table)]
    return frozenset(at for at in places if roles.kind_of_column(cells[at]) == CODE)


def as_text(cell: Any) -> str:
    """A cell as text of a document, whatever its type; "" if it is empty, or a vector."""
    if isinstance(cell, dict):
        return "; ".join(f"{name}: {text}" for name, one in cell.items() if (text := as_text(one)))
    if isinstance(cell, list | tuple):
        shown = len(cell) <= FACTS or all(isinstance(one, str) for one in cell)
        return "\n\n".join(map(as_text, cell)) if shown else ""
    return "" if is_empty(cell) or isinstance(cell, bytes) else str(cell)


# ---------------------------------------------------------------------- queries of users


Part = Literal["query", "document", "gain", "count"]
PARTS: dict[Part, tuple[str, ...]] = {
    "query": NAMES[QUERY],
    "document": (
        "document", "doc", "document_id", "doc_id", "corpus_id", "page", "answer", "clicked",
        "url", "path", "file", "id",
    ),
    "gain": ("gain", "score", "relevance", "rating", "label", "grade"),
    "count": ("count", "clicks", "n", "frequency"),
}  # fmt: skip


def query_roles(table: Table, amount: Literal["gain", "count"]) -> list[tuple[str, int]]:
    """The columns of user queries, of the documents that answer them, and of how well or often."""
    plain = [roles.plain_name(name) for name in table.names or ()]
    parts: tuple[Part, ...] = ("query", "document", amount)
    found = {part: next((plain.index(n) for n in PARTS[part] if n in plain), -1) for part in parts}
    if min(found["query"], found["document"]) < 0:
        has = ", ".join(table.names or ()) or "none"
        problem = f"needs the columns query and document, but has {has}"
        raise InputError(table.source, f"{problem}; name them in its first line", line=1)
    return [(part, at) for part, at in found.items() if at >= 0]
