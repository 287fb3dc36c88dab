"""DiffCSE: edits, generator, discriminator and its tasks, against plain loops row by row."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.encodings import BatchEncodings, delete_tokens, insert_masks, mask_tokens
from contrasent.engine.masked_models import MaskedModel
from contrasent.engine.registry import find
from contrasent.errors import ModelError
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens
from tiny_models import KINDS, write_backbone, write_tokenizer


def made(load, masked, kind="bert", *, dropout=0.0, **given):
    torch.manual_seed(3)
    if "generator" not in given:
        given["generator"] = str(masked[kind])
    return find("diffcse")(load(kind, dropout=dropout), **given).train()


@dataclass
class Edit:
    """Edited rows as the discriminator reads them, in the order of the sentences."""

    tokens: Tokens
    labels: np.ndarray
    condition: torch.Tensor


DRAWN = {"replace": mask_tokens, "insert": insert_masks, "delete": delete_tokens}


def edits_of(objective, batch, kinds=("replace",)):
    """The terms of a batch, and what of each kind the discriminator reads for them."""
    term, rows = objective.terms["difference"], []
    hook = term.discriminator.register_forward_pre_hook(
        lambda _, read: rows.extend((read[0][i], read[1][i]) for i in range(len(read[0])))
    )
    found = objective(batch)
    hook.remove()
    step = BatchEncodings(objective, batch)
    vectors, tokenizer = torch.cat(step.noisy), objective.encoder.tokenizer
    edits, count = [], len(vectors)
    for k, kind in enumerate(kinds):
        own = rows[k * count : (k + 1) * count]
        # Rows of one length are read together: a row belongs to the sentence of its condition,
        # which without dropout both views share; the first view stands first.
        near = torch.stack([(vectors[: count // 2] - c).norm(dim=1).argmin() for _, c in own])
        own = [own[at] for view in (0, 1) for at in near.argsort(stable=True)[view::2]]
        ratio = term.mask_ratio if kind == "replace" else term.edit_ratio
        labels = [
            DRAWN[kind](column, ratio, tokenizer, step.generators(term, 8 * k + c)).labels
            for c, column in enumerate(batch.columns[:2])
        ]
        tokens, condition = Tokens.from_rows([ids for ids, _ in own]), [c for _, c in own]
        edits.append(Edit(tokens, np.concatenate(labels), torch.stack(condition)))
    return found, *edits


def log_softmax(scores):
    top = max(scores)
    return [s - top - math.log(sum(math.exp(x - top) for x in scores)) for s in scores]


def read_rows(objective, edit):
    """Discriminator's vectors of each row alone, without any padding."""
    term = objective.terms["difference"]
    return [
        term.discriminator(edit.tokens.select(np.asarray([i])), edit.condition[i : i + 1])[0][0]
        for i in range(len(edit.tokens))
    ]


DETECTED = [(kind, "replace", way) for kind in KINDS for way in ("mean_tokens", "sum")]
DETECTED += [("bert", edits, "sum") for edits in ("insert", "delete", "all")]


