"""Named data sets: places, counts, gold scores, a stand-in for the hub; our own sentences."""

import gzip
import json
from contextlib import ExitStack

import numpy as np
import pytest

from contrasent.datasets import hub, official
from contrasent.datasets.labeled import transfer_set
from contrasent.datasets.official import PairsFile, Pin, Subset
from contrasent.datasets.sts import score_digest, sts_pairs
from contrasent.errors import DataError, OptionError
from hub_server import Hub

PAIRS = [
    ("The kettle is on.", "Somebody is boiling water.", 3.5),
    ("Rain fell all night.", "It was a wet night.", 4.25),
    ("The bridge is closed.", "A cat sleeps on the chair.", 0.0),
]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A data folder with a yearly set of two parts, one of them partly annotated."""
    scores = [p[2] for p in PAIRS]
    parts = (
        Subset("kitchen", 3, 3, score_digest(scores)),
        Subset("weather", 3, 2, score_digest(scores[:2])),
    )
    monkeypatch.setitem(official.STS_YEARS, "STS12", parts)
    dev = PairsFile("STSBenchmark/sts-dev.csv", 3, parts[0].digest)
    monkeypatch.setitem(official.STS_TABLES, "STSB", {"dev": dev})
    folder = tmp_path / "STS-raw" / "STS12-en-test"
    folder.mkdir(parents=True)
    for part in parts:
        text = "".join(f"{a}\t{b}\n" for a, b, _ in PAIRS)
        (folder / f"STS.input.{part.name}.txt").write_text(text)
        gold = [str(s) if i < part.annotated else "" for i, s in enumerate(scores)]
        (folder / f"STS.gs.{part.name}.txt").write_text("\n".join(gold) + "\n")
    table = tmp_path / "STS-raw" / "STSBenchmark"
    table.mkdir()
    (table / "sts-dev.csv").write_text(
        "".join(f"g\tf\ty\t{i}\t{s}\t{a}\t{b}\n" for i, (a, b, s) in enumerate(PAIRS))
    )
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path))
    return folder


def test_reads_every_annotated_pair_of_every_part(small):
    kitchen, weather = sts_pairs("STS12", form="raw")
    assert (kitchen.name, len(kitchen)) == ("kitchen", 3)
    assert (weather.name, len(weather)) == ("weather", 2)
    assert kitchen.first[1] == PAIRS[1][0]
    assert kitchen.second[2] == PAIRS[2][1]
    np.testing.assert_array_equal(kitchen.scores, [3.5, 4.25, 0.0])
    (found,) = sts_pairs("STSB", split="dev", form="raw")
    assert [*zip(found.first, found.second, found.scores, strict=True)] == PAIRS


@pytest.mark.parametrize(("damage", "message"), [
    (lambda f: cut(f / "STS.input.kitchen.txt"), r"STS.input.kitchen.txt: 2 lines, expected 3"),
    (lambda f: swap(f / "STS.gs.kitchen.txt", "3.5", "3.6"), "3 gold scores differ from the off"),
    (lambda f: swap(f / "STS.gs.kitchen.txt", "3.5", "35"), r"kitchen.txt:1: '35' is not a score"),
    (lambda f: swap(f / "STS.gs.kitchen.txt", "3.5", "nan"), r":1: 'nan' is not a score from"),
    (lambda f: swap(f / "STS.gs.kitchen.txt", "3.5", ""), r"kitchen.txt: 2 scores, expected 3"),
    (lambda f: swap(f / "STS.input.kitchen.txt", "\t", " "), r"txt:1: expected two sentences"),
    (lambda f: (f / "STS.input.weather.txt").unlink(), r"put the file at .*input.weather.txt"),
    (lambda f: (f / "STS.input.kitchen.txt").write_bytes(b"a\tb\n\xff\n"), r"txt:2: byte 0xff at"),
])  # fmt: skip
def test_damaged_files_are_named(small, damage, message):
    damage(small)
    with pytest.raises(DataError, match=message):
        sts_pairs("STS12", form="raw")


def cut(path):
    path.write_text("\n".join(path.read_text().split("\n")[:-2]) + "\n")


def swap(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(("options", "message"), [
    ({"task": "STS1"}, "did you mean 'STS1"),
    ({"task": "STS12", "split": "dev"}, "only a test split"),
    ({"task": "STSB-de", "form": "senteval"}, "published only in"),
    ({"task": "SICKR-all", "split": "dev"}, "joins all splits"),
])  # fmt: skip
def test_unknown_names_suggest_the_nearest(options, message):
    task = options.pop("task")
    with pytest.raises(OptionError, match=message):
        sts_pairs(task, **options)


def test_what_the_hub_does_not_hold_says_which_file_goes_where(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"form raw.*SentEval/downstream/STS/STSBenchmark/sts-test"):
        sts_pairs("STSB", folder=tmp_path)
    with pytest.raises(DataError, match=r"'SICKR-all'.*SICK/SICK_test_annotated.txt"):
        sts_pairs("SICKR", form="raw", folder=tmp_path)
    with pytest.raises(DataError, match=r"only the raw form \(evaluate --form raw\); put the file"):
        sts_pairs("STSB", split="dev", folder=tmp_path)
    with pytest.raises(DataError, match=r"put the file at .*downstream/MR/rt-polarity.pos"):
        transfer_set("MR", folder=tmp_path)
    monkeypatch.setenv("CONTRASENT_DATA", "/no/such/place")
    with pytest.raises(DataError, match="no such folder"):
        sts_pairs("STSB")


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl", "parquet"])
def test_the_hub_is_asked_for_the_pinned_revision(tmp_path, monkeypatch, hub_of, kind):
    rows = [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in PAIRS]
    file = tmp_path / f"validation.{kind}"
    text = "".join(json.dumps(r) + "\n" for r in rows)
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    requested = hub_of({"README.md": b"", "train.jsonl": b"{}", file.name: file.read_bytes()})
    monkeypatch.setitem(official.STS_PINS, "STSB", Pin("o/set", "abc123", {"dev": 3}))
    (found,) = sts_pairs("STSB", split="dev", form="raw", folder=tmp_path)
    assert [*zip(found.first, found.second, found.scores, strict=True)] == PAIRS
    assert requested == [
        "/api/datasets/o/set/tree/abc123", f"/datasets/o/set/resolve/abc123/{file.name}",
    ]  # fmt: skip


def test_the_hubs_answer_is_counted_and_checked(tmp_path, hub_of):
    row = {"sentence1": "One.", "sentence2": "Two.", "score": 1}
    hub_of({"test.jsonl": json.dumps(row).encode()})
    with pytest.raises(DataError, match=r"1 pairs in 'test', expected 1,379"):
        sts_pairs("STSB", form="raw", folder=tmp_path)
    hub_of({"test.jsonl": b'{"text": "One."}'})
    with pytest.raises(DataError, match="rows have text; expected sentence1"):
        sts_pairs("STSB", form="raw", folder=tmp_path)
    hub_of({"README.md": b""})
    with pytest.raises(DataError, match="no file for the split 'test'"):
        sts_pairs("STSB", form="raw", folder=tmp_path)
    hub_of(None)
    with pytest.raises(DataError, match=r"\(404 [^\n]*\); put the file at STS-raw/STSBench"):
        sts_pairs("STSB", form="raw", folder=tmp_path)


def test_no_network_is_told_without_retries(ask_hub, monkeypatch, caplog):
    """Without our question the hub's client would ask six times, and end in an error of its own."""
    ask_hub()
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    with pytest.raises(DataError, match=r"\(the hub cannot be reached\); put the file at STS-raw"):
        sts_pairs("STSB", form="raw")
    assert "Retrying" not in caplog.text


