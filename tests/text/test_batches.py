"""Order and views: pure functions of (seed, step), every row once an epoch."""

import tracemalloc
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.errors import OptionError, TrainingError
from contrasent.text import batches as module
from contrasent.text.batches import BatchPlan, BucketPlan, Collator, MixedPlan, random_for
from contrasent.text.cache import tokenized
from contrasent.text.corpus import open_corpus
from contrasent.text.tokens import Tokenizer
from contrasent.text.views import DeleteWords, Identity, RepeatTokens, RepeatWords
from contrasent.train.prepare import collator, prepare
from contrasent.train.settings import FINE, Settings

ROWS = [(f"kettle number {n} on the roof", f"a map of {n} lamps", f"violin {n}") for n in range(20)]


def plan(count=23, batch_size=5, seed=3):
    return BatchPlan.make(np.arange(count) * 10, batch_size=batch_size, seed=seed, parts=1)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.integers(2, 20), st.integers(0, 2**63 - 1))
def test_every_row_once_an_epoch(count, batch, seed):
    order = BatchPlan.make(np.arange(count) + 100, batch_size=batch, seed=seed, parts=1)
    steps = order.steps_per_epoch
    assert steps == count // min(batch, count)
    for epoch in range(3):
        rows = np.concatenate([order.at(epoch * steps + i) for i in range(steps)])
        assert len(rows) == steps * order.batch_size
        assert len(set(rows.tolist())) == len(rows)  # none twice
        assert set(rows.tolist()) <= set(range(100, 100 + count))
        assert [order.epoch(epoch * steps + i) for i in range(steps)] == [epoch] * steps
    if count % order.batch_size == 0:
        assert set(rows.tolist()) == set(range(100, 100 + count))


def test_epochs_differ_leave_out_other_rows_and_need_no_steps_before():
    order = plan()
    steps = order.steps_per_epoch
    epochs = [np.concatenate([order.at(e * steps + i) for i in range(steps)]) for e in range(12)]
    assert len({tuple(e.tolist()) for e in epochs}) == 12
    left_out = [frozenset(range(0, 230, 10)) - frozenset(e.tolist()) for e in epochs]
    assert len(set(left_out)) > 6
    assert set().union(*epochs) == set(range(0, 230, 10))
    backward = [plan().at(step).tolist() for step in reversed(range(steps))][::-1]
    assert np.concatenate(backward).tolist() == epochs[0].tolist()
    assert plan(seed=4).at(0).tolist() != backward[0]


def test_small_corpora_and_impossible_batches():
    assert BatchPlan.make(np.arange(5), batch_size=64, seed=0, parts=1).batch_size == 5
    assert BatchPlan.make(np.arange(11), batch_size=64, seed=0, parts=4).batch_size == 8
    for batch in (0, -2, 7):
        with pytest.raises(OptionError, match=rf"batch_size {batch}: must be a multiple of 2"):
            BatchPlan.make(np.arange(50), batch_size=batch, seed=0, parts=2)
    for count, batch, parts in ((1, 64, 1), (50, 1, 1), (3, 64, 2), (50, 4, 4), (0, 8, 1)):
        with pytest.raises(TrainingError, match="fewer than two sentences per batch"):
            BatchPlan.make(np.arange(count), batch_size=batch, seed=0, parts=parts)


def test_random_streams_are_apart():
    keys = list(product(
        (0, 1, 2**62), (module.ORDER, module.HELDOUT, module.VIEW, module.VIEW + 1), (0, 1, 7),
        (0, 1, 7),
    ))  # fmt: skip
    starts = [tuple(random_for(s, p, a, b).integers(2**63, size=3)) for s, p, a, b in keys]
    assert len(set(starts)) == len(keys) == 108
    again = [tuple(random_for(s, p, a, b).integers(2**63, size=3)) for s, p, a, b in keys]
    assert again == starts
    # Views of any column are apart from every other purpose.
    assert not {module.ORDER, module.HELDOUT} & {module.VIEW + column for column in range(50)}


