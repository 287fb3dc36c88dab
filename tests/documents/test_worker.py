"""No file can hang, kill or fill a run: each is read in a process with limits."""

import gzip
import io
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
import sample_files as made
from benchmarks.attack import (
    expanding_parquet,
    many_members,
    many_rows,
    paragraphs,
    repacked,
    zipped,
)
from sample_files import PROSE

from contrasent.documents.archives import Reason, entries
from contrasent.documents.folder import DocumentSource
from contrasent.documents.worker import FileReader
from contrasent.encoder.encoder import TorchEncoder

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(DocumentSource, "reader", FileReader)
    monkeypatch.setattr(FileReader, "seconds", 600.0)  # the machine may have more to do


# A log is executed in the worker.
WORKER = """
from contrasent.documents import parsers, worker
parsers.READERS[".log"] = lambda file: exec(file.text())
worker.serve()
"""


class Executing(FileReader):
    """Gives up at once on the file that hangs, and never on another."""

    command = (sys.executable, "-c", WORKER)

    def read(self, entry):
        self.seconds = 1.0 if entry.name == HANGS else 600.0
        yield from super().read(entry)


CODE = {
    "import os; os.kill(os.getpid(), 9)": Reason.ENDED, "import os; os._exit(0)": Reason.ENDED,
    "import time; time.sleep(900)": Reason.TIMED_OUT,
    "bytearray(1 << 33)": Reason.MEMORY, "def f(f): f(f)\nf(f)": Reason.MEMORY,
    "import sys; sys.kept = 1; bytearray(1 << 33)": Reason.MEMORY,
    "import os, sys; 'kept' in vars(sys) and os._exit(0); raise OSError": Reason.BROKEN,
    "import sys; sys.kept = bytearray(900 << 20); raise OSError": Reason.BROKEN,
    "bytearray(1 << 29); raise OSError": Reason.BROKEN,
    "raise OSError(5, 'a disk')": Reason.UNREADABLE, "open('/gone')": Reason.UNREADABLE,
    "from contrasent.text.sources import reading\nwith reading('a'): raise OSError(5, 'a disk')":
        Reason.UNREADABLE,
    "raise NotImplementedError": Reason.BROKEN, "raise SystemExit": Reason.ENDED,
    "import os; os.close(1); print('[1]'); os.system('echo [2]')": Reason.BROKEN,
}  # fmt: skip
HANGS = f"{[*CODE.values()].index(Reason.TIMED_OUT):02}.log"


def test_a_file_that_ends_or_hangs_its_reader_is_skipped_and_the_next_is_read(tmp_path):
    for number, code in enumerate(CODE):
        (tmp_path / f"{number:02}.log").write_text(code)
        (tmp_path / f"{number:02}.md").write_text(f"{PROSE} {number}")
    source = DocumentSource(tmp_path)
    source.reader = Executing
    assert [d.id for d in source] == [f"{number:02}.md" for number in range(len(CODE))]
    skipped = {n: why for why, found in source.report.skipped.items() for n in found.names}
    assert [skipped[f"{number:02}.log"] for number in range(len(CODE))] == list(CODE.values())


def test_what_is_attached_takes_no_mail_with_it(tmp_path):
    mail = "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nThe pond is full.\n--b\n"
    mail += "Content-Disposition: attachment; filename=a.log\n\nimport os; os._exit(0)\n--b--\n"
    (tmp_path / "a.eml").write_text(mail)
    source = DocumentSource(tmp_path)
    source.reader = Executing
    assert [d.id for d in source] == ["a.eml"]
    assert source.report.skipped[Reason.ENDED].names == ["a.eml (remainder)"]