@pytest.mark.parametrize(("kind", "edits", "normalization"), DETECTED)
def test_detection_is_cross_entropy_at_every_token(
    load, masked, batches, kind, edits, normalization
):
    more = {} if edits == "replace" else {"edits": edits, "edit_ratio": 0.4}
    objective = made(load, masked, kind, normalization=normalization, **more)
    batch = batches(objective)
    term, total, tokens, shares = objective.terms["difference"], 0.0, 0, []
    kinds = ("replace", "insert", "delete") if edits == "all" else (edits,)
    found, *own = edits_of(objective, batch, kinds)
    whole = Tokens.concatenate(batch.columns).ids
    for name, edit in zip(kinds, own, strict=True):
        labels = edit.tokens.ids != whole if name == "replace" else edit.labels > 0
        for i, vectors in enumerate(read_rows(objective, edit)):
            start, stop = int(edit.tokens.offsets[i]), int(edit.tokens.offsets[i + 1])
            rows = term.detect[name](vectors).double().tolist()
            for scores, label in zip(rows, labels[start:stop].tolist(), strict=True):
                total -= log_softmax(scores)[label]
        tokens, shares = tokens + len(labels), [*shares, labels.mean()]
    expected = total if normalization == "sum" else total / tokens
    assert found["difference"].item() == pytest.approx(expected, rel=1e-4)
    assert 0 < min(shares) <= max(shares) < 1
    assert set(term.detect) == set(kinds)
    assert found["changed_share"].item() == pytest.approx(np.mean(shares), rel=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_the_released_mean_counts_padding_as_original(load, masked, batches, kind):
    objective = made(load, masked, kind)
    batch = batches(objective)
    terms, edit = edits_of(objective, batch)
    originals = Tokens.concatenate(batch.columns)
    term = objective.terms["difference"]
    ids, mask = edit.tokens.pad(objective.encoder.tokenizer.specials.pad)
    true, _ = originals.pad(objective.encoder.tokenizer.specials.pad)
    hidden = term.discriminator.reader.backbone(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(mask).long(),
        condition=edit.condition,
    ).last_hidden_state
    scores = term.detect["replace"](hidden).double().tolist()
    total, count = 0.0, 0
    for i in range(len(ids)):
        for t in range(ids.shape[1]):
            changed = int(mask[i, t] and ids[i, t] != true[i, t])
            total -= log_softmax(scores[i][t])[changed]
            count += 1
    assert not mask.all()
    assert terms["difference"].item() == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize(
    "given", [{}, {"normalization": "mean_tokens"}, {"edits": "all"}, {"task": "corrective"}]
)
def test_padding_that_a_device_adds_counts_for_nothing(load, masked, batches, given):
    """Where shapes are bucketed blocks are padded to multiples of 8, beyond the longest row."""
    terms = []
    for bucketed in (False, True):
        objective = made(load, masked, language_head=str(masked["bert"]), **given)
        reader = objective.terms["difference"].discriminator.reader
        reader.bucketed = bucketed
        batch = batches(objective, part=[0, 2, 4, 5])
        widths = []
        hook = reader.backbone.register_forward_pre_hook(
            lambda module, given, named, widths=widths: widths.append(named["input_ids"].shape[1]),
            with_kwargs=True,
        )
        terms.append(objective(batch))
        hook.remove()
        assert all(width % 8 == 0 for width in widths) == bucketed
    for key, value in terms[0].items():
        assert terms[1][key].item() == pytest.approx(value.item(), rel=1e-5), key


def test_condition_takes_the_first_tokens_place_and_its_gradient_returns(load, masked, batches):
    objective = made(load, masked)
    batch = batches(objective)
    _, edit = edits_of(objective, batch)
    condition = edit.condition.detach().requires_grad_()
    reader = objective.terms["difference"].discriminator
    row = edit.tokens.select(np.asarray([0]))
    one = reader(row, condition[:1])[0]
    other_first = row.ids.copy()
    other_first[0] = 7
    two = reader(Tokens(other_first, row.offsets), condition[:1])[0]
    assert torch.equal(one, two), "the first token is still read"
    three = reader(row, condition[1:2] + 1)[0]
    assert not torch.allclose(one, three)
    one.sum().backward()
    assert condition.grad[0].abs().sum() > 0


def test_both_conditions_reach_the_encoder(load, masked, batches):
    for condition in ("projected", "pooled"):
        objective = made(load, masked, condition=condition, contrast_weight=0.0)
        objective.loss(objective(batches(objective))).backward()
        gradients = [p.grad for p in objective.encoder.parameters()]
        assert all(g is not None for g in gradients)
        used = [p.grad is not None for p in objective.projector.parameters()]
        assert all(used) if condition == "projected" else not any(used)


def test_lambda_zero_is_simcse_and_needs_no_generator(load, batches):
    torch.manual_seed(3)
    bare = find("diffcse")(load("bert"), difference_weight=0.0).train()
    torch.manual_seed(3)
    plain = find("simcse")(load("bert"), projector="batchnorm").train()
    values = []
    for objective in (bare, plain):
        torch.manual_seed(50)
        values.append(objective.loss(objective(batches(objective))))
    assert torch.equal(*values)


@pytest.mark.parametrize("positions", ["all", "masked"])
def test_the_generator_replaces_where_it_should(load, masked, batches, positions):
    objective = made(load, masked, generator_positions=positions, mask_ratio=0.5)
    batch = batches(objective)
    _, edit = edits_of(objective, batch)
    whole = Tokens.concatenate(batch.columns[:2])
    chosen = edit.labels >= 0
    first = np.zeros(len(chosen), dtype=bool)
    first[whole.offsets[:-1]] = True
    assert np.array_equal(edit.tokens.ids[first], whole.ids[first])
    outside = ~chosen & ~first
    changed = edit.tokens.ids != whole.ids
    assert changed[outside].any() == (positions == "all")
    assert changed[chosen].any()


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_those_of_the_model_alone(load, masked, kind):
    from transformers import AutoModelForMaskedLM

    objective = made(load, masked, kind, dropout=0.1)
    generator = objective.terms["difference"].generator
    model = AutoModelForMaskedLM.from_pretrained(masked[kind]).eval()
    tokens, _ = objective.encoder.tokenizer(["two blue lamps", "an old sailor hid his violin"])
    where = np.ones(len(tokens.ids), dtype=bool)
    where[3] = False
    found = generator.predict(tokens, where)
    for i in range(2):
        row = torch.from_numpy(tokens[i].astype(np.int64))[None]
        best = model(input_ids=row).logits[0].argmax(-1).numpy()
        start = int(tokens.offsets[i])
        for t in range(row.shape[1]):
            expected = best[t] if where[start + t] else tokens.ids[start + t]
            assert found[start + t] == expected


def test_the_guesses_of_a_row_do_not_depend_on_those_beside_it(tmp_path):
    """By MobileBERT, which sees the padding behind a token."""
    write_backbone("mobilebert", tmp_path, write_tokenizer("mobilebert", tmp_path))
    model = transformers.MobileBertForMaskedLM.from_pretrained(tmp_path)
    filler = MaskedModel(model, Tokenizer.load(tmp_path, max_seq_length=16))
    rows, places = [np.arange(20, 23), np.arange(20, 29)], [np.array([2])] * 2
    for row, together in zip(rows, filler.fill(rows, places), strict=True):
        assert np.allclose(filler.fill([row], places[:1]), together, atol=1e-5)


def test_sampling_follows_the_generators_distribution(load, masked):
    objective = made(load, masked, generator_draw="sample")
    generator = objective.terms["difference"].generator
    tokens, _ = objective.encoder.tokenizer(["two blue lamps"] * 600)
    where = np.zeros(len(tokens.ids), dtype=bool)
    where[tokens.offsets[:-1] + 2] = True
    randoms = [np.random.default_rng(k) for k in range(600)]
    found = generator.predict(tokens, where, randoms=randoms)[tokens.offsets[:-1] + 2]
    row = torch.from_numpy(tokens[0].astype(np.int64))[None]
    shares = generator.model(input_ids=row).logits[0, 2].softmax(-1)
    counts = np.bincount(found, minlength=len(shares)) / 600
    assert np.abs(counts - shares.numpy()).max() < 0.06
    again = generator.predict(tokens, where, randoms=[np.random.default_rng(k) for k in range(600)])
    assert np.array_equal(found, again[tokens.offsets[:-1] + 2])


def test_generator_is_in_evaluation_mode_unless_asked(load, masked):
    for requested in (False, True):
        objective = made(load, masked, dropout=0.1, generator_dropout=requested)
        objective.eval()
        objective.train()
        generator = objective.terms["difference"].generator
        assert {m.training for m in generator.modules()} == {requested}
        assert not any(p.requires_grad for p in generator.parameters())
        tokens, _ = objective.encoder.tokenizer(["two blue lamps and an old sailor"] * 8)
        where = np.ones(len(tokens.ids), dtype=bool)
        rows = generator.predict(tokens, where).reshape(8, -1)
        assert (len({tuple(r) for r in rows.tolist()}) > 1) == requested


@pytest.mark.parametrize("target", ["same", "next", "both"])
@pytest.mark.parametrize("task", ["detection", "masked_lm", "corrective"])
def test_every_task_on_every_target_learns(load, masked, batches, task, target):
    generator = {} if task != "masked_lm" else {"generator": None}
    objective = made(
        load, masked, task=task, target=target, language_head=str(masked["bert"]), **generator
    )
    batch = batches(objective)
    assert len(batch.columns) == (2 if target == "same" else 3)
    terms = objective(batch)
    objective.loss(terms).backward()
    assert terms["difference"].item() > 0
    assert all(p.grad is not None for p in objective.parameters() if p.requires_grad)


def test_conditional_masked_lm_is_cross_entropy_of_the_masked(load, masked, batches):
    objective = made(
        load, masked, task="masked_lm", generator=None, language_head=str(masked["bert"])
    )
    batch = batches(objective)
    terms, edit = edits_of(objective, batch)
    truth = Tokens.concatenate(batch.columns).ids
    term, total, count = objective.terms["difference"], 0.0, 0
    for i, vectors in enumerate(read_rows(objective, edit)):
        labels = edit.labels[int(edit.tokens.offsets[i]) : int(edit.tokens.offsets[i + 1])]
        scores = term.language(vectors).double().tolist()
        for t, label in enumerate(labels.tolist()):
            if label >= 0:
                total -= log_softmax(scores[t])[label]
                count += 1
                assert truth[int(edit.tokens.offsets[i]) + t] == label
    assert count > 5
    assert terms["difference"].item() == pytest.approx(total / count, rel=1e-4)


def test_corrective_lm_over_all_rows(load, masked, batches):
    objective = made(load, masked, task="corrective", language_head=str(masked["bert"]))
    batch = batches(objective)
    terms, edit = edits_of(objective, batch)
    whole = Tokens.concatenate(batch.columns)
    chosen = edit.labels >= 0
    assert np.array_equal(edit.tokens.ids[~chosen], whole.ids[~chosen])
    term, total, tokens = objective.terms["difference"], 0.0, 0
    for i, vectors in enumerate(read_rows(objective, edit)):
        start = int(edit.tokens.offsets[i])
        scores = term.language(vectors).double().tolist()
        copying = term.copy(vectors).double().squeeze(1).tolist()
        for t in range(len(vectors)):
            p = 1 / (1 + math.exp(-copying[t]))
            same = edit.tokens.ids[start + t] == whole.ids[start + t]
            total -= 50 * math.log(p if same else 1 - p)
            if chosen[start + t]:
                guess = math.exp(log_softmax(scores[t])[whole.ids[start + t]])
                total -= math.log((p if same else 0.0) + (1 - p) * guess)
            tokens += 1
    assert terms["difference"].item() == pytest.approx(total / tokens, rel=1e-4)


def test_a_head_of_another_size_cannot_be_a_condition(load, masked):
    from contrasent.encoder.heads import Dense

    encoder = load("bert")
    encoder.head = Dense(32, 8, torch.nn.Tanh())
    with pytest.raises(ModelError, match="hidden size 32"):
        find("diffcse")(encoder, generator=str(masked["bert"]), projector="none")


@pytest.mark.parametrize("given", [{}, {"task": "corrective", "language_head": "new"}])
def test_embeddings_that_are_narrower_than_the_hidden_states(tmp_path, batches, given):
    """ALBERT has a layer between both; the vector replaces what comes out of it."""
    config = transformers.AlbertConfig(
        vocab_size=write_tokenizer("albert", tmp_path), embedding_size=32, hidden_size=24,
        num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(3)
    transformers.AlbertForMaskedLM(config).save_pretrained(tmp_path)
    encoder = TorchEncoder.load(tmp_path, pooling="cls", max_seq_length=24)
    objective = find("diffcse")(encoder, generator=str(tmp_path), **given).train()
    batch = batches(objective)
    _, edit = edits_of(objective, batch)
    condition = edit.condition.detach().requires_grad_()
    edit.condition = condition
    rows = read_rows(objective, edit)
    sum(vectors[:, 0].sum() for vectors in rows).backward()
    assert condition.grad.abs().sum(1).min() > 0
    loss = objective(batch)["difference"]
    loss.backward()
    assert torch.isfinite(loss)
