"""The reference pages of the site, made from the code: commands, Python, settings, file formats.

    python -m tools.reference docs/reference

``make docs`` runs it before the site is built; nothing in that folder is written by hand.
"""

import ast
import inspect
import itertools
import json
import logging
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import griffe

from contrasent import elsewhere


class Page(NamedTuple):
    """A page of the Python reference."""

    file: str
    title: str
    names: str  # paths; after a colon the members to show, else all that have a docstring
    note: str = ""


class Entry(NamedTuple):
    """A name on a page, and which of its members are shown; all if empty."""

    page: Page
    path: str
    thing: Any
    members: tuple[str, ...]


PAGES = (
    Page("encoder", "Encoder", "contrasent.Encoder:load,encode,similarity,tokenize,count_tokens"),
    Page(
        "search-index",
        "Index",
        "contrasent.Index:build,open,save,add,update,remove,search,search_documents,every,"
        "matching,refreshed,close,dimension,metric,ranker,calibration,vectors,model,folder "
        "contrasent.search.index.Hit contrasent.search.ranking.Ranker:with_bm25",
    ),
    Page(
        "index-folder",
        "Index and search a folder",
        "contrasent.index_folder contrasent.search_index contrasent.evaluate_index "
        "contrasent.indexing.build.IndexResult",
    ),
    Page(
        "change",
        "Change an index",
        "contrasent.add_rows contrasent.remove_rows contrasent.change_model contrasent.sync_index "
        "contrasent.watch_index contrasent.indexing.following.SyncResult "
        "contrasent.indexing.changes.RemoveResult contrasent.indexing.models.open_index "
        "contrasent.search.opening.open_writer contrasent.search.writer.Writer:add,update,delete,"
        "delete_where,put_vectors,set,rewrite",
    ),
    Page(
        "adapt",
        "Adapt a search",
        "contrasent.adapt_index contrasent.update_adaptation contrasent.adapt.run.Adaptation",
    ),
    Page("serve", "Serve", "contrasent.serve_model"),
    Page(
        "fit",
        "Train",
        "contrasent.fit contrasent.train.run.Run contrasent.train.run.Gain "
        "contrasent.adapters.sentence_transformers.ObjectiveLoss",
    ),
    Page(
        "settings",
        "Settings",
        "contrasent.Settings",
        "Every setting, with its default and range, is on [Settings](../settings.md).",
    ),
    Page("corpus", "Corpora", "contrasent.open_corpus contrasent.text.corpus.Corpus"),
    Page(
        "evaluate",
        "Evaluate",
        "contrasent.evaluate_model contrasent.evaluate.suite.Options contrasent.sts "
        "contrasent.evaluate.retrieval.retrieval contrasent.evaluate.retrieval.stsb_retrieval "
        "contrasent.evaluate.retrieval.caption_retrieval "
        "contrasent.evaluate.retrieval.folder_retrieval contrasent.diff_models "
        "contrasent.evaluate.diff.Diff:change,to_json,lines",
    ),
    Page("report", "Report", "contrasent.Report contrasent.Row"),
    Page(
        "metrics",
        "Metrics",
        "contrasent.metrics:cosine,norms,normalize,rank,pearson,spearman,dcg_at_k,"
        "ndcg_at_k,alignment,uniformity,nearness,anisotropy,singular_values,effective_rank,"
        "neighbors,shared_share,rank_biased_overlap",
    ),
    Page(
        "objective",
        "Objective",
        "contrasent.engine.Objective contrasent.engine.ContrastObjective "
        "contrasent.engine.PairObjective",
    ),
    Page(
        "terms",
        "Terms of a loss",
        "contrasent.engine.Term contrasent.engine.BatchEncodings contrasent.engine.Contrast "
        "contrasent.engine.MomentumQueue contrasent.engine.MaskedLanguageModeling "
        "contrasent.engine.Barlow contrasent.engine.DimensionWise contrasent.engine.GradedPairs",
    ),
    Page("types", "Types", "contrasent:Vectors,EncodeFn,Tokens,Batch"),
    Page(
        "views",
        "Views",
        "contrasent.engine:View,Identity,InTemplate,make_views,check_view,random_for,Which,"
        "ResampleViews",
    ),
    Page(
        "networks",
        "Networks",
        "contrasent.engine.TorchEncoder:load,forward,encode,embed,add_layer,save,dimension,"
        "identity "
        "contrasent.engine:Prompts,Guide,MaskedModel,LanguageHead,copy_encoder,by_length",
    ),
    Page("parameters", "Parameters and processes", "contrasent.engine"),
    Page("losses", "Losses", "contrasent.losses"),
    Page(
        "errors",
        "Errors and progress",
        "contrasent.UserError contrasent.errors.InputError contrasent.errors.OptionError "
        "contrasent.errors.ModelError contrasent.errors.DataError contrasent.errors.OutputError "
        "contrasent.errors.TrainingError contrasent.errors.LostProcessError "
        "contrasent.errors.MissingExtraError contrasent.progress.show",
    ),
)
"""The pages of the Python reference. A module stands for its public names that no page has yet."""

