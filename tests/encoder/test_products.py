"""Which library multiplies: chosen by what the processor is, exact, and kept with a run."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import invoke
from contrasent import fit, processes
from contrasent.encoder import products
from contrasent.encoder.products import ONEDNN, TORCH, VARIABLE, Widened, in_batches
from contrasent.errors import OptionError

WIDE = {"avx2", "avx512f", "avx512_bf16"}


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """The choice of the process, made anew in the test and put back."""
    before = products.used()
    for name in (VARIABLE, "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    products.fastest.cache_clear()
    products._used.clear()
    yield
    monkeypatch.undo()
    products.fastest.cache_clear()
    products.use(before)


@pytest.mark.parametrize(
    ("maker", "flags", "environment", "library"),
    [
        ("AuthenticAMD", WIDE, {}, ONEDNN),
        ("AuthenticAMD", {"avx2"}, {}, TORCH),
        ("GenuineIntel", WIDE, {}, TORCH),
        ("AuthenticAMD", WIDE | {"amx_bf16", "amx_tile"}, {}, TORCH),
        ("AuthenticAMD", WIDE, {VARIABLE: "torch"}, TORCH),
        ("GenuineIntel", WIDE, {VARIABLE: "onednn"}, ONEDNN),
        ("AuthenticAMD", {"avx2"}, {VARIABLE: "onednn"}, ONEDNN),
        ("", set(), {}, TORCH),
    ],
)
def test_the_processor_decides_or_the_user(monkeypatch, maker, flags, environment, library):
    monkeypatch.setattr(products, "vendor", lambda: maker)
    monkeypatch.setattr(products, "instructions", lambda: flags)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert products.fastest() == library
    said = json.loads(invoke("doctor", "--json").stdout)["products"]
    possible = "avx512f" in flags or not flags
    # Exact here, or torch's.
    assert said in ({TORCH, ONEDNN} if library == ONEDNN and possible else {TORCH})
    shown = invoke("doctor").stdout
    assert (f"{VARIABLE}={TORCH if said == ONEDNN else ONEDNN} changes it" in shown) == possible


def test_an_unknown_library_is_refused_by_name(monkeypatch):
    monkeypatch.setenv(VARIABLE, "onednm")
    with pytest.raises(OptionError, match=f"{VARIABLE}.*did you mean 'onednn'"):
        products.used()


def test_what_is_not_exact_is_not_used(monkeypatch):
    monkeypatch.setattr(products, "_is_exact", lambda: False)
    assert products.use(ONEDNN) == products.used() == TORCH


@pytest.mark.parametrize("library", [TORCH, ONEDNN])
def test_products_and_gradients_are_those_of_float64(library):
    if products.use(library) != library:
        pytest.skip("oneDNN does not multiply float32, or not exactly, on this processor")
    torch.manual_seed(1)
    x, w, b = torch.randn(70, 96), torch.randn(80, 96), torch.randn(80)

    def results(x, w, b):
        x, w, b = (part.clone().requires_grad_() for part in (x, w, b))
        y = torch.nn.functional.linear(x, w, b)
        z = torch.addmm(y, x, w.t(), beta=0.5, alpha=-2)
        into = torch.empty_like(z)
        torch.mm(x.detach(), w.detach().t(), out=into)
        squares = torch.bmm(z.view(2, 35, 80), z.view(2, 35, 80).mT)
        (squares.sin().sum() + (y * into).mean()).backward()
        return [y, z, into, x.grad, w.grad, b.grad]

    few = 1e-5  # of the largest; a rounding to bfloat16 would be 4e-3
    smooth = [x / 40, w / 40, b / 40]
    for found, exact in zip(
        results(*smooth), results(*(part.double() for part in smooth)), strict=True
    ):
        assert (found - exact).abs().max() < few * exact.abs().max()
    for special in (torch.nan, torch.inf):
        x[3, 5] = special
        y = torch.nn.functional.linear(x, w, b)
        assert not y[3].isfinite().any()
        assert y[:3].isfinite().all() and y[4:].isfinite().all()


def test_a_run_goes_on_with_the_library_that_it_began_with(bert, sentences, tmp_path, caplog):
    def train(place, **given):
        given |= {"max_steps": 4, "batch_size": 8, "save_steps": 2, "learning_rate": 1e-3}
        given |= {"eval_size": 0, "evaluate": "none"}
        fit("simcse", sentences[:40], output_dir=place, base=bert, **given)
        return json.loads((place / "run" / "settings.json").read_text())["products"]

    def stop(step, values):
        if step == 3:
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "contrasent.train.fit"):
        for library in (TORCH, ONEDNN):
            begun = products.use(library)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / library, on_step=stop)
            products.use(ONEDNN if library == TORCH else TORCH)
            assert train(tmp_path / library, resume=True) == begun
            assert products.used() == begun
        assert "last digits" not in caplog.text
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(products, "_is_exact", lambda: False)
            settings = tmp_path / ONEDNN / "run" / "settings.json"
            (tmp_path / ONEDNN / "run" / "result.json").unlink()
            stored = json.loads(settings.read_text()) | {"products": ONEDNN}
            settings.write_text(json.dumps(stored))
            train(tmp_path / ONEDNN, resume=True)
        assert "matrix products now use torch, not onednn: the last digits" in caplog.text


@pytest.mark.parametrize("most", ["", "AVX512_CORE", "AVX2", "sse41"])
def test_instructions_are_those_that_onednn_may_use(monkeypatch, most):
    text = "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_tile\n"
    monkeypatch.setattr(Path, "read_text", lambda *_: text)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", most or "ALL")
    every = {"fpu", "avx2", "avx512f", "avx512_bf16", "amx_tile"}
    kept = every if "AVX512" in (most or "AVX512") else {"fpu", "avx2"}
    assert processes.instructions.__wrapped__() == kept


def bfloat(x):
    """Numbers as bfloat16 holds them: a float32 cut to 16 bits, to nearest, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    return ((bits + 0x7FFF + odd) & 0xFFFF0000).view(np.float32).astype(np.float64)


