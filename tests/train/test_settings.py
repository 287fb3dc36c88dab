"""Settings: read from texts and tables, wrong ones rejected with the nearest right one."""

import math
import re
from typing import get_args

import pytest
import torch

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.parameters import Projector
from contrasent.engine.registry import parameters, parts, summaries
from contrasent.errors import OptionError
from contrasent.train.prepare import prepare
from contrasent.train.settings import Pooler, Settings, assignments, choose, run_settings


def test_texts_are_read_as_the_type_wanted():
    run = {"batch_size": "128", "learning_rate": "5e-5", "max_steps": "none"}
    run |= {"head": "none", "normalize": "True"}
    method = {"temperature": "0.1", "symmetric": "true", "projector": "none", "encoders": "2"}
    of_run, of_method = choose(run | method, "simcse")
    numbers = {"batch_size": 128, "learning_rate": 5e-5, "max_steps": None}
    assert of_run == numbers | {"head": "none", "normalize": True}
    # "none" is a head and a projector; the text stands for None only where it is no value itself.
    read = {"temperature": 0.1, "symmetric": True, "projector": "none", "encoders": 2}
    assert of_method == read
    with pytest.raises(OptionError, match="encoders '3': unknown value; one of 1, 2"):
        choose({"encoders": "3"}, "simcse")
    assert Settings(**of_run).batch_size == 128
    none = {"head": None, "max_steps": None}
    assert choose(none, "simcse")[0] == none
    with pytest.raises(OptionError, match="projector None: must be of type str"):
        choose({"projector": None}, "simcse")


@pytest.mark.parametrize("method", summaries())
def test_every_default_and_choice_is_read_from_its_text(method):
    for parameter in (*run_settings().values(), *parameters(method).values()):
        for value in {parameter.default, *parameter.choices} - {None}:
            read = parameter.read(str(value))
            assert (read, type(read)) == (value, type(value)), parameter.name


@pytest.mark.parametrize(("name", "value", "message"), [
    ("batch_size", "many", "batch_size 'many': must be of type int"),
    ("batch_size", True, "batch_size True: must be of type int"),
    ("max_steps", "x", "max_steps 'x': must be of type int or none"),
    ("normalize", "maybe", "normalize 'maybe': must be of type bool or none"),
    ("pooling", 3, "pooling 3: must be of type str or none"),
])  # fmt: skip
def test_values_of_another_type(name, value, message):
    with pytest.raises(OptionError) as caught:
        choose({name: value}, "simcse")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "near"),
    [("temprature", "temperature"), ("batchsize", "batch"), ("leaning_rate", "learning_rate")],
)
def test_an_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(OptionError) as caught:
        choose({name: "1"}, "simcse", option="mine.toml:")
    message = str(caught.value)
    assert message.startswith(f"mine.toml: {name!r}: unknown setting of a run or of simcse")
    assert near in message


def test_the_objective_decides_what_is_known():
    with pytest.raises(OptionError, match="alpha"):
        choose({"alpha": "2"}, "simcse")
    assert choose({"alpha": "2"}, "simcse_supervised") == ({}, {"alpha": 2.0})


def test_assignments():
    assert assignments(["a=1", " b = x=y ", "c="]) == {"a": "1", "b": " x=y ", "c": ""}
    with pytest.raises(OptionError, match="--set 'learning_rate': write key=value"):
        assignments(["learning_rate"])


