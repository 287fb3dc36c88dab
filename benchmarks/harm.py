"""Does training harm a model that is a sentence encoder already? Search before and after.

    CONTRASENT_DATA=... python -m benchmarks.harm --out runs/harm.jsonl

A sentence encoder is trained on the documents of collections with real queries, which it never
sees, and searched with before, during and after: nDCG@10 with the 95 % interval of its paired
difference from the base (bootstrap over queries), and what a run can know without queries: mean
cosine of random pairs, effective rank, and the share of the base's ten nearest neighbours left,
on 500 of the sentences. Every run appends its lines when it is complete; what is there is not
repeated, so the script may be stopped at any time. ``--table`` prints them as Markdown.
"""

import argparse
import os
import re
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.lines import append, read

SMALL = ("stackfaq-answers", "cranfield", "cisi")
RATES = (3e-5, 3e-6, 1e-5, 1e-6)
BASE = "all-MiniLM-L6-v2"
EVERY = 10
SAMPLE = 500
SHORTEST = 3
"""Words of the shortest sentence that is trained on."""
WORDS = 100
"""Words of a document that are searched: the rest would double the time of every look."""
KEY = ("collection", "objective", "steps", "seed", "lr")
NUMBERS = ("ndcg", "difference", "low", "high", "overlap", "rank", "cosine")


def sentences(text: str) -> list[str]:
    """The sentences of a document, without those of a word or two."""
    found = re.split(r"(?<=[.?!])\s+", " ".join(text.split()))
    return [s for s in found if len(s.split()) >= SHORTEST]


class Judged:
    """A collection, and what the base finds in it."""

    def __init__(self, name: str) -> None:
        from contrasent.model.encoder import Encoder
        from contrasent.model.pretrained import resolve
        from contrasent.text.labelled import read_collection

        self.name = name
        self.found = read_collection(Path(os.environ["CONTRASENT_DATA"]) / "ir" / name)
        self.documents = [" ".join(d.split()[:WORDS]) for d in self.found.documents]
        texts = [s for document in self.found.documents for s in sentences(document)]
        self.sentences = list(dict.fromkeys(texts))
        encode = Encoder.load(resolve(BASE)).encode
        self.sample = self.sentences[:: max(1, len(self.sentences) // SAMPLE)][:SAMPLE]
        self.base = self.search(encode)
        self.vectors = encode(self.sample)

    def search(self, encode: Any) -> Any:
        """(q,) nDCG@10 of every query."""
        from contrasent.evaluate.retrieval import rank_documents

        found = self.found
        return rank_documents(encode, found.queries, self.documents, found.relevant).ndcg(10)

    def corpus(self, objective: str) -> list[str] | list[tuple[str, ...]]:
        """What an objective learns from: sentences, or first sentences and what follows them."""
        if not objective.startswith("simcse_supervised"):
            return self.sentences
        split = [sentences(document) for document in self.found.documents]
        return [(parts[0], " ".join(parts[1:])) for parts in split if len(parts) > 1]

    def measure(self, encode: Any, *, searched: bool) -> dict[str, float]:
        """The numbers of one line; those of search only where they are wanted."""
        from contrasent import metrics
        from contrasent.stats.bootstrap import mean_interval

        line: dict[str, float] = {}
        if searched:
            now = self.search(encode)
            low, high = mean_interval(now - self.base, 10_000)
            line = {"ndcg": now.mean(), "difference": (now - self.base).mean()}
            line |= {"low": low or 0.0, "high": high or 0.0}
        vectors = encode(self.sample)
        line["overlap"] = metrics.neighbour_overlap(self.vectors, vectors).mean()
        line["rank"] = metrics.effective_rank(vectors)
        line["cosine"] = metrics.anisotropy(vectors)
        return {name: round(float(value), 5) for name, value in line.items()}


def run(judged: Judged, key: dict[str, Any], at: list[int], settings: list[str]) -> list[Any]:
    """Train once; a line for every step that was looked at."""
    from contrasent.model.pretrained import resolve
    from contrasent.report import Report
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings, assignments, choose

    given = {name: key[name] for name in ("steps", "seed", "lr")} | assignments(settings)
    chosen = choose(given, key["objective"])
    how = Settings(**chosen.run, geometry_every=EVERY, checkpoint_every=10**6)
    lines: list[dict[str, Any]] = []

    def look(encode: Any) -> Report:
        step = min(EVERY * len(lines), key["steps"])
        numbers = judged.measure(encode, searched=step in at)
        lines.append({**key, "step": step, "queries": len(judged.base), **numbers})
        return Report(())

    corpus = judged.corpus(key["objective"])
    with tempfile.TemporaryDirectory() as folder:
        learner = prepare(resolve(BASE), key["objective"], chosen.objective, how)
        done = fit(learner, corpus, how, folder=Path(folder) / "model", geometry=look)
    rows = {"rows": len(corpus), "set": settings, "seconds": round(done.seconds)}
    return [{**line, **rows} for line in lines]


def table(lines: list[dict[str, Any]]) -> str:
    """Markdown of the steps that were searched."""
    shown = [line for line in lines if "ndcg" in line]
    heads = (*KEY, "step", *NUMBERS)
    text = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for line in sorted(shown, key=lambda line: [line[name] for name in (*KEY[:4], "lr", "step")]):
        cells = [f"{line[n]:.3f}" if n in NUMBERS else f"{line[n]}" for n in heads]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--collections", nargs="*", default=SMALL)
    parser.add_argument("--objectives", nargs="*", default=("simcse",))
    parser.add_argument("--rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--at", nargs="*", type=int, default=(0, 40, 130), help="steps to search")
    parser.add_argument("--set", nargs="*", default=(), help="more settings, key=value")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = read(options.out)
    if options.table:
        print(table(lines))
        return
    if "CONTRASENT_DATA" not in os.environ:
        sys.exit("set CONTRASENT_DATA to the folder of the data sets")
    more = sorted(options.set)
    there = {(*(line[name] for name in KEY), *line["set"]) for line in lines}
    opened: dict[str, Judged] = {}
    wanted = product(range(options.seeds), options.objectives, options.rates, options.collections)
    for seed, objective, rate, name in wanted:
        key = dict(zip(KEY, (name, objective, options.steps, seed, rate), strict=True))
        if (*key.values(), *more) in there:
            continue
        if name not in opened:
            opened[name] = Judged(name)
        found = run(opened[name], key, list(options.at), more)
        append(options.out, found)
        print(table(found[-1:]), flush=True)


if __name__ == "__main__":
    main()
