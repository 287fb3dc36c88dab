"""A model, an index and a server for all tests of this room."""

import pytest
from serving import LINES, MINILM, running


@pytest.fixture(scope="session")
def encoder():
    from contrasent.encoder.encoder import TorchEncoder

    return TorchEncoder.load(MINILM)


@pytest.fixture(scope="session")
def model(encoder):
    from contrasent.serve.run import served

    return served(encoder, MINILM)


@pytest.fixture(scope="session")
def index(encoder):
    from contrasent.search.index import Index

    return Index.build(
        encoder.encode, LINES, metadata=[{"line": n} for n in range(len(LINES))],
        model=encoder.identity, source=MINILM,
    )  # fmt: skip


@pytest.fixture(scope="session")
def address(model, index):
    """The address of a server with an index."""
    from contrasent.serve.app import create_app

    with running(create_app(model, index=index)) as url:
        yield url
