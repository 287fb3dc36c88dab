"""Reading a class from its source text, so that nothing heavy is imported: no torch here.

Names are followed through ``from ... import ...`` from file to file, packages that hand on names
included. Literals, types and the marks of :mod:`contrasent.engine.parameters` are evaluated; what
else a file does, is not.
"""

import ast
import builtins
import hashlib
import typing
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Union

from contrasent.engine.parameters import Parameter

HOME = Path(__file__).parents[1]
TYPES = ("int", "float", "str", "bool")


class SourceError(Exception):
    """What stands in a file cannot be read without running it; the message says what."""


@dataclass(frozen=True, slots=True)
class ClassSource:
    """A class as its source text has it."""

    file: Path
    node: ast.ClassDef

    @property
    def base(self) -> "ClassSource | None":
        """The first base class that can be found, or None."""
        for base in self.node.bases:
            found = _definition(self.file, base.id) if isinstance(base, ast.Name) else None
            if found is not None and isinstance(found[1], ast.ClassDef):
                return ClassSource(found[0], found[1])
        return None

    def derives_from(self, file: Path, name: str) -> bool:
        """Whether a class of that name in that file is among its bases."""
        base = self.base
        return base is not None and (
            (base.file == file and base.node.name == name) or base.derives_from(file, name)
        )

    def attribute(self, name: str, default: Any) -> Any:
        """What the class, or one of its bases, says of itself in its body."""
        for item in self.node.body:
            if isinstance(item, ast.Assign | ast.AnnAssign) and item.value is not None:
                target = item.targets[0] if isinstance(item, ast.Assign) else item.target
                if ast.unparse(target) == name:
                    return evaluate(item.value, self.file)
        return self.base.attribute(name, default) if self.base else default

    def parameters(self) -> dict[str, Parameter]:
        """The keyword-only parameters, and those of the base where ``**given`` passes them on."""
        return _parameters(self)


def classes(file: Path) -> list[ClassSource]:
    """The classes that a file defines, in order."""
    return [ClassSource(file, n) for n in _tree(file).body if isinstance(n, ast.ClassDef)]


def source_digest(file: Path) -> dict[str, str]:
    """What stands for the content of a method's file that is not this library's."""
    if file.is_relative_to(HOME):
        return {}
    return {"source_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def module_file(module: str, importer: Path, level: int = 0) -> Path | None:
    """The file of a module, found without importing it; None if there is none."""
    parts = module.split(".") if module else []
    if level:
        home = importer.parents[level - 1]
    elif parts[0] == HOME.name:
        home, parts = HOME, parts[1:]
    else:
        try:
            spec = find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        origin = spec.origin if spec else None
        return Path(origin) if origin and origin.endswith(".py") else None
    path = home.joinpath(*parts)
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return found if found.is_file() else None


def evaluate(node: ast.expr, file: Path) -> Any:
    """The value of an expression of literals, types and marks."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return _named(node.id, file)
        case ast.Attribute(value=ast.Name(id="typing")):
            return getattr(typing, node.attr)
        case ast.UnaryOp(op=ast.USub()):
            return -evaluate(node.operand, file)
        case ast.BinOp(op=ast.BitOr()):
            return Union[evaluate(node.left, file), evaluate(node.right, file)]  # noqa: UP007
        case ast.Subscript():
            return evaluate(node.value, file)[evaluate(node.slice, file)]
        case ast.Tuple():
            return tuple(evaluate(part, file) for part in node.elts)
        case ast.Dict() if None not in node.keys:
            keys = [evaluate(key, file) for key in node.keys if key is not None]
            return dict(zip(keys, (evaluate(v, file) for v in node.values), strict=True))
        case ast.Call():
            given = {k.arg: evaluate(k.value, file) for k in node.keywords if k.arg}
            return evaluate(node.func, file)(*(evaluate(a, file) for a in node.args), **given)
    raise SourceError(f"line {node.lineno}: {ast.unparse(node)!r} cannot be read without torch")


def _named(name: str, file: Path) -> Any:
    found = _definition(file, name)
    if found is None:
        if name in TYPES:
            return getattr(builtins, name)
        raise SourceError(f"{name!r} is neither a type nor imported by its name")
    home, node = found
    if isinstance(node, ast.Assign) and node.value is not None:
        return evaluate(node.value, home)
    if home.is_relative_to(HOME) and isinstance(node, ast.FunctionDef | ast.ClassDef):
        # A check or a mark, in one of our modules that need no torch.
        inside = home.relative_to(HOME).with_suffix("").parts
        return getattr(import_module(".".join((HOME.name, *inside))), name)
    if home.name == "typing.py":
        return getattr(typing, name)
    raise SourceError(f"{name!r} cannot be read without running {home.name}")


def _definition(file: Path, name: str) -> tuple[Path, ast.stmt] | None:
    """Where a name that a file uses is defined, and its definition; None if it cannot be found."""
    for node in _statements(_tree(file)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return file, node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return file, node
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    if node.module == "typing":
                        return Path("typing.py"), node
                    home = module_file(node.module or "", file, node.level)
                    return _definition(home, alias.name) if home else None
    return None


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """Statements of a module, those under ``if TYPE_CHECKING`` too."""
    inside = [s for n in tree.body if isinstance(n, ast.If) for s in n.body]
    return [*tree.body, *inside]


def _tree(file: Path) -> ast.Module:
    try:
        return _parsed(file.read_text("utf-8"))
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
        raise SourceError(f"{line}not valid Python ({error})") from error


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@lru_cache(maxsize=64)
def _parameters(source: ClassSource) -> dict[str, Parameter]:
    function = next(
        (n for n in source.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"),
        None,
    )
    if function is None:
        return source.base.parameters() if source.base else {}
    found = source.base.parameters() if function.args.kwarg and source.base else {}
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if argument.annotation is None or default is None:
            raise SourceError(f"the parameter {argument.arg} needs a type and a default")
        problem = "must be int, float, str, bool, None, a Literal, or Annotated from these"
        try:
            hint = evaluate(argument.annotation, source.file)
        except SourceError as error:
            text = f"the type of the parameter {argument.arg} {problem} ({error})"
            raise SourceError(text) from error
        parameter = Parameter(argument.arg, hint, evaluate(default, source.file))
        if not set(parameter.kinds) <= {int, float, str, bool, None}:
            raise SourceError(f"the type of the parameter {argument.arg} {problem}")
        found = found | {argument.arg: parameter}
    return found
