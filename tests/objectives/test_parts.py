"""The parts that objectives are made of: queue, masks, masked-LM heads, checks, parameters."""

import copy
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine import difference, encodings, masked_models, registry
from contrasent.engine.combination import Combination, merge
from contrasent.engine.contrast import Contrast
from contrasent.engine.masked_models import LanguageHead
from contrasent.engine.registry import find, parameters
from contrasent.errors import ModelError, OptionError, TrainingError
from contrasent.losses import info_nce
from contrasent.train.method_checks import with_small_models
from contrasent.train.prepare import configure
from contrasent.train.settings import Settings
from contrasent.types import Batch, Tokens
from plain_loops import standardized
from tiny_models import KINDS

TEXTS = ["an old sailor hid a torn map", "my neighbor", "the gardener sold two blue lamps"] * 40


def test_momentum_encoder_equals_the_encoder_at_step_0(load):
    objective = find("esimcse")(load())
    own = dict(objective.queue.momentum_encoder.named_parameters())
    theirs = dict(objective.encoder.named_parameters())
    assert own.keys() == theirs.keys() and len(own) > 30
    for name, value in own.items():
        assert torch.equal(value, theirs[name]) and value is not theirs[name]
        assert not value.requires_grad
    assert objective.queue.negatives() is None


def test_random_momentum_start_is_an_option_by_name(load):
    torch.manual_seed(0)
    objective = find("esimcse")(load(), momentum_init="random")
    own = objective.queue.momentum_encoder.state_dict()
    theirs = objective.encoder.state_dict()
    matrices = [k for k, v in own.items() if v.dim() == 2 and v.is_floating_point()]
    assert len(matrices) > 10
    assert not any(torch.equal(own[k], theirs[k]) for k in matrices)


def test_momentum_keeps_dropout_off_and_draws_nothing(load, batches):
    objective = find("esimcse")(load(dropout=0.3), queue_size=6).train()
    held = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        objective(batches(objective))
        held.append(objective.queue._waiting.pop())
    assert torch.equal(*held)
    assert not held[0].requires_grad
    assert all(module.training for module in objective.modules())


def test_evaluation_leaves_the_queue_alone(load, batches):
    objective = find("esimcse")(load(), queue_size=6).eval()
    with torch.no_grad():
        objective(batches(objective))
    objective.after_step()
    assert objective.queue.negatives() is None


def mean_cosine(rows):
    """Of all pairs of different rows."""
    unit = torch.nn.functional.normalize(rows.double(), dim=1)
    cosines = unit @ unit.T
    return (cosines.sum() - cosines.trace()).item() / (len(rows) * (len(rows) - 1))


def test_batch_normalized_queue_rows_are_standardized_by_themselves(load, batches):
    objective = find("esimcse")(load(dropout=0.0), projector="batchnorm", queue_size=6).train()
    twin = copy.deepcopy(objective)
    twin.queue = None
    batch = batches(objective)
    objective(batch)
    objective.after_step()
    twin(batch)
    names = dict(objective.projector.named_buffers())
    assert len(names) == 6
    for name, buffer in twin.projector.named_buffers():
        assert torch.equal(names[name], buffer), name
    assert all(m.training and getattr(m, "track_running_stats", True) for m in objective.modules())

    one, first, _, two, second = objective.projector
    pooled = objective.encoder(batch.columns[0]).detach().double()

    def standard(rows, epsilon):
        columns = [standardized(column, epsilon) for column in rows.T.tolist()]
        return torch.tensor(columns, dtype=torch.float64).T

    inner = standard(pooled @ one.weight.double().T, first.eps) * first.weight + first.bias
    expected = standard(inner.clamp_min(0) @ two.weight.double().T, second.eps)
    assert torch.allclose(objective.queue.negatives().double(), expected, atol=1e-4)
    # Columns of mean 0: the cosines of n rows are about -1 / (n - 1), and not near 1.
    assert mean_cosine(objective.queue.negatives()) < 0.1


