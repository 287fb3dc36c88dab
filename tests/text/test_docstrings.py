import gc
import sys
import sysconfig
import textwrap
import warnings
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import InputError, OptionError
from contrasent.text import installed
from contrasent.text.docstrings import (
    Documented,
    pairs,
    read_documentation,
    split,
    survey,
)
from contrasent.text.prose import LONGEST, split_sentences, summary_and_explanation

MORE = "The rest of the text says at some length what it is good for."


@pytest.fixture
def source(tmp_path):
    """Write a module below the temporary folder."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(textwrap.dedent(text).encode() if isinstance(text, str) else text)
        return path

    return write


def names(folder: Path) -> list[str]:
    return [one.name for one in read_documentation([folder])]


# From a docstring to prose


def both(docstring: str) -> tuple[str, str]:
    return summary_and_explanation(textwrap.dedent(docstring))


def test_summary_and_explanation_of_one_paragraph():
    docstring = """Sort the rows of a table.  Rows with equal keys
        keep the order in which they came, e.g. the order of a file.
        """
    assert summary_and_explanation(docstring) == (
        "Sort the rows of a table.",
        "Rows with equal keys keep the order in which they came, e.g. the order of a file.",
    )


@pytest.mark.parametrize(
    "section",
    [
        "Parameters\n----------\nx : int\n    The number of all the rows in the table.",
        "Args:\n    x: The number of all the rows in the table.",
        ":param x: The number of all the rows in the table.",
        "Returns: The number of all the rows in the table.",
        ">>> sort(table)\nThe number of all the rows in the table.",
        "Example:\n\nThe number of all the rows in the table.",
        "Notes\n=====\nThe number of all the rows in the table.",
        "```python\nThe number of all the rows in the table.\n```",
    ],
)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_sections_end_the_prose(section, gap):
    docstring = f"Sort the rows of a table.\n\n{MORE}{gap}{section}\n\n{MORE} Again."
    assert summary_and_explanation(docstring) == ("Sort the rows of a table.", MORE)
    assert summary_and_explanation(section) == ("", "")


@pytest.mark.parametrize(
    "between",
    [
        ".. versionadded:: 1.2\n   The text of this note is not for us to read.",
        "    sort(table)  # the code of this example is not for us to read.",
        "* The first item of the list is not for us to read.\n* The second is like it.",
        "1. The first item of the list is not for us to read.",
        "| The table of this page is not for us to read. |",
        "Deprecated since 1.2: it is not for us to read any more.",
        "The formula is x = y + z and is not for us to read.",
        "See https://example.org for the text that is not for us to read.",
        "Le texte est en français, donc personne ne lit cela ici.",
        "and this is the rest of a sentence whose start is not for us to read.",
        "    Given this: it is for us to read",
    ],
)
def test_what_is_no_prose_is_passed_over(between):
    docstring = f"Sort the rows of a table.\n\n{between}\n\n{MORE}"
    assert summary_and_explanation(docstring) == ("Sort the rows of a table.", MORE)


@pytest.mark.parametrize(
    "title",
    [
        "sort(table, key=None) -> list",
        "table.sort",
        "Sorting.",
        "=======\nSorting\n=======",
        "Sorting of all tables\n---------------------",
    ],
)
def test_titles_and_signatures_are_no_summaries(title):
    docstring = f"{title}\n\nSort the rows of a table.\n\n{MORE}"
    assert summary_and_explanation(docstring) == ("Sort the rows of a table.", MORE)


def test_mark_up_is_taken_off():
    docstring = """
        Sort as :func:`sorted`, :meth:`~list.sort` do, or :class:`a table <.Table>` of :mod:`.csv`.

        The *first* of **all** ``keys`` is `found <https://example.org>`_ by `name` [1]_. The
        [`Table`] is [documented](other.md) for :obj:`!args` here , and so is ``names[i]``.
        """
    assert both(docstring) == (
        "Sort as sorted, sort do, or a table of csv.",
        "The first of all keys is found by name. "
        "The Table is documented for args here, and so is names[i].",
    )


def test_a_long_explanation_ends_with_a_sentence():
    docstring = "Sort the rows of a table.\n\n" + " ".join([MORE] * 30)
    explanation = summary_and_explanation(docstring)[1]
    words = len(MORE.split())
    assert explanation == " ".join([MORE] * -(-LONGEST // words))


@pytest.mark.parametrize(
    "docstring", ["", "   \n", "x", "Sorts.", "{}", "-> int", "%(summary)s of the table", "@, ="]
)
def test_nothing_to_read(docstring):
    assert summary_and_explanation(docstring) == ("", "")


def test_an_explanation_must_explain():
    assert both("Sort the rows of a table.\n\nIt is fast.") == ("Sort the rows of a table.", "")


def test_abbreviations_do_not_end_a_sentence():
    text = "Uses e.g. Newton's method, cf. Knuth. It was found by D. E. Knuth. Is it? Yes."
    assert split_sentences(text) == [
        "Uses e.g. Newton's method, cf. Knuth.",
        "It was found by D. E. Knuth.",
        "Is it?",
        "Yes.",
    ]


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\n`*:.-= "), max_size=200))
def test_any_text_can_be_a_docstring(text):
    summary, explanation = summary_and_explanation(text)
    assert "\n" not in summary + explanation
    assert summary or not explanation


# From sources to docstrings


def test_modules_classes_and_functions_are_named(source, tmp_path):
    source(
        "shop/__init__.py",
        '''
        """The shop sells all kinds of things."""
        from shop._goods import *
        from .tills.fast import Till
        ''',
    )
    source(
        "shop/_goods.py",
        '''
        """Goods that are sold in the shop."""
        __all__ = ["price"]
        def price():
            """Tell the price of a thing."""
            def inner():
                """Nobody calls this function by name."""
        def weight():
            """Tell the weight of a thing."""
        def _hidden():
            """Tell nobody anything at all."""
        ''',
    )
    source(
        "shop/tills/fast.py",
        '''
        if True:
            class Till:
                """Count the money of a day."""
                def __init__(self):
                    """Open the till for the day."""
                async def close(self):
                    """Close the till for the day."""
        try:
            pass
        except ValueError:
            def close():
                """Close all of the tills."""
        ''',
    )
    source("shop/tests/test_it.py", '"""Tests of the shop are not read."""')
    source("shop/notes.txt", '"""Notes on the shop are not read."""')
    found = {one.name: one.summary for one in read_documentation([tmp_path])}
    assert found == {
        "shop": "The shop sells all kinds of things.",
        "shop._goods": "Goods that are sold in the shop.",
        "shop.price": "Tell the price of a thing.",
        "shop._goods.weight": "Tell the weight of a thing.",
        "shop.Till": "Count the money of a day.",
        "shop.Till.close": "Close the till for the day.",
        "shop.tills.fast.close": "Close all of the tills.",
    }


def test_sources_are_never_run(source, tmp_path):
    source("bomb.py", '"""The module must not be imported."""\nraise SystemExit("imported")\n')
    assert names(tmp_path) == ["bomb"]
    assert "bomb" not in sys.modules


def test_files_that_cannot_be_parsed_are_counted(source, tmp_path):
    source("a.py", '"""The first of the modules."""\nx = "\\d"\n')
    source("broken.py", "def (:\n")
    source("nul.py", b'"""The text of this."""\0')
    source("latin.py", b'"""The text caf\xe9 of this."""')
    source("deep.py", "x = " + "(" * 100_000)
    source("cookie.py", b'# coding: latin-1\n"""The text of a caf\xe9 there."""')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = survey([tmp_path])
    assert (found.files, found.skipped) == (2, 4)
    assert {one.summary for one in found.documented} == {
        "The first of the modules.",
        "The text of a café there.",
    }
    assert gc.isenabled()


def test_links_are_not_followed(source, tmp_path):
    source("packages/real.py", '"""The text that may be read."""')
    secret = source("private/secret.py", '"""The text that must not be read."""')
    (tmp_path / "packages" / "linked.py").symlink_to(secret)
    (tmp_path / "packages" / "folder").symlink_to(secret.parent)
    assert names(tmp_path / "packages") == ["real"]


def test_the_order_is_the_same_every_time_and_files_can_be_limited(source, tmp_path):
    for i in range(20):
        source(f"m{i:02}.py", f'"""The text of module {i:02} is this."""')
    assert names(tmp_path) == [f"m{i:02}" for i in range(20)]
    few = read_documentation([tmp_path], limit_files=5)
    assert [one.name for one in few] == ["m00", "m04", "m08", "m12", "m16"]
    assert len(read_documentation([tmp_path], limit_files=50)) == 20


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_documentation([tmp_path / "gone"])


def install(folder: Path, name: str, files: list[str], **more: str) -> None:
    """What pip leaves behind in a site folder."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file, text in more.items():
        (info / file.replace("_json", ".json")).write_text(text)


