"""Calls of bounded size, and vectors that are the same to the bit whatever stands beside them."""

import numpy as np
import pytest

from contrasent.errors import ModelError
from contrasent.model.encoder import Encoder
from contrasent.model.runtime import by_budget, read_export, same_bits


def test_calls_hold_every_row_once_and_keep_the_budget():
    random = np.random.default_rng(0)
    for _ in range(50):
        lengths = random.integers(1, 300, random.integers(0, 200))
        most, budget = int(random.integers(1, 80)), int(random.integers(1, 2000))
        calls = by_budget(lengths, most, budget=budget)
        rows = np.concatenate([np.empty(0, np.int64), *calls])
        assert sorted(rows) == list(range(len(lengths)))
        for call in calls:
            assert len(call) == 1 or len(call) * lengths[call].max() <= budget
            assert len(call) <= most
        longest = [lengths[call].max() for call in calls]
        assert longest == sorted(longest, reverse=True)


@pytest.fixture(scope="module")
def encoder(bert):
    return Encoder.load(bert, pooler="mean", normalise=True)


def invariant(encoder, texts):
    tokens, _ = encoder.tokenise(texts)
    return same_bits(encoder.embed, tokens, encoder.dimension)


def test_same_bits_for_any_number_and_order_of_texts(encoder, sentences):
    texts = [*sentences[:120], "", "a " * 90]
    wanted = invariant(encoder, texts)
    assert np.abs(wanted - encoder.encode(texts)).max() < 1e-5
    random = np.random.default_rng(1)
    for _ in range(12):
        rows = random.choice(len(texts), random.integers(1, len(texts)), replace=bool(_ % 2))
        assert np.array_equal(invariant(encoder, [texts[row] for row in rows]), wanted[rows])


def test_every_pass_has_the_shape_that_its_length_decides(encoder, sentences):
    """What the promise rests on: no row is ever computed in another shape."""
    shapes = {}

    def embed(tokens):
        assert np.ptp(tokens.lengths) == 0
        shapes.setdefault(int(tokens.lengths[0]), set()).add(len(tokens))
        return encoder.embed(tokens)

    for count in (1, 5, 33):
        tokens, _ = encoder.tokenise(sentences[:count])
        same_bits(embed, tokens, encoder.dimension)
    assert len(shapes) > 3
    assert all(len(counts) == 1 for counts in shapes.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "holds no exported"), ("{", "damaged"), ('{"format": "x"}', "no export that")],
)
def test_a_folder_that_is_no_export_is_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "export.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        read_export(tmp_path)
