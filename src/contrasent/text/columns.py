"""The one rule for the part of every column: trained on, searched, or neither.

Known names decide, then contents; ids, dates, labels and paths are not trained on. Where two
readings are left, an error shows the two commands that part them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    never_teaches,
    plain_name,
)
from contrasent.text.tables import MEMORY, Columns, Table, as_number, brief, is_empty

FIELD = "field"
SAMPLE = 200  # rows by which the part of a column is decided
SHORTEST = 40  # mean characters from which a column is taken for a text by its length
FACTS = 20  # columns besides text, title and id that become metadata
CLASSES, LABEL_LENGTH = 10, 20  # distinct values, and their characters, of a column of labels
GRADES = 5  # distinct values up to which a label may grade pairs
SHOWN = 12  # columns that a line names
STRONG = {"query", "question", "anchor", "answer"}  # names of pairs that a number only rates
PAIR_LABELS = {
    "entailment", "neutral", "contradiction", "true", "false", "yes", "no", "duplicate",
}  # fmt: skip

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

    def line(self) -> str:
        """The role of every column: "query: question, positive: answer; not used: ticket"."""
        return spoken(self.table.columns, self.places)


def spoken(
    names: Sequence[str], places: Iterable[tuple[str, int]], unused: str = "not used"
) -> str:
    """The role of every column in a line."""
    by_role = dict[str, list[str]]()
    for role, at in places:
        by_role.setdefault(role, []).append(names[at])
    left = [name for at, name in enumerate(names) if at not in {at for _, at in places}]
    parts = [f"{role}: {_listed(columns)}" for role, columns in by_role.items()]
    return ", ".join(parts) + (f"; {unused}: {_listed(left)}" if left else "")


def _listed(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:57]}..." for name in names[:SHOWN]]
    return ", ".join([*shown, *[f"{len(names) - SHOWN} more"] * (len(names) > SHOWN)])


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column, by its name and by its first cells that hold something."""

    place: int
    name: str  # its position where columns have no names
    cells: list[Any]
    kind: str  # of nearly all cells, see :func:`contrasent.text.roles.kind_of`

    @property
    def plain(self) -> str:
        """The name in the form of ``NAMES``."""
        return plain_name(self.name)

    @property
    def length(self) -> float:
        """The mean characters of a cell."""
        return sum(len(str(cell)) for cell in self.cells) / max(1, len(self.cells))

    def is_short(self) -> bool:
        """Whether it holds a word or two, as what stands beside a text does."""
        return self.length < SHORTEST / 4

    def is_a(self, *parts: str) -> bool:
        """Whether its name is that of one of these roles."""
        return any(is_named(self.name, part) for part in parts)

    def repeats_labels(self) -> bool:
        """Whether it repeats a few short values."""
        texts = [cell for cell in self.cells if isinstance(cell, str)]
        distinct = set(texts)
        few = 0 < len(distinct) <= CLASSES and len(texts) >= max(10, 4 * len(distinct))
        return few and max(map(len, distinct)) <= LABEL_LENGTH


def sampled_columns(table: Table) -> list[Column]:
    """The columns of a table, by its first rows."""
    cells: list[list[Any]] = [[] for _ in table.columns]
    for _, row in islice(table.stream(), SAMPLE):
        for own, cell in zip(cells, row or (), strict=False):
            if not is_empty(cell):
                own.append(cell)
    named = enumerate(zip(table.columns, cells, strict=True))
    return [Column(at, name, own, roles.kind_of_column(own)) for at, (name, own) in named]


# ---------------------------------------------------------------------- training


def training_roles(
    table: Table, columns: Columns | None = None, score: Scored = None, *, single: bool = False
) -> Roles:
    """The columns to train on, or an error with both readings; ``single``: of texts to encode."""
    if columns is not None:
        texts = [table.position(column) for column in columns]
        found = sampled_columns(table) if score is True else []
        scored = None if score is None else _score(table, found, score)
        return _roles(table, texts, scored, stated=True)
    if table.header is None and table.names is not None:
        places = ",".join(map(str, range(len(table.names))))
        problem = f"the first row is either column names or data, {brief(', '.join(table.names))}"
        remedy = f"{_command(table, table.names)} for column names, {_command(table, [places])}"
        raise InputError(table.source, f"{problem}: {remedy} for data")
    found = sampled_columns(table)
    if table.names is None and table.form == MEMORY:  # of a program, which knows its columns
        scored = _score(table, found, score) if score else None
        return _roles(table, [one.place for one in found if one.place != scored], scored)
    scored = _score(table, found, score)
    candidates = [one for one in found if one.place != scored and _may_teach(table, one, found)]
    if not candidates:
        if len(found) == 1 and found[0].kind == NUMBER:
            raise InputError(table.source, f"column {found[0].name!r} contains numbers, not text")
        problem = f"no column of {_listed(table.columns)} contains text to train on; choose columns"
        raise InputError(table.source, f"{problem} with --columns")
    chosen = _pair(table, candidates, found) if not single else _main(candidates) or candidates
    if single and len(chosen) > 1:
        listed = _listed([one.name for one in chosen])
        problem = f"has {len(chosen)} columns of text ({listed}); choose one with --column"
        raise InputError(table.source, problem)
    note = _labeled(found, chosen) if scored is None and table.names and len(chosen) > 1 else ""
    return _roles(table, [one.place for one in chosen], scored, note)


