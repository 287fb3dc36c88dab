"""The adapters inside the libraries they are for."""

import asyncio
import pickle

import numpy as np
import pytest

from contrasent.errors import ModelError
from contrasent.model.encoder import Encoder

TEXTS = ["The gardener mended a torn map.", "An old sailor sold two blue lamps.", ""]


@pytest.fixture(scope="module")
def encoder(bert):
    return Encoder.load(bert, pooler="mean")


@pytest.fixture(scope="module")
def folder(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    encoder.save(folder)
    return folder


def test_langchain(encoder, folder):
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from contrasent.adapters.langchain import ContrasentEmbeddings

    embeddings = ContrasentEmbeddings(folder)
    assert np.array(embeddings.embed_documents(TEXTS)) == pytest.approx(
        encoder.encode(TEXTS), abs=1e-5
    )
    assert embeddings.embed_query(TEXTS[0]) == pytest.approx(
        encoder.encode(TEXTS)[0].tolist(), abs=1e-5
    )
    store = InMemoryVectorStore.from_texts(TEXTS[:2], embeddings)
    assert store.similarity_search(TEXTS[1], k=1)[0].page_content == TEXTS[1]
    with pytest.raises(ModelError):
        ContrasentEmbeddings(folder / "nowhere")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_llama_index(encoder, folder):
    pytest.importorskip("llama_index.core")
    from contrasent.adapters.llama_index import ContrasentEmbedding

    embedding = ContrasentEmbedding(folder, embed_batch_size=2)
    wanted = encoder.encode(TEXTS)
    assert np.array(embedding.get_text_embedding_batch(TEXTS)) == pytest.approx(wanted, abs=1e-5)
    assert embedding.get_query_embedding(TEXTS[1]) == pytest.approx(wanted[1].tolist(), abs=1e-5)
    found = asyncio.run(embedding.aget_query_embedding(TEXTS[1]))
    assert found == pytest.approx(wanted[1].tolist(), abs=1e-5)
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=text) for text in TEXTS[:2]]
    index = VectorStoreIndex(nodes, embed_model=embedding)
    assert index.as_retriever(similarity_top_k=1).retrieve(TEXTS[0])[0].text == TEXTS[0]


def test_scikit_learn(encoder, folder):
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from contrasent.adapters.sklearn import SentenceEncoder

    step = SentenceEncoder(str(folder))
    assert step.transform(TEXTS) == pytest.approx(encoder.encode(TEXTS), abs=1e-5)
    assert step.get_feature_names_out()[-1] == f"sentence{encoder.dimension - 1}"
    stored = pickle.dumps(step)
    assert len(stored) < 2000
    assert pickle.loads(stored).transform(TEXTS) == pytest.approx(step.transform(TEXTS))
    assert clone(step).get_params() == {"model": str(folder), "batch": 64}
    texts = [f"the gardener mended {n} lamps" for n in range(8)] + [
        f"an old sailor sold {n} maps" for n in range(8)
    ]
    labels = [0] * 8 + [1] * 8
    pipeline = make_pipeline(SentenceEncoder(encoder), LogisticRegression(max_iter=1000))
    assert pipeline.fit(texts, labels).score(texts, labels) == 1.0


def test_sentence_transformers(encoder, folder):
    pytest.importorskip("sentence_transformers")
    from contrasent.adapters.sentence_transformers import sentence_transformer

    model = sentence_transformer(encoder, device="cpu")
    got = model.encode(TEXTS, show_progress_bar=False)
    assert got == pytest.approx(encoder.encode(TEXTS), abs=1e-5)