def test_a_batch_of_one_row_has_no_statistics_and_stays_out_of_the_queue(load, batches):
    for projector, rows in (("batchnorm", 0), ("tanh", 1)):
        objective = find("esimcse")(load(), projector=projector, queue_size=6).train()
        objective(batches(objective, part=slice(0, 1)))
        objective.after_step()
        assert int(objective.queue.filled) == rows


def test_the_momentum_copy_follows_in_its_buffers_too(load, batches):
    """A head with batch normalization inside the encoder, which is copied with it."""
    objective = find("esimcse")(load(head="batchnorm"), queue_size=18, projector="none").train()
    with torch.no_grad():
        for step in range(3):
            objective(batches(objective, step))
            objective.after_step()
    theirs = dict(objective.encoder.named_buffers())
    assert sum("running_var" in name for name in theirs) == 2
    for name, buffer in objective.queue.momentum_encoder.named_buffers():
        assert torch.equal(buffer, theirs[name]), name
    moved = theirs["head.1.running_mean"]
    assert moved.abs().max() > 0
    assert mean_cosine(objective.queue.negatives()) < 0.3


def test_a_head_standardizes_by_the_batch_without_dropout_too(load, batches):
    objective = find("simcse_plus_plus")(load(head="batchnorm", dropout=0.0)).train()
    made = encodings.BatchEncodings(objective, batches(objective))
    assert torch.allclose(made.clean[0], made.noisy[0], atol=1e-5)
    assert all(module.training for module in objective.modules())


