"""The commands evaluate, compare and postprocess on a tiny model and data made here."""

import json
import shutil

import numpy as np
import pytest

from commands import collection, run
from contrasent.cli.evaluate import _load
from contrasent.cli.options import Loading
from contrasent.datasets import labeled, official
from contrasent.datasets.labeled import Captions
from contrasent.datasets.official import PairsFile
from contrasent.datasets.sts import score_digest
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import DataError, ModelError, OptionError, OutputError, UserError
from contrasent.evaluate.suite import SUITES, Options
from contrasent.postprocess import Glove
from contrasent.text.corpus import ScoredPairs, open_corpus
from contrasent.text.heldout import hold_out
from contrasent.train.fit import fit
from contrasent.train.plan import unseen_pairs

WORDS = "river stone lantern market orchard violin winter copper meadow harbour candle"
WORDS = WORDS.split()


def texts(count, seed):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "lines.txt"
    path.write_text("\n".join(texts(400, 1)) + "\n")
    return path


@pytest.fixture
def data(tmp_path, monkeypatch):
    scores = np.random.default_rng(0).integers(0, 11, 60) / 2
    table = PairsFile("STSBenchmark/sts-test.csv", 60, score_digest(scores.tolist()))
    monkeypatch.setitem(official.STS_TABLES, "STSB", {"test": table})
    path = tmp_path / "STS-raw" / "STSBenchmark" / "sts-test.csv"
    path.parent.mkdir(parents=True)
    rows = zip(texts(60, 2), texts(60, 3), scores, strict=True)
    path.write_text("".join(f"g\tf\ty\t{i}\t{s}\t{a}\t{b}\n" for i, (a, b, s) in enumerate(rows)))
    return tmp_path


def measure(*arguments):
    return run("evaluate", *arguments, "--pooling", "mean", "--quiet", "--resamples", 50)


STS = ("--task", "STSB", "--form", "raw")


def test_evaluate_prints_and_writes_the_same_numbers(bert, data, tmp_path):
    pytest.importorskip("matplotlib")
    written = ("--json-file", tmp_path / "r.json", "--report", tmp_path / "page.html")
    out = measure(bert, *STS, "--data", data, *written)
    assert "<svg" in (tmp_path / "page.html").read_text()
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["model"] == str(bert)
    row = next(r for r in found["rows"] if r["metric"] == "spearman")
    assert " ".join(sorted(row)) == "aggregate count high low metric split task value"
    assert f"{100 * row['value']:.2f}" in out
    assert row["count"] == 60


def test_several_models_on_pairs_without_a_header(bert, data, tmp_path):
    files = []
    for seed in (5, 7):
        files.append(tmp_path / f"own{seed}.tsv")
        rows = zip(texts(30, seed), texts(30, seed + 1), range(30), strict=True)
        files[-1].write_text("".join(f"{s}\t{a}\t{b}\n" for a, b, s in rows))
    glove = tmp_path / "glove.txt"
    vectors = np.random.default_rng(1).normal(size=(len(WORDS), 4))
    lines = (f"{w} {' '.join(map(str, v))}\n" for w, v in zip(WORDS, vectors, strict=True))
    glove.write_text("".join(lines))
    with pytest.raises(UserError, match=r"is not a number \(column '2'\)"):
        measure(bert, "--pairs", files[0])
    both = ("--pairs", files[0], "--pairs", files[1], "--columns", "1,2,0")
    measure(bert, glove, *both, "--json-file", tmp_path / "r.json")
    found = json.loads((tmp_path / "r.json").read_text())["models"]
    assert [m["model"] for m in found] == [str(bert), str(glove)]
    for rows in (model["rows"] for model in found):
        assert [(r["task"], r["metric"], r["aggregate"]) for r in rows] == [
            (task, metric, aggregate)
            for task, aggregate in (("own5", ""), ("own7", ""), ("pairs", "mean"))
            for metric in ("spearman", "pearson")
        ]
        assert [r["count"] for r in rows[::2]] == [30, 30, 60]
        assert rows[4]["value"] == pytest.approx((rows[0]["value"] + rows[2]["value"]) / 2)


