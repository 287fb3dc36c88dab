"""``contrasent watch``: what it counts, what it calls drift, and what it refuses."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from commands import invoke
from contrasent.adapt import watch as watching
from contrasent.adapt.indexed import passage_of, sampled
from contrasent.adapt.novelty import far_texts, grouped, nearest_to_index
from contrasent.adapt.passages import Passage, passages
from contrasent.adapt.sections import Document, Section
from contrasent.adapt.served import Served, Side, search_both
from contrasent.adapt.watch import token_use, watch
from contrasent.errors import InputError, ModelError, UserError
from contrasent.model.prompts import Prompts
from contrasent.search.exact import unit
from contrasent.search.hybrid import Fusion
from contrasent.search.index import Index
from contrasent.text.tokens import Tokenizer

BOATS = [
    f"{what} {did} {where}."
    for what in ("A grey trawler", "The pilot cutter", "One leaking dinghy", "Their schooner")
    for did in ("drifted past", "lay moored beside", "was towed towards", "ran aground near")
    for where in ("the breakwater", "Quay 7", "an old lighthouse", "the sandbanks", "the slipway")
]


@pytest.fixture(scope="module")
def encoder(bert):
    from contrasent.model.encoder import Encoder

    return Encoder.load(bert, pooler="mean", normalise=True)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory, encoder, sentences):
    """An index of 300 sentences, in a folder, and its model's folder."""
    place = tmp_path_factory.mktemp("watched")
    encoder.save(place / "model")
    rows = ((text, None, None) for text in sentences[:300])
    Index.create(
        place / "index",
        encoder.encode,
        rows,
        model=encoder.identity,
        source=str(place / "model"),
    )
    return place


def lines(path, texts):
    path.write_text("\n".join(texts) + "\n")
    return path


def test_text_of_the_same_kind_is_no_drift_in_whatever_order(indexed, encoder, sentences, tmp_path):
    index = Index.open(indexed / "index")
    new = lines(tmp_path / "new.txt", sentences[300:500])
    found = watch(index, new, encoder)
    assert not found.drifted
    assert (found.conclusion, found.command, found.known) == ("nothing", "", 0)
    assert found.samples.p > 0.05
    assert (found.samples.old, found.samples.new) == (300, 200)
    turned = lines(tmp_path / "turned.txt", sentences[499:299:-1])
    backwards = Index.build(
        encoder.encode, sentences[299::-1], model=encoder.identity, source=index.manifest.source
    )
    assert watch(backwards, turned, encoder) == found
    assert watch(index, new, encoder, seed=1).samples.p != found.samples.p


def test_text_of_another_kind_is(indexed, sentences, tmp_path):
    new = lines(tmp_path / "boats.txt", [*BOATS, sentences[3]])
    arguments = ("watch", indexed / "index", new, "--json", "--quiet")
    assert invoke(*arguments).exit_code == 0
    result = invoke(*arguments, "--fail-on-drift")
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert found["drifted"]
    assert found["samples"]["p"] == 0.001
    assert found["samples"]["accuracy"] > 0.95
    assert (found["known"], found["samples"]["new"]) == (1, 80)
    assert found["new_tokens"]["pieces"] > found["old_tokens"]["pieces"]
    assert found["far"] > 0.05
    assert {term for group in found["groups"] for term in group["terms"]} & {"lighthouse", "quay"}
    assert all(text in BOATS for group in found["groups"] for text in group["examples"])
    assert found["served"] is None  # sentences alone ask nothing
    assert found["conclusion"] == "index"
    shown = invoke("watch", indexed / "index", new, "--quiet").stdout.splitlines()
    assert shown[-1].startswith("index: the text has drifted, and too few queries")
    command = f"type: contrasent index {indexed / 'model'} {new} -o {indexed / 'index'} --add"
    assert shown[-2] == command


