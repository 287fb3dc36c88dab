"""Small changes to the source that a test must catch: a sample of them, run by mutmut.

python -m tools.mutants [--number N] [--seed S] [PACKAGE ...]

Each package is changed in a copy below ``build/mutants``, and its own tests are run on each change.
Results stay there, so a run that is stopped continues; remove the folder to begin anew.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

PACKAGES = ("stats", "losses", "documents", "search", "adapt", "objectives")
HOME = Path("build") / "mutants"
CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/contrasent/{0}/*"]
also_copy = [
    "benchmarks", "docs", "research", "examples", "tools", "README.md", "CHANGELOG.md", "Makefile"
]
pytest_add_cli_args = ["-m", "not slow", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = ["tests/{0}"]
timeout_multiplier = 5.0
track_dependencies = false
use_git_change_detection = false
"""
GENERATE = """
from pathlib import Path
from mutmut import __main__ as mutmut
from mutmut.utils import file_utils
Path("mutants/mutants/src").mkdir(parents=True, exist_ok=True)  # where child processes look
for name in ("copy_src_dir", "copy_also_copy_files"):
    getattr(mutmut, name)()
mutmut.create_mutants(1)
# Which tests reach which function is noted in this process alone: others have no configuration
Path("mutants/src/sitecustomize.py").write_text('''import os

if os.environ.get("MUTANT_UNDER_TEST") == "stats":
    os.environ["MUTANT_UNDER_TEST"] = ""
''')
"""
CAUGHT = {"killed", "timeout", "segfault", "suspicious"}


def copied(package: str) -> Path:
    """The copy in which a package is changed."""
    folder = HOME / package
    if not folder.exists():
        names = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
        for name in filter(os.path.isfile, names.stdout.splitlines()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, folder / name)
        with (folder / "pyproject.toml").open("a") as stream:
            stream.write(CONFIG.format(package))
        subprocess.run([sys.executable, "-c", GENERATE], cwd=folder, check=True)
    return folder


def mutants(folder: Path) -> list[str]:
    """The names of all mutants of a copy."""
    metas = sorted((folder / "mutants" / "src").rglob("*.meta"))
    return [name for meta in metas for name in json.loads(meta.read_text())["exit_code_by_key"]]


def statuses(folder: Path) -> dict[str, str]:
    """What came of each mutant of a copy, by its name."""
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", "results", "--all", "true"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (line.strip().rpartition(": ") for line in done.stdout.splitlines())
    return {name: status for name, mark, status in pairs if mark}


def fails(folder: Path, package: str, marked: str, name: str) -> bool:
    """Whether tests of a package fail with a mutant; with none if its name is empty."""
    paths = str((folder / "mutants" / "src").resolve())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-xq", "-m", marked, f"tests/{package}"],
        cwd=folder / "mutants",
        env={**os.environ, "PYTHONPATH": paths, "MUTANT_UNDER_TEST": name},
        stdout=subprocess.DEVNULL,
    )
    return done.returncode not in (0, 5)  # 5: there are none


def run(folder: Path, package: str, names: list[str]) -> dict[str, str]:
    """Test mutants; those that the quick tests of this process do not reach or catch, by all."""
    environment = {**os.environ, "PYTHONPATH": str((folder / "mutants" / "src").resolve())}
    kept = folder / "statuses.json"
    found: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    left = [name for name in names if name not in found]
    if left and fails(folder, package, "slow", ""):
        raise SystemExit(f"tests/{package}: slow tests fail without a mutant")
    for start in range(0, len(left), 25):
        part = left[start : start + 25]
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", "2", *part]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)
        of = statuses(folder)
        for name in part:
            status = of.get(name, "no tests")
            if status not in CAUGHT:
                marks = ("not slow", "slow") if status == "no tests" else ("slow",)
                caught = any(fails(folder, package, marked, name) for marked in marks)
                status = "killed" if caught else "survived"
            found[name] = status
        kept.write_text(json.dumps(found, indent=1))
    return {name: found[name] for name in names}


def main() -> None:
    """Print a table of what was caught, and the mutants that survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(PACKAGES))
    parser.add_argument("--number", type=int, default=300, help="mutants of all packages together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folders = {package: copied(package) for package in options.packages or PACKAGES}
    every = [(package, name) for package, at in folders.items() for name in mutants(at)]
    chosen = random.Random(options.seed).sample(every, options.number)
    table, survived = [], []
    for package in folders:
        names = [name for other, name in chosen if other == package]
        found = run(folders[package], package, names)
        counts = Counter(status in CAUGHT for status in found.values())
        table.append((package, len(names), counts[True]))
        survived += [(package, name) for name, status in found.items() if status not in CAUGHT]
    print("| package | mutants | caught | share |\n| --- | ---: | ---: | ---: |")
    table.append(("all", sum(count for _, count, _ in table), sum(caught for *_, caught in table)))
    for package, count, caught in table:
        print(f"| {package} | {count} | {caught} | {caught / max(1, count):.0%} |")
    for package, name in survived:
        show = [sys.executable, "-m", "mutmut", "show", name]
        subprocess.run(show, cwd=folders[package], check=False)


if __name__ == "__main__":
    main()
