"""Objectives inside sentence-transformers' trainer."""

import copy
import warnings

import numpy as np
import pytest
import torch

from contrasent.adapters.sentence_transformers import ObjectiveLoss, encoder_around
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError, TrainingError
from contrasent.types import Batch

st = pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A tiny model in sentence-transformers' layout, dropout 0.1."""
    home = tmp_path_factory.mktemp("model") / "tiny"
    encoder = TorchEncoder.load(tiny["bert"], pooling="mean", head="tanh", max_seq_length=24)
    encoder.save(home)
    return str(home)


def model_of(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return st.SentenceTransformer(folder, device="cpu", local_files_only=True)


def train(model, loss, columns, folder, max_steps=4):
    arguments = st.SentenceTransformerTrainingArguments(
        output_dir=str(folder), max_steps=max_steps, per_device_train_batch_size=8,
        learning_rate=1e-3,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, seed=1,
    )  # fmt: skip
    data = datasets.Dataset.from_dict(columns)
    st.SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=loss).train()


@pytest.mark.parametrize("name", ["simcse", "esimcse+simcse_plus_plus", "simcse_supervised"])
def test_trains_the_model_and_what_is_beside_it(name, folder, tmp_path, sentences):
    model = model_of(folder)
    given = {"queue_size": 12} if "esimcse" in name else {}
    loss = ObjectiveLoss(model, name, **given)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    own = {k: v for k, v in loss.state_dict().items() if not k.startswith("objective.encoder.")}
    beside = {k: v.clone() for k, v in own.items()}
    columns = {"anchor": sentences[:32]}
    if name == "simcse_supervised":
        columns |= {"positive": sentences[1:33], "negative": sentences[2:34]}
    train(model, loss, columns, tmp_path / "run")
    after = model.state_dict()
    moved = [k for k in before if not torch.equal(before[k], after[k])]
    assert len(moved) > 20
    now = loss.state_dict()
    # BERT's own pooling layer is there and not in use.
    still = [k for k, v in beside.items() if torch.equal(v, now[k]) and ".pooler." not in k]
    assert not still
    if "esimcse" in name:
        assert loss.objective.queue.negatives().shape == (12, 32)
    model.save(str(tmp_path / "saved"))
    again = model_of(str(tmp_path / "saved"))
    assert again.state_dict().keys() == before.keys()
    np.testing.assert_allclose(again.encode(sentences[:5]), model.encode(sentences[:5]), atol=1e-5)


def test_the_encoder_is_the_model(folder, sentences):
    model = model_of(folder)
    encoder = encoder_around(model)
    texts = [*sentences[:9], "", "one"]
    np.testing.assert_allclose(encoder.encode(texts), model.encode(texts), atol=1e-5)
    shared = {id(p) for p in model.parameters()}
    assert all(id(p) in shared for p in encoder.parameters())


def test_the_loss_is_the_objectives(folder, sentences):
    model = model_of(folder)
    loss = ObjectiveLoss(model, "simcse")
    features = model.tokenize(sentences[:8])
    objective = copy.deepcopy(loss.objective)
    model.train()
    torch.manual_seed(4)
    found = loss([features])
    tokens, _ = objective.encoder.tokenizer(sentences[:8])
    objective.train()
    torch.manual_seed(4)
    expected = objective.loss(objective(Batch((tokens, tokens), torch.arange(8).numpy(), 0)))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_seed_reaches_what_is_drawn_for_a_row(folder, sentences):
    """Artificial rows are drawn from the batch's seed; dropout from torch's."""
    model = model_of(folder)
    features = model.tokenize(sentences[:8])
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(3)
        loss = ObjectiveLoss(model, "barlow_twins", seed=seed, artificial=20)
        model.train()
        torch.manual_seed(4)
        losses.append(loss([features]).item())
    assert losses[0] == losses[1] != losses[2]


def test_evaluation_moves_no_queue(folder, sentences):
    model = model_of(folder)
    loss = ObjectiveLoss(model, "esimcse", queue_size=8)
    features = model.tokenize(sentences[:8])
    model.eval()
    for _ in range(2):
        loss([features])
    assert loss.objective.queue.negatives() is None
    model.train()
    for _ in range(2):
        loss([features])
    assert loss.objective.queue.negatives().shape == (8, 32)


def test_bad_input(folder, sentences):
    model = model_of(folder)
    with pytest.raises(OptionError, match="temperature 0"):
        ObjectiveLoss(model, "simcse", temperature=0)
    with pytest.raises(OptionError, match="Crop needs the text"):
        ObjectiveLoss(model, "simcse", view="crop")
    loss = ObjectiveLoss(model, "simcse")
    features = model.tokenize(sentences[:4])
    with pytest.raises(TrainingError, match="learns from text without scores"):
        loss([features], torch.ones(4))
    with pytest.raises(TrainingError, match="2 columns"):
        loss([features, features])
    model[2].use_residual = True
    with pytest.raises(ModelError, match=r"the module Dense\(.*use_residual.* is not supported"):
        encoder_around(model)
    with pytest.raises(ModelError, match="Transformer and a Pooling"):
        encoder_around(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_a_file_of_ones_own_is_a_loss_too(folder, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from contrasent.objectives.simcse import SimCSE\nclass Mine(SimCSE): pass\n")
    loss = ObjectiveLoss(model_of(folder), str(path), temperature=0.1)
    described = loss.objective.describe()
    assert (described["name"], described["temperature"]) == ("mine.py", 0.1)
    assert len(described["source_sha256"]) == 64
    with pytest.raises(OptionError, match="did you mean 'cosine'"):
        ObjectiveLoss(model_of(folder), str(path), similarity="cosin")
