"""The generated reference: it has every public name, its links lead somewhere, its examples run."""

import doctest
import re

import pytest
from tools import reference

import contrasent
from contrasent import elsewhere, engine, losses
from doc_pages import ROOT, links

COSTS = {
    "fit": pytest.mark.slow,
    "index_folder": pytest.mark.slow,
    "search_index": pytest.mark.slow,
    "engine.Objective": pytest.mark.slow,
    "adapt_index": pytest.mark.slow,
    "evaluate_model": [pytest.mark.slow, pytest.mark.data],
    "sts": [pytest.mark.slow, pytest.mark.data],
}
"""Examples that take over a second, or need data."""


def thing(name):
    home, _, last = f"contrasent.{name}".rpartition(".")
    return getattr({"contrasent": contrasent, "contrasent.engine": engine}[home], last)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=COSTS.get(n, ())) for n in reference.MAIN.split()]
)
def test_the_example_of_a_main_name_prints_what_it_shows(name, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    globs = {"__name__": "example"}
    found = doctest.DocTestFinder(recurse=False).find(thing(name), name, globs=globs)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    printed = []
    (example,) = found
    assert 3 <= len(example.examples) <= 8
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(example, out=printed.append)
    assert printed == []


def test_the_pages_of_python_list_what_they_say():
    shown = list(reference.entries())
    names = {entry.path.rpartition(".")[2] for entry in shown}
    assert len(shown) > 80
    exported = {*contrasent.__all__, *engine.__all__, *losses.__all__} - {"__version__"}
    assert exported - names == set()
    assert {f"contrasent.{name}" for name in reference.MAIN.split()} <= {e.path for e in shown}
    # That of search.opening gives an index that cannot open its model.
    assert "contrasent.indexing.models.open_index" in {e.path for e in shown}


def test_the_pages_of_python_stay_short(generated):
    """What other libraries' base classes have is on none."""
    pages = {path.name: path.read_text("utf-8") for path in (generated / "python").glob("*.md")}
    assert len(pages) == len(reference.PAGES) + 1
    assert sum(text.count("\n") for text in pages.values()) < 5000
    text = "\n".join(pages.values())
    assert re.findall(r"state_dict| at 0x|:\w+:`|^\.\. |^::$", text, re.M) == []
    for name in reference.MAIN.split():
        page = next(e.page for e in reference.entries() if e.path == f"contrasent.{name}")
        assert "```python" in pages[f"{page.file}.md"]
        assert f"| [`contrasent.{name}`]" in pages["index.md"]


def test_links_of_the_reference_lead_somewhere(generated):
    count = 0
    for page in generated.rglob("*.md"):
        for path, anchor in links(page.read_text("utf-8")):
            if not path:
                continue
            count += 1
            file = (page.parent / path).resolve()
            if not file.is_relative_to(generated):
                file = ROOT / "docs" / file.relative_to(generated.parent)
            assert file.is_file(), f"{page.name}: {path}"
            if anchor and file.is_relative_to(generated):
                headings = re.findall(r"^#+ (\S+)$", file.read_text("utf-8"), re.M)
                assert anchor in map(str.lower, headings), f"{page.name}: {path}#{anchor}"
    assert count > 60


def test_names_in_other_libraries_belong_to_settings():
    from contrasent.engine import registry
    from contrasent.train.settings import run_settings

    methods = {name: registry.parameters(name) for name in registry.summaries()}
    known = {*run_settings(), *(name for own in methods.values() for name in own)}
    known |= {f"{method}.{name}" for method, own in methods.items() for name in own}
    assert set(elsewhere.SETTINGS) <= known
    assert set(elsewhere.RENAMED.values()) <= known
    assert known.isdisjoint({*elsewhere.RENAMED, *elsewhere.ABSENT})
    assert {words.split()[0].strip(",") for words in elsewhere.OBJECTIVES.values()} <= {*methods}


@pytest.mark.slow
def test_other_libraries_have_the_names():
    """Those of transformers' arguments; the others are of losses and modules."""
    from dataclasses import fields

    from sentence_transformers import SentenceTransformerTrainingArguments, util
    from sentence_transformers.sentence_transformer import losses

    ours = set(elsewhere.SAME.split()) | {"per_device_train_batch_size", "warmup_steps"}
    ours |= {"bf16", "fp16", "torch_compile", "prompts", "multi_dataset_batch_sampler"}
    assert ours <= {field.name for field in fields(SentenceTransformerTrainingArguments)}
    text = " ".join(theirs for theirs, _ in elsewhere.SETTINGS.values())
    for loss in {*re.findall(r"\b[A-Z]\w+Loss\b", text), *elsewhere.OBJECTIVES}:
        assert hasattr(losses, loss), loss
    assert callable(util.mine_hard_negatives)


def test_each_page_of_python_has_one_title(generated):
    navigation = (ROOT / "zensical.toml").read_text("utf-8")
    for page in reference.PAGES:
        text = (generated / "python" / f"{page.file}.md").read_text("utf-8")
        bare = re.sub(r"```.*?```", "", text, flags=re.S)
        assert re.findall(r"^# (.+)$", bare, re.M) == [page.title]
        assert bare.startswith("# ")
        assert f'"{page.title}" = "reference/python/{page.file}.md"' in navigation