def close(found, exact, parts):
    """Whether bfloat16 numbers are an exact sum's, rounded once, or twice where the sum was."""
    # Half a place of 8 bits, and what a float32 sum of so many parts may have lost before.
    lost = 2.0**-8 * np.abs(exact) + 1e-5 * parts
    return bool((np.abs(found.detach().double().numpy() - exact) <= lost).all())


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**31))
def test_widened_products_round_where_bfloat16_does(rows, inner, columns, seed):
    random = torch.Generator().manual_seed(seed)
    x, w, b, g = (
        torch.randn(shape, generator=random).requires_grad_()
        for shape in ((rows, inner), (columns, inner), (columns,), (rows, columns))
    )
    with torch.autocast("cpu", torch.bfloat16), Widened():
        y = torch.nn.functional.linear(x, w, b)
    assert y.dtype == torch.bfloat16
    y.backward(g.bfloat16())
    one, two, bias, grad = (bfloat(part.detach().numpy()) for part in (x, w, b, g))
    exact, by_x, by_w = np.zeros((rows, columns)), np.zeros(x.shape), np.zeros(w.shape)
    for i in range(rows):
        for j in range(columns):
            exact[i, j] = bias[j]
            for k in range(inner):
                exact[i, j] += one[i, k] * two[j, k]
                by_x[i, k] += grad[i, j] * two[j, k]
                by_w[j, k] += grad[i, j] * one[i, k]
    largest = max(np.abs(part).max() for part in (one, two, grad, bias)) ** 2
    assert close(y, exact, inner * largest)
    assert close(x.grad, by_x, columns * largest)
    assert close(w.grad, by_w, rows * largest)
    assert close(b.grad, grad.sum(0), rows * largest)


def test_widened_products_of_attention_and_of_full_precision(monkeypatch):
    random = torch.Generator().manual_seed(2)
    one, two = (torch.randn(3, 5, 7, generator=random).bfloat16() for _ in range(2))
    out = torch.full((3, 5, 5), torch.nan).bfloat16()
    monkeypatch.setattr(products, "instructions", lambda: {"avx2"})
    used = in_batches(one)(one, two.mT, 0.25, out)
    assert used is out
    exact = 0.25 * np.einsum("bik,bjk->bij", one.double().numpy(), two.double().numpy())
    operands, rounded = [], products._rounded
    monkeypatch.setattr(products, "_rounded", lambda value: operands.append(1) or rounded(value))
    with Widened():
        assert close(torch.bmm(one, two.mT), 4 * exact, 28)
        assert close(torch.addmm(one[0, 0, :5], one[0], two[0].mT, beta=0), 4 * exact[0], 28)
        assert len(operands) >= 2 + 3
        times = one @ two.mT
        full = one.float() @ two.mT.float()
    assert close(out, exact, 7)
    assert close(times, 4 * exact, 28)
    assert times.dtype == torch.bfloat16
    with Widened(), torch.autocast("cpu", torch.bfloat16):
        double = torch.nn.functional.linear(input=one.double(), weight=two[0].double())
    assert torch.equal(double, one.double() @ two[0].double().T)
    assert full.dtype == torch.float32
    assert torch.equal(full, one.float() @ two.mT.float())


def test_bfloat16_is_widened_where_torch_has_no_fast_kernel(monkeypatch):
    for flags in ({"avx2"}, {"avx2", "avx512f"}, WIDE, set(), {"asimd"}):
        monkeypatch.setattr(products, "instructions", lambda flags=flags: flags)
        assert products.widens() == (flags == {"avx2"})


def test_a_step_in_bf16_is_the_same_widened(monkeypatch, tmp_path, tiny):
    texts = [f"the {n} cat sat on mat number {n % 7}" for n in range(32)]
    rounded, enter, calls = products._rounded, Widened.__enter__, []
    monkeypatch.setattr(products, "_rounded", lambda value: calls.append(1) or rounded(value))

    def losses(name, flags, precision="bf16"):
        monkeypatch.setattr(products, "instructions", lambda: flags)
        seen = []
        settings = {"max_steps": 3, "batch_size": 8, "precision": precision, "pooling": "mean"}
        given = {"output_dir": tmp_path / name, "evaluate": "none", "keep": "last"}
        given["on_step"] = lambda step, numbers: seen.append(numbers["loss"])
        fit("simcse", texts, settings, base=tiny["bert"], **given)
        return seen

    entered = []
    monkeypatch.setattr(Widened, "__enter__", lambda self: entered.append(1) or enter(self))
    own = losses("own", WIDE)
    losses("full", {"avx2"}, "fp32")
    assert not calls and not entered
    wide = losses("wide", {"avx2"})
    assert calls
    assert wide == pytest.approx(own, rel=0.02)
