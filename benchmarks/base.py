"""Measure a pre-trained base by contrast, and pack it as an installable package of data.

    python -m benchmarks.base measure my-bert --json base.json
    python -m benchmarks.base pack first-run my-bert bases/small --measured base.json

``measure`` gives the mean of the seven STS sets for [CLS], the average and the first-last average,
and after 1,000 steps of unsupervised SimCSE at several rates on the corpora named, each with its
development score. A run that is stopped goes on with the same command. ``pack`` writes weights in
float16, the tokenizer and a model card; of several folders each went on from the one before it.
"""

import argparse
import json
import shutil
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.pretrain import MASK_RATIO
from contrasent.datasets.official import STS_TASKS, data_folder
from contrasent.encoder.encoder import Encoder
from contrasent.evaluate.sts import sts
from contrasent.files import read_object, write_json, write_object, write_text
from contrasent.report import Report
from contrasent.reproduce.corpora import build, read_corpora
from contrasent.text.corpus import open_corpus
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings

POOLERS = ("cls", "mean", "first_last")
CORPORA = ("nli_sentences", "wiki")
RATES = (1e-4, 3e-4, 1e-3)
BATCH = 64
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
    target: Path,
    *,
    corpora: list[str],
    rates: list[float],
    steps: int,
    seeds: list[int],
    poolers: list[Any],
) -> dict[str, Any]:
    """Scores of a base before and after contrast; what is measured already is kept."""
    known: dict[str, Any] = json.loads(target.read_text("utf-8")) if target.is_file() else {}
    before: dict[str, Any] = known.setdefault("before", {})
    after: dict[str, Any] = known.setdefault("simcse", {})
    for pooler in POOLERS:
        if pooler not in before:
            encoder = Encoder.load(base, pooler=pooler)
            before[pooler] = {**measured(encoder), "dev": round(development(encoder), 2)}
            write_json(target, known)
            print(f"{pooler}: {before[pooler]['STS7']:.2f}", flush=True)
    for corpus, rate, pooler, seed in product(corpora, rates, poolers, seeds):
        name = f"{corpus}, {pooler}, lr {rate:g}, {steps} steps, seed {seed}"
        if name in after:
            continue
        settings = Settings(
            steps=steps,
            lr=rate,
            seed=seed,
            batch=BATCH,
            max_tokens=32,
            pooler=pooler,
            precision="bf16",
        )
        sampled = build(read_corpora()[corpus], steps * BATCH, data_folder(), target.parent)
        folder = target.parent / f"{target.stem}-{corpus}-{pooler}-{rate:g}-{seed}"
        objective = prepare(base, "simcse", {}, settings)
        resume = folder.is_dir() and any(folder.iterdir())
        texts = open_corpus(sampled.path)
        run = fit(objective, texts, settings, folder=folder, keep="last", resume=resume)
        trained = Encoder.load(run.folder)
        after[name] = {**measured(trained), "dev": round(development(trained), 2)}
        write_json(target, known)
        print(f"{name}: {after[name]['STS7']:.2f}, dev {after[name]['dev']:.2f}", flush=True)
        shutil.rmtree(folder)
    return known


def pack(stages: list[Path], package: Path, facts: dict[str, Any]) -> None:
    """Write a model's files into a package of data: float16 weights, tokenizer, card."""
    base = stages[-1]
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
    write_text(target / "README.md", card(facts, stages, config))


