"""Sizes: lines of the source by room against their budgets, and installed megabytes by extra.

python -m tools.sizes
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
EXTRAS = tuple(
    "train lora parquet documents offline report serve onnx openvino milvus".split()  # noqa: SIM905
)
BUDGETS = {
    "objectives engine losses": 4250,
    "text": 2100,
    "encoder": 2550,
    "train": 2300,
    "model": 2350,
    "search nearest": 3500,
    "indexing": 1350,
    "documents": 2050,
    "adapt": 1550,
    "evaluate": 3000,
    "stats metrics report pictures postprocess": 1650,
    "datasets": 750,
    "reproduce": 2500,
    "serve": 1250,
    "encoding": 750,
    "adapters cli __init__ __main__": 3150,
    "elsewhere errors files parallel processes progress types": 950,
}
"""Lines of each group of packages and modules of ``src/contrasent``."""
TESTS = 27_500
MODULES = 180


def lines(*paths: Path) -> tuple[int, int]:
    """Lines of Python, and modules, at some paths."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    return sum(len(file.read_bytes().splitlines()) for file in files), len(files)


def show_lines() -> None:
    """Print lines and modules by room."""
    source = ROOT / "src" / "contrasent"
    print("| room | lines | budget | modules |\n| --- | ---: | ---: | ---: |")
    for names, budget in BUDGETS.items():
        paths = [path for name in names.split() for path in (source / name, source / f"{name}.py")]
        count, modules = lines(*paths)
        print(f"| {names.replace(' ', ', ')} | {count:,} | {budget:,} | {modules} |")
    count, modules = lines(source)
    print(f"| all of src | {count:,} | {sum(BUDGETS.values()):,} | {modules} of {MODULES} |")
    for name, most in (("tests", f"{TESTS:,}"), ("benchmarks", ""), ("tools", "")):
        count, modules = lines(ROOT / name)
        print(f"| {name} | {count:,} | {most} | {modules} |")


def closure(name: str, extras: frozenset[str], seen: dict[str, Distribution | None]) -> None:
    """Add a distribution and all that it requires to those seen; None for one not installed."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen and not extras:
        return
    try:
        found = distribution(name)
    except PackageNotFoundError:
        seen[key] = None
        return
    seen[key] = found
    for line in found.requires or ():
        wanted = Requirement(line)
        marked = wanted.marker
        if marked is None or any(marked.evaluate({"extra": e}) for e in (extras or {""})):
            inner = frozenset(wanted.extras)
            own = wanted.name.lower() == key
            if not own or inner - extras:
                closure(wanted.name, inner | extras if own else inner, seen)


def megabytes(found: Distribution) -> float:
    """Size of a distribution's files."""
    files = (Path(str(file.locate())) for file in found.files or ())
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def show_installed() -> None:
    """Print megabytes and packages of the library and of what each extra adds."""
    base: dict[str, Distribution | None] = {}
    closure("contrasent", frozenset(), base)
    total = sum(megabytes(d) for d in base.values() if d)
    print("| extra | megabytes | packages |\n| --- | ---: | ---: |")
    print(f"| without extras | {total:,.0f} | {len(base)} |")
    for extra in EXTRAS:
        more: dict[str, Distribution | None] = {}
        closure("contrasent", frozenset([extra]), more)
        added = {k: d for k, d in more.items() if k not in base}
        missing = [k for k, d in added.items() if d is None]
        size = sum(megabytes(d) for d in added.values() if d)
        note = f", without {', '.join(missing)}" if missing else ""
        print(f"| `{extra}` adds | {size:,.0f}{note} | {len(added)} |")


if __name__ == "__main__":
    show_lines()
    print()
    show_installed()
