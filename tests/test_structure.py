"""The package as a whole: what is imported when, its commands, its public names."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import zipfile
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import contrasent
from contrasent import engine
from contrasent.cli.app import PANELS
from contrasent.engine import registry
from contrasent.errors import MissingExtraError

HOME = Path(contrasent.__file__).parent
HEAVY = ("numpy", "torch", "transformers", "scipy", "pyarrow", "matplotlib", "sklearn", "fastapi")

SCRIPT = f"""
import io, json, sys
from contextlib import redirect_stdout

HEAVY = {HEAVY!r}
heavy = lambda: [name for name in HEAVY if name in sys.modules]

def call(*arguments):
    from contrasent.cli import main
    sys.argv = ["contrasent", *arguments]
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            main()
    except SystemExit as end:
        return [end.code, out.getvalue(), heavy()]

import contrasent
contrasent.progress.show("silent")  # without another import
stated = {{"import": heavy(), "help": call("--help"), "version": call("--version")}}
from contrasent.cli.app import app
names = [command.name for command in app.registered_commands]
stated["commands"] = {{name: call(name, "--help") for name in names}}
print(json.dumps(stated))
"""


@pytest.fixture(scope="module")
def stated():
    """The answers of a fresh interpreter."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_package_and_help_import_nothing_heavy(stated):
    code, text, heavy = stated["help"]
    assert (code, heavy) == (0, [])
    for name in stated["commands"]:
        assert f" {name} " in text
    code, text, heavy = stated["version"]
    assert (code, text, heavy) == (0, f"contrasent {contrasent.__version__}\n", [])
    assert stated["import"] == []


def test_every_command_helps(stated):
    bodies = [ast.parse(path.read_text("utf-8")).body for path in (HOME / "cli").glob("*.py")]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    # A command whose name is a keyword of Python has an underscore behind it in the code.
    written = {
        function.name.rstrip("_")
        for function in functions
        if "options.command" in map(ast.unparse, function.decorator_list)
    }
    assert written == set(stated["commands"])
    assert len(written) == sum(map(len, PANELS.values())) == 17
    for name, (code, text, heavy) in stated["commands"].items():
        assert (code, heavy) == (0, []), name
        assert f"contrasent {name}" in text and "--help" in text, name


