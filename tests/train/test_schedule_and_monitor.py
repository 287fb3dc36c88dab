"""The learning rate, and the alarms."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import TrainingError
from contrasent.train.monitor import CALM_STEPS, LASTING, Monitor
from contrasent.train.step import learning_rate


@given(st.integers(1, 500), st.floats(0, 0.99), st.floats(1e-6, 1))
def test_up_and_down(total, warmup, peak):
    rates = [learning_rate(s, total=total, peak=peak, warmup=warmup) for s in range(total)]
    rise = int(warmup * total)
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    assert rates[rise] == pytest.approx(peak)  # the peak is reached
    rising, falling = rates[: rise + 1], rates[rise:]
    for part, steps in ((rising, rise + 1), (falling, total - rise)):
        differences = [b - a for a, b in pairwise(part)]
        assert differences == pytest.approx(
            [(1 if part is rising else -1) * peak / steps] * len(differences), abs=1e-9 * peak
        )


def test_numbers_that_are_none():
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(
            TrainingError, match=r"step 7: contrast is not a finite number; .*1\.0e-03"
        ):
            Monitor().check(7, {"loss": 1.0, "contrast": value}, 1e-3)
    Monitor().check(7, {"loss": 1e30}, 1e-3)


def test_collapse():
    monitor = Monitor()
    near, far = {"loss": 1.0, "cosine_negative": 0.999}, {"loss": 1.0, "cosine_negative": 0.9}
    # It may begin there.
    for step in range(CALM_STEPS):
        monitor.check(step, near, 1e-3)
    # A while is not for ever.
    for step in range(CALM_STEPS, CALM_STEPS + LASTING - 1):
        monitor.check(step, near, 1e-3)
    monitor.check(200, far, 1e-3)
    assert monitor.high == 0
    for step in range(201, 201 + LASTING - 1):
        monitor.check(step, near, 1e-3)
    # It goes on counting after a resume.
    again = Monitor(high=monitor.high)
    with pytest.raises(
        TrainingError, match=r"collapsed, .* cosine of 0\.9990; the last checkpoint"
    ):
        again.check(230, near, 1e-3)
