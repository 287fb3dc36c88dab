"""Measure a pre-trained base by contrast, and pack it as an installable package of data.

    python -m benchmarks.base measure my-bert wiki.txt --json base.json
    python -m benchmarks.base pack my-bert bases/small --measured base.json

``measure`` gives the mean of the seven STS sets for [CLS], the average and the first-last average,
and after 1,000 steps of unsupervised SimCSE at several rates, each with its development score. A
run that is stopped goes on with the same command. ``pack`` writes weights in float16, the
tokenizer and a model card.
"""

import argparse
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from contrasent.datasets.official import STS_TASKS
from contrasent.encoder.encoder import Encoder
from contrasent.evaluate.sts import sts
from contrasent.files import read_object, write_json, write_object, write_text
from contrasent.report import Report
from contrasent.text.corpus import open_corpus
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings

POOLERS = ("cls", "mean", "first_last")
RATES = (1e-5, 3e-5, 1e-4)
GOAL = 5.0  # points of the seven sets that contrast should gain
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def seven(report: Report) -> dict[str, float]:
    """Spearman x 100 of each of the seven sets, and their mean."""
    rows = {row.task: 100 * row.value for row in report.rows if row.metric == "spearman"}
    return {task: round(rows[task], 2) for task in (*STS_TASKS, "STS7")}


def measured(encoder: Encoder) -> dict[str, float]:
    """The scores of an encoder."""
    return seven(sts(encoder.encode, resamples=0))


def development(encoder: Encoder) -> float:
    """Spearman x 100 on the development split of STS-B, which chooses the rate."""
    report = sts(encoder.encode, tasks=("STSB",), split="dev", resamples=0)
    return next(100 * row.value for row in report.rows if row.metric == "spearman")


def measure(
    base: Path,
    corpus: str,
    target: Path,
    rates: list[float],
    steps: int,
    seeds: list[int],
    poolers: list[Any],
) -> dict[str, Any]:
    """Scores of a base before and after contrast; what is measured already is kept."""
    found: dict[str, Any] = json.loads(target.read_text("utf-8")) if target.is_file() else {}
    before: dict[str, Any] = found.setdefault("before", {})
    after: dict[str, Any] = found.setdefault("simcse", {})
    for pooler in POOLERS:
        if pooler not in before:
            before[pooler] = measured(Encoder.load(base, pooler=pooler))
            write_json(target, found)
            print(f"{pooler}: {before[pooler]['STS7']:.2f}", flush=True)
    texts = open_corpus(corpus)
    count = sum(1 for _ in texts)
    for rate, pooler, seed in product(rates, poolers, seeds):
        name = f"{pooler}, lr {rate:g}, {steps} steps, seed {seed}"
        if name in after:
            continue
        settings = Settings(
            steps=steps,
            lr=rate,
            seed=seed,
            batch=64,
            max_tokens=32,
            pooler=pooler,
            precision="bf16",
        )
        drawn = np.random.default_rng(seed).permutation(count)
        rows = np.sort(drawn[: steps * settings.batch])
        folder = target.parent / f"{target.stem}-{pooler}-{rate:g}-{seed}"
        objective = prepare(base, "simcse", {}, settings)
        run = fit(objective, texts, settings, folder=folder, keep="last", rows=rows,
                      resume=folder.is_dir() and any(folder.iterdir()))  # fmt: skip
        trained = Encoder.load(run.folder)
        after[name] = {**measured(trained), "dev": round(development(trained), 2)}
        write_json(target, found)
        print(f"{name}: {after[name]['STS7']:.2f}, dev {after[name]['dev']:.2f}", flush=True)
        shutil.rmtree(folder)
    return found


def pack(base: Path, package: Path, facts: dict[str, Any]) -> None:
    """Write a model's files into a package of data: float16 weights, tokenizer, card."""
    (source,) = package.glob("src/*")
    target = source / "model"
    target.mkdir(exist_ok=True)
    weights = load_file(base / "model.safetensors")
    halves = {key: value.to(torch.float16) for key, value in weights.items()}
    save_file(halves, target / "model.safetensors", metadata={"format": "pt"})
    config = read_object(base / "config.json")
    write_object(target / "config.json", {**config, "dtype": "float32"})
    for name in TOKENIZER:
        if (base / name).is_file():
            shutil.copyfile(base / name, target / name)
    log = (base / "run" / "log.jsonl").read_text("utf-8").splitlines()
    losses = [line for line in map(json.loads, log) if "loss" in line]
    settings = read_object(base / "run" / "settings.json")["settings"]
    write_text(target / "README.md", card(facts, losses, settings, config))


