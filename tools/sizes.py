"""Installed megabytes of the library and of what each extra adds, from what is installed here.

python -m tools.sizes
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = tuple(
    "train lora parquet documents offline report serve onnx openvino milvus".split()  # noqa: SIM905
)


def closure(name: str, extras: frozenset[str], seen: dict[str, Distribution | None]) -> None:
    """Add a distribution and all that it requires.

    Args:
        name: of the distribution.
        extras: of it that are wanted.
        seen: distributions by name; None for one that is not installed.
    """
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
            if wanted.name.lower() != key or inner - extras:
                closure(
                    wanted.name, inner | (extras if wanted.name.lower() == key else inner), seen
                )


def megabytes(found: Distribution) -> float:
    """Size of a distribution's files."""
    files = (Path(str(file.locate())) for file in found.files or ())
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def main() -> None:
    """Print the table."""
    base: dict[str, Distribution | None] = {}
    closure("contrasent", frozenset(), base)
    total = sum(megabytes(d) for d in base.values() if d)
    print("| extra | megabytes | packages |")
    print("| --- | ---: | ---: |")
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
    main()