def test_ones_own_data_are_checked_before_a_model_is_loaded(no_weights, tmp_path):
    alike, good = tmp_path / "alike.tsv", tmp_path / "good.tsv"
    alike.write_text("a\tb\ts\n" + "x\ty\t1\n" * 5)
    good.write_text("a\tb\ts\nx\ty\t1\nx\tz\t2\ny\tz\t3\n")
    for arguments, message in (
        (("--pairs", alike), "alike: all labels are 1"),
        (("--pairs", good, "--columns", "a,b,score"), "unknown column"),
        (("--pairs", good, "--columns", "a,b"), "three columns"),
        (("--pairs", good, "--pairs", tmp_path / "sub" / "good.tsv"), "must be distinct"),
        (("--suite", "sts", "--columns", "0,1,2"), "needs --pairs"),
        (("--suite", "sts", "--own-ids"), "--own-ids 'True': needs --collection"),
        (("--pairs", good, "--task", "STSB"), r"--task \"\['STSB'\]\": needs --suite sts"),
        (("--suite", "transfer", "--captions", "0"), "--captions '0': needs --suite retrieval"),
        (("--suite", "sts", "--stop-words"), "needs a text file of GloVe"),
        (("--collection", tmp_path), "corpus.jsonl: no such file"),
    ):
        with pytest.raises(UserError, match=message):
            run("evaluate", no_weights, *arguments, "--data", tmp_path)


def test_mistakes_are_named_before_a_model_is_loaded(no_weights, data, ask_hub, tmp_path):
    ask_hub()
    for arguments, kind, message in (
        ((no_weights, "--suite", "stss"), OptionError, "did you mean 'sts'"),
        ((no_weights, "--task", "STS-B"), OptionError, "did you mean 'STSB'"),
        ((no_weights, "--task", "STS12", "--form", "raw"), DataError, "put the file at"),
        ((tmp_path / "nothing", *STS), ModelError, "nothing"),
        (("a", "a"), UserError, "a model twice"),
        ((no_weights, *STS, "--json-file", tmp_path), OutputError, "is a folder; name a file"),
        (("--suite", "sts"), UserError, r"MODEL is missing .*evaluate --help"),
    ):
        with pytest.raises(kind, match=message):
            run("evaluate", *arguments, "--data", data)


def test_compare_models_and_reports(bert, tiny, data, tmp_path):
    arguments = ("--pooling", "mean", "--data", data, "--quiet")
    out = run("compare", bert, tiny["electra"], *STS, *arguments)
    assert "assume a seed standard deviation of 1.2 points (--seed-sd)" in out
    assert "these models alone: [" in out
    found = json.loads(run("compare", bert, tiny["electra"], *STS, *arguments, "--json"))
    (row,) = found["rows"]
    for model, name in ((bert, "a.json"), (tiny["electra"], "b.json")):
        measure(model, *STS, "--data", data, "--json-file", tmp_path / name)
    saved = run("compare", tmp_path / "a.json", tmp_path / "b.json", "--json", "--quiet")
    by_metric = {r["metric"]: r for r in json.loads(saved)["rows"]}
    for name in ("before", "after", "low", "high", "p", "item_low", "item_p"):
        assert by_metric["spearman"][name] == pytest.approx(row[name])
    assert set(by_metric) == {"spearman", "pearson"}
    for given in (STS, ("--pooling", "mean"), ("--data", data)):
        with pytest.raises(OptionError, match="needs a model; rows of reports are compared"):
            run("compare", tmp_path / "a.json", tmp_path / "b.json", *given)
    out = run("compare", tmp_path / "a.json", tmp_path / "b.json", "--seed-sd", 0)
    assert "Intervals cover other items, and no spread over seeds" in out
    assert row["low"] <= row["difference"] <= row["high"]
    assert row["count"] == 60
    for arms, message in (
        (("x,x", "y"), "name each run once"),
        (("x,./x", "y"), "name each run once"),
        (("x,y", "z,./y"), "y is one of A's runs"),
    ):
        with pytest.raises(OptionError, match=message):
            run("compare", *arms)


def test_a_whitened_model_is_an_ordinary_model(bert, corpus, tmp_path):
    white = tmp_path / "white"
    few = ("--pooling", "mean", "--dimensions", 8, "--quiet")
    run("postprocess", "whiten", bert, corpus, "-o", white, *few)
    model = TorchEncoder.load(white)
    lines = list(dict.fromkeys(corpus.read_text().splitlines()))
    vectors = model.encode(lines)
    assert vectors.shape[1] == 8
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    free = TorchEncoder.load(white, normalize=False).encode(lines)
    np.testing.assert_allclose(np.cov(free.T), np.eye(8), atol=1e-3)
    with pytest.raises(OptionError, match="--dimensions 9999: the vectors have "):
        run("postprocess", "whiten", bert, corpus, "-o", tmp_path / "b", *few[:3], 9999)
    with pytest.raises(OutputError, match="exists; choose another folder or add --overwrite"):
        run("postprocess", "whiten", bert, corpus, "-o", white, "--pooling", "mean", "--quiet")


