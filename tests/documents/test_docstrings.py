"""The documentation of installed packages: what is read, and what of it is prose."""

import sysconfig
import textwrap
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.documents.docstrings import (
    LONGEST,
    InstalledDocumentation,
    documented,
    installed_sources,
    summary_and_explanation,
)

SUMMARY = "Sort the rows of a table."
MORE = "The rest of the text says at some length what it is good for."
SECTIONS = [
    "Parameters\n----------\nx : int\n    The number of all the rows in the table.",
    "Args:\n    x: The number of all the rows in the table.",
    ":param x: The number of all the rows in the table.",
    "Returns: The number of all the rows in the table.",
    ">>> sort(table)\nThe number of all the rows in the table.",
    "See Also\n--------\nThe number of all the rows in the table.",
    "```python\nThe number of all the rows in the table.\n```",
    "* The first item of the list is not for us to read.\n* The second is like it.",
    ".. versionadded:: 1.2\n   The text of this note is not for us to read.",
]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_sections_end_the_prose(section, gap):
    docstring = f"{SUMMARY}\n\n{MORE}{gap}{section}\n\n{MORE} Again."
    assert summary_and_explanation(docstring) == (SUMMARY, MORE)
    assert summary_and_explanation(section) == ("", "")


@pytest.mark.parametrize("between", [
    "    sort(table)  # the code of this example is not for us to read.\n    ...",
    "The formula is x = y + z and is not for us to read.",
    "See https://example.org for the text that is not for us to read.",
    "and this is the rest of a sentence whose start is not for us to read.",
])  # fmt: skip
def test_what_is_no_prose_is_passed_over(between):
    assert summary_and_explanation(f"{SUMMARY}\n\n{between}\n\n{MORE}") == (SUMMARY, MORE)


@pytest.mark.parametrize("end", [".", "!", "?", '."', ".)"])
def test_a_sentence_ends_in_any_of_its_marks(end):
    opened = {'."': '"', ".)": "("}.get(end, "")
    sentence = MORE.replace("The rest", f"The {opened}rest").removesuffix(".") + end
    assert summary_and_explanation(f"{SUMMARY}\n\n{sentence}") == (SUMMARY, sentence)


@pytest.mark.parametrize("title", ["=======\nSorting\n=======", "Sorting Tables\n-------"])
def test_titles_are_no_summaries(title):
    assert summary_and_explanation(f"{title}\n\n{SUMMARY}\n\n{MORE}") == (SUMMARY, MORE)


def test_mark_up_is_taken_off():
    docstring = """Sort as :func:`sorted`, :meth:`~list.sort` do, or :class:`a table <.Table>`.
The *first* of **all** ``keys`` is `found <https://example.org>`_ by `name` [1]_, e.g. one.

The [`Table`] is [documented](other.md) for :obj:`!args` here , and so is ``names[i]``."""
    assert summary_and_explanation(docstring) == (
        "Sort as sorted, sort do, or a table.",
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


SHOP = '''
    """The shop sells all kinds of things."""
    x = "\\d"
    raise SystemExit("imported")
    def price():
        """Tell the price of a thing."""
        def inner(): "Nobody calls this function by name."
    def _hidden(): "Tell nobody anything at all."
    class Till:
        """Count the money of a day."""
        def __init__(self): "Open the till for the day."
        async def close(self): "Close the till for the day."
    '''
BROKEN = {"a": b"def (:\n", "b": b'"""The text of this."""\0', "c": b"x = " + b"(" * 100_000}


def test_modules_classes_and_functions_are_named_and_never_run(tmp_path):
    files = {"shop": textwrap.dedent(SHOP).encode(), **BROKEN}
    for name, content in files.items():
        (tmp_path / f"{name}.py").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = documented([((name,), tmp_path / f"{name}.py") for name in [*files, "gone"]])
        assert {one.name: one.summary for one in found} == {
            "shop": "The shop sells all kinds of things.",
            "shop.price": "Tell the price of a thing.",
            "shop.Till": "Count the money of a day.",
            "shop.Till.close": "Close the till for the day.",
        }


def test_only_public_modules_of_what_an_index_gave_are_read(tmp_path, monkeypatch):
    site = tmp_path / "site"
    files = ["__init__.py", "a.py", "b/c.py", "_private.py", "tests/b.py", "x-y.py", "a.txt"]
    for package, more in (("good", {}), ("own", {"direct_url.json": '{"url": "file:///x"}'})):
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{package}/{file},,\n" for file in files))
        for name, text in more.items():
            (info / name).write_text(text)
    for name in ("lib.py", "site-packages/other.py", "test/t.py"):
        (tmp_path / "library" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "library" / name).touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "library"))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr("sys.path", [str(site)])
    found = [(name, str(path.relative_to(tmp_path))) for name, path in installed_sources()]
    assert found == [
        (("good",), "site/good/__init__.py"), (("good", "a"), "site/good/a.py"),
        (("lib",), "library/lib.py"),
    ]  # fmt: skip


def explained(folder, found, limit=1000):
    """The summaries and explanations that are kept of a function in a module each."""
    sources = []
    for name, *texts in found:
        *above, last = name.split(".")
        content = "\n\n".join(filter(None, texts))
        (folder / f"{name}.py").write_text(f'def {last}():\n    """{content}"""\n')
        sources.append(((*above,), folder / f"{name}.py"))
    read = InstalledDocumentation(sources, limit)
    assert (read.report.documents, read.report.files) == (len(read.summaries), len(found))
    assert [(name, name) for _, name in read.summaries] == [(one.id, one.title) for one in read]
    texts = [one.sections[0].paragraphs for one in read]
    return [(summary, *text) for (summary, _), text in zip(read.summaries, texts, strict=True)]


PROSE = "explains at some length what all of it is good for"


def test_names_of_few_parts_come_first(tmp_path):
    names = enumerate(["a.b.c", "a", "b.c"])
    found = [(name, f"Say summary {at}.", f"Text {at} {PROSE}.") for at, name in names]
    first = [found[at][1:] for at in (1, 2, 0)]
    assert explained(tmp_path, found) == first
    assert explained(tmp_path, found, limit=2) == first[:2]


def test_no_two_documents_say_the_same(tmp_path):
    """A pair that judges must not have taught under another name."""
    kept = ("a", "Sort the rows.", f"The first text {PROSE}.")
    dropped = [
        ("a.b", "Sort The Rows.", f"A third text {PROSE}."),
        ("a.c", "Read the rows.", f"The First text {PROSE}."),
        ("a.d", f"The first text {PROSE}.", f"Another text {PROSE}."),
        ("a.e", "Drop the rows.", ""),
    ]
    assert explained(tmp_path, [*dropped, kept]) == [kept[1:]]


def test_what_is_generated_is_kept_ten_times(tmp_path):
    many = [
        (f"a{i}", f"Show the state of lamp number {i}.", f"Lamp {i} in the hall {PROSE}.")
        for i in range(50)
    ]
    alike = [
        (f"b{i}", f"Lamp {i} burns in the night.", f"The light of a lamp number {i} {PROSE}.")
        for i in range(50)
    ]
    assert len(explained(tmp_path, many)) == 10
    assert len(explained(tmp_path, [*many, *alike])) == 20
