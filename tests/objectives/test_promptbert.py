"""PromptBERT against a plain loop over sentences, and trained, saved and read again."""

import json
import math

import numpy as np
import pytest
import torch

from contrasent.adapters.sentence_transformers import ObjectiveLoss
from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.registry import check, find
from contrasent.errors import OptionError
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings
from tiny_models import write_backbone, write_tokenizer

GIVEN = {"template": "a [X] is [MASK].", "positive_template": "[X] , a [MASK]"}
TAU = 0.05


def at_mask(encoder, ids, places):
    """The last hidden state at the mask token, of one row alone."""
    kind = encoder.backbone.config.model_type
    first = encoder.backbone.config.pad_token_id + 1 if kind == "roberta" else 0
    states = encoder.backbone(
        input_ids=torch.tensor([ids]), position_ids=torch.tensor([places]) + first
    ).last_hidden_state[0]
    return states[ids.index(encoder.tokenizer.specials.mask)]


def by_loops(encoder, texts, *, denoise):
    """The loss from the paper's equations, one sentence and one template at a time."""
    backend = encoder.tokenizer.backend
    start, end = backend.encode("").ids
    name = backend.id_to_token(encoder.tokenizer.specials.mask)
    vectors = []
    for template in GIVEN.values():
        made = []
        for text in texts:
            before, inner, after = (
                backend.encode(part.replace("[MASK]", name), add_special_tokens=False).ids
                for part in (template.split("[X]")[0], text, template.split("[X]")[1])
            )
            before, after = [start, *before], [*after, end]
            ids = before + inner + after
            vector = at_mask(encoder, ids, list(range(len(ids))))
            if denoise:
                late = range(len(before) + len(inner), len(ids))
                places = [*range(len(before)), *late]
                vector = vector - at_mask(encoder, before + after, places)
            made.append(vector)
        vectors.append(made)
    total = 0.0
    for i, anchor in enumerate(vectors[0]):
        logits = [float(torch.cosine_similarity(anchor, z, dim=0)) / TAU for z in vectors[1]]
        total += math.log(sum(math.exp(x) for x in logits)) - logits[i]
    return total / len(texts)


@pytest.mark.parametrize("denoise", [True, False])
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_the_loss_is_that_of_plain_loops(load, batches, kind, denoise):
    from made_batches import TEXTS

    encoder = load(kind, dropout=0.0).double()
    encoder.tokenizer.max_seq_length = 64
    encoder.tokenizer.backend.enable_truncation(64)
    objective = find("promptbert")(encoder, **GIVEN, denoise=denoise, projector="none").train()
    with torch.no_grad():
        found = float(objective(batches(objective, 0))["contrast"])
        wanted = by_loops(encoder, TEXTS, denoise=denoise)
        other = by_loops(encoder, TEXTS, denoise=not denoise)
    assert found == pytest.approx(wanted, rel=1e-9)
    assert found != pytest.approx(other, rel=1e-3)


def test_a_run_saves_what_it_trained(tiny, tmp_path, sentences):
    (tmp_path / "text.txt").write_text("\n".join(sentences[:64]) + "\n", "utf-8")
    settings = Settings(batch_size=16, max_steps=2, max_seq_length=20)
    objective = prepare(tiny["bert"], "promptbert", dict(GIVEN), settings)
    fit(objective, str(tmp_path / "text.txt"), settings, output_dir=tmp_path / "model")
    model = TorchEncoder.load(tmp_path / "model")
    assert model.pooling == "mask"
    assert model.prompts.text() == GIVEN["template"] == model.prompts.of_task("document")
    wanted = objective.encoder.eval().encode(sentences[:9])
    assert np.array_equal(model.encode(sentences[:9]), wanted)
    modules = json.loads((tmp_path / "model" / "modules.json").read_text("utf-8"))
    assert [module["type"] for module in modules][1:] == ["contrasent.MaskPooling"]
    # A model like this goes on with any method, in its template.
    again = prepare(tmp_path / "model", "simcse", {}, settings)
    assert again.encoder.pooling == "mask"
    fit(again, str(tmp_path / "text.txt"), settings, output_dir=tmp_path / "more")
    assert TorchEncoder.load(tmp_path / "more").prompts == model.prompts


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("esimcse+promptbert", {"view": "dropout", "denoise": False, "queue_size": 4}),
        ("simcse+promptbert", {"encoders": 2}),
    ],
)
def test_copies_pool_at_the_mask_too_whichever_method_is_named_first(load, name, given):
    objective = find(name)(load("bert"), **GIVEN, **given)
    encoders = [part for part in objective.modules() if isinstance(part, TorchEncoder)]
    assert [encoder.pooling for encoder in encoders] == ["mask"] * 2


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("roformer", {}),
        ("xlnet", {}),
        ("deberta-v2", {}),
        ("deberta", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
        ("mpnet", {}),
        ("convbert", {}),
        ("mobilebert", {}),
    ],
)
def test_an_encoder_that_takes_no_positions_cannot_denoise(tmp_path, kind, sizes):
    write_backbone(kind, tmp_path, write_tokenizer(kind, tmp_path), **sizes)
    encoder = TorchEncoder.load(tmp_path, pooling="cls")
    with pytest.raises(OptionError, match=f"{kind} takes no positions, or .*; set denoise=false"):
        find("promptbert")(encoder, **GIVEN)
    assert find("promptbert")(encoder, **GIVEN, denoise=False).baseline is None


def test_what_it_cannot_take_is_rejected(tiny, load, tmp_path):
    said = r"must contain \[X\] once, followed by \[MASK\] once"
    for wrong in ("means [MASK]", "[MASK] [X]", "[X] [X] [MASK]", "[X] [MASK] [MASK]"):
        with pytest.raises(OptionError, match=said):
            check("promptbert", {"positive_template": wrong})
    said = r"promptbert requires pooling 'mask'; omit this setting$"
    with pytest.raises(OptionError, match=said):
        prepare(tiny["bert"], "promptbert", dict(GIVEN), Settings(pooling="mean"))
    with pytest.raises(OptionError, match="templates are not subtracted from"):
        find("esimcse+promptbert")(load("bert"), **GIVEN, view="dropout")
    with pytest.raises(OptionError, match="head without batch normalization"):
        find("promptbert")(load("bert", head="batchnorm"), **GIVEN)
    library = pytest.importorskip("sentence_transformers")
    load("bert").save(tmp_path / "plain")
    model = library.SentenceTransformer(str(tmp_path / "plain"), device="cpu")
    with pytest.raises(OptionError, match="pools at a mask token"):
        ObjectiveLoss(model, "promptbert", **GIVEN)
