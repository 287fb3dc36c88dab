"""Whether a pre-trained base is sound, and what its vectors score before any contrast.

    python -m benchmarks.base gates my-bert other-bert
    python -m benchmarks.base measure my-bert --json base.json

``gates`` says whether a base is sound, without a look at any test set: the entropy of attention in
every layer, heads that look at [CLS] alone, and what removing all attention costs on STS-B's
development set. Bases are chosen by it. ``measure`` prints the gates first, then gives the seven
STS sets for [CLS], the average and the first-last average, each with its development score; what
contrast does to contrasent-small, ``contrasent reproduce own:small`` measures.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from contrasent.datasets.official import STS_TASKS, data_folder, find
from contrasent.encoder.attention_weights import LEAST, SINK, attention_of
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import DataError, ModelError
from contrasent.evaluate.sts import sts
from contrasent.files import write_json
from contrasent.model.pretrained import resolve
from contrasent.text.corpus import open_corpus

POOLERS = ("cls", "mean", "first_last")
TEXT, SENTENCES = "wiki/wiki1m_for_simcse.head.txt", 500  # whose attention is measured
COST = 8.0  # points of STS-B's development set that removing all attention should cost


def seven(encoder: TorchEncoder) -> dict[str, float]:
    """Spearman x 100 of each of the seven sets, and their mean."""
    report = sts(encoder.encode, resamples=0)
    rows = {row.task: 100 * row.value for row in report.rows if row.metric == "spearman"}
    return {task: round(rows[task], 2) for task in (*STS_TASKS, "STS7")}


def development(encoder: TorchEncoder) -> float:
    """Spearman x 100 on the development split of STS-B."""
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


def measure(name: str, target: Path) -> None:
    """Gates, and scores of a base by each pooling, into a file."""
    base = resolve(name)
    facts: dict[str, Any] = {"gates": gates(base), "before": {}}
    print(shown(name, facts["gates"]), flush=True)
    for pooling in POOLERS:
        encoder = TorchEncoder.load(base, pooling=pooling)
        scores = {**seven(encoder), "dev": round(development(encoder), 2)}
        facts["before"][pooling] = scores
        print(f"{pooling}: {scores['STS7']:.2f}", flush=True)
    write_json(target, facts)


def main() -> None:
    """Print gates, or measure."""
    parser = argparse.ArgumentParser(prog="benchmarks.base", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("gates")
    judging.add_argument("bases", nargs="+", help="folders or names")
    measuring = commands.add_parser("measure")
    measuring.add_argument("base", help="folder or name")
    measuring.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "gates":
        for name in given.bases:
            print(shown(name, gates(resolve(name))), flush=True)
    else:
        measure(given.base, given.json)


if __name__ == "__main__":
    main()