def test_a_flow_can_be_evaluated(bert, corpus, data, tmp_path):
    target = tmp_path / "flow"
    arguments = ("--pooling", "mean", "--set", "num_train_epochs=2", "--quiet")
    run("postprocess", "flow", bert, corpus, "-o", target, *arguments)
    assert (target / "encoder" / "modules.json").is_file()
    out = measure(target, *STS, "--data", data)
    assert "STSB" in out
    assert out.split("\n")[2:4] != measure(bert, *STS, "--data", data).split("\n")[2:4]
    (target / "contrasent_flow.json").write_text("{}")
    with pytest.raises(ModelError, match="the flow cannot be read"):
        measure(target, *STS, "--data", data)


@pytest.mark.parametrize(("arguments", "problem"), [
    (("whitening",), "METHOD 'whitening'.*did you mean 'whiten'"),
    (("whiten", "--set", "num_train_epochs=2"), "num_train_epochs': unknown setting of whiten"),
    (("flow", "--dimensions", 2), "--dimensions 2: is for whiten only"),
    (("flow", "--set", "num_train_epochs=0"), "--set 'num_train_epochs=0': is too small"),
    (("flow", "--set", "learning_rate=-1"), "--set 'learning_rate=-1': is too small"),
    (("flow", "--set", "level=2"), "--set 'level': .*did you mean 'levels'"),
    (("flow", "--sentences", 50), "--sentences 50: .*needs 64"),
])  # fmt: skip
def test_postprocess_rejects_options_of_another_method(arguments, problem, tmp_path):
    method, *options = arguments
    with pytest.raises(OptionError, match=problem):  # before the model, which does not exist
        run("postprocess", method, "none", "none.txt", "-o", tmp_path / "new", *options)


def test_bias_of_length_is_measured_in_words_and_in_the_models_tokens(
    bert, named_pairs, monkeypatch
):
    _, count = _load(str(bert), Loading(pooling="mean", batch_size=8), False)
    sentence = "the orchard and a copper lantern"
    tokens, _ = TorchEncoder.load(bert, pooling="mean").tokenize([sentence])
    assert count(sentence) == tokens.lengths[0] - 2  # [CLS] and [SEP]
    pairs = ScoredPairs("x", tuple(texts(80, 1)), tuple(texts(80, 2)), np.full(80, 2.5))
    named_pairs(lambda task, **_: (pairs,))
    captions = Captions(tuple(texts(250, 3)), ("1",) * 250)
    monkeypatch.setattr(labeled, "flickr30k", lambda folder: captions)

    def bag(sentences):
        return np.array([[s.split().count(w) + 0.01 for w in WORDS] for s in sentences], np.float32)

    report = SUITES["bias"].run(bag, Options(tokens=count, resamples=0))
    assert {row.aggregate for row in report.select(metric="error_gap")} == {"words", "tokens"}
    assert report.select(metric="repetition_gain").rows


