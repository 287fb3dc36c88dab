"""Make a release: the same bytes twice, checksums, a bill of materials, and a smoke test.

    python -m tools.release            # all of it; the smoke test fills an empty environment
    python -m tools.release --no-smoke

Everything is left in dist/.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def commit_time() -> str:
    """Seconds since 1970 of the last commit: the date of every file in the archives."""
    log = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(log, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def build(target: Path) -> dict[str, str]:
    """Wheel and source archive, with their sha256."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    subprocess.run(hatch, cwd=ROOT, check=True, env=environment, stdout=subprocess.DEVNULL)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(target.iterdir())
    }


def smoke(wheel: Path) -> None:
    """Install a wheel into an empty environment, adapt to the handbook, and search in it."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        venv.create(place / "venv", with_pip=True)
        scripts = place / "venv" / "bin"
        pip = [str(scripts / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        constraint = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *constraint, f"{wheel}[offline]"], check=True)
        contrasent = scripts / "contrasent"
        documents, model = ROOT / "examples" / "handbook", place / "model"
        subprocess.run([contrasent, "adapt", documents, "-o", model, "--budget", "30s"], check=True)
        found = subprocess.run(
            [contrasent, "search", model / "index", "who pays for a broken drill?", "-k", "1"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        if "drill" not in found:
            raise SystemExit(f"the smoke test found {found!r}")
        print(found.strip())


def main() -> None:
    """All steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-smoke", action="store_true")
    options = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    for path in DIST.iterdir():
        path.unlink()
    first = build(DIST)
    with tempfile.TemporaryDirectory() as again:
        second = build(Path(again))
    if first != second:
        raise SystemExit(f"two builds differ: {first} and {second}")
    sums = "".join(f"{digest}  {name}\n" for name, digest in first.items())
    (DIST / "SHA256SUMS").write_text(sums, "utf-8")
    print(sums, end="")
    bill = [
        str(Path(sys.executable).with_name("cyclonedx-py")),
        *("requirements", "--output-reproducible", "--of", "JSON"),
        *("-o", str(DIST / "sbom.cdx.json"), str(ROOT / "constraints.txt")),
    ]
    subprocess.run(bill, check=True)
    if not options.no_smoke:
        smoke(next(DIST.glob("*.whl")))


if __name__ == "__main__":
    main()
