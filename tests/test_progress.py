"""Progress: lines when piped, a bar on a terminal, silence on request or when it is quick."""

import errno
import io
import sys
from contextlib import redirect_stderr

import pytest

from contrasent import progress


class Clock:
    """Time that passes when ``now`` is set."""

    now = 100.0

    def monotonic(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    progress.show("auto")
    yield clock
    progress.show("silent")


def test_silent_by_default(capsys):
    assert progress._mode == "silent"
    with progress.task("train", 10) as advance:
        advance(10, loss=1.0)
    assert capsys.readouterr() == ("", "")


def test_lines_when_piped(clock, capsys):
    with progress.task("train", 1000, "sentences", start=200) as advance:
        advance(100, loss=0.5)  # too early
        clock.now += 1.9
        advance(100, loss=0.4)
        clock.now += 0.2
        advance(10, loss=0.123456, best=0.8125, name="x")
        clock.now += 9.9
        advance(10)  # too early again
        clock.now += 0.2
        advance(80)
    lines = capsys.readouterr().err.splitlines()
    # 210 of the 800 that were left took 2.1 seconds.
    assert lines == [
        "train: 410/1,000 sentences, 6 s left, 100.0 sentences/s, loss 0.1235, best 0.8125, name x",
        "train: 500/1,000 sentences, 20 s left, 24.6 sentences/s",
    ]


def test_lines_that_cannot_be_written_end_no_work(clock, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    with progress.task("train", 10) as advance:
        clock.now += 3
        advance(10)


def test_slow_work_and_work_without_a_total(clock, capsys):
    """Nothing is promised before a unit is done."""
    with progress.task("reproduce", 276, "jobs", start=6) as advance:
        clock.now += 4
        advance(0)
        clock.now += 36
        advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "reproduce: 6/276 jobs",
        "reproduce: 7/276 jobs, 10760 s left, 40 s each",
    ]
    with progress.task("tokenize", unit="rows") as advance:
        clock.now += 4
        advance(2000)
    assert capsys.readouterr().err == "tokenize: 2,000 rows, 500.0 rows/s\n"


def test_quick_work_says_nothing_and_silence_is_kept(clock, capsys):
    for how, seconds in (("auto", 0), ("silent", 50)):
        progress.show(how)
        with progress.task("encode", 3) as advance:
            for _ in range(3):
                clock.now += seconds
                advance()
        assert capsys.readouterr() == ("", "")


def test_the_outer_of_two_tells(clock, capsys):
    with progress.task("train", 10) as outer:
        with progress.task("encode", 10) as inner:
            clock.now += 5
            inner()
        outer()
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["train"]
    # After an error the next one tells again.
    with pytest.raises(ValueError, match="stop"), progress.task("one", 1):
        raise ValueError("stop")
    with progress.task("two", 1) as advance:
        clock.now += 5
        advance()
    assert capsys.readouterr().err.startswith("two: 1/1")


def test_a_bar_on_a_terminal(clock, monkeypatch):
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(screen), progress.task("train", 10, "steps") as advance:
        advance(1, loss=0.5)
        assert screen.getvalue() == ""
        clock.now += 3
        advance(2, loss=0.25)
    text = screen.getvalue()
    assert "train" in text and "loss 0.25" in text
    assert text.rstrip(" \r\n").endswith(("\x1b[2K", "\x1b[?25h"))  # nothing of it remains
