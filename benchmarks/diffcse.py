"""Whether DiffCSE's term acts: a sentence's own vector against another's, over five seeds.

    python -m benchmarks.diffcse --base contrasent-small --corpus FILE --output results/
                                 [--phase0] [--arms none own permuted] [--seeds 0 1 2 3 4]
                                 [--jobs 1] [--steps 1000] [--warmup 1000]

The discriminator has a rate of its own and finds sampled edits of masked places. Phase 0 trains it
alone, the encoder frozen, given each sentence's own vector, another sentence's of the batch or
zeros. The gate: with its own the detection loss of the last 50 steps is at least 5 % below that
with another's. If it is not, that is the result. Phase 1 trains the encoder, after a warm-up of the
discriminator that is phase 0 again: no term, own vectors, those of others. The weight is chosen by
STS-B's development split with a seed outside the five; the result is own minus permuted in the mean
of the seven STS test sets, paired by seeds, and then recall@1 of DiffCSE's Table 10.

Each run has a process and a JSON file of its own below the output; a run whose file is there is not
done again, and one that was stopped goes on from its last checkpoint.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from contrasent.datasets.official import STS_TASKS, data_folder
from contrasent.files import read_object, write_json
from contrasent.model.golden import digest
from contrasent.model.pretrained import resolve
from contrasent.stats.seeds import paired_t

ARMS = ("none", "own", "permuted")
CONDITIONS = ("own", "permuted", "zero")
WEIGHTS = (0.005, 0.05, 0.5)
FROZEN_WEIGHT = 0.05  # of phase 0, where it is a scale that Adam divides out
CHOOSING = 5  # the seed of phase 0 and of the choice of the weight
RATE, DISCRIMINATOR_RATE, BATCH = 1e-4, 1e-3, 64
LAST = 50  # steps whose losses are averaged
GATE = 0.95
MEASURES = (*STS_TASKS, "STS7", "recall@1", "dev")
CONTRASTS = (("own", "permuted"), ("own", "none"), ("permuted", "none"))

Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A run; ``warmup`` steps of the discriminator alone come before ``steps`` of the encoder."""

    arm: str
    seed: int
    weight: float
    steps: int
    warmup: int

    @property
    def name(self) -> str:
        """Of its file."""
        if not self.steps:
            return f"phase0-{self.arm}"
        return (
            f"{self.arm}-{self.weight:g}-seed{self.seed}"
            if self.weight
            else f"none-seed{self.seed}"
        )


def told(job: Job, given: argparse.Namespace) -> Result:
    """All that determines a run's numbers."""
    base = resolve(given.base)
    return {
        "job": asdict(job),
        "base": {"name": given.base, "sha256": digest(base / "model.safetensors")},
        "corpus": {"name": given.corpus.name, "sha256": digest(given.corpus)},
        "precision": given.precision,
        "pooling": given.pooling,
    }


def work(job: Job, given: argparse.Namespace) -> None:
    """Carry out a run and write its file."""
    import torch

    from contrasent.text.corpus import open_corpus
    from contrasent.train.fit import fit_plan
    from contrasent.train.plan import Plan
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings

    begun, result = time.monotonic(), told(job, given)
    settings = Settings(
        max_steps=job.steps + job.warmup,
        learning_rate=RATE,
        batch_size=BATCH,
        max_seq_length=32,
        seed=job.seed,
        pooling=given.pooling,
        precision=given.precision,
    )
    parameters: dict[str, Any] = {"projector": "tanh", "difference_weight": job.weight}
    if job.weight:
        parameters |= {
            "generator": given.base,
            "generator_positions": "masked",
            "generator_draw": "sample",
            "condition_vector": job.arm,
            "discriminator_learning_rate": DISCRIMINATOR_RATE,
            "discriminator_warmup_steps": job.warmup,
        }
    losses: list[float] = []

    def follow(step: int, values: dict[str, float]) -> None:
        if "difference" in values:
            losses.append(values["difference"])

    folder = given.output / "runs" / job.name
    # Phase 0 needs the losses of all its last steps, so it is begun again.
    begun_before = any(folder.glob("*"))
    plan = Plan(
        objective=prepare(resolve(given.base), "diffcse", parameters, settings),
        corpus=open_corpus(given.corpus),
        settings=settings,
        base=None,
        evaluate=None,
        keep="last",
    )
    run = fit_plan(
        plan,
        folder,
        tokens=given.output / "tokens",
        on_step=follow,
        resume=begun_before and job.steps > 0,
        overwrite=not job.steps,
    )
    lines = [line for line in run.log if "difference" in line]
    result |= {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "detection_losses": [[line["step"], round(line["difference"], 5)] for line in lines],
        "shares": run.shares,
        "sentences_per_second": run.sentences_per_second,
    }
    if job.steps:
        result["scores"] = measured(run.encoder)
    else:
        result["detection_loss"] = mean(losses[-LAST:])
    result["seconds"] = round(time.monotonic() - begun, 1)
    write_json(given.output / f"{job.name}.json", result)
    shutil.rmtree(folder)


