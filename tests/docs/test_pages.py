"""Everything that the pages show is true: blocks run, links lead somewhere, names exist."""

import json
import re
import tomllib
from collections import defaultdict
from dataclasses import fields

import pytest
import typer
from tools import notebooks, reference, sizes

from commands import invoke
from contrasent.cli.app import app
from contrasent.report import Report
from contrasent.serve.guard import ServerSettings
from doc_pages import PAGES, ROOT, blocks, forget, links

SRC = ROOT / "src" / "contrasent"
RESEARCH = ROOT / "research"
LANGUAGES = {"sh", "python", "toml", "text"}


def options_of(words):
    """The command's name, its options by name, and the words after it."""
    _, name, *rest = words
    command = typer.main.get_command(app).commands[name]
    options = [p for p in command.params if p.param_type_name == "option"]
    return name, {o: p for p in options for o in (*p.opts, *p.secondary_opts)}, rest


def parsed(words):
    """Refuse a command line with a command or an option that does not exist."""
    name, known, rest = options_of(words)
    at = 0
    while at < len(rest):
        option, equals, _ = rest[at].partition("=")
        at += 1
        if option.startswith("-") and option != "-":
            assert option in known or option == "--help", f"{name} has no option {option}"
            flag = option == "--help" or known[option].type_descriptor.annotation is bool
            at += 0 if equals or flag else 1


def smaller(words, changes):
    """A command with options that make it quick, as far as it has them."""
    _, known, _ = options_of(words)
    pairs = [c.split(" ", 1) for c in re.split(r" (?=--)", changes) if c]
    return [*words, *(word for pair in pairs if pair[0] in known for word in pair)]


EXTERNAL = {*"git cd python3 . curl torchrun open docker ollama hf rm echo".split()}  # noqa: SIM905


def other(words):
    """A command that is not ours: what it names must be there."""
    words = [w for w in words if not re.fullmatch(r"[A-Z_]+=\S*", w)]
    program = words[0].rsplit("/", 1)[-1] if words else "cd"
    if program in {"python", "pytest"} and "-m" in words:
        module = words[words.index("-m") + 1]
        found = ROOT / (module.replace(".", "/") + ".py")
        assert found.is_file() or found.with_suffix("").is_dir(), module
    elif program == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert words[1] in targets, words
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"\[([\w,-]+)\]", " ".join(words)):
            for extra in extras.split(","):
                assert extra in project["optional-dependencies"], extra
    elif program == "contrasent":
        parsed(["contrasent", *words[1:]])
    else:
        assert program in EXTERNAL, words


SLOW = {
    *("docs/methods.md", "docs/export.md", "docs/training.md", "README.md"),
    *("docs/searching.md", "docs/quickstart.md", "docs/indexing.md", "docs/index.md"),
}
"""The first checks a method, in two processes too, and trains eight; the second makes every graph;
the third trains by every kind of text; the fourth does everything once; the others learn from the
queries of the examples, follow a folder, or train a language model."""


@pytest.mark.early
@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow) if p in SLOW else p for p in PAGES]
)
def test_every_block_runs(page, page_folder):
    names = {"__name__": "page"}
    for block in blocks(page):
        where = f"{page}:{block.line}"
        verb, rest = block.note
        assert block.language in LANGUAGES, f"{where}: no language, or an unknown one"
        if verb == "file":
            (page_folder / rest).write_text(block.text + "\n", "utf-8")
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "python" and verb != "not run":
            shown, _, quick = rest.partition(" -> ") if verb == "small" else ("", "", "")
            assert shown in block.text, where
            exec(compile(block.text.replace(shown, quick), where, "exec"), names)
        elif block.language == "python":
            compile(block.text, where, "exec")
        elif block.language == "sh":
            for words in block.commands:
                if words[0] != "contrasent" or verb == "not run":
                    other(words)
                    continue
                parsed(words)
                # That file is checked by the same command in tests/train/test_own_methods.py.
                checked = words[-2:] == ["away.py", "--check"]
                # A server runs until it is stopped.
                if verb == "parse only" or words[1] == "serve" or "--help" in words or checked:
                    continue
                words = smaller(words, rest) if verb == "small" else words
                forget(words)
                done = invoke(*words[1:])
                assert done.exit_code == 0, f"{where}: {' '.join(words)}: {done.output}"


