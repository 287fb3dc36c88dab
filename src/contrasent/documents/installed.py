"""The source files that installed distributions list as theirs, and the standard library's."""

# What was installed from a folder, an archive or a repository may be the user's own and private.

import site
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

# Folders whose documentation is not for the package's users, or is another package's.
PASSED_OVER = frozenset(
    {"test", "tests", "_tests", "idlelib", "lib2to3", "turtledemo", "_vendor", "_vendored"}
    | {"__pycache__", "site-packages", "dist-packages"}
)


def sources_below(folders: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """All sources below some folders, with the folder, in the order of their paths."""
    for folder in folders:
        root = folder.resolve()
        yield from ((root, path) for path in _walk(root))


def _walk(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # not ours to read
        return
    for path in entries:
        if path.is_symlink() or path.name.startswith("."):
            continue
        if path.is_dir():
            if path.name not in PASSED_OVER:
                yield from _walk(path)
        elif path.suffix == ".py":
            yield path


def installed_sources() -> Iterator[tuple[Path, Path]]:
    """All sources of the installed distributions and of the standard library, with their roots."""
    paths = sysconfig.get_paths()
    places = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    for folder in dict.fromkeys(Path(place).resolve() for place in places):
        if folder.is_dir():
            yield from ((folder, path) for path in sorted(_distributed(folder)))
    library = Path(paths["stdlib"])
    if library.is_dir():
        yield from sources_below([library])


def _distributed(folder: Path) -> set[Path]:
    """The sources in a site folder that its distributions list as their own."""
    found = set()
    within: dict[Path, bool] = {}
    for distribution in distributions(path=[str(folder)]):
        if _is_own(distribution):
            continue
        for listed in distribution.files or ():
            if listed.suffix != ".py" or PASSED_OVER.intersection(listed.parts):
                continue
            path = folder / listed
            if path.parent not in within:
                within[path.parent] = path.parent.resolve() == path.parent
            if within[path.parent] and path.is_file() and not path.is_symlink():
                found.add(path)
    return found


def _is_own(distribution: Distribution) -> bool:
    """Whether it came straight from a folder, an archive or a repository, not from an index."""
    # By PEP 610; conda's packages carry that file as well, for the machine that built them.
    installer = (distribution.read_text("INSTALLER") or "").strip()
    return distribution.read_text("direct_url.json") is not None and installer != "conda"