def _roles(
    table: Table,
    texts: Sequence[int],
    score: int | None,
    note: str = "",
    *,
    stated: bool = False,
) -> Roles:
    parts = [TEXT] * len(texts)
    if len(texts) > 1 and score is None:
        parts = [QUERY, POSITIVE, *[NEGATIVE] * (len(texts) - 2)]
    ends = [] if score is None else [(SCORE, score)]
    return Roles(table, (*zip(parts, texts, strict=True), *ends), note, stated)


def text_column(table: Table) -> int:
    """The one column of texts to encode."""
    return training_roles(table, score=False, single=True).chosen[0]


def _score(table: Table, found: Sequence[Column], score: Scored) -> int | None:
    """The column of scores: the chosen one, or one of a known name that holds numbers."""
    if score is False:
        return None
    if isinstance(score, str | int) and not isinstance(score, bool):
        return table.position(score, "score")
    named = [one for name in NAMES[SCORE] for one in found if one.plain == name]
    numbers = [one for one in found if one.kind == NUMBER]
    rated = [one for one in numbers if one.plain in ("label", "labels")]
    if score:
        alone = numbers if table.names is None and len(numbers) == 1 else []
        for one in (*named, *rated, *alone):
            return one.place
        known = ", ".join(NAMES[SCORE][:4])
        problem = f"{table.source} has no score column with a known name ({known}); name it"
        raise OptionError("score", "", problem, choices=table.columns)
    classes = [one for one in rated if all(map(_is_whole, one.cells))]
    named += [one for one in rated if one not in classes]
    # Where a question has its answer, the number says how good it is, not how alike they are.
    rates = not STRONG & {one.plain for one in found}
    texts = sum(one.kind == TEXT for one in found)
    if not named or named[0].kind != NUMBER or texts < 2 or not rates:
        return None
    return named[0].place


def _is_whole(cell: Any) -> bool:
    return (as_number(cell) or 0.0).is_integer()


def _may_teach(table: Table, column: Column, found: Sequence[Column]) -> bool:
    """Whether a column holds texts to train on, by its name, else by what it holds."""
    strings = any(isinstance(cell, str) for cell in column.cells)
    if column.kind == NUMBER or (column.cells and not strings):
        return False
    if len(found) == 1:
        return True
    if table.names is not None:
        if column.is_a(QUERY, POSITIVE, NEGATIVE, TEXT) or column in _short_answer(found):
            return True
        if never_teaches(column.name):
            return False
    return column.kind == TEXT and not column.repeats_labels()


def _pair(table: Table, texts: list[Column], found: Sequence[Column]) -> list[Column]:
    """One column of sentences, or query, positive and negatives."""
    if table.names is None and 2 < len(texts) < len(found):
        raise _ambiguous(table, texts[:2], texts[:3])
    if table.names is None or len(texts) == 1:
        return texts
    query, positive = _named(texts, QUERY), _named(texts, POSITIVE)
    positive = [one for one in positive if one not in query] or _short_answer(found)
    negative = [one for one in texts if one.is_a(NEGATIVE)]
    others = [one for one in texts if one not in (*query, *positive, *negative)]
    if (query and positive) or not others:
        return [*query, *positive, *negative]
    if query or positive:
        ways = [[*query, one, *positive, *negative] for one in others]
        if len(ways) == 1:
            return ways[0]
        raise _ambiguous(table, *ways[:2])
    main = _main(texts)
    if len(texts) == 2 and not main:
        return texts
    if not main:
        raise _ambiguous(table, texts[:2], texts[:3])
    others = [one for one in texts if one not in main]
    titles = _named(others, TITLE)
    beside = not titles and all(one.is_short() for one in others)
    if beside and main[0].is_a(TEXT) and not main[0].is_short():
        return main
    raise _ambiguous(table, main, [*(titles or others)[:1], *main])


def _main(texts: Sequence[Column]) -> list[Column]:
    """The one column of texts that others only go with, by its name or because they are short."""
    main = [one for one in texts if one.is_a(TEXT) and not one.is_a(QUERY, POSITIVE)]
    if not main and any(one.is_short() for one in texts):
        main = [one for one in texts if one.length > SHORTEST]
    return main if len(main) == 1 else []


