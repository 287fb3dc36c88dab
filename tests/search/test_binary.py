"""Binary codes of vectors: counted as by a plain loop, and the best rows found."""

from dataclasses import replace

import numpy as np
import pytest

from contrasent.errors import InputError, OptionError
from contrasent.metrics import normalize
from contrasent.search import index as index_
from contrasent.search.approximate import build_approximate
from contrasent.search.backends import BinaryCodes, open_backend
from contrasent.search.index import Index
from contrasent.search.writer import Writer


def made(count, dimension, seed=0):
    random = np.random.default_rng(seed)
    middles = random.standard_normal((40, dimension)) + 0.5
    noise = random.standard_normal((count, dimension))
    return normalize((middles[random.integers(0, 40, count)] + noise).astype(np.float32))


def index_of(vectors, **options):
    return Index.build(lambda texts: vectors, [str(n) for n in range(len(vectors))], **options)


def codes_of(vectors):
    return BinaryCodes.of([vectors[:70], vectors[70:]], len(vectors), vectors.shape[1])


@pytest.mark.parametrize("dimension", [7, 64, 100])
def test_differences_are_those_of_a_plain_loop(dimension):
    vectors = made(200, dimension)
    codes = codes_of(vectors)
    middle = vectors.astype(np.float64).mean(axis=0)
    for query in vectors[:3]:
        wanted = [
            sum((a > m) != (b > m) for a, b, m in zip(row, query, middle, strict=True))
            for row in vectors
        ]
        assert codes.hamming(query).tolist() == wanted


def test_candidates_are_the_rows_that_differ_least_and_are_allowed():
    vectors = made(300, 40)
    codes = codes_of(vectors)
    allowed = np.arange(400) % 3 > 0
    (rows,) = codes.candidates(vectors[:1], 5, allowed, count=20)
    distance = codes.hamming(vectors[0])
    left = sorted(distance[row] for row in range(300) if allowed[row])
    assert rows.tolist() == [r for r in range(300) if allowed[r] and distance[r] <= left[19]]
    (everything,) = codes.candidates(vectors[:1], 5, None, count=1000)
    assert len(everything) == 300


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    vectors = made(40_000, 96)
    folder = tmp_path_factory.mktemp("binary") / "index"
    texts = [str(n) for n in range(len(vectors))]
    Index.build(lambda _: vectors, texts).save(folder)
    return build_approximate(folder, "binary"), vectors


def test_the_ten_best_of_many_rows_are_found_and_scored_exactly(stored):
    index, vectors = stored
    queries = normalize(vectors[:40] + np.float32(0.02))
    exact, found = index.search(queries, k=10, exact=True), index.search(queries, k=10)
    shares = [
        len({h.id for h in a} & {h.id for h in b}) / 10 for a, b in zip(exact, found, strict=True)
    ]
    assert np.mean(shares) >= 0.99
    assert index.manifest.backend.facts["recall"] >= 0.99
    for query, hits in zip(queries, found, strict=True):
        assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
        for hit in hits:
            assert hit.score == pytest.approx(float(vectors[int(hit.id)] @ query), abs=1e-5)
    backend = open_backend(index.folder, index.manifest.backend, 96)
    few = backend.candidates(queries, 10, None, count=12)
    lost = [
        len({int(h.id) for h in hits} - set(rows)) for hits, rows in zip(exact, few, strict=True)
    ]
    assert np.mean(lost) > 1  # it is the number of candidates that gives the recall


def test_changes_after_it_are_seen_and_a_rewrite_drops_it(stored, tmp_path):
    index, vectors = stored
    folder = tmp_path / "index"
    index.save(folder)
    assert build_approximate(folder, "binary").manifest.backend.rows == 40_000
    with Writer(folder) as writer:
        writer.delete(["3"])
        writer.add(["new"], lambda _: vectors[3:4], ids=["new"])
    (hits,) = Index.open(folder).search(vectors[3], k=50)
    assert hits[0].id == "new"
    assert "3" not in {hit.id for hit in hits}
    with Writer(folder) as writer:
        writer.compact()
    assert Index.open(folder).manifest.backend is None
    assert not list(folder.glob("backend-*"))


def test_the_former_name_is_read_and_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(index_, "FEW", 50)
    vectors = made(1500, 16)
    folder = tmp_path / "index"
    Index.build(lambda _: vectors, [str(n) for n in range(1500)]).save(folder)
    index = build_approximate(folder, "signs")
    assert index.manifest.backend.facts["kind"] == "binary"
    manifest = folder / "index.json"
    text = manifest.read_text()
    assert text.count('"kind": "binary"') == 1
    manifest.write_text(text.replace('"kind": "binary"', '"kind": "signs"'))
    old = Index.open(folder)
    assert old.manifest == index.manifest
    assert old.search(vectors[0], k=5) == index.search(vectors[0], k=5)


def test_what_cannot_be_is_refused(tmp_path):
    vectors = made(2000, 16)
    texts = [str(n) for n in range(2000)]
    Index.build(lambda _: vectors, texts, metric="dot").save(tmp_path / "dot")
    with pytest.raises(OptionError, match="inner product"):
        build_approximate(tmp_path / "dot", "binary")
    Index.build(lambda _: vectors[:900], texts[:900]).save(tmp_path / "small")
    with pytest.raises(OptionError, match="searched faster exactly"):
        build_approximate(tmp_path / "small", "binary")
    with pytest.raises(OptionError, match="unknown"):
        build_approximate(tmp_path / "small", "sign")


def test_damage_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(index_, "FEW", 50)
    vectors = made(1500, 16)
    folder = tmp_path / "index"
    Index.build(lambda _: vectors, [str(n) for n in range(1500)]).save(folder)
    index = build_approximate(folder, "binary")
    part = index.manifest.backend
    wrong = replace(part, facts={**part.facts, "centre": [0.0, "x"]})
    with pytest.raises(InputError, match="no centre"):
        open_backend(folder, wrong, 16)
    path = folder / part.name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="bytes and should have"):
        Index.open(folder).search(vectors[0])
