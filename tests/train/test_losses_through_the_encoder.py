"""SimCSE with and without labels in float64, without dropout: loops, and finite differences."""

import math

import numpy as np
import pytest
import torch

from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings
from contrasent.types import Batch

ROWS = 5


def learner(bert, name, **parameters):
    made = prepare(bert, name, parameters, Settings(dropout=0.0, pooler="mean", seed=2)).double()
    return made.train()


def batch(objective, sentences, columns):
    texts = [sentences[c * 100 : c * 100 + ROWS] for c in range(columns)]
    return Batch(
        tuple(objective.encoder.tokenise(column)[0] for column in texts), np.arange(ROWS), 0
    ), texts


def by_itself(objective, text):
    """A sentence alone through encoder and projector, as a list of numbers."""
    with torch.no_grad():
        vector = objective.encoder(objective.encoder.tokenise([text])[0])
        if objective.projector is not None:
            vector = objective.projector(vector)
    return vector[0].tolist()


def likeness(kind):
    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    def cosine(a, b):
        return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))

    return {"dot": dot, "cosine": cosine}[kind]


def info_nce(columns, *, tau=0.05, kind="cosine", alpha=1.0, symmetric=False):
    """Equations 4, 5 and 8, a row at a time."""
    sim = likeness(kind)
    anchors, positives, *hard = columns
    total = 0.0
    for i in range(ROWS):
        below = 0.0
        for j in range(ROWS):
            below += math.exp(sim(anchors[i], positives[j]) / tau)
            for negatives in hard:
                weight = alpha if i == j else 1.0
                below += weight * math.exp(sim(anchors[i], negatives[j]) / tau)
        forward = -math.log(math.exp(sim(anchors[i], positives[i]) / tau) / below)
        backward = -math.log(
            math.exp(sim(positives[i], anchors[i]) / tau)
            / sum(math.exp(sim(positives[i], anchors[j]) / tau) for j in range(ROWS))
        )
        total += (forward + backward) / 2 if symmetric else forward
    return total / ROWS


SENTENCES = {
    "plain": {},
    "tau": {"temperature": 0.3},
    "dot": {"similarity": "dot", "temperature": 8.0},
    "symmetric": {"symmetric": True, "projector": "none"},
}
LABELLED = {
    "pairs": (2, {}),
    "one hard negative": (3, {}),
    "alpha": (3, {"alpha": 3.0}),
    "alpha 0": (3, {"alpha": 0.0, "temperature": 0.2}),
    "three hard negatives": (5, {"alpha": 0.5}),
    "symmetric": (4, {"alpha": 2.0, "symmetric": True}),
    "dot": (4, {"alpha": 2.0, "similarity": "dot", "temperature": 8.0}),
}
NAMES = {"temperature": "tau", "similarity": "kind", "alpha": "alpha", "symmetric": "symmetric"}


def told(parameters):
    return {NAMES[key]: value for key, value in parameters.items() if key in NAMES}


@pytest.mark.parametrize("case", SENTENCES)
def test_simcse(bert, sentences, case):
    """Without dropout the two views are equal; two different columns show which is which."""
    parameters = SENTENCES[case]
    objective = learner(bert, "simcse", **parameters)
    made, texts = batch(objective, sentences, 2)
    vectors = [[by_itself(objective, text) for text in column] for column in texts]
    found = objective(made)["contrast"].item()
    assert found == pytest.approx(info_nce(vectors, **told(parameters)), rel=1e-9)
    same = Batch((made.columns[0],) * 2, made.rows, 0)
    expected = info_nce([vectors[0]] * 2, **told(parameters))
    assert objective(same)["contrast"].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("case", LABELLED)
def test_simcse_supervised(bert, sentences, case):
    columns, parameters = LABELLED[case]
    objective = learner(bert, "simcse_supervised", **parameters)
    made, texts = batch(objective, sentences, columns)
    vectors = [[by_itself(objective, text) for text in column] for column in texts]
    terms = objective(made)
    expected = info_nce(vectors, **told(parameters))
    assert terms["contrast"].item() == pytest.approx(expected, rel=1e-9)
    assert objective.loss(terms).item() == pytest.approx(expected, rel=1e-9)
    # What is watched: cosines of the pairs, and of all others.
    cosine = likeness("cosine")
    table = [[cosine(a, p) for p in vectors[1]] for a in vectors[0]]
    pairs = [table[i][i] for i in range(ROWS)]
    others = [table[i][j] for i in range(ROWS) for j in range(ROWS) if i != j]
    assert terms["cosine_positive"].item() == pytest.approx(sum(pairs) / ROWS, abs=1e-9)
    assert terms["cosine_negative"].item() == pytest.approx(sum(others) / len(others), abs=1e-9)


def test_the_gradient_is_the_slope(bert, sentences):
    objective = learner(bert, "simcse_supervised", alpha=2.0, symmetric=True, temperature=0.2)
    made, _ = batch(objective, sentences, 4)
    objective(made)["contrast"].backward()
    random = np.random.default_rng(0)
    parameters = [p for p in objective.parameters() if p.grad is not None]
    for parameter in (parameters[i] for i in random.choice(len(parameters), 12, replace=False)):
        direction = torch.from_numpy(random.standard_normal(parameter.shape))
        slope, step = (parameter.grad * direction).sum().item(), 1e-5
        values = []
        with torch.no_grad():
            for sign in (1, -1):
                parameter += sign * step * direction
                values.append(objective(made)["contrast"].item())
                parameter -= sign * step * direction
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-8)
