"""Calls of bounded size, and vectors that are the same to the bit whatever stands next to them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from contrasent.encoder.backbone import MOST, workers
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.files import read_object, write_object
from contrasent.model.base import (
    PROMPTS,
    Prompts,
    by_budget,
    distinct,
    encode_batch_invariant,
    in_calls,
)
from contrasent.model.runtime import Export, Exported, read_export, source_files, write_export
from contrasent.types import Tokens


def test_calls_hold_every_row_once_the_longest_first_and_keep_the_budget():
    random = np.random.default_rng(0)
    for _ in range(50):
        lengths = random.integers(1, 300, random.integers(0, 200))
        most, budget = int(random.integers(1, 80)), int(random.integers(1, 2000))
        calls = by_budget(lengths, most, budget=budget)
        rows = np.concatenate([np.empty(0, np.int64), *calls])
        assert sorted(rows) == list(range(len(lengths)))
        for call in calls:
            assert len(call) == 1 or len(call) * lengths[call].max() <= budget
            assert len(call) <= most
        longest = [lengths[call].max() for call in calls]
        assert longest == sorted(longest, reverse=True)
        order = sorted(range(len(lengths)), key=lambda row, sizes=lengths: (-sizes[row], row))
        slices = [order[start : start + most] for start in range(0, len(order), most)]
        assert [list(call) for call in by_budget(lengths, most)] == slices


def test_a_long_row_does_not_pad_short_ones_of_its_batch(encoder):
    about, shapes = Export("onnx", "fp32", encoder.config, 0.0, 1.0, 1), []
    exported = Exported(about, encoder.tokenizer, None)

    def run(ids, mask):
        shapes.append(ids.shape)
        return mask.sum(1, dtype=np.float32)[:, None] * np.ones(exported.dimension, np.float32)

    exported._sessions[1] = run
    lengths = [3] * 300 + [200] + [3] * 300
    vectors = exported.embed(Tokens.from_rows([5] * length for length in lengths))
    assert vectors[:, 0].tolist() == lengths
    assert len(shapes) == 2 and sum(rows * width for rows, width in shapes) < 2 * 2048 + 200
    exported.embed(Tokens.from_rows([[5] * 20] * 9))
    assert shapes[2:] == [(9, 20)]
    exported.export = Export("openvino", "int8", encoder.config, 0.0, 1.0, 1)  # wider than needed
    exported.embed(Tokens.from_rows([[5] * 33] * 64))
    assert shapes[3:] == [(64, exported._width(33))]


def test_equal_sentences_are_one_text():
    texts, where = distinct(["b", "a", "b", "", "a"])
    assert texts == ["b", "a", ""]
    assert where.tolist() == [0, 1, 0, 2, 1]
    assert where.dtype == np.int64
    assert distinct([])[0] == []
    with pytest.raises(TypeError, match="not one string"):
        distinct("one string")


def test_vectors_of_calls_come_in_the_order_of_the_rows(encoder, sentences):
    tokens, _ = encoder.tokenize(sentences[:20])
    calls = by_budget(tokens.lengths, 3)
    sizes = []

    def embed(part):
        sizes.append(len(part))
        return np.stack([part.lengths, part.ids[part.offsets[:-1] + 1]], axis=1)

    found = in_calls(embed, tokens, 2, calls)
    assert sizes == [3] * 6 + [2]
    assert found.dtype == np.float32
    assert np.array_equal(found, embed(tokens))


@pytest.fixture(scope="module")
def encoder(bert):
    return TorchEncoder.load(bert, pooling="mean", normalize=True)


def test_same_bits_for_any_number_and_order_of_texts(encoder, sentences):
    texts = [*sentences[:120], "", "a " * 90]
    tokens, _ = encoder.tokenize(texts)
    sizes = []

    def embed(part):
        sizes.append(len(part))  # the promise rests on this: each text has a call of its own
        return encoder.embed(part)

    def invariant(rows):
        return encode_batch_invariant(embed, tokens.select(np.asarray(rows)), encoder.dimension)

    wanted = invariant(range(len(texts)))
    assert np.abs(wanted - encoder.encode(texts)).max() < 1e-5
    random = np.random.default_rng(1)
    for turn in range(12):
        rows = random.choice(len(texts), random.integers(1, len(texts)), replace=bool(turn % 2))
        assert np.array_equal(invariant(rows), wanted[rows])
    assert set(sizes) == {1}


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "contains no exported"), ("{", "damaged"), ('{"format": "x"}', "not an export that")],
)
def test_a_folder_that_is_no_export_is_rejected(tmp_path, text, said):
    if text is not None:
        (tmp_path / "export.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        read_export(tmp_path)


@pytest.mark.parametrize("prompts", [{}, {"query": "find: "}])
def test_an_export_is_rejected_when_the_models_prompts_have_changed(prompts, bert, tmp_path):
    pytest.importorskip("onnxruntime")
    model, export = tmp_path / "model", tmp_path / "model" / "onnx"
    encoder = TorchEncoder.load(bert, pooling="mean")
    encoder.prompts = Prompts(prompts)
    encoder.save(model)
    export.mkdir()
    encoder.tokenizer.save(export)
    write_object(export / PROMPTS, {"prompts": prompts})
    (export / "encoder.onnx").touch()
    told = {"sources": source_files(model), "matryoshka_dims": (32, 8)}
    write_export(export, Export("onnx", "fp32", encoder.config, 0.0, 1.0, 1, **told))
    opened = Exported.open(export, model=model)
    assert (opened.prompts, opened.matryoshka_dims) == (encoder.prompts, (32, 8))
    stored = read_object(export / "export.json")
    del stored["matryoshka_dims"]  # as exports were before
    write_object(export / "export.json", stored)
    assert Exported.open(export, model=model).matryoshka_dims == ()
    settings = (model / "tokenizer_config.json").read_text("utf-8")  # with the longest input
    (model / "2_Dense").mkdir()
    for name, changed in (
        ("tokenizer_config.json", settings.replace("64", "32")),
        ("2_Dense/config.json", "{}"),
    ):
        (model / name).write_text(changed, "utf-8")
        with pytest.raises(ModelError, match="does not match the current weights, settings or"):
            Exported.open(export, model=model)
        (model / "tokenizer_config.json").write_text(settings, "utf-8")
    (model / "2_Dense" / "config.json").unlink()
    write_object(model / PROMPTS, {"prompts": {"query": "search: "}})
    with pytest.raises(
        ModelError, match=r"onnx: does not match the current weights, settings or prompts"
    ):
        Exported.open(export, model=model)


def test_calls_made_by_several_threads_give_the_vectors_of_calls_in_turn(encoder, sentences):
    before = torch.get_num_threads()
    texts = [*sentences[:150], "", "a " * 90]
    torch.set_num_threads(1)
    try:
        in_turn = encoder.encode(texts, batch_size=4)
        torch.set_num_threads(3)
        at_once = encoder.encode(texts, batch_size=4)
        assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)
    assert np.abs(in_turn - at_once).max() < 1e-6


def test_workers_share_the_cores_and_make_calls_at_the_same_time():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(6)
        meet = threading.Barrier(3, timeout=600)  # passed only if three calls are made at once

        def call(_):
            meet.wait()
            return torch.get_num_threads()

        with workers(torch.device("cpu"), 3) as pool:
            assert list(pool.map(call, range(3))) == [2, 2, 2]
        with workers(torch.device("cpu"), 100) as pool:
            assert pool._max_workers == MOST
        with workers(torch.device("cpu"), 1) as pool:
            assert pool is None
        with workers(torch.device("meta"), 100) as pool:
            assert pool is None
    finally:
        torch.set_num_threads(before)


def test_a_call_that_fails_fails_the_whole(encoder, sentences):
    tokens, _ = encoder.tokenize(sentences[:20])

    def embed(part):
        raise ValueError("no vectors")

    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="no vectors"):
        in_calls(embed, tokens, 2, by_budget(tokens.lengths, 3), pool)
