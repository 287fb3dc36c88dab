"""The reference pages of the site, made from the code: commands, Python, settings, file formats.

    python -m tools.reference docs/reference

``make docs`` runs it before the site is built; nothing in that folder is written by hand.
"""

import inspect
import json
import logging
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import griffe

PYTHON = {
    "Start": (
        "contrasent.Encoder contrasent.Index contrasent.fit contrasent.Settings "
        "contrasent.open_corpus contrasent.adapt_index contrasent.update_adaptation "
        "contrasent.adapt.run.Adaptation"
    ),
    "Measure": (
        "contrasent.sts contrasent.evaluate.suite contrasent.evaluate.compare "
        "contrasent.evaluate.retrieval "
        "contrasent.Report contrasent.Row contrasent.metrics"
    ),
    "Train": (
        "contrasent.train.prepare.prepare contrasent.train.settings.resolve_settings "
        "contrasent.train.run.Run contrasent.adapters.sentence_transformers.ObjectiveLoss"
    ),
    "Search": (
        "contrasent.search.opening.open_index contrasent.search.opening.open_writer "
        "contrasent.search.opening.resolve_index contrasent.search.opening.numbered_rows "
        "contrasent.search.writer.Writer contrasent.search.ranking.Ranker "
        "contrasent.search.words.Bm25 contrasent.indexing.contents.near_duplicates"
    ),
    "Losses": "contrasent.losses",
    "Methods": "contrasent.engine",
    "Types and errors": ("contrasent.Tokens contrasent.Batch contrasent.types contrasent.errors"),
}
"""Sections of the Python page. A module stands for its public names."""

KINDS = {bool: "", str: "text", Path: "path", int: "whole number", float: "number"}


def escape(text: str) -> str:
    """A text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ").strip()


# ---------------------------------------------------------------------------- commands


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and its click command, groups opened."""
    import typer

    from contrasent.cli.app import app

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if hasattr(command, "commands"):
            for each, below in command.commands.items():
                yield from walk(f"{name} {each}", below)
        else:
            yield name, command

    yield from walk("contrasent", typer.main.get_command(app))


def command_page() -> str:
    """``cli.md``."""
    found = list(commands())
    lines = ["# Commands", ""]
    lines += [
        "Every command answers `--help`. It exits with 0 when it has done its work, with 2 and one "
        "line on standard error when something given to it cannot be used, and with 130 after "
        "Ctrl-C. What a command finds goes to standard output, progress and remarks to standard "
        "error.",
        "",
    ]
    lines += ["| command | what it does |", "| --- | --- |"]
    for name, command in found:
        anchor = name.replace(" ", "-")
        lines.append(f"| [`{name}`](#{anchor}) | {escape(first_line(command.help))} |")
    for name, command in found:
        lines += ["", f"## {name}", "", textwrap.dedent(command.help or "").strip(), ""]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        usage = " ".join(
            [name, "[OPTIONS]", *(p.metavar or str(p.name).upper() for p in arguments)]
        )
        lines += ["```text", usage, "```", ""]
        for title, those in (("Argument", arguments), ("Option", options)):
            if not those:
                continue
            lines += [f"| {title.lower()} | takes | default | |", "| --- | --- | --- | --- |"]
            lines += [_parameter_row(p) for p in those if p.name != "help" and not p.hidden]
            lines.append("")
    return "\n".join(lines) + "\n"


