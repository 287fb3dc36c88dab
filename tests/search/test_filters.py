"""Filters against a plain reading of their table, row by row."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.errors import OptionError
from contrasent.search.filters import check_where, parse_where
from contrasent.search.index import Index

ROWS = [
    {"lang": "en", "year": 2001, "tags": ["a", "b"], "deep": {"x": 1}},
    {"lang": "de", "year": 2005, "done": True},
    {"lang": "en", "year": 2010.0, "tags": [], "deep.x": 7},
    {"year": "2001", "done": 1},
    None,
    [1, 2],
    {"lang": None, "tags": "a b c"},
]

CASES = [
    ({"lang": "en"}, [0, 2]),
    ({"lang": {"$eq": "en"}}, [0, 2]),
    ({"lang": None}, [6]),
    ({"lang": {"$ne": "en"}}, [1, 3, 4, 5, 6]),
    ({"lang": {"$in": ["en", "de"]}}, [0, 1, 2]),
    ({"lang": {"$in": []}}, []),
    ({"lang": {"$nin": ["en", "de"]}}, [3, 4, 5, 6]),
    ({"year": {"$gt": 2001}}, [1, 2]),
    ({"year": {"$gte": 2001, "$lt": 2010}}, [0, 1]),
    ({"year": {"$lte": "2001"}}, [3]),
    ({"year": 2010}, [2]),
    ({"done": True}, [1]),
    ({"done": 1}, [3]),
    ({"done": {"$exists": True}}, [1, 3]),
    ({"done": {"$exists": False}}, [0, 2, 4, 5, 6]),
    ({"tags": {"$contains": "a"}}, [0, 6]),
    ({"tags": ["a", "b"]}, [0]),
    ({"deep.x": 1}, [0]),
    ({"deep.x": 7}, [2]),
    ({"deep": {"x": 1}}, [0]),
    ({"lang": "en", "year": 2001}, [0]),
    ({"$or": [{"lang": "de"}, {"year": 2010}]}, [1, 2]),
    ({"$and": [{"lang": "en"}, {"$not": {"year": 2001}}]}, [2]),
    ({"$not": {"lang": "en"}}, [1, 3, 4, 5, 6]),
    ({}, [0, 1, 2, 3, 4, 5, 6]),
    ({"nowhere": "x"}, []),
]


def build(rows):
    return Index.build(
        lambda texts: np.eye(len(texts), 9, dtype=np.float32) + 0.01,
        [str(n) for n in range(len(rows))],
        metadata=rows,
    )


@pytest.mark.parametrize(("where", "wanted"), CASES)
def test_table(where, wanted):
    index = build(ROWS)
    assert np.flatnonzero(index.matching(where)).tolist() == wanted
    (hits,) = index.search(np.ones(9, dtype=np.float32), k=10, where=where)
    assert sorted(int(hit.id) for hit in hits) == wanted
    (hits,) = index.search(np.ones(9, dtype=np.float32), k=1, where=where)
    assert len(hits) == min(1, len(wanted))


def test_a_filter_is_applied_before_the_best_are_taken():
    """Five rows match among a thousand that are nearer: all five are found."""
    vectors = np.zeros((1000, 2), dtype=np.float32)
    vectors[:, 0] = 1
    vectors[-5:, 1] = 3
    index = Index.build(
        lambda _: vectors, [""] * 1000, metadata=[{"far": n >= 995} for n in range(1000)]
    )
    (hits,) = index.search(np.array([1, 0], dtype=np.float32), k=10, where={"far": True})
    assert sorted(int(hit.id) for hit in hits) == [995, 996, 997, 998, 999]


values = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b", "ab"])
fields = st.sampled_from(["x", "y"])


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.dictionaries(fields, values), min_size=1, max_size=8),
    fields,
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
    st.integers(-2, 2) | st.sampled_from(["", "a", "b"]),
)
def test_comparisons(rows, field, op, want):
    def good(row):
        have = row.get(field)
        same = have == want and isinstance(have, bool) == isinstance(want, bool)
        if op in ("$eq", "$ne"):
            return (field in row and same) == (op == "$eq")
        if field not in row or isinstance(have, bool) or have is None:
            return False
        if isinstance(have, str) != isinstance(want, str):
            return False
        return {"$gt": have > want, "$gte": have >= want, "$lt": have < want}.get(op, have <= want)

    found = build(rows).matching({field: {op: want}})
    assert found.tolist() == [good(row) for row in rows]


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ([], None),
        (["lang=en"], {"lang": {"$eq": "en"}}),
        (["year >= 2000"], {"year": {"$gte": 2000}}),
        (["a!=true", "b~x y"], {"$and": [{"a": {"$ne": True}}, {"b": {"$contains": "x y"}}]}),
        (['{"lang": "en"}'], {"lang": "en"}),
        (["code=007"], {"code": {"$eq": "007"}}),
        (["url=http://a?b=c"], {"url": {"$eq": "http://a?b=c"}}),
    ],
)
def test_command_line_conditions(conditions, wanted):
    assert parse_where(conditions) == wanted


def nested(depth):
    where = {"a": 1}
    for _ in range(depth):
        where = {"$not": where}
    return where


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("lang=en", "JSON object"),
        ({"lang": {"$like": "e"}}, "no operator"),
        ({"$xor": []}, "did you mean '\\$or'"),
        ({"$or": []}, "list of filters"),
        ({"$or": {"a": 1}}, "list of filters"),
        ({"$not": 3}, "JSON object"),
        ({"a": {"$in": "en"}}, "takes a list"),
        ({"a": {"$gt": None}}, "number or a string"),
        ({"a": {"$gt": True}}, "number or a string"),
        ({"a": {"$exists": 1}}, "true or false"),
        (nested(100), "deeper than 32"),
    ],
)
def test_refused(where, words):
    with pytest.raises(OptionError, match=words):
        check_where(where)


@pytest.mark.parametrize("condition", ["lang", "=x", "{", "a b", json.dumps(nested(100))])
def test_refused_on_the_command_line(condition):
    with pytest.raises(OptionError):
        parse_where([condition])
