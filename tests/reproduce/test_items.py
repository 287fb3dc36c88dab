"""Items: all of the package's are sound, and what is wrong with one is named."""

import re
from pathlib import Path
from typing import get_args

import pytest

from contrasent.errors import InputError, OptionError
from contrasent.reproduce.measures import MEASURES
from contrasent.reproduce.tables import COSTS, SCALES, Figure, ItemFolder, resolve_row

OWN = ItemFolder()
ITEM = """\
title = "Crops"
source = "our own, Table 0"
about = "An item for tests."
cost = "medium"
reference = "plain"

[evaluations.dev]
kind = "sts"
tasks = ["STSB"]
split = "dev"

[columns.stsb]
evaluation = "dev"
metric = "spearman"

[templates.unsup]
objective = "simcse"
corpus = "wiki"

[[rows]]
name = "plain"
use = "unsup"
expected = { stsb = 82.5 }

[[rows]]
name = "crop {percent}, tau {temperature}"
use = "unsup"
set = { view = "crop", learning_rate = 5e-5 }
axes = { percent = [10, 20], temperature = [0.05, 0.1] }
expected = { stsb = [1.0, 2.0, "", 4.0] }

[[rows]]
name = "somebody else"
quote = true
source = "a letter"
expected = { stsb = { value = 70.0, tolerance = 0.5 } }

[[claims]]
name = "plain-is-best"
text = "Plain is best."
column = "stsb"
better = "plain"
than = ["*"]
"""


def read_item(path):
    return ItemFolder(path.parents[1]).read(path)


@pytest.fixture
def write(tmp_path):
    """Write an item of which a part is changed; its path."""

    def write(*changes):
        text = ITEM
        for before, after in changes:
            assert before in text
            text = text.replace(before, after, 1)
        path = tmp_path / "simcse" / "table0.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def items():
    return OWN.all()


def test_every_item_of_the_package(items):
    assert [item.name for item in items] == list(OWN.files())


def test_what_an_item_says(write):
    item = read_item(write())
    assert item.name == "simcse:table0"
    assert [row.name for row in item.rows] == [
        "plain", "crop 10, tau 0.05", "crop 10, tau 0.1", "crop 20, tau 0.05", "crop 20, tau 0.1",
        "somebody else",
    ]  # fmt: skip
    assert [r.expected["stsb"].value if r.expected else None for r in item.rows] == [
        82.5, 1.0, 2.0, None, 4.0, 70.0,
    ]  # fmt: skip
    last = item.rows[-1]
    assert (last.kind, last.expected["stsb"].source) == ("quote", "a letter")
    assert last.expected["stsb"].tolerance == 0.5
    assert item.columns["stsb"].factor == 100
    assert len(item.claims[0].than) == 4  # quotations are not run


def test_settings_come_from_scale_template_and_row(write):
    more = 'corpus = "wiki"\nset = { warmup_ratio = 0.1 }\nlab = { set = { max_steps = 7 } }\n'
    scale = "[scale.lab]\nset = { batch_size = 16, warmup_ratio = 0.2 }\n\n[[claims]]"
    item = read_item(write(('corpus = "wiki"\n', more), ("[[claims]]", scale)))
    lab = resolve_row(item.rows[1], OWN.scales["lab"], seed=3)
    size = lab.settings["batch_size"]
    assert (size, lab.settings["max_steps"], lab.settings["seed"]) == (16, 7, 3)
    assert (lab.settings["warmup_ratio"], lab.settings["learning_rate"]) == (0.1, 5e-5)
    assert lab.given == {"view": "crop", "percent": 10.0, "temperature": 0.05}
    paper = resolve_row(item.rows[0], OWN.scales["paper"])
    size = paper.settings["batch_size"]
    assert (size, paper.settings["max_steps"], paper.select) == (64, None, "stsb")


