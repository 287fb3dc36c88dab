"""``torchrun --nnodes 2`` on machines that share nothing but the network: two working folders."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
METHOD = '''
import os
import signal

from contrasent.objectives.esimcse import ESimCSE


class Queued(ESimCSE):
    """ESimCSE; a process named in the environment is killed in its sixth step."""

    def forward(self, batch):
        if batch.step == 5 and os.environ.get("KILL", "") == os.environ.get("RANK"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(batch)
'''
SET = {
    "batch_size": 8,
    "max_seq_length": 64,
    "max_steps": 6,
    "save_steps": 3,
    "learning_rate": 1e-3,
    "dropout": 0.2,
    "queue_size": 12,
}


@pytest.fixture(scope="module")
def machines(bert, sentences, tmp_path_factory):
    """Two folders, each with a base, a text and a method of its own."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder in folders:
        shutil.copytree(bert, folder / "base")
        (folder / "texts.txt").write_text("\n".join(sentences[:120]) + "\n")
        (folder / "queued.py").write_text(METHOD)
    return folders


def command(target, *more):
    given = [part for name, value in SET.items() for part in ("--set", f"{name}={value}")]
    given += ["--base", "base", "--objective", "queued.py", "--evaluate", "none", *more]
    return ["-m", "contrasent", "train", "texts.txt", "-o", target, *given]


def trained(machines, target, *more, kill="none"):
    """Both machines' torchrun: exit codes and what the processes wrote to standard error."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    start = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    start += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port]
    runs = [subprocess.Popen(
        [*start, "--node-rank", str(number), *command(target, *more)], cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "KILL": kill}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    ) for number, folder in enumerate(machines)]  # fmt: skip
    errors = [run.communicate(timeout=500)[1] for run in runs]
    return [run.returncode for run in runs], errors


def own_lines(text):
    """The output of contrasent, without torchrun's own account of processes that failed."""
    return [line for line in text.splitlines() if line.startswith("contrasent: ")]


@pytest.fixture(scope="module")
def whole(machines):
    """A run that nobody kills."""
    codes, errors = trained(machines, "whole")
    assert codes == [0, 0], errors
    return machines[0] / "whole"


def test_one_machine_writes_and_the_other_is_left_clean(machines, whole):
    assert (whole / "model.safetensors").is_file()
    assert not (whole / "run" / "tokens").exists()
    left = sorted(path.name for path in machines[1].iterdir())
    assert left == ["base", "queued.py", "texts.txt"]


def test_the_main_process_is_killed_and_resume_is_exact(machines, whole, run):
    """The other one says so and ends."""
    one, target = machines[0], "second"
    codes, errors = trained(machines, target, kill="0")
    assert 0 not in codes
    assert own_lines(errors[0]) == [] and "SIGKILL" in errors[0]
    (line,) = own_lines(errors[1])
    assert "process 1 of 2: another process has ended" in line
    assert not (one / target / "model.safetensors").exists()
    os.chdir(one)
    _, error = run(*command(target, "--resume")[2:], code=2)
    assert "the run there has processes 2, now it is 1; use the same, or --overwrite" in error
    assert len(error.splitlines()) == 1
    codes, errors = trained(machines, target, "--resume")
    assert codes == [0, 0], errors
    for name in ("model.safetensors", "run/log.jsonl"):
        assert (one / target / name).read_bytes() == (whole / name).read_bytes()


def test_machines_with_different_texts_are_rejected(machines):
    texts = machines[1] / "texts.txt"
    before = texts.read_text()
    texts.write_text(before + "one more sentence\n")
    try:
        codes, errors = trained(machines, "other")
    finally:
        texts.write_text(before)
    assert 0 not in codes
    (line,) = own_lines(errors[1])
    assert "process 1 differs from process 0 in corpus; every machine needs the same" in line
    assert "another process has ended" in own_lines(errors[0])[0]
