"""Reading documents: every format from files written here, and everything that can be wrong."""

import gzip
import io
import json
import os
import shutil
import time
import unicodedata
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest
from sample_files import PROSE, one, zipped

from contrasent.documents.archives import Reason
from contrasent.documents.folder import Document, DocumentSource, Section
from contrasent.documents.mail import messages
from contrasent.documents.sections import without_keys
from contrasent.documents.text_formats import without_markup
from contrasent.errors import InputError, OptionError

ROOT = Path(__file__).parents[2]


def test_markdown_has_title_headings_code_and_tables(tmp_path):
    text = (
        "---\nlayout: page\ndate: 2024-03-05 10:00\ntags:\n  - mud\n  - a, b\nn: 3\ntitle:\n"
        "keywords: [x, 'y']\nbody: no\n---\n# The *river*\n\n"
        "Rivers carry [sand](http://x.y/a_(b)) and\n`mud_x`.\n\n**See** [`a`][b], [c] & `[d](e)`.\n"
        "Write to <a@b.c>, *not `__now__`*.\n\n[b]: x.md\n[c]: y.md\n\n"
        "## Banks\n\n- one bank\n- other **bank**\n\n```python\nif x:\n    flow(x)\n```\n\n"
        "### Left\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## Delta\n\nIt <b>ends</b>.<!-- x -->\n"
    )
    assert one(tmp_path, "a.md", text) == Document("a.md", "The river", (
        Section((), (
            "Rivers carry sand and mud_x.", "See a, c & [d](e). Write to a@b.c, not __now__.",
        )),
        Section(("Banks",), ("one bank", "other bank", "if x:\n    flow(x)")),
        Section(("Banks", "Left"), ("a | b\n1 | 2",)), Section(("Delta",), ("It ends.",)),
    ), {
        "layout": "page", "date": "2024-03-05", "tags": ["mud", "a", "b", "x", "y"], "n": 3,
    })  # fmt: skip
    toml = "+++\ntitle = 'T'\ndate = 2024-03-05\ndraft = true\n[more]\na = 1\n+++\nMud.\n"
    document = one(tmp_path, "b.md", toml)
    assert (document.title, document.metadata) == ("T", {"date": "2024-03-05", "draft": True})


def test_code_and_json_are_titled_by_the_name_of_their_file(tmp_path):
    (tmp_path / "pumps").mkdir()
    (tmp_path / "pumps" / "inlet.go").write_text("func Open() {\n  start()\n}\n")
    (tmp_path / "pumps" / "inlet.json").write_text('{"what opens": "the inlet of a pump"}')
    found = {document.id: document.title for document in DocumentSource(tmp_path)}
    assert found == {"pumps/inlet.go": "inlet.go", "pumps/inlet.json": "inlet.json"}


def test_a_line_of_a_mailbox_is_read_in_pieces():
    class Stream(io.BytesIO):
        def readline(self, size=-1):
            assert 0 < size <= 1 << 20
            return super().readline(size)

    body = b"x" * (3 << 20)
    box = b"From a@b\nSubject: one\n\n" + body + b"\n\nFrom c@d\nSubject: two\n\nmud\n"
    first, second = messages(Stream(box))
    assert first == b"Subject: one\n\n" + body + b"\n\n"
    assert second == b"Subject: two\n\nmud\n"


