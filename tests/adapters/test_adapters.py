"""The adapters inside the libraries they are for."""

import pytest

from contrasent.encoder.encoder import Encoder

TEXTS = ["The gardener mended a torn map.", "An old sailor sold two blue lamps.", ""]


@pytest.fixture(scope="module")
def encoder(bert):
    return Encoder.load(bert, pooler="mean")


@pytest.fixture(scope="module")
def folder(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    encoder.save(folder)
    return folder


def test_scikit_learn(encoder):
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    forms, labels = ("the gardener mended {} lamps", "an old sailor sold {} maps"), [0, 1] * 8
    texts = [form.format(n) for n in range(8) for form in forms]
    pipeline = make_pipeline(FunctionTransformer(encoder.encode), LogisticRegression(max_iter=1000))
    assert pipeline.fit(texts, labels).score(texts, labels) == 1.0


def test_sentence_transformers(encoder, folder):
    pytest.importorskip("sentence_transformers")
    from contrasent.adapters.sentence_transformers import sentence_transformer

    model = sentence_transformer(encoder, device="cpu")
    got = model.encode(TEXTS, show_progress_bar=False)
    assert got == pytest.approx(encoder.encode(TEXTS), abs=1e-5)