def card(facts: dict[str, Any], stages: list[Path], config: dict[str, Any]) -> str:
    """The model card: how it was made, from which text, and what contrast does to it."""
    name = "contrasent-small"
    commands, curve, seen = [], [], 0
    for number, stage in enumerate(stages, start=1):
        last = number == len(stages)
        settings = read_object(stage / "run" / "settings.json")["settings"]
        log = (stage / "run" / "log.jsonl").read_text("utf-8").splitlines()
        losses = [line for line in map(json.loads, log) if "loss" in line]
        curve += [
            (seen + line["step"] * settings["batch"], f"{settings['dropout']:g}", line["loss"])
            for line in [losses[len(losses) * part // 4] for part in range(4)] + losses[-1:]
        ]
        seen += settings["steps"] * settings["batch"]
        begins = f"--base {name}-{number - 1}" if number > 1 else ""
        shape = f"--layers {config['num_hidden_layers']} --hidden {config['hidden_size']}"
        stated = [f"{k}={settings[k]:g}" for k in ("steps", "lr", "dropout")]
        commands.append(
            f"python -m benchmarks.pretrain wiki/enwiki_sentences_1m.txt.gz "
            f"-o {name if last else f'{name}-{number}'} {begins or shape} "
            + " ".join(f"--set {item}" for item in [*stated, f"precision={settings['precision']}"])
        )
    shape = f"{config['num_hidden_layers']} layers of {config['hidden_size']}"
    tasks = (*STS_TASKS, "STS7", "dev")
    before = max(v["STS7"] for v in facts["before"].values())
    seeds = dict[str, list[float]]()
    for key, scores in facts["simcse"].items():
        seeds.setdefault(key.rpartition(", seed")[0], []).append(scores["STS7"] - before)
    best = dict[str, list[float]]()
    for key, gains in seeds.items():
        corpus = key.partition(",")[0]
        # Of more runs, else of the higher mean.
        best[corpus] = max(gains, best.get(corpus, gains), key=lambda of: (len(of), mean(of)))
    said = " and ".join(
        f"{mean(gains):+.1f} points on {corpus} (mean of {len(gains)})"
        for corpus, gains in best.items()
    )
    rows = {**facts["before"], **{f"SimCSE, {k}": v for k, v in facts["simcse"].items()}}
    lines = [
        "---",
        "language: en",
        "license: cc-by-sa-3.0",
        "library_name: contrasent",
        "pipeline_tag: fill-mask",
        "---",
        f"# {name}",
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
        "authors are those of the articles, revisions of December 2018 and October 2021), "
        f"{settings['batch']} of up to {settings['max_tokens']} tokens a step, {MASK_RATIO:.0%} of "
        "the tokens masked, Muon for the layers' matrices, AdamW for the rest; the rate rises for "
        f"{settings['warmup']:.0%} of the steps and falls to zero:",
        "",
        "```sh",
        *commands,
        "```",
        "",
        "| sentences | dropout | masked-LM loss |",
        "| --- | --- | --- |",
        *(f"| {count:,} | {dropout} | {loss:.2f} |" for count, dropout, loss in curve),
        "",
        "## Sentence embeddings before and after contrast",
        "",
        "Spearman x 100, SentEval's form, test sets, and STS-B's development set; SimCSE without "
        "labels, batch 64, 32 tokens, bf16, last step. Over the best row before contrast the rate "
        f"with most runs gains {said}; the goal was {GOAL:+.1f}. nli_sentences are the premises "
        "and hypotheses of SNLI and MultiNLI without labels, of the kind that STS consists of; "
        "wiki is the text of the pre-training.",
        "",
        f"| | {' | '.join(tasks)} |",
        f"| --- |{' --- |' * len(tasks)}",
        *(f"| {name} | {' | '.join(f'{v[t]:.1f}' for t in tasks)} |" for name, v in rows.items()),
        "",
        "```sh",
        f"python -m benchmarks.base measure {name} --json base.json",
        "```",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure or pack."""
    parser = argparse.ArgumentParser(prog="benchmarks.base", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("base", type=Path)
    measuring.add_argument("--json", type=Path, required=True)
    measuring.add_argument("--corpora", nargs="+", default=list(CORPORA))
    measuring.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    measuring.add_argument("--steps", type=int, default=1000)
    measuring.add_argument("--seeds", type=int, nargs="+", default=[0])
    measuring.add_argument("--poolers", nargs="+", default=["mean"])
    packing = commands.add_parser("pack")
    packing.add_argument("stages", type=Path, nargs="+")
    packing.add_argument("package", type=Path)
    packing.add_argument("--measured", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "measure":
        measure(
            given.base,
            given.json,
            corpora=given.corpora,
            rates=given.rates,
            steps=given.steps,
            seeds=given.seeds,
            poolers=given.poolers,
        )
    else:
        pack(given.stages, given.package, json.loads(given.measured.read_text("utf-8")))


if __name__ == "__main__":
    main()