def test_python_gives_a_section_a_definition_and_loses_no_line(tmp_path):
    source = (
        '"""Rivers.\n\nThey ``flow``."""\n\nimport os  # here\n\n\f\n@deco\nclass River:\n'
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
    kept = "import os  # here", "@deco", "class River:", "length = 3", "# a remark", "return os"
    for line in (*kept, "last = 2"):
        assert text.count(line) == 1


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
        rows, mark = [BEIR[0], *map(dict.values, BEIR)], "," if form == "csv" else "\t"
        path.write_text("".join(f"{mark.join(row)}\n" for row in rows))
    if packed:
        content, path = path.read_bytes(), path.with_name(f"{path.name}.gz")
        path.write_bytes(gzip.compress(content))
    source = DocumentSource(path)
    found = [(d.id, d.title, d.sections) for d in source]
    assert found == [
        (f"{path.name}#d7", "River", (Section((), (PROSE,)),)),
        (f"{path.name}#d9", "", (Section((), ("Sea.",)),)),
    ]
    assert source.report.columns == {path.name: "text: text, title: title, id: _id"}


def test_ids_and_fields_are_of_whole_characters(tmp_path):
    """A row of a table that could not be stored is read without what is no character."""
    names = ("\ud83d", "x\0y", "x\ud83dy", "z")
    rows = [
        {"id": name, "text": f"{PROSE} {n}\0", "year\ud83d\0": f"200\0{n}"}
        for n, name in enumerate(names)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(DocumentSource(tmp_path / "a.jsonl"))
    assert [d.id for d in found] == [f"a.jsonl#{name}" for name in ("1", "xy", "xy~3", "z")]
    assert [d.metadata for d in found] == [{"year": f"200{n}"} for n in range(4)]
    assert found[3].sections == (Section((), (f"{PROSE} 3",)),)


def test_columns_are_guessed_by_length_or_chosen(tmp_path):
    rows = [{"nr": str(i), "kind": "x", "words": f"{PROSE} {i}"} for i in range(3)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [d.sections[0].paragraphs[0] for d in DocumentSource(path)] == [r["words"] for r in rows]
    chosen = list(DocumentSource(path, columns=["kind", "nr", "words"]))
    assert (chosen[1].title, chosen[1].sections[0].paragraphs) == ("x", ("1", f"{PROSE} 1"))
    staff = tmp_path / "staff.csv"
    for mark in ";\t|,":
        rows = (
            ["name;city, land;2023", "Bo;Oslo, N;1,5", "Cy;Rome;2"]
            if mark == ";"
            else [f"name{mark}city{mark}2023", f"Bo{mark}Oslo{mark}1.5", f"Cy{mark}Rome{mark}2"]
        )
        staff.write_text("\n".join(rows) + "\n")
        first, second = DocumentSource(staff)
        assert second.id == "staff.csv#2" and first.sections[0].headings == ("staff",)
        assert second.sections[0].paragraphs[0] in (
            "name: Cy; city: Rome; 2023: 2",
            "name: Cy; city, land: Rome; 2023: 2",
        )
    bare = tmp_path / "b.csv"  # without a header
    facts = "text,name,year,note\n" + f"{PROSE},Bo,2024,x\n" * 2
    staff.write_text(facts)
    assert [(d.title, d.metadata) for d in DocumentSource(staff)] == [
        ("Bo", {"year": "2024", "note": "x"})
    ] * 2
    long = f"{PROSE} {PROSE}"
    staff.write_text(
        f"text,notes,sku\n{PROSE},{long},QX-77\n{PROSE},{long},QX-78\n{PROSE},,QX-79\n"
    )
    codes = [d.sections[0].paragraphs[-1] for d in DocumentSource(staff)]
    assert codes == ["sku: QX-77", "sku: QX-78", "sku: QX-79"]
    typed = {"year": 2024, "new": True, "tags": ["a", "b"], "at": "2024-05-03 10:15"}
    gaps = {"isbn": 1 << 60, "gap": None, "nan": float("nan"), "page": 3}
    bare.with_name("c.jsonl").write_text(json.dumps({"text": PROSE, **typed, **gaps}))
    (found,) = source = DocumentSource(tmp_path / "c.jsonl")
    assert source.report.columns["c.jsonl"].endswith("gap, nan; not used: page")
    assert found.metadata == {**typed, "isbn": str(1 << 60)}
    assert found.sections == (Section((), (PROSE,)),)
    bare.with_name("c.jsonl").write_text('{"name": "Bo", "new": false, "n": [1, 2], "x": NaN}')
    (found,) = DocumentSource(tmp_path / "c.jsonl")
    assert found.sections[0].paragraphs == ("name: Bo; new: False; n: 1 2",)
    bare.write_text(f'1,"{PROSE}"\n2,"Again: {PROSE}"\n')
    assert len(list(DocumentSource(bare))) == 2
    with pytest.raises(OptionError, match=r"'word'.*unknown column.*did you mean 'words'"):
        list(DocumentSource(path, columns=["word"]))
    with pytest.raises(OptionError, match="at least one"):
        DocumentSource(path, columns=[])


@pytest.mark.parametrize(("name", "text", "skipped"), [
    ("a.jsonl", '{"id": 1}\n{"id": 1, "text": "One."}\n{"\n\n{"id": 1, "text": "Two."}\n',
     {"row without text": (2, ["a.jsonl"]), "broken": (1, ["a.jsonl, line 3"])}),
    ("b.jsonl", '{"id": 1\n{"id": 1, "text": "One."}\n[1]\n{"id": 1, "text": "Two."}\n{"te',
     {"broken": (3, ["b.jsonl, line 1", "b.jsonl, line 3", "b.jsonl, line 5"])}),
    ("a.csv", "id,text\n1,One.\n\n,\n1,Two.\n2,\n", {"row without text": (3, ["a.csv"])}),
    ("a.tsv", "id\ttext\n1\tOne.\n\n \t \n1\tTwo.\n2\n", {"row without text": (3, ["a.tsv"])}),
    ("keys.csv", "id,text\n1,One.\n1,password: hunter2secret99\n1,Two.\n",
     {"secret": (1, ["keys.csv"])}),
    ("long.csv", f"id,text\n1,One.\n1,{'again ' * 20_000}\n1,Two.\n",
     {"repetition only": (1, ["long.csv"])}),
])  # fmt: skip
def test_rows_that_are_passed_over_are_counted_by_their_reason_and_ids_are_unique(
    tmp_path, name, text, skipped
):
    (tmp_path / name).write_text(text)
    source = DocumentSource(tmp_path / name)
    assert [d.id for d in source] == [f"{name}#1", f"{name}#1~2"]
    assert {why: (n.count, n.names) for why, n in source.report.skipped.items()} == skipped


def test_what_may_be_secret_hidden_or_a_tools_is_passed_over_and_counted(tmp_path):
    secret = ".env .env.local id_rsa server.pem a.key credentials.json secrets.md passwords.txt"
    plain = ["a.md", "passwd.1.txt", "password-policy.md"]
    for name in [*secret.split(), ".notes.md", *plain]:
        (tmp_path / name).write_text(PROSE)
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA" * 20
    (tmp_path / "note.txt").write_text(f"{key}\n")
    for folder in [".git", ".ssh", "node_modules", "__pycache__", ".venv", "own"]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.md").write_text(PROSE)
    (tmp_path / "own" / "pyvenv.cfg").touch()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.json").write_text("[1]")  # as web sites have
    (tmp_path / "site" / "b.md").write_text(PROSE)
    plain.append("site/b.md")
    source = DocumentSource(tmp_path)
    assert [d.id for d in source] == plain
    counts = {reason: skipped.count for reason, skipped in source.report.skipped.items()}
    assert counts == {"secret": 10, "hidden": 3, "tool's folder": 3, "broken": 1}
    assert len(source.report.skipped["secret"].names) == 10
    assert [d.id for d in DocumentSource(tmp_path, exclude="a.md")] == plain[1:]
    assert any(line.endswith("credentials.json, ...") for line in source.report.skipped_lines())
    with pytest.raises(InputError, match="1 secret"):
        list(DocumentSource(tmp_path / ".env"))


def test_the_output_of_adapt_is_passed_over_and_what_has_an_index_beside_it_is_not(tmp_path):
    """Its table of queries, its report, and what a killed run left to continue with."""
    for name in ("done/report.json", "killed/unfinished.json", "project/note.md"):
        (tmp_path / name).parent.mkdir()
        for text in (name, f"{Path(name).parent}/queries.md"):
            (tmp_path / text).write_text(PROSE)
        (tmp_path / name).with_name("index").mkdir()
        (tmp_path / name).with_name("index").joinpath("index.db").touch()
    assert [d.id for d in DocumentSource(tmp_path)] == ["project/note.md", "project/queries.md"]


def test_names_that_are_not_utf8_are_told_apart(tmp_path):
    for letter in (b"\xc4", b"\xdc"):  # in Latin-1
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/%sbung.md" % letter)).write_text(PROSE)
    source = DocumentSource(tmp_path)
    assert [d.id for d in source] == [*source.files] == [r"\xc4bung.md", r"\xdcbung.md"]


BROKEN = ("docx", "epub", "parquet", "pdf", "pptx")


def test_what_cannot_be_read_is_counted_by_its_reason(tmp_path):
    prose, noise = PROSE.encode(), bytes(range(256)) * 99
    files = {
        "u.xml": b"<a>",
        "a.md": prose, "b.md": b"x" * 1001, "c.md.gz": gzip.compress(b"x" * 5000),
        "d.md.gz": gzip.compress(prose)[:-20], "e.zip": b"PK\3\4 nothing", "f.ipynb": b"[1",
        "g.txt": b"\0\1\2\3", "h.md": b"\n", "i.md": b"", "j.xyz": prose, "k.json": b"3",
        "p.md": b"<p>a</p>" * 20_000, "q": noise, "r.xyz": noise,
        "README.notes.gz": gzip.compress(prose), "LICENSE": prose, "my_changelog.old": prose,
        "unread.me": prose,
        "o.csv": b"a,b\n1,2\n3,4\n", **{f"n.{kind}": b"nothing of the kind" for kind in BROKEN},
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "l.md").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "m").symlink_to(tmp_path)
    (tmp_path / "0.md").symlink_to("a.md")
    source = DocumentSource(tmp_path, max_file_text=1000)
    names = ["LICENSE", "README.notes.gz", "a.md", "my_changelog.old"]
    assert [d.id for d in source] == names
    examples = {reason: skipped.names for reason, skipped in source.report.skipped.items()}
    assert source.report.skipped["broken"].count == 9
    assert examples == {
        "more text than --max-file-text": ["b.md", "c.md.gz"],
        "broken": ["e.zip", "d.md.gz", "f.ipynb", *(f"n.{kind}" for kind in BROKEN), "u.xml"],
        "binary": ["g.txt", "q", "r.xyz"], "empty": ["h.md", "i.md"],
        "text of an unknown type": ["j.xyz", "unread.me"],
        "JSON that is not a list of rows": ["k.json"],
        "symbolic link": ["0.md", "l.md", "loop", "m"], "repetition only": ["p.md"],
        "table of numbers only": ["o.csv"],
    }  # fmt: skip
    assert "skipped 1, JSON that is not a list of rows: k.json" in source.report.lines()


KEYS = [
    "sk-proj-" + "aB3" * 8, "AKIA" + "ABCD" * 4, "ghp_" + "a1B2" * 9, "glpat-" + "x" * 20,
    "xoxb-" + "1" * 12, "AIza" + "a" * 35, "hf_" + "a" * 34, "SG." + "a" * 22 + "." + "b" * 43,
    "eyJ" + "a" * 20 + ".eyJ" + "b" * 20, "postgres://admin:hunter22@db.local/x",
]  # fmt: skip


def test_keys_within_documents_are_left_out_and_counted(tmp_path):
    private = "-----BEGIN RSA PRIVATE KEY-----\n" + ("MIIEpAIBAAKCAQEA" * 4 + "\n") * 3
    private += "abcd\n-----END RSA PRIVATE KEY-----"
    listed = "\n".join(f"    key = {key}" for key in KEYS)
    (tmp_path / "a.md").write_text(
        f"# Keys\n\nFirst. Never show {KEYS[0]} to anybody. Last.\n\n{listed}\n\n```\n{private}\n"
        "after\n```\n\nA file begins with -----BEGIN PRIVATE KEY-----.\n\nThe end.\n"
    )
    kept = "Write https://user:password@host/ or sk-toggleable__control-checked."
    (tmp_path / "b.csv").write_text(f"id,text\n1,{KEYS[1]}\n2,{kept}\n")
    source = DocumentSource(tmp_path)
    found = {d.id: [p for s in d.sections for p in s.paragraphs] for d in source}
    assert found == {"a.md": ["First. Last.", "after", "The end."], "b.csv#2": [kept]}
    assert source.report.keys == len(KEYS) + 4
    assert f"skipped {len(KEYS) + 4} lines with a key or a password" in source.report.lines()


def test_an_archive_is_read_in_place_and_cannot_lead_outside(tmp_path):
    path = tmp_path / "a.zip"
    evil = ("../evil.md", "/evil.md", "..\\evil.md", ".env", "x/.git/config.md", "in.zip")
    held = {"docs/b.md": f"# B\n\n{PROSE}", "a.jsonl": json.dumps(BEIR[0]) + "\n"}
    held |= dict.fromkeys(evil, PROSE) | {"bomb.txt": b"a" * 10_000_000}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    source = DocumentSource(path)
    assert [d.id for d in source] == ["a.zip/a.jsonl#d7", "a.zip/docs/b.md"]
    counts = {reason: skipped.count for reason, skipped in source.report.skipped.items()}
    once = ("secret", "hidden", "archive within an archive", "repetition only")
    assert counts == {"unsafe name in an archive": 3, **dict.fromkeys(once, 1)}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip"]


def test_names_of_an_archive_that_a_mac_wrote_are_read_as_utf_8(tmp_path):
    data = zipped({"K--che/-fen.md": PROSE, "G-rten.md": PROSE})  # without the flag of UTF-8
    data = data.replace(b"K--che", "Küche".encode()).replace(b"G-rten", "Gärten".encode("cp437"))
    (tmp_path / "a.zip").write_bytes(data)
    source = DocumentSource(tmp_path / "a.zip", exclude=["Gär*"])
    ((name, section),) = ((d.id, d.sections[0]) for d in source)
    assert name == "a.zip/Küche/-fen.md" and section.paragraphs == (PROSE,)
    # Another program adds a file whose name is then the same: each keeps one of its own.
    twice = zipped({"--.md": PROSE, "ö.md": f"# B\n\n{PROSE}"})
    (tmp_path / "b.zip").write_bytes(twice.replace(b"--.md", "ö.md".encode()))
    named = [d.id for d in DocumentSource(tmp_path / "b.zip")]
    assert len(named) == 2 and not any("~" in name for name in named)


def test_names_match_patterns_in_either_form_of_unicode(tmp_path):
    composed, apart = (unicodedata.normalize(form, "Persönlich") for form in ("NFC", "NFD"))
    for folder, typed in ((composed, apart), (apart, composed)):
        root = tmp_path / str(len(folder))
        (root / folder).mkdir(parents=True)
        for name in (f"{folder}/pay.md", f"{folder}.md", "b.md"):
            (root / name).write_text(PROSE)
        assert [d.id for d in DocumentSource(root, exclude=[f"{typed}*"])] == ["b.md"]
        assert [d.id for d in DocumentSource(root, include=[f"{typed}.md"])] == [f"{folder}.md"]
        (root / ".gitignore").write_text(f"{typed}*\n", "utf-8")
        assert [d.id for d in DocumentSource(root)] == ["b.md"]


@pytest.mark.parametrize("mark", ["![", "[a](", "<![CDATA[", "sk-aaaaaaaaaaaaaaaaaaaa-"])
def test_what_repeats_a_mark_is_cleaned_in_linear_time(mark):
    """Ten times the text takes about ten times as long, where the square would take a hundred."""

    def seconds(length):
        text, found = mark * (length // len(mark)), []
        for _ in range(5):
            began = time.thread_time()
            without_markup(text)
            without_keys([Section((), (text,))])
            found.append(time.thread_time() - began)
        return min(found)

    # What else the machine does makes a try longer; it makes no square linear.
    assert any(seconds(30_000) < 30 * seconds(3_000) for _ in range(10))


def test_every_reason_is_explained():
    page = (ROOT / "docs" / "indexing.md").read_text()
    for reason in Reason:
        assert f"| {reason} |" in page or f"{reason}, " in page or f", {reason} |" in page, reason


def test_nothing_to_read_is_one_line_with_a_remedy(tmp_path):
    with pytest.raises(InputError, match="folder is empty; add documents"):
        list(DocumentSource(tmp_path))
    (tmp_path / "head.csv").write_text("title,text\n")
    with pytest.raises(InputError, match=r"head.csv: found no text; skipped: 1 empty"):
        list(DocumentSource(tmp_path / "head.csv"))
    (tmp_path / "head.csv").unlink()
    (tmp_path / "a.xyz").write_text(PROSE)
    (only,) = DocumentSource(tmp_path, as_text=["*.XYZ"])
    assert (only.id, only.sections[0].paragraphs) == ("a.xyz", (PROSE,))
    with pytest.raises(
        InputError, match=r"1 text of an unknown type; .*--as-text .*supported formats: .*\.md"
    ):
        list(DocumentSource(tmp_path))
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 nothing")
    (tmp_path / "b.epub").write_bytes(b"no zip")
    found = r"2 broken, 1 text of an unknown type; .*save it again"
    with pytest.raises(InputError, match=found):
        list(DocumentSource(tmp_path))
    (tmp_path / "notes.md").write_text(PROSE)
    with pytest.raises(InputError, match=r"did you mean .*notes.md"):
        DocumentSource(tmp_path / "note.md")


@pytest.mark.parametrize(("name", "start", "reason", "remedy"), [
    ("dump.txt", b"", "too large", "split files"), ("dump.html", b"", "too large", "split files"),
    ("dump.pdf", b"%PDF-1.7\n", "too large", "split files"),
    ("rows.csv", b"title,text\n", "binary", "supported formats"),
    ("rows.jsonl", b'{"text": "a"}\n', "binary", "supported formats"),
])  # fmt: skip
def test_a_file_of_ten_gigabytes_is_passed_over_at_once(tmp_path, name, start, reason, remedy):
    with (tmp_path / name).open("wb") as stream:
        stream.write(start)
        stream.truncate(10 << 30)  # takes no room on the disk
    with pytest.raises(InputError, match=rf"1 {reason}; .*{remedy}"):
        list(DocumentSource(tmp_path))


def test_the_limit_of_characters_holds(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.md").write_text(PROSE)
    source = DocumentSource(tmp_path)
    source.characters = len(PROSE)
    assert [d.id for d in source] == ["a.md", "b.md"]
    assert [skipped.names for skipped in source.report.skipped.values()] == [["c.md"]]


def test_every_iteration_gives_the_same_in_the_order_of_paths(tmp_path):
    for name in ("b.md", "a/z.md", "a/b.txt", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        content = json.dumps(BEIR[0]) if name.endswith("jsonl") else PROSE
        (tmp_path / name).write_text(content)
    source = DocumentSource(tmp_path)
    first, report = list(source), asdict(source.report)
    assert [d.id for d in first] == ["a/b.txt", "a/z.md", "b.md", "c.jsonl#d7"]
    shutil.copytree(tmp_path, tmp_path / "copy")
    again = DocumentSource(tmp_path / "copy")
    assert (list(source)[:3], list(again)) == (first[:3], first)
    assert asdict(again.report) == report


def test_a_heading_with_a_key_is_left_out_and_counted_once():
    sections = [Section(("Password: hunter2secret", name), ("Mud.",)) for name in "abc"]
    cleaned, count = without_keys(sections)
    assert (count, [one.headings for one in cleaned]) == (1, [("a",), ("b",), ("c",)])
