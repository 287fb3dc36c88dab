"""No file can hang, kill or fill a run: each is read in a process with limits."""

import io
import json
import random
import subprocess
import sys
import time
import zipfile
from contextlib import closing

import pytest
import sample_files as made
from sample_files import PROSE

from contrasent.documents import worker
from contrasent.documents.archives import Reason, Skip, entries
from contrasent.documents.folder import DocumentSource
from contrasent.documents.worker import FileReader
from contrasent.encoder.encoder import Encoder

# A log is executed in the worker.
WORKER = """
from contrasent.documents import parsers, worker
parsers.TEXT[".log"] = exec
worker.serve()
"""
CODE = {
    "import os; os.kill(os.getpid(), 9)": Reason.ENDED, "import os; os._exit(0)": Reason.ENDED,
    "import os; os.write(3, b'{}\\n')": Reason.ENDED,
    "import time; time.sleep(60)": Reason.TIMED_OUT,
    "bytearray(1 << 33)": Reason.MEMORY, "def f(f): f(f)\nf(f)": Reason.MEMORY,
    "raise NotImplementedError": Reason.BROKEN, "raise SystemExit": Reason.ENDED,
    "import os; os.close(1); print('[1]'); os.system('echo [2]')": Reason.BROKEN,
}  # fmt: skip


def test_a_file_that_ends_or_hangs_its_reader_is_skipped_and_the_next_is_read(
    tmp_path, monkeypatch
):
    for number, code in enumerate(CODE):
        (tmp_path / f"{number}.log").write_text(code)
        (tmp_path / f"{number}.md").write_text(f"{PROSE} {number}")
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", WORKER])
    monkeypatch.setattr(worker, "SECONDS", 8)
    source = DocumentSource(tmp_path)
    assert [d.id for d in source] == [f"{number}.md" for number in range(len(CODE))]
    skipped = {n: why for why, found in source.report.skipped.items() for n in found.names}
    assert [skipped[f"{number}.log"] for number in range(len(CODE))] == list(CODE.values())


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", "5", "garbage", '{"documents": [1], "facts": {}}', '{"lacking": 1}']
)
def test_an_answer_that_is_none_is_no_document(tmp_path, monkeypatch, answer):
    (tmp_path / "a.md").write_text(PROSE)
    code = f"import sys\nfor line in sys.stdin: print({answer!r}, flush=True)"
    monkeypatch.setattr(worker, "COMMAND", [sys.executable, "-c", code])
    (entry,) = entries(tmp_path, lambda *_: None)
    with closing(FileReader(None, 1000)) as reader:
        for _ in range(2):
            with pytest.raises(Skip, match="ended its reader"):
                list(reader.read(entry))


