"""The cost of encoding in shards by several processes, or by Ray, instead of by one process.

    python -m benchmarks.encoding_engines [--model FOLDER] [--rows 20000] [--shard-rows 2500]
                                          [--workers 2] [--turns 3]

Made sentences are encoded by ``--engine local`` with one worker on all cores, by ``--engine local``
with several workers of one core each, and by ``--engine ray`` with as many, turn by turn. Printed
are rows a second of each turn, without the start of the engine and of its workers (the seconds in
which no worker was at a shard), the ratio of the medians to one process, and the seconds that a
shard takes besides calls of the model: to read, to write and to be placed.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from contrasent.cli.encode import OpenModel
from contrasent.cli.options import Loading
from contrasent.encoding.engines import Local, OnRay
from contrasent.encoding.inputs import plan
from contrasent.encoding.job import Done, Job, begin, opened

WORDS = (
    "the",
    "a",
    "red",
    "old",
    "small",
    "boat",
    "house",
    "river",
    "wind",
    "under",
    "over",
    "near",
)


def sentence(number: int) -> str:
    """A different sentence of 5 to 24 words for each number."""
    words = [WORDS[(number * (at + 3) + at * at) % len(WORDS)] for at in range(5 + number % 20)]
    return f"{' '.join(words)} {number}."


def timed(
    model: str, source: Path, shard_rows: int, engine: Local | OnRay
) -> tuple[float, list[Done]]:
    """Seconds from the first shard's beginning to the last one's end, and what became of each."""
    opener = OpenModel(model, Loading(), threads=engine.threads)
    here = opened(opener)
    with tempfile.TemporaryDirectory() as home:
        rows = plan(str(source), shard_rows=shard_rows)
        job = Job(f"{home}/v", rows, opener, here.dimension, "float32", False, here.settings)
        done, begins = [], []
        for one in engine.run(job, begin(job, None), lambda rows: None):
            if one.problem:
                raise SystemExit(one.problem)
            begins.append(time.perf_counter() - one.seconds)
            done.append(one)
        # Workers open the model at the same time, before their first shards.
        return time.perf_counter() - min(begins) - max(one.opening for one in done), done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--shard-rows", type=int, default=2_500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    from contrasent.model.pretrained import resolve

    model = str(resolve(given.model).absolute())
    kinds: dict[str, Local | OnRay] = {
        "local, one process": Local(1, given.workers),
        f"local, {given.workers} workers": Local(given.workers, 1),
        f"ray, {given.workers} workers": OnRay(given.workers, 1),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as home:
        source = Path(home, "texts.txt")
        source.write_text("".join(f"{sentence(n)}\n" for n in range(given.rows)))
        for turn in range(given.turns):
            for name, engine in kinds.items():
                seconds, done = timed(model, source, given.shard_rows, engine)
                rates[name].append(given.rows / seconds)
                encoding = sum(one.encoding for one in done)
                opening = sum(one.opening for one in done)
                io = (sum(one.seconds for one in done) - encoding - opening) / len(done)
                idle = seconds * (engine.workers or 1) - encoding - io * len(done)
                print(
                    f"turn {turn}  {name:<20} {rates[name][-1]:8.0f} rows a second  a shard: "
                    f"{io:.3f} s to read and write, {idle / len(done):.3f} s to be placed",
                    flush=True,
                )
    base = statistics.median(rates["local, one process"])
    for name, found in rates.items():
        print(f"{name:<20} {statistics.median(found) / base:.3f} of one process's rate")


if __name__ == "__main__":
    main()
