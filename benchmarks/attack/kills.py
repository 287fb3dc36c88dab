"""Kills of commands at random moments: what is left is the old or the new, and the rest follows."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.attack.bench import Bench, Process, contrasent, done, hits, notes, tiny_model
from benchmarks.attack.indexes import made_index, search

LONG = 300.0


def digests(folder: Path, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every file of a folder by its content, hidden ones too."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in but
    }


def killed(bench: Bench, command: Callable[[], object], whole: float) -> None:
    """Start a command and kill it at a moment of its time."""
    process = Process(command)
    process.wait(bench.draw.uniform(0, whole))
    process.kill()
    process.result(20)


def index(bench: Bench) -> None:
    """A build that is killed; the same command then makes the index."""
    model, source = tiny_model(bench.home / "model"), notes(bench.home / "notes")

    def build(target: Path) -> Callable[[], None]:
        return lambda: contrasent("index", source, "-o", target, "--model", model, "--quiet")

    whole = done(build(bench.home / "right"))
    right = hits(done(search(bench.home / "right")).out)
    for number in bench.numbers():
        target = bench.home / f"ix{number}"
        killed(bench, build(target), whole.seconds)
        if (target / "index.db").exists():
            bench.judge(f"kill {number}: search", Process(search(target)).result())
        again = bench.judge(f"kill {number}: again", Process(build(target)).result(LONG))
        found = bench.judge(f"kill {number}: search", Process(search(target)).result())
        if hits(found.out) != right:
            bench.fail("wrong answer", f"kill {number}", again.err + found.out + found.err)


def sync(bench: Bench) -> None:
    """A sync that is killed: the old answers or the new, and the new after another."""
    made, source = made_index(bench.home)
    (source / "note03.md").write_text("# Anew\n\nMy neighbour carried his violin.\n")
    old, new = hits(done(search(made)).out), bench.home / "new"
    shutil.copytree(made, new)
    whole = done(lambda: contrasent("index", new, "--sync", "--quiet"))
    right = hits(done(search(new)).out)
    for number in bench.numbers():
        copy = bench.home / f"copy{number}"
        shutil.copytree(made, copy)
        killed(bench, lambda: contrasent("index", copy, "--sync", "--quiet"), whole.seconds)  # noqa: B023
        found = bench.judge(f"kill {number}: search", Process(search(copy)).result())
        if hits(found.out) not in (old, right):
            bench.fail("wrong answer", f"kill {number}", found.out + found.err)
        bench.command(f"kill {number}: again", "index", copy, "--sync", "--quiet")
        found = bench.judge(f"kill {number}: search", Process(search(copy)).result())
        if hits(found.out) != right:
            bench.fail("wrong answer", f"kill {number}, synchronised", found.out + found.err)
        shutil.rmtree(copy)


CASES = {"kills of index": (index, 40), "kills of sync": (sync, 40)}