@pytest.fixture
def hub_of(ask_hub):
    """Let a hub of these files answer; what it is asked for."""
    with ExitStack() as servers:

        def hub_of(files):
            answering = Hub(files)
            ask_hub(servers.enter_context(answering.running()))
            return answering.asked

        yield hub_of


def test_split_files_know_the_usual_layouts():
    names = [
        "test.jsonl.gz", "data/test-00000-of-00001.parquet", "de/test-00000-of-00001.parquet",
        "stsb-es-test.jsonl", "data/contest-0.parquet", "latest.json", "train-fr.jsonl",
        "pair/train-0-of-1.parquet", "pair-class/train-0-of-1.parquet", "train_gen-0-of-1.parquet",
    ]  # fmt: skip
    assert hub.split_files(names[:2], "test") == sorted(names[:2])
    assert hub.split_files(names, "dev") == hub.split_files(names[9:], "train") == []
    for split, config, number in (
        ("test", "de", 2), ("test", "es", 3), ("train", "fr", 6), ("train", "pair", 7),
        ("train", "pair-class", 8), ("train_gen", "", 9),
    ):  # fmt: skip
        assert hub.split_files(names, split, config) == [names[number]]


def test_a_corpus_of_the_hub(hub_of):
    from contrasent.train.plan import open_corpora

    rows = b'{"a": "one", "b": "two"}\n{"a": "three", "b": "four"}\n'
    names = ["README.md", "pair/train-0-of-1.jsonl", "pair/dev.jsonl", "triplet/train-0-of-1.jsonl"]
    requested = hub_of(dict.fromkeys(names, rows))
    commit = "0123456789" * 4
    corpus = open_corpora(f"o/set@{commit}#pair/train")
    assert list(corpus) == [("one", "two"), ("three", "four")]
    assert requested == [
        f"/api/datasets/o/set/tree/{commit}", f"/datasets/o/set/resolve/{commit}/{names[1]}",
    ]  # fmt: skip
    wanted = r"configurations; add #CONFIG/train; one of pair, tr"
    for part in ("", "#train"):
        with pytest.raises(OptionError, match=wanted):
            hub.fetch_corpus(f"o/set@{commit}{part}")
    (file,) = hub.fetch_corpus(f"o/set@{commit}#dev")
    assert (file.parent.name, file.name, file.read_bytes()) == ("pair", "dev.jsonl", rows)
    with pytest.raises(DataError, match="no table for the split 'test'"):
        hub.fetch_corpus(f"o/set@{commit}#test")
    hub_of(None)
    said = r"cannot be read from the hub \(404 [^\n]*\); check the name, the commit"
    with pytest.raises(DataError, match=said):
        hub.fetch_corpus(f"o/set@{commit}")
    assert hub.fetch_corpus("o/set") == hub.fetch_corpus("o/set@main") == []  # no commit, no hub


