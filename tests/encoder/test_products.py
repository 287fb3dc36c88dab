"""Which library multiplies: chosen by what the processor is, exact, and kept with a run."""

import json
import logging
from pathlib import Path

import pytest
import torch

from commands import invoke
from contrasent import fit, processes
from contrasent.encoder import products
from contrasent.encoder.products import ONEDNN, TORCH, VARIABLE
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


@pytest.mark.parametrize(("maker", "flags", "environment", "library"), [
    ("AuthenticAMD", WIDE, {}, ONEDNN), ("AuthenticAMD", {"avx2"}, {}, TORCH),
    ("GenuineIntel", WIDE, {}, TORCH),
    ("AuthenticAMD", WIDE | {"amx_bf16", "amx_tile"}, {}, TORCH),
    ("AuthenticAMD", WIDE, {VARIABLE: "torch"}, TORCH),
    ("GenuineIntel", WIDE, {VARIABLE: "onednn"}, ONEDNN), ("", set(), {}, TORCH),
])  # fmt: skip
def test_the_processor_decides_or_the_user(monkeypatch, maker, flags, environment, library):
    monkeypatch.setattr(products, "vendor", lambda: maker)
    monkeypatch.setattr(products, "instructions", lambda: flags)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert products.fastest() == library
    said = json.loads(invoke("doctor", "--json").stdout)["products"]
    assert said in ({TORCH, ONEDNN} if library == ONEDNN else {TORCH})  # exact here, or torch's
    shown = invoke("doctor").stdout
    assert f"{VARIABLE}={TORCH if said == ONEDNN else ONEDNN} changes it" in shown


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
        pytest.skip("oneDNN would round to bfloat16 on this processor")
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
        given |= {"base": bert, "evaluate": "none", "eval_size": 0}
        fit("simcse", sentences[:40], output_dir=place, **given)
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
    assert processes.instructions() == kept
