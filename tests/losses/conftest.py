"""Losses that compare all rows are tested in one block of rows and in several."""

import pytest

from contrasent.losses import similarity


@pytest.fixture(scope="module", params=["whole", "in blocks"])
def logits_at_once(request):
    """Every test of a module that uses it runs with one block of rows and with blocks of a few."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in blocks":
            patch.setattr(similarity, "LOGITS", 24)
        yield