def test_only_what_an_index_gave_is_read(source, tmp_path, monkeypatch):
    folder = tmp_path / "site"
    for name in ("good/a.py", "good/tests/b.py", "good/_vendor/c.py", "own/a.py", "conda/a.py"):
        source(f"site/{name}", '"""The text of this."""')
    source("site/stray.py", '"""The text that no package lists."""')
    outside = source("outside.py", '"""The text that lies outside."""')
    (folder / "good" / "linked.py").symlink_to(outside)
    listed = ["a.py", "tests/b.py", "_vendor/c.py", "linked.py", "gone.py", "../../outside.py"]
    install(folder, "good", [f"good/{file}" for file in listed])
    install(folder, "own", ["own/a.py"], direct_url_json='{"url": "file:///x", "dir_info": {}}')
    install(
        folder, "conda", ["conda/a.py"], direct_url_json='{"url": "file:///x"}', INSTALLER="conda"
    )
    source("library/lib.py", '"""The text of the standard library."""')
    source("library/site-packages/other.py", '"""The text of another environment."""')
    paths = {key: str(folder) for key in ("purelib", "platlib")}
    paths["stdlib"] = str(tmp_path / "library")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    monkeypatch.setattr(installed.site, "getsitepackages", lambda: [])
    monkeypatch.setattr(installed.site, "ENABLE_USER_SITE", False)
    found = [str(path.relative_to(tmp_path)) for _, path in installed.installed_sources()]
    assert found == ["site/conda/a.py", "site/good/a.py", "library/lib.py"]


