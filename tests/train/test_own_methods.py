"""Methods from outside the library: the file in docs/methods.md, and others that go wrong."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine import registry
from contrasent.errors import OptionError
from contrasent.objectives.simcse import SimCSE
from contrasent.train import method_checks
from contrasent.train.fit import fit
from contrasent.train.method_checks import Trial, finding, make_small_base
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings, choose

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8")
METHOD = PAGE.split("## Add a method")[1].split("```python\n")[1].split("```")[0]
SUBCLASS = """
from dataclasses import dataclass
from contrasent.engine import Contrast, Terms
from contrasent.objectives.simcse import SimCSE


@dataclass(frozen=True, kw_only=True)
class Doubled(Contrast):
    def __call__(self, encodings) -> Terms:
        terms = super().__call__(encodings)
        return terms | {"contrast": 2 * terms["contrast"]}


class TwiceSimCSE(SimCSE):
    def __init__(self, encoder, *, times: str = "two", **given):
        super().__init__(encoder, **given)
        self.contrast = Doubled(temperature=self.contrast.temperature)
"""


@pytest.fixture
def own(tmp_path):
    """The method in a folder of its own."""
    path = tmp_path / "elsewhere" / "away.py"
    path.parent.mkdir()
    path.write_text(METHOD)
    return path


def test_a_file_of_ones_own_trains_resumes_and_combines(run, own, bert, sentences, tmp_path):
    assert len(METHOD.splitlines()) <= 60
    assert "_" not in {name[0] for name in METHOD.split("import (")[1].split(")")[0].split()}
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(sentences[:60]) + "\n")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'objective = "elsewhere/away.py"\n[settings]\nbatch_size = 8\nmax_steps = 3\nrate = 3\n'
    )
    train = ["train", texts, "--base", bert, "--evaluate", "none"]
    first = [*train, "-o", "m", "--config", recipe, "--set", "mini_batch_size=6"]
    run(*first)
    stored = json.loads((tmp_path / "m" / "run" / "settings.json").read_text())
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    stated = {"name": "away.py", "source_sha256": digest, "temperature": 0.05}
    assert stored["objective"] == {**stated, "rate": 3.0, "away_weight": 0.1}
    assert "away.py" in (tmp_path / "m" / "README.md").read_text()
    log = (tmp_path / "m" / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["away"] > 0

    run(*first, "--resume")
    own.write_text(METHOD + "\n# another comment\n")
    _, err = run(*first, "--resume", code=2)
    assert "the file of away.py has changed" in err
    assert err.count("\n") == 1
    more = ["--set", "batch_size=8", "--set", "max_steps=1"]
    run(*train, "-o", "both", "--objective", f"esimcse+{own}", *more, "--set", "queue_size=9")
    stored = json.loads((tmp_path / "both" / "run" / "settings.json").read_text())["objective"]
    assert stored["name"] == "esimcse+away.py"
    assert stored["source_sha256 of away.py"] != digest
    assert (stored["rate"], stored["queue_size"], stored["away_weight"]) == (None, 9, 0.1)
    _, err = run(*train, "-o", "no", "--objective", own, "--set", "rate=0.5", code=2)
    assert err == "contrasent: rate '0.5': must be 1 or more\n"


@pytest.mark.slow
def test_the_command_checks_it(run, own, sentences, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(sentences[:60]) + "\n")
    check = ("train", texts, "--check", "--objective", own)
    out, _ = run(*check)
    lines = out.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("    ok  ") for line in lines), out
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "texts.txt"}
    for wrong, problem in (
        (("--set", "rat=2"), "did you mean 'rate'"),
        (("--set", "batch_size=0"), "batch_size '0': must be 1 or more"),
        (("--set", "rate=0.5"), "rate '0.5': must be 1 or more"),
        (("--objective", "gist", "--set", "guide=small"), "needs a corpus of pairs"),
    ):
        _, err = run(*check, *wrong, code=2)
        assert problem in err
    own.write_text(METHOD.replace("cosines.square()", "cosines.squared()"))
    assert "FAILED  one step: AttributeError in away.py" in run(*check, code=1)[0]


LINE = METHOD[: METHOD.index("cosines.square()")].count("\n") + 1
BROKEN = {
    "check_one_step": ('{"away":', '{"awya":', "the term 'away' has a weight but is missing"),
    "check_one_step twice": ("cosines.square()", "(cosines + __import__('random').random())",
                             "twice gives"),
    "check_one_step raises": ("cosines.square()", "cosines.squared()",
                              f"AttributeError in away.py, line {LINE}:"),
    "check_gradient": ("similarity(anchors", "similarity(anchors.detach()", "detached"),
    "check_resume": ('self.register_buffer("mean", torch.ones(dimension))',
                     "self.mean = torch.ones(dimension)", "store all state"),
    "check_two_processes": ("gather(anchors.detach())", "anchors.detach()", "half a batch each"),
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_small_base(tmp_path_factory.mktemp("base") / "small")


@pytest.mark.parametrize(
    "check", [pytest.param(c, marks=pytest.mark.slow) if "processes" in c else c for c in BROKEN]
)
def test_a_check_fails_where_it_should_and_says_why(check, own, base):
    before, after, message = BROKEN[check]
    assert METHOD.count(before) == 1
    own.write_text(METHOD.replace(before, after))
    trial = Trial(str(own), {}, base)
    if check == "check_two_processes":
        (result,) = method_checks.check_two_processes([trial])
    else:
        result = finding(getattr(method_checks, check.split()[0]), trial)
    assert result.passed is False
    assert message in result.detail


@pytest.mark.parametrize(
    "of", ["AdamW(p, lr=learning_rate, amsgrad=True)", "RMSprop(p, lr=learning_rate)"]
)
def test_a_run_with_an_optimizer_of_ones_own_resumes_to_the_same_bits(of, own, base, tmp_path):
    p = "p = [p for p in self.parameters() if p.requires_grad]"
    body = f"        {p}\n        return torch.optim.{of}\n"
    own.write_text(f"{METHOD}\n    def optimizer(self, *, learning_rate, weight_decay):\n{body}")

    def train(folder, stop=None, **options):
        def on_step(step, values):
            if step == stop and "loss" in values:
                os.kill(os.getpid(), signal.SIGINT)

        options |= {"base": base, "batch_size": 8, "max_steps": 4, "learning_rate": 1e-3}
        options |= {"evaluate": "none", "on_step": on_step}
        fit(str(own), method_checks.SENTENCES, output_dir=folder, **options)
        return (folder / "model.safetensors").read_bytes()

    assert finding(method_checks.check_resume, Trial(str(own), {}, base)).passed
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "m", stop=2)
    assert train(tmp_path / "m", resume=True) == train(tmp_path / "whole")


VIEW = """
class Backwards(View):
    level = "word"

    def __call__(self, sentence, random):
        return " ".join(sentence.split()[::-1])
