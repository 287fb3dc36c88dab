"""How soon a large index can be searched: by words, before its rows are encoded.

    python -m benchmarks.at_once FILE [--passages 100000]

Passages of ten lines of a text are indexed by ``contrasent.index_folder`` until words can search
them: seconds, all and of processor time, and the peak of memory.
"""

import argparse
import gzip
import json
import resource
import tempfile
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

from contrasent import progress
from contrasent.indexing.build import index_folder
from contrasent.types import batched

LINES = 10  # of a passage


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, help="text of one sentence a line, gzip too")
    parser.add_argument("--passages", type=int, default=100_000)
    given = parser.parse_args()
    progress.show("auto")
    opened = gzip.open if given.text.suffix == ".gz" else open
    with tempfile.TemporaryDirectory() as place:
        table = Path(place, "passages.jsonl")
        with opened(given.text, "rt", encoding="utf-8") as stream, table.open("w") as out:
            passages = (" ".join(map(str.strip, some)) for some in batched(stream, LINES))
            out.writelines(json.dumps({"text": p}) + "\n" for p in islice(passages, given.passages))
        began, own = time.monotonic(), time.process_time()

        def stop(line: str) -> None:
            print(line)
            if "searchable now" in line:
                seconds, used = time.monotonic() - began, time.process_time() - own
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
                print(f"{seconds:.0f} s, {used:.0f} s of processor time, {peak:.2f} GB")
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            index_folder(table, Path(place, "index"), column="text", log=stop)


if __name__ == "__main__":
    main()
