"""Signs of vectors: counted as by a plain loop, and the best rows found."""

import numpy as np
import pytest

from contrasent.errors import UserError
from contrasent.search.exact import unit
from contrasent.search.index import Index
from contrasent.search.quantised import Signs


def made(count, dimension, seed=0):
    random = np.random.default_rng(seed)
    middles = random.standard_normal((40, dimension)) + 0.5
    noise = random.standard_normal((count, dimension))
    return unit((middles[random.integers(0, 40, count)] + noise).astype(np.float32))


def index_of(vectors, **options):
    return Index.build(lambda texts: vectors, [str(n) for n in range(len(vectors))], **options)


@pytest.mark.parametrize("dimension", [7, 64, 100])
def test_differences_are_those_of_a_plain_loop(dimension):
    vectors = made(200, dimension)
    signs = Signs(index_of(vectors))
    middle = vectors.astype(np.float64).mean(axis=0)
    for query in vectors[:3]:
        wanted = [
            sum((a > m) != (b > m) for a, b, m in zip(row, query, middle, strict=True))
            for row in vectors
        ]
        assert signs.differing(query).tolist() == wanted


def test_the_ten_best_of_many_rows_are_found_and_scored_exactly():
    vectors = made(40_000, 96)
    index = index_of(vectors)
    signs = Signs(index)
    found = []
    for query in unit(vectors[:40] + np.float32(0.02)):
        scores, rows = index.nearest(query[None], 10)
        ours, numbers = signs.nearest(query, 10, candidates=2000)
        found.append(len(set(numbers) & set(rows[0])) / 10)
        assert np.allclose(ours[0], scores[0][0])
        assert np.allclose(ours, vectors[numbers] @ query)
    assert np.mean(found) >= 0.99
    fewer = [len(set(signs.nearest(unit(v[None] + np.float32(0.02))[0], 10, candidates=12)[1])
                 & set(index.nearest(unit(v[None] + np.float32(0.02)), 10)[1][0]))
             for v in vectors[:20]]  # fmt: skip
    assert np.mean(fewer) < 9  # it is the candidates that give the recall


def test_deleted_rows_are_not_found_and_inner_products_are_refused():
    vectors = made(50, 16)
    index = index_of(vectors)
    index.deleted = np.array([3, 4])
    rows = Signs(index).nearest(vectors[3], 50)[1]
    assert sorted(rows) == [row for row in range(50) if row not in (3, 4)]
    with pytest.raises(UserError, match="dot product"):
        Signs(index_of(vectors, metric="dot"))
