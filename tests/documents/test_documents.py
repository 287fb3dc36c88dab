"""Reading documents: every format from files written here, and everything that can be wrong."""

import gzip
import json
import shutil
import zipfile
from dataclasses import asdict

import pytest

from contrasent.documents.folder import FORMATS, Document, Section, open_documents
from contrasent.errors import InputError, OptionError

PROSE = "Rivers carry sand to the sea. The sea grinds it finer."


def one(folder, name, content):
    """The only document of a file."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (document,) = open_documents(path)
    assert document.id == name
    return document


def test_markdown_has_title_headings_code_and_tables(tmp_path):
    text = (
        "---\nlayout: page\n---\n# The *river*\n\n"
        "Rivers carry [sand](http://x.y/a_(b)) and\n`mud_x`.\n\n"
        "## Banks\n\n- one bank\n- other **bank**\n\n```python\nif x:\n    flow(x)\n```\n\n"
        "### Left\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## Delta\n\nIt <b>ends</b>.<!-- x -->\n"
    )
    assert one(tmp_path, "a.md", text) == Document(
        "a.md",
        "The river",
        (
            Section((), ("Rivers carry sand and mud_x.",)),
            Section(("Banks",), ("one bank", "other bank", "if x:\n    flow(x)")),
            Section(("Banks", "Left"), ("a | b\n1 | 2",)),
            Section(("Delta",), ("It ends.",)),
        ),
    )


def test_rst_has_sections_directives_and_literals(tmp_path):
    text = (
        "=====\nRiver\n=====\n\n"
        "Carries :term:`sand <s>` and ``mud``::\n\n    flow(x)\n      deeper\n\n"
        ".. note:: Mind the\n   gap here.\n\n.. toctree::\n   :maxdepth: 2\n\n   other\n\n"
        ".. a comment\n   of two lines\n\nBanks\n-----\n\n* one\n* two\n  goes on\n\n"
        ".. code-block:: c\n   :linenos:\n\n   int x;\n\nLeft\n~~~~\n\nEnd `here <http://x.y>`_.\n"
    )
    assert one(tmp_path, "a.rst", text) == Document(
        "a.rst",
        "River",
        (
            Section((), ("Carries sand and mud:", "flow(x)\n  deeper", "Mind the", "gap here.")),
            Section(("Banks",), ("one", "two goes on", "int x;")),
            Section(("Banks", "Left"), ("End here.",)),
        ),
    )


def test_html_leaves_out_what_frames_the_text(tmp_path):
    text = (
        "<html><head><title>Site - River</title><style>p{}</style></head><body>"
        "<nav><a href=/>Home</a></nav><div class='sidebar left'>Menu</div>"
        "<ul><li><a href=1>Elsewhere</a><li><a href=2>Nowhere</a></ul>"
        "<h1>River</h1><p>Rivers carry sand<br>and <b>mud</b>.<p>They flow &amp; turn."
        "<h2>Banks</h2><pre>if x:\n    flow</pre>"
        "<table><tr><th>a<th>b<tr><td>1<td><p>2</p></table>"
        "<script>var x = '<p>no</p>';</script><footer>Imprint</footer></body></html>"
    )
    assert one(tmp_path, "a.html", text) == Document(
        "a.html",
        "River",
        (
            Section((), ("Rivers carry sand and mud.", "They flow & turn.")),
            Section(("Banks",), ("if x:\n    flow", "a | b\n1 | 2")),
        ),
    )


def test_html_with_a_main_part_is_that_part(tmp_path):
    text = f"<h1>River</h1><div>Ten offers today</div><main><p>{PROSE}</p></main><div>Buy</div>"
    document = one(tmp_path, "a.htm", text)
    assert document == Document("a.htm", "River", (Section((), (PROSE,)),))


def test_a_table_for_the_layout_is_no_table(tmp_path):
    text = f"<table><tr><td><h2>Banks</h2><p>{PROSE}</p></td><td><ul><li>one</ul></table>"
    document = one(tmp_path, "a.html", text)
    assert document.title == "Banks"
    assert document.sections == (Section((), (PROSE, "one")),)


def test_a_notebook_gives_prose_and_code_not_output(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# River\n", "\n", "It *flows*."]},
        {"cell_type": "code", "source": "x = 1\nx", "outputs": [{"text": "no"}]},
    ]
    document = one(tmp_path, "a.ipynb", json.dumps({"cells": cells}))
    assert document == Document("a.ipynb", "River", (Section((), ("It flows.", "x = 1\nx")),))


def test_python_gives_a_section_a_definition_and_loses_no_line(tmp_path):
    source = (
        '"""Rivers.\n\nThey ``flow``."""\n\nimport os  # here\n\n\n@deco\nclass River:\n'
        '    """A river."""\n\n    length = 3\n\n    def flow(self):\n        """Flow on."""\n'
        "        return os\n\n    # a remark\n\n\nasync def rain():\n    return 1\nlast = 2\n"
    )
    document = one(tmp_path, "a.py", source)
    assert [section.headings for section in document.sections] == [
        (), ("River",), ("River", "flow"), ("rain",),
    ]  # fmt: skip
    assert document.sections[0].paragraphs[:2] == ("Rivers.", "They flow.")
    assert document.sections[2].paragraphs[0] == "Flow on."
    text = "\n".join(p for section in document.sections for p in section.paragraphs)
    for line in ("import os  # here", "@deco", "length = 3", "# a remark", "return os", "last = 2"):
        assert text.count(line) == 1
    broken = one(tmp_path, "b.py", "def broken(:\n    pass\n")
    assert broken.sections == (Section((), ("def broken(:\n    pass",)),)


def test_text_is_split_at_blank_lines_and_joined_within(tmp_path):
    document = one(
        tmp_path,
        "a.txt",
        "A long line of prose that was broken at some width and\ngoes on.\n\nNext.\n",
    )
    joined = "A long line of prose that was broken at some width and goes on."
    assert document.sections == (Section((), (joined, "Next.")),)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8-sig", "Flüsse führen Sand."),
        ("utf-16", "Flüsse führen Sand."),
        ("utf-16-be", "\ufeffFlüsse führen Sand."),
        ("cp1252", "Flüsse führen Sand, und das Gefälle lässt später nach. „Größe“ zählt dafür."),
        ("cp1251", "Реки несут песок к морю. Море размалывает его мельче. " * 8),
        ("shift_jis", "川は砂を海へ運びます。海はそれをさらに細かく砕きます。これは長い話です。"),
    ],
)
def test_encodings_are_found_and_counted(tmp_path, encoding, text):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    source = open_documents(tmp_path)
    (document,) = source
    assert document.sections[0].paragraphs == (text.lstrip("\ufeff").strip(),)
    assert sum(source.report.encodings.values()) == 1


BEIR = [{"_id": "d7", "title": "River", "text": PROSE}, {"_id": "d9", "title": "", "text": "Sea."}]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_tables_of_ids_titles_and_texts_need_no_options(tmp_path, form, packed):
    path = tmp_path / f"corpus.{form}"
    if form == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(BEIR), path)
    elif form == "json":
        path.write_text(json.dumps(BEIR))
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in BEIR))
    else:
        mark = "," if form == "csv" else "\t"
        path.write_text(
            "".join(f"{mark.join(row)}\n" for row in [BEIR[0], *map(dict.values, BEIR)])
        )
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path = path.with_name(path.name + ".gz")
    source = open_documents(path)
    found = [(d.id, d.title, d.sections) for d in source]
    assert found == [
        (f"{path.name}#d7", "River", (Section((), (PROSE,)),)),
        (f"{path.name}#d9", "", (Section((), ("Sea.",)),)),
    ]
    assert source.report.columns == {path.name: "text from text, title from title, id from _id"}


def test_columns_are_guessed_by_length_or_chosen(tmp_path):
    rows = [{"nr": str(i), "kind": "x", "words": f"{PROSE} {i}"} for i in range(3)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [d.sections[0].paragraphs[0] for d in open_documents(path)] == [r["words"] for r in rows]
    chosen = list(open_documents(path, columns=["kind", "nr", "words"]))
    assert chosen[1].title == "x"
    assert chosen[1].sections[0].paragraphs == ("1", f"{PROSE} 1")
    with pytest.raises(OptionError, match=r"'word'.*no such column.*did you mean 'words'"):
        list(open_documents(path, columns=["word"]))
    with pytest.raises(OptionError, match="at least one"):
        open_documents(path, columns=[])


def test_rows_that_cannot_be_read_are_passed_over_and_ids_are_unique(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 1, "text": "One."}\n{broken\n{"id": 1, "text": "Two."}\n{"id": 3}\n[]\n'
    )
    source = open_documents(path)
    assert [d.id for d in source] == ["a.jsonl#1", "a.jsonl#1~2"]
    assert source.report.skipped["row without text"].count == 3


def test_a_csv_without_a_header_loses_no_row(tmp_path):
    (tmp_path / "a.csv").write_text(f'1,"{PROSE}"\n2,"Again: {PROSE}"\n')
    assert len(list(open_documents(tmp_path))) == 2


def test_what_may_be_secret_hidden_or_a_tools_is_passed_over_and_counted(tmp_path):
    secret = [
        ".env",
        ".env.local",
        "id_rsa",
        "server.pem",
        "a.key",
        "credentials.json",
        "secrets.md",
    ]
    for name in [*secret, ".notes.md", "a.md"]:
        (tmp_path / name).write_text(PROSE)
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA" * 20
    (tmp_path / "note.txt").write_text(f"My key:\n{key}\n")
    for folder in [".git", ".ssh", "node_modules", "__pycache__", ".venv", "own"]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.md").write_text(PROSE)
    (tmp_path / "own" / "pyvenv.cfg").touch()
    source = open_documents(tmp_path)
    assert [d.id for d in source] == ["a.md"]
    counts = {reason: skipped.count for reason, skipped in source.report.skipped.items()}
    assert counts == {"secret": 9, "hidden": 3, "tool's folder": 3}
    assert len(source.report.skipped["secret"].examples) == 5
    with pytest.raises(InputError, match="1 secret"):
        list(open_documents(tmp_path / ".env"))


def test_what_cannot_be_read_is_counted_by_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("contrasent.documents.folder.LARGEST_TEXT", 1000)
    (tmp_path / "a.md").write_text(PROSE)
    (tmp_path / "b.md").write_text("x" * 1001)
    (tmp_path / "c.md.gz").write_bytes(gzip.compress(b"x" * 1001))
    (tmp_path / "d.md.gz").write_bytes(gzip.compress(PROSE.encode())[:-20])
    (tmp_path / "e.zip").write_bytes(b"PK\3\4 nothing")
    (tmp_path / "f.ipynb").write_text("[1")
    (tmp_path / "g.txt").write_bytes(b"\0\1\2\3")
    (tmp_path / "h.md").write_text("\n")
    (tmp_path / "i.md").touch()
    (tmp_path / "j.xyz").write_text(PROSE)
    (tmp_path / "k.json").write_text("{}")
    (tmp_path / "l.md").symlink_to(tmp_path / "gone")
    (tmp_path / "m").symlink_to(tmp_path)
    (tmp_path / "n.epub").write_bytes(b"no zip")
    source = open_documents(tmp_path)
    assert [d.id for d in source] == ["a.md"]
    examples = {reason: skipped.examples for reason, skipped in source.report.skipped.items()}
    assert examples == {
        "too large": ["b.md", "c.md.gz"],
        "broken": ["d.md.gz", "f.ipynb", "n.epub"],
        "broken archive": ["e.zip"],
        "no text but binary": ["g.txt"],
        "empty": ["h.md", "i.md"],
        "unknown type": ["j.xyz"],
        "JSON that is no list of rows": ["k.json"],
        "no regular file": ["l.md"],
        "link to a folder": ["m/"],
    }
    assert any(line == "skipped 1, broken archive: e.zip" for line in source.report.lines())


def test_an_archive_is_read_in_place_and_cannot_lead_outside(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("docs/b.md", f"# B\n\n{PROSE}")
        archive.writestr("a.jsonl", json.dumps(BEIR[0]) + "\n")
        archive.writestr("../evil.md", PROSE)
        archive.writestr("/evil.md", PROSE)
        archive.writestr("..\\evil.md", PROSE)
        archive.writestr(".env", PROSE)
        archive.writestr("x/.git/config.md", PROSE)
        archive.writestr("in.zip", b"PK")
        archive.writestr("bomb.txt", b"a" * 10_000_000)
    source = open_documents(path)
    assert [d.id for d in source] == ["a.zip/a.jsonl#d7", "a.zip/docs/b.md"]
    assert {reason: skipped.count for reason, skipped in source.report.skipped.items()} == {
        "unsafe name in an archive": 3,
        "secret": 1,
        "hidden": 1,
        "archive within an archive": 1,
        "archived file that unpacks to too much": 1,
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip"]


def test_nothing_to_read_is_one_line_with_a_remedy(tmp_path):
    with pytest.raises(InputError, match="folder is empty; put documents there"):
        list(open_documents(tmp_path))
    (tmp_path / "a.xyz").write_text(PROSE)
    with pytest.raises(InputError, match=r"1 unknown type.*read are .*\.md"):
        list(open_documents(tmp_path))
    (tmp_path / "notes.md").write_text(PROSE)
    with pytest.raises(InputError, match=r"did you mean .*notes.md"):
        open_documents(tmp_path / "note.md")


def sparse(path, start=b""):
    with path.open("wb") as stream:
        stream.write(start)
        stream.truncate(10 << 30)  # takes no room on the disk


@pytest.mark.parametrize(
    ("name", "start", "reason", "remedy"),
    [
        ("dump.txt", b"", "too large", "split files"),
        ("dump.html", b"", "too large", "split files"),
        ("dump.pdf", b"%PDF-1.7\n", "too large", "office files and pdf"),
        ("rows.csv", b"title,text\n", "no text but binary", "read are"),
        ("rows.jsonl", b'{"text": "a"}\n', "no text but binary", "read are"),
    ],
)
def test_a_file_of_ten_gigabytes_is_passed_over_at_once(tmp_path, name, start, reason, remedy):
    sparse(tmp_path / name, start)
    with pytest.raises(InputError, match=rf"1 {reason}; .*{remedy}"):
        list(open_documents(tmp_path))


def test_broken_files_and_scans_come_with_a_remedy(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 nothing")
    (tmp_path / "b.epub").write_bytes(b"no zip")
    (tmp_path / ".env").write_text("KEY=1")
    found = r"1 secret, 1 broken archive, 1 broken; .*save it anew; pack or download .* again"
    with pytest.raises(InputError, match=found):
        list(open_documents(tmp_path))


def test_the_limit_of_characters_holds(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.md").write_text(PROSE)
    source = open_documents(tmp_path, characters=len(PROSE))
    assert [d.id for d in source] == ["a.md", "b.md"]
    (skipped,) = source.report.skipped.values()
    assert skipped.examples == ["c.md"]


def test_every_iteration_gives_the_same_in_the_order_of_paths(tmp_path):
    for name in ("b.md", "a/z.md", "a/b.txt", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        content = json.dumps(BEIR[0]) if name.endswith("jsonl") else PROSE
        (tmp_path / name).write_text(content)
    source = open_documents(tmp_path)
    first, report = list(source), asdict(source.report)
    assert [d.id for d in first] == ["a/b.txt", "a/z.md", "b.md", "c.jsonl#d7"]
    shutil.copytree(tmp_path, tmp_path / "copy")
    again = open_documents(tmp_path / "copy")
    assert list(source)[:3] == first[:3]
    assert list(again) == first
    assert asdict(again.report) == report


def test_all_formats_that_are_read_are_tested():
    tested = (
        ".md .rst .html .htm .ipynb .py .txt .csv .tsv .jsonl .json .parquet .epub .pdf .docx .pptx"
    )
    same_reader = {".markdown", ".mdx", ".xhtml", ".text", ".ndjson"}
    assert set(FORMATS) == set(tested.split()) | same_reader
