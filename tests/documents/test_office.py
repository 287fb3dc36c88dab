"""Formats that are converted to Markdown first, each from a file made here."""

import re
import sys
from pathlib import Path

import pytest
from sample_files import (
    EML,
    MBOX,
    PROSE,
    STAFF,
    TEXTS,
    compound,
    docx,
    epub,
    msg,
    ods,
    odt,
    one,
    paged,
    pdf,
    pptx,
    saved,
    xlsx,
    zipped,
)

from contrasent.documents.folder import FORMATS, DocumentSource, Section
from contrasent.documents.mail import own_text
from contrasent.documents.parsers import READERS, SHEETS
from contrasent.documents.text_formats import CODE, SETTINGS
from contrasent.documents.worker import FileReader
from contrasent.errors import InputError, OptionError

pytest.importorskip("xberg")


CONVERTED = {
    "a.docx": (docx, "The river", [
        ((), (PROSE,)), (("Banks",), ("a | b\nc | d", "Mud.")), (("Banks", "Left"), ("One.",)),
        ((), ("Imprint",)),
    ]),
    "a.pptx": (pptx, "Rivers", [
        (("Banks",), ("One Banks.", "Two."), 1), (("Delta",), ("One Delta.", "Two.", "a | b"), 2),
    ]),
    "a.epub": (epub, "Rivers", [
        (("One",), ("Starts.",)), (("One", "Bank"), ("Mud.",)), (("Zwö",), (PROSE,)),
    ]),
    "a.odt": (odt, "River", [((), ("Mud.",)), (("Bank",), ("Sand.",))]),
    "a.pdf": (paged, "Rivers at large", [
        ((), ("The banks of a river are made of mud and sometimes of stone.",), 1),
        ((), ("It ends here.",), 3),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CONVERTED, *TEXTS])
def test_headings_tables_and_text_stand_in_their_order_and_nothing_around_them(tmp_path, name):
    content, title, sections = (CONVERTED | TEXTS)[name]
    found = one(tmp_path, name, content() if callable(content) else content)
    assert (found.title, found.sections) == (title, tuple(Section(*part) for part in sections))


def test_a_book_has_the_date_of_its_publication_which_is_the_first(tmp_path):
    assert rows_of(tmp_path, "a.epub", epub())[0][""][2] == {"date": "1998-06-01"}


def test_all_formats_that_are_read_are_tested():
    elsewhere = [".csv", ".tsv", ".jsonl", ".parquet", ".eml", ".mbox", ".msg"]
    same_reader = [".markdown", ".mdx", ".text", ".log", ".ndjson", ".htm", ".pyi"]
    here = {name[1:] for name in (*CONVERTED, *TEXTS)}
    assert {*FORMATS} == here | {*elsewhere, *same_reader, *CODE, *SETTINGS, *SHEETS}


def test_every_reader_has_a_row_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "indexing.md").read_text("utf-8")
    table = page.partition("## Which files can be read")[2].partition("###")[0]
    named = {
        f".{word}" for row in re.findall(r"^\| (.+?) \|", table, re.M) for word in row.split(", ")
    }
    readers = {id(reader): reader for reader in READERS.values()}.values()
    groups = [{s for s, one in READERS.items() if one is reader} for reader in readers]
    assert [sorted(group) for group in groups if not group & named] == []


def rows_of(folder, name, content, **given):
    """Title and text of each document of a file, and what is skipped of it."""
    (folder / name).write_bytes(
        content if isinstance(content, bytes) else content.encode("latin-1")
    )
    source = DocumentSource(folder / name, **given)
    found = {d.id.removeprefix(name): (d.title, d.sections, d.metadata) for d in source}
    return found, {reason: one.names for reason, one in source.report.skipped.items()}


NUMBER = "1234567890123456"
FIELDS = ["name: Bo Smith; city: Oslo; phone: 555-0100", "name: Cy; city: Rome; phone: 555-0199"]


