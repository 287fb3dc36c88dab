"""Methods of scores, guides, nested dimensions and weighted negatives, number by number."""

import numpy as np
import pytest
import torch
from made_batches import TEXTS

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.masked_models import Guide
from contrasent.engine.registry import find
from contrasent.errors import OptionError, TrainingError
from contrasent.model.base import Prompts
from contrasent.types import Batch
from plain_loops import complex_cosine, cosine, loop, loop_cosent, loop_gist, loop_ranking, pairs


def vectors(encoder, tokens):
    """As lists of float64, without dropout."""
    with torch.no_grad(), encoder.dropout_off():
        return encoder(tokens).double().tolist()


def terms_of(name, load, batches, **parameters):
    objective = find(name)(load(dropout=0.0), **parameters).train()
    batch = batches(objective)
    rows = [vectors(objective.encoder, column) for column in batch.columns]
    return {k: v.item() for k, v in objective(batch).items()}, rows, batch


def test_cosent_and_angle(load, batches):
    terms, (a, b), batch = terms_of("angle", load, batches)
    cosines = [cosine(x, y) for x, y in zip(a, b, strict=True)]
    assert terms["cosine"] == pytest.approx(loop_cosent(cosines, batch.scores, 0.05), rel=1e-3)
    angles = [complex_cosine(x, y) for x, y in zip(a, b, strict=True)]
    assert terms["angle"] == pytest.approx(loop_cosent(angles, batch.scores, 1.0), rel=1e-4)
    one, _, _ = terms_of("cosent", load, batches)
    assert one["cosent"] == terms["cosine"]


def test_cosine_regression_and_its_unit(load, batches):
    terms, (a, b), batch = terms_of("cosine_regression", load, batches, highest_score=5.0)
    gaps = [cosine(x, y) - s / 5 for x, y, s in zip(a, b, batch.scores, strict=True)]
    assert terms["regression"] == pytest.approx(sum(g * g for g in gaps) / len(gaps), rel=1e-4)
    with pytest.raises(TrainingError, match=r"score 5 is above 2, .*set highest_score"):
        terms_of("cosine_regression", load, batches, highest_score=2.0)


def test_scores_are_wanted_where_they_are_used_and_only_there(load):
    graded, plain = find("cosent")(load()), find("simcse_supervised")(load())
    graded.check(2, scored=True)
    plain.check(2)
    for objective, width, scored in ((graded, 2, False), (graded, 3, True), (plain, 2, True)):
        with pytest.raises(TrainingError, match="learns from"):
            objective.check(width, scored=scored)
    tokens = graded.encoder.tokenize(TEXTS)[0]
    with pytest.raises(TrainingError, match="'cosent' needs a corpus with scores"):
        graded(Batch((tokens, tokens), np.arange(len(TEXTS)), 0))


@pytest.mark.parametrize(("names", "given", "message"), [
    ("cosent+simcse_supervised", {}, "treats every pair as a positive"),
    ("angle+dimension_wise", {}, "treats every pair as a positive"),
    ("cosent+barlow_twins", {"contrast_weight": 0.0}, "treats every pair as a positive"),
    ("gist+cosine_regression", {}, "treats every pair as a positive"),
    ("cosent+angle", {}, "the same loss of rated pairs"),
    ("matryoshka+gist", {"dimensions": "16,8"}, "gist has a loss of its own"),
    ("gist+matryoshka", {"dimensions": "16,8"}, "gist has a loss of its own"),
])  # fmt: skip
def test_what_cannot_be_added_up_is_rejected(load, guide, names, given, message):
    given = given | ({"guide": str(guide)} if "gist" in names else {})
    with pytest.raises(OptionError, match=message):
        find(names)(load(), **given)


def test_sums_of_different_losses(load, guide):
    assert find("cosent+angle")(load(), cosine_weight=0.0).terms.keys() >= {"cosent", "angle"}
    assert find("gist+simcse_supervised")(load(), guide=str(guide)).contrast


def test_gist_masks_by_the_guide(load, batches, guide):
    terms, (q, p, *hard), batch = terms_of(
        "gist", load, batches, guide=str(guide), temperature=0.5, margin=0.1
    )
    student = load(dropout=0.0)
    knows = Guide.load(str(guide), student)
    gq, gp, *ghard = (vectors(knows.encoder, column) for column in batch.columns)
    expected = loop_gist(q, p, hard, (gq, gp, *ghard), 0, len(q), 0.5, 0.1)
    assert terms["gist"] == pytest.approx(expected, rel=1e-4)
    unmasked = loop_gist(q, p, hard, (gq, gp, *ghard), 0, len(q), 0.5, -3.0)
    assert expected < unmasked
    assert len(hard) == 2


def test_ranking_distillation(load, batches, guide):
    terms, (q, p), batch = terms_of(
        "ranking_distillation", load, batches, guide=str(guide), projector="none"
    )
    knows = Guide.load(str(guide), load())
    gq, gp = (vectors(knows.encoder, column) for column in batch.columns)
    expected = loop_ranking(q, p, gq, gp, 0, 0.05, 0.025)
    assert terms["ranking"] == pytest.approx(expected, rel=1e-3)


