"""``python -m benchmarks.attack``: all cases or some, as a table and as JSON."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "documents")]  # makers of small models and documents
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from benchmarks.attack import documents, indexes, kills, models, patterns, requests  # noqa: E402
from benchmarks.attack.bench import Bench, Process, failure_row, table  # noqa: E402

CASES: dict[str, tuple[Callable[[Bench], None], int]] = {
    **indexes.CASES,
    **documents.CASES,
    **models.CASES,
    **kills.CASES,
    **patterns.CASES,
    **requests.CASES,
}
"""Functions that try a case, and how many inputs each tries."""


def run(name: str, count: int | None, seconds: float) -> dict[str, Any]:
    """Run a case in a process of its own, so that what it imports stays there."""
    function, goal = CASES[name]
    with tempfile.TemporaryDirectory(prefix=f"attack-{name.replace(' ', '-')}-") as place:
        result = Path(place, "row.json")

        def work() -> None:
            home = Path(place, "home")
            home.mkdir()
            bench = Bench(name, home, goal if count is None else count, seconds)
            os.dup2(error, 2)  # progress is shown while it runs
            function(bench)
            result.write_text(json.dumps(bench.row()))

        error = os.dup(2)
        began = time.monotonic()
        attempt = Process(work).result(seconds + 3600)
        os.close(error)
        if not result.exists():
            return failure_row(name, goal, attempt.out + attempt.err)
        row: dict[str, Any] = json.loads(result.read_text())
        return row | {"seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    """Run the cases one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack")
    parser.add_argument("--only", action="append", metavar="CASE", help="may be repeated")
    parser.add_argument("--count", type=int, help="inputs of each case, instead of its own number")
    parser.add_argument("--seconds", type=float, default=3600, help="the most time of each case")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true", help="print the cases and their counts")
    options = parser.parse_args()
    if options.list:
        print(*(f"{name:<20} {count:>6,}" for name, (_, count) in CASES.items()), sep="\n")
        return 0
    chosen = [name for name in CASES if not options.only or name in options.only]
    if unknown := set(options.only or ()) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; see --list")
    rows = []
    for name in chosen:
        rows.append(run(name, options.count, options.seconds))
        print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}",
    }
    print(f"{facts['date']}, commit {commit}, {facts['machine']}\n\n{table(rows)}")
    for row in rows:
        for failure in row["failures"]:
            print(f"\n{row['case']}: {failure['kind']}: {failure['input']}\n{failure['detail']}")
    if options.json:
        options.json.write_text(json.dumps(facts | {"cases": rows}, indent=2) + "\n")
    return 1 if any(row["failures"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