def test_a_part_of_the_shards_in_the_hubs_cache_is_no_data_set(ask_hub):
    commit, cache = "0123456789" * 4, ask_hub(offline=True)
    folder = cache / "datasets--o--set" / "snapshots" / commit / "data"
    folder.mkdir(parents=True)
    names = [f"train-{n:05d}-of-00002-c{n}.jsonl" for n in range(2)]
    (folder / names[0]).write_text('"one"\n', "utf-8")
    said = r"\(of data/train-\*-of-00002 only 1 in the cache\); check"
    with pytest.raises(DataError, match=said):
        hub.fetch_corpus(f"o/set@{commit}")
    (folder / names[1]).write_text('"two"\n', "utf-8")
    assert [path.name for path in hub.fetch_corpus(f"o/set@{commit}")] == names


def test_official_sizes_are_the_published_sums():
    totals = {year: sum(p.annotated for p in parts) for year, parts in official.STS_YEARS.items()}
    assert totals == {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
    assert sum(table.rows for table in official.STS_TABLES["SICKR"].values()) == 9927
    assert len(official.STS_PINS) == 9
    assert all(len(f"{int(p.revision, 16):040x}") == 40 for p in official.STS_PINS.values())


def test_transfer_files_are_read(tmp_path, monkeypatch):
    def read(task, *files):
        """Of stand-in files: (split, path, rows, text), and perhaps their one class."""
        stated = [official.TransferFile(*one[:3], *one[4:]) for one in files]
        monkeypatch.setitem(official.TRANSFER_FILES, task, tuple(stated))
        for _, name, _, text, *_ in files:
            path = tmp_path / "SentEval" / "downstream" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return transfer_set(task, folder=tmp_path)

    good = ("all", "MR/a.pos", 2, b"well made\nfine\n", 1)
    found = read("MR", good, ("all", "MR/a.neg", 1, b"dull\n", 0))["all"]
    assert found.first == ("well made", "fine", "dull")
    assert found.labels.tolist() == [1, 1, 0]
    text = "HUM:ind Who wrote it ?\nLOC:city Where is caf\xe9 ?\n".encode("latin-1")
    found = read("TREC", ("train", "TREC/t", 2, text))["train"]
    assert found.first == ("Who wrote it ?", "Where is caf\xe9 ?")
    assert found.labels.tolist() == [3, 4]
    text = b"Quality\t1\t2\tA\tB\n1\t10\t11\tIt rained .\tRain fell .\n"
    assert read("MRPC", ("test", "MRPC/t", 1, text))["test"].second == ("Rain fell .",)
    with pytest.raises(DataError, match=r"SST/d:2: not a row of SST2"):
        read("SST2", ("dev", "SST/d", 2, b"good \t1\nbad \t7\n"))
    with pytest.raises(DataError, match=r"SST/d: 2 rows, expected 3"):
        read("SST2", ("dev", "SST/d", 3, b"good \t1\nbad \t7\n"))


@pytest.mark.data
def test_the_real_files_are_the_official_ones(data_folder):
    seen = 0
    for task in official.STS_NAMES:
        for form in official.FORMS:
            if task.startswith("STSB-") and form == "senteval":
                continue
            parts = sts_pairs(task, form=form, folder=data_folder)
            assert all(s.strip() for part in parts for s in (*part.first, *part.second))
            seen += 1
    assert seen == 18
    names = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
    sizes = [sum(map(len, transfer_set(t, folder=data_folder).values())) for t in names]
    assert sizes == [10662, 3775, 10000, 10606, 70042, 5952, 5801]
