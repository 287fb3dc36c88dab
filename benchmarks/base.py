"""Measure a pre-trained base by contrast, and pack it as an installable package of data.

    python -m benchmarks.base gates my-bert other-bert
    python -m benchmarks.base measure my-bert --json base.json
    python -m benchmarks.base pack my-bert bases/small --measured base.json

``gates`` says whether a base is sound, without a look at any test set: the entropy of attention in
every layer, heads that look at [CLS] alone, and what removing all attention costs on STS-B's
development set. Bases are chosen by it. ``measure`` prints the gates first, then gives the seven
STS sets for [CLS], the average and the first-last average, and after 1,000 steps of unsupervised
SimCSE at several rates on the corpora named, each with its development score, which chooses the
rate. A run that is stopped goes on with the same command. ``pack`` writes weights in float16, the
tokenizer and a model card.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.pretrain import Recipe
from contrasent.datasets.official import STS_TASKS, data_folder, find
from contrasent.encoder.attention_weights import LEAST, SINK, attention_of
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import DataError, ModelError
from contrasent.evaluate.sts import sts
from contrasent.files import read_object, write_json, write_object, write_text
from contrasent.model.pretrained import resolve
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
TEXT, SENTENCES = "wiki/wiki1m_for_simcse.head.txt", 500  # whose attention is measured
COST = 8.0  # points of STS-B's development set that removing all attention should cost
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def seven(report: Report) -> dict[str, float]:
    """Spearman x 100 of each of the seven sets, and their mean."""
    rows = {row.task: 100 * row.value for row in report.rows if row.metric == "spearman"}
    return {task: round(rows[task], 2) for task in (*STS_TASKS, "STS7")}


def measured(encoder: TorchEncoder) -> dict[str, float]:
    """The scores of an encoder."""
    return seven(sts(encoder.encode, resamples=0))


def development(encoder: TorchEncoder) -> float:
    """Spearman x 100 on the development split of STS-B, which chooses the rate."""
    report = sts(encoder.encode, tasks=("STSB",), split="dev", resamples=0)
    return next(100 * row.value for row in report.rows if row.metric == "spearman")


@contextmanager
def without_attention(encoder: TorchEncoder) -> Iterator[None]:
    """Let attention of a BERT add nothing in the block: its values are zero."""
    layers: Any = encoder.backbone.encoder
    parts = [p for one in layers.layer for p in one.attention.self.value.parameters()]
    kept = [part.detach().clone() for part in parts]
    try:
        for part in parts:
            part.data.zero_()
        yield
    finally:
        for part, before in zip(parts, kept, strict=True):
            part.data.copy_(before)


def gates(base: Path) -> dict[str, Any]:
    """What says whether a base is sound; development data alone, nothing is changed or kept."""
    encoder = TorchEncoder.load(base, pooling="mean")
    if (text := find([TEXT], data_folder())) is None:
        raise DataError(f"{TEXT}: not in the data folder; name it by CONTRASENT_DATA")
    found = attention_of(encoder, [row[0] for row in islice(open_corpus(text), SENTENCES)])
    if found is None:
        raise ModelError(f"{base}: is no BERT that gives the weights of its attention")
    whole = development(encoder)
    with without_attention(encoder):
        bare = development(encoder)
    entropy, first = found.entropy.mean(1), found.first.max(1)
    return {
        "entropy": [round(value, 3) for value in entropy.tolist()],
        "first_token": [round(value, 3) for value in first.tolist()],
        "dev": round(whole, 2),
        "dev_without_attention": round(bare, 2),
        "passed": {
            f"entropy of at least {LEAST} nats in every layer": bool(entropy.min() >= LEAST),
            f"no head with more than {SINK:.0%} on [CLS]": not found.sinks,
            f"attention worth at least {COST:g} points of dev": whole - bare >= COST,
        },
    }


def shown(name: object, found: dict[str, Any]) -> str:
    """Gates as lines."""
    lines = [
        f"{name}: entropy of attention by layer {found['entropy']} nats, largest share of a head "
        f"on [CLS] {found['first_token']}, dev {found['dev']:.2f}, without attention "
        f"{found['dev_without_attention']:.2f} "
        f"({found['dev_without_attention'] - found['dev']:+.2f})"
    ]
    lines += [
        f"  {'ok    ' if good else 'FAILED'} {gate}" for gate, good in found["passed"].items()
    ]
    return "\n".join(lines)


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
    if "gates" not in known:
        known["gates"] = gates(base)
        write_json(target, known)
    print(shown(base, known["gates"]), flush=True)
    for pooling in POOLERS:
        if pooling not in before:
            encoder = TorchEncoder.load(base, pooling=pooling)
            before[pooling] = {**measured(encoder), "dev": round(development(encoder), 2)}
            write_json(target, known)
            print(f"{pooling}: {before[pooling]['STS7']:.2f}", flush=True)
    for corpus, rate, pooling, seed in product(corpora, rates, poolers, seeds):
        settings = Settings(
            max_steps=steps,
            learning_rate=rate,
            seed=seed,
            batch_size=BATCH,
            max_seq_length=32,
            pooling=pooling,
            precision="auto",
        )
        name = (
            f"{corpus}, {pooling}, learning_rate {rate:g}, {steps} steps, "
            f"{settings.precision}, seed {seed}"
        )
        if name in after:
            continue
        sampled = build(read_corpora()[corpus], steps * BATCH, data_folder(), target.parent)
        folder = target.parent / f"{target.stem}-{corpus}-{pooling}-{rate:g}-{seed}"
        objective = prepare(base, "simcse", {}, settings)
        resume = folder.is_dir() and any(folder.iterdir())
        texts = open_corpus(sampled.path)
        run = fit(objective, texts, settings, output_dir=folder, keep="last", resume=resume)
        trained = TorchEncoder.load(run.folder)
        after[name] = {**measured(trained), "dev": round(development(trained), 2)}
        write_json(target, known)
        print(f"{name}: {after[name]['STS7']:.2f}, dev {after[name]['dev']:.2f}", flush=True)
        shutil.rmtree(folder)
    return known


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
    write_text(target / "README.md", card(facts, base, config))


def chosen(facts: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """Of each corpus the runs, a seed each, at the rate with the best development score."""
    rates: dict[str, dict[str, list[dict[str, float]]]] = {}
    for key, scores in facts["simcse"].items():
        setting, _, _ = key.rpartition(", seed")
        rates.setdefault(setting.partition(",")[0], {}).setdefault(setting, []).append(scores)
    return {
        corpus: max(runs.values(), key=lambda of: mean(one["dev"] for one in of))
        for corpus, runs in rates.items()
    }


def card(facts: dict[str, Any], base: Path, config: dict[str, Any]) -> str:
    """The model card: how it was made, from which text, its gates, what contrast does to it."""
    name = "contrasent-small"
    run = read_object(base / "run" / "settings.json")
    settings = run["settings"]
    tokenizer = f"--tokenizer {run['tokenizer']} " if run["tokenizer"] else ""
    result = read_object(base / "run" / "result.json")
    log = [json.loads(x) for x in (base / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    curve = [log[len(log) * part // 8] for part in range(8)] + log[-1:]
    changed = [f"--set {k}={v}" for k, v in settings.items() if v != getattr(Recipe(), k)]
    shape = f"{config['num_hidden_layers']} layers of {config['hidden_size']}"
    tasks = (*STS_TASKS, "STS7", "dev")
    before = max(facts["before"].values(), key=lambda scores: scores["dev"])["STS7"]
    gains = " and ".join(
        f"{mean(run['STS7'] - before for run in runs):+.1f} points on {corpus} (seeds: {len(runs)})"
        for corpus, runs in chosen(facts).items()
    )
    said = (
        "SimCSE without labels, batch 64, 32 tokens, last step: at the rate that dev chooses "
        f"contrast gains {gains} over the pooling before it that dev chooses. nli_sentences are "
        "the premises and hypotheses of SNLI and MultiNLI without labels, of the kind that STS "
        "consists of; wiki is the text of the pre-training."
        if gains
        else "What contrast does to it is measured by `contrasent reproduce own:small`."
    )
    rows = {**facts["before"], **{f"SimCSE, {k}": v for k, v in facts["simcse"].items()}}
    bound = f", attention {settings['bound']}s clipped at {settings['qk_clip']:g}"
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
        "language modeling, with its masked-LM head. It was cut from no other model. It is a base "
        "for learning sentence embeddings by contrast and for comparing methods offline; by itself "
        "it is no sentence encoder.",
        "",
        "## Training",
        "",
        f"{result['tokens']:,} tokens of a million sentences of English Wikipedia (text under CC "
        "BY-SA 3.0 and the GFDL; its authors are those of the articles, revisions of December 2018 "
        f"and October 2021), {settings['batch_size'] * settings['width']:,} tokens a step, "
        f"{settings['mask_ratio']:.0%} of them masked, Muon for the layers' matrices, AdamW for "
        f"the rest{bound if settings['qk_clip'] else ''}; the rate rises for "
        f"{settings['warmup_ratio']:.0%} of the {result['steps']:,} steps and falls to zero. "
        f"{result['seconds']:,.0f} s on {result['device']}; masked-LM loss {result['loss']:.2f} "
        "at the end.",
        "",
        "```sh",
        f"python -m benchmarks.pretrain wiki/enwiki_sentences_1m.txt.gz -o {name} "
        f"--layers {config['num_hidden_layers']} --hidden {config['hidden_size']} "
        f"--wide {config['intermediate_size']} {tokenizer}" + " ".join(changed),
        "```",
        "",
        "| step | masked-LM loss | entropy of attention by layer, nats |",
        "| --- | --- | --- |",
        *(
            f"| {line['step']:,} | {line['loss']:.2f} | "
            f"{', '.join(f'{value:.2f}' for value in line['entropy'])} |"
            for line in curve
        ),
        "",
        "## Is it sound?",
        "",
        "Measured before any test set was read, and what it was chosen by:",
        "",
        "```text",
        shown(name, facts["gates"]),
        "```",
        "",
        "## Sentence embeddings before and after contrast",
        "",
        f"Spearman x 100, SentEval's form, test sets, and STS-B's development set (dev). {said}",
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
    """Print gates, measure or pack."""
    parser = argparse.ArgumentParser(prog="benchmarks.base", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("gates")
    judging.add_argument("bases", nargs="+", help="folders or names")
    judging.add_argument("--json", type=Path, help="file for the same as JSON")
    measuring = commands.add_parser("measure")
    measuring.add_argument("base", type=Path)
    measuring.add_argument("--json", type=Path, required=True)
    measuring.add_argument("--corpora", nargs="+", default=list(CORPORA))
    measuring.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    measuring.add_argument("--steps", type=int, default=1000)
    measuring.add_argument("--seeds", type=int, nargs="+", default=[0])
    measuring.add_argument("--poolers", nargs="+", default=["mean"])
    packing = commands.add_parser("pack")
    packing.add_argument("base", type=Path)
    packing.add_argument("package", type=Path)
    packing.add_argument("--measured", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "gates":
        every = {}
        for name in given.bases:
            every[name] = gates(resolve(name))
            print(shown(name, every[name]), flush=True)
        if given.json:
            write_json(given.json, every)
    elif given.command == "measure":
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
        pack(given.base, given.package, json.loads(given.measured.read_text("utf-8")))


if __name__ == "__main__":
    main()
