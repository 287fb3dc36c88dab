"""Which of the queries that can be made count."""

from types import SimpleNamespace

import numpy as np
import pytest

from contrasent.adapt.queries import Queries
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN
from contrasent.documents.passages import Passage


@pytest.fixture(scope="module")
def source():
    """Sixty documents in three parts; those to train on have questions besides."""
    parts = np.repeat(np.array([TRAIN, SELECT, SEALED], dtype=np.int8), 20)
    passages = []
    for number, part in enumerate(parts):
        first = "Does the old pump need oil?" if part == TRAIN else "The old pump needs new oil."
        rest = f"Its wheel number {number} turns slowly. Nobody has painted the gate for years."
        passages.append(Passage(f"{number}#0", number, "", (), 0, f"{first} {rest}", ""))
    texts, documents = [one.indexed for one in passages], [str(number) for number in range(60)]
    reading = SimpleNamespace(passages=passages, texts=texts, documents=documents)
    return Queries(reading, parts, [], 0)


def kinds(source, *parts, **options):
    return set(source.evidence(*parts, rows=300, terms=str.split, **options).kinds)


def test_what_was_too_rare_to_choose_by_does_not_prove(source):
    chosen = kinds(source, SELECT)
    assert chosen == {"first sentence", "sentence"}
    assert kinds(source, SEALED, TRAIN) == {*chosen, "question"}
    assert kinds(source, SEALED, TRAIN, kinds=tuple(chosen)) == chosen
    assert kinds(source, SEALED, kinds=("title",)) == chosen  # there are none of these