def test_a_table_that_is_left_early_says_nothing_about_the_next_file(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{PROSE} {i}"}}\n' for i in range(900)))
    (tmp_path / "b.md").write_text(PROSE)
    table, text = entries(tmp_path, lambda *_: None)
    with closing(FileReader(None, 1000)) as reader:
        found = reader.read(table)
        assert next(found)[0] == "columns"
        assert next(found)[1].id == "a.jsonl#1"
        found.close()
        ((kind, only),) = reader.read(text)
        assert (kind, only.id) == ("document", "b.md")


BOMBS = {
    "rows.csv.gz": (lambda: many_rows(b"1,a\n", 1_000_000), Reason.REPETITION),
    "blank.csv.gz": (lambda: many_rows(b"\n", 20_000_000), Reason.EXPANDS),
    "zeros.txt.gz": (lambda: gzip.compress(b"a" * 20_000_000), Reason.EXPANDS),
    "zeros.zip": (lambda: zipped({"a.md": b" " * 20_000_000}), Reason.EXPANDS),
    "empty.zip": (lambda: many_members(100_001), Reason.MEMBERS),
    "listing.zip": (lambda: many_members(300_000), Reason.MEMBERS),
    "dense.zip": (lambda: many_members(11, b"a" * 9_500_000), Reason.EXPANDS),
    "spaces.odt": (
        lambda: repacked(made.odt(), "content.xml", b" " * 20_000_000), Reason.EXPANDS,
    ),
    "sealed.odt": (
        lambda: zipped({"META-INF/manifest.xml": b"encryption-data".ljust(20_000_000)}),
        Reason.EXPANDS,
    ),
}  # fmt: skip


@pytest.mark.slow
def test_what_is_packed_is_bounded(tmp_path):
    for name, (make, _) in BOMBS.items():
        (tmp_path / name).write_bytes(make())
    (tmp_path / "z.md").write_text(PROSE)
    source = DocumentSource(tmp_path)
    assert [d.id for d in source if "rows" not in d.id] == ["z.md"]
    assert source.report.documents < 20_000
    skipped = {n: why for why, found in source.report.skipped.items() for n in found.names}
    reasons = {name.split("/")[0].removesuffix(" (remainder)"): skipped[name] for name in skipped}
    assert reasons == {name: reason for name, (_, reason) in BOMBS.items()}


@pytest.mark.slow
def test_files_made_to_hang_or_to_fill_memory_do_neither(tmp_path):
    marks = ["a <!-- ", "![", "[^", "[a](", "<http:", "*a _b ", "> ", "a.", "<![CDATA["]
    forms = ("html", "md", "rst", "txt")
    for number, mark in enumerate(marks):
        for form in forms:
            (tmp_path / f"{number}.{form}").write_text(mark * (140_000 // len(mark)) + "://")
    (tmp_path / "c.html").write_text("<![CDATA[" * 100_000)
    page = b'<itemref idref="a"/>'
    with zipfile.ZipFile(io.BytesIO(made.epub())) as whole:
        spine = whole.read("in/book.opf").replace(page, page * 500)
    book = repacked(made.epub(), "in/book.opf", spine)
    book = repacked(book, "in/text/a.xhtml", b"<p>word</p>" * 20_000)
    (tmp_path / "e.epub").write_bytes(book)
    (tmp_path / "w.docx").write_bytes(paragraphs(50_000))
    pytest.importorskip("pyarrow")
    (tmp_path / "p.parquet").write_bytes(expanding_parquet())
    (tmp_path / "z.md").write_text(PROSE)
    source = DocumentSource(tmp_path)
    documents = {document.id.partition("#")[0]: document for document in source}
    assert documents["z.md"].sections[0].paragraphs == (PROSE,)
    assert source.report.characters < 50_000_000
    reasons = {n: why for why, found in source.report.skipped.items() for n in found.names}
    repeat = ("p.parquet (remainder)", "w.docx", "c.html")
    assert {reasons[n] for n in repeat} == {Reason.REPETITION}
    assert {reasons[f"{n}.{form}"] for n in range(9) for form in forms} == {Reason.REPETITION}
    assert "e.epub" in reasons  # by its size, its time or its memory


@pytest.mark.slow
def test_the_bench_of_attacks_finds_nothing():
    """A mutant of each format, and a bomb; in a process whose memory is its own."""
    bench = [sys.executable, "-m", "benchmarks.attack", "--count", "1"]
    done = subprocess.run(bench, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    mutants, bombs = done.stdout.splitlines()
    assert mutants.startswith("mutants: 1 runs") and bombs.startswith("bombs: 1 runs")


WITHOUT_UNIX = """
import sys
sys.modules.update(dict.fromkeys(("resource", "fcntl", "pwd", "grp", "termios")))
from contrasent.documents import worker
if sys.argv[1:] == ["read"]:
    worker.serve()
    raise SystemExit
worker.FileReader.command = (sys.executable, __file__, "read")
from contrasent import processes
from contrasent.cli import main
from contrasent.serve.app import make_server
from contrasent.serve.guard import ServerSettings
assert processes.resource is None
make_server(None, ServerSettings())
for words in (["index", "notes", "-o", "i", "--model", "model", "-q"], ["search", "i", "a boat"]):
    sys.argv = ["contrasent", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""


def test_index_search_and_server_do_without_the_modules_of_unix(tmp_path, bert):
    """A stand-in for Windows, as far as its missing modules go."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(PROSE)
    TorchEncoder.load(bert, pooling="mean", normalize=True).save(tmp_path / "model")
    (tmp_path / "run.py").write_text(WITHOUT_UNIX)
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "a.md" in done.stdout