def test_this_environment():
    roots = {Path(sysconfig.get_paths()[key]).resolve() for key in ("purelib", "platlib", "stdlib")}
    files = list(installed.installed_sources())
    assert len(files) > 2000
    assert all(path.is_relative_to(root) and path.resolve() == path for root, path in files)
    assert {root for root, _ in files} <= roots
    own = {
        Path(str(distribution.locate_file(file))).resolve()
        for distribution in [Distribution.from_name("contrasent")]
        for file in distribution.files or ()
    }
    assert not own & {path for _, path in files}
    found = survey(limit_files=len(files) // 40)
    kept = pairs(found.documented)
    assert found.skipped < 5
    assert len(kept) > 0.05 * len(found.documented) > 20
    assert all(one.name.isprintable() and " " not in one.name for one in kept)


# Pairs and their division


def pair(summary: str, explanation: str = MORE, name: str = "x") -> Documented:
    return Documented(name, summary, explanation)


def test_pairs_are_distinct_and_do_not_hold_one_another():
    kept = [
        pair("Sort the rows.", "One way to explain it is to show it."),
        pair("Turn the rows.", "Another way to explain it is to draw it."),
    ]
    dropped = [
        pair("sort the rows.", "A third way to explain it is to sing it."),
        pair("Read the rows.", "one way to explain it is to show it."),
        pair("Write the rows.", "To write the rows is what it is good for."),
        pair("Mix the rows in any order you like.", "in any order you like"),
        pair("Another way to explain it is to draw it.", "It repeats what the second one said."),
        pair("Drop the rows.", ""),
    ]
    assert pairs([kept[0], *dropped[:3], kept[1], *dropped[3:]]) == kept


def test_what_is_generated_is_kept_ten_times():
    many = [
        pair(f"Show the state of lamp number {i}.", f"Lamp {i} stands in the hall.")
        for i in range(50)
    ]
    alike = [
        pair(f"Lamp {i} is on.", f"The light of a lamp shows the way to {i}.") for i in range(50)
    ]
    assert len(pairs(many)) == 10
    assert len(pairs(alike)) == 10
    assert len(pairs([*many, *alike])) == 20


WORDS = st.sampled_from(["one", "two", "three", "four", "five", "six", "seven"])
TEXTS = st.lists(WORDS, min_size=1, max_size=3).map(lambda words: f"{' '.join(words).title()}.")


@given(
    st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3)), min_size=2, max_size=40),
    st.integers(0, 5),
    st.integers(1, 8),
)
def test_nothing_held_out_is_seen_in_training(rows, seed, heldout):
    given_pairs = [
        pair(summary, " ".join(sentences), name=str(i))
        for i, (summary, sentences) in enumerate(rows)
    ]
    try:
        train, test = split(given_pairs, heldout=heldout, seed=seed)
    except OptionError:
        return
    assert len(test) == heldout
    assert sorted([*train, *test], key=lambda one: int(one.name)) == given_pairs
    seen = {text.casefold() for one in train for text in (one.summary, one.explanation)}
    starts = {one.explanation[:60].casefold() for one in train}
    for one in test:
        assert one.summary.casefold() not in seen
        assert one.explanation.casefold() not in seen
        assert one.explanation[:60].casefold() not in starts
        assert not {part.casefold() for part in split_sentences(one.explanation)} & {
            other.summary.casefold() for other in train
        }


