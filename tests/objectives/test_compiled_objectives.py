"""Every objective with compiled backbones: the numbers and gradients of the plain way.

The backend only traces; code for this machine is the compiler's business.
"""

import pytest
import torch

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.registry import find
from contrasent.train.prepare import configure
from contrasent.train.settings import Settings

# Torch looks at .grad of every input while it traces, and hides its own warning about it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]
ALL = "simcse simcse_plus_plus masked_lm promptbert matryoshka+simcse_supervised esimcse+diffcse"


@pytest.fixture
def compile_with(monkeypatch):
    """Compile an objective's encoders; returns the list that every traced graph enters."""
    graphs, compiled = [], torch.nn.Module.compile

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def traced(module, *, dynamic, mode):
        compiled(module, backend=backend, dynamic=dynamic)

    def configured(objective):
        torch._dynamo.reset()
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.Module, "compile", traced)
            configure(objective, Settings(compile=True))
        return graphs

    yield configured
    torch._dynamo.reset()


def made(name, kind, load, examples, **more):
    given = {}
    for part in name.split("+"):
        given |= examples(kind)[part]
    torch.manual_seed(3)
    objective = find(name)(load(kind, dropout=0.0), **(given | more)).train()
    for encoder in objective.modules():
        if isinstance(encoder, TorchEncoder):
            encoder.packed, encoder.bucketed = False, True
    return objective


def two_steps(objective, batches):
    """Terms and all gradients; of a second step if there is a queue, which then has rows."""
    torch.manual_seed(8)
    if objective.queue is not None:
        with torch.no_grad():
            objective(batches(objective, 0))
        objective.after_step()
    terms = objective(batches(objective, 1))
    objective.loss(terms).backward()
    return terms, {n: p.grad for n, p in objective.named_parameters()}


@pytest.mark.parametrize("name", ALL.split())
def test_compiled_is_plain(name, load, examples, batches, compile_with):
    more = {"difference_weight": 1.0} if "diffcse" in name else {}
    terms, gradients = two_steps(made(name, "bert", load, examples, **more), batches)
    objective = made(name, "bert", load, examples, **more)
    graphs = compile_with(objective)
    found, grads = two_steps(objective, batches)
    assert graphs
    assert found.keys() == terms.keys()
    for key, value in terms.items():
        assert found[key].item() == pytest.approx(value.item(), rel=1e-4, abs=1e-5), key
    assert grads.keys() == gradients.keys()
    assert sum(g is not None for g in gradients.values()) > 30
    for key, gradient in gradients.items():
        assert (gradient is None) == (grads[key] is None), key
        if gradient is not None:
            assert torch.allclose(grads[key], gradient, rtol=1e-3, atol=1e-5), key


@pytest.mark.parametrize("kind", ["distilbert", "electra", "modernbert"])
def test_a_compiled_discriminator_reads_its_condition(kind, load, examples, batches, compile_with):
    """The encoder is compiled first: their forward is one function, whose code is looked up."""
    objective = made("diffcse", kind, load, examples)
    plain = made("diffcse", kind, load, examples)
    compile_with(objective)
    tokens = batches(objective).columns[0]
    torch.manual_seed(0)
    condition = torch.randn(len(tokens), 32, requires_grad=True)
    results = []
    for one in (plain, objective):
        one.encoder(tokens)
        reader = one.terms["difference"].discriminator
        hidden, _ = reader(tokens, condition)
        other, _ = reader(tokens, condition.detach() + 1)
        (slope,) = torch.autograd.grad(hidden.sin().sum(), condition)
        assert (other - hidden).abs().max() > 0.1
        assert slope.abs().max() > 0.01
        results.append((hidden, other, slope))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, atol=1e-4)