MAIN = (
    "fit Encoder Index index_folder search_index adapt_index evaluate_model sts Settings Report "
    "engine.Objective open_corpus"
)
"""The names to begin with, below ``contrasent``: each has an example, which the tests run."""

KINDS = {bool: "", str: "text", Path: "path", int: "whole number", float: "number"}


def escape(text: str) -> str:
    """A text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ").strip()


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and its click command."""
    import typer

    from contrasent.cli.app import app

    group: Any = typer.main.get_command(app)
    yield from ((f"contrasent {name}", command) for name, command in group.commands.items())


def command_page() -> str:
    """``cli.md``."""
    found = list(commands())
    lines = [
        "# Commands",
        "",
        "Every command answers `--help`. Results go to standard output, progress and remarks to "
        "standard error. The exit status is 0 when the work is done, and 2 with one line on "
        "standard error when something given cannot be used. It is 1 when `doctor` or "
        "`train --check` finds a fault, 3 when `--require-improvement` or `--fail-over` "
        "is not met, and 130 after Ctrl-C.",
        "",
        "| command | what it does |",
        "| --- | --- |",
    ]
    for name, command in found:
        anchor = name.replace(" ", "-")
        lines.append(f"| [`{name}`](#{anchor}) | {escape(first_line(command.help))} |")
    for name, command in found:
        lines += ["", f"## {name}", "", textwrap.dedent(command.help or "").strip(), ""]
        kinds = ("argument", "option")
        arguments, given = ([p for p in command.params if p.param_type_name == k] for k in kinds)
        words = [p.metavar or str(p.name).upper() for p in arguments]
        lines += ["```text", " ".join([name, "[OPTIONS]", *words]), "```", ""]
        for title, those in zip(kinds, (arguments, given), strict=True):
            if those:
                lines += [f"| {title} | takes | default | |", "| --- | --- | --- | --- |"]
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


def settings_page() -> str:
    """``settings.md``: settings of a run, then the parameters of each method."""
    from contrasent.engine import registry
    from contrasent.train.settings import Settings, run_settings

    lines = [
        "# Settings",
        "",
        "A setting has one name everywhere: `--set NAME=VALUE`, the table `[settings]` of a "
        "[configuration](../training.md), `Settings(NAME=VALUE)`, and keyword arguments of "
        "`fit` in Python. [How settings are chosen](../methods.md) says what holds without them.",
        "",
        "The last two columns have the name in sentence-transformers or transformers, and the "
        "option of SimCSE's `train.py`. Their defaults may differ.",
        "",
        "## All methods",
        "",
    ]
    lines += _settings_table(run_settings(), attributes(Settings))
    for name in sorted(registry.summaries()):
        method = registry.find(name)
        lines += ["", f"## {name}", "", first_line(inspect.getdoc(method)), ""]
        if known := registry.parameters(name):
            lines += _settings_table(known, attributes(method), name)
        if published := registry.published(name):
            stated = ", ".join(f"`{key}={value}`" for key, value in published.items())
            lines += ["", f"Published settings: {stated}."]
    return "\n".join(lines) + "\n"