def test_a_table_that_is_left_early_says_nothing_about_the_next_file(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{PROSE} {i}"}}\n' for i in range(900)))
    (tmp_path / "b.md").write_text(PROSE)
    table, text = entries(tmp_path, lambda *_: None)
    with closing(FileReader(None, 1000)) as reader:
        part, _ = next(found := reader.read(table))
        found.close()
        assert len(part) < 900
        (only,) = reader.read(text)
        assert [document.id for document in only[0]] == ["b.md"]


def parquet(path):
    """Half a kilobyte that expands to a gigabyte."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = pa.array(["x" * 52_000] * 20_000, pa.large_string())
    pq.write_table(
        pa.table({"text": rows}), path, compression="brotli", store_schema=False,
        write_statistics=False, row_group_size=1_000_000, data_page_size=1 << 30,
    )  # fmt: skip
    assert path.stat().st_size < 1000


def repacked(content, name, change):
    """An archive with one file changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        files = {one: old.read(one) for one in old.namelist()}
    return made.zipped({**files, name: change(files[name])})


@pytest.mark.slow
def test_files_made_to_hang_or_to_fill_memory_do_neither(tmp_path):
    marks = ["a <!-- ", "![", "[^", "[a](", "<http:", "*a _b ", "> ", "a.", "<![CDATA["]
    forms = ("html", "md", "rst", "txt")
    for number, mark in enumerate(marks):
        for form in forms:
            (tmp_path / f"{number}.{form}").write_text(mark * (140_000 // len(mark)) + "://")
    (tmp_path / "c.html").write_text("<![CDATA[" * 100_000)
    page = b'<itemref idref="a"/>'
    book = repacked(made.epub(), "in/book.opf", lambda b: b.replace(page, page * 500))
    book = repacked(book, "in/text/a.xhtml", lambda _: b"<p>word</p>" * 20_000)
    (tmp_path / "e.epub").write_bytes(book)
    many = b"<w:body>" + b"<w:p><w:r><w:t>A paragraph.</w:t></w:r></w:p>" * 50_000
    word = repacked(made.docx(), "word/document.xml", lambda b: b.replace(b"<w:body>", many))
    (tmp_path / "w.docx").write_bytes(word)
    parquet(tmp_path / "p.parquet")
    (tmp_path / "z.md").write_text(PROSE)
    source, began = DocumentSource(tmp_path), time.monotonic()
    documents = {document.id.partition("#")[0]: document for document in source}
    assert time.monotonic() - began < 120
    assert documents["z.md"].sections[0].paragraphs == (PROSE,)
    assert source.report.characters < 50_000_000
    reasons = {n: why for why, found in source.report.skipped.items() for n in found.names}
    assert {reasons[n] for n in ("p.parquet", "w.docx", "c.html")} == {Reason.REPETITION}
    assert {reasons[f"{n}.{form}"] for n in range(9) for form in forms} == {Reason.REPETITION}
    assert "e.epub" in reasons  # by its size, its time or its memory


@pytest.mark.slow
def test_of_500_mutants_of_each_format_no_exception_escapes(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [{"cell_type": "markdown", "source": ["# River\n", PROSE]}] * 3
    stream = io.BytesIO()
    pq.write_table(pa.table({"id": list("abc"), "text": [PROSE] * 3}), stream)
    real = {
        "docx": made.docx(), "pptx": made.pptx(), "pdf": made.paged(), "epub": made.epub(),
        "ipynb": json.dumps({"cells": cells}).encode(), "html": made.HTML.encode(),
        "rst": made.RST.encode(), "parquet": stream.getvalue(), "zip": made.epub(),
    }  # fmt: skip
    draw = random.Random(32)
    for form, content in real.items():
        for number in range(500):
            mutant = bytearray(content)
            for _ in range(draw.choice((1, 2, 8, 32))):
                mutant[draw.randrange(len(mutant))] = draw.randrange(256)
            end = draw.randrange(len(mutant)) if number % 10 == 0 else len(mutant)
            (tmp_path / f"{number:03}.{form}").write_bytes(mutant[:end])
    (tmp_path / "z.md").write_text(PROSE)
    source = DocumentSource(tmp_path)
    last = list(source)[-1]
    assert last.id == "z.md"
    skipped = sum(found.count for found in source.report.skipped.values())
    assert source.report.files + skipped >= 500 * len(real) + 1
    reasons = set(source.report.skipped)
    assert {"broken", "encrypted"} <= reasons


WITHOUT_UNIX = """
import sys
sys.modules.update(dict.fromkeys(("resource", "fcntl", "pwd", "grp", "termios")))
from contrasent.documents import worker
if sys.argv[1:] == ["read"]:
    worker.serve()
    raise SystemExit
worker.COMMAND = [sys.executable, __file__, "read"]
from contrasent.cli import main
from contrasent.serve import connections
from contrasent.serve.guard import Settings
assert connections.resource is worker.resource is None
connections.make_server(None, Settings())
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
    Encoder.load(bert, pooler="mean", normalise=True).save(tmp_path / "model")
    (tmp_path / "run.py").write_text(WITHOUT_UNIX)
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "a.md" in done.stdout
