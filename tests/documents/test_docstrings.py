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

from contrasent.documents import docstrings
from contrasent.documents.docstrings import Documented, InstalledDocumentation, read_documentation
from contrasent.documents.prose import LONGEST, summary_and_explanation
from contrasent.errors import InputError

SUMMARY = "Sort the rows of a table."
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
    return [one.name for one in read_documentation([folder]).documented]


# From a docstring to prose


SECTIONS = [
    "Parameters\n----------\nx : int\n    The number of all the rows in the table.",
    "Args:\n    x: The number of all the rows in the table.",
    ":param x: The number of all the rows in the table.",
    "Returns: The number of all the rows in the table.",
    ">>> sort(table)\nThe number of all the rows in the table.",
    "Example:\n\nThe number of all the rows in the table.",
    "Notes\n=====\nThe number of all the rows in the table.",
    "```python\nThe number of all the rows in the table.\n```",
]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_sections_end_the_prose(section, gap):
    docstring = f"{SUMMARY}\n\n{MORE}{gap}{section}\n\n{MORE} Again."
    assert summary_and_explanation(docstring) == (SUMMARY, MORE)
    assert summary_and_explanation(section) == ("", "")


@pytest.mark.parametrize("between", [
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
])  # fmt: skip
def test_what_is_no_prose_is_passed_over(between):
    assert summary_and_explanation(f"{SUMMARY}\n\n{between}\n\n{MORE}") == (SUMMARY, MORE)


TITLES = [
    "sort(table, key=None) -> list", "table.sort", "Sorting.", "=======\nSorting\n=======",
    "Sorting of all tables\n---------------------",
]  # fmt: skip


@pytest.mark.parametrize("title", TITLES)
def test_titles_and_signatures_are_no_summaries(title):
    assert summary_and_explanation(f"{title}\n\n{SUMMARY}\n\n{MORE}") == (SUMMARY, MORE)


def test_mark_up_is_taken_off():
    docstring = """
        Sort as :func:`sorted`, :meth:`~list.sort` do, or :class:`a table <.Table>` of :mod:`.csv`.
        The *first* of **all** ``keys`` is `found <https://example.org>`_ by `name` [1]_, e.g. one.

        The [`Table`] is [documented](other.md) for :obj:`!args` here , and so is ``names[i]``.
        """
    assert summary_and_explanation(docstring) == (
        "Sort as sorted, sort do, or a table of csv.",
        "The first of all keys is found by name, e.g. one. "
        "The Table is documented for args here, and so is names[i].",
    )


