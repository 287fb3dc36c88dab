"""Two processes on gloo with half a batch each do what one does with the whole batch."""

import pytest
import torch
from made_batches import batch

from contrasent import parallel
from contrasent.engine.registry import find

STEPS = 3


def cases(masked, guide):
    generator = {"generator": masked, "temperature": 1.0}
    head = {"language_head": masked, "mask_ratio": 0.4}
    return {
        "simcse": {},
        "simcse batchnorm symmetric": {
            "projector": "batchnorm",
            "symmetric": True,
            "temperature": 1.0,
        },
        "simcse two encoders": {"encoders": 2},
        "simcse_supervised": {"alpha": 0.5},
        "esimcse": {"queue_size": 9, "rate": 0.6},
        "diffcse": generator,
        "diffcse mean_tokens": {**generator, "normalisation": "mean_tokens", "edits": "all"},
        "diffcse sum": {**generator, "normalisation": "sum", "generator_draw": "sample"},
        "diffcse corrective": {**generator, "task": "corrective", "language_head": masked},
        "simcse_plus_plus": {},
        "barlow_twins": {"artificial": 4},
        "dimension_wise": {},
        "simcse_noise": {"passes": 2},
        "simcse_copies": {"copy_filler": masked},
        "masked_lm": head,
        "simcse_supervised+esimcse+masked_lm": {**head, "queue_size": 9},
        "esimcse+simcse_plus_plus": {"queue_size": 9},
        "diffcse+simcse_plus_plus": generator,
        "cosent": {"temperature": 1.0},
        "angle": {"temperature": 1.0},
        "cosine_regression": {"highest_score": 5.0},
        "gist": {"guide": guide, "temperature": 0.2},
        "ranking_distillation": {"guide": guide, "temperature": 1.0},
        "matryoshka+simcse_supervised": {"dimensions": "8,16", "debias": 0.1, "temperature": 1.0},
        "simcse_supervised masked": {"duplicates": "mask", "hardness": 0.3, "temperature": 1.0},
    }


def train(folder, masked, guide, rank, world):
    """Losses of each step and all weights at the end, by case."""
    from contrasent.model.encoder import Encoder

    found = {}
    for case, given in cases(masked, guide).items():
        torch.manual_seed(3)
        encoder = Encoder.load(
            folder, pooler="cls", dropout=0.0, attention_dropout=0.0, max_tokens=24
        )
        objective = find(case.split(" ")[0])(encoder, **given).train()
        module = parallel.wrap(objective)
        trained = [p for p in objective.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.05)
        losses = []
        for step in range(STEPS):
            torch.manual_seed(step)
            half = 6 // world
            part = slice(rank * half, (rank + 1) * half)
            loss = objective.loss(module(batch(objective, step, part)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            objective.after_step()
            losses.append(float(parallel.average(loss)))
        found[case] = (losses, {k: v.clone() for k, v in objective.state_dict().items()})
    return found


def work(rank, store, folder, masked, guide, out):
    """One of the two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    found = train(folder, masked, guide, rank, 2)
    torch.save(found, f"{out}.{rank}")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tiny, masked, guide, tmp_path_factory):
    folder, model, guide = str(tiny["bert"]), str(masked["bert"]), str(guide)
    home = tmp_path_factory.mktemp("two")
    torch.multiprocessing.spawn(
        work, (home / "store", folder, model, guide, home / "out"), nprocs=2
    )
    both = [torch.load(home / f"out.{rank}", weights_only=True) for rank in (0, 1)]
    return train(folder, model, guide, 0, 1), *both


@pytest.mark.parametrize("case", list(cases("", "")))
def test_losses_and_weights_are_those_of_one_process(results, case):
    (losses, weights), *others = (found[case] for found in results)
    for two_losses, two_weights in others:
        assert two_losses == pytest.approx(losses, rel=2e-4, abs=1e-6)
        assert two_weights.keys() == weights.keys()
        for key, value in weights.items():
            assert torch.allclose(two_weights[key], value, rtol=2e-3, atol=2e-5), key
    assert losses[0] != losses[-1]


def test_both_processes_hold_the_same_state(results):
    _, one, two = results
    assert one.keys() == two.keys()
    for case in one:
        for key, value in one[case][1].items():
            assert torch.equal(value, two[case][1][key]), (case, key)