def test_an_evaluation_may_have_other_options_at_a_scale(write):
    options = 'split = "dev"\npaper = { split = "test", form = "raw" }'
    dev = read_item(write(('split = "dev"', options))).evaluations["dev"]
    assert dev.options["lab"] == {"tasks": ("STSB",), "split": "dev"}
    assert dev.options["paper"] == {"tasks": ("STSB",), "split": "test", "form": "raw"}
    items = OWN.find(["simcse:e1", "simcse:d2", "esimcse:table11", "diffcse:table2"])
    options = [item.evaluations["transfer"].options for item in items]
    solvers = [[own[scale].get("solver", "fast") for scale in SCALES] for own in options]
    assert solvers == [["fast", "senteval"]] * 4


def test_a_row_may_say_how_many_sentences(write):
    path = write(
        ('corpus = "wiki"\n', 'corpus = "wiki"\nsentences = 300\nlab = { sentences = 200 }\n'),
        ("{ stsb = 82.5 }", "{ stsb = 82.5 }\npaper = { sentences = 0 }"),
        ("[[claims]]", "[scale.lab]\nsentences = 100\n\n[[claims]]"),
    )
    item = read_item(path)
    counts = {
        scale: [resolve_row(row, OWN.scales[scale]).sentences for row in item.rows[:2]]
        for scale in ("lab", "paper")
    }
    assert counts == {"lab": [200, 200], "paper": [0, 300]}
    # What a row does not say is the item's, which changes both scales, then the scale's.
    changes = "[scale.lab]\nsentences = 100\n\n"
    changes += "[scale.paper]\nselect = 'none'\nset = { max_steps = 9 }\n\n[[claims]]"
    item = read_item(write(("[[claims]]", changes)))
    lab, paper = (resolve_row(item.rows[0], OWN.scales[s]) for s in SCALES)
    assert (lab.sentences, paper.sentences) == (100, None)
    assert (paper.select, paper.settings["max_steps"]) == ("none", 9)


def test_a_folder_from_outside_has_papers_and_corpora_of_its_own(write):
    path = write(('corpus = "wiki"', 'corpus = "letters"'))
    home = path.parents[1]
    with pytest.raises(InputError, match="corpus 'letters': unknown"):
        ItemFolder(home).all()
    corpus = 'title = "letters"\nfiles = ["letters.txt"]\nform = "sentences"\n'
    (home / "corpora.toml").write_text(f"[letters]\n{corpus}")
    path.parent.rename(home / "mine")
    assert ItemFolder(home).papers == {"mine": "mine"}
    (home / "papers.toml").write_text('theirs = "Another"\nmine = "My paper (2026)"\n')
    folder = ItemFolder(home)
    (item,) = folder.find(["mine"])
    assert (item.name, item.paper) == ("mine:table0", "My paper (2026)")
    (home / "letters.txt").write_text("Dear aunt,\nthe lamp is mended.\n")
    rows = folder.corpora[item.rows[0].corpus].rows(home)
    assert rows == [("Dear aunt,",), ("the lamp is mended.",)]


def test_a_claim_about_several_columns(write):
    more = '[columns.two]\nevaluation = "dev"\nmetric = "pearson"\n\n[templates'
    several = ('column = "stsb"\nbetter', 'column = ["stsb", "two"]\nbetter')
    assert read_item(write(("[templates", more), several)).claims[0].column == ("stsb", "two")


