"""The linear map that pairs teach over a model that stays as it is."""

import numpy as np
import torch

from contrasent.adapt import mapping
from contrasent.adapt.mapping import fit_map, mixture, toward_identity
from contrasent.adapt.pairs import Pair
from contrasent.metrics import normalize


def turned(random, count=400, size=12):
    """Queries and texts of one meaning each, in half of whose directions only noise stands."""
    meaning = random.normal(size=(count, size // 2))
    texts = np.concatenate([meaning, random.normal(size=(count, size // 2)) * 2], axis=1)
    queries = np.concatenate([meaning, random.normal(size=(count, size // 2)) * 2], axis=1)
    return queries.astype(np.float32), texts.astype(np.float32)


def found(queries, texts, matrix):
    best = (normalize(queries @ matrix) @ normalize(texts @ matrix).T).argmax(axis=1)
    return (best == np.arange(len(queries))).mean()


def test_it_learns_which_directions_carry_the_meaning(monkeypatch):
    monkeypatch.setattr(mapping, "EPOCHS", 100)
    monkeypatch.setattr(mapping, "LR", 0.03)
    random = np.random.default_rng(0)
    learnt = fit_map(*turned(random), list(range(400)), seed=1)
    queries, texts = turned(random)
    before = found(queries, texts, np.eye(12, dtype=np.float32))
    assert found(queries, texts, learnt) > before + 0.1
    again = fit_map(*turned(np.random.default_rng(0)), list(range(400)), seed=1)
    np.testing.assert_array_equal(learnt, again)


def test_a_step_is_one_of_adam_on_a_plain_loop_s_gradient(monkeypatch):
    monkeypatch.setattr(mapping, "EPOCHS", 1)
    random = np.random.default_rng(3)
    queries, texts = turned(random, count=6, size=4)
    documents = [0, 0, 1, 2, 3, 4]
    q, t = (torch.tensor(normalize(x), dtype=torch.float64) for x in (queries, texts))

    def loss(matrix):
        a, b = q @ matrix, t @ matrix
        total = torch.zeros((), dtype=torch.float64)
        for one, other in ((a, b), (b, a)):
            for i in range(6):
                scores = {
                    j: torch.dot(one[i], other[j]) / one[i].norm() / other[j].norm() / 0.05
                    for j in range(6)
                    if j == i or documents[j] != documents[i]
                }
                total = total - scores[i] + torch.logsumexp(torch.stack([*scores.values()]), 0)
        return total / 12

    matrix = torch.eye(4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(matrix), matrix)
    # The first step of Adam moves each number by the learning rate against the gradient's sign.
    expected = torch.eye(4) - mapping.LR * gradient.sign()
    learnt = fit_map(queries, texts, documents, seed=0)
    sure = gradient.abs() > 1e-3
    assert sure.sum() >= 8
    np.testing.assert_allclose(learnt[sure], expected[sure], atol=1e-6)


def test_shares_lie_on_the_line_to_the_identity():
    matrix = np.array([[2.0, 1.0], [0.0, 3.0]])
    np.testing.assert_array_equal(toward_identity(matrix, 0.0), np.eye(2))
    np.testing.assert_array_equal(toward_identity(matrix, 1.0), matrix)
    np.testing.assert_allclose(toward_identity(matrix, 0.25), [[1.25, 0.25], [0.0, 1.5]])


def test_a_mixture_takes_makers_in_turn_and_no_pair_twice():
    many = [Pair(f"m{n}", "text", n, "many") for n in range(1000)]
    few = [Pair(f"f{n}", "text", n, "few") for n in range(5)]
    chosen = mixture([*many, *few, *many], 900, 3)
    assert len(set(chosen)) == len(chosen) == 900
    assert [pair.maker for pair in chosen[:12]] == ["many", "few"] * 5 + ["many"] * 2
    assert chosen[::2] != mixture([*many, *few], 900, 4)[::2]
    assert (set(mixture(few, 12, 0)), mixture([], 12, 0)) == (set(few), [])