def _settings_table(
    known: dict[str, Any], described: dict[str, str], method: str = ""
) -> list[str]:
    from contrasent.engine.parameters import Range

    rows = [["name", "default", "range", "meaning", "sentence-transformers", "SimCSE"], ["---"] * 6]
    for name, parameter in known.items():
        kinds = " or ".join("none" if kind is None else kind.__name__ for kind in parameter.kinds)
        limits = str(parameter.mark(Range) or "").replace(f"{2**63:g}", "2^63")
        values = ", ".join(f"`{c}`" for c in parameter.choices) or kinds
        values += f", {limits}" if limits else ""
        default = {"": '""', "None": "none"}.get(str(parameter.default), parameter.default)
        common = elsewhere.SETTINGS.get(name, ("", ""))
        others = elsewhere.SETTINGS.get(f"{method}.{name}", common)
        rows.append([f"`{name}`", f"`{default}`", values, described.get(name, ""), *others])
    width = 6 if any(row[4] or row[5] for row in rows[2:]) else 4
    return [f"| {' | '.join(map(escape, row[:width]))} |" for row in rows]


def attributes(thing: Any) -> dict[str, str]:
    """What a docstring says of attributes and arguments, base classes included."""
    found: dict[str, str] = {}
    for kind in inspect.getmro(thing) if inspect.isclass(thing) else (thing,):
        for text in (kind.__doc__, getattr(vars(kind).get("__init__"), "__doc__", "")):
            for section in sections(text):
                if section.kind.value in ("attributes", "parameters"):
                    for one in section.value:
                        found.setdefault(one.name, tidy(one.description))
    return found


def sections(text: str | None) -> list[Any]:
    """A docstring's sections."""
    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    options = {"warnings": False, "warn_unknown_params": False}
    return griffe.Docstring(inspect.cleandoc(text or ""), lineno=1).parse("google", **options)


def tidy(text: str) -> str:
    """Sphinx's roles as Markdown's code, its equations and examples as blocks."""

    def equation(found: re.Match[str]) -> str:
        lines = (found[1] + (found[2] or "")).splitlines()
        return "\n".join(["```latex", *filter(None, map(str.strip, lines)), "```", ""])

    def example(found: re.Match[str]) -> str:
        return f"```python\n{textwrap.dedent(found[1]).strip()}\n```\n"

    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    block = r"((?:[^\S\n]+.+\n?|\n(?=[^\S\n]))+)"
    text = re.sub(rf"(?m)^\.\. math::\s*(.+\n?){block}?", equation, text)
    return re.sub(rf"(?m)^::\n\n{block}", example, text)


def described(text: str | None, types: Mapping[str, str], *leave: str) -> list[str]:
    """A docstring as Markdown: text and examples, then tables of what it takes and gives.

    ``leave``: kinds of sections to leave out.
    """
    first, then = list[str](), list[str]()
    for section in sections(text):
        kind = section.kind.value
        if kind in leave:
            continue
        if kind == "text":
            first += [tidy(section.value), ""]
        elif kind == "examples":
            for part, block in section.value:
                first += [*_code(block)] if part.value == "examples" else [tidy(block), ""]
        elif kind in ("parameters", "attributes"):
            rows = [
                (o.name, types.get(o.name.strip("*"), ""), o.description) for o in section.value
            ]
            then += table("argument" if kind == "parameters" else "attribute", rows)
        elif kind in ("returns", "yields"):
            told = " ".join(tidy(o.description) for o in section.value)
            then += [f"**{kind.capitalize()}:** {told}", ""]
        elif kind == "raises":
            then += ["**Raises:**", ""]
            then += [f"- `{o.annotation}`: {escape(tidy(o.description))}" for o in section.value]
            then += [""]
    return first + then