"""


def test_a_view_of_ones_own_stands_in_the_same_file(own, base):
    text = METHOD.replace("    Weight,\n", "    Weight,\n    Identity,\n    View,\n")
    text = text.replace("class Away(", f"{VIEW}\n\nclass Away(")
    own.write_text(text + "        self.views = (Identity(), Backwards())\n")
    with Trial(str(own), {}, base).training() as (objective, batch):
        tokens = batch(0).columns
        for i in range(len(tokens[0])):
            assert tokens[1][i][1:-1].tolist() == tokens[0][i][1:-1].tolist()[::-1]
        assert objective(batch(0))["away"] > 0


def test_a_module_and_an_entry_point_name_it_too(own, monkeypatch):
    info = own.parent / "keep_away-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: keep-away\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nkeep_away = away:Away\n")
    monkeypatch.syspath_prepend(str(own.parent))
    assert registry.described("away:Away", {"rate": 4.0})["name"] == "away:Away"
    assert registry.find("away:Away").__name__ == "Away"
    assert registry.parameters("simcse+keep_away")["rate"].default is None
    assert registry.parameters("keep_away")["rate"].default == 9.0
    assert registry.summaries()["keep_away"] == "from keep-away"
    with pytest.raises(OptionError, match="did you mean 'keep_away'"):
        registry.find("keep_awy")


def test_a_subclass_has_the_parameters_of_its_base_and_is_kept_in_a_combination(tmp_path, bert):
    path = tmp_path / "twice.py"
    path.write_text(SUBCLASS)
    own, simcse = registry.parameters(str(path)), registry.parameters("simcse")
    assert own.keys() == {*simcse, "times"} and len(simcse) >= 17
    kind = registry.find(str(path))
    from contrasent.engine.parameters import parameters_of

    assert {k: p.default for k, p in parameters_of(kind).items()} == {
        k: p.default for k, p in own.items()
    }
    settings = Settings(pooling="cls")
    joined = prepare(bert, f"simcse_plus_plus+{path}", {"temperature": 0.1}, settings)
    assert type(joined.contrast).__name__ == "Doubled"
    assert (joined.contrast.temperature, joined.contrast.factor) == (0.1, 0.9)
    with pytest.raises(OptionError, match="masks 'fixed'"):
        registry.check(str(path), {"masks": "fixed", "view": "crop"})


@pytest.mark.parametrize(("text", "name", "message"), [
    (None, "gone.py", "cannot be read"), ("class A(:", "a.py", "line 1: not valid Python"),
    ("class A: pass", "a.py", "defines no Objective"),
    (METHOD + "class Far(Away): pass", "a.py", "defines 2 Objectives; choose one with a.py:Class"),
    (METHOD, "a.py:Awya", "has no Objective 'Awya'; choose one with a.py:Class; one of Away"),
    (METHOD.replace("= 9.0", ""), "a.py", "the parameter rate needs a type and a default"),
    (METHOD.replace("[float, ", "[list, "), "a.py", "the type of the parameter rate must be"),
    (METHOD.replace("import torch\n", "import trch\n"), "a.py", "cannot be imported (Module"),
    (METHOD.replace("rate:", "batch_size:"), "a.py", "has the name of a training setting"),
    (None, "nomodule:Away", "module 'nomodule' not found"),
    (None, "contrasent.objectives.simcse:SimCS", "has no Objective 'SimCS'; choose"),
])  # fmt: skip
def test_a_file_that_cannot_be_is_rejected_in_one_line(tmp_path, monkeypatch, text, name, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("a.py").write_text(text)
    with pytest.raises(OptionError) as caught:
        choose({}, name)
        registry.find(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_subclass_may_leave_out_parameters_and_the_rules_hold_for_what_it_passes(bert):
    class Mine(SimCSE):
        def __init__(self, encoder, *, temperature: float = 0.1):
            super().__init__(encoder, temperature=temperature)

    class Same(SimCSE):
        def __init__(self, encoder):
            super().__init__(encoder, view="repeat_words", masks="fixed")

    assert Mine(TorchEncoder.load(bert, pooling="cls")).contrast.temperature == 0.1
    with pytest.raises(OptionError, match="makes both views identical"):
        Same(TorchEncoder.load(bert, pooling="cls"))
