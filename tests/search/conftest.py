"""Indexes that are small and searched as large ones are."""

import pytest

from contrasent.search.index import Index
from contrasent.search.writer import Writer


@pytest.fixture
def make_codes():
    """Gives the index in a folder binary codes and opens it as one that is searched by them."""

    def make(folder, exact_up_to=0):
        with Writer(folder) as writer:
            writer.coded_from = 1
        index = Index.open(folder)
        index.exact_up_to = exact_up_to
        return index

    return make