@pytest.mark.parametrize("package", ["contrasent", "contrasent.engine", "contrasent.losses"])
def test_exports_lead_to_what_the_stub_says(package):
    module = import_module(package)
    tree = ast.parse(Path(module.__file__).with_name("__init__.pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert typed.keys() == set(module.__all__) - {"__version__"}
    assert len(typed) >= 20
    assert dir(module) == module.__all__ == sorted(module.__all__)
    for name, (home, attribute) in typed.items():
        assert getattr(module, name) is getattr(import_module(home), attribute)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
    assert (HOME / "py.typed").is_file()


def test_every_module_can_be_imported():
    """Those of optional packages too; they import them where they are used."""
    modules = sorted(
        ".".join(("contrasent", *path.relative_to(HOME).with_suffix("").parts))
        for path in HOME.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    )
    assert len(modules) >= 100
    for name in modules:
        try:
            module = import_module(name)
        except MissingExtraError as error:
            # An adapter subclasses its package's class, so it needs the package to be imported.
            assert name.startswith("contrasent.adapters.") and "pip install" in str(error)
            continue
        assert module.__doc__, name


def test_ci_runs_what_the_pages_name():
    """All tests, those that are marked slow by a command of their own."""
    root = Path(__file__).parents[1]
    ran = re.findall(r"^make (\S+)$", (root / ".ci" / "run").read_text("utf-8"), re.M)
    assert ran == ["check", "test-slow", "test"]
    for page, named in (("README.md", ["demo", "test"]), ("CONTRIBUTING.md", ["setup", *ran])):
        lines = re.findall(r"^make (\S+) +# .+$", (root / page).read_text("utf-8"), re.M)
        assert lines == named, page
    make = (root / "Makefile").read_text("utf-8")
    marks = dict(re.findall(r"^(test\S*): setup\n\t\$\(TESTS\) -m (.+)$", make, re.M))
    assert marks == {"test": "'not slow'", "test-slow": "slow"}


def test_main_is_the_same_command():
    import contrasent.__main__ as main
    from contrasent.cli import main as command

    assert main.main is command


def imports():
    """Which of our modules imports which, imports for type checkers included."""
    graph = grimp.build_graph("contrasent")
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_module_leans_on_itself():
    """Imports go in no ring, inside rooms too: modules can be put in an order."""
    found = imports()
    assert len(found) >= 150
    assert sum(map(len, found.values())) >= 1000
    sorter = TopologicalSorter(found)
    sorter.prepare()  # a CycleError names the ring


ENTRIES = {
    "retrieval": ("retrieval", "stsb_retrieval", "caption_retrieval", "folder_retrieval"),
}
"""Functions of ``evaluate`` on the reference page, by module; ``sts`` is exported."""


def exported():
    """The classes and functions that users import, by name."""
    from contrasent import engine, losses

    found = {name: getattr(contrasent, name) for name in contrasent.__all__}
    found |= {name: getattr(engine, name) for name in engine.__all__}
    found |= {name: getattr(losses, name) for name in losses.__all__}
    for path in (HOME / "objectives").glob("[!_]*.py"):
        module = import_module(f"contrasent.objectives.{path.stem}")
        for one in vars(module).values():
            if getattr(one, "__module__", "") == module.__name__ and one.__name__[0] != "_":
                found[one.__name__] = one
    for module, names in ENTRIES.items():
        home = import_module(f"contrasent.evaluate.{module}")
        found |= {name: getattr(home, name) for name in names}
    return {n: o for n, o in found.items() if inspect.isfunction(o) or inspect.isclass(o)}


def test_what_is_printed_passes_one_function():
    """Where a command prints by other means, nothing of it comes from outside."""
    places = {"cli/__init__.py": 1, "cli/app.py": 2, "cli/options.py": 4, "progress.py": 1}
    prints = re.compile(r"\btyper\.echo\b|\bstd(?:out|err)\.write\(")
    counts = {
        str(path.relative_to(HOME)): len(prints.findall(path.read_text("utf-8")))
        for path in HOME.rglob("*.py")
    }
    assert {name: count for name, count in counts.items() if count} == places


def test_exported_names_say_what_they_take():
    """Args of functions, and of constructors, that take two things or more."""
    seen, silent = 0, []
    for name, one in exported().items():
        if not one.__module__.startswith("contrasent."):
            continue
        text = inspect.getdoc(one) or ""
        assert text, name
        call = one if inspect.isfunction(one) else one.__init__
        if not inspect.isfunction(call):
            continue
        if len(inspect.signature(call).parameters.keys() - {"self", "args", "kwargs"}) < 2:
            continue
        seen += 1
        own = "__init__" in vars(one) if inspect.isclass(one) else True
        if own and not {"Args:", "Attributes:"} & set(text.split()):
            silent.append(name)
    assert silent == []
    assert seen >= 60


def test_exported_names_stand_in_an_example():
    """Each name that ``contrasent`` exports is used in a block of Python in the docs."""
    root = Path(__file__).parents[1]
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 12
    used = set(re.findall(r"\w+", "\n".join(blocks)))
    assert set(contrasent.__all__) - used - {"__version__"} == set()


def test_names_and_methods_are_found_in_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        for path in (p for p in HOME.rglob("*") if p.suffix in (".py", ".pyi")):
            archive.write(path, path.relative_to(HOME.parent))
    code = "from contrasent.engine import __all__, registry; print(len(__all__), *registry.METHODS)"
    given = os.environ | {"PYTHONPATH": str(tmp_path / "c.zip")}
    said = subprocess.check_output([sys.executable, "-c", code], env=given, cwd=tmp_path, text=True)
    assert said.split() == [str(len(engine.__all__)), *registry.METHODS]