def test_long_explanations_end_with_a_sentence_and_some_texts_have_none():
    explanation = summary_and_explanation(f"{SUMMARY}\n\n" + " ".join([MORE] * 30))[1]
    assert explanation == " ".join([MORE] * -(-LONGEST // len(MORE.split())))
    for text in ("", "   \n", "x", "Sorts.", "{}", "-> int", "%(summary)s of the table", "@, ="):
        assert summary_and_explanation(text) == ("", ""), text
    assert summary_and_explanation(f"{SUMMARY}\n\nIt is fast.") == (SUMMARY, "")


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\n`*:.-= "), max_size=200))
def test_any_text_can_be_a_docstring(text):
    summary, explanation = summary_and_explanation(text)
    assert "\n" not in summary + explanation
    assert summary or not explanation


# From sources to docstrings


SHOP = {
    "__init__.py": '''
        """The shop sells all kinds of things."""
        from shop._goods import *
        from .tills.fast import Till
        ''',
    "_goods.py": '''
        """Goods that are sold in the shop."""
        __all__ = ["price"]
        def price():
            """Tell the price of a thing."""
            def inner(): "Nobody calls this function by name."
        def weight(): "Tell the weight of a thing."
        def _hidden(): "Tell nobody anything at all."
        ''',
    "tills/fast.py": '''
        if True:
            class Till:
                """Count the money of a day."""
                def __init__(self): "Open the till for the day."
                async def close(self): "Close the till for the day."
        try: pass
        except ValueError:
            def close(): "Close all of the tills."
        ''',
    "tests/test_it.py": '"""Tests of the shop are not read."""',
    "notes.txt": '"""Notes on the shop are not read."""',
}


def test_modules_classes_and_functions_are_named(source, tmp_path):
    for name, text in SHOP.items():
        source(f"shop/{name}", text)
    found = {one.name: one.summary for one in read_documentation([tmp_path]).documented}
    assert found == {
        "shop": "The shop sells all kinds of things.",
        "shop._goods": "Goods that are sold in the shop.",
        "shop.price": "Tell the price of a thing.",
        "shop._goods.weight": "Tell the weight of a thing.",
        "shop.Till": "Count the money of a day.",
        "shop.Till.close": "Close the till for the day.",
        "shop.tills.fast.close": "Close all of the tills.",
    }


def test_sources_are_never_run_and_those_that_cannot_be_parsed_are_counted(source, tmp_path):
    for name, text in (
        ("a", '"""The first of the modules."""\nx = "\\d"\nraise SystemExit("imported")\n'),
        ("broken", "def (:\n"), ("nul", b'"""The text of this."""\0'),
        ("latin", b'"""The text caf\xe9 of this."""'), ("deep", "x = " + "(" * 100_000),
        ("cookie", b'# coding: latin-1\n"""The text of a caf\xe9 there."""'),
    ):  # fmt: skip
        source(f"{name}.py", text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_documentation([tmp_path])
    assert (found.files, found.skipped) == (2, 4)
    summaries = {one.summary for one in found.documented}
    assert summaries == {"The first of the modules.", "The text of a café there."}
    assert gc.isenabled()
    assert "a" not in sys.modules


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
    few = read_documentation([tmp_path], limit_files=5).documented
    assert [one.name for one in few] == ["m00", "m04", "m08", "m12", "m16"]
    assert len(read_documentation([tmp_path], limit_files=50).documented) == 20
    for name in ("b/__init__.py", "b/c/d.py"):
        source(f"near/{name}", '"""The text of this module is this."""')
    near = read_documentation([tmp_path / "near"], depth=2).documented
    assert [one.name for one in near] == ["b"]
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
    origin = {"direct_url_json": '{"url": "file:///x"}', "INSTALLER": "conda"}
    install(folder, "conda", ["conda/a.py"], **origin)
    source("library/lib.py", '"""The text of the standard library."""')
    source("library/site-packages/other.py", '"""The text of another environment."""')
    paths = {key: str(folder) for key in ("purelib", "platlib")}
    paths["stdlib"] = str(tmp_path / "library")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    monkeypatch.setattr(docstrings.site, "getsitepackages", lambda: [])
    monkeypatch.setattr(docstrings.site, "ENABLE_USER_SITE", False)
    found = [str(path.relative_to(tmp_path)) for _, path in docstrings.installed_sources()]
    assert found == ["site/conda/a.py", "site/good/a.py", "library/lib.py"]


@pytest.mark.slow
def test_this_environment():
    roots = {Path(sysconfig.get_paths()[key]).resolve() for key in ("purelib", "platlib", "stdlib")}
    files = list(docstrings.installed_sources())
    assert len(files) > 2000
    assert all(path.is_relative_to(root) and path.resolve() == path for root, path in files)
    assert {root for root, _ in files} <= roots
    own = Distribution.from_name("contrasent")
    mine = {Path(str(own.locate_file(file))).resolve() for file in own.files or ()}
    assert not mine & {path for _, path in files}
    found = read_documentation(limit_files=len(files) // 40)
    kept = [one for one in found.documented if one.explanation]
    assert found.skipped < 5
    assert len(kept) > 0.05 * len(found.documented) > 20
    assert all(one.name.isprintable() and " " not in one.name for one in kept)


# As documents


def pair(summary: str, explanation: str = MORE, name: str = "x") -> Documented:
    return Documented(name, summary, explanation)


def documents(monkeypatch, found, limit=1000):
    reading = docstrings.Reading(found, 7, 2)
    monkeypatch.setattr(docstrings, "read_documentation", lambda depth: reading)
    read = InstalledDocumentation(limit)
    listed = list(read)
    assert (read.report.documents, read.report.files) == (len(listed), 7)
    assert read.report.skipped["broken"].count == 2
    assert all(one.docstring and one.title == one.id for one in listed)
    return [one.sections[0].paragraphs for one in listed]


def test_public_names_of_few_parts_come_first(monkeypatch):
    names = enumerate(["a.b.c", "a._b", "_a.b", "a", "a.b.__c", "b.c"])
    found = [pair(f"Summary {at}.", f"This is what {at} is about.", name) for at, name in names]
    first = [(found[at].summary, found[at].explanation) for at in (3, 5, 0)]
    assert documents(monkeypatch, found) == first
    assert len(documents(monkeypatch, found, limit=2)) == 2


def test_no_two_documents_say_the_same(monkeypatch):
    """A pair that is proven on must not have been trained on under another name."""
    kept = pair("Sort the rows.", "One way to explain it is to show it.", "a")
    dropped = [
        pair("sort the rows.", "A third way to explain it is to sing it.", "a.b"),
        pair("Read the rows.", "one way to explain it is to show it.", "a.c"),
        pair("One way to explain it is to show it.", "It repeats what the other said.", "a.d"),
        pair("Drop the rows.", "", "a.e"),
    ]
    assert documents(monkeypatch, [*dropped, kept]) == [(kept.summary, kept.explanation)]


def test_what_is_generated_is_kept_ten_times(monkeypatch):
    state, on = "Show the state of lamp number {0}.", "Lamp {0} is on."
    hall, light = "Lamp {0} stands in the hall.", "The light of a lamp shows the way to {0}."
    many = [pair(state.format(i), hall.format(i)) for i in range(50)]
    alike = [pair(on.format(i), light.format(i)) for i in range(50)]
    assert len(documents(monkeypatch, many)) == 10
    assert len(documents(monkeypatch, alike)) == 10
    assert len(documents(monkeypatch, [*many, *alike])) == 20
