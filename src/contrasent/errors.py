"""Every error that a user can correct."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from typing import Any

SHOWN = 300  # characters of a value that an error shows
HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
TRAINING = ("torch", "transformers", "huggingface_hub")
"""Packages that encoding and searching do without."""


class UserError(Exception):
    """An error that a user can correct; its message is one line that says how."""


class InputError(UserError):
    """A file that cannot be read, or a line of it that is invalid."""

    def __init__(self, path: str | Path, problem: str, *, line: int | None = None) -> None:
        where = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{where}: {problem}")
        self.path = str(path)
        self.line = line


class OptionError(UserError):
    """An option whose value is invalid."""

    def __init__(
        self, option: str, value: object, problem: str, *, choices: Iterable[str] = ()
    ) -> None:
        self.option = option
        self.value = value
        shape = getattr(value, "shape", None)
        shown = repr(value) if shape is None else f"{type(value).__name__} of shape {shape}"
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
        super().__init__(f"{option} {shown}: {problem}{suggestion(str(value)[:SHOWN], choices)}")


class ModelError(UserError):
    """A folder that is not a model, a name that cannot be resolved, or weights that do not fit."""


class DataError(UserError):
    """A named data set that is missing, or whose files are not the official ones."""


class OutputError(UserError):
    """A target that is full, read-only, or holds something that must not be lost."""


class TrainingError(UserError):
    """A training run that cannot start or continue."""


class LostProcessError(UserError):
    """Another process of a distributed training run ended, so that this one cannot continue."""


class MissingExtraError(UserError):
    """An optional package that is not installed; the message has the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs an extra; torch without CUDA."""
    index = " --extra-index-url https://download.pytorch.org/whl/cpu" if extra == "train" else ""
    return f"pip install 'contrasent[{extra}]'{index}"


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import an optional dependency, or a module of contrasent that needs one."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name if module.startswith("contrasent.") else module
        raise MissingExtraError(missing or module, extra, purpose) from error


def exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__all__``, ``__getattr__``, which loads a name on first use, and ``__dir__``.

    The names and their modules are those of the package's stub, which type checkers read.
    """
    stub = ast.parse(files(package).joinpath("__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    home = {alias.name: str(node.module) for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"the package {package} has no attribute {name!r}")
        try:
            return getattr(import_module(home[name]), name)
        except ModuleNotFoundError as error:
            missing = str(error.name).partition(".")[0]
            if missing not in TRAINING:
                raise
            raise MissingExtraError(missing, "train", f"{package}.{name}") from error

    names = sorted(home)
    return names, load, lambda: names


def see(anchor: str) -> str:
    """The end of a message about something that a section of the troubleshooting page explains."""
    return f" (docs/troubleshooting.md#{anchor})"


def brief(error: BaseException) -> str:
    """The first two lines of another library's message, as one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300] if lines else type(error).__name__


def check_choice(option: str, value: object, choices: Iterable[str]) -> None:
    """Reject a value that is none of the choices."""
    known = list(choices)
    if value not in known:
        raise OptionError(option, value, "unknown", choices=known)


def check_count(option: str, value: object) -> None:
    """Reject what is not a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise OptionError(option, value, "must be a whole number of at least 1")


def texts_of(option: str, given: Any) -> Sequence[str]:
    """Texts as a sequence; what holds others is an error, with its position."""
    if hasattr(given, "columns") or isinstance(given, Mapping):
        kind = f"a {type(given).__name__}"
        problem = "contains columns, not texts; pass one of them, such as frame['text']"
        raise OptionError(option, kind, problem)
    if isinstance(given, str):
        raise OptionError(option, given, "is one string; pass a list, such as ['a', 'b']")
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise OptionError(option, given, "is neither a text nor a sequence of texts")
    texts = given if isinstance(given, list | tuple) else list(given)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            what = (
                "a pair; encode each side separately" if isinstance(text, tuple) else "not a text"
            )
            raise OptionError(f"{option}[{place}]", text, f"is {what}")
        if not text.isascii() and HALF.search(text):
            problem = "contains a lone surrogate, which is not a character; remove it"
            raise OptionError(f"{option}[{place}]", text, problem)
    return texts


def suggestion(value: str, choices: Iterable[str]) -> str:
    """Return "; did you mean 'x'? (one of a, b, c)" for the choice nearest to a value, or ""."""
    known = sorted(choices)
    if not known:
        return ""
    names = {name.casefold(): name for name in known}
    near = [names[one] for one in get_close_matches(value.casefold(), names, n=1, cutoff=0.5)]
    listing = f"one of {', '.join(known)}"
    return f"; did you mean {near[0]!r}? ({listing})" if near else f"; {listing}"
