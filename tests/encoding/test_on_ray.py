"""Shards on a Ray cluster of two nodes: those of this process, whatever dies on the way."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import openers
import pytest
from openers import Numbers, run

from contrasent.encoding import job as jobs
from contrasent.encoding.engines import Local, OnRay, Watch
from contrasent.encoding.inputs import plan
from contrasent.encoding.job import Job, begin, gather
from contrasent.errors import UserError

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'contrasent[ray]'")
pytestmark = [
    pytest.mark.slow,
    # What Ray leaves open, and what it announces, is not ours.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TEXTS = [f"text {number * number % 397}" for number in range(120)]
HERE = Path(openers.__file__).parent
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def cluster():
    """A head and a node, a CPU each."""
    from ray.cluster_utils import Cluster

    source = str(HERE.parents[1] / "src")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([source, str(HERE)]))
        try:
            made = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
        except Exception as error:  # it gives its own processes 15 seconds to start
            pytest.skip(f"Ray could not start in time on this machine: {error}")
        made.node = made.add_node(**NODE)
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def source(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return str(tmp_path / "texts.txt")


made = partial(openers.made, size=10)


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


@pytest.fixture
def wanted(tmp_path, source):
    """The shards as this process makes them."""
    jobs.opened.cache_clear()
    run(job := made(source, tmp_path / "local"), Local())
    gather(job.output)
    assert len(content(tmp_path / "local")) == 12
    return content(tmp_path / "local")


def test_the_shards_are_those_of_the_local_engine(cluster, tmp_path, source, wanted):
    opener = Numbers(home=str(tmp_path))
    assert run(made(source, tmp_path / "v", opener), OnRay(2)) == list(range(12))
    assert content(tmp_path / "v") == wanted
    calls = (tmp_path / "log").read_text().splitlines()
    assert len(calls) == 12
    assert len({call.split()[0] for call in calls}) <= 2  # a process encodes many shards


def test_an_encoder_gives_the_same_bits(cluster, tmp_path, bert, sentences):
    from contrasent.cli.encode import OpenModel
    from contrasent.cli.options import Loading

    (tmp_path / "texts.txt").write_text("\n".join(sentences[:60]) + "\n")
    opener = OpenModel(str(bert), Loading(pooling="mean", runtime="numpy"), threads=1)
    here = opener()
    planned = plan(str(tmp_path / "texts.txt"), shard_rows=20)
    for name, engine in (("local", Local()), ("ray", OnRay(2))):
        job = Job(str(tmp_path / name), planned, opener, 32, "float32", False, here.settings)
        run(job, engine)
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    assert len(content(tmp_path / "ray")) == 3


def test_a_worker_that_dies_costs_its_shard_once(cluster, tmp_path, source, wanted):
    opener = Numbers(TEXTS[55], "kill", str(tmp_path))
    run(made(source, tmp_path / "v", opener), OnRay(2))
    assert (tmp_path / "happened").exists()
    assert content(tmp_path / "v") == wanted
    calls = [call.split(" ", 1)[1] for call in (tmp_path / "log").read_text().splitlines()]
    assert len(calls) == 13
    assert len(set(calls)) == len({TEXTS[n] for n in range(0, 120, 10)})


def test_a_shard_that_always_kills_its_worker_ends_the_run(cluster, tmp_path, source):
    job = made(source, tmp_path / "v", Numbers(TEXTS[5], "always", str(tmp_path)), size=60)
    begin(job)
    with pytest.raises(UserError, match="shard 0: its worker died 4 times"):
        list(OnRay(1).run(job, [0], lambda rows: None))


def test_nobody_waits_for_ever(cluster, tmp_path, source):
    job = made(source, tmp_path / "v")
    begin(job)

    def refused(engine):
        with pytest.raises(UserError) as caught:
            list(engine.run(job, [0, 1], lambda rows: None))
        return str(caught.value)

    said = refused(OnRay(2, threads=64, patience=3))
    assert "2 shards did not start: no node has 64 CPUs and 0 GPUs free per worker" in said
    assert "--worker-cpus" in said
    hold = ray.remote(num_cpus=1)(lambda: time.sleep(1000))
    others = [hold.remote() for _ in range(2)]
    while ray.available_resources().get("CPU", 0):
        time.sleep(0.1)
    assert "2 shards did not start: no node has 1 CPUs" in refused(OnRay(2, patience=3))
    for other in others:
        ray.cancel(other, force=True)


@pytest.mark.parametrize("kind", ["RaySystemError", "LocalRayletDiedError"])
def test_an_error_of_ray_itself_is_one_line(cluster, tmp_path, source, monkeypatch, kind):
    def broken(*given, **options):
        raise {"RaySystemError": ray.exceptions.RaySystemError("gone"),
               "LocalRayletDiedError": ray.exceptions.LocalRayletDiedError()}[kind]  # fmt: skip

    monkeypatch.setattr(ray, "wait", broken)
    job = made(source, tmp_path / "v")
    with pytest.raises(UserError, match=r"^Ray crashed \(.*without --overwrite, to continue$"):
        list(OnRay(1).run(job, begin(job), lambda rows: None))


DRIVER = """
import sys, ray
sys.path.insert(0, {here!r})
from openers import Numbers, made, run
from contrasent.encoding.engines import OnRay
ray.init(address={address!r}, log_to_driver=False, logging_level="error")
run(made({source!r}, {output!r}, Numbers(home={home!r}, hold=True), size=10), OnRay(2))
"""


def test_a_driver_that_is_killed_costs_what_was_running(cluster, tmp_path, source, wanted):
    output = tmp_path / "v"
    program = DRIVER.format(
        here=str(HERE),
        address=cluster.address,
        source=source,
        output=str(output),
        home=str(tmp_path),
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    while len(content(output)) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
    assert 3 <= len(before) < 12
    missing = run(made(source, output), OnRay(2))
    assert len(missing) <= 12 - len(before)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert content(output) == wanted


def test_a_node_that_is_killed_costs_its_shards_once(cluster, tmp_path, source, wanted):
    output, killed = tmp_path / "v", []
    job = made(source, output, Numbers(home=str(tmp_path), hold=True))
    missing, done = begin(job), []
    for one in OnRay(2).run(job, missing, lambda rows: None):
        done.append(one.shard)
        if not killed:  # both nodes are at work, or no shard would have ended
            cluster.remove_node(cluster.node, allow_graceful=False)  # by SIGKILL
            killed.append(one.shard)
            (tmp_path / "go").touch()
    assert sorted(done) == missing
    gather(str(output))
    assert content(output) == wanted


class Still:
    """A cluster in which nothing happens, and a clock that can be set."""

    def __init__(self):
        self.now, self.board = 0.0, ({}, 0)
        self.read = self
        self.exceptions = ray.exceptions

    def remote(self):
        return self.board

    def get(self, found, timeout):
        return found


def test_the_reason_of_a_silence_is_what_is_known():
    still, rows = Still(), []
    watch = Watch(OnRay(2, patience=60), still, still, rows.append, lambda: still.now)
    watch.look([3, 4], heard=False)
    still.now, still.board = 59.0, ({3: 1}, 0)
    watch.look([3, 4], heard=False)
    still.now, still.board = 118.0, ({3: 1, 4: 1}, 4096)
    watch.look([3, 4], heard=False)
    assert sum(rows) == 4096
    still.now = 179.0
    with pytest.raises(UserError, match="for 61 s, and 0 shards did not start"):
        watch.look([3, 4], heard=False)
    watch.look([3, 4], heard=True)
    still.now, still.board = 180.0, ({3: 6}, 4096)
    with pytest.raises(UserError, match="shard 3 was started 6 times"):
        watch.look([3, 4], heard=False)
