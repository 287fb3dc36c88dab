"""Indexes as a stranger may forge them, with all checksums made anew."""

import json
import sqlite3
from contextlib import closing, suppress

import numpy as np

from contrasent.search.folder import checksum, vector_sum

ESCAPE = "x\x1b]0;PWNED\x07\u202etxt"
DEEP = "[" * 100_000
ODD = (None, True, -1, 0, 2**70, 1e308, "", "\x00", ESCAPE, "../../x", "9" * 5000, [], [[]], {})
ODD_METADATA = (
    "", "{", DEEP, '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "9" * 5000, "[1]", "7", '"x"',
)  # fmt: skip
ODD_FACTS = {
    "document": (3, "", "a" * 5000, "#" * 300, "\x00", "../../etc/passwd", "/etc/passwd", ESCAPE),
    "headings": (3, "x", [3, None], [ESCAPE], {"a": 1}), "page": (ESCAPE, -1, 10**300, [1]),
    "sections": (3, "x", [3], [[1, 2]], [["a", [], 1]], [[0, [ESCAPE], 1]], [[0, 3, "x"]]),
    "body": (-1, 10**30, "x", 1.5),
}  # fmt: skip
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
COLUMNS = {
    "facts": "one, json, sum", "rows": "row, id, text, metadata, vector_sum, sum", "dead": "row",
    "blocks": "first, count, vector_sum, lengths, sum", "documents": "name, facts",
    "postings": "first, term, held, counts, sum",
}  # fmt: skip


def with_fact(path, value):
    """A change of the description at a path of keys."""

    def change(database, folder):
        (text,) = database.execute("SELECT json FROM facts").fetchone()
        inside = facts = json.loads(text)
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        if value is ODD:
            del inside[path[-1]]
        stated = json.dumps(facts)
        database.execute("UPDATE facts SET json = ?, sum = ?", (stated, checksum(stated)))

    return change


def with_text(text):
    """Another text as the description."""

    def change(database, folder):
        database.execute("UPDATE facts SET json = ?, sum = ?", (text, checksum(text)))

    return change


def with_row(column, value, row=3):
    """Another value in a row."""

    def change(database, folder):
        database.execute(f"UPDATE rows SET {column} = ? WHERE row = ?", (value, row))
        found = database.execute("SELECT rowid, * FROM rows").fetchall()
        for number, *values, _ in found:
            database.execute("UPDATE rows SET sum = ? WHERE rowid = ?", (checksum(*values), number))

    return change


def with_metadata(key, value):
    """Another fact about a row."""
    return with_row("metadata", json.dumps({"document": "note01.md", key: value}))


def with_statement(*statements):
    """Some SQL, and the checksums of words made anew."""

    def change(database, folder):
        database.create_function("checksum", -1, checksum)
        for statement in statements:
            database.execute(statement)
        for line in (
            "UPDATE blocks SET sum = checksum(first, lengths)",
            "UPDATE postings SET sum = checksum(first, term, held, counts)",
            "UPDATE learned SET sum = checksum(name, shape, data)",
        ):
            with suppress(sqlite3.Error):
                database.execute(line)

    return change


def with_view(table, select):
    """A view in the place of a table."""
    return with_statement(f"DROP TABLE {table}", f"CREATE VIEW {table} AS {select}")


def with_vectors(value):
    """Numbers in all vectors."""

    def change(database, folder):
        (path,) = folder.glob("vectors-*.f32")
        (text,) = database.execute("SELECT json FROM facts").fetchone()
        dimension = json.loads(text)["dimension"]
        vectors = np.fromfile(path, "<f4").reshape(-1, dimension)
        vectors[3:] = value
        vectors.tofile(path)
        for first, count in database.execute("SELECT first, count FROM blocks").fetchall():
            sum_ = vector_sum(vectors[first : first + count])
            database.execute("UPDATE blocks SET vector_sum = ? WHERE first = ?", (sum_, first))
        for row in range(3, len(vectors)):
            with_row("vector_sum", vector_sum(vectors[row : row + 1]), row)(database, folder)

    return change


def with_learned(name, shape, data):
    """Something learned, as it cannot be."""
    kind = "(name TEXT PRIMARY KEY, shape TEXT NOT NULL, data BLOB NOT NULL, sum INTEGER NOT NULL)"
    sql = f"CREATE TABLE IF NOT EXISTS learned\n    {kind}"
    return with_statement(sql, f"INSERT INTO learned VALUES ('{name}', '{shape}', {data}, 0)")