def test_most_blocks_are_run_and_the_others_say_why_not():
    every = [block for page in PAGES for block in blocks(page)]
    runnable = [block for block in every if block.language in ("sh", "python")]
    skipped = [block for block in runnable if block.note[0] in ("not run", "parse only")]
    assert len(runnable) > 60 and len(skipped) < len(runnable) / 2
    assert all(block.note[1] for block in skipped), "a reason stands behind each"


def slugs(text):
    """Anchors of a page's headings, as the forge and the site make them."""
    found = set()
    for title in re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def test_contributing_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = re.findall(r"`([\w.]+/[\w./]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(paths) >= 10
    tables = re.findall(r"`([A-Z_]{5,})`(?: in)? \(?`([\w./]+)`", text)
    assert [name for name, path in tables if f"\n{name}" not in (ROOT / path).read_text()] == []
    assert {"METRICS", "SUITES"} <= {name for name, _ in tables}


def test_messages_name_sections_of_the_troubleshooting_page():
    named = [
        anchor
        for path in SRC.rglob("*.py")
        for anchor in re.findall(r"\bsee\(['\"]([\w-]+)['\"]\)", path.read_text("utf-8"))
    ]
    assert set(named) <= slugs((ROOT / "docs" / "troubleshooting.md").read_text("utf-8"))
    assert len(named) >= 20
    assert len(set(named)) >= 10, set(named)


def test_every_link_leads_somewhere(generated):
    count = 0
    for page in PAGES:
        for path, anchor in links((ROOT / page).read_text("utf-8")):
            count += 1
            file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
            if file.is_relative_to(ROOT / "docs" / "reference"):
                file = generated / file.relative_to(ROOT / "docs" / "reference")
            if file.parent == ROOT / "docs" / "assets" and file.suffix == ".svg":
                continue  # drawn when the site is built
            assert file.exists(), f"{page}: {path}"
            if anchor and file.suffix == ".md":
                assert anchor in slugs(file.read_text("utf-8")), f"{page}: {path}#{anchor}"
    assert count > 80


def test_every_command_and_setting_is_on_a_page(generated):
    from contrasent.engine import registry
    from contrasent.train.settings import run_settings

    commands = [name for name, _ in reference.commands()]
    shown = (generated / "cli.md").read_text("utf-8")
    by_hand = "\n".join((ROOT / page).read_text("utf-8") for page in PAGES)
    assert len(commands) >= 17
    for name in commands:
        assert f"## {name}\n" in shown
        assert name in by_hand, f"{name} is on no page that a person wrote"
    settings = (generated / "settings.md").read_text("utf-8")
    names = [*run_settings(), *(p for n in registry.summaries() for p in registry.parameters(n))]
    assert len(names) > 150
    assert all(f"| `{name}` |" in settings for name in names)


def test_every_setting_that_a_page_sets_exists():
    """In commands that are not run too, and on the cards of the bases."""
    from benchmarks.pretrain import Recipe

    from contrasent.engine import registry
    from contrasent.train.settings import run_settings

    known = {*run_settings(), *(field.name for field in fields(Recipe))}
    known |= {p for name in registry.summaries() for p in registry.parameters(name)}
    cards = [p.relative_to(ROOT) for p in ROOT.glob("bases/*/src/*/model/README.md")]
    shown = [
        (str(page), name)
        for page in [*PAGES, *cards]
        for name in re.findall(r"--set[ =]([\w.]+)=", (ROOT / page).read_text("utf-8"))
    ]
    unknown = [one for one in shown if one[1].rpartition(".")[2] not in known]
    assert unknown == [("docs/migrating.md", "fp16")]  # shown as the error that it is
    assert cards and len(shown) > 60


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """What ``reproduce`` reports of stored runs, by item."""
    items = {}
    for folder, names in STORED.items():
        report = tmp_path_factory.mktemp("stored") / "report.json"
        stored = ["--from", str(RESEARCH / "reproduction" / folder), "--json-file", str(report)]
        assert invoke("reproduce", *names, "--quiet", *stored).exit_code == 0
        items |= {item["name"]: item for item in json.loads(report.read_text("utf-8"))["items"]}
    return items


STORED = {"contrasent-small": ("own:headlines", "own:halves"), "small": ("own:small",)}


@pytest.mark.parametrize("item", ["own:headlines", "own:halves", "own:small"])
def test_the_page_of_verdicts_says_what_the_command_prints(item, reported):
    page = (RESEARCH / "reproduction" / "README.md").read_text("utf-8")
    count = 0
    for claim in reported[item]["claims"]:
        if len(claim["parts"]) > 1 or claim["verdict"]["word"] == "not run":
            continue
        (part,) = claim["parts"]
        low, mean, high = (part["effect"][name] for name in ("low", "ours", "high"))
        said = f"{claim['verdict']['word']}, {part['why'].rpartition(', ')[2]}"
        assert f"| {mean:+.1f} | [{low:+.1f}, {high:+.1f}] | {said}" in page, claim["text"]
        count += 1
    assert count >= 5


def gains(text):
    """Values with an interval, as pages print them: ``+5.2 [+4.8, +5.6]``, or in two cells."""
    number = r"([+-]?\d+\.\d+)"
    form = rf"{number}(?: nDCG@10)?(?: \|)? \[{number}, {number}\]"
    return {tuple(map(float, found)) for found in re.findall(form, text)}


def rounded(places, name, *found):
    """The mean over some results of a value and of the ends of its interval."""
    keys = (name, "low", "high")
    return tuple(round(sum(one[key] for one in found) / len(found), places) for key in keys)


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md", "docs/searching.md"])
def test_every_gain_on_a_page_is_stored(page, reported):
    points = [row["cells"]["avg"].get("difference") for row in reported["own:headlines"]["rows"]]
    for item in ("own:headlines", "own:small"):
        points += [part["effect"] for c in reported[item]["claims"] for part in c["parts"]]
    stored = {rounded(1, "ours", one) for one in points if one}
    seeds = defaultdict(dict)  # what queries taught, on others and by cross-validation
    for line in (RESEARCH / "adaptation" / "teaching.jsonl").read_text("utf-8").splitlines():
        found = json.loads(line)
        for one in [found.get("gain"), *found.get("curve", ())]:
            if one:
                seeds[found["collection"], one.get("teach")][found["seed"]] = one
    stored |= {rounded(3, "value", *of.values()) for of in seeds.values() if {*of} == {0, 1, 2}}
    for name in ("adaptation.md", "serving.md"):
        stored |= gains((RESEARCH / name).read_text("utf-8"))
    shown = gains((ROOT / page).read_text("utf-8"))
    assert shown <= stored
    assert len(shown) >= 4


def test_what_the_example_of_fine_tuning_prints_is_stored():
    readme = (ROOT / "README.md").read_text("utf-8")
    stored = json.loads((RESEARCH / "examples" / "fine-tune.json").read_text("utf-8"))
    result, command = stored["result"], " ".join(readme.replace("\\\n", "").split())
    gain = result["gain"]
    assert stored["command"] in command and result["improved"]
    assert (
        f"Improved and saved: heldout {result['metric']} {result['score']:.3f} after step "
        f"{result['kept']}, {result['base_score']:.3f} before training; on {gain['count']} other "
        f"items {gain['value']:+.3f}, 95 % CI [{gain['low']:+.3f}, {gain['high']:+.3f}]."
    ) in readme


def test_the_curves_of_the_language_model_are_stored():
    page = (ROOT / "docs" / "tutorials" / "language-model.md").read_text("utf-8")
    table = re.findall(r"^\| .* \| 54\.7 \| .* \|$", page, re.M)
    shown = [row.partition("54.7")[2].strip("| ").split(" | ") for row in table]
    stored = {}
    for path in (RESEARCH / "reproduction" / "smollm2-135m").rglob("train-*.json"):
        run = json.loads(path.read_text("utf-8"))
        steps = {step: Report.from_json(report) for step, report in run["trace"]}
        scores = [steps[at].one(task="STSB", metric="spearman") for at in (50, 100, 150, 250)]
        stored[run["label"].split("'")[1]] = [f"{100 * score.value:.1f}" for score in scores]
    methods = ("SimCSE", "ESimCSE", "SimCSE++", "SimCSE with labels")
    assert shown == [stored[f"{name}, 0.0001"] for name in methods]


def test_the_sizes_of_extras_count_all_that_they_ask_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` adds[^|]*\| [\d,]+ \| (\d+) \|$", page, re.M))
    assert [*shown] == [*sizes.EXTRAS]
    base = {}
    sizes.closure("contrasent", frozenset(), base)
    for name, count in shown.items():
        asked = {re.split(r"[\[>=]", one)[0] for one in project["optional-dependencies"][name]}
        assert int(count) >= len(asked - {"contrasent", *base}), name


def test_the_limits_of_a_server_are_on_its_page():
    limits = ServerSettings()
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    table = page.partition("## Load and limits")[2].partition("\n\nCtrl-C")[0]
    counts = [limits.queue_tokens, limits.max_inputs, limits.max_compared]
    counts += [limits.max_requests, limits.max_connections]
    for shown in (
        *(f"{count:,} " for count in counts),
        *(f"{size >> 20} MB of " for size in (limits.max_text, limits.max_body)),
        f"{limits.timeout:.0f} seconds for ",
    ):
        assert f"\n| {shown}" in table, shown


def test_every_page_is_in_the_navigation():
    text = (ROOT / "zensical.toml").read_text("utf-8")
    navigation = re.findall(r'"([\w/-]+\.md)"', text)
    pages = {p.removeprefix("docs/") for p in PAGES if p.startswith("docs/")}
    beside = {f"reference/{n}.md" for n in ("cli", "python/index")}
    classes = {f"reference/python/{page.file}.md" for page in reference.PAGES}
    notebooks = {f"tutorials/{p.stem}.md" for p in (ROOT / "docs" / "tutorials").glob("*.ipynb")}
    assert len(pages | beside | notebooks) == 21
    assert sorted(navigation) == sorted(pages | beside | notebooks | classes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs", "queries", "simcse"])
def test_a_notebook_runs_and_prints_what_it_shows(name):
    """Each cell gives outputs of the kinds that are shown; their figures depend on rounding."""
    path = notebooks.FOLDER / f"{name}.ipynb"
    kept = json.loads(path.read_text("utf-8"))
    made = notebooks.run(
        path,
        {
            '"num_train_epochs": 20': '"max_steps": 4',
            '"answer"]))': '"answer"]))[::9]',  # of the pairs that SimCSE's methods learn from
            '"max_steps": 60, "batch_size": 32': '"max_steps": 2, "batch_size": 8',
            '"eval_steps": 15': '"eval_steps": 2',
        },
    )
    printed = [[one.output_type for one in cell.get("outputs", ())] for cell in made.cells]
    shown = [[one["output_type"] for one in cell.get("outputs", ())] for cell in kept["cells"]]
    assert printed == shown
    assert not any(one.get("name") == "stderr" for c in made.cells for one in c.get("outputs", ()))
