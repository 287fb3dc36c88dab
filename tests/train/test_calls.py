"""From a corpus line to the loss: ARCHITECTURE.md lists the calls, and these are they."""

import re
import sys
from pathlib import Path

import torch

import contrasent
from contrasent import parallel
from contrasent.text.cache import tokenized
from contrasent.text.corpus import open_corpus
from contrasent.train.monitor import Monitor
from contrasent.train.prepare import collator, configure, prepare
from contrasent.train.settings import Settings
from contrasent.train.step import StepRunner

HOME = Path(contrasent.__file__).parent
PAGE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
WAY = {
    ("text/tokens.py", "Tokenizer.__call__"), ("text/cache.py", "TokenCache.tokens"),
    ("encoder/encoder.py", "TorchEncoder.forward"), ("encoder/heads.py", "Dense.forward"),
    ("losses/contrastive.py", "info_nce"), ("engine/objective.py", "Objective.loss"),
}  # fmt: skip
"""Where text becomes tokens, tokens become vectors, and vectors a number."""


def function_of(frame):
    """File and qualified name of a function of ours, without those defined inside it; or None."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(HOME):
        return None
    name = re.sub(r"\.<locals>.*", "", frame.f_code.co_qualname)
    return path.relative_to(HOME).as_posix(), name


def calls_of(work):
    """The functions under which those of ``WAY`` are called, and they, in order."""
    found, reached = [], set()

    def follow(frame, event, argument):
        if event != "call" or function_of(frame) not in WAY:
            return
        reached.add(function_of(frame))
        stack = []
        while frame is not None:
            stack.append(function_of(frame))
            frame = frame.f_back
        found.extend(f for f in stack[::-1] if f is not None and f not in found)

    sys.setprofile(follow)
    try:
        work()
    finally:
        sys.setprofile(None)
    assert reached == WAY
    return found


def test_the_calls_are_those_of_the_page(bert, sentences, tmp_path):
    settings = Settings(batch_size=8, max_steps=1, pooling="cls")
    objective = prepare(bert, "simcse", {}, settings).train()
    configure(objective, settings)
    corpus = open_corpus(sentences[:40])

    def line_to_loss():
        tokenized(corpus, objective.encoder.tokenizer, tmp_path / "tokens", lower=False)
        runner.take(0)

    batches = collator(objective, corpus, settings, tmp_path / "run", None)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    module = parallel.wrap(objective)
    runner = StepRunner(*(objective, module, batches, optimizer, scaler, settings, 1, Monitor()))
    found = calls_of(line_to_loss)
    stated = PAGE.split("## The road of a training line")[1].split("```text\n")[1].split("```")[0]
    listed = [tuple(line.split()[:2]) for line in stated.strip().splitlines()]
    assert found == listed
    assert len(listed) <= 20
    assert len({file for file, _ in listed}) <= 10


def test_the_concepts_are_twelve_at_most_and_stand_where_the_page_says():
    stated = PAGE.split("## Twelve concepts")[1].split("##")[0]
    concepts = re.findall(r"^\| `(\w+)` \| `([\w/.]+)` \|", stated, re.MULTILINE)
    assert 8 <= len(concepts) <= 12
    for name, file in concepts:
        text = (HOME / file).read_text("utf-8")
        assert re.search(rf"^(class {name}\b|{name} = )", text, re.MULTILINE), name
