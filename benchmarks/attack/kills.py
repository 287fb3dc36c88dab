"""Kills of commands at random moments: what is left is the old or the new, and the rest follows."""

import hashlib
import shutil
import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

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
    (source / "note03.md").write_text("# Anew\n\nMy neighbor carried his violin.\n")
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
            bench.fail("wrong answer", f"kill {number}, synchronized", found.out + found.err)
        shutil.rmtree(copy)


def rows(text: str) -> list[Any]:
    """The hits of a search whatever the order of the index's rows, in which sums are rounded."""
    found = hits(text)
    if isinstance(found, str):
        return [[found]]
    return [sorted((name, text, Score(score)) for name, text, score in some) for some in found]


class Score(float):
    """A score that equals another up to rounding."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(float(self) - float(other)) < 1e-4

    __hash__ = float.__hash__


def watch(bench: Bench) -> None:
    """A watch that is killed while documents change; a sync then leads to the new answers."""
    made, source = made_index(bench.home)
    texts = {path: path.read_text() for path in source.iterdir()}
    for number in bench.numbers():
        copy, fresh = bench.home / f"copy{number}", bench.home / f"fresh{number}"
        shutil.copytree(made, copy)
        watching = Process(lambda: contrasent("index", copy, source, "--watch", "--quiet"))  # noqa: B023
        ends = time.monotonic() + bench.draw.uniform(0.2, 3)
        while time.monotonic() < ends:
            path = bench.draw.choice(sorted(texts))
            path.write_text(f"# Anew {bench.draw.random()}\n\nMy neighbor hid a torn map.\n")
            time.sleep(bench.draw.uniform(0, 0.3))
        if watching.ended():
            bench.fail("watch ended", f"kill {number}", watching.output(2))
        watching.kill()
        watching.result()
        bench.judge(f"kill {number}: search", Process(search(copy)).result())
        shutil.copytree(made, fresh)
        said = [
            bench.command(f"kill {number}: sync", "index", target, source, "--sync").out
            for target in (copy, fresh)
        ]
        found, right = (Process(search(target)).result() for target in (copy, fresh))
        if differences := [
            f"{one} instead of {other}"
            for some, others in zip(rows(found.out), rows(right.out), strict=False)
            for one, other in zip_longest(some, others)
            if one != other
        ]:
            detail = "\n".join([found.err, *said, *differences[:5]])
            bench.fail("wrong answer", f"kill {number}", detail)
        for path, text in texts.items():
            path.write_text(text)
        shutil.rmtree(copy)
        shutil.rmtree(fresh)


def learned(bench: Bench) -> tuple[Path, Path]:
    """A model and a file of sentences; what learning imports is imported."""
    model, lines = tiny_model(bench.home / "model"), bench.home / "lines.txt"
    import torch

    import contrasent.evaluate.validation
    import contrasent.train.fit  # noqa: F401
    from tiny_models import made_sentences

    torch.set_num_threads(1)
    lines.write_text("\n".join(made_sentences()[:200]) + "\n")
    return model, lines


def same_in_the_end(
    bench: Bench,
    command: Callable[[Path], Callable[[], None]],
    again: Callable[[Path], Callable[[], None]],
    content: Callable[[Path], object],
) -> None:
    """A command that is killed, perhaps twice, and then goes on: its folder is as if it had not."""
    whole = bench.home / "whole"
    seconds = done(command(whole)).seconds
    right = content(whole)
    for number in bench.numbers():
        target = bench.home / f"killed{number}"
        killed(bench, command(target), seconds)
        if number % 2:
            killed(bench, again(target), seconds)
        last = bench.judge(f"kill {number}: again", Process(again(target)).result(LONG))
        if last.status or content(target) != right:
            bench.fail("not the same", f"kill {number}", last.out + last.err)
        shutil.rmtree(target, ignore_errors=True)


def train(bench: Bench) -> None:
    """Training, resumed: the same bits."""
    model, lines = learned(bench)
    settings = {"max_steps": 30, "batch_size": 8, "save_steps": 4, "eval_steps": 10}
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]

    def command(target: Path, *more: str) -> Callable[[], None]:
        named = ("train", lines, "-o", target, "--base", model, "--evaluate", "neighbors")
        return lambda: contrasent(*named, *given, "--quiet", *more)

    same_in_the_end(
        bench, command, lambda target: command(target, "--resume"),
        lambda folder: digests(folder, ("result.json", "report.html")),  # which have times
    )  # fmt: skip


def export(bench: Bench) -> None:
    """An export; the same command makes it."""
    model, _ = learned(bench)
    import onnxruntime  # noqa: F401

    def command(target: Path, *more: str) -> Callable[[], None]:
        return lambda: contrasent("export", model, "--to", "onnx", "-o", target, "--quiet", *more)

    same_in_the_end(bench, command, lambda target: command(target, "--overwrite"), digests)


def adapt(bench: Bench) -> None:
    """An adaptation, resumed: the same answers."""
    model, _ = learned(bench)
    source = notes(bench.home / "notes", 60)

    def command(target: Path, *more: str) -> Callable[[], None]:
        return lambda: contrasent("adapt", source, "-o", target, "--model", model, "--quiet", *more)

    same_in_the_end(
        bench, command, lambda target: command(target, "--resume"),
        lambda folder: hits(done(search(folder)).out),
    )  # fmt: skip


CASES = {
    f"kills of {function.__name__}": (function, 40)
    for function in (index, sync, watch, adapt, export, train)
}