@pytest.fixture(scope="module")
def tokenizer(bert):
    return Tokenizer.load(bert, max_seq_length=24)


@pytest.fixture(scope="module")
def pairs(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return tokenized(open_corpus(ROWS), tokenizer, folder / "c", lower=False)


@pytest.fixture(scope="module")
def single(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return tokenized(open_corpus([r[0] for r in ROWS]), tokenizer, folder / "c", lower=False)


def rows_of(cache, batch):
    return BatchPlan.make(np.arange(len(cache)), batch_size=batch, seed=9, parts=1)


def lists(batch):
    return [[column[i].tolist() for i in range(len(column))] for column in batch.columns]


def test_columns_of_a_corpus(pairs, tokenizer):
    made = Collator(pairs, rows_of(pairs, 6), (Identity(), Identity()), tokenizer).batch(3)
    assert made.rows.tolist() == rows_of(pairs, 6).at(3).tolist()
    assert (made.step, len(made)) == (3, 6)
    for column, found in enumerate(lists(made)):
        assert found == [tokenizer([ROWS[row][column]])[0][0].tolist() for row in made.rows]


def test_equal_sentences_in_different_rows_get_views_of_their_own(tokenizer, tmp_path):
    cache = tokenized(open_corpus([ROWS[0][0]] * 30), tokenizer, tmp_path / "c", lower=False)
    views = (Identity(), RepeatTokens(rate=1.0, rule="paper"), DeleteWords(percent=40))
    seen = []
    for batch in (30, 6):
        made = Collator(cache, rows_of(cache, batch), views, tokenizer)
        found = {}
        for step in range(30 // batch):
            one = made.batch(step)
            for i, row in enumerate(one.rows.tolist()):
                found[row] = tuple(tuple(column[i].tolist()) for column in one.columns)
        seen.append(found)
    assert len(seen[0]) == 30
    assert seen[0] == seen[1]
    for view in (1, 2):
        assert len({columns[view] for columns in seen[0].values()}) > 8


def test_views_of_single_sentences(single, tokenizer):
    views = (Identity(), RepeatTokens(rate=0.5, rule="paper"), DeleteWords(percent=30))
    made = Collator(single, rows_of(single, 6), views, tokenizer).batch(0)
    one, two, three = lists(made)
    assert one == [tokenizer([ROWS[row][0]])[0][0].tolist() for row in made.rows]
    before, after = (part.tolist() for part in tokenizer.frame)
    changed = 0
    for ids, repeated, deleted in zip(one, two, three, strict=True):
        assert (repeated[:1], repeated[-1:]) == (before, after)
        assert (deleted[:1], deleted[-1:]) == (before, after)
        assert set(repeated) == set(ids)
        assert len(repeated) >= len(ids)
        changed += repeated != ids
    assert changed
    assert sum(map(len, three)) < sum(map(len, one))
    assert [[column[i].tolist() for i in range(6)] for column in made.unedited] == [one] * 3


def test_parts_make_the_batch(single, tokenizer):
    views = (RepeatWords(rate=0.3), RepeatTokens(rate=0.3))
    collator = Collator(single, rows_of(single, 12), views, tokenizer)
    whole = collator.batch(2)
    for parts in (2, 3, 4):
        pieces = [collator.batch(2, part, parts) for part in range(parts)]
        assert np.concatenate([p.rows for p in pieces]).tolist() == whole.rows.tolist()
        for column in range(2):
            joined = [row for piece in pieces for row in lists(piece)[column]]
            assert joined == lists(whole)[column]


def test_views_are_functions_of_seed_row_and_epoch(single, tokenizer):
    def made(step, seed=9, resample_views=True):
        order = BatchPlan.make(np.arange(20), batch_size=10, seed=seed, parts=1)
        views = (RepeatTokens(rate=0.5, rule="paper"), RepeatTokens(rate=0.5, rule="paper"))
        batch = Collator(single, order, views, tokenizer, resample_views=resample_views).batch(step)
        columns = lists(batch)
        return {int(r): (columns[0][i], columns[1][i]) for i, r in enumerate(batch.rows)}

    assert made(5) == made(5)
    first, second = made(0) | made(1), made(2) | made(3)  # two epochs of the same twenty rows
    assert first.keys() == second.keys() == set(range(20))
    assert sum(first[row] != second[row] for row in first) > 10
    assert sum(one != two for one, two in first.values()) > 10  # the two views differ
    still = made(0, resample_views=False) | made(1, resample_views=False)
    assert still == made(2, resample_views=False) | made(3, resample_views=False)
    assert (made(0, seed=10) | made(1, seed=10)) != first


def test_a_word_view_is_tokenised_and_cut_as_the_corpus_was(tiny, tmp_path):
    tokenizer = Tokenizer.load(tiny["roberta"], max_seq_length=8)
    texts = ["A MAP of the ROOF", "My VIOLIN"]
    cache = tokenized(open_corpus(texts), tokenizer, tmp_path / "c", lower=True)
    order = BatchPlan.make(np.arange(2), batch_size=2, seed=0, parts=1)
    views = (RepeatWords(rate=0.0, rule="exact"), Identity())
    made = Collator(cache, order, views, tokenizer, lower=True).batch(0)
    one, two = lists(made)
    assert one == two
    assert max(map(len, one)) == 8


@pytest.mark.parametrize(("kind", "lower"), [("bert", False), ("bert", True), ("roberta", True)])
def test_a_view_of_tokens_leaves_the_prompt_alone(tiny, tmp_path, kind, lower):
    tokenizer = Tokenizer.load(tiny[kind], max_seq_length=40)
    corpus, prompt = open_corpus([a for a, _, _ in ROWS]), "My torn Map: "
    cache = tokenized(corpus, tokenizer, tmp_path / "c", lower=lower, prompts=(prompt,))
    views = (RepeatTokens(rate=1.0, rule="exact"), Identity())
    made = Collator(
        cache, rows_of(cache, 6), views, tokenizer, lower, prompts=(prompt,), longest=30
    )
    own = len(tokenizer.frame[0]) + len(tokenizer([prompt.strip().lower()])[0][0]) - 2
    for repeated, ids in zip(*lists(made.batch(0)), strict=True):
        twice = np.repeat(ids[own:-1], 2).tolist()
        assert repeated == [*ids[:own], *twice[: 29 - own], ids[-1]]


def test_grown_rows_are_cut_at_the_encoders_limit(single, tokenizer):
    views = (RepeatTokens(rate=1.0, rule="exact"), Identity())
    whole = lists(Collator(single, rows_of(single, 8), views, tokenizer).batch(0))[0]
    cut = lists(Collator(single, rows_of(single, 8), views, tokenizer, longest=15).batch(0))[0]
    after = tokenizer.frame[1].tolist()
    assert max(map(len, whole)) > 15
    assert cut == [ids if len(ids) <= 15 else ids[:14] + after for ids in whole]


# ---------------------------------------------------------------------- buckets


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
    plan = BucketPlan.divide(rows, np.asarray(lengths), cuts=cuts, batch_size=4, seed=seed)
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
    lengths = np.tile(np.arange(1, 13), 2)
    plan = BucketPlan.divide(np.arange(24), lengths, cuts=FINE, batch_size=2, seed=0)
    assert plan.sizes == (6, 2, 2, 2, 2, 10)


def test_buckets_are_of_lengths_without_the_special_tokens(bert, sentences, tmp_path):
    given = Settings(batch_size=4, buckets="25", max_steps=1, pooling="mean")
    objective, corpus = prepare(bert, "simcse", {}, given), open_corpus(sentences[:80])
    made = collator(objective, corpus, given, tmp_path, None)
    kinds = [{int(n) - 2 <= 25 for n in made.batch(step).columns[0].lengths}
             for step in range(made.plan.steps_per_epoch)]  # fmt: skip
    assert {True} in kinds and {False} in kinds and {True, False} not in kinds
    assert made.longest == 64 == objective.encoder.backbone.config.max_position_embeddings
    both = corpus.join(open_corpus(sentences[80:160]))
    with pytest.raises(OptionError, match=r"buckets '25': is for one corpus; merge them"):
        collator(objective, both, given, tmp_path, None)


def test_order_is_a_function_of_seed_and_step_and_changes_with_the_epoch():
    lengths = np.arange(64) % 9

    def plan(seed):
        return BucketPlan.divide(np.arange(64), lengths, cuts=(4,), batch_size=8, seed=seed)

    steps = plan(0).steps_per_epoch
    assert all(np.array_equal(plan(3).at(k), plan(3).at(k)) for k in range(2 * steps))
    first = [plan(3).at(k).tolist() for k in range(steps)]
    assert first != [plan(4).at(k).tolist() for k in range(steps)]
    assert first != [plan(3).at(k + steps).tolist() for k in range(steps)]
    kinds = [bucket(int(lengths[batch[0]]), (4,)) for batch in first]
    assert kinds != sorted(kinds)


@pytest.mark.parametrize(("options", "kind", "words"), [
    ({"cuts": (5, 3), "batch_size": 2}, OptionError, "increasing"),
    ({"cuts": (), "batch_size": 2}, OptionError, "increasing"),
    ({"cuts": (3,), "batch_size": 6, "parts": 4}, OptionError, "multiple of 4"),
    ({"cuts": (3,), "batch_size": 6}, TrainingError, "do not fill a batch of 6"),
])  # fmt: skip
def test_bad_buckets(options, kind, words):
    with pytest.raises(kind, match=words):
        BucketPlan.divide(np.arange(8), np.arange(8), seed=0, **options)


@pytest.mark.parametrize(("weights", "counts"), [
    ((), (3, 2)), ((1, 4), (1, 4)), ((3, 1), (4, 1)), ((50, 1), (4, 1)), ((1, 1e9), (1, 4)),
])  # fmt: skip
def test_batches_of_several_corpora(weights, counts):
    parts_of = np.repeat([0, 1], [13, 8])
    rows = np.array([n for n in range(21) if n != 5])
    plan = MixedPlan.divide(rows, parts_of, weights, batch_size=4, seed=3, parts=2)
    assert (plan.counts, plan.steps_per_epoch, plan.batch_size) == (counts, 5, 4)
    seen = [[], []]
    for step in range(20):
        batch = plan.at(step)
        (part,) = set(parts_of[batch])  # of one corpus alone
        alone = BatchPlan.make(rows[parts_of[rows] == part], batch_size=4, seed=3, parts=2)
        assert batch.tolist() == alone.at(len(seen[part])).tolist()
        assert plan.epoch(step) == alone.epoch(len(seen[part]))
        seen[part].append(step)
    assert tuple(map(len, seen)) == tuple(4 * n for n in counts)
    assert len({tuple(s in seen[0] for s in range(e, e + 5)) for e in (0, 5, 10, 15)}) > 1
    with pytest.raises(TrainingError, match="batch of 9, and they have 12, 8 rows"):
        MixedPlan.divide(rows, parts_of, (), batch_size=9, seed=3, parts=1)
    with pytest.raises(OptionError, match=r"weights '1,2,3': give one number per corpus, 2"):
        MixedPlan.divide(rows, parts_of, (1, 2, 3), batch_size=4, seed=3, parts=1)


def test_the_order_of_an_epoch_is_drawn_once_however_many_corpora():
    rows, parts_of = np.arange(120_000), np.repeat(range(4), [27_000, 29_000, 31_000, 33_000])
    plan = MixedPlan.divide(rows, parts_of, (), batch_size=64, seed=3, parts=1)
    [plan.at(step) for step in range(40)]
    tracemalloc.start()
    [plan.at(step) for step in range(40, 80)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 27_000 * 8  # bytes of an order
