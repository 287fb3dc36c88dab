"""Does training help? Several seeds of each method from each base, STS before and after.

    CONTRASENT_DATA=... python -m benchmarks.proof --out runs/proof --lab FOLDER

Every run is a ``contrasent train``; a run that is finished is not repeated, so the script may be
stopped at any time. ``--table`` prints the Markdown of docs/results.md from what is there.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
COMMON = ("precision=bf16", "batch=64", "steps=100", "checkpoint_every=1000")
SENTENCES = 100_000


@dataclass(frozen=True)
class Arm:
    """One method from one base."""

    name: str
    base: str
    objective: str
    corpus: str
    settings: tuple[str, ...]


def arms(lab: str) -> list[Arm]:
    """What is compared: training from two bases, and the methods with one another."""
    mini = "all-MiniLM-L6-v2"
    rate = "lr=1e-4"
    first = [
        Arm("lab-unsup", lab, "simcse", "wiki.txt", (rate,)),
        Arm("lab-sup", lab, "simcse_supervised", "nli.csv", (rate, "head=tanh")),
        Arm("minilm-unsup", mini, "simcse", "wiki.txt", ("lr=1e-5",)),
        Arm("minilm-sup", mini, "simcse_supervised", "nli.csv", ("lr=2e-5",)),
    ]
    generator = f"generator={lab}"
    methods = [
        ("esimcse", ()),
        ("simcse_plus_plus", ()),
        ("diffcse", (generator,)),
        ("esimcse+simcse_plus_plus", ()),
        ("diffcse+simcse_plus_plus", (generator,)),
    ]
    return first + [
        Arm(f"lab-{name}", lab, name, "wiki.txt", (rate, *more)) for name, more in methods
    ]


def prepare(out: Path, data: Path) -> None:
    """Write the two corpora: the first Wikipedia sentences, and the NLI triples."""
    out.mkdir(parents=True, exist_ok=True)
    wiki = out / "wiki.txt"
    if not wiki.is_file():
        with gzip.open(data / "wiki" / "enwiki_sentences_1m.txt.gz", "rt", encoding="utf-8") as s:
            wiki.write_text("".join(islice(s, SENTENCES)), "utf-8")
    nli = out / "nli.csv"
    if not nli.is_file():
        nli.write_bytes((data / "nli" / "nli_triples.csv").read_bytes())


def measure(folder: str, target: Path, *, pooler: str | None = None) -> None:
    """STS of a model, all seven sets, SentEval's form, into a JSON file."""
    if target.is_file():
        return
    from contrasent.evaluate.sts import sts
    from contrasent.files import write_json
    from contrasent.model.encoder import Encoder
    from contrasent.model.pretrained import resolve

    encoder = Encoder.load(resolve(folder), pooler=pooler)
    write_json(target, sts(encoder.encode).to_json())


def run(arm: Arm, seed: int, out: Path) -> None:
    """Train one arm with one seed and measure it."""
    import shutil

    folder = out / f"{arm.name}-{seed}"
    scores = out / f"{arm.name}-{seed}.json"
    if scores.is_file():
        return
    settings = [part for s in (*arm.settings, *COMMON, f"seed={seed}") for part in ("--set", s)]
    command = ["train", str(out / arm.corpus), "-o", str(folder), "--base", arm.base]
    command += ["--objective", arm.objective, "--evaluate", "none", "--resume", *settings]
    from contrasent.cli.app import app

    app(command, standalone_mode=False)
    measure(str(folder), scores)
    record = json.loads((folder / "run" / "result.json").read_text())
    (out / f"{arm.name}-{seed}.run.json").write_text(json.dumps({"arm": arm.name, **record}))
    shutil.rmtree(folder)


def cells(path: Path) -> list[Any]:
    """The seven rows of a stored report, Spearman, "all"."""
    from contrasent.report import Report

    report = Report.from_json(json.loads(path.read_text()))
    return [report.one(task=t, metric="spearman", aggregate="all") for t in TASKS]


def average(path: Path) -> float:
    """Mean of the seven values of a stored report, times 100."""
    return sum(100 * row.value for row in cells(path)) / len(TASKS)


def spread(values: list[float]) -> str:
    """Mean and the half-width of its 95 % t interval over seeds."""
    from scipy.stats import t

    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.2f} ± {half:.2f}"


def table(out: Path, lab: str) -> str:
    """Markdown: every model's seven sets with their intervals, then averages over seeds."""
    lines = ["| model | seed | " + " | ".join(TASKS) + " | average |", "|---" * 10 + "|"]
    found = {p.stem: [p] for p in sorted(out.glob("base-*.json"))}
    for arm in arms(lab):
        found[arm.name] = [p for i in range(9) if (p := out / f"{arm.name}-{i}.json").is_file()]
    for name, paths in found.items():
        for path in paths:
            shown = [
                f"{100 * r.value:.1f} ({100 * r.low:.1f}-{100 * r.high:.1f})" for r in cells(path)
            ]
            seed = "" if name.startswith("base-") else path.stem.rsplit("-", 1)[1]
            lines.append(f"| {name} | {seed} | {' | '.join(shown)} | {average(path):.2f} |")
    lines += ["", "| model | seeds | average | minus lab-unsup, same seeds |", "|---" * 4 + "|"]
    plain = {p.stem.rsplit("-", 1)[1]: average(p) for p in found["lab-unsup"]}
    for name, paths in found.items():
        if name.startswith("base-") or not paths:
            continue
        scores = {p.stem.rsplit("-", 1)[1]: average(p) for p in paths}
        gaps = [v - plain[seed] for seed, v in scores.items() if seed in plain]
        against = spread(gaps) if name.startswith("lab-") and name != "lab-unsup" else ""
        mean = spread(list(scores.values()))
        lines.append(f"| {name} | {len(paths)} | {mean} | {against} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lab", required=True, help="folder of a small masked language model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="names of arms; all if not given")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(table(options.out, options.lab))
        return
    data = os.environ.get("CONTRASENT_DATA")
    if not data:
        sys.exit("set CONTRASENT_DATA to the folder of the data sets")
    prepare(options.out, Path(data))
    for pooler in ("cls", "mean", "embeddings_last"):
        measure(options.lab, options.out / f"base-lab-{pooler}.json", pooler=pooler)
    measure("all-MiniLM-L6-v2", options.out / "base-minilm.json")
    for seed in range(options.seeds):
        for arm in arms(options.lab):
            if options.only and arm.name not in options.only:
                continue
            run(arm, seed, options.out)


if __name__ == "__main__":
    main()
