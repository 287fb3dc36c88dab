"""Prompts: saved with a model, and put before texts wherever it is used."""

import json
import shutil
import warnings

import numpy as np
import pytest

from contrasent import progress
from contrasent.datasets.labeled import Captions
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError
from contrasent.evaluate import retrieval, suite
from contrasent.evaluate.validation import RetrievalValidation
from contrasent.evaluate.vectors import Cached
from contrasent.metrics import cosine
from contrasent.model.base import PROMPTS, Prompts, TaskEncoder
from contrasent.model.numpy_model import NumpyModel
from contrasent.search.index import Index
from contrasent.search.writer import Writer
from contrasent.text.corpus import ScoredPairs
from contrasent.types import for_task

TEXTS = ["The gardener sold his violin.", "A map", "a blue lamp and a kettle"]
E5 = {"query": "query: ", "document": "passage: ", "odd": "Ω "}


@pytest.fixture(scope="module")
def saved(bert, tmp_path_factory):
    """A model with prompts."""
    encoder = TorchEncoder.load(bert, pooling="mean", max_seq_length=24)
    encoder.prompts = Prompts(E5)
    folder = tmp_path_factory.mktemp("prompts") / "model"
    encoder.save(folder)
    return folder


@pytest.fixture
def plain(bert):
    """The same model without prompts."""
    return TorchEncoder.load(bert, pooling="mean", max_seq_length=24)


def prefixed(plain, first, texts=TEXTS):
    return plain.encode([first + text for text in texts])


def test_the_folder_is_that_of_sentence_transformers(saved, plain):
    config = json.loads((saved / PROMPTS).read_text("utf-8"))
    assert (config["prompts"], config["default_prompt_name"]) == (E5, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("sentence_transformers")
        other = library.SentenceTransformer(str(saved), device="cpu")
    model = TorchEncoder.load(saved)
    quiet = {"show_progress_bar": False}
    for found, text in (
        (other.encode(TEXTS, **quiet), ""),
        (other.encode_query(TEXTS, **quiet), model.prompts.of_task("query")),
        (other.encode_document(TEXTS, **quiet), model.prompts.of_task("document")),
        (other.encode(TEXTS, prompt_name="odd", **quiet), model.prompts.text("odd")),
    ):
        assert np.abs(model.encode(TEXTS, prompt=text) - found).max() < 1e-5
        assert np.array_equal(model.encode(TEXTS, prompt=text), prefixed(plain, text))


def test_a_default_prompt_is_used_where_none_is_named(bert, plain, tmp_path):
    model = TorchEncoder.load(bert, pooling="mean", max_seq_length=24)
    model.prompts = Prompts(E5, "odd")
    assert np.array_equal(model.encode(TEXTS), prefixed(plain, "Ω "))
    model.save(tmp_path / "m")
    again = TorchEncoder.load(tmp_path / "m")
    assert again.prompts == model.prompts and again.identity == model.identity
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert Prompts({"odd": "Ω "}, "odd").of_task("query") == ""
    assert Prompts({"document": "", "passage": "p "}).of_task("document") == "p "


def test_a_model_without_prompts_is_what_it_was(plain, tmp_path):
    identity = plain.identity
    plain.save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / PROMPTS).read_text())
    assert (config["prompts"], config["default_prompt_name"]) == ({}, None)
    # As sentence-transformers writes it today: names without texts.
    config["prompts"] = {"query": "", "document": ""}
    (tmp_path / "m" / PROMPTS).write_text(json.dumps(config))
    model = TorchEncoder.load(tmp_path / "m")
    assert model.identity == identity
    assert model.prompts.text("document") == "" and model.prompts.texts == config["prompts"]
    assert np.array_equal(model.encode(TEXTS, prompt_name="query"), plain.encode(TEXTS))
    with pytest.raises(OptionError, match="the model has query, document"):
        model.prompts.text("passage")
    assert model.prompts.of_task("query") == model.prompts.text() == ""
    encode = TaskEncoder(model)
    assert for_task(encode, "query") is encode
    assert for_task(model.encode, "query") == model.encode
    model.prompts = Prompts(E5)
    assert model.identity != identity


