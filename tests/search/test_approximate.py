"""faiss beside the vectors: recall is what is said, and changes after it are never lost."""

import numpy as np
import pytest

from contrasent.errors import InputError, OptionError
from contrasent.search import index as index_
from contrasent.search.index import Index
from contrasent.search.writer import Writer

pytest.importorskip("faiss")
from contrasent.search.approximate import build_approximate
from contrasent.search.manifest import FAISS_KINDS

ROWS, WIDTH = 3000, 32


@pytest.fixture(scope="module")
def vectors():
    """Rows around two hundred middles, as texts are: not spread evenly."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(200, WIDTH))
    return (middles[rng.integers(0, 200, ROWS)] + 0.6 * rng.normal(size=(ROWS, WIDTH))).astype(
        np.float32
    )


@pytest.fixture
def folder(vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(index_, "FEW", 50)
    texts = [f"text {n}" for n in range(ROWS)]
    metadata = [{"n": n} for n in range(ROWS)]
    Index.build(lambda _: vectors, texts, metadata=metadata).save(tmp_path / "index")
    return tmp_path / "index"


def ids(hits):
    return [hit.id for hit in hits]


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_recall_is_measured_and_true(folder, vectors, kind):
    index = build_approximate(folder, kind)
    said = index.manifest.backend.facts["recall"]
    assert said > (0.97 if kind == "hnsw" else 0.75)
    rng = np.random.default_rng(1)
    queries = vectors[rng.integers(0, ROWS, 100)] + 0.3 * rng.normal(size=(100, WIDTH))
    queries = queries.astype(np.float32)
    exact = index.search(queries, k=10, exact=True)
    found = Index.open(folder).search(queries, k=10)
    shares = [len(set(ids(a)) & set(ids(b))) / 10 for a, b in zip(exact, found, strict=True)]
    assert np.mean(shares) == pytest.approx(said, abs=0.1)
    scores = {(q, hit.id): hit.score for q, hits in enumerate(exact) for hit in hits}
    shared = 0
    for query, hits in enumerate(found):
        assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
        for hit in hits:
            if (query, hit.id) in scores:
                shared += 1
                assert hit.score == pytest.approx(scores[query, hit.id], abs=1e-6)
    assert shared > 500


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_changes_after_it(folder, vectors, kind):
    build_approximate(folder, kind)
    query = vectors[7]
    first = ids(Index.open(folder).search(query, k=3)[0])
    assert first[0] == "7"
    with Writer(folder) as writer:
        writer.delete([first[1]])
        writer.add(["new"], query[None] * 2, ids=["new"])
        writer.update(["text 7 again"], -query[None], ids=["7"])
    index = Index.open(folder)
    assert index.manifest.backend is not None
    (hits,) = index.search(query, k=5)
    assert hits[0].id == "new"
    assert first[1] not in ids(hits)
    assert "7" not in ids(hits)
    (far,) = index.search(-query, k=1)
    assert far[0].text == "text 7 again"
    for n in range(20):  # merging of later segments leaves the covered rows where they are
        with Writer(folder) as writer:
            writer.add([f"late {n}"], query[None] + n / 100)
    index = Index.open(folder)
    assert index.segments[0].vectors.shape == (ROWS, WIDTH)
    assert ids(index.search(query, k=1)[0]) == ["new"]
    with Writer(folder) as writer:
        writer.compact()
    assert Index.open(folder).manifest.backend is None


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_filters(folder, vectors, kind):
    build_approximate(folder, kind)
    index = Index.open(folder)
    (hits,) = index.search(vectors[5], k=10, where={"n": {"$gte": 1500}})
    assert len(hits) == 10
    assert all(int(hit.id) >= 1500 for hit in hits)
    (few,) = index.search(vectors[5], k=10, where={"n": {"$lt": 20}})  # exact: few are left
    (same,) = index.search(vectors[5], k=10, where={"n": {"$lt": 20}}, exact=True)
    assert few == same


def test_a_changed_file_is_refused(folder, vectors):
    index = build_approximate(folder)
    path = folder / index.manifest.backend.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="not the file that was written"):
        Index.open(folder).search(vectors[0])
    path.unlink()
    with pytest.raises(InputError, match="missing"):
        Index.open(folder).search(vectors[0])
    assert Index.open(folder).search(vectors[0], exact=True, k=1)[0][0].id == "0"


def test_refused(folder, tmp_path):
    with pytest.raises(OptionError, match="did you mean 'hnsw'"):
        build_approximate(folder, "hsnw")
    Index.build(lambda t: np.eye(2, dtype=np.float32), ["a", "b"]).save(tmp_path / "small")
    with pytest.raises(OptionError, match="searched faster exactly"):
        build_approximate(tmp_path / "small")
