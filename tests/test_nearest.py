"""Nearest rows against a full stable sort, with many equal scores and any blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent import metrics, nearest


def order_of(scores, rows, k):
    """Rows by falling score, equal ones in their order; one after another."""
    return sorted(rows, key=lambda row: (-scores[row], row))[:k]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 35))
def test_best_rows_is_a_stable_sort(values, k):
    found = nearest.best_rows(np.array(values, dtype=np.float32), k)
    assert found.tolist() == order_of(values, range(len(values)), k)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(1, 70), st.integers(1, 9),
    st.data(),
)  # fmt: skip
def test_scan_is_a_stable_full_sort(values, k, width, data):
    """Many equal scores, any cutting into blocks, any rows not allowed."""
    allowed = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    vectors = np.array(values, dtype=np.float32)[:, None]
    best, query = nearest.Best(1, k), np.ones((1, 1), dtype=np.float32)
    for at in range(0, len(values), width):
        part = vectors[at : at + width]
        nearest.scan(query, part, best, first=at, allowed=np.array(allowed))
    wanted = order_of(values, [n for n in range(len(values)) if allowed[n]], k)
    assert best.rows[0][best.rows[0] >= 0].tolist() == wanted
    assert best.scores[0][: len(wanted)].tolist() == [values[n] for n in wanted]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.booleans(), st.integers(1, 5))
def test_nearest_is_a_stable_sort(seed, k, itself, size):
    """In blocks of any size; of fewer rows than k the rest are -1."""
    random = np.random.default_rng(seed)
    rows = random.integers(-2, 3, (10, 3)).astype(np.float32)  # small numbers: many ties
    own = np.array([0, 1, -1, 3]) if itself else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "QUERIES_AT_ONCE", size)
        patch.setattr(nearest, "SCORES_AT_ONCE", 3 * size)
        found, products = nearest.nearest(rows[:4], rows, k, own=own)
    assert found.shape == products.shape == (4, k)
    for query in range(4):
        scores = [float(rows[query] @ row) for row in rows]
        others = [n for n in range(10) if own is None or n != own[query]]
        best = order_of(scores, others, k)
        rest = k - len(best)
        assert found[query].tolist() == best + [-1] * rest
        assert products[query].tolist() == [scores[n] for n in best] + [-np.inf] * rest


def test_neighbors_are_by_cosine_and_never_the_row_itself():
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    vectors[7] *= 1000  # no row is near for being long
    vectors[9] = vectors[8]
    found = metrics.neighbors(vectors.astype(np.float32), 5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for row, near in enumerate(found.tolist()):
        cosines = unit @ unit[row]
        assert near == sorted((n for n in range(30) if n != row), key=lambda n: -cosines[n])[:5]