@pytest.mark.parametrize(("name", "values"), [
    ("batch_size", [0, -1]), ("gradient_accumulation_steps", [0]),
    ("max_seq_length", [0, 1, 2]), ("eval_steps", [0]),
    ("geometry_every", [-1]), ("save_steps", [0]), ("max_steps", [0, -3]),
    ("num_train_epochs", [0, -1.0, math.inf, math.nan]),
    ("learning_rate", [0, -1e-5, math.inf, math.nan]),
    ("warmup_ratio", [-0.1, 1.0, math.nan]), ("max_grad_norm", [0, -1, math.nan]),
    ("weight_decay", [-0.1, math.inf, math.nan]), ("dropout", [-0.1, 1.0, math.nan]),
    ("attention_dropout", [-0.1, 1.0]), ("early_stopping_patience", [-1]), ("eval_size", [-1]),
    ("seed", [-1, 2**63]), ("precision", ["fp61", "float32"]), ("padding", ["noen", "None"]),
    ("mini_batch_size", [-1]), ("pooling", ["maen", "none"]), ("head", ["tahn"]),
    ("buckets", ["fien", "4;8"]), ("weights", ["2;1", "2,-1"]),
])  # fmt: skip
def test_values_out_of_range(name, values):
    for value in values:
        with pytest.raises(OptionError) as caught:
            Settings(**{name: value})
        assert str(caught.value).startswith(f"{name} {value!r}: ")


def test_names_are_those_of_poolers_and_heads():
    """Checked before torch is imported, so they are written twice."""
    from contrasent.encoder.heads import HEADS
    from contrasent.model.pooling import POOLERS

    assert get_args(Pooler) == tuple(POOLERS)
    assert get_args(Projector) == HEADS


def test_settings_reach_the_encoder(bert):
    options = {"dropout": 0.3, "pooling": "last_two", "head": "tanh", "normalize": True}
    encoder = prepare(bert, "simcse", {}, Settings(**options)).encoder
    assert (encoder.pooling, encoder.normalize, encoder.dimension) == ("last_two", True, 32)
    config = encoder.backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.3)
    encoder = prepare(bert, "simcse", {}, Settings(dropout=0.3, attention_dropout=0.0)).encoder
    assert encoder.backbone.config.attention_probs_dropout_prob == 0.0


def test_a_bare_encoder_is_pooled_by_cls_and_a_model_as_it_says(bert, tmp_path):
    assert prepare(bert, "simcse", {}, Settings()).encoder.pooling == "cls"
    TorchEncoder.load(bert, pooling="max", max_seq_length=20).save(tmp_path / "m")
    encoder = prepare(tmp_path / "m", "simcse", {}, Settings(max_seq_length=10)).encoder
    # The length of training is not that of the model.
    assert (encoder.pooling, encoder.max_seq_length) == ("max", 20)


def test_fresh_weights_come_of_the_seed_alone(bert):
    def heads(seed):
        torch.rand(seed + 3)
        learner = prepare(bert, "simcse", {}, Settings(seed=seed, head="tanh"))
        return learner.projector.linear.weight, learner.encoder.head.linear.weight

    (one, head), (two, again), (three, other) = heads(4), heads(4), heads(5)
    assert torch.equal(one, two)
    assert torch.equal(head, again)
    assert not torch.equal(one, three)
    assert not torch.equal(head, other)
    assert not torch.equal(one, head)


@pytest.mark.parametrize(("name", "said"), [
    ("lr", "'lr': is called 'learning_rate' here"), ("temp", "is called 'temperature' here"),
    ("per_device_train_batch_size", "is called 'batch_size' here"),
    ("pooler_type", "is called 'pooling' here"), ("fp16", "'fp16': use precision=fp16"),
    ("lr_scheduler_type", "is always linear"), ("logging_steps", "and every tenth"),
    ("hard_negative_weight", "'hard_negative_weight': use alpha, its exponential"),
    ("mlp_only_train", "'mlp_only_train': is the default: the projector is dropped after training"),
])  # fmt: skip
def test_a_name_of_other_libraries_is_an_error_that_says_ours(name, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        choose({name: 1}, "simcse")


def test_a_loss_of_sentence_transformers_is_an_error_that_names_the_method():
    with pytest.raises(OptionError, match="'MultipleNegativesRankingLoss': is called simcse_sup"):
        choose({}, "MultipleNegativesRankingLoss")


def test_the_papers_spelling_of_a_method_is_known():
    assert parts("simcse++") == ["simcse_plus_plus"]
    assert parts("esimcse+simcse++") == ["esimcse", "simcse_plus_plus"]