def card(
    facts: dict[str, Any],
    losses: list[dict[str, Any]],
    settings: dict[str, Any],
    config: dict[str, Any],
) -> str:
    """The model card: how it was made, from which text, and what contrast does to it."""
    seen = settings["steps"] * settings["batch"]
    curve = [losses[len(losses) * part // 8] for part in range(8)] + losses[-1:]
    shape = f"{config['num_hidden_layers']} layers of {config['hidden_size']}"
    tasks = (*STS_TASKS, "STS7")
    gain = max(v["STS7"] for v in facts["simcse"].values())
    gain -= max(v["STS7"] for v in facts["before"].values())
    rows = {**facts["before"], **{f"SimCSE, {k}": v for k, v in facts["simcse"].items()}}
    lines = [
        "---",
        "language: en",
        "license: cc-by-sa-3.0",
        "library_name: contrasent",
        "pipeline_tag: fill-mask",
        "---",
        "# contrasent-small",
        "",
        f"A BERT of {shape} ({config['vocab_size']:,} word pieces, lower-case, texts of up to "
        f"{config['max_position_embeddings']} tokens), pre-trained from random weights by masked "
        "language modelling, with its masked-LM head. It was cut from no other model. It is a base "
        "for learning sentence embeddings by contrast and for comparing methods offline; by itself "
        "it is no sentence encoder.",
        "",
        "## Training",
        "",
        f"{seen:,} sentences of English Wikipedia (text under CC BY-SA 3.0 and the GFDL; its "
        "authors are those of the articles, revisions of December 2018 and October 2021), batch "
        f"{settings['batch']}, {settings['max_tokens']} tokens, peak rate {settings['lr']:g}, 30 % "
        "of the tokens masked, Muon for the layers' matrices, AdamW for the rest, no dropout:",
        "",
        "```sh",
        "python -m benchmarks.pretrain wiki/enwiki_sentences_1m.txt.gz -o contrasent-small "
        f"--layers {config['num_hidden_layers']} --hidden {config['hidden_size']} "
        f"--vocabulary 16000 --set steps={settings['steps']} "
        f"--set precision={settings['precision']}",
        "```",
        "",
        "| sentences | masked-LM loss |",
        "| --- | --- |",
        *(f"| {line['step'] * settings['batch']:,} | {line['loss']:.2f} |" for line in curve),
        "",
        "## Sentence embeddings before and after contrast",
        "",
        "Spearman x 100, SentEval's form, test sets; SimCSE without labels, batch 64, 32 tokens, "
        "bf16, last step. "
        f"The best row after contrast is {gain:+.1f} points from the best before it; the goal was "
        f"{GOAL:+.1f}.",
        "",
        f"| | {' | '.join(tasks)} |",
        f"| --- |{' --- |' * len(tasks)}",
        *(f"| {name} | {' | '.join(f'{v[t]:.1f}' for t in tasks)} |" for name, v in rows.items()),
        "",
        "```sh",
        "python -m benchmarks.base measure contrasent-small wiki/enwiki_sentences_1m.txt.gz "
        "--json base.json",
        "```",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure or pack."""
    parser = argparse.ArgumentParser(prog="benchmarks.base", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("base", type=Path)
    measuring.add_argument("corpus")
    measuring.add_argument("--json", type=Path, required=True)
    measuring.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    measuring.add_argument("--steps", type=int, default=1000)
    measuring.add_argument("--seeds", type=int, nargs="+", default=[0])
    measuring.add_argument("--poolers", nargs="+", default=["cls", "mean"])
    packing = commands.add_parser("pack")
    packing.add_argument("base", type=Path)
    packing.add_argument("package", type=Path)
    packing.add_argument("--measured", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "measure":
        measure(
            given.base,
            given.corpus,
            given.json,
            given.rates,
            given.steps,
            given.seeds,
            given.poolers,
        )
    else:
        pack(given.base, given.package, json.loads(given.measured.read_text("utf-8")))


if __name__ == "__main__":
    main()
