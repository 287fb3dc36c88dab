"""A folder with a flow is a model like any other: index, search, similarity, serve."""

import shutil

import numpy as np
import pytest

from commands import printed
from contrasent.cli.options import Loading, open_model
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.flow import FlowEncoder, FlowSettings, fit, write_flow
from contrasent.errors import ModelError, OptionError
from contrasent.files import read_object, write_object
from contrasent.model import base
from contrasent.serve.app import create_app


@pytest.fixture(scope="module")
def made(bert, sentences, tmp_path_factory):
    """The folder, the encoder below, and the flow."""
    encoder = TorchEncoder.load(bert, pooling="mean")
    flow = fit(encoder.encode(sentences[:256]), FlowSettings(levels=2, steps=1, num_train_epochs=1))
    folder = tmp_path_factory.mktemp("flow") / "flow"
    write_flow(folder, flow, encoder.save)
    return folder, encoder, flow


def test_index_search_similarity(made, sentences, tmp_path):
    folder, encoder, flow = made
    wanted = flow.transform(encoder.encode(sentences[:2]))
    cosine = wanted[0] @ wanted[1] / np.prod(np.linalg.norm(wanted, axis=1))
    told = printed("similarity", folder, *sentences[:2])
    assert told["similarity"] == pytest.approx(cosine, abs=1e-5)
    (tmp_path / "lines.txt").write_text("\n".join(sentences[:30]))
    told = printed("index", tmp_path / "lines.txt", "--model", folder, "-o", tmp_path / "index")
    assert told["identity"] not in (encoder.identity, "")
    hits = printed("search", tmp_path / "index", sentences[7], "-k", 1)["results"][0]["hits"]
    assert (hits[0]["text"], hits[0]["cosine"]) == (sentences[7], pytest.approx(1, abs=1e-5))


def test_another_flow_is_another_model(made):
    folder, encoder, flow = made
    one = open_model(folder).encoder.identity
    vectors = encoder.encode(["a", "b"] * 64)
    other = fit(vectors, FlowSettings(levels=2, steps=1, num_train_epochs=1, seed=1))
    assert FlowEncoder(encoder, other).identity != one
    assert FlowEncoder(encoder, flow).identity == one


def test_serve(made, sentences):
    from fastapi.testclient import TestClient

    folder, encoder, flow = made
    with TestClient(
        create_app(open_model(folder).encoder, "flow"), base_url="http://localhost"
    ) as client:
        answer = client.post("/v1/embeddings", json={"input": sentences[:3]}).json()
    got = np.array([item["embedding"] for item in answer["data"]])
    assert got == pytest.approx(flow.transform(encoder.encode(sentences[:3])), abs=1e-4)


def test_changed_weights_are_refused_unless_they_are_not_checked(made, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "flow")
    digests = folder / "encoder" / "golden" / "weights.json"
    write_object(digests, dict.fromkeys(read_object(digests), "another"))
    with pytest.raises(ModelError, match="has changed since it was saved"):
        base.Encoder.load(folder)
    assert base.Encoder.load(folder, check=False).identity == FlowEncoder.load(made[0]).identity


def test_other_runtimes_are_refused(made):
    with pytest.raises(OptionError, match="needs torch"):
        open_model(made[0], Loading(runtime="onnx"))
