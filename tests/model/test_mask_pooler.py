"""Pooling at the mask token of a template: against loops, saved, and cut so that it stays."""

import numpy as np
import pytest
import torch

from contrasent.errors import ModelError, OptionError
from contrasent.model.card import CardMetadata, card
from contrasent.model.doctor import examine_folder
from contrasent.model.encoder import Encoder
from contrasent.model.export import export
from contrasent.model.golden import read_golden
from contrasent.model.prompts import Prompts
from contrasent.text.tokens import Tokenizer

TEMPLATE = "a [X] is [MASK]."
TEXTS = [
    "The gardener sold his violin.",
    "a map",
    "",
    "My neighbour hid two blue lamps while the rain kept falling on the roof, and sold them.",
    "a [MASK] lamp",
]


def prompted(folder, **options):
    encoder = Encoder.load(folder, **({"pooler": "mask", "max_tokens": 24} | options))
    encoder.prompts = Prompts({"query": TEMPLATE, "document": TEMPLATE}, "query")
    return encoder


def test_the_mask_token_against_loops(bert):
    torch.manual_seed(0)
    encoder = Encoder.load(bert, pooler="mask")
    ids = torch.tensor([[1, 4, 9, 2, 0, 0], [1, 7, 7, 9, 5, 2], [9, 1, 9, 3, 0, 0]])
    hidden = (torch.zeros(3, 6, 4), torch.randn(3, 6, 4))
    encoder.pooler.mask = 9
    pooled = encoder.pooler(hidden, ids, ids > 0)
    for row in range(3):
        last = max(t for t in range(6) if ids[row, t] == 9)
        assert pooled[row].tolist() == hidden[1][row, last].tolist()
    for mask in (7, -1):
        encoder.pooler.mask = mask
        with pytest.raises(ModelError, match=r"^pooling at the mask token: a text has none"):
            encoder.pooler(hidden, ids, ids > 0)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "mpnet", "modernbert"])
def test_the_tokens_are_the_templates_around_those_of_the_sentence(tiny, kind):
    encoder = prompted(tiny[kind])
    backend, specials = encoder.tokenizer.backend, encoder.tokenizer.specials
    name = "<mask>" if kind in ("roberta", "mpnet") else "[MASK]"
    parts = [backend.encode(part, add_special_tokens=False).ids for part in ("a ", f" is {name}.")]
    empty = backend.encode("").ids
    tokens, cut = encoder.tokenise(TEXTS, TEMPLATE)
    room = 24 - len(empty) - sum(map(len, parts))
    assert room > 3
    for row, text in enumerate(TEXTS):
        ids = Tokenizer(backend, max_tokens=99).backend.encode(text, add_special_tokens=False).ids
        assert cut[row] == (len(ids) > room)
        wanted = [empty[0], *parts[0], *ids[:room], *parts[1], empty[-1]]
        assert tokens[row].tolist() == wanted
        assert specials.mask in tokens[row]
    assert cut.tolist()[3] and not cut.all()
    assert tokens.lengths.max() == 24


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "mpnet", "modernbert"])
def test_vectors_are_those_of_a_plain_loop(tiny, kind):
    encoder = prompted(tiny[kind])
    tokens, _ = encoder.tokenise(TEXTS, TEMPLATE)
    for text, vector, row in zip(TEXTS, encoder.encode(TEXTS), range(9), strict=False):
        ids = tokens[row].tolist()
        with torch.inference_mode():
            states = encoder.backbone(input_ids=torch.tensor([ids])).last_hidden_state[0]
        last = max(t for t, i in enumerate(ids) if i == encoder.tokenizer.specials.mask)
        assert vector.tolist() == pytest.approx(states[last].tolist(), abs=1e-5), text


def same_gradients(encoder, tokens):
    """Packed, padded, in buckets and with cached gradients."""
    found = []
    for packed, cached, bucketed in ((True, 0, 0), (False, 0, 0), (False, 0, 1), (True, 2, 0)):
        encoder.packed, encoder.grad_cache_rows, encoder.bucketed = packed, cached, bool(bucketed)
        encoder.zero_grad()
        vectors = encoder(tokens)
        vectors.square().sum().sin().backward()
        own = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        found.append([vectors.detach(), *own])
    assert len(found[0]) > 30
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert torch.allclose(one, two, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_packed_padded_and_cached_give_the_same_gradients(tiny, kind):
    encoder = prompted(tiny[kind], dropout=0.0, attention_dropout=0.0).double().train()
    same_gradients(encoder, encoder.tokenise(TEXTS, TEMPLATE)[0])


@pytest.mark.parametrize("lower", [False, True])
def test_saved_and_read_to_the_bit(bert, tmp_path, lower):
    encoder = prompted(bert, head="tanh", normalise=True)
    encoder.lower_case = lower
    wanted = encoder.encode(TEXTS)
    encoder.save(tmp_path / "model", card=card(encoder, CardMetadata()))
    again = Encoder.load(tmp_path / "model")
    assert (again.pooling, again.prompts) == ("mask", encoder.prompts)
    assert again.identity == encoder.identity
    assert np.array_equal(again.encode(TEXTS), wanted)
    findings = examine_folder(again, read_golden(tmp_path / "model"))
    assert len(findings) == 7
    assert all(finding.good for finding in findings)
    text = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert f"mask token of the template `{TEMPLATE}`" in text
    assert "reject the model" in text
    assert "from sentence_transformers" not in text


def test_others_refuse_it(bert, tmp_path):
    encoder = prompted(bert)
    encoder.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("*_Pooling"))
    with pytest.raises(ModelError, match=r"pooled by 'mask', .* use it with torch$"):
        export(tmp_path / "model", tmp_path / "graph", engine="onnx")
    library = pytest.importorskip("sentence_transformers")
    for trusting in (False, True):
        with pytest.raises((ValueError, ImportError, AttributeError), match="MaskPooling"):
            library.SentenceTransformer(
                str(tmp_path / "model"), device="cpu", trust_remote_code=trusting
            )


def test_what_cannot_be_is_refused_in_a_line(bert):
    encoder = prompted(bert)
    with pytest.raises(ModelError, match=r"^pooling at the mask token: a text has none; [^\n]*$"):
        encoder.encode(["a map"], prompt="")
    count = sum(map(len, encoder.tokenizer.around(TEMPLATE)))
    small = Tokenizer(encoder.tokenizer.backend, max_tokens=count)
    with pytest.raises(OptionError, match=rf"no room for a sentence; its own tokens are {count}$"):
        small(TEXTS, TEMPLATE)
    with pytest.raises(OptionError, match=r"a template holds \[X\] once$"):
        encoder.encode(["a map"], prompt="[X] [X] [MASK]")
