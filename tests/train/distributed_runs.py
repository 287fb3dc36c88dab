"""The same run in one process and in two that talk by gloo; started by ``test_distributed.py``.

``python distributed_runs.py BASE HOME`` prints JSON. The processes are forks of this one.
"""

import json
import os
import socket
import sys
from functools import partial

import torch

from contrasent import parallel
from contrasent.report import Report, Row
from contrasent.train import fit as module
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings
from kills import ended, fork, prepared
from tiny_models import made_sentences

SENTENCES = made_sentences()[:200]
# Every method and its options: tests/objectives/test_two_processes.py.
CASES = {
    "simcse": ("simcse", {}, SENTENCES, {}),
    "chunked": ("simcse", {}, SENTENCES, {"mini_batch_size": 5}),
    "dot": ("simcse", {"similarity": "dot", "temperature": 5.0}, SENTENCES, {}),
    "accumulated": ("simcse", {}, SENTENCES, {"gradient_accumulation_steps": 2}),
}


def train(base, folder, case, steps):
    """A run without dropout in float64; its losses, and the gradient of the last step."""
    name, parameters, rows, changes = CASES[case]
    settings = Settings(
        batch_size=16,
        max_steps=steps,
        dropout=0.0,
        learning_rate=1e-3,
        max_grad_norm=1e9,
        seed=3,
        pooling="mean",
        **changes,
    )
    learner = prepare(base, name, parameters, settings).double()
    module.fit(learner, rows, settings, output_dir=folder)
    lines = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    gradient = [p.grad.flatten() for _, p in sorted(learner.named_parameters())]
    return [line["loss"] for line in lines], torch.cat(gradient)


def choose(base, folder):
    """The outcome in this process of a run whose base is the best; only the main one evaluates."""
    values = iter([0.9, 0.1, 0.3])
    settings = Settings(batch_size=16, max_steps=4, eval_steps=2, pooling="mean")

    def evaluate(encode):
        return Report((Row("made", "dev", "spearman", "", next(values), 10),))

    learner = prepare(base, "simcse", {}, settings)
    run = module.fit(learner, SENTENCES, settings, output_dir=folder, evaluate=evaluate)
    return [run.improved, run.kept, run.base_score, run.score, run.best_step]


def rank(number, count, port, base, home):
    """One process of ``count``; writes what it found."""
    if count > 1:
        stated = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count}
        stated |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({key: str(value) for key, value in stated.items()})
    found = {}
    with parallel.processes():
        assert parallel.world() == count
        assert parallel.rank() == number
        assert parallel.is_main() == (number == 0)
        # Small talk between the processes.
        assert parallel.from_main({"rank": number}) == {"rank": 0}
        assert parallel.anywhere(number == count - 1)
        assert not parallel.anywhere(False)
        assert float(parallel.average(torch.tensor(float(number)))) == (count - 1) / 2
        for case in CASES:
            folder = home / f"{case} {count}"
            losses, gradient = train(base, folder, case, 5)
            found[case] = {"losses": losses, "gradient": gradient.tolist()}
        found["chosen"] = choose(base, home / f"chosen {count}")
    (home / f"{count}-{number}.json").write_text(json.dumps(found))


def several(count, base, home):
    """``count`` processes; their exit codes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    work = [partial(rank, number, count, port, base, home) for number in range(count)]
    return [ended(pid) for pid in [fork(one, ()) for one in work]]


def main():
    base, home = prepared()
    codes = {str(count): several(count, base, home) for count in (1, 2)}
    found = {path.stem: json.loads(path.read_text()) for path in home.glob("*.json")}
    sys.stdout.write(json.dumps({"codes": codes, "found": found}))


if __name__ == "__main__":
    main()
