"""Whitening and flow on one encoder, each fitted on three kinds of text.

    CONTRASENT_DATA=... python -m benchmarks.postprocessing --base FOLDER --json FILE

Scores are those of the seven STS test sets and the geometry of STS-B: what SimCSE's Tables 5 and
C.1 and Figure 3 show of whitening and flow. Each sentence is encoded once for all of it; three
seeds for what has one.
"""

import argparse
import csv
import gzip
import os
import statistics
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from contrasent import progress
from contrasent.datasets.official import STS_TASKS
from contrasent.datasets.sts import sts_pairs
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.flow import FlowSettings, fit
from contrasent.evaluate.geometry import geometry
from contrasent.evaluate.sts import sts
from contrasent.files import write_json
from contrasent.postprocess import whiten
from contrasent.report import Report
from contrasent.types import Vectors

SEEDS = (0, 1, 2)
Transform = Callable[[Vectors], Vectors]


def corpora(data: Path, most: int) -> dict[str, list[str]]:
    """Wikipedia sentences from all over the file, NLI's sentences, and the sentences of STS."""
    with gzip.open(data / "wiki" / "enwiki_sentences_1m.txt.gz", "rt", encoding="utf-8") as stream:
        wiki = [line.strip() for line in islice(stream, 0, 40 * most, 40)]
    nli: dict[str, None] = {}
    with (data / "nli" / "nli_triples.csv").open(encoding="utf-8", newline="") as stream:
        for row in islice(csv.reader(stream), 1, None):
            nli.update(dict.fromkeys(row))
            if len(nli) >= most:
                break
    target = {
        text: None
        for task in STS_TASKS
        for pairs in sts_pairs(task)
        for text in (*pairs.first, *pairs.second)
    }
    return {"wiki": wiki, "nli": list(nli)[:most], "target": list(target)}


def arms(vectors: Vectors) -> Iterator[tuple[str, Transform]]:
    """Every method, fitted on one corpus; its name with the seed."""
    yield "whitening", whiten(vectors)
    yield "whitening, 256 dimensions", whiten(vectors, dimensions=256)
    for seed in SEEDS:
        settings = FlowSettings(seed=seed)
        yield f"flow/{seed}", fit(vectors, settings).transform


def main() -> None:
    """Fit, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", required=True)
    parser.add_argument("--pooling", default="first_last")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data = Path(os.environ["CONTRASENT_DATA"])
    progress.show("auto")
    encoder = TorchEncoder.load(options.base, pooling=options.pooling, normalize=False)
    texts = corpora(data, options.sentences)
    known: dict[str, Vectors] = {}

    def encode(sentences: list[str]) -> Vectors:
        new = [s for s in dict.fromkeys(sentences) if s not in known]
        known.update(zip(new, encoder.encode(new), strict=True)) if new else None
        return np.stack([known[s] for s in sentences])

    def measured(transform: Transform) -> Report:
        def transformed(sentences: list[str]) -> Vectors:
            return transform(encode(sentences))

        similar = sts(transformed, resamples=0)  # type: ignore[arg-type]
        space = geometry(transformed, resamples=0)  # type: ignore[arg-type]
        return Report((*similar.rows, *space.rows))

    reports = {"plain": measured(lambda x: x)}
    for name, lines in texts.items():
        for method, transform in arms(encode(lines)):
            reports[f"{method} ({name})"] = measured(transform)
            print(line(f"{method} ({name})", [reports[f"{method} ({name})"]]), flush=True)
    show(reports)
    if options.json:
        write_json(options.json, {name: report.to_json() for name, report in reports.items()})


def line(name: str, found: list[Report]) -> str:
    """A row of the table: STS7, alignment, uniformity; mean and deviation over seeds."""
    cells = [name]
    for wanted, scale in (
        ({"task": "STS7", "metric": "spearman"}, 100),
        ({"metric": "alignment"}, 1),
        ({"metric": "uniformity"}, 1),
    ):
        values = [scale * report.one(**wanted).value for report in found]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.2f}{spread}")
    return "| " + " | ".join(cells) + " |"


def show(reports: dict[str, Report]) -> None:
    """Print the table of research/results.md, seeds joined."""
    joined: dict[str, list[Report]] = {}
    for name, report in reports.items():
        method, _, rest = name.partition("/")
        corpus = rest[1:] if rest else ""
        joined.setdefault(method + corpus, []).append(report)
    print(
        "\n| vectors | STS, mean of seven | alignment | uniformity |\n| --- | ---: | ---: | ---: |"
    )
    for name, found in joined.items():
        print(line(name, found))


if __name__ == "__main__":
    main()
