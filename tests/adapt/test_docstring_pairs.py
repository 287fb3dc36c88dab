"""From sources to summaries and explanations, by files and by installed packages."""

from contrasent.adapt.pairs import Source, first_sentence, summary_to_explanation
from contrasent.documents.docstrings import read_documentation
from contrasent.documents.folder import open_documents
from contrasent.documents.passages import passages
from contrasent.documents.sections import Document, Section

SUMMARY = "Return the length of the river."
EXPLANATION = "The length is measured along the bed and is given in metres. It is never negative."
SOURCE = f'def length():\n    """{SUMMARY}\n\n    {EXPLANATION}\n    """\n    return 1\n'


def words(texts):
    return [len(text.split()) for text in texts]


def test_summaries_of_sources_and_of_packages_ask_for_explanations(tmp_path):
    (tmp_path / "river.py").write_text(SOURCE)
    (tmp_path / "notes.md").write_text(f"{SUMMARY}\n\n{EXPLANATION}\n")
    (tmp_path / "rows.jsonl").write_text(f'{{"text": "{SUMMARY}"}}\n')
    read = passages(open_documents(tmp_path), count_tokens=words, max_tokens=100)
    source = Source(read.passages, range(len(read.passages)), lambda text: [text], 0)
    (found,) = summary_to_explanation(source)
    made = (SUMMARY, f"length\n{EXPLANATION}", "docstring")
    assert (found.query, found.text, found.maker) == made
    assert read.passages[found.passage].id == "river.py#1"

    documents = [
        Document(one.name, one.name, (Section((), (one.summary, one.explanation)),), docstring=True)
        for one in read_documentation([tmp_path]).documented
    ]
    named = passages(documents, count_tokens=words, max_tokens=100)
    (pair,) = summary_to_explanation(Source(named.passages, [0], lambda text: [text], 0))
    assert (pair.query, pair.text) == (SUMMARY, f"river.length\n{EXPLANATION}")
    assert not list(first_sentence(Source(named.passages, [0], str.splitlines, 0)))
