"""The token cache: what was read comes back, once written it is reopened, never half there."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from contrasent.errors import InputError, OutputError
from contrasent.text import cache as module
from contrasent.text.batches import BatchPlan, Collator
from contrasent.text.cache import tokenized
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.tokens import Tokenizer

ROWS = [
    ("The gardener sold his violin.", "Die Geige — verkauft!"),
    ("a map", "老水手 🎻"),
    ("kettle " * 20, "x"),
]


def files(folder):
    return [*folder.glob("*.tokens")]


@pytest.fixture(scope="module")
def tokenizer(bert):
    return Tokenizer.load(bert, max_seq_length=10)


def test_tokens_and_texts_come_back(tokenizer, tmp_path):
    many = ROWS * (module.CHUNK // 3 + 1)  # more than are tokenized at once
    cache = tokenized(open_corpus(many), tokenizer, tmp_path / "c", lower=False)
    assert (len(cache), cache.width) == (len(many), 2)
    for column in range(2):
        expected, _ = tokenizer([row[column] for row in ROWS])
        rows = np.array([2, 0, 0, 1, len(many) - 1])
        found = cache.tokens(column, rows)
        assert [row.tolist() for row in found] == [expected[r % 3].tolist() for r in rows]
        # White space at the ends is not part of a sentence.
        assert [cache.text(column, i) for i in range(3)] == [row[column].strip() for row in ROWS]
    cut = sum(tokenizer([text])[1][0] for row in ROWS for text in row)
    assert (cache.cut, cut) == (len(many), 3)
    assert cache.digest == open_corpus(many).digest()
    assert isinstance(cache._cells, np.memmap) and isinstance(cache._starts, np.memmap)
    for _ in range(2):
        cache.discard()
    assert not (tmp_path / "c").exists()


def test_scores_are_kept_and_reopened(tokenizer, tmp_path):
    rated = [(*row, score) for row, score in zip(ROWS, (0.5, -2, 3), strict=True)]
    tokenized(open_corpus(rated, score=2), tokenizer, tmp_path / "c", lower=False)
    (before,) = (path.stat() for path in files(tmp_path / "c"))
    cache = tokenized(open_corpus(rated, score=2), tokenizer, tmp_path / "c", lower=False)
    (after,) = (path.stat() for path in files(tmp_path / "c"))
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert cache.width == 2
    plan = BatchPlan.make(np.arange(3), batch_size=2, seed=1, parts=1)
    made = Collator(cache, plan, (), tokenizer).batch(4)
    assert made.scores.tolist() == [[0.5, -2, 3][row] for row in made.rows]
    other = tokenized(open_corpus(ROWS), tokenizer, tmp_path / "c", lower=False)
    assert other.scores is None and Collator(other, plan, (), tokenizer).batch(0).scores is None


def test_anything_else_makes_it_anew(tokenizer, bert, tmp_path):
    def key(rows=ROWS, tokenizer=tokenizer, lower=False, **options):
        tokenized(open_corpus(rows, **options), tokenizer, tmp_path / "c", lower=lower)
        (file,) = files(tmp_path / "c")
        return file.name

    changed = [*ROWS[:2], ("kettle " * 19, "x")]
    keys = [key(), key(rows=changed), key(columns=(1, 0)), key(lower=True)]
    keys += [key(tokenizer=Tokenizer.load(bert, max_seq_length=11)), key()]
    assert len(set(keys)) == 5 and keys[0] == keys[-1]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_runs_share_a_folder(tokenizer, bert, tmp_path):
    longer = Tokenizer.load(bert, max_seq_length=11)
    made = []

    class Counted(Corpus):
        def __iter__(self):
            made.append(1)
            return super().__iter__()

    def found(by):
        corpus = open_corpus(ROWS)
        corpus.__class__ = Counted
        cache = tokenized(corpus, by, tmp_path / "c", lower=False, shared=True)
        return [row.tolist() for row in cache.tokens(0, np.arange(3))]

    by = [tokenizer, tokenizer, longer, longer]
    with ThreadPoolExecutor(2) as threads:
        results = [*threads.map(found, by)]
    assert len(made) == 2  # one of each tokenizer, whoever came first
    assert results == [[row.tolist() for row in one([r[0] for r in ROWS])[0]] for one in by]
    assert len(files(tmp_path / "c")) == 2


def test_a_corpus_that_breaks_off_leaves_nothing(tokenizer, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n" * 8999 + "a\tb\0\n")
    with pytest.raises(InputError, match=r"pairs.tsv:9000: the text contains a NUL"):
        tokenized(open_corpus(path, columns=(0, 1)), tokenizer, tmp_path / "c", lower=False)
    assert not [*(tmp_path / "c").iterdir()]
    with pytest.raises(OutputError, match="cannot write"):
        tokenized(open_corpus(ROWS), tokenizer, path / "c", lower=False)


def test_document_order_is_kept(tokenizer, tmp_path):
    path = tmp_path / "d.txt"
    path.write_text("one\ntwo\nthree\n\nfour\n\nfive\nsix\n")
    cache = tokenized(open_corpus(path, documents=True), tokenizer, tmp_path / "c", lower=False)
    assert cache.following.tolist() == [2, 1, 0, 0, 1, 0]
    plain = tokenized(open_corpus(path), tokenizer, tmp_path / "c", lower=False)
    assert plain.following is None


# Python from 3.12 on warns of a fork beside threads, which xdist has, and readers of documents.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_writer_leaves_nothing_that_counts(tokenizer, tmp_path):
    folder, texts = tmp_path / "c", tmp_path / "texts.txt"
    texts.write_text("one\ntwo\nthree\n")
    pid = os.fork()
    if pid == 0:
        module._numbers = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        tokenized(open_corpus(texts), tokenizer, folder, lower=False, shared=True)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert [*folder.iterdir()] and not files(folder)
    cache = tokenized(open_corpus(texts), tokenizer, folder, lower=False, shared=True)
    assert [cache.text(0, row) for row in range(3)] == ["one", "two", "three"]
    assert len(files(folder)) == 1 and len([*folder.iterdir()]) == 2  # and its lock


def test_lengths_and_keys_are_those_of_the_tokens(tokenizer, tmp_path):
    rows = [*ROWS, ("The gardener sold his violin.", "x")]
    cache = tokenized(open_corpus(rows), tokenizer, tmp_path / "c", lower=False)
    for column in range(2):
        tokens, _ = tokenizer([row[column] for row in rows])
        assert cache.lengths(column).tolist() == tokens.lengths.tolist()
    keys = cache.keys()
    assert keys.shape == (4, 2) and len(np.unique(keys)) == 6
    assert keys[0, 0] == keys[3, 0] and keys[2, 1] == keys[3, 1]