def _parameter_row(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    names = [parameter.metavar or parameter.name.upper()] if argument else parameter.opts
    shown = ", ".join(f"`{n}`" for n in sorted(names, key=len))
    kind = parameter.type_descriptor.annotation
    several = get_origin(kind) is list
    kind = get_args(kind)[0] if several else kind
    kind = KINDS.get(kind, getattr(kind, "__name__", str(kind)))
    if parameter.metavar and not argument:
        kind = f"`{parameter.metavar}`"
    kind = f"{kind}, repeated" if several and kind else kind
    default = parameter.default
    empty = default is None or default is False or default == [] or callable(default)
    given = "required" if parameter.required else "" if empty else f"`{default}`"
    return f"| {shown} | {escape(kind)} | {given} | {escape(parameter.help or '')} |"


def first_line(text: str | None) -> str:
    """The first paragraph of a help text."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


# ---------------------------------------------------------------------------- settings


def settings_page() -> str:
    """``settings.md``: settings of a run, then the parameters of each method."""
    from contrasent.engine import registry
    from contrasent.train.settings import Settings, run_settings

    lines = [
        "# Settings",
        "",
        "One name everywhere: `--set name=value`, the table `[settings]` of a "
        "[recipe](../training.md), `Settings(name=value)` and keyword arguments of a method in "
        "Python. What is not given is chosen by one rule ([Methods](../methods.md)).",
        "",
        "## Of a run",
        "",
    ]
    lines += _settings_table(run_settings(), attributes(Settings))
    for name in sorted(registry.summaries()):
        method = registry.methods(name)[0]
        known = registry.parameters(name)
        lines += ["", f"## {name}", "", first_line(inspect.getdoc(registry.find(name))), ""]
        if known:
            lines += _settings_table(known, attributes(registry.find(name)))
        published = registry.published(name)
        if published:
            stated = ", ".join(f"`{key}={value}`" for key, value in published.items())
            lines += ["", f"Published settings: {stated}."]
        del method
    return "\n".join(lines) + "\n"


def _settings_table(known: dict[str, Any], described: dict[str, str]) -> list[str]:
    from contrasent.engine.parameters import Range

    lines = ["| name | values | default | |", "| --- | --- | --- | --- |"]
    for name, parameter in known.items():
        kinds = " or ".join("none" if kind is None else kind.__name__ for kind in parameter.kinds)
        limits = parameter.mark(Range)
        values = ", ".join(f"`{c}`" for c in parameter.choices) or kinds
        values += f", {limits}" if limits else ""
        default = "none" if parameter.default is None else parameter.default
        text = escape(described.get(name, ""))
        lines.append(f"| `{name}` | {escape(values)} | `{default}` | {text} |")
    return lines


# ---------------------------------------------------------------------------- Python


def attributes(thing: Any) -> dict[str, str]:
    """What a docstring says of attributes and arguments, base classes included."""
    found: dict[str, str] = {}
    kinds = inspect.getmro(thing) if inspect.isclass(thing) else (thing,)
    for kind in kinds:
        for section in sections(kind.__doc__):
            if section.kind.value in ("attributes", "parameters"):
                for one in section.value:
                    found.setdefault(one.name, tidy(one.description))
        initialize = vars(kind).get("__init__") if inspect.isclass(kind) else None
        if initialize is not None:
            for section in sections(initialize.__doc__):
                if section.kind.value == "parameters":
                    for one in section.value:
                        found.setdefault(one.name, tidy(one.description))
    return found


def sections(text: str | None) -> list[Any]:
    """A docstring's sections."""
    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    options = {"warnings": False, "warn_unknown_params": False}
    return griffe.Docstring(inspect.cleandoc(text or ""), lineno=1).parse("google", **options)


def tidy(text: str) -> str:
    """Sphinx's roles as Markdown's code."""
    import re

    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def described(text: str | None) -> list[str]:
    """A docstring as Markdown."""
    lines: list[str] = []
    for section in sections(text):
        kind = section.kind.value
        if kind == "text":
            lines += [tidy(section.value), ""]
        elif kind == "admonition":
            lines += [tidy(section.value.contents), ""]
        elif kind in ("parameters", "attributes"):
            lines += ["| name | |", "| --- | --- |"]
            lines += [f"| `{o.name}` | {escape(tidy(o.description))} |" for o in section.value]
            lines.append("")
        elif kind in ("returns", "yields"):
            told = " ".join(escape(tidy(o.description)) for o in section.value)
            lines += [f"**{kind.capitalize()}** {told}", ""]
        elif kind == "raises":
            told = "; ".join(
                f"`{o.annotation}`: {escape(tidy(o.description))}" for o in section.value
            )
            lines += [f"**Raises** {told}", ""]
        elif kind == "examples":
            for part, text_ in section.value:
                fenced = part.value == "examples"
                lines += ["```python", text_, "```", ""] if fenced else [tidy(text_), ""]
    return lines


def python_page() -> str:
    """``python.md``."""
    lines = ["# Python", ""]
    lines += [
        "What is listed here is public: it changes as [versions](../formats.md) says. Names "
        "load what they need on first use; importing `contrasent` costs nothing.",
    ]
    seen: set[int] = set()
    for title, names in PYTHON.items():
        lines += ["", f"## {title}"]
        for path in names.split():
            for shown, thing in public(path):
                if id(thing) not in seen:
                    seen.add(id(thing))
                    lines += _entry(shown, thing)
    return "\n".join(lines) + "\n"


def public(path: str) -> Iterator[tuple[str, Any]]:
    """A name and what it stands for; for a module its public names."""
    from importlib import import_module

    home, _, name = path.rpartition(".")
    try:
        module = import_module(path)
    except ModuleNotFoundError:
        yield path, getattr(import_module(home), name)
        return
    given = getattr(module, "__all__", None)
    names = given or [
        n
        for n, v in vars(module).items()
        if not n.startswith("_") and getattr(v, "__module__", None) == module.__name__
    ]
    for each in sorted(names):
        yield f"{path}.{each}", getattr(module, each)


def _entry(name: str, thing: Any) -> list[str]:
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return []
    lines = ["", f"### {name}", "", "```text", _signature(name.rsplit(".", 1)[1], thing), "```", ""]
    lines += described(thing.__doc__)
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        if "__init__" in vars(thing) and thing.__init__.__doc__:
            lines += described(thing.__init__.__doc__)
        own = vars(thing)
        for method, value in {**own, **dict(inspect.getmembers(thing))}.items():
            wrapped = inspect.unwrap(getattr(own.get(method, value), "__func__", value))
            if method.startswith("_") or not inspect.isfunction(wrapped) or not wrapped.__doc__:
                continue
            if method not in own and "Args:" not in wrapped.__doc__:  # of a base class, for itself
                continue
            lines += ["", "```text", _signature(method, wrapped), "```", ""]
            lines += described(wrapped.__doc__)
    return lines


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parts = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        star |= parameter.kind is parameter.VAR_POSITIONAL
        text = str(parameter.replace(annotation=inspect.Parameter.empty))
        parts.append(text)
    flat = f"{name}({', '.join(parts)})"
    if len(flat) <= 96:
        return flat
    return f"{name}(\n    " + ",\n    ".join(parts) + ",\n)"


# ---------------------------------------------------------------------------- formats


def formats_page(schemas: Path) -> str:
    """``formats.md``, from the JSON Schemas."""
    lines = ["# File formats", ""]
    lines += [
        "What commands print with `--json` and what folders hold, each as a "
        "[JSON Schema](https://json-schema.org) (draft 2020-12) that the tests check real output "
        "against. Readers should ignore keys that they do not know: a minor version may add some "
        "([versions](../formats.md)).",
    ]
    for path in sorted(schemas.glob("*.json")):
        schema = json.loads(path.read_text("utf-8"))
        lines += ["", f"## {schema['title']}", "", schema["description"], ""]
        lines += [f"Schema: [{path.name}](../schemas/{path.name})", ""]
        lines += list(_properties(schema))
    return "\n".join(lines) + "\n"


def _properties(schema: dict[str, Any]) -> Iterator[str]:
    rows = schema.get("items", schema) if schema.get("type") == "array" else schema
    yield "| key | type | |"
    yield "| --- | --- | --- |"
    required = set(rows.get("required", ()))
    for name, one in rows.get("properties", {}).items():
        kind = one.get("type", "any" if "enum" not in one else "")
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        kind = ", ".join(map(json.dumps, one["enum"])) if "enum" in one else kind
        note = one.get("description", "") + ("" if name in required else " (may be missing)")
        yield f"| `{name}` | {escape(kind)} | {escape(note)} |"


def write(folder: Path, schemas: Path) -> list[Path]:
    """Write all pages.

    Args:
        folder: where they go.
        schemas: folder of the JSON Schemas.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "cli.md": command_page(),
        "settings.md": settings_page(),
        "python.md": python_page(),
        "formats.md": formats_page(schemas),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in pages]


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")
    for page in write(target, target.parent / "schemas"):
        print(page)