def test_rows_of_a_workbook_keep_the_names_of_their_columns(tmp_path):
    notes = [["Nothing here is a table."], ["", "far"]]
    texts = [["subject", "text", "isbn"], ["Ducks", "They swim.", int(NUMBER)]]
    form = [["Applicant", "Dora"], ["Street", "Quay 3"]]
    staff = [["A list of our staff"], [], *STAFF]
    book = xlsx({"Staff": staff, "Notes": notes, "Texts": texts, "Form": form})
    found, _ = rows_of(tmp_path, "a.xlsx", book)
    about = {"author": "Ann Lee", "date": "2099-03-05"}
    assert found == {
        "#Staff": ("Staff", (Section((), ("A list of our staff",)),), about),
        **{f"#Staff#{n}": ("", (Section(("Staff",), (text,)),), about)
           for n, text in enumerate(FIELDS, 1)},
        "#Notes": ("Notes", (Section((), ("Nothing here is a table.", "far")),), about),
        "#Texts#1": ("Ducks", (Section((), ("They swim.",)),), {**about, "isbn": NUMBER}),
        "#Form": ("Form", (Section((), ("Applicant: Dora\nStreet: Quay 3",)),), about),
    }  # fmt: skip
    chosen, skipped = rows_of(tmp_path, "a.xlsx", book, columns=["city"])
    assert [sections[0].paragraphs for _, sections, _ in chosen.values()] == [("Oslo",), ("Rome",)]
    lacking = ["a.xlsx#Notes", "a.xlsx#Texts", "a.xlsx#Form"]
    assert skipped == {"table without the chosen columns": lacking}
    openpyxl = pytest.importorskip("openpyxl")
    noted = openpyxl.load_workbook(tmp_path / "a.xlsx")
    noted["Staff"]["A1"].comment = openpyxl.comments.Comment("Ask Bo", "Bo")
    with pytest.raises(OptionError, match=r"'town'.*unknown column"):
        rows_of(tmp_path, "a.xlsx", saved(noted), columns=["town"])
    found, _ = rows_of(tmp_path, "a.ods", ods(STAFF))
    assert [sections[0].paragraphs[0] for _, sections, _ in found.values()] == FIELDS


SENT = {"from": "Ann Lee <ann@x.org>", "to": "Bo <bo@x.org>", "date": "2024-03-05"}


def test_mail_is_read_once_with_its_headers_and_attachments(tmp_path):
    who = ("Ann Lee, 2024-03-05",)
    found, skipped = rows_of(tmp_path, "a.eml", EML)
    answer = {**SENT, "subject": "Re: Ducks"}
    assert found == {
        "": ("Re: Ducks", (Section(who, ("Forty ducks café.",)),), answer),
        "#bill.md": ("Bill", (Section((), ("Four euros for bread.",)),), {}),
        "#3.eml": ("Inner", (Section(who, ("Geese too.",)),), {**SENT, "subject": "Inner"}),
    }  # fmt: skip
    found, _ = rows_of(tmp_path, "a.msg", msg())
    sent = {"from": SENT["from"], "date": SENT["date"], "subject": "Ducks"}
    assert found == {
        "": ("Ducks", (Section(who, ("The pond is full.",)),), sent),
        "#bill.txt": ("", (Section((), ("Four euros.",)),), {}),
    }
    raw = "Subject: Frühe Fähre\nFrom: Jörg <j@x.org>\n\nIt leaves at six.\n".encode()
    found, _ = rows_of(tmp_path, "u.eml", raw)
    assert found[""][::2] == (
        "Frühe Fähre", {"from": "Jörg <j@x.org>", "subject": "Frühe Fähre"}
    )  # fmt: skip
    coded = "Subject: =?utf-8?q?An_early=00_ferry?=\n\nIt leaves at six.\n"
    assert rows_of(tmp_path, "n.eml", coded)[0][""][0] == "An early ferry"
    raw = b"Subject: =?iso-8859-1?Q?It=92s?=\nContent-Type: text/html; charset=latin1\n\n5 \x80.\n"
    assert rows_of(tmp_path, "w.eml", raw)[0][""][:2] == ("It’s", (Section((), ("5 €.",)),))
    found, _ = rows_of(tmp_path, "a.mbox", MBOX)
    assert [(title, sections) for title, sections, _ in found.values()] == [
        ("One", (Section(who, ("Hello from box one.", "From here on.")),)),
        ("Two", (Section((), ("The second.",)),)),
    ]
    _, skipped = rows_of(tmp_path, "b.eml", EML.replace("bill.md", ".env"))
    assert skipped == {"secret": ["b.eml#.env"]}
    found, skipped = rows_of(tmp_path, "b.msg", msg(attached="passwords.txt"))
    assert ([*found], skipped) == ([""], {"secret": ["b.msg#passwords.txt"]})
    found, skipped = rows_of(
        tmp_path, "c.eml", EML.replace("Forty ducks café.", "password: hunter22")
    )
    assert ([*found], skipped) == (["#bill.md", "#3.eml"], {"secret": ["c.eml"]})


