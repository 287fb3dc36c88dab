"""Two processes on gloo with half a batch each do what one does with the whole batch."""

import pytest

from contrasent.train.method_checks import Trial, check_two_processes

pytestmark = pytest.mark.slow


def cases(masked, guide):
    generator = {"generator": masked, "temperature": 1.0}
    head = {"language_head": masked, "mask_ratio": 0.4}
    return {
        "simcse": {}, "simcse cached": {}, "simcse batchnorm": {"temperature": 1.0},
        "esimcse batchnorm": {"queue_size": 9, "temperature": 1.0},
        "simcse symmetric": {"projector": "batchnorm", "symmetric": True, "temperature": 1.0},
        "simcse two encoders": {"encoders": 2}, "simcse_supervised": {"alpha": 0.5},
        "esimcse": {"queue_size": 9, "rate": 0.6}, "diffcse": generator,
        "diffcse mean_tokens": {**generator, "normalization": "mean_tokens", "edits": "all"},
        "diffcse sum": {**generator, "normalization": "sum", "generator_draw": "sample"},
        "diffcse permuted": {
            **generator, "condition_vector": "permuted", "discriminator_warmup_steps": 1,
            "discriminator_learning_rate": 1e-2,
        },
        "diffcse corrective": {**generator, "task": "corrective", "language_head": masked},
        "simcse_plus_plus": {}, "barlow_twins": {"artificial": 4}, "dimension_wise": {},
        "simcse_noise": {"passes": 2}, "simcse_copies": {"copy_filler": masked}, "masked_lm": head,
        "simcse_supervised+esimcse+masked_lm": {**head, "queue_size": 9},
        "esimcse+simcse_plus_plus": {"queue_size": 9}, "diffcse+simcse_plus_plus": generator,
        "promptbert": {"template": "a [X] is [MASK].", "positive_template": "[X]? [MASK]"},
        "cosent": {"temperature": 1.0}, "angle": {"temperature": 1.0},
        "cosine_regression": {"highest_score": 5.0}, "gist": {"guide": guide, "temperature": 0.2},
        "ranking_distillation": {"guide": guide, "temperature": 1.0},
        "matryoshka+simcse_supervised": {"dimensions": "8,16", "debias": 0.1, "temperature": 1.0},
        "simcse_supervised sigmoid": {"loss": "sigmoid", "bias": -1.0, "temperature": 1.0},
        "simcse decoupled": {"loss": "decoupled", "temperature": 1.0},
        "simcse_supervised masked": {"duplicates": "mask", "hardness": 0.3, "temperature": 1.0},
    }  # fmt: skip


@pytest.fixture(scope="module")
def findings(masked, guide):
    base = masked["bert"]
    given = cases(str(base), str(guide))
    trials = []
    for case, values in given.items():
        method, *how = case.split(" ")
        head = "batchnorm" if "batchnorm" in how else None
        trials.append(Trial(method, values, base, cached_rows=2 * ("cached" in how), head=head))
    return dict(zip(given, check_two_processes(trials), strict=True))


@pytest.mark.parametrize("case", list(cases("", "")))
def test_losses_and_weights_are_those_of_one_process(findings, case):
    assert findings[case].passed, findings[case].detail
