"""docs/security.md names tests; each of them is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_is_named_exists():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(set(named)) > 35
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", text, re.M), f"{path} has no {name}"


def test_no_test_is_named_without_its_file():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert re.findall(r"`(?:::)?test_\w+`", page) == []


def test_the_command_line_and_benchmarks_named_exist():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    scripts = set(re.findall(r"benchmarks/\w+\.py", page))
    assert scripts == {"benchmarks/fuzz.py", "benchmarks/server_load.py"}
    assert all((ROOT / path).is_file() for path in scripts)