def test_copies_that_start_alike_stay_together():
    start = "The text of this explanation has more than sixty characters, "
    copies = [pair(f"Summary of copy {i}.", f"{start}and then {i}.") for i in range(10)]
    for seed in range(20):
        train, test = split([*copies, *distinct(100)], heldout=30, seed=seed)
        assert len(set(copies) & set(test)) in (0, 10)
        assert len(set(copies) & set(train)) in (0, 10)


def distinct(count: int) -> list[Documented]:
    return [pair(f"Summary of item {i}.", f"{i} is what it is about.") for i in range(count)]


def test_the_split_depends_on_texts_and_seed_alone():
    given_pairs = distinct(1000)
    train, test = split(given_pairs, heldout=100, seed=0)
    assert (len(train), len(test)) == (900, 100)
    assert split(given_pairs, heldout=100, seed=0) == (train, test)
    reverse = split(given_pairs[::-1], heldout=100, seed=0)
    assert set(reverse[1]) == set(test)
    renamed = [pair(one.summary, one.explanation, name=f"y.{one.name}") for one in given_pairs]
    assert [one.summary for one in split(renamed, heldout=100, seed=0)[1]] == [
        one.summary for one in test
    ]
    other = set(split(given_pairs, heldout=100, seed=1)[1])
    assert 0 < len(other & set(test)) < 40
    positions = [given_pairs.index(one) for one in test]
    assert positions == sorted(positions)
    assert 350 < sum(positions) / 100 < 650


@pytest.mark.parametrize("heldout", [10, 11, 1000])
def test_something_must_be_left_to_train_on(heldout):
    with pytest.raises(OptionError, match=f"heldout {heldout}: there are 10 pairs"):
        split(distinct(10), heldout=heldout, seed=0)
    assert len(split(distinct(10), heldout=9, seed=0)[0]) == 1
