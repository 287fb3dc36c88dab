"""Batches of one bucket each."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.errors import OptionError, TrainingError
from contrasent.text.batches import FINE, BucketPlan


def bucket(length, cuts):
    return sum(length > cut for cut in cuts)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 99),
    lengths=st.lists(st.integers(1, 12), min_size=40, max_size=90),
    cuts=st.sampled_from([(3,), (5,), (8,), FINE]),
)
def test_every_batch_is_of_one_bucket_and_no_row_comes_twice(seed, lengths, cuts):
    rows = np.arange(1000, 1000 + len(lengths))
    counts = Counter(bucket(n, cuts) for n in lengths)
    if max(counts.values()) < 4:
        return
    plan = BucketPlan.divide(rows, np.asarray(lengths), cuts=cuts, batch=4, seed=seed)
    assert plan.steps_per_epoch == sum(n // 4 for n in counts.values())
    for epoch in (0, 1):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        batches = [plan.at(step) for step in steps]
        seen = np.concatenate(batches).tolist()
        assert len(seen) == len(set(seen)) and set(seen) <= set(rows.tolist())
        for batch in batches:
            assert len({bucket(lengths[row - 1000], cuts) for row in batch}) == 1
        assert {plan.epoch(step) for step in steps} == {epoch}


def test_the_fine_buckets_are_the_papers_six():
    plan = BucketPlan.divide(
        np.arange(24), np.tile(np.arange(1, 13), 2), cuts=FINE, batch=2, seed=0
    )
    assert plan.sizes == (6, 2, 2, 2, 2, 10)


def test_order_is_a_function_of_seed_and_step_and_changes_with_the_epoch():
    lengths = np.arange(64) % 9

    def plan(seed):
        return BucketPlan.divide(np.arange(64), lengths, cuts=(4,), batch=8, seed=seed)

    steps = plan(0).steps_per_epoch
    assert all(np.array_equal(plan(3).at(k), plan(3).at(k)) for k in range(2 * steps))
    first = [plan(3).at(k).tolist() for k in range(steps)]
    assert first != [plan(4).at(k).tolist() for k in range(steps)]
    assert first != [plan(3).at(k + steps).tolist() for k in range(steps)]
    kinds = [bucket(int(lengths[batch[0]]), (4,)) for batch in first]
    assert kinds != sorted(kinds)


def test_bad_input():
    rows, lengths = np.arange(8), np.arange(8)
    with pytest.raises(OptionError, match="rising"):
        BucketPlan.divide(rows, lengths, cuts=(5, 3), batch=2, seed=0)
    with pytest.raises(OptionError, match="rising"):
        BucketPlan.divide(rows, lengths, cuts=(), batch=2, seed=0)
    with pytest.raises(OptionError, match="multiple of 4"):
        BucketPlan.divide(rows, lengths, cuts=(3,), batch=6, seed=0, parts=4)
    with pytest.raises(TrainingError, match="fill no batch of 6"):
        BucketPlan.divide(rows, lengths, cuts=(3,), batch=6, seed=0)