def test_a_hostile_mail_hides_no_other_of_its_file(tmp_path):
    header = "Content-{0}; filename*=a%00b''x.txt; charset*=a%00b''utf-8\n\nMail {0}.\n\n"
    parts = [f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(1500)]
    mails = [header.format("Disposition: inline"), header.format("Type: text/plain")]
    mails += ["".join(parts), "Subject: Last\n\nThe last.\n"]
    found, skipped = rows_of(tmp_path, "a.mbox", "".join(f"From x\n{mail}\n" for mail in mails))
    texts = [sections[0].paragraphs[0] for _, sections, _ in found.values()]
    assert texts == ["Mail Disposition: inline.", "Mail Type: text/plain.", "The last."]
    assert skipped == {"broken": ["a.mbox#3"]}


@pytest.mark.parametrize(("text", "subject", "own"), [
    ("Yes.\n\n-----Original Message-----\nFrom: Bo\n\nShall we?\n", "Re: x", "Yes."),
    ("Yes.\n\nFrom: Bo <b@x.org> \nSent: Monday\n\nShall we?\n", "Re: x", "Yes."),
    ("Ja.\n\nVon: Bo <b@x.org> Gesendet: Montag An: Ann\n\nShall we?\n", "AW: x", "Ja."),
    ("See this.\n\n-----Original Message-----\nFrom: Bo\n\nWe win.\n", "Fwd: x", "We win."),
    ("> all of it\n> is quoted\n", "Re: x", "is quoted"),
    ("> One?\n\nYes.\n\n> Two?\n\nNo, see 1 and 2.\n", "Re: x", "No, see 1 and 2."),
    ("On Monday 5 May we met:\n\nall came.\n", "Re: x", "On Monday 5 May we met:"),
])  # fmt: skip
def test_what_a_mail_says_itself_is_kept(text, subject, own):
    kept = own_text(text, subject)
    assert own in kept
    assert "Shall we" not in kept and "One?" not in kept and "Two?" not in kept


def test_headings_of_a_pdf_are_found_by_their_size(tmp_path):
    prose = [(10, f"The {word} bank of a river is made of mud.") for word in ("left", "right")]
    pages = [[(24, "Banks"), *prose * 5], [(24, "Delta"), *prose * 5]]
    sections = one(tmp_path, "a.pdf", pdf(pages)).sections
    found = [(section.headings, section.page) for section in sections]
    assert found == [(("Banks",), 1), (("Delta",), 2)]


def test_scans_and_encrypted_files_each_have_their_reason(tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf([[(12, "Text of a page.")]]))
    (tmp_path / "b.pdf").write_bytes(pdf([[], []]))
    (tmp_path / "c.pdf").write_bytes(pdf([[(12, PROSE)]], encrypt="swordfish"))
    office = compound({"EncryptionInfo": b"\4", "EncryptedPackage": b"x"})
    open_document = zipped({"META-INF/manifest.xml": "<encryption-data/>", "content.xml": b"\xff"})
    locked = ["c.pdf", "d.docx", "d.pptx", "d.xlsx", "e.ods", "e.odt"]
    for name in locked[1:]:
        (tmp_path / name).write_bytes(office if name[0] == "d" else open_document)
    source = DocumentSource(tmp_path)
    assert [d.id for d in source] == ["a.pdf"]
    examples = {reason: skipped.names for reason, skipped in source.report.skipped.items()}
    assert examples == {"no text (a scan?)": ["b.pdf"], "encrypted": locked}


def test_what_is_attached_to_a_pdf_is_read_and_a_page_without_text_is_none(tmp_path):
    document = pytest.importorskip("pypdfium2").PdfDocument.new()
    document.new_page(100, 100)
    document.new_attachment("bill.txt").set_data(b"Four euros for bread.")
    found, skipped = rows_of(tmp_path, "a.pdf", saved(document))
    assert [*found] == ["#bill.txt"] and not skipped


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("a.pdf", "pypdfium2", "documents"),
        ("a.html", "selectolax", "documents"),
        ("a.parquet", "pyarrow", "parquet"),
    ],
)
def test_without_its_library_a_format_is_skipped_with_the_remedy(tmp_path, name, library, extra):
    (tmp_path / name).write_bytes(b"anything")
    code = f"import sys; sys.modules[{library!r}] = None; from contrasent.documents import worker"

    class Without(FileReader):
        command = (sys.executable, "-c", f"{code}; worker.serve()")

    source = DocumentSource(tmp_path)
    source.reader = Without
    with pytest.raises(InputError, match=rf"1 needs pip install 'contrasent\[{extra}\]'"):
        list(source)
