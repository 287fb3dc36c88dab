"""Indexes that are small and searched as large ones are."""

import pytest

from contrasent.search import index, writer


@pytest.fixture
def codes_from(monkeypatch):
    """Binary codes from so many rows on, and how few of them are searched without codes."""

    def limit(rows, few=None):
        monkeypatch.setattr(writer, "CODED", rows)
        monkeypatch.setattr(index, "FEW", index.FEW if few is None else few)

    return limit
