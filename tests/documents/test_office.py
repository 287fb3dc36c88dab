"""Formats that are converted to Markdown first, each from a file made here."""

import sys

import pytest
from sample_files import HTML, PROSE, RST, docx, epub, odt, one, paged, pdf, pptx

from contrasent.documents import parsers, worker
from contrasent.documents.folder import FORMATS, Document, DocumentSource, Section
from contrasent.errors import InputError

pytest.importorskip("kreuzberg")


CONVERTED = {
    "a.docx": (docx, "The river", [
        ((), (PROSE,)), (("Banks",), ("a | b\nc | d", "Mud.")), (("Banks", "Left"), ("One.",)),
    ]),
    "a.pptx": (pptx, "Rivers", [
        (("Banks",), ("One Banks.", "Two.")), (("Delta",), ("One Delta.", "Two.", "a | b")),
    ]),
    "a.epub": (epub, "Rivers", [
        (("One",), ("Starts.",)), (("One", "Bank"), ("Mud.",)), (("Two",), (PROSE,)),
    ]),
    "a.odt": (odt, "River", [((), ("Mud.",)), (("Bank",), ("Sand.",))]),
    "a.rtf": (lambda: r"{\rtf1\ansi Rivers carry mud.\par Sand too.\par}", "", [
        ((), ("Rivers carry mud.", "Sand too.")),
    ]),
    "a.html": (lambda: HTML, "River", [
        ((), ("Rivers carry sand and mud.", "They flow & turn.")),
        (("Banks",), ("if x:\n    flow", "a | b\n1 | 2", "After.")),
    ]),
    "a.rst": (lambda: RST, "River", [
        ((), ("Carries sand and mud", "flow(x)\n  deeper")),
        (("Banks",), ("one", "two")), (("Banks", "Left"), ("End here.",)),
    ]),
    "a.pdf": (paged, "Rivers at large", [
        ((), ("The banks of a river are made of mud and sometimes of stone.",), 1),
        ((), ("It ends here.",), 3),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERTED)
def test_headings_tables_and_text_stand_in_their_order_and_nothing_around_them(tmp_path, name):
    made, title, sections = CONVERTED[name]
    expected = Document(name, title, tuple(Section(*part) for part in sections))
    assert one(tmp_path, name, made()) == expected


def test_words_of_a_pdf_keep_their_spaces_and_its_tables_are_no_copies_of_its_prose():
    plain = "The rent is paid in\r\nadvance. It is a half-\r\ntruth\r\nA door\r\nmat and a doormat."
    prose = "The rent is paid inadvance. It is a half-truth\n\nA doormat and a doormat.\n"
    copy = "| The rent | is paid |\n| --- | --- |\n| in advance. | |\n\n"
    grid = "| Flat | Rent |\n| --- | --- |\n| 5 | 940 |\n\n"
    expected = grid + prose.replace("inadvance", "in advance")
    assert parsers._as_printed(copy + grid + prose, plain) == "\n" + expected


def test_all_formats_that_are_read_are_tested():
    elsewhere = [".md", ".txt", ".ipynb", ".py", ".csv", ".tsv", ".jsonl", ".json", ".parquet"]
    same_reader = [".markdown", ".mdx", ".text", ".log", ".ndjson", ".htm", ".xhtml"]
    here = [name[1:] for name in CONVERTED]
    assert sorted(FORMATS) == sorted([*elsewhere, *same_reader, *here])
    assert len(FORMATS) == 24


def test_headings_of_a_pdf_are_found_by_their_size(tmp_path):
    prose = [(10, f"The {word} bank of a river is made of mud.") for word in ("left", "right")]
    pages = [[(24, "Banks"), *prose * 5], [(24, "Delta"), *prose * 5]]
    sections = one(tmp_path, "a.pdf", pdf(pages)).sections
    found = [(section.headings, section.page) for section in sections]
    assert found == [(("Banks",), 1), (("Delta",), 2)]


def test_scans_and_encrypted_files_each_have_their_reason(tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf([[(12, "Text of a page.")]]))
    (tmp_path / "b.pdf").write_bytes(pdf([[], []]))
    locked = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >> /ID [<00> <00>]"
    (tmp_path / "c.pdf").write_bytes(pdf([[(12, PROSE)]], trailer=locked % ("41" * 32, "42" * 32)))
    source = DocumentSource(tmp_path)
    assert [d.id for d in source] == ["a.pdf"]
    examples = {reason: skipped.names for reason, skipped in source.report.skipped.items()}
    assert examples == {"no text (a scan?)": ["b.pdf"], "encrypted": ["c.pdf"]}


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("a.pdf", "kreuzberg", "documents"), ("a.parquet", "pyarrow", "parquet")],
)
def test_without_its_library_a_format_is_skipped_with_the_remedy(
    tmp_path, monkeypatch, name, library, extra
):
    (tmp_path / name).write_bytes(b"anything")
    code = f"import sys; sys.modules[{library!r}] = None; from contrasent.documents import worker"
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", f"{code}; worker.serve()"])
    with pytest.raises(InputError, match=rf"1 needs pip install 'contrasent\[{extra}\]'"):
        list(DocumentSource(tmp_path))
