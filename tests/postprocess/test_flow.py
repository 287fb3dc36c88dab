"""The flow: its log-determinant is the one that autograd finds, and it learns."""

import numpy as np
import pytest

from contrasent import metrics
from contrasent.encoder.flow import Flow, FlowSettings, fit
from contrasent.errors import DataError, OptionError

torch = pytest.importorskip("torch")


def cloud(n=2000, d=12, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) * np.linspace(0.3, 3, d) + 4
    # Half of the channels follow from the other half, along a curve.
    half = d // 2
    x[:, half : 2 * half] = 2 * (x[:, :half] - 4) ** 2 + 0.3 * random.normal(size=(n, half))
    return x.astype(np.float32)


def shaken(dimension, settings):
    """A flow whose every parameter is away from its first value."""
    torch.manual_seed(3)
    flow = Flow(dimension, settings)
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return flow


@pytest.mark.parametrize(
    ("dimension", "levels", "steps"), [(12, 3, 3), (9, 2, 1), (8, 1, 2), (15, 3, 2)]
)
def test_the_volume_is_autograds(dimension, levels, steps):
    flow = shaken(dimension, FlowSettings(levels=levels, steps=steps, hidden=5)).double()
    x = torch.from_numpy(cloud(4, dimension)).double()
    z, volume = flow(x)
    assert z.shape == x.shape
    for row in x:
        jacobian = torch.autograd.functional.jacobian(lambda v: flow(v[None])[0][0], row)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], volume, atol=1e-9, rtol=0)


def test_the_loss_is_the_density_of_the_normal_in_bits():
    flow = shaken(6, FlowSettings(levels=1, steps=1)).double()
    x = torch.from_numpy(cloud(5, 6)).double()
    z, volume = flow(x)
    total = 0.0
    for row in z.detach().numpy():
        density = float(volume.detach())
        for value in row:
            density += -0.5 * value * value - 0.5 * np.log(2 * np.pi)
        total += -density / np.log(2) / 6
    assert float(flow.loss(x).detach()) == pytest.approx(total / 5)


def test_the_first_batch_makes_every_channel_standard():
    x = torch.from_numpy(cloud())
    flow = Flow(12)
    with torch.no_grad():
        flow(x, start=True)
    z, _ = flow(x)
    torch.testing.assert_close(z.mean(0), torch.zeros(12), atol=1e-3, rtol=0)
    torch.testing.assert_close(z.std(0), torch.ones(12), atol=1e-2, rtol=0)


def test_likelihood_rises_and_so_does_uniformity():
    vectors = cloud()
    losses = []
    settings = FlowSettings(num_train_epochs=6, seed=1)
    flow = fit(vectors, settings, report=lambda step, loss: losses.append(loss))
    assert len(losses) == 6 * (2000 // 64)
    assert np.mean(losses[-30:]) < np.mean(losses[:30]) - 0.1
    codes = flow.transform(vectors)
    assert codes.dtype == np.float32
    assert metrics.uniformity(codes) < metrics.uniformity(vectors) - 0.5
    before = torch.get_rng_state()
    one, two = (fit(vectors[:256], FlowSettings(seed=1)).transform(vectors) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)  # the caller's
    np.testing.assert_array_equal(one, two)


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(DataError, match="do not fill a batch of 64"):
        fit(cloud(30))
    with pytest.raises(DataError, match="NaN"):
        fit(cloud() * np.nan)
    with pytest.raises(OptionError, match="cannot halve 4 dimensions"):
        Flow(4, FlowSettings(levels=3))
