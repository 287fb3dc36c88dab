"""Shared by the tests of training."""

import pytest

from contrasent.train.run import RunFolder


@pytest.fixture
def kept_steps(monkeypatch):
    """Finished runs that keep their checkpoint, base, best and last."""
    monkeypatch.setattr(RunFolder, "_drop_steps", lambda *given: None)
