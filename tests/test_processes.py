"""How threads wait: a busy machine's cores go to those that compute."""

import json
import os
import subprocess
import sys

import pytest

WAITING = """
import json, os, time
import contrasent, torch
torch.set_num_threads(2)
numbers = torch.zeros(1 << 17)  # enough for two threads
numbers.add_(1)
own, all_threads = time.thread_time(), time.process_time()
for _ in range(60):
    numbers.add_(1)
    until = time.thread_time() + 0.003
    while time.thread_time() < until:  # the other thread has nothing to do
        pass
own, all_threads = time.thread_time() - own, time.process_time() - all_threads
print(json.dumps([os.environ.get("GOMP_SPINCOUNT"), (all_threads - own) / own]))
"""


def output(code, environment):
    command = [sys.executable, "-c", code]
    return subprocess.check_output(command, env=environment, text=True, timeout=600)


def waiting(**environment):
    """GOMP_SPINCOUNT, and CPU time of a thread without work, for each second of the other's."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return json.loads(output(WAITING, inherited | environment))


def test_a_thread_that_waits_sleeps():
    spins, share = waiting()
    assert spins == "1000"
    assert share < 0.2


@pytest.mark.parametrize(
    "environment", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "20000"}]
)
def test_the_users_own_way_of_waiting_stands(environment):
    inherited = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    code = "import contrasent, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    found = output(code, inherited | environment).strip()
    assert found == environment.get("GOMP_SPINCOUNT", "None")


def test_onnx_runtimes_threads_sleep_too(tmp_path, monkeypatch):
    import onnxruntime

    from contrasent.model.runtime import open_session

    found, graph = [], tmp_path / "graph.onnx"
    graph.touch()
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *given, **_: found.extend(given))
    open_session("onnx", graph, "fp32", streams=1)
    options = found[1]
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
