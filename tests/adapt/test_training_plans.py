"""Which trainings are tried: as many plans as the time allows, masked words among them."""

import json
from types import SimpleNamespace

import pytest

from contrasent.adapt.candidates import Candidate, Trial
from contrasent.adapt.pairs import Pair
from contrasent.adapt.selection import FEWEST_PAIRS, Selection
from contrasent.adapt.training import BATCH, PLANS, train
from contrasent.adapt.work import Work
from contrasent.model.encoder import Encoder


class Tried:
    """Trials whose measuring takes no time."""

    def __init__(self, folder):
        self.ground = SimpleNamespace(seed=0, base_folder=folder)
        self.work = Work(folder, {}, resume=False)
        self.tried = [Trial(Candidate("base"), 0.0)]

    def try_one(self, candidate, cost=0.0, *, values_of=None):
        self.tried.append(Trial(candidate, float(len(self.tried))))
        return self.tried[-1]

    def best(self, *, dense=False):
        return self.tried[0]


@pytest.mark.parametrize(
    ("steps", "plans"),
    [(100, ["all pairs", "titles and sentences", "all pairs and masked words"]), (80, 2), (40, 1)],
)
def test_plans_are_tried_as_far_as_each_gets_steps_worth_measuring(
    tmp_path, monkeypatch, steps, plans
):
    trained = []
    trials = Tried(tmp_path / "work")
    chosen = Selection(trials, deadline=1e9, say=lambda text: None)
    # A round's steps are those that the time has, of which the first round takes a part.
    monkeypatch.setattr(
        chosen,
        "_steps",
        lambda n, count, look, pair: s if (s := int(steps * 0.3 / count)) >= 10 else 0,
    )
    monkeypatch.setattr(chosen, "_train", lambda model, n, plan, *_: trained.append((n, plan.name)))
    pairs = [Pair("red", "tea", n, "title") for n in range(FEWEST_PAIRS)]
    chosen.train(pairs, look=0.0, pair=0.0)
    first = [name for number, name in trained if number == 0]
    names = [plan.name for plan in PLANS]
    assert first == (plans if isinstance(plans, list) else names[:plans])
    # Scores rise with every trial: the last plan is the best, and goes on alone.
    assert [name for number, name in trained if number == 1] == [first[-1]]


def test_masked_words_are_guessed_beside_the_contrast(tmp_path, bert, sentences):
    base = tmp_path / "base"
    Encoder.load(bert, pooler="mean").save(base)
    rows = [(sentences[n], sentences[n + 1]) for n in range(BATCH)]
    found = {}
    for plan in (PLANS[0], PLANS[2]):
        folder = tmp_path / plan.name.replace(" ", "-")
        train(base, rows, plan, seed=0, folder=folder)
        line = json.loads((folder / "run" / "log.jsonl").read_text().splitlines()[0])
        found[plan.name] = set(line) & {"contrast", "masked_lm"}, Encoder.load(folder)
    (plain, without), (masked, model) = found.values()
    assert "masked_lm" not in plain
    assert "masked_lm" in masked
    assert model.state_dict().keys() == without.state_dict().keys()  # the new layer is dropped
    assert any(
        not a.equal(b)
        for a, b in zip(model.state_dict().values(), without.state_dict().values(), strict=True)
    )