def measured(encoder: Any) -> dict[str, float]:
    """Spearman x 100 of the seven sets, their mean, STS-B dev; recall@1 x 100 of Table 10."""
    from contrasent.evaluate.retrieval import stsb_retrieval
    from contrasent.evaluate.sts import sts

    rows = {r.task: r.value for r in sts(encoder.encode, resamples=0) if r.metric == "spearman"}
    dev = sts(encoder.encode, tasks=("STSB",), split="dev", resamples=0)
    found = stsb_retrieval(encoder.encode, resamples=0)
    rows |= {
        "dev": dev.one(metric="spearman").value,
        "recall@1": found.one(metric="recall@1").value,
    }
    return {name: round(100 * rows[name], 4) for name in MEASURES}


class Workers:
    """Runs jobs in processes of their own, several at once; what is done already is read."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.pool = ThreadPoolExecutor(given.jobs)
        self.running: list[subprocess.Popen[bytes]] = []
        self.stopped = threading.Event()

    def start(self, jobs: Sequence[Job]) -> list[Future[Result]]:
        """Begin jobs as soon as there is room."""
        return [self.pool.submit(self._result, job) for job in jobs]

    def stop(self) -> None:
        """End what runs; it keeps a checkpoint."""
        self.stopped.set()
        for number in (signal.SIGTERM, signal.SIGINT):  # a second one would leave some running
            signal.signal(number, signal.SIG_IGN)
        for process in list(self.running):
            process.terminate()
        self.pool.shutdown(cancel_futures=True)

    def _result(self, job: Job) -> Result:
        path = self.given.output / f"{job.name}.json"
        if not path.is_file():
            self._run(job)
        result = read_object(path)
        for name, value in told(job, self.given).items():
            if result[name] != value:
                raise SystemExit(
                    f"{path}: its {name} is {result[name]}, and this command's {value}; choose "
                    "another --output"
                )
        return result

    def _run(self, job: Job) -> None:
        if self.stopped.is_set():
            raise SystemExit(f"{job.name}: not begun")
        log = self.given.output / "logs" / f"{job.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.diffcse", *sys.argv[1:]]
        command += ["--job", json.dumps(asdict(job))]
        begun = time.monotonic()
        print(f"{job.name}: begins", flush=True)
        with log.open("wb") as stream:
            environment = {**os.environ, "OMP_NUM_THREADS": str(self.given.threads)}
            process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
            self.running.append(process)
            if self.stopped.is_set():
                process.terminate()
            code = process.wait()
            self.running.remove(process)
        if code and self.stopped.is_set():
            raise SystemExit(f"{job.name}: stopped")
        if code:
            end = log.read_text("utf-8", errors="replace")[-1500:]
            raise SystemExit(f"{job.name} failed; the end of {log}:\n{end}")
        print(f"{job.name}: {time.monotonic() - begun:.0f} s", flush=True)


def phase0(workers: Workers, given: argparse.Namespace) -> Result:
    """Losses of the discriminator by what it is given, and whether the gate is passed."""
    jobs = [Job(arm, CHOOSING, FROZEN_WEIGHT, 0, given.steps) for arm in CONDITIONS]
    results = [future.result() for future in workers.start(jobs)]
    losses = dict(zip(CONDITIONS, (r["detection_loss"] for r in results), strict=True))
    ratio = losses["own"] / losses["permuted"]
    for arm, loss in losses.items():
        print(
            f"phase 0, {arm}: detection loss {loss:.4f} in the last {LAST} of {given.steps} steps"
        )
    passed = ratio <= GATE
    print(f"own / permuted = {ratio:.4f}, gate at most {GATE}: {'passed' if passed else 'FAILED'}")
    return {"losses": losses, "ratio": ratio, "gate": GATE, "passed": passed}


def phase1(workers: Workers, given: argparse.Namespace) -> Result:
    """Scores of all arms and seeds, the weight that was chosen, and the differences."""

    def job(arm: str, seed: int, weight: float) -> Job:
        return Job(arm, seed, weight, given.steps, given.warmup if weight else 0)

    choices = workers.start([job("own", CHOOSING, w) for w in given.weights])
    plain = [(("none", s), job("none", s, 0.0)) for s in given.seeds if "none" in given.arms]
    begun = dict(zip(dict(plain), workers.start([j for _, j in plain]), strict=True))
    development = {
        w: f.result()["scores"]["dev"] for w, f in zip(given.weights, choices, strict=True)
    }
    weight = max(development, key=lambda w: development[w])
    print(f"weight {weight:g} of STS-B dev {development}, seed {CHOOSING}", flush=True)
    keys = [(arm, seed) for seed in given.seeds for arm in given.arms if arm != "none"]
    begun |= dict(zip(keys, workers.start([job(*key, weight) for key in keys]), strict=True))
    scores: dict[str, list[dict[str, float]]] = {
        arm: [begun[arm, seed].result()["scores"] for seed in given.seeds] for arm in given.arms
    }
    print("arm".ljust(10), *(name.rjust(8) for name in MEASURES))
    for arm, rows in scores.items():
        values = (mean(row[name] for row in rows) for name in MEASURES)
        print(arm.ljust(10), *(f"{value:8.2f}" for value in values))
    return {
        "development": development,
        "weight": weight,
        "seeds": given.seeds,
        "scores": scores,
        "differences": differences(scores),
    }


def differences(scores: dict[str, list[dict[str, float]]]) -> Result:
    """Of each contrast and measure the mean difference, its 95 % interval over seeds, and p."""
    found: Result = {}
    for one, other in CONTRASTS:
        if one not in scores or other not in scores or len(scores[one]) < 2:
            continue
        pairs = list(zip(scores[one], scores[other], strict=True))
        own = found[f"{one} minus {other}"] = dict[str, Any]()
        for name in MEASURES:
            gap = paired_t([a[name] - b[name] for a, b in pairs])
            numbers = {"mean": gap.mean, "low": gap.low, "high": gap.high, "p": gap.p}
            own[name] = {key: round(value, 4) for key, value in numbers.items()}
        for name in ("STS7", "recall@1"):
            gap = own[name]
            print(
                f"{one} minus {other}, {name}: {gap['mean']:+.2f} [{gap['low']:+.2f}, "
                f"{gap['high']:+.2f}], p = {gap['p']:.3f}, {len(pairs)} seeds"
            )
    return found


def main() -> None:
    """Do both phases, or one run of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True, help="with a masked-LM head, also the generator")
    parser.add_argument("--corpus", type=Path, required=True, help="sentences without labels")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--phase0", action="store_true", help="phase 0 alone")
    parser.add_argument("--ignore-gate", action="store_true", help="phase 1 whatever phase 0 says")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--weights", type=float, nargs="+", default=list(WEIGHTS))
    parser.add_argument("--steps", type=int, default=1000, help="of phase 0, and of phase 1")
    parser.add_argument("--warmup", type=int, help="of phase 1; those of phase 0 if not given")
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--threads", type=int, default=2, help="of each run")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.warmup = given.steps if given.warmup is None else given.warmup
    if given.job:
        work(Job(**json.loads(given.job)), given)
        return
    if data_folder() is None:
        parser.error("CONTRASENT_DATA must name the folder of the STS sets")
    if not given.corpus.is_file():
        parser.error(f"--corpus {given.corpus}: no such file")
    if CHOOSING in given.seeds:
        parser.error(f"--seeds: {CHOOSING} chooses the weight, so it is none of them")
    given.output.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    workers = Workers(given)
    try:
        summary: Result = {"phase0": phase0(workers, given)}
        write_json(given.output / "summary.json", summary)
        if given.phase0:
            return
        if not (summary["phase0"]["passed"] or given.ignore_gate):
            print("That is the result; --ignore-gate goes on")
            return
        summary["phase1"] = phase1(workers, given)
        write_json(given.output / "summary.json", summary)
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")
    finally:
        workers.stop()


if __name__ == "__main__":
    main()