def test_queue_with_hard_negatives_and_masked_lm_keeps_them_all(load, batches, masked):
    """The released code drops both silently as soon as the queue is not empty."""
    torch.manual_seed(0)
    objective = find("simcse_supervised+esimcse+masked_lm")(
        load(dropout=0.0), language_head=str(masked["bert"]), queue_size=6, projector="none"
    ).train()
    objective(batches(objective))
    objective.after_step()
    batch = batches(objective)
    vectors = [objective.encoder(column) for column in batch.columns]
    more = {"hard_negatives": torch.stack(vectors[2:], dim=1)}
    expected = info_nce(*vectors[:2], **more, extra_negatives=objective.queue.negatives())
    terms = objective(batch)
    assert terms["contrast"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert terms["masked_lm"].item() > 0
    assert set(objective.weights) == {"contrast", "masked_lm"}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_masking_follows_80_10_10_and_spares_special_tokens(load, kind):
    tokenizer = load(kind).tokenizer
    tokens, _ = tokenizer(TEXTS * 20)
    before = tokens.ids.copy()
    batch = Batch((tokens,), np.arange(len(tokens)), 3)
    edited = encodings.mask_tokens(tokens, 0.3, tokenizer, encodings.generators(batch, 0))
    assert np.array_equal(tokens.ids, before), "the input was changed"
    special = np.isin(before, sorted(tokenizer.specials.all))
    chosen = edited.labels >= 0
    assert special.sum() == 2 * len(tokens)
    assert not (chosen & special).any()
    assert np.array_equal(edited.labels[chosen], before[chosen])
    assert np.array_equal(edited.tokens.ids[~chosen], before[~chosen])
    assert chosen.sum() / (~special).sum() == pytest.approx(0.3, abs=0.02)
    new = edited.tokens.ids[chosen]
    assert np.mean(new == tokenizer.specials.mask) == pytest.approx(0.8, abs=0.02)
    assert np.mean(new == before[chosen]) == pytest.approx(0.1, abs=0.02)


def test_masks_depend_on_row_step_and_column_not_on_the_process(load):
    tokenizer = load().tokenizer
    tokens, _ = tokenizer(TEXTS)

    def masked(rows, step, column):
        batch = Batch((tokens.select(rows),), rows, step)
        randoms = encodings.generators(batch, column)
        return encodings.mask_tokens(batch.columns[0], 0.4, tokenizer, randoms)

    rows = np.arange(120)
    whole = masked(rows, 7, 0)
    halves = [masked(part, 7, 0) for part in (rows[:60], rows[60:])]
    assert np.array_equal(whole.tokens.ids, Tokens.concatenate([h.tokens for h in halves]).ids)
    for step, column in ((8, 0), (7, 1)):
        assert not np.array_equal(masked(rows, step, column).labels, whole.labels)
    tokens, _ = tokenizer([TEXTS[2]] * 40)  # equal rows have masks of their own
    edited = masked(np.arange(40), 7, 0)
    labels = Tokens(edited.labels, edited.tokens.offsets)
    assert len({tuple(labels[i].tolist()) for i in range(40)}) > 20


def test_two_terms_that_mask_do_not_mask_the_same(load, masked, batches, monkeypatch):
    chosen = {}
    mask = encodings.mask_tokens

    def spied(tokens, ratio, *rest):
        edited = mask(tokens, ratio, *rest)
        chosen.setdefault(ratio, []).append(edited.labels >= 0)
        return edited

    for module in (masked_models, difference):
        monkeypatch.setattr(module, "mask_tokens", spied)
    model = str(masked["bert"])

    def masks(name):
        chosen.clear()
        given = {"language_head": model} if "masked_lm" in name else {}
        if "diffcse" in name:
            given |= {"generator": model, "mask_ratio": 0.3}
        objective = find(name)(load(), **given).train()
        # One ratio would be shared in a combination; two tell who masks.
        if "masked_lm" in name:
            objective.terms["masked_lm"].mask_ratio = 0.5
        objective(batches(objective))
        return {ratio: np.concatenate(parts) for ratio, parts in chosen.items()}

    alone = masks("diffcse") | masks("masked_lm")
    assert alone.keys() == {0.3, 0.5}
    # From one stream the smaller share would lie within the larger.
    assert not (alone[0.3] & ~alone[0.5]).any()
    for name, same in (("diffcse+masked_lm", 0.3), ("masked_lm+diffcse", 0.5)):
        both = masks(name)
        assert np.array_equal(both[same], alone[same])
        assert (both[0.3] & ~both[0.5]).sum() > 3
        assert (both[0.3] & both[0.5]).any()


def test_inserted_masks_are_marked_and_stand_inside(load):
    tokenizer = load().tokenizer
    tokens, _ = tokenizer(TEXTS)
    batch = Batch((tokens,), np.arange(len(tokens)), 0)
    edited = encodings.insert_masks(tokens, 0.15, tokenizer, encodings.generators(batch, 0))
    marks = Tokens(edited.labels, edited.tokens.offsets)
    for i in range(len(tokens)):
        new, where = edited.tokens[i], marks[i].astype(bool)
        assert np.array_equal(new[~where], tokens[i])
        assert (new[where] == tokenizer.specials.mask).all()
        assert where.sum() == int((len(tokens[i]) - 2) * 0.15 + 0.5)
        assert not where[0] and not where[-1]


def places(part, ids, start):
    """All ways to find a part in a sequence, in order: the places of its elements."""
    if not part:
        yield ()
        return
    for k in range(start, len(ids) - 1):
        if ids[k] == part[0]:
            yield from ((k, *rest) for rest in places(part[1:], ids, k + 1))


def test_a_token_is_marked_if_the_one_before_it_was_deleted(load):
    tokenizer = load().tokenizer
    tokens, _ = tokenizer(TEXTS)
    batch = Batch((tokens,), np.arange(len(tokens)), 0)
    edited = encodings.delete_tokens(tokens, 0.4, tokenizer, encodings.generators(batch, 0))
    marks = Tokens(edited.labels, edited.tokens.offsets)
    for i in range(len(tokens)):
        ids, new, label = tokens[i].tolist(), edited.tokens[i].tolist(), marks[i].tolist()
        gone = len(ids) - len(new)
        assert gone == min(int((len(ids) - 2) * 0.4 + 0.5), len(ids) - 3)
        assert new[0] == ids[0] and new[-1] == ids[-1]
        marked = []
        for keep in places(new[1:-1], ids, 1):
            whole = [0, *keep, len(ids) - 1]
            marked.append([0] + [int(b - a > 1) for a, b in itertools.pairwise(whole)])
        assert label in marked


@pytest.mark.parametrize("kind", KINDS)
def test_language_head_is_the_checkpoints_own(masked, kind):
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained(masked[kind]).eval()
    encoder = TorchEncoder.load(masked[kind], pooling="cls", max_seq_length=24)
    head = LanguageHead.load(str(masked[kind]), encoder).eval()
    tokens, _ = encoder.tokenizer(["an old sailor hid a torn map"])
    hidden, _, _ = encoder.hidden(tokens)
    ids = torch.from_numpy(tokens.ids.astype(np.int64))[None]
    assert torch.allclose(head(hidden[-1][0]), model(input_ids=ids).logits[0], atol=1e-4)
    body = {id(p) for p in encoder.parameters()}
    assert not any(id(p) in body for p in head.parameters())
    assert head(hidden[-1][0, :0]).shape == (0, model.config.vocab_size)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_head_starts_from_the_embeddings(load, kind):
    encoder = load(kind)
    head = LanguageHead.load("new", encoder)
    output = head.model.get_output_embeddings().weight
    assert torch.equal(output, encoder.backbone.get_input_embeddings().weight)
    assert output is not encoder.backbone.get_input_embeddings().weight
    copy.deepcopy(head)


def test_a_checkpoint_without_a_head_is_rejected(load, tiny, masked):
    with pytest.raises(ModelError, match="has no masked-LM head"):
        LanguageHead.load(str(tiny["bert"]), load())
    with pytest.raises(ModelError, match="does not match"):
        LanguageHead.load(str(masked["roberta"]), load())


@pytest.mark.parametrize(("objective", "given", "message"), [
    ("simcse", {"temperature": 0.0}, "temperature 0.0: must be greater than 0"),
    ("simcse", {"similarity": "cosin"}, "did you mean 'cosine'"),
    ("simcse", {"symmetric": 1}, "symmetric 1: must be of type bool"),
    ("simcse", {"temperature": float("nan")}, "temperature nan: must be greater than 0"),
    ("simcse", {"percent": 10}, "does not belong to the view 'dropout'"),
    ("simcse", {"view": "crop", "rate": 0.3}, "which takes percent"),
    ("simcse", {"view": "masked_lm"}, "filler '': the view 'masked_lm' needs"),
    ("simcse", {"encoders": 3}, "encoders 3: unknown value; one of 1, 2"),
    ("simcse", {"masks": "fixed", "view": "crop"}, "masks 'fixed': .*set view to 'dropout'"),
    ("simcse", {"masks": "fixed", "encoders": 2}, "set encoders to 1"),
    ("esimcse", {"momentum": 1.0}, "momentum 1.0"),
    ("esimcse", {"queue_size": -1}, "queue_size -1"),
    ("esimcse", {"momentum_init": "none"}, "one of copy, random"),
    ("simcse_plus_plus", {"factor": 0.0}, "factor 0.0"),
    ("simcse_plus_plus", {"dimension_weight": -0.1}, "dimension_weight -0.1"),
    ("simcse_noise", {"passes": 0}, "passes 0"),
    ("barlow_twins", {"artificial": -5}, "artificial -5"),
    ("masked_lm", {"mask_ratio": 0.0}, "mask_ratio 0.0"),
    ("diffcse", {}, "generator '': needs a masked language model"),
    ("diffcse", {"contrast_weight": 0.0, "difference_weight": 0.0}, "nothing to train"),
    ("diffcse", {"task": "masked_lm", "edits": "delete"}, "needs task 'detection'"),
    ("simcse_noise+simcse_plus_plus", {}, "set negatives"),
    ("simcse+matryoshka", {}, "set projector=none"),
    ("simcse_copies", {}, "copy_filler '': needs a masked language model"),
    ("simcse_copies", {"copy_edit": "insert", "copy_draw": "sample"}, "copy_draw 'sample': needs"),
    ("simcse_copies", {"copy_edit": "delete", "copy_filler": "x"}, "copy_filler 'x': .*, not del"),
    ("simcse_supervised", {"loss": "sigmoid", "hardness": 0.5}, "hardness and debias must be 0"),
    ("simcse", {"debias": 0.1, "similarity": "dot"}, "debias 0.1: needs the cosine"),
    ("gist", {}, "guide '': needs a sentence encoder"),
])  # fmt: skip
def test_values_are_rejected_before_anything_is_loaded(objective, given, message):
    with pytest.raises(OptionError, match=message) as caught:
        registry.check(objective, given)
    assert "\n" not in str(caught.value)


def test_weights_of_which_all_are_0_are_rejected(load, masked):
    objective = find("barlow_twins")(load(), contrast_weight=0.0, barlow_weight=0.0)
    message = "contrast_weight and barlow_weight 0: at least one weight must be above 0"
    with pytest.raises(OptionError, match=message):
        configure(objective, Settings())
    objective = find("masked_lm")(load(), masked_lm_weight=0.0, language_head=str(masked["bert"]))
    with pytest.raises(OptionError, match="masked_lm_weight 0: at least one weight"):
        configure(objective, Settings())


def test_a_generator_is_checked_before_anything_is_loaded(tiny, masked):
    registry.check("diffcse", {"generator": str(masked["bert"])}, base=tiny["bert"])
    with pytest.raises(ModelError, match="is not the encoder's"):
        registry.check("diffcse", {"generator": str(masked["roberta"])}, base=tiny["bert"])
    filler = {"view": "masked_lm", "filler": str(masked["roberta"])}
    with pytest.raises(ModelError, match="is not the encoder's"):
        registry.check("simcse", filler, base=tiny["bert"])
    with pytest.raises(ModelError, match="is not the encoder's"):
        registry.check("simcse_copies", {"copy_filler": filler["filler"]}, base=tiny["bert"])


def test_the_check_of_a_method_brings_the_model_that_its_copies_need(tmp_path):
    assert with_small_models("simcse_copies", {}, tmp_path) == {"copy_filler": str(tmp_path)}
    given = {"copy_edit": "delete"}
    assert with_small_models("simcse_copies", given, tmp_path) == given


def test_constructors_check_too(load, tiny):
    with pytest.raises(OptionError):
        find("simcse")(load(), temperature=-1.0)
    with pytest.raises(OptionError, match="set encoders to 1"):
        find("simcse")(load(), masks="fixed", encoders=2)
    registry.check("matryoshka+simcse", {})
    with pytest.raises(ModelError, match="a guide must define its pooling"):
        registry.check("ranking_distillation", {"guide": str(tiny["bert"])})


def test_a_corpus_that_does_not_fit_is_rejected(load):
    objective = find("simcse")(load(), view="next_sentence", reach=3)
    with pytest.raises(TrainingError, match="document order"):
        objective.check(1)
    objective.check(1, ordered=True)
    with pytest.raises(TrainingError, match="pairs"):
        find("simcse_supervised")(load()).check(1)
    with pytest.raises(TrainingError, match="2 columns"):
        find("simcse")(load()).check(2)


def test_contrasts_merge_by_what_departs_from_the_plain_one():
    merged = merge([Contrast(alpha=0.5), Contrast(negatives="off_dropout", factor=0.9)])
    assert merged == Contrast(alpha=0.5, negatives="off_dropout", factor=0.9)
    with pytest.raises(OptionError, match="symmetric"):
        Contrast(symmetric=True, negatives="off_dropout")
    with pytest.raises(OptionError, match=r"temperature .* differ \(0\.1 and 0\.2"):
        merge([Contrast(temperature=0.1), Contrast(temperature=0.2)])
    with pytest.raises(OptionError, match="not defined with loss 'sigmoid'"):
        merge([Contrast(loss="sigmoid"), Contrast(factor=0.9, factor_form="negative_sum")])


@dataclass(frozen=True, kw_only=True)
class Doubled(Contrast):
    times: float = 2.0

    def __call__(self, step):
        terms = super().__call__(step)
        return terms | {"contrast": self.times * terms["contrast"]}


class Halved(Contrast):
    pass


def test_a_methods_own_contrast_is_kept_in_a_combination_or_rejected(load, batches):
    merged = merge([Contrast(alpha=0.5), Doubled(times=3.0), Contrast(factor=0.9)])
    assert merged == Doubled(alpha=0.5, times=3.0, factor=0.9)
    assert merge([Doubled(), Contrast()]) == Doubled()
    with pytest.raises(OptionError, match=r"Doubled and Halved.*different kinds"):
        merge([Doubled(), Halved()])
    plain = find("simcse")(load(dropout=0.0)).train()
    doubled = find("simcse")(load(dropout=0.0)).train()
    doubled.contrast = Doubled()
    doubled.projector = plain.projector
    parts = [doubled, find("dimension_wise")(load())]
    both = Combination(load(dropout=0.0), parts, {"name": "both"}).train()
    single = plain(batches(plain))["contrast"].item()
    assert both(batches(both))["contrast"].item() == pytest.approx(2 * single, rel=1e-5)


@pytest.mark.parametrize("own", ["forward", "loss", "optimizer", "after_step"])
def test_what_a_combination_would_lose_is_rejected(load, own):
    kind = type("Own", (type(find("simcse")(load())),), {own: lambda self, *given: None})
    said = f"has its own {own} and cannot be combined; use it alone"
    with pytest.raises(OptionError, match=said):
        Combination(load(), [kind(load()), find("dimension_wise")(load())], {"name": "both"})


@pytest.mark.parametrize("other", ["simcse_supervised", "simcse_copies", "promptbert"])
def test_fixed_masks_are_rejected_where_columns_differ(load, examples, other):
    given = examples("bert")[other] | {"masks": "fixed"}
    with pytest.raises(OptionError, match="masks=fixed uses the anchor's vector for all others"):
        find(f"simcse+{other}")(load(), **given)
    kept = find("simcse+esimcse")(load(), masks="fixed", view="dropout", queue_size=9)
    assert kept.masks == "fixed"


def test_published_defaults():
    published = {
        ("simcse_noise", "passes"): 10,  # Xu et al. (2023), section 3, footnote 1
        ("simcse_noise", "noise_variance"): 0.1,
        ("diffcse", "difference_weight"): 0.005,  # Chuang et al. (2022), section 5, Table 8
        ("diffcse", "mask_ratio"): 0.30,  # section 5, Table 7
        ("simcse", "masks"): "independent",  # Gao et al. (2021), section 3
        # Wu et al. (2022), sections 4.2 and 5.6, for batches of 64; the released code
        ("esimcse", "queue_size"): round(2.5 * 64),
        ("esimcse", "momentum"): 0.995,
        ("esimcse", "queue_start"): "grow",
        ("esimcse", "queue_column"): "first",
        # Xu et al. (2023), Table 2, and the released code's weight
        ("barlow_twins", "artificial"): 704,
        ("barlow_twins", "off_diagonal"): 0.012,
        # Jiang et al. (2022), section 3.2
        ("promptbert", "template"): 'This sentence : "[X]" means [MASK] .',
        ("masked_lm", "mask_ratio"): 0.15,  # Devlin et al. (2019), section 3.1
        ("masked_lm", "masked_lm_weight"): 0.1,  # Gao et al. (2021), appendix D, Table D.2
    }
    found = {(name, key): parameters(name)[key].default for name, key in published}
    assert found == published


@pytest.mark.parametrize("option", ["rate", "rule", "count", "reach", "draw"])
def test_options_of_another_view_are_rejected_by_constructors_too(option, load):
    value = {"rate": 0.2, "rule": "code", "draw": "argmax"}.get(option, 2)
    with pytest.raises(OptionError, match=f"{option} .*does not belong to the view 'crop'"):
        find("simcse")(load(), view="crop", **{option: value})


def test_combined_parameters_are_those_of_all_methods_and_the_first_says_the_default():
    both = parameters("diffcse+simcse_plus_plus")
    assert both["projector"].default == "batchnorm"
    assert parameters("simcse_plus_plus+diffcse")["projector"].default == "tanh"
    assert set(both) == set(parameters("diffcse")) | set(parameters("simcse_plus_plus"))
    assert parameters("simcse+esimcse")["view"].default == "repeat_tokens"
    with pytest.raises(OptionError, match="did you mean 'factor'"):
        find("esimcse+simcse_plus_plus")(None, factr=1.0)
