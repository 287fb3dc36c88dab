"""research/security.md names tests; each of them is there."""

import inspect
import re
from pathlib import Path

from contrasent import serve_model

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "research" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(set(named)) > 35
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", text, re.M), f"{path} has no {name}"

    assert re.findall(r"`(?:::)?test_\w+`", PAGE) == []  # none without its file


def test_the_command_line_and_benchmarks_named_exist():
    scripts = set(re.findall(r"benchmarks/\w+\.py", PAGE))
    assert scripts == {f"benchmarks/{name}.py" for name in ("attack", "fuzz", "server_load")}
    assert all((ROOT / path).is_file() for path in scripts)


def test_no_script_of_the_page_writes_html():
    page = ROOT / "src" / "contrasent" / "serve" / "page"
    script = "".join(path.read_text(encoding="utf-8") for path in page.glob("*.js"))
    ways = r"(inner|outer|set|Adjacent)HTML|document\.write|srcdoc|ContextualFragment|DOMParser"
    assert "textContent" in script and not re.search(ways, script)


def test_a_server_listens_on_this_machine_unless_told_otherwise():
    from contrasent.cli.serve import serve

    for function in (serve, serve_model):
        assert inspect.signature(function).parameters["host"].default == "127.0.0.1"