WRONG = [
    (("title =", "titel ="), "unknown key 'titel'; did you mean 'title'?"),
    (('cost = "medium"', 'cost = "mediun"'), "cost 'mediun': unknown; did you mean 'medium'?"),
    (('cost = "medium"', "cost = 3"), "cost 3: "),
    (('cost = "medium"\n', ""), "cost: is missing"),
    (('reference = "plain"', 'reference = "plane"'), "reference 'plane': unknown; did you mean"),
    (('split = "dev"', 'splt = "dev"'), "dev: unknown key 'splt'; did you mean 'split'?"),
    (('tasks = ["STSB"]', 'tasks = ["STSb"]'), "evaluations.dev.tasks.0 'STSb': unknown; did"),
    (('kind = "sts"\ntasks = ["STSB"]\nsplit = "dev"',
      'kind = "lexical_overlap"\ncorpora = ["qqp", "wki"]'),
     "evaluations.dev.corpora 'wki': unknown; did you mean 'wiki'?"),
    (('evaluation = "dev"', 'evaluation = "dew"'), "columns.stsb.evaluation 'dew': unknown; did"),
    (('objective = "simcse"', 'objective = "simsce"'), "did you mean 'simcse'?"),
    (('corpus = "wiki"', 'corpus = "wikki"'), "rows.plain.corpus 'wikki': unknown; did you"),
    (('use = "unsup"\nset', 'use = "unsop"\nset'), "use 'unsop': unknown; did you mean 'unsup'?"),
    (("learning_rate = 5e-5", "learning_rat = 5e-5"),
     "tau 0.05: set 'learning_rat': unknown setting"),
    (("learning_rate = 5e-5", "learning_rate = -1.0"),
     "learning_rate -1.0: must be greater than 0"),
    (("learning_rate = 5e-5", "learning_rate = [1.0]"),
     "set.learning_rate (1.0,): must be a single value"),
    (('view = "crop"', 'view = "crops"'), "did you mean 'crop'?"),
    (("percent = [10, 20]", "percent = [10, 120]"), "percent 120"),
    (("percent = [10, 20]", "percnt = [10, 20]"), "{...} of a name must be one of"),
    (('[1.0, 2.0, "", 4.0]', "[1.0, 2.0]"), "expected: stsb has 2 values for 4 rows"),
    (("{ stsb = 82.5 }", "{ sts = 82.5 }"), "rows.plain.expected 'sts': unknown; did you mean"),
    (("{ stsb = 82.5 }", "{ stsb = true }"), "rows.plain.expected.stsb.value True: input should"),
    (("tolerance = 0.5", "tolerence = 0.5"), "did you mean 'tolerance'?"),
    (("quote = true", 'quote = "yes"'), "rows.somebody else.quote 'yes': input should be a valid"),
    (('better = "plain"', 'no_wors = "plain"'), "plain-is-best: unknown key 'no_wors'; did you"),
    (('better = "plain"', 'equal = "plain"\nbetter = "plain"'), "one of better, no_worse"),
    (('better = "plain"', 'equal = "plain"\nmargin = 0'), "margin 0: must be greater than 0"),
    (('better = "plain"', 'better = "plan"'), "better 'plan': unknown; did you mean 'plain'?"),
    (('name = "somebody else"', 'name = "plain"'), "two rows are named 'plain'"),
    (("[[claims]]", "[scale.lap]\nset = {}\n[[claims]]"), "'lap': unknown; did you mean 'lab'?"),
    (("title = ", "title "), "not valid TOML"),
    (('title = "Crops"', 'title = "Crops"\nsweep = "percnt"'), "sweep 'percnt': unknown; did you"),
    (('use = "unsup"', 'use = "unsup"\nlab = { evaluations = ["dew"] }'), "mean 'dev'?"),
    (('evaluation = "dev"\nmetric = "spearman"\n', ""), "column 'stsb' has no evaluation"),
    (('metric = "spearman"\n', ""), "columns.stsb: metric is missing"),
    (('corpus = "wiki"', 'corpus = "wiki"\nsentences = -1'), "sentences -1: must be 0 or more"),
    (('column = "stsb"', 'column = ["stsb", "sts"]'), "column 'sts': unknown; did you mean"),
    (('column = "stsb"\n', ""), "claims.plain-is-best.column: is missing"),
    (('split = "dev"', 'lab = { splt = "dev" }'),
     "evaluations.dev.lab: unknown key 'splt'; did you"),
    (('split = "dev"', "lab = 3"), "evaluations.dev.lab 3: input should be a valid dictionary"),
    (("quote = true", 'tuned = ["{x}"]'), "{...} of a name must be one of the axes ('x')"),
    (("quote = true", 'tuned = ["plan"]'), "tuned 'plan': unknown; did you mean 'plain'?"),
    (('use = "unsup"\nexp', 'use = "unsup"\nfront = ["plain"]\nexp'),
     "blocked or facts"),
    (('metric = "spearman"\n', 'metric = "spearman"\nfront = ["stb"]\n'), "front 'stb': unknown"),
    (('better = "plain"', 'level = 1.5\nbetter = "plain"'), "level 1.5: "),
]  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), WRONG, ids=[w[1][:40] for w in WRONG])
def test_what_is_wrong_is_named(write, change, problem):
    """File, item, key, value and the nearest valid key, in one line."""
    path = write(change)
    with pytest.raises(InputError) as caught:
        read_item(path)
    message = str(caught.value)
    assert problem in message
    assert message.startswith(f"{path}:")
    assert "\n" not in message


