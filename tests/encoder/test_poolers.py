"""Poolers against loops over rows, tokens and dimensions."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.heads import HEADS, make_head
from contrasent.encoder.poolers import Pooling
from contrasent.errors import ModelError, OptionError
from contrasent.model.numpy_model import NumpyModel, PackedRows
from contrasent.model.pooling import POOLERS, Maximum, averaging, layer_weights, modes
from contrasent.types import Tokens
from plain_loops import standardized

# By loops; the others need tokens or statistics: test_own_poolers.
PLAIN = [name for name, kind in POOLERS.items() if kind.mode]
CONFIG = SimpleNamespace(hidden_size=6, num_hidden_layers=4, vocab_size=50)


def by_loops(name, hidden, lengths):
    """The pooled vectors, one number at a time."""
    layers = {
        "cls": [-1], "mean": [-1], "max": [-1], "first_last": [1, -1], "embeddings_last": [0, -1],
        "last_two": [-2, -1], "last_token": [-1],
    }[name]  # fmt: skip
    out = []
    for row, length in enumerate(lengths):
        vector = []
        for d in range(hidden[0].shape[-1]):
            values = []
            for t in range(length):
                values.append(sum(float(hidden[k][row, t, d]) for k in layers) / len(layers))
            if name in ("cls", "last_token"):
                vector.append(values[0 if name == "cls" else -1])
            elif name == "max":
                vector.append(max(values))
            else:
                vector.append(sum(values) / length)
        out.append(vector)
    return out


@pytest.mark.parametrize("name", PLAIN)
def test_against_loops(name):
    torch.manual_seed(0)
    lengths = [5, 1, 3, 7]
    # Four layers beyond the embeddings, so that first, last and last but one are different ones.
    hidden = tuple(torch.randn(4, 7, 6, dtype=torch.float64) - 2 for _ in range(5))
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    pooler = Pooling(name, CONFIG, None)
    pooled = pooler(hidden, None, mask)
    assert pooled.numpy() == pytest.approx(np.array(by_loops(name, hidden, lengths)), abs=1e-12)
    # Padding is never looked at.
    for states in hidden:
        states[~mask] = 1e6
    assert torch.equal(pooler(hidden, None, mask), pooled)
    if name == "cls":
        return
    # On either side of the text.
    order = torch.argsort(mask.int(), dim=1, stable=True)
    left = tuple(states.take_along_dim(order[..., None], dim=1) for states in hidden)
    assert torch.allclose(pooler(left, None, mask.flip(1)), pooled)


TOKENIZER = SimpleNamespace(specials=SimpleNamespace(mask=4))


def check_in_torch_and_numpy(name):
    """Padding, the other rows and the library change no vector."""
    rng = np.random.default_rng(0)
    tokens = Tokens.from_rows([[*rng.integers(5, 50, n), 4, 7] for n in (3, 0, 1, 5)])
    lengths, width = tokens.lengths, int(tokens.lengths.max())
    states = [rng.standard_normal((len(tokens.ids), 6)).astype(np.float32) for _ in range(5)]
    ids, hidden = np.zeros((4, width), np.int64), np.full((5, 4, width, 6), 1e6, np.float32)
    mask = np.arange(width) < lengths[:, None]
    ids[mask], hidden[:, mask] = tokens.ids, states
    pooler = Pooling(name, CONFIG, TOKENIZER)
    pooler.fit([tokens])
    given = [torch.from_numpy(array) for array in (hidden, ids, mask)]
    found = pooler(tuple(given[0]), *given[1:]).detach().numpy()
    for row, length in enumerate(lengths):
        alone = [array[..., row : row + 1, :length] for array in given[1:]]
        (vector,) = pooler(tuple(given[0][:, row : row + 1, :length]), *alone)
        assert found[row] == pytest.approx(vector.detach().numpy(), abs=1e-6)
    kept = {key: tensor.numpy() for key, tensor in pooler.state_dict().items()}
    read = [states[layer] for layer in pooler.layers]
    packed = pooler.rule.pool(PackedRows(tokens), sum(read) / np.float32(len(read)), kept)
    assert packed.dtype == np.float32
    assert packed == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("name", POOLERS)
def test_each_pools_a_row_alike_in_torch_and_numpy(name):
    check_in_torch_and_numpy(name)


class Odd(Maximum):
    """The mean, in which odd tokens count twice, times a weight that is trained."""

    name = "odd"

    def initial(self, size, vocabulary):
        return {"weight": np.linspace(1, 2, size, dtype=np.float32)}

    def pool(self, rows, states, kept):
        return rows.mean(states, rows.real(1 + rows.ids % 2)) * kept["weight"]


def test_a_new_pooler_is_one_class(bert, tmp_path, monkeypatch):
    monkeypatch.setitem(POOLERS, "odd", Odd)
    assert modes()["max"] == "max"  # not the new one, which has its mode too
    check_in_torch_and_numpy("odd")
    encoder = TorchEncoder.load(bert, pooling="odd")
    encoder(encoder.tokenize(["a map"])[0]).sum().backward()
    assert encoder.pooler.weight.grad.abs().sum() > 0
    with torch.no_grad():
        encoder.pooler.weight *= 3
    encoder.save(tmp_path / "model")
    models = [model(tmp_path / "model") for model in (TorchEncoder.load, NumpyModel)]
    for model in models:
        assert (model.pooling, model.identity) == ("odd", encoder.identity)
        found = model.encode(["a map", "two blue lamps"])
        assert found == pytest.approx(encoder.encode(["a map", "two blue lamps"]), abs=1e-5)


@pytest.mark.parametrize("key", ["size", "rule", "load", "training", "a.b"])
def test_a_name_that_a_module_has_of_its_own_is_refused(monkeypatch, key):
    for dtype in (np.float32, np.int64):
        monkeypatch.setattr(Odd, "initial", lambda *_, of=dtype: {key: np.ones(6, of)})
        monkeypatch.setitem(POOLERS, "odd", Odd)
        with pytest.raises(ModelError, match=rf"^pooling 'odd' cannot keep '{key}' \("):
            Pooling("odd", CONFIG, TOKENIZER)


def test_each_has_its_row_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8")
    for name, kind in POOLERS.items():
        said = kind.__doc__.partition("\n")[0].removesuffix(".")
        assert f"| `{name}` | {said[0].lower()}{said[1:]} |\n" in page


def test_each_is_named_by_its_key():
    assert [kind.name for kind in POOLERS.values()] == list(POOLERS)
    assert {"cls", "mean", "idf"} <= set(POOLERS)
    assert all(kind.code for kind in POOLERS.values())


def test_layer_weights_pick_the_layers():
    assert layer_weights((1, -1), 4) == [0, 1, 0, 0, 1]
    assert layer_weights((0, -1), 4) == [1, 0, 0, 0, 1]
    assert layer_weights((-2, -1), 4) == [0, 0, 0, 1, 1]
    assert layer_weights((-1,), 4) is None
    assert averaging([0, 0, 0, 1, 1]) == "last_two" and averaging([0, 1, 1, 0, 1]) is None


def test_an_unknown_pooler_or_head_is_rejected_before_weights_are_read(bert, tmp_path):
    bare = shutil.copytree(bert, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(OptionError, match="did you mean 'last_two'"):
        TorchEncoder.load(bare, pooling="lasttwo")
    with pytest.raises(OptionError, match="head 'than': unknown; did you mean 'tanh'"):
        TorchEncoder.load(bare, pooling="cls", head="than")


def test_they_begin_as_stated():
    torch.manual_seed(0)
    assert make_head("none", 300) is None
    tanh = make_head("tanh", 300)
    assert tanh.linear.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert tanh.linear.bias.abs().max() == 0
    projector = make_head("batchnorm", 100)
    shapes = [tuple(p.shape) for p in projector.parameters()]
    assert shapes == [(200, 100), (200,), (200,), (100, 200)]
    assert projector[0].weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert len(HEADS) == 3
    with pytest.raises(OptionError, match=r"head 'tahn': unknown; did you mean 'tanh'\?"):
        make_head("tahn", 8)


def test_the_projector_against_loops():
    torch.manual_seed(1)
    projector = make_head("batchnorm", 3).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    first, second = projector[0].weight.tolist(), projector[3].weight.tolist()

    def linear(rows, weight):
        return [
            [sum(w * v for w, v in zip(line, row, strict=True)) for line in weight] for row in rows
        ]

    def normalized(rows):
        columns = [standardized(column) for column in zip(*rows, strict=True)]
        return [list(row) for row in zip(*columns, strict=True)]

    hidden = [[max(v, 0) for v in row] for row in normalized(linear(x.tolist(), first))]
    expected = normalized(linear(hidden, second))
    found = projector(x).tolist()
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-10)
