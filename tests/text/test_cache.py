"""The token cache: what was read comes back, once written it is reopened, never half there."""

import json
import os
import signal
import threading

import numpy as np
import pytest

from contrasent.errors import InputError, OutputError
from contrasent.text import cache as module
from contrasent.text.batches import BatchPlan, Collator
from contrasent.text.cache import tokenised
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.tokens import Tokenizer

ROWS = [
    ("The gardener sold his violin.", "Die Geige — verkauft!"),
    ("a map", "老水手 🎻"),
    ("kettle " * 20, "x"),
]


@pytest.fixture(scope="module")
def tokenizer(bert):
    return Tokenizer.load(bert, max_tokens=10)


def test_tokens_and_texts_come_back(tokenizer, tmp_path):
    many = ROWS * (module.CHUNK // 3 + 1)  # more than are tokenised at once
    cache = tokenised(open_corpus(many), tokenizer, tmp_path / "c", lower=False)
    assert (len(cache), len(cache.columns)) == (len(many), 2)
    for column in range(2):
        expected, _ = tokenizer([row[column] for row in ROWS])
        rows = np.array([2, 0, 0, 1, len(many) - 1])
        found = cache.tokens(column, rows)
        assert [row.tolist() for row in found] == [expected[r % 3].tolist() for r in rows]
        # White space at the ends is not part of a sentence.
        assert [cache.text(column, i) for i in range(3)] == [row[column].strip() for row in ROWS]
    cut = sum(tokenizer([text])[1][0] for row in ROWS for text in row)
    assert (cache.truncated, cut) == (3 * len(many) // 3, 3)
    assert cache.digest == open_corpus(many).digest()


def test_scores_are_kept_and_reopened(tokenizer, tmp_path):
    rated = [(*row, score) for row, score in zip(ROWS, (0.5, -2, 3), strict=True)]
    tokenised(open_corpus(rated, score=2), tokenizer, tmp_path / "c", lower=False)
    before = (tmp_path / "c" / "0.text").stat()
    cache = tokenised(open_corpus(rated, score=2), tokenizer, tmp_path / "c", lower=False)
    after = (tmp_path / "c" / "0.text").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(cache.columns) == 2
    plan = BatchPlan.make(np.arange(3), batch=2, seed=1, parts=1)
    made = Collator(cache, plan, (), tokenizer).batch(4)
    assert made.scores.tolist() == [[0.5, -2, 3][row] for row in made.rows]
    other = tokenised(open_corpus(ROWS), tokenizer, tmp_path / "c", lower=False)
    assert other.scores is None and Collator(other, plan, (), tokenizer).batch(0).scores is None


def test_anything_else_makes_it_anew(tokenizer, bert, tmp_path):
    def key(rows=ROWS, tokenizer=tokenizer, lower=False, **options):
        tokenised(open_corpus(rows, **options), tokenizer, tmp_path / "c", lower=lower)
        return json.loads((tmp_path / "c" / "meta.json").read_text())["key"]

    changed = [*ROWS[:2], ("kettle " * 19, "x")]
    keys = [key(), key(rows=changed), key(columns=(1, 0)), key(lower=True)]
    keys += [key(tokenizer=Tokenizer.load(bert, max_tokens=11)), key()]
    assert len(set(keys)) == 5 and keys[0] == keys[-1]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_runs_share_a_folder(tokenizer, bert, tmp_path):
    longer = Tokenizer.load(bert, max_tokens=11)
    made = []

    class Counted(Corpus):
        def __iter__(self):
            made.append(1)
            return super().__iter__()

    def open_both(results, at):
        for by in (tokenizer, longer):
            corpus = open_corpus(ROWS)
            corpus.__class__ = Counted
            cache = tokenised(corpus, by, tmp_path / "c", lower=False, workers=False, shared=True)
            results[at].append([cache.tokens(0, np.arange(3))[i].tolist() for i in range(3)])

    results = [[], []]
    both = [threading.Thread(target=open_both, args=(results, at)) for at in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(made) == 2  # one of each tokenizer, whoever came first
    for found in results:
        for by, rows in zip((tokenizer, longer), found, strict=True):
            expected, _ = by([row[0] for row in ROWS])
            assert rows == [expected[i].tolist() for i in range(3)]
    assert len([p for p in (tmp_path / "c").iterdir() if p.is_dir()]) == 2


def test_a_corpus_that_breaks_off_leaves_nothing(tokenizer, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n" * 8999 + "a\tb\0\n")
    with pytest.raises(InputError, match=r"pairs.tsv:9000: the text holds a NUL"):
        tokenised(open_corpus(path, columns=(0, 1)), tokenizer, tmp_path / "c", lower=False)
    assert [p.name for p in tmp_path.iterdir()] == ["pairs.tsv"]
    with pytest.raises(OutputError, match="cannot write"):
        tokenised(open_corpus(ROWS), tokenizer, path / "c", lower=False)


def test_a_cache_that_was_cut_off_is_made_anew(tokenizer, tmp_path):
    tokenised(open_corpus(ROWS), tokenizer, tmp_path / "c", lower=False)
    (tmp_path / "c" / "meta.json").unlink()
    (tmp_path / "c" / "0.text").write_bytes(b"")
    cache = tokenised(open_corpus(ROWS), tokenizer, tmp_path / "c", lower=False)
    assert cache.tokens(0, np.array([1]))[0].tolist() == tokenizer(["a map"])[0][0].tolist()
    cache.discard()
    cache.discard()
    assert not (tmp_path / "c").exists()


def test_it_is_read_from_disk_not_into_memory(tokenizer, tmp_path):
    cache = tokenised(open_corpus(ROWS), tokenizer, tmp_path / "c", lower=False)
    tokens, _ = cache.columns[0].shard(0)
    assert isinstance(tokens.ids, np.memmap) and isinstance(tokens.offsets, np.memmap)
    assert isinstance(cache.columns[0]._text, np.memmap)


def test_document_order_is_kept(tokenizer, tmp_path):
    path = tmp_path / "d.txt"
    path.write_text("one\ntwo\nthree\n\nfour\n\nfive\nsix\n")
    cache = tokenised(open_corpus(path, documents=True), tokenizer, tmp_path / "c", lower=False)
    assert cache.following.tolist() == [2, 1, 0, 0, 1, 0]
    plain = tokenised(open_corpus(path), tokenizer, tmp_path / "c", lower=False)
    assert plain.following is None


LINES = [f"the {n} lamps of harbour {n * n % 97} are lit at {n % 24} o'clock" for n in range(230)]


def serial(tokenizer):
    tokens, cut = tokenizer(LINES)
    return [row.tolist() for row in tokens], int(cut.sum())


def test_processes_make_the_shards_that_one_makes(tokenizer, tmp_path, small_shards):
    small_shards()
    expected, cut = serial(tokenizer)
    cache = tokenised(open_corpus(LINES), tokenizer, tmp_path / "c", lower=False)
    assert len(cache._workers) == 2
    assert len([*(tmp_path / "c").glob("0.??.tokens")]) == 12
    assert [row.tolist() for row in cache.tokens(0, np.arange(230))] == expected
    assert cache.truncated == cut > 0
    assert cache.lengths(0).tolist() == [len(row) for row in expected]
    cache.discard()
    assert not (tmp_path / "c").exists()


def test_a_row_is_there_before_its_shard(tokenizer, tmp_path, small_shards):
    small_shards(WAITED_FOR=100)
    expected, _ = serial(tokenizer)
    begun = tokenised(open_corpus(LINES), tokenizer, tmp_path / "c", lower=False, workers=False)
    assert not [*(tmp_path / "c").glob("*.tokens")]
    begun.make([(0, 3)])
    rows = np.random.default_rng(0).permutation(230)
    assert [row.tolist() for row in begun.tokens(0, rows)] == [expected[row] for row in rows]
    assert begun.truncated is None
    assert [path.name for path in (tmp_path / "c").glob("*.tokens")] == ["0.03.tokens"]


@pytest.mark.parametrize("waited_for, count", [(100, 1), (1000, 0)])
def test_one_process_helps_a_training_that_does_not_wait(
    tokenizer, tmp_path, small_shards, waited_for, count
):
    """On a single core; where it is waited for, this process makes the shards itself."""
    small_shards(cores=1, WAITED_FOR=waited_for)
    cache = tokenised(open_corpus(LINES), tokenizer, tmp_path / "c", lower=False)
    assert len(cache._workers) == count
    for worker in cache._workers:
        assert worker.wait(60) == 0
    assert len([*(tmp_path / "c").glob("*.tokens")]) == 12
    cache.discard()


def test_what_was_made_before_a_kill_is_not_made_again(tokenizer, tmp_path, small_shards):
    small_shards()
    folder, texts = tmp_path / "c", tmp_path / "texts.txt"
    texts.write_text("\n".join(LINES))
    pid = os.fork()
    if pid == 0:
        writing = module.Column.writing

        def killed(self, number):
            if number == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return writing(self, number)

        module.Column.writing = killed
        tokenised(open_corpus(texts), tokenizer, folder, lower=False, workers=False)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.tokens")}
    assert len(before) == 5
    cache = tokenised(open_corpus(texts), tokenizer, folder, lower=False)
    expected, _ = serial(tokenizer)
    assert [row.tolist() for row in cache.tokens(0, np.arange(230))] == expected
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.tokens")}
    assert len(after) == 12 and before.items() <= after.items()


def test_a_worker_ends_with_the_process_that_started_it(tokenizer, tmp_path, small_shards):
    small_shards()
    cache = tokenised(open_corpus(LINES), tokenizer, tmp_path / "c", lower=False)
    (tmp_path / "c" / "0.07.tokens").unlink()
    cache = module.TokenCache(tmp_path / "c")
    with pytest.raises(SystemExit):
        cache.make([(0, 7)], os.getpid())
    assert [path.name for path in (tmp_path / "c").glob("*0.07*")] == []
    cache.make([(0, 7)], os.getppid())
    assert (tmp_path / "c" / "0.07.tokens").is_file()