def table(title: str, rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Names, types and meanings; nothing without rows."""
    lines = [f"| {title} | type | |", "| --- | --- | --- |"]
    for name, kind, text in rows:
        kind = f"`{escape(kind)}`" if kind else ""
        lines.append(f"| `{name}` | {kind} | {escape(tidy(text))} |")
    return [*lines, ""] if len(lines) > 2 else []


def types_of(thing: Any) -> dict[str, str]:
    """Types of a function's arguments or a class's fields, as the source has them."""
    found: dict[str, str] = {}
    for kind in inspect.getmro(thing) if inspect.isclass(thing) else (thing,):
        if not kind.__module__.startswith("contrasent."):
            continue
        node: Any = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        if isinstance(node, ast.ClassDef):
            typed = [n for n in node.body if isinstance(n, ast.AnnAssign)]
            hints = [(ast.unparse(n.target), n.annotation) for n in typed]
        else:
            every = (*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            hints = [(n.arg, n.annotation) for n in every if n and n.annotation]
            hints += [("return", node.returns)] if node.returns else []
        for name, hint in hints:
            text = ast.unparse(hint).strip("'")
            found.setdefault(name, re.sub(r"^Annotated\[([^,]+),.*\]", r"\1", text))
    return found


def comments_of(thing: Any) -> dict[str, str]:
    """What comments say of a class's fields: beside them, or on the lines above."""
    found: dict[str, str] = {}
    above = ""
    for line in inspect.getsource(thing).splitlines():
        field = re.match(r"    (\w+): ", line)
        text = line.partition("# ")[2].strip()
        if field:
            found[field[1]] = text or above
        above = f"{above} {text}".strip() if line.strip().startswith("#") else ""
    return {name: text for name, text in found.items() if text}


def python_pages() -> dict[str, str]:
    """The pages of the Python reference by their paths below ``reference``."""
    shown = list(entries())
    places = {path: f"{page.file}.md#{slug(path, thing)}" for page, path, thing, _ in shown}
    pages = {"python/index.md": _overview(shown, places)}
    for page in PAGES:
        lines, aliases = list[str](), list[str]()
        for own, path, thing, members in shown:
            if own == page and is_alias(thing):
                aliases += [_alias_row(path)]
            elif own == page:
                lines += _entry(page, path, thing, members)
        if not lines or not lines[0].startswith("# "):
            lines = [f"# {page.title}", "", *lines]
        if aliases:
            lines += ["## Types", "", "| name | stands for | |", "| --- | --- | --- |", *aliases]
        pages[f"python/{page.file}.md"] = _linked("\n".join(lines) + "\n", places)
    return pages


def _overview(shown: list[Entry], places: dict[str, str]) -> str:
    things = {path: thing for _, path, thing, _ in shown}
    lines = [
        "# Python",
        "",
        "Importing `contrasent` takes no time: a name loads what it needs when it is first used. "
        "Everything on these pages is public and changes as [Versions](../../formats.md) says.",
        "",
        "## The main names",
        "",
        "| name | |",
        "| --- | --- |",
    ]
    for name in MAIN.split():
        path = f"contrasent.{name}"
        first = re.split(r"(?<=\.) ", first_line(things[path].__doc__))[0]
        lines.append(f"| [`{path}`]({places[path]}) | {escape(tidy(first))} |")
    lines += ["", "## All pages", "", "| page | names |", "| --- | --- |"]
    for page in PAGES:
        names = [path.rsplit(".", 1)[1] for own, path, _, _ in shown if own == page]
        listed = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| [{page.title}]({page.file}.md) | {listed} |")
    return "\n".join(lines) + "\n"


def entries() -> Iterator[Entry]:
    """The names of the Python reference, in order."""
    seen: set[tuple[str, int]] = set()
    for page in PAGES:
        for named in page.names.split():
            path, _, listed = named.partition(":")
            names = tuple(filter(None, listed.split(",")))
            for shown, thing in public(path, names):
                key = shown.rsplit(".", 1)[1], id(thing)
                if key not in seen:
                    seen.add(key)
                    yield Entry(page, shown, thing, names if shown == path else ())


def public(path: str, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """A name and what it stands for; for a module its public names, or those given."""
    home, _, name = path.rpartition(".")
    try:
        module = import_module(path)
    except ModuleNotFoundError:
        yield path, getattr(import_module(home), name)
        return
    for each in names or module.__all__:
        yield f"{path}.{each}", getattr(module, each)


def is_alias(thing: Any) -> bool:
    """True if a name stands for a type that is written otherwise, such as a ``Literal``."""
    return not (inspect.isclass(thing) or inspect.isfunction(thing))


def slug(path: str, thing: Any) -> str:
    """The anchor of an entry."""
    return "types" if is_alias(thing) else path.rsplit(".", 1)[1].lower()


def _linked(text: str, places: dict[str, str]) -> str:
    """Make links of the names, written as code with their paths, that have an entry."""

    def link(found: re.Match[str]) -> str:
        path = found[1]
        owner = path if path in places else path.rpartition(".")[0]
        name = path.removeprefix("contrasent.")
        return f"[`{name}`]({places[owner]})" if owner in places else found[0]

    return re.sub(r"(?<![\[`])`(contrasent\.[\w.]+)`", link, text)


def _alias_row(path: str) -> str:
    """A row about a type alias: its value, and the docstring below it or the comment beside it."""
    home, name = path.rsplit(".", 1)
    module = import_module(home)
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    source = stub.read_text("utf-8") if stub.is_file() else inspect.getsource(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and name in (alias.asname for alias in node.names):
            source = inspect.getsource(import_module(str(node.module)))
    tree = ast.parse(source)
    value = text = ""
    for node, after in itertools.pairwise([*tree.body, ast.Pass()]):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            value, line = ast.unparse(node.value), source.splitlines()[node.lineno - 1]
            text = line.partition("  # ")[2]
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
    return f"| `{name}` | `{escape(value)}` | {escape(tidy(text))} |"


def _entry(page: Page, path: str, thing: Any, members: tuple[str, ...]) -> list[str]:
    """A function, or a class with its attributes and methods."""
    home, name = path.rsplit(".", 1)
    level = "#" if page.title == name else "##"
    lines, code = [f"{level} {name}", ""], f"from {home} import {name}"
    if inspect.isfunction(thing):
        return [*lines, *_call(name, thing, code)]
    own, types = vars(thing), types_of(thing)
    made = own.get("__init__")
    takes = any(one.kind.value == "parameters" for one in sections(thing.__doc__))
    maker = any(isinstance(inspect.getattr_static(thing, m), classmethod) for m in members)
    if made is None or is_dataclass(thing) or maker or not (takes or made.__doc__):
        lines += [*_code(code), *described(thing.__doc__, types, "attributes", "parameters")]
    else:
        about = described(thing.__doc__, types | types_of(made), "attributes")
        lines += _call(name, made, code, about)
    if issubclass(thing, BaseException):
        return lines
    if page.note:
        lines += [page.note, ""]
    else:
        lines += table("attribute", _fields(thing, members or tuple(own), types))
    for member in members or own:
        value = inspect.getattr_static(thing, member)
        value = inspect.unwrap(getattr(value, "__func__", value))
        if member[0] != "_" and inspect.isfunction(value) and value.__doc__:
            lines += [f"{level}# {member}", "", *_call(member, value)]
    return lines


def _fields(
    thing: Any, members: tuple[str, ...], types: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Attributes: those of the docstring, all fields of a dataclass, and properties."""
    told: dict[str, str] = {}
    for section in sections(thing.__doc__):
        if section.kind.value == "attributes":
            told = {one.name: one.description for one in section.value}
    if is_dataclass(thing) or issubclass(thing, tuple):
        names = [f.name for f in fields(thing)] if is_dataclass(thing) else thing._fields
        told = dict.fromkeys(names, "") | comments_of(thing) | told
    for member in members:
        value = inspect.getattr_static(thing, member)
        if isinstance(value, property | cached_property) and member[0] != "_":
            getter: Any = value.fget if isinstance(value, property) else value.func
            told.setdefault(member, first_line(getter.__doc__))
            types.setdefault(member, types_of(getter).get("return", ""))
    yield from ((name, types.get(name, ""), text) for name, text in told.items())


def _call(name: str, function: Any, code: str = "", about: Sequence[str] = ()) -> list[str]:
    """A signature, which fills its lines, and the docstring, after that of a class."""
    parts, star = [], False
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
        star |= one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        text = str(one.replace(annotation=one.empty))
        if "<" in text or len(text) > 60:  # no text that Python reads
            text = f"{one.name}=..."
        parts.append(text.replace(" ", "\0"))
    flat = f"{name}({', '.join(parts)})"
    filled = textwrap.fill(flat, 92, subsequent_indent="    ", break_long_words=False)
    filled = f"{code}\n\n{filled}" if code else filled
    own = described(function.__doc__, types_of(function))
    return [*_code(filled.replace("\0", " ")), *about, *own]


def _code(text: str) -> list[str]:
    """A block of Python; what an example prints as comments, so that all can be copied."""
    shown = []
    for line in text.splitlines():
        if line.startswith((">>> ", "... ")):
            shown.append(line[4:])
        else:
            shown.append(f"# {line}" if ">>> " in text and line.strip() else line)
    return ["```python", *shown, "```", ""]


def formats_page(schemas: Path) -> str:
    """``formats.md``, from the JSON Schemas."""
    lines = [
        "# File formats",
        "",
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
    """Write all pages to a folder; ``schemas`` is that of the JSON Schemas."""
    pages = {
        "cli.md": command_page(),
        "settings.md": settings_page(),
        "formats.md": formats_page(schemas),
        **python_pages(),
    }
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in pages]


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")
    for page in write(target, target.parent / "schemas"):
        print(page)
