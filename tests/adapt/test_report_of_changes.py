"""What a report tells of queries that an adaptation changed."""

from types import SimpleNamespace

import numpy as np

from contrasent.adapt.bench import Bench, queries_of
from contrasent.adapt.report import largest_changes
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker

VECTORS = {
    "The ferry leaves at noon.": (1.0, 0.0, 0.0),
    "Bread is baked at dawn.": (0.8, 0.6, 0.0),
    "Lamps are sold by the gate.": (0.0, 0.6, 0.8),
    "when do boats go": (0.95, 0.2, 0.0),
    "who bakes": (1.0, 0.1, 0.0),
    "where are lamps": (0.0, 0.5, 0.8),
}


def test_queries_that_moved_are_shown_with_their_first_answer_before_and_after():
    """The map swaps the first two directions, and with them what boats and bread find."""

    def encode(texts):
        return np.array([VECTORS[text] for text in texts], dtype=np.float32)

    passages, asked = list(VECTORS)[:3], list(VECTORS)[3:]
    about = [{"document": name} for name in ("ferry", "bread", "lamps")]
    index = Index.build(encode, passages, metadata=about)
    queries = queries_of([(text, {n: 1.0}) for n, text in enumerate(asked)])
    vectors = index.query_vectors(asked, encode)
    bench = Bench(index, queries, vectors)
    swap = Learned(np.eye(3, dtype=np.float32)[[1, 0, 2]])
    rankers = Ranker(0.0), Ranker(0.0, map_share=1.0)
    before, after = (bench.values([ranker], learned=swap)[0] for ranker in rankers)
    result = SimpleNamespace(
        values_before=before, values_after=after, ranker=rankers[1], learned=swap
    )
    changes = largest_changes(bench, result, rankers[0], encode)
    assert [change["query"] for change in changes] == ["who bakes", "when do boats go"]
    for change in changes:
        values = before[change["number"]], after[change["number"]]
        assert (change["before"], change["after"]) == values
    assert changes[0]["after"] > changes[0]["before"] and changes[1]["after"] < changes[1]["before"]
    index.learned = swap
    for change in changes:
        query, number = change["query"], change["number"]
        assert query == asked[number]
        for when, ranker in zip(("before", "after"), rankers, strict=True):
            (hits,) = index.search([query], vectors=vectors[[number]], k=1, ranker=ranker)
            answer = change[f"answer_{when}"]
            assert answer["text"] == hits[0].text
            assert answer["document"] == hits[0].metadata["document"]
            assert answer["right"] == (change[when] == 1.0)
    # Numbers that moved below the same first answer are no example of a change.
    result.ranker = rankers[0]
    assert largest_changes(bench, result, rankers[0], encode) == []
