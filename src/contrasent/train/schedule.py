"""The learning rate: a pure function of the step."""


def learning_rate(step: int, *, total: int, peak: float, warmup: float) -> float:
    """Linear rise over the warm-up, then linear decay to zero after the last step.

    Args:
        step: from 0.
        total: steps of the run.
        peak: the highest rate.
        warmup: share of the steps over which the rate rises.
    """
    rise = int(warmup * total)
    if step < rise:
        return peak * (step + 1) / (rise + 1)
    return peak * (total - step) / (total - rise)
