"""Averaged word vectors: both protocols, and files that are not what they should be."""

import numpy as np
import pytest

from contrasent.errors import InputError
from contrasent.postprocess import STOP_WORDS, Glove

TEXT = "the 1 0\nharbour 0 1\nHarbour 5 5\nquiet 1 1\n. 9 9\nof sorts 2 3\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(TEXT)
    return path


def test_stop_words_which_are_function_words_and_punctuation_go_by_default(file):
    glove = Glove.load(file)
    assert glove.row["of sorts"] == 5
    file.write_text("6 2\n" + TEXT.replace("\n", " \n"))  # word2vec's lines, and its first one
    assert Glove.load(file).row == glove.row
    np.testing.assert_array_equal(Glove.load(file).vectors, glove.vectors)
    found = glove(["The quiet harbour.", "the", "Harbour", "", "HARBOUR, quiet"])
    np.testing.assert_allclose(found, [[0.5, 1], [0, 0], [5, 5], [0, 0], [0.5, 1]])
    assert len(STOP_WORDS) > 150
    assert {"the", "of", "weren't"} <= STOP_WORDS
    assert not {"harbour", "good", "king"} & STOP_WORDS


def test_sentevals_bag_of_words_keeps_every_known_token(file):
    glove = Glove.load(file, stop_words=True)
    found = glove(["the quiet harbour .", "The harbour."])
    np.testing.assert_allclose(found, [[11 / 4, 11 / 4], [0, 0]])


@pytest.mark.parametrize(("text", "message"), [
    ("a 1 2\nb 1\n", ":2: expected a word and 2 numbers"),
    ("a 1 2\nb 1 x\n", ":2: expected a word and 2 numbers"), ("a 1 nan\n", ":1: expected a word"),
    ("", "contains no words"), ("1 2\n\xff 1 2\n", "not UTF-8"),
])  # fmt: skip
def test_bad_files_are_named(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        Glove.load(path)
    with pytest.raises(InputError, match="no such file"):
        Glove.load(tmp_path / "none.txt")