def _named(texts: Sequence[Column], role: str) -> list[Column]:
    """The column whose name counts most for a role, if there is one."""
    exact = [one for name in NAMES[role] for one in texts if one.plain == name]
    return (exact or [one for one in texts if one.is_a(role)])[:1]


def _short_answer(found: Sequence[Column]) -> list[Column]:
    """The column "a" next to "q"; it is no known name by itself."""
    asked = any(one.plain in ("q", "question", "query") for one in found)
    return [one for one in found if asked and one.plain == "a"][:1]


def _ambiguous(table: Table, *readings: Sequence[Column]) -> InputError:
    """The error of a table with two readings, and the commands that part them."""
    said = ("sentences", "pairs", "pairs with a hard negative")
    ways = [
        f"{_command(table, [one.name for one in texts])} ({said[min(3, len(texts)) - 1]})"
        for texts in readings
    ]
    problem = f"the columns {_listed(table.columns)} have more than one reading"
    return InputError(table.source, f"{problem}; choose: {', or '.join(ways)}")


def _command(table: Table, names: Sequence[str]) -> str:
    chosen = ",".join(names)
    quoted = f'"{chosen}"' if any(not (c.isalnum() or c in "_,.-") for c in chosen) else chosen
    source = f'"{table.source}"' if " " in table.source else table.source
    return f"contrasent train {source} --columns {quoted}"


def _labeled(found: Sequence[Column], texts: Sequence[Column]) -> str:
    """A warning where pairs have labels, which may say that they do not belong together."""
    for one in found:
        values = Counter(map(str, one.cells))
        known = one not in texts and one.is_a(LABEL) and 1 < len(values) <= GRADES
        if known and (one.kind == NUMBER or any(v.casefold() in PAIR_LABELS for v in values)):
            counts = ", ".join(f"{value} {n}" for value, n in values.most_common())
            return (
                f"{one.name} has the values {counts} in the first {len(one.cells)} rows, "
                "but every row is used as a matching pair; remove rows that do not match"
            )
    return ""


# ---------------------------------------------------------------------- documents


def document_roles(table: Table) -> list[tuple[str, int]]:
    """Roles and places of columns in a document, by names or by the longest texts.

    Roles: "text" (the main one first), "title", "id"; "fact" of short columns next to a text;
    "field" of all where no column holds texts; nothing where none holds words.
    """
    found = sampled_columns(table)
    rows = max((len(one.cells) for one in found), default=0)
    texts = [
        "".join(as_text(cell) for cell in one.cells if not isinstance(cell, int | float))
        for one in found
    ]
    lengths = [*map(len, texts)]

    def first(role: str, known: Sequence[str], but: int = -1) -> list[tuple[str, int]]:
        named = (one.place for name in known for one in found if one.plain == name)
        return [(role, at) for at in named if at != but][:1]

    named = (first(TEXT, [name]) for name in NAMES[TEXT])
    chosen = next((one for one in named if one and lengths[one[0][1]]), [])
    if not chosen:
        at = max(range(len(found)), key=lengths.__getitem__, default=-1)
        if at < 0 or lengths[at] < SHORTEST * rows:
            worded = any(map(str.isalpha, "".join(texts)))
            return [(FIELD, one.place) for one in found] if worded else []
        chosen = [(TEXT, at)]
    main = chosen[0][1]
    chosen += [*first(TITLE, NAMES[TITLE], main), *first(ID, roles.ROW_IDS, main)]
    taken = {at for _, at in chosen}
    left = [one for one in found if table.names and one.place not in taken]
    long = [one for one in left if lengths[one.place] > SHORTEST * rows]
    chosen += [(TEXT, one.place) for one in long if one.kind == TEXT]
    return [*chosen, *[(FACT, one.place) for one in left if one not in long][:FACTS]]


def codes(table: Table, places: Iterable[int]) -> frozenset[int]:
    """Those of some columns that hold codes such as product numbers, by which rows are sought."""
    coded = {one.place for one in sampled_columns(table) if one.kind == CODE}
    return frozenset(coded.intersection(places))


def as_text(cell: Any) -> str:
    """A cell as text of a document: also lists of texts, numbers and dates."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list | tuple) and all(isinstance(one, str) for one in cell):
        return "\n\n".join(cell)
    known = isinstance(cell, int | float) or hasattr(cell, "isoformat")
    return str(cell) if known and not isinstance(cell, bool) else ""


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
    plain = [*map(plain_name, table.names or ())]
    parts: tuple[Part, ...] = ("query", "document", amount)
    found = {part: next((plain.index(n) for n in PARTS[part] if n in plain), -1) for part in parts}
    if min(found["query"], found["document"]) < 0:
        has = ", ".join(table.names or ()) or "none"
        problem = f"needs the columns query and document, but has {has}"
        raise InputError(table.source, f"{problem}; name them in its first line", line=1)
    return [(part, at) for part, at in found.items() if at >= 0]