def test_a_part_that_finds_less_calls_for_another_adaptation(
    indexed, encoder, tmp_path, monkeypatch
):
    index = Index.open(indexed / "index")
    new = lines(tmp_path / "boats.txt", BOATS)
    served = {"model": Served(0.6, 0.4, -0.3, -0.1)}
    monkeypatch.setattr(watching, "search_both", lambda *_, **__: served)
    found = watch(index, new, encoder)
    assert found.conclusion == "adapt"
    assert found.command.startswith("contrasent adapt OLD_AND_NEW_TEXT --base")
    home = indexed / "model"
    (home / "index").mkdir(exist_ok=True)
    (home / "report.json").write_text("{}")
    assert watch(index, new, encoder).command == (
        f"contrasent adapt {new} --update {home} -o model-updated"
    )
    (home / "report.json").unlink()
    served["model"] = Served(0.6, 0.4, -0.3, 0.1)
    assert watch(index, new, encoder).conclusion == "index"


def test_words_and_pieces_are_counted():
    """Pieces by hand: sea, sea ##side, nothing for zebra; two tokens beside the special ones."""
    vocabulary = {t: n for n, t in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "sea", "##side"))}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    model = SimpleNamespace(tokenizer=Tokenizer(backend, max_tokens=6), prompts=Prompts())
    model.tokenise = model.tokenizer
    found = token_use(model, ["sea seaside zebra", "sea", "sea sea sea sea sea"])
    assert found.texts == 3
    assert found.cut == pytest.approx(1 / 3)
    # Of the last text four words are read, between [CLS] and [SEP].
    assert found.unknown == pytest.approx(1 / (4 + 1 + 4))
    assert found.pieces == pytest.approx((4 + 1 + 4) / (3 + 1 + 4))


def test_a_sample_takes_documents_in_turn_and_no_order_matters():
    documents = ["a"] * 50 + ["b"] * 3 + ["c"]
    texts = [f"text {n}" for n in range(54)]
    chosen = sampled(range(54), documents, texts.__getitem__, limit=6, seed=0)
    assert sorted(documents[at] for at in chosen) == ["a", "a", "b", "b", "c"]
    assert len(set(chosen)) == 5
    back = sampled(range(54), documents[::-1], texts[::-1].__getitem__, limit=6, seed=0)
    assert [texts[::-1][at] for at in back] == [texts[at] for at in chosen]
    two = sampled(range(54), documents, texts.__getitem__, limit=2, seed=0)
    assert len({documents[at] for at in two}) == 2
    others = {
        tuple(sampled(range(54), documents, texts.__getitem__, limit=2, seed=s)) for s in range(9)
    }
    assert len(others) > 2
    assert sampled([50, 51], documents, texts.__getitem__, limit=9, seed=0) in ([50, 51], [51, 50])


def test_a_row_of_an_index_is_the_passage_that_it_was():
    sections = (
        Section((), ("Bees are kept in hives.", "Hives stand in rows.")),
        Section(("Care",), ("Feed them in spring. " * 8,)),
        Section(
            ("Care", "In a long and snowy winter that nobody had expected at all"), ("Wait. " * 30,)
        ),
    )
    made = passages(
        [Document("bees.md", "Keeping bees", sections), Document("no.md", "", sections[:1])],
        count_tokens=lambda texts: [len(text.split()) + 2 for text in texts],
        max_tokens=32,
    ).passages
    assert len({passage.prefix for passage in made}) > 2
    for passage in made:
        metadata = {
            "document": ("bees.md", "no.md")[passage.document],
            "title": passage.title,
            "headings": list(passage.headings),
        }
        again = passage_of(passage.indexed, passage.id, metadata, passage.document)
        assert (again.text, again.prefix, again.headings) == (
            passage.text,
            passage.prefix,
            passage.headings,
        )
    assert passage_of("plain\ntext", "7", None, 3) == Passage("7", 3, "", (), 0, "plain\ntext", "")


def test_far_is_farther_than_texts_of_the_index_are_from_other_documents():
    random = np.random.default_rng(0)
    vectors = unit(random.standard_normal((60, 5)).astype(np.float32))
    vectors[1] = vectors[0]  # of one document
    index = Index.build(lambda _: vectors, [f"row {n}" for n in range(60)])
    documents = [0, 0, *range(2, 60)]
    own = [np.flatnonzero(np.array(documents) == d) for d in documents]
    found = nearest_to_index(index, vectors, own=own)
    for at in range(60):
        others = [vectors[at] @ vectors[n] for n in range(60) if documents[n] != documents[at]]
        assert found[at] == pytest.approx(max(others), abs=1e-6)
    assert nearest_to_index(index, vectors[:3]) == pytest.approx(1.0)
    scores = np.arange(1000) / 1000
    assert far_texts(scores, np.array([0.005, 0.5, 0.0])).tolist() == [0, 2]