def test_glove_keeps_stop_words_when_asked(data, tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{w} {i} {i * i} 1\n" for i, w in enumerate([*WORDS, "the"])))
    with_them, without = (_load(str(path), Loading(), keep)[0] for keep in (True, False))
    assert not np.array_equal(with_them(["the river"]), without(["the river"]))


def test_captions_are_encoded_once_and_an_error_keeps_the_reports_before(
    data, tmp_path, monkeypatch
):
    pytest.importorskip("matplotlib")
    captions = Captions(tuple(texts(250, 3)), tuple(str(n // 5) for n in range(250)))
    monkeypatch.setattr(labeled, "flickr30k", lambda folder: captions)
    asked, encode = [], Glove.__call__

    def counted(self, sentences):
        asked.extend((id(self), sentence) for sentence in sentences)
        return encode(self, sentences) * (1 if "1" in self.row else np.nan)

    monkeypatch.setattr(Glove, "__call__", counted)
    for file, first in (("good", "1"), ("bad", "2")):
        text = "".join(f"{word} 1 {i}\n" for i, word in enumerate([first, *WORDS]))
        (tmp_path / file).write_text(text)
    given = ("--suite", "retrieval", "--form", "raw", "--data", data)
    written = ("--json-file", tmp_path / "r.json", "--report", tmp_path / "page.html")
    with pytest.raises(DataError, match="NaN or infinite"):
        measure(tmp_path / "good", tmp_path / "bad", *given, *written)
    assert len(asked) == len(set(asked))
    assert json.loads((tmp_path / "r.json").read_text())["model"] == str(tmp_path / "good")


def test_compare_on_data_of_ones_own(bert, tiny, tmp_path, sentences, monkeypatch):
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path))
    rows = [f"{sentences[i]}\t{sentences[i + 200]}\t{i % 6}" for i in range(150)]
    (tmp_path / "rated.tsv").write_text("\n".join(["a\tb\tscore", *rows]) + "\n")
    arms = ("compare", bert, tiny["electra"], "--pooling", "mean", "--json", "--quiet")
    found = json.loads(run(*arms, "--pairs", tmp_path / "rated.tsv"))["rows"]
    assert {row["metric"] for row in found} >= {"spearman"} and found[0]["count"] == 150
    (tmp_path / "pairs.tsv").write_text("\n".join(["a\tb", *(r[:-2] for r in rows)]) + "\n")
    held = json.loads(run(*arms, "--on", tmp_path / "pairs.tsv"))["rows"]
    assert {(row["split"], row["count"]) for row in held} == {("heldout", 30)}
    (tmp_path / "more.tsv").write_text("\n".join(["file\ta\tb", *(f"f\t{r[:-2]}" for r in rows)]))
    chosen = json.loads(run(*arms, "--on", tmp_path / "more.tsv", "--columns", "a,b"))["rows"]
    assert [row["after"] for row in chosen] == [row["after"] for row in held]
    queries = [(f"q{i}", sentences[i + 200]) for i in range(30)]
    judged = "\n".join(["query\tdocument\tscore", *(f"q{i}\t{i}\t1" for i in range(30))])
    asked = collection(tmp_path / "asked", enumerate(sentences[:60]), queries, judged)
    found = json.loads(run(*arms, "--collection", asked))["rows"]
    assert {row["task"] for row in found} == {"asked"}
    with pytest.raises(DataError, match=r"or compare by --form raw, --pairs FILE, --collection"):
        run(*arms)
    with pytest.raises(OptionError, match="needs pairs: two columns of texts"):
        (tmp_path / "notes.txt").write_text("one\ntwo\n")
        run(*arms, "--on", tmp_path / "notes.txt")


def test_compare_scores_pairs_that_took_no_part_in_any_run(bert, tmp_path, caplog):
    lines = list(dict.fromkeys(texts(1300, 11)))
    rows = list(zip(lines[:600], lines[600:1200], strict=True))
    path, other = tmp_path / "pairs.csv", tmp_path / "other.csv"
    for file, count in ((path, 600), (other, 150)):
        lines = [f"{a},{b}\n" for a, b in [("query", "answer"), *rows[:count]]]
        file.write_text("".join(lines))

    def trained(name, source=path, **settings):
        few = {"max_steps": 1, "batch_size": 8, "pooling": "mean", "max_seq_length": 64}
        how = {"base": bert, "evaluate": "heldout", "output_dir": tmp_path / name}
        fit("simcse_supervised", source, few | settings, **how)
        return tmp_path / name

    one, two = trained("one"), trained("two", seed=1, eval_size=100)
    shutil.copytree(bert, two / "run" / "best", dirs_exist_ok=True)
    corpus = open_corpus(path)
    every, fewer = (hold_out(corpus, count) for count in (1000, 100))
    assert len(every.queries) == 120 and set(fewer.queries) < set(every.queries)
    # Both held out the same items, whatever the seed; those that chose a step are in no score.
    found = unseen_pairs({"one": one, "again": trained("again", seed=7)}, corpus)
    assert found == (every.queries[1::2], every.pool, every.relevant[1::2])
    for folder in (two, two / "run" / "best"):
        queries, pool, relevant = unseen_pairs({"one": one, "two": folder, "base": bert}, corpus)
        both = [query for query in fewer.queries[1::2] if query in every.queries[1::2]]
        assert queries == both and pool == fewer.pool
        pairs = [(query, pool[place]) for query, (place,) in zip(queries, relevant, strict=True)]
        assert set(pairs) <= set(rows)
    assert unseen_pairs({"base": bert}, corpus)[0] == every.queries
    (row,) = json.loads(run("compare", one, two, "--on", path, "--json", "--quiet"))["rows"][:1]
    assert (row["split"], row["count"]) == ("heldout", len(queries))
    unseen_pairs({"few": trained("few", other)}, corpus)
    assert f"few was trained on {other}: does it share pairs with pairs.csv?" in caplog.text
    with pytest.raises(OptionError, match=r"^B .*few'.*one was trained with the same seed"):
        run("compare", bert, f"{one},{tmp_path / 'few'}", "--on", path)
    with pytest.raises(OptionError, match=r"0 of its pairs .* 20 are needed, as of 200 pairs"):
        unseen_pairs({"few": tmp_path / "few"}, open_corpus(other))
    record = json.loads((one / "run" / "settings.json").read_text())
    for change in ({"rows": None}, {"corpus": record["corpus"] | {"sha256": "another"}}):
        (one / "run" / "settings.json").write_text(json.dumps(record | change))
        with pytest.raises(
            OptionError, match=r"^--on 'pairs.csv': .*one was trained on other rows"
        ):
            run("compare", one, two, "--on", path)
