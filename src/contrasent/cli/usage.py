"""Usage errors in one line, as every other error that a user can correct.

Typer prints the usage and a box around its message; :class:`Commands` raises a ``UserError``
instead, which says what is wrong, and which name is nearest or where to read on.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, cast

import typer
from typer.core import TyperGroup

from contrasent.errors import OptionError, UserError

# Typer exports one of the errors of its parser; what it derives from is the base of all of them.
USAGE = cast(type[Exception], typer.BadParameter.__base__)

WORDS = {"int_parsing": "must be a whole number", "float_parsing": "must be a number"}
"""Of a value that is of another type, by pydantic's name for it."""


class Commands(TyperGroup):
    """Commands by name, whose usage errors are one line; for ``typer.Typer(cls=...)``."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """See typer; the options before the command are parsed here."""
        with _one_line(None):
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        """See typer; the command's own options are parsed here."""
        with _one_line(ctx):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See typer."""
        name = args[0]
        known = self.get_command(ctx, name) is not None
        if known or ctx.resilient_parsing or name.startswith("-"):
            return super().resolve_command(ctx, args)
        more = _nearest(name, self.list_commands(ctx)) or f"see '{ctx.command_path} --help'"
        raise UserError(f"{name}: no such command; {more}")


@contextmanager
def _one_line(ctx: Any) -> Iterator[None]:
    """Make a ``UserError`` of what typer's parser refuses."""
    try:
        yield
    except USAGE as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no error: the help was requested
            raise
        raise _usage_error(error, ctx) from error


def _usage_error(error: Any, parent: Any) -> UserError:
    """What the parser refuses, in the words of this command line."""
    param, kind = getattr(error, "param", None), type(error).__name__
    more = f"see '{_command(error, parent)} --help'"
    if kind == "BadParameter" and param is not None:
        return _wrong_value(error)
    if kind == "MissingParameter" and param is not None:
        what = str(getattr(param, "help", None) or "").rstrip(".")
        problem = f"{_name(param)} is missing{f' ({what})' if what else ''}"
    elif kind == "NoSuchOption":
        option = str(error.option_name)
        options = [name for one in error.ctx.command.params for name in one.opts]
        more = _nearest(option, [name for name in options if name.startswith("--")]) or more
        problem = f"{option}: no such option"
    else:
        message = str(error.format_message()).rstrip(".")
        problem = message[:1].lower() + message[1:]
    return UserError(f"{problem}; {more}")


def _wrong_value(error: Any) -> UserError:
    """Of a value that is no number, or out of its range."""
    details = getattr(error.__cause__, "errors", None)
    if details is None:  # an older typer, whose message holds the value
        return UserError(f"{_name(error.param)}: {error.message}")
    first = details()[0]
    words = WORDS.get(first["type"]) or str(first["msg"]).replace("Input should", "must")
    return OptionError(_name(error.param), first["input"], words)


def _name(param: Any) -> str:
    """A parameter as the user writes it."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return "/".join(param.opts)


def _command(error: Any, parent: Any) -> str:
    """The command whose line it was, such as "contrasent train"."""
    if error.ctx is not None:
        return str(error.ctx.command_path)
    if parent is None:
        return "contrasent"
    return " ".join(filter(None, (parent.command_path, parent.invoked_subcommand)))


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?", or "" where nothing is near."""
    bare = {one.lstrip("-"): one for one in known}
    near = get_close_matches(name.lstrip("-"), bare, n=1)
    return f"did you mean {bare[near[0]]!r}?" if near else ""