@pytest.mark.parametrize(("change", "message"), [
    ({"default_prompt_name": "none"}, "default_prompt_name 'none' is not one of its prompts"),
    ({"default_prompt_name": ["query"]}, r"default_prompt_name \['query'\] is not one of its"),
    ({"prompts": {"query": 1}}, "prompts must map names to texts"),
])  # fmt: skip
def test_damaged_prompts_are_rejected(saved, tmp_path, change, message):
    path = tmp_path / PROMPTS
    path.write_text(json.dumps(json.loads((saved / PROMPTS).read_text("utf-8")) | change))
    with pytest.raises(ModelError, match=message):
        Prompts.read(tmp_path)
    shutil.copytree(saved, tmp_path / "m")
    path = tmp_path / "m" / "1_Pooling" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"include_prompt": False}))
    with pytest.raises(ModelError, match="without the prompt's tokens"):
        TorchEncoder.load(tmp_path / "m")


def test_commands_put_them_before_texts(run, saved, plain, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    documents = prefixed(plain, "passage: ")
    _, err = run("encode", saved, "t.txt", "-o", "x.npy", "--prompt", "querry", code=2)
    assert "--prompt 'querry': unknown prompt; the model has query, doc" in err
    assert "did you mean 'query'" in err
    run("encode", saved, "t.txt", "-o", "d.npy", "--dimensions", "8", "--quiet")
    short = documents[:, :8]
    assert np.abs(np.load("d.npy") - short / np.linalg.norm(short, axis=1)[:, None]).max() < 1e-5
    run("index", "t.txt", "--model", saved, "-o", "index", "--quiet")
    (tmp_path / "more.txt").write_text("an old map\n")
    run("index", "more.txt", "--model", saved, "-o", "index", "--add", "--quiet")
    out, _ = run("search", "index", "a violin", "-k", "4", "--json", "--quiet")
    (query,) = prefixed(plain, "query: ", ["a violin"])
    texts = [*TEXTS, "an old map"]
    expected = dict(
        zip(texts, cosine([query] * 4, prefixed(plain, "passage: ", texts)), strict=True)
    )
    hits = json.loads(out)["results"][0]["hits"]
    assert len(hits) == 4
    for hit in hits:
        assert hit["cosine"] == pytest.approx(expected[hit["text"]], abs=1e-6)


def test_the_server_puts_them_before_texts(saved, plain):
    testclient = pytest.importorskip("fastapi.testclient")
    from contrasent.search.ranking import Ranker
    from contrasent.serve.app import create_app

    model = TorchEncoder.load(saved)
    model.matryoshka_dims = (32, 8)
    documents = prefixed(plain, "passage: ")
    ranker = Ranker(bm25_weight=0.0)  # the score is then the cosine
    index = Index.build(TaskEncoder(model), TEXTS, model=model.identity, ranker=ranker)
    with testclient.TestClient(create_app(model, "m", index=index)) as http:

        def vectors(**more):
            answer = http.post("/v1/embeddings", json={"input": TEXTS, **more})
            assert answer.status_code == 200, answer.text
            return np.array([item["embedding"] for item in answer.json()["data"]])

        assert np.abs(vectors() - plain.encode(TEXTS)).max() < 1e-5
        requested = vectors(prompt_name="query")
        assert np.abs(requested - prefixed(plain, "query: ")).max() < 1e-5
        found = http.post("/v1/embeddings", json={"input": "a", "prompt_name": "x"})
        assert found.status_code == 404 and "it has query, document, odd" in found.text
        ((same,),) = index.search(TEXTS[1], encode=TaskEncoder(model), k=1)
        (hit,) = http.post("/search", json={"query": TEXTS[1], "k": 1}).json()["results"][0]["hits"]
        scores = cosine([prefixed(plain, "query: ")[1]] * 3, documents)
        assert hit["score"] == pytest.approx(scores.max(), abs=1e-5)
        assert same.cosine == pytest.approx(scores.max(), abs=1e-5)
        about = http.get("/v1/models/m").json()
        assert (about["prompts"], about["nested_dimensions"]) == (E5, [32, 8])


@pytest.mark.parametrize("floor", [TorchEncoder, NumpyModel])
def test_the_method_of_an_encoder_puts_them_before_texts(saved, plain, tmp_path, floor):
    model = floor(saved) if floor is NumpyModel else floor.load(saved)
    index = Index.build(model.encode, TEXTS, ids=["a", "b", "c"], model=model.identity)
    index.update(["an old map"], ids=["b"])
    index.save(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.update(["a late boat"], model.encode, ids=["c"])
    read = prefixed(plain, "passage: ", [TEXTS[0], "an old map", "a late boat"])
    (query,) = prefixed(plain, "query: ", ["a violin"])
    expected = dict(zip("abc", cosine([query] * 3, read), strict=True))
    (hits,) = Index.open(tmp_path / "index").search("a violin", encode=model.encode)
    assert {hit.id: hit.cosine for hit in hits} == pytest.approx(expected, abs=1e-5)
    assert np.abs(model.encode(TEXTS) - plain.encode(TEXTS)).max() < 1e-5


@pytest.mark.parametrize(("metric", "found"), [(None, "dot"), ("cosine", "cosine")])
def test_an_index_has_the_similarity_of_its_encoder(plain, metric, found):
    plain.prompts = Prompts(similarity="dot")
    for encode in (plain.encode, TaskEncoder(plain)):
        assert Index.build(encode, TEXTS, metric=metric).metric == found
    assert Index.build(lambda texts: plain.encode(texts), TEXTS).metric == "cosine"


def test_evaluations_of_search_use_both(saved, plain):
    queries, documents = ["a violin", "two lamps"], TEXTS
    requested, read = prefixed(plain, "query: ", queries), prefixed(plain, "passage: ", documents)
    scores = [cosine([q] * 3, read) for q in requested]
    expected = [1 + int((row > row[k]).sum()) for k, row in enumerate(scores)]
    model = TaskEncoder(TorchEncoder.load(saved))
    for encode in (model, Cached(model), model.encoder.encode):
        report = retrieval.retrieval(encode, queries, documents, [0, 1], k=(len(documents),))
        assert report.rows[0].value == pytest.approx(np.mean([1 / rank for rank in expected]))
        # Once more from what is remembered, and texts of no search have no prompt.
        assert np.array_equal(for_task(encode, "query")(queries), requested)
        assert np.abs(encode(documents) - plain.encode(documents)).max() < 1e-6
    pairs = RetrievalValidation("pairs", {"pairs": (queries, documents[:2])})
    place = [
        1 + int((cosine([q] * 2, read[:2]) > cosine([q], [read[k]])).sum())
        for k, q in enumerate(requested)
    ]
    assert pairs(model).notes["items"] == pytest.approx([1 / p for p in place])


def test_suites_put_them_before_captions(saved, plain, monkeypatch):
    captions = Captions(("a blue lamp", "a lamp of blue", "a map", "maps"), ("1", "1", "2", "2"))
    pairs = ScoredPairs("STSB", ("a map", "a kettle"), ("maps", "a lamp"), np.array([5.0, 1]))
    monkeypatch.setattr(suite.labeled, "flickr30k", lambda folder: captions)
    monkeypatch.setattr(retrieval, "sts_pairs", lambda *_, **__: (pairs,))
    read = []

    class Recorder(type(plain)):
        def encode_and_count(self, sentences, *, batch_size=64, prompt=None):
            read.extend((prompt, text) for text in sentences)
            return super().encode_and_count(sentences, batch_size=batch_size, prompt=prompt)

    model = Recorder.load(saved)
    report = suite.evaluate_model(TaskEncoder(model), ("retrieval",))
    assert read == [
        *((None, text) for text in ("a map", "a kettle", "maps", "a lamp")),
        *(("query: ", text) for text in ("a blue lamp", "a map")),
        *(("passage: ", text) for text in ("a lamp of blue", "maps")),
    ]
    assert report.notes["distinct_sentences"] == len(read)


def test_training_with_prompts(bert, sentences, tmp_path, caplog):
    from contrasent.text.corpus import open_corpus
    from contrasent.train.fit import fit
    from contrasent.train.prepare import collator, prepare
    from contrasent.train.settings import Settings

    pairs = [(a, b) for a, b in zip(sentences[:30], sentences[30:60], strict=True)]
    given = {"batch_size": 6, "max_steps": 2, "pooling": "mean", "query_prompt": "ask: "}
    settings = Settings(**given, document_prompt="read: ")
    objective = prepare(bert, "simcse_supervised", {}, settings)
    made = collator(objective, open_corpus(pairs), settings, tmp_path / "tokens", None)
    batch = made.batch(0)
    for column, first in enumerate(("ask: ", "read: ")):
        tokens, _ = made.tokenizer([first + pairs[row][column] for row in batch.rows])
        assert batch.columns[column].ids.tolist() == tokens.ids.tolist()
    assert made.cache.text(0, 0) == pairs[0][0]
    fit(objective, pairs, settings, output_dir=tmp_path / "m")
    model = TorchEncoder.load(tmp_path / "m")
    assert model.prompts == Prompts({"query": "ask: ", "document": "read: "})
    # A base's own prompts stay unless a setting says otherwise.
    plain = {k: v for k, v in given.items() if k != "query_prompt"}
    again = prepare(tmp_path / "m", "simcse_supervised", {}, Settings(**plain, document_prompt=""))
    assert again.encoder.prompts == Prompts({"query": "ask: ", "document": ""})
    assert "the base compares" not in caplog.text
    model.prompts = Prompts(similarity="dot")
    model.save(tmp_path / "dot")
    prepare(tmp_path / "dot", "simcse", {}, Settings(**plain))
    assert "the base compares vectors with dot, the new model with cosine" in caplog.text
    single = prepare(bert, "simcse", {}, Settings(**given))
    with pytest.raises(OptionError, match="query_prompt 'ask: ': needs pairs"):
        collator(single, open_corpus(sentences[:30]), Settings(**given), tmp_path / "t", None)
    given["pooling"] = "mask"
    framed = prepare(bert, "simcse_supervised+promptbert", {}, Settings(**given))
    with pytest.raises(OptionError, match=r"'ask: ': .*reads each text in a template"):
        collator(framed, open_corpus(pairs), Settings(**given), tmp_path / "t", None)


def test_encode_takes_the_arguments_of_sentence_transformers(saved, monkeypatch):
    texts = ["a map", "a copper lamp"]
    model = TorchEncoder.load(saved)
    plain, asked = model.encode(texts, prompt=""), model.encode(texts, prompt_name="query")
    assert asked == pytest.approx(model.encode(texts, prompt="query: ", batch_size=1), abs=1e-5)
    unit = model.encode(texts, prompt="", normalize_embeddings=True, truncate_dim=3)
    wanted = plain[:, :3] / np.linalg.norm(plain[:, :3], axis=1, keepdims=True)
    assert unit == pytest.approx(wanted, abs=1e-6)
    assert unit.dtype == np.float32
    tensor = model.encode(texts[0], prompt="", convert_to_tensor=True)
    assert type(tensor).__name__ == "Tensor"
    assert tensor.numpy() == pytest.approx(plain[0], abs=1e-6)
    silent = []
    embed = model.embed
    monkeypatch.setattr(model, "embed", lambda t: silent.append(progress.silent()) or embed(t))
    for shown in (True, False, None):
        model.encode(texts[0], show_progress_bar=shown)
    assert silent == [False, True, True] and progress.silent()
    with pytest.raises(OptionError, match="prompt_name 'query': cannot be combined with prompt"):
        model.encode(texts, prompt="a", prompt_name="query")
    with pytest.raises(OptionError, match="unknown prompt"):
        model.encode(texts, prompt_name="quarry")
    with pytest.raises(OptionError, match="truncate_dim 0: must be from 1 to"):
        model.encode(texts, truncate_dim=0)
