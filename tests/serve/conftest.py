"""A model, an index and a server for all tests of this room."""

import pytest
from serving import LINES, MINILM, running


@pytest.fixture(scope="session")
def encoder():
    from contrasent import Encoder

    return Encoder.load(MINILM, runtime="numpy")  # as `contrasent serve` opens it


@pytest.fixture(scope="session")
def index(encoder):
    from contrasent.search.index import Index

    return Index.build(
        encoder.encode, LINES, metadata=[{"line": n} for n in range(len(LINES))],
        model=encoder.identity, source=MINILM,
    )  # fmt: skip


@pytest.fixture(scope="session")
def app_of(encoder):
    """Make the application of the model, with an index or settings."""
    from contrasent.serve.app import create_app

    return lambda **options: create_app(encoder, MINILM, **options)


@pytest.fixture(scope="session")
def address(app_of, index):
    """The address of a server with an index."""
    with running(app_of(index=index)) as url:
        yield url
