"""Vectors of a stream in shards: exact rows, duplicates once, and a kill that costs one shard."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from openers import vectors

from contrasent.encoding import shards
from contrasent.encoding.shards import Seen, encode_shards, hashes, read_manifest, read_shards
from contrasent.errors import InputError, OutputError

FACTS = {"model": "made up"}
TEXTS = [f"text {number * number % 397}" for number in range(250)]


class Counted:
    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return vectors(texts)


def run(folder, encode, texts=TEXTS, **options):
    given = {"facts": FACTS, "dimension": 3, "rows": 20, **options}
    return encode_shards(folder, encode, iter(texts), **given)


def stored(folder):
    return np.concatenate([v for v, _ in read_shards(folder, read_manifest(folder))])


def test_rows_are_exact_and_equal_texts_are_computed_once(tmp_path):
    encode = Counted()
    manifest = run(tmp_path / "v", encode, keep_texts=True)
    assert np.array_equal(stored(tmp_path / "v"), vectors(TEXTS))
    kept = [text for _, texts in read_shards(tmp_path / "v", manifest) for text in texts]
    assert kept == TEXTS
    assert manifest.complete
    assert [shard.rows for shard in manifest.shards] == [20] * 12 + [10]
    assert sorted(encode.texts) == sorted(set(TEXTS))


@pytest.mark.parametrize("after", [0, 1, 45, 60])
def test_a_run_that_stops_goes_on_behind_its_last_shard(tmp_path, after):
    class Stop(Exception):
        pass

    first, count = Counted(), [0]

    def broken(texts):
        count[0] += len(texts)
        if count[0] > after:
            raise Stop
        return first(texts)

    with pytest.raises(Stop):
        run(tmp_path / "v", broken)
    (tmp_path / "v" / "shard-000099.npy").write_bytes(b"half")
    second = Counted()
    run(tmp_path / "v", second)
    assert np.array_equal(stored(tmp_path / "v"), vectors(TEXTS))
    assert sorted(first.texts + second.texts) == sorted(set(TEXTS))
    assert not (tmp_path / "v" / "shard-000099.npy").exists()


def test_other_texts_settings_or_writers_are_refused(tmp_path):
    run(tmp_path / "v", vectors)
    with pytest.raises(InputError, match="made of other texts"):
        run(tmp_path / "v", vectors, ["text 5", *TEXTS[1:]])
    with pytest.raises(InputError, match="250 vectors and the input has 240"):
        run(tmp_path / "v", vectors, TEXTS[:240])
    with pytest.raises(OutputError, match=r"other settings \(model\)"):
        run(tmp_path / "v", vectors, facts={"model": "another"})

    def inside(texts):
        with pytest.raises(OutputError, match="another process"):
            run(tmp_path / "w", vectors)
        return vectors(texts)

    run(tmp_path / "w", inside, TEXTS[:20])
    (tmp_path / "v" / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="no manifest of vectors"):
        run(tmp_path / "v", vectors)


def test_beyond_the_bound_texts_are_computed_again_and_right(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MOST", 7)
    encode = Counted()
    run(tmp_path / "v", encode)
    assert np.array_equal(stored(tmp_path / "v"), vectors(TEXTS))
    assert len(encode.texts) > len(set(TEXTS))


def test_seen_is_a_dictionary_of_first_rows():
    random = np.random.default_rng(0)
    seen, plain, row = Seen(), {}, 0
    for _ in range(30):
        block = [str(n) for n in random.integers(0, 400, random.integers(1, 60))]
        wanted = [plain.get(text, -1) for text in block]
        assert seen.find(hashes(block)).tolist() == wanted
        seen.add(hashes(block), row)
        for text in block:
            plain.setdefault(text, row)
            row += 1
    assert seen.find(np.array([[seen.high[3], seen.low[3] + 1]], np.uint64)).tolist() == [-1]


PROGRAM = """
import sys, time
import numpy as np
from contrasent.encoding.shards import encode_shards
def encode(texts):
    with open(sys.argv[2], "a") as log:
        log.write("".join(t + "\\n" for t in texts))
    time.sleep(0.02)
    numbers = [int(t.split()[1]) for t in texts]
    return np.array([[len(t), n, 1 / (1 + n)] for t, n in zip(texts, numbers)], np.float32)
texts = (f"text {n * n % 4999}" for n in range(3000))
encode_shards(__import__("pathlib").Path(sys.argv[1]), encode, texts,
              facts={"model": "made up"}, dimension=3, rows=50, keep_texts=True)
"""


def test_killed_at_any_time_it_ends_row_exact_with_one_shard_repeated(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "v"), str(log)]
    manifest = tmp_path / "v" / "manifest.json"
    kills = 0
    for number in range(5):
        process = subprocess.Popen(command)
        done = len(json.loads(manifest.read_text())["shards"]) if manifest.exists() else 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if manifest.exists() and len(json.loads(manifest.read_text())["shards"]) > done + 2:
                time.sleep(0.007 * number)
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                break
    assert kills == 5
    assert not read_manifest(tmp_path / "v").complete
    subprocess.run(command, check=True)
    texts = [f"text {n * n % 4999}" for n in range(3000)]
    assert np.array_equal(stored(tmp_path / "v"), vectors(texts))
    computed = log.read_text().split("\n")[:-1]
    # A kill repeats at most the shard that was being computed, of 50 texts.
    assert len(set(computed)) == len(set(texts))
    assert len(computed) - len(set(computed)) <= 50 * kills
    assert not [p for p in (tmp_path / "v").iterdir() if p.name.startswith((".shard", ".manif"))]
    assert (tmp_path / "v" / "shard-000000.npy").stat().st_size == 128 + 50 * 3 * 4
