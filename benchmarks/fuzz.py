"""Coverage-guided fuzzing of what reads strangers' files and requests (``tests/fuzz_targets.py``).

    python benchmarks/fuzz.py [--seconds 60] [TARGET ...]

Each target runs in its own process under atheris (``pip install 'contrasent[fuzz]'``), which sees
the lines of contrasent that were reached. Printed: inputs tried and edges reached, or the input
that made a fault, as hexadecimal for ``fuzz_targets.feed``. It ends with 1 if there was a fault.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"


def one(name: str, options: list[str]) -> None:
    """Fuzz a target in this process, until it fails or the time is up."""
    import atheris

    sys.path.insert(0, str(TESTS))
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["contrasent"]):
        import contrasent.documents.parsers
        import contrasent.documents.passages
        import contrasent.encoder.encoder
        import contrasent.model.golden
        import contrasent.model.numpy_model
        import contrasent.search.milvus
        import contrasent.search.records
        import contrasent.search.writer
        import contrasent.serve.app  # noqa: F401
        import fuzz_targets
    fuzz_targets.feed(name, b"")  # what is made once is made before the clock starts
    atheris.Setup([sys.argv[0], *options], lambda data: fuzz_targets.feed(name, data))
    atheris.Fuzz()


def main() -> int:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.one:
        one(options.one, rest)
        return 0
    sys.path.insert(0, str(TESTS))
    import fuzz_targets

    faults = 0
    for name in options.targets or fuzz_targets.TARGETS:
        with tempfile.TemporaryDirectory() as place:
            command = [
                sys.executable,
                __file__,
                "--one",
                name,
                f"-max_total_time={options.seconds}",
            ]
            limits = ["-max_len=256", "-rss_limit_mb=4096", "-timeout=20", "-verbosity=1"]
            ended = subprocess.run(
                [*command, *limits, f"-artifact_prefix={place}/"], capture_output=True, text=True
            )
            made = [path.read_bytes().hex() for path in Path(place).iterdir()]
        tried = re.findall(r"^(?:Done (\d+) runs|#(\d+)\s)", ended.stderr, re.M)
        reached = re.findall(r"cov: (\d+)", ended.stderr)
        count = max((int(a or b) for a, b in tried), default=0)
        fault = ended.returncode != 0
        faults += fault
        print(
            f"{name:>20}  {count:9,} inputs  {reached[-1] if reached else '?':>5} edges  "
            + ("FAULT" if fault else "no fault"),
            flush=True,
        )
        if fault:
            print(*made, *re.findall(r"(?ms)=== Uncaught.*?(?=^==)", ended.stderr), sep="\n")
            if not made:
                print(ended.stderr[-3000:])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