def test_a_guide_of_another_tokenizer_reads_the_text(load, guide):
    student = load("roberta")
    knows = Guide.load(str(guide), student)
    tokens = student.tokenize(TEXTS)[0]
    texts = student.tokenizer.backend.decode_batch([tokens[i].tolist() for i in range(len(TEXTS))])
    (found,) = knows([tokens])
    assert torch.allclose(found, torch.from_numpy(knows.encoder.encode(texts)), atol=1e-6)
    same, rows = Guide.load(str(guide), load("bert")), []
    expected, read = torch.from_numpy(same.encoder.encode(TEXTS)), same.encoder._pool_block
    same.encoder._pool_block = lambda part: rows.append(len(part)) or read(part)
    same.student.mini_batch_size = 2  # holds for the guide too
    (found,) = same([load("bert").tokenize(TEXTS)[0]])
    assert torch.allclose(found, expected, atol=1e-6)
    assert max(rows) < len(TEXTS) == sum(rows)


def test_a_guide_that_cuts_later_is_given_the_same_ids(load, guide):
    student = load()
    tokens = student.tokenize(["the gardener sold \u2603 lamps"])[0]
    assert student.tokenizer.specials.unknown in tokens.ids  # which decoding leaves out
    for length in (24, 48):
        knows = Guide(TorchEncoder.load(guide, max_seq_length=length), student)
        assert torch.allclose(knows([tokens])[0], knows.encoder(tokens), atol=1e-6)


def test_a_guide_is_frozen_and_in_no_checkpoint(load, batches, guide):
    objective = find("gist")(load(), guide=str(guide), temperature=0.1).train()
    assert {k.split(".")[0] for k in objective.state_dict()} == {"encoder"}
    knows = objective.terms["gist"].guide.encoder
    before = {k: v.clone() for k, v in knows.state_dict().items()}
    objective.loss(objective(batches(objective))).backward()
    assert not knows.training and all(p.grad is None for p in knows.parameters())
    assert all(torch.equal(v, before[k]) for k, v in knows.state_dict().items())


def simcse(a, b, tau, size=None, **more):
    a, b = ([row[:size] for row in rows] for rows in (a, b))
    return loop(a, b, pairs(a, b, tau), tau=tau, **more)


def test_matryoshka_is_the_sum_over_the_sizes(load, batches, tmp_path):
    objective = find("matryoshka")(load(dropout=0.0), dimensions="8, 16").train()
    batch = batches(objective)
    a, b = (vectors(objective.encoder, column) for column in batch.columns)
    expected = sum(simcse(a, b, 0.05, size) for size in (8, 16, len(a[0])))
    assert objective(batch)["contrast"].item() == pytest.approx(expected, rel=1e-3)
    assert objective.encoder.matryoshka_dims == (32, 16, 8)
    objective.encoder.save(tmp_path / "m")
    assert type(objective.encoder).load(tmp_path / "m").matryoshka_dims == (32, 16, 8)


@pytest.mark.parametrize("given", ["", "a", "0,8", "32", "64,8"])
def test_sizes_that_cannot_be_are_rejected(load, given):
    large = "must be less than 32" if given in ("32", "64,8") else ""
    with pytest.raises(OptionError, match=f"dimensions.*{large}"):
        find("matryoshka")(load(), dimensions=given)


PROMPTS = [("bert", "", ""), ("bert", "a map ", "the "), ("bert", "", "a "),
           ("roberta", "a map ", "the ")]  # fmt: skip


@pytest.mark.parametrize(("kind", "query", "document"), PROMPTS)
def test_masked_duplicates(load, kind, query, document):
    texts = [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[4]]
    objective = find("simcse_supervised")(
        load(kind, dropout=0.0), duplicates="mask", temperature=0.5
    ).train()
    encoder = objective.encoder
    encoder.prompts = Prompts({"query": query, "document": document})
    others = [TEXTS[2], TEXTS[4], TEXTS[5], TEXTS[3]]  # the second's positive is the last's anchor
    columns = (encoder.tokenize(texts, query)[0], encoder.tokenize(others, document)[0])
    a, b = (vectors(objective.encoder, column) for column in columns)
    loss = objective(Batch(columns, np.arange(4), 0))["contrast"].item()
    shared = {(0, 2), (2, 0), (1, 3), (3, 1)}
    weights = [[float((i, j) not in shared) for j in range(4)] for i in range(4)]
    expected = simcse(a, b, 0.5, weights=weights)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert loss != pytest.approx(simcse(a, b, 0.5), rel=1e-2)
    # A hard negative that is the positive of its own row is none either.
    hard = (*columns, encoder.tokenize([TEXTS[2], *others[1:]], document)[0])
    again = objective(Batch(hard, np.arange(4), 0))["contrast"].item()
    # Hard negatives equal their rows' positives; that of the last row is no other row's text.
    for i, row in enumerate(weights):
        row += [float(others[j] not in (texts[i], others[i])) for j in range(4)]
    expected = simcse(a, b, 0.5, weights=weights, hard=[[row] for row in b])
    assert again == pytest.approx(expected, rel=1e-4)
    # Texts are equal that were so before a view rewrote them.
    edited = encoder.tokenize([f"{text} {'map ' * i}" for i, text in enumerate(texts)], query)[0]
    made = objective(Batch((edited, columns[1]), np.arange(4), 0, unedited=columns))["contrast"]
    whole = simcse(vectors(encoder, edited), b, 0.5, weights=[row[:4] for row in weights])
    assert made.item() == pytest.approx(whole, rel=1e-4)
