"""A model of ours goes through mteb itself, on a small task made here."""

import warnings

import numpy as np
import pytest

from contrasent import metrics
from contrasent.errors import DataError, OptionError
from contrasent.evaluate.mteb import MtebModel

MIX = np.random.default_rng(1).normal(size=(8, 8))


def letters(sentences):
    """Counts of letters, mixed so that no two cosines are equal but for rounding."""
    counts = np.array([[s.count(c) + 0.1 for c in "abcdefgh"] for s in sentences])
    return np.tanh(counts @ MIX).astype(np.float32)


def made():
    random = np.random.default_rng(4)
    texts = ["".join(random.choice(list("abcdefgh"), 7)) for _ in range(80)]
    return texts[:40], texts[40:], random.uniform(0, 5, 40)


def test_batches_of_text_become_vectors_in_order():
    model = MtebModel(letters)
    found = model.encode([{"text": ["ab", "c"]}, {"text": ["d"]}], task_metadata=None)
    np.testing.assert_array_equal(found, letters(["ab", "c", "d"]))
    back = found[::-1]
    paired = model.similarity_pairwise(found, back)
    np.testing.assert_allclose(np.diag(model.similarity(found, back)), paired, atol=1e-6)
    with pytest.raises(DataError, match="holds image"):
        model.encode([{"image": []}])
    with pytest.raises(OptionError, match="owner/name"):
        MtebModel(letters, name="model")


def test_mteb_scores_the_model_as_we_do(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mteb = pytest.importorskip("mteb")
        datasets = pytest.importorskip("datasets")
        from mteb.abstasks.sts import AbsTaskSTS
        from mteb.abstasks.task_metadata import TaskMetadata
        from mteb.models import EncoderProtocol

        first, second, scores = made()

        class Letters(AbsTaskSTS):
            metadata = TaskMetadata(
                **{"name": "Letters", "description": "Pairs of letters.", "type": "STS"},
                **{"dataset": {"path": "local/letters", "revision": "1"}, "reference": None},
                **{"category": "t2t", "modalities": ["text"], "eval_splits": ["test"]},
                **{"eval_langs": ["eng-Latn"], "main_score": "cosine_spearman", "dialect": []},
                **{"date": ("2026-01-01", "2026-01-02"), "domains": ["Written"]},
                **{"task_subtypes": [], "license": "not specified", "bibtex_citation": ""},
                **{"annotations_creators": "derived", "sample_creation": "created"},
            )

            def load_data(self, *args, **kwargs):
                rows = {"sentence1": first, "sentence2": second, "score": scores.tolist()}
                self.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(rows))
                self.data_loaded = True

        model = MtebModel(letters, name="us/letters", dimension=8)
        assert isinstance(model, EncoderProtocol)
        result = mteb.evaluate(
            model, [Letters()], cache=mteb.ResultCache(cache_path=tmp_path), co2_tracker=False
        )
    (found,) = result.task_results
    ours = metrics.spearman(metrics.cosine(letters(first), letters(second)), scores)
    row = found.scores["test"][0]
    assert row["cosine_spearman"] == pytest.approx(ours, abs=1e-5)
    assert row["main_score"] == row["cosine_spearman"]
    assert result.model_name == "us/letters"