FORGERIES = {
    **{
        f"{'.'.join(path)} is {str(value)[:20]!r}": with_fact(path, value)
        for path in (
            *((key,) for key in ("format", "identity", "generation", "model", "source", "metric")),
            *((key,) for key in ("dimension", "vectors", "rows", "dead", "next_id", "language")),
            *((key,) for key in ("ranker", "settings", "codes", "origin", "unknown")),
            *(("origin", key) for key in ("kind", "path", "root", "columns", "max_file_text")),
            ("ranker", "word_weight"), ("settings", "pooler"), ("settings", "max_tokens"),
        )
        for value in ODD
    },
    **{f"facts {text[:20]!r}": with_text(text) for text in ("", "{", "[]", "3", DEEP, "{}")},
    **{f"metadata {text[:20]!r}": with_row("metadata", text) for text in ODD_METADATA},
    **{
        f"{key} of a row is {str(value)[:20]!r}": with_metadata(key, value)
        for key, values in ODD_FACTS.items()
        for value in values
    },
    **{
        f"{column} is {value!r}": with_row(column, value)
        for column in ("id", "text")
        for value in (b"\xff\xfe", ESCAPE, "", "\x00")
    },
    **{f"row is {row}": with_row("row", row) for row in (-5, 10**6, 2**40)},
    **{
        f"{table} is {name}": with_view(table, select)
        for table, columns in COLUMNS.items()
        for name, select in {
            "an endless view": f"{ENDLESS} {', '.join('i' for _ in columns.split(','))} FROM n",
            "an empty view": f"SELECT {', '.join('1' for _ in columns.split(','))} WHERE 0",
            "an extension": "SELECT load_extension('x')", "a file": "SELECT readfile('/etc/hosts')",
        }.items()
    },
    **{f"without {table}": with_statement(f"DROP TABLE {table}") for table in COLUMNS},
    **{f"without rows of {table}": with_statement(f"DELETE FROM {table}") for table in COLUMNS},
    "a trigger": with_statement("CREATE TRIGGER t AFTER UPDATE ON dead BEGIN SELECT 1; END"),
    "an index": with_statement("CREATE INDEX i ON rows (json_extract(metadata, '$.a'))"),
    "another table": with_statement("CREATE TABLE other (x)"),
    "a generated column": with_statement(
        "ALTER TABLE dead ADD COLUMN x AS (printf('%.*c', 1000000000, 'x'))"
    ),
    **{
        f"{column} of blocks is {value}": with_statement(f"UPDATE blocks SET {column} = {value}")
        for column in ("count", "lengths")
        for value in ("-1", "1000000", "'x'", "x'0102030405'", "zeroblob(4000000)")
    },
    **{
        f"blocks begin at {first}": with_statement(f"UPDATE blocks SET first = {first}")
        for first in (-1, 5, 10**6, 2**40)
    },
    **{
        f"{part} of postings is {value}": with_statement(f"UPDATE postings SET {part} = {value}")
        for part in ("held", "counts")
        for value in ("-1", "'x'", "x'01'", "x'ffffffff'", "x'ffffff7f'", "zeroblob(400000)")
    },
    **{
        f"dead row {row}": with_statement(f"INSERT INTO dead VALUES ({row})")
        for row in (-1, 2, 10**9)
    },
    **{
        f"file facts {text[:20]!r}": with_statement(f"INSERT INTO documents VALUES ('x', '{text}')")
        for text in ("", "[]", "3", "{}", '{"rows": "x"}', '{"rows": 1, "size": [], "modified": 0}')
    },
    "a file of that name": with_statement(
        "INSERT INTO documents VALUES (x'ff', '{\"rows\": 1, \"size\": 1, \"modified\": 0}')"
    ),
    **{f"vectors are {value}": with_vectors(value) for value in (np.nan, np.inf, -np.inf, 3e38, 0)},
    **{
        f"learned {name} {shape}": with_learned(name, shape, data)
        for name in ("matrix", "neighbours", "products", "taught", "documents", "other")
        for shape, data in (("[3, 3]", "zeroblob(36)"), ("x", "'x'"), ("[-1]", "x'ffff7f7f'"))
    },
}  # fmt: skip
"""Changes of a database and its folder, by what they forge."""


def forge(folder, name):
    """Change an index folder, with the checksums that go with it."""
    with closing(sqlite3.connect(folder / "index.db")) as database:
        FORGERIES[name](database, folder)
        database.commit()
    (folder / "index.sum").unlink(missing_ok=True)