def test_groups_are_told_by_words_that_the_rest_does_not_have():
    texts = [f"wheels turn in gear {n}" for n in range(6)] + [
        f"flour rises as dough {n}" for n in range(7)
    ]
    vectors = np.repeat(np.eye(2, dtype=np.float32), (6, 7), axis=0)
    first, second = grouped(texts, vectors, ["wheels of cheese", "a text"] * 20, seed=0)
    assert (first.texts, second.texts) == (7, 6)
    assert first.terms == ("dough", "flour", "rises")
    assert second.terms[:2] == ("gear", "turn")  # wheels stand in old texts too
    assert second.examples[0] in texts[:6]
    assert grouped(texts[:4], vectors[:4], ["a text"], seed=0) == ()


def test_how_well_either_side_is_served(sentences):
    """An encoder that knows what belongs to what in old notes, and nothing of the new ones."""
    notes = []
    for n in range(120):
        text = " ".join(sentences[n + at] for at in (0, 200, 400))
        notes.append(Passage(f"n{n}", 0, f"Note {n}: {sentences[n + 600]}", (), 0, text, ""))
    own = [set(f"{note.title} {note.text}".split()) for note in notes]

    def encode(texts):
        out = np.zeros((len(texts), 61), np.float32)
        for at, text in enumerate(texts):
            number = max(range(120), key=lambda n: len(own[n] & set(text.split())))
            out[at, min(number, 60)] = 1.0
        return out

    def side(part):
        return Side(list(part), [p.id for p in part], encode([p.indexed for p in part]))

    found = search_both(side(notes[:60]), side(notes[60:]), encode, Fusion(), seed=0, say=str)
    assert set(found) == {"model", "BM25", "both"}
    assert found["model"].old > 0.6 > 0.3 > found["model"].new
    assert found["model"].low < found["model"].new - found["model"].old < found["model"].high < 0
    assert found["BM25"].low < 0 < found["BM25"].high
    assert (
        search_both(side(notes[:15]), side(notes[60:]), encode, Fusion(), seed=0, say=str) is None
    )


def test_documents_of_both_sides_are_old_ones_no_more(encoder, sentences, tmp_path):
    """An index of documents is compared with documents, and not with their own later versions."""
    rows = [
        (sentences[n], {"document": f"{n % 40}.md", "title": "", "headings": []})
        for n in range(120)
    ]
    index = Index.build(
        encoder.encode,
        [text for text, _ in rows],
        metadata=[about for _, about in rows],
        model=encoder.identity,
    )
    folder = tmp_path / "new"
    folder.mkdir()
    for n in range(15):  # ten of the old names
        (folder / f"{n + 30}.md").write_text(f"{sentences[300 + n]}\n\n{BOATS[n]}\n")
    found = watch(index, folder, encoder)
    assert (found.samples.old, found.samples.new) == (30, 15)


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_what_cannot_be_watched_is_refused(indexed, encoder, sentences, tmp_path, texts):
    index = Index.open(indexed / "index")
    known = lines(tmp_path / "known.txt", sentences[:40])
    with pytest.raises(InputError, match="does not hold already"):
        watch(index, known, encoder)
    with pytest.raises(UserError, match="9 new documents"):
        watch(index, lines(tmp_path / "few.txt", sentences[300:309]), encoder)
    with pytest.raises(InputError, match=r"empty\.txt"):
        watch(index, lines(tmp_path / "empty.txt", texts), encoder)
    blank = Index.build(
        lambda rows: np.ones((len(rows), 32), np.float32), [" "] * 20, model=encoder.identity
    )
    with pytest.raises(InputError, match="holds no texts"):
        watch(blank, known, encoder)
    other = Index.build(
        lambda rows: np.ones((len(rows), 8), np.float32), ["a", "b"], model="another"
    )
    with pytest.raises(ModelError, match="another"):
        watch(other, known, encoder)