def test_the_documentation_names_every_measure():
    text = (Path(__file__).parents[2] / "docs" / "reproducing.md").read_text("utf-8")
    rows = text.split("### What is measured")[1].split("\n### ")[0].splitlines()
    table = {line.split("`")[1]: line for line in rows if line.startswith("| `")}
    assert set(table) == set(MEASURES)
    for kind, measure in MEASURES.items():
        for option in measure.options:
            assert option in table[kind].split("|")[2], (kind, option)
    for name in (*COSTS, *filter(None, get_args(Figure)), *SCALES):
        assert name in text


def test_margins(write):
    """A statement's own, else the column's, else the item's of points; else there is none."""
    claim = ('better = "plain"', 'no_worse = "plain"\nmargin = 0.5')
    item = read_item(write(claim))
    assert (item.claims[0].relation, item.claims[0].margin) == ("no_worse", 0.5)
    assert item.columns["stsb"].margin == 0.3
    of_all = ('cost = "medium"', 'cost = "medium"\nmargin = 0.2')
    assert read_item(write(of_all)).columns["stsb"].margin == 0.2
    own = ('metric = "spearman"\n', 'metric = "spearman"\nmargin = 0.1\n')
    assert read_item(write(of_all, own)).columns["stsb"].margin == 0.1
    other = ('metric = "spearman"\n', 'metric = "spearman"\nfactor = 1\n')
    assert read_item(write(of_all, other)).columns["stsb"].margin is None
    with pytest.raises(InputError, match=r"plain-is-best: no_worse needs a margin, and"):
        read_item(write(other, ("better", "no_worse")))


def test_settings_of_the_command_line_give_way_to_an_items():
    scale = OWN.scales["lab"].with_changes({"learning_rate": "1e-3"}, 500)
    assert scale.changed == {"learning_rate": 1e-3, "sentences": 500}
    (methods, swept) = OWN.find(["own:methods", "own:rates"])
    row = next(row for row in methods.rows if row.kind == "train")
    found = resolve_row(row, scale)
    assert (found.settings["learning_rate"], found.sentences) == (1e-3, 500)
    assert resolve_row(swept.row("SimCSE, 0.003"), scale).settings["learning_rate"] == 3e-3


def test_equality_can_agree(items):
    """What says that something is no better, or no worse, is not taken for "better"."""
    claims = [claim for item in items for claim in item.claims]
    assert len(claims) == 238
    relations = [claim.relation for claim in claims]
    assert (relations.count("no_worse"), relations.count("no_better")) == (21, 5)
    for claim in claims:
        loose = re.search("(?i)^no other|no (better|worse|gain)|not (beaten|help)", claim.text)
        assert (claim.relation in ("no_worse", "no_better")) >= bool(loose), claim.name


def test_a_wrong_item_is_answered_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'simcse:table1'"):
        OWN.find(["simcse:tabel1"])
    found = [item.name for item in OWN.find(["simcse:d1", "simcse:table1"])]
    assert found == ["simcse:table1", "simcse:d1"]
    assert len(OWN.find(["simcse"])) >= 5
