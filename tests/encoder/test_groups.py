"""Grouping by length against all partitions there are."""

from itertools import pairwise, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.encoder.attention import OVERHEAD, by_length

lengths = st.lists(st.integers(1, 200), max_size=7).map(lambda rows: np.array(rows, np.int64))


def cost(groups, overhead):
    return sum(max(group) * len(group) + overhead for group in groups)


def partitions(items):
    """Every partition of a list: restricted growth strings."""
    for places in product(*(range(i + 1) for i in range(len(items)))):
        if all(p <= max(places[:i], default=-1) + 1 for i, p in enumerate(places)):
            groups = [[] for _ in range(max(places, default=-1) + 1)]
            for item, place in zip(items, places, strict=True):
                groups[place].append(item)
            yield groups


@settings(max_examples=60, deadline=None)
@given(lengths, st.sampled_from([0, 1, 20, OVERHEAD, 10**6]))
def test_no_partition_is_cheaper(rows, overhead):
    found = [rows[group].tolist() for group in by_length(rows, overhead=overhead)]
    best = min(cost(groups, overhead) for groups in partitions(rows.tolist()))
    assert cost(found, overhead) == best


@given(st.lists(st.integers(1, 500), max_size=300).map(lambda rows: np.array(rows, np.int64)))
@settings(max_examples=50, deadline=None)
def test_every_row_once_shortest_first(rows):
    groups = by_length(rows)
    assert sorted(np.concatenate([np.empty(0, np.int64), *groups]).tolist()) == [*range(len(rows))]
    edges = [(rows[g].min(), rows[g].max()) for g in groups]
    assert all(high <= low for (_, high), (low, _) in pairwise(edges))
