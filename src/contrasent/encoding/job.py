"""A job: an input, a model and a folder, divided into shards that know nothing of one another.

A shard is one parquet file, there as a whole or not at all, whose footer names its job and texts;
a resumed run lists the folder and makes what is missing, in any order.
"""

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from contrasent.encoding.inputs import Folder, Part, ShardPlan, open_binary
from contrasent.encoding.shards import GROUP, TableWriter, read_facts
from contrasent.errors import InputError, ModelError, OptionError, OutputError, UserError
from contrasent.files import encoded
from contrasent.types import EncodeFn, batched

NAME = "manifest.json"
FORMAT, SHARD_FORMAT = "contrasent-vectors", "contrasent-shard"
CALL = 4096  # texts a call of the model, and between two signs of life

Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``manifest.json``."""

    # what decides the vectors, such as the model's identity; resumed only if equal
    facts: dict[str, Any]
    dimension: int
    # of each shard: its file's name, its rows, and a hash of the texts that it was made of
    shards: Sequence[dict[str, Any]] = ()
    complete: bool = False


class Opened(NamedTuple):
    """A model, opened where it computes."""

    encode: EncodeFn
    dimension: int
    truncated: Callable[[], int]  # how many texts were cut so far
    settings: dict[str, Any]  # JSON that decides the vectors, with the model's identity as "model"
    notes: Sequence[str] = ()


Opener = Callable[[], Opened]
"""Opens the model in a worker: can be pickled and hashed, and equal ones open equal models."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a shard, or the sums of several, their number as ``shard``."""

    shard: int
    rows: int = 0
    truncated: int = 0
    opening: float = 0.0  # seconds for opening the model, 0 where it was open already
    encoding: float = 0.0  # seconds in calls of the model
    seconds: float = 0.0  # the worker's total for the shard
    problem: str = ""  # why it failed, for the user; empty if it did not


@lru_cache(maxsize=1)
def opened(opener: Opener) -> Opened:
    """The model of this process: opened for its first shard, and kept for the others."""
    return opener()


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs to know; it can be pickled."""

    output: str  # folder of the shards, from the root or a URL
    plan: ShardPlan
    opener: Opener
    dimension: int
    dtype: str  # of what is stored, one of `encoding.shards.TYPES`
    keep_texts: bool
    settings: dict[str, Any]  # JSON that decides the vectors, with the model's identity as "model"

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that two runs of one job share."""
        plan = self.plan
        return {
            **self.settings,
            "dtype": self.dtype,
            "texts_kept": self.keep_texts,
            "rows_a_shard": plan.shard_rows,
            "columns": [plan.text, plan.identity],
            "inputs": [list(asdict(part).values()) for part in plan.parts],
        }

    def missing(self) -> list[int]:
        """The shards that are not in the folder, by one listing."""
        return missing_shards(Folder(self.output), self.plan)

    def run(self, shard: int, advance: Advance) -> Done:
        """Make one shard."""
        try:
            return self._run(shard, advance)
        except UserError as error:  # as text: it comes from another process, perhaps machine
            return Done(shard, problem=str(error))

    def _run(self, shard: int, advance: Advance) -> Done:
        began = time.monotonic()
        model = opened(self.opener)
        opening = time.monotonic() - began
        here, wanted = model.settings["model"], self.settings["model"]
        if here != wanted:
            raise ModelError(
                f"{socket.gethostname()} has a different model under that name ({here[:12]}, not "
                f"{wanted[:12]}); copy the model there"
            )
        cut, encoding, rows, texts = model.truncated(), 0.0, 0, hashlib.sha256()
        with (
            Folder(self.output).put(shard_name(shard)) as stream,
            TableWriter(stream, self.dimension, self.dtype, texts=self.keep_texts) as writer,
        ):
            for block in batched(self.plan.read(shard), GROUP):
                block_texts = [text for text, _ in block]
                vectors = np.empty((len(block), self.dimension), dtype=np.float32)
                for start in range(0, len(block), CALL):
                    called = block_texts[start : start + CALL]
                    before = time.monotonic()
                    vectors[start : start + len(called)] = model.encode(called)
                    encoding += time.monotonic() - before
                    advance(len(called))
                for text in block_texts:
                    texts.update(hashlib.blake2b(encoded(text), digest_size=16).digest())
                writer.append(vectors, ids=[name for _, name in block], texts=block_texts)
                rows += len(block)
            footer = {"dtype": self.dtype, "dimension": self.dimension, "shard": shard}
            footer |= {"of": self.plan.shards, "job": digest(self.facts)}
            footer["texts"] = texts.hexdigest()
            writer.finish({"format": SHARD_FORMAT, **self.settings, **footer})
        seconds = time.monotonic() - began
        return Done(shard, rows, model.truncated() - cut, opening, encoding, seconds)


def shard_name(shard: int) -> str:
    """The file of a shard."""
    return f"shard-{shard:06d}.parquet"


def missing_shards(folder: Folder, plan: ShardPlan) -> list[int]:
    """The shards of a plan that are not in a folder, by one listing."""
    names = folder.names()
    return [number for number in range(plan.shards) if shard_name(number) not in names]


def digest(facts: dict[str, Any]) -> str:
    """A short name of a job's facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def read_begun(folder: Folder) -> Manifest | None:
    """The manifest of a folder of such shards; None if there is none."""
    if (content := folder.read(NAME)) is None:
        return None
    try:
        data = json.loads(content)
        if data.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return Manifest(**data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(folder.file(NAME), f"is not a manifest of vectors ({error})") from error


def _write(folder: Folder, manifest: Manifest) -> None:
    data = {"format": FORMAT, **asdict(manifest)}
    with folder.put(NAME) as stream:
        stream.write((json.dumps(data, indent=2) + "\n").encode())


def remove_vectors(folder: Folder) -> None:
    """Delete a folder of vectors, unless it contains other files too."""
    if read_begun(folder) is None:
        return
    for name in sorted(folder.names()):
        if not any(fnmatchcase(name, pattern) for pattern in (NAME, "shard-*.parquet", ".*")):
            problem = "is not part of the vectors and would be deleted by --overwrite"
            raise OutputError(f"{folder.file(name)}: {problem}; move it elsewhere")
    folder.remove()


def begin(job: Job) -> list[int]:
    """Write or compare the manifest; returns the missing shards."""
    folder = Folder(job.output)
    facts = json.loads(json.dumps(job.facts))
    names = folder.names()  # before the manifest, which another job may have written by now
    if (manifest := read_begun(folder)) is not None:
        if other := sorted(
            k for k in facts | manifest.facts if manifest.facts.get(k) != facts.get(k)
        ):
            raise OutputError(
                f"{folder.name}: was started with different settings ({', '.join(other)}); use "
                "the same, or remove it"
            )
    elif other := sorted(name for name in names if not name.startswith(".")):
        raise OutputError(f"{folder.name}: is not a folder of vectors ({other[0]}); choose another")
    else:
        _write(folder, Manifest(facts, job.dimension))
    return job.missing()


def chosen_shards(share: str | None, shards: Sequence[int]) -> list[int]:
    """The shards of one of several machines that do not know one another."""
    if share is None:
        return list(shards)
    number, slash, of = share.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise OptionError("--shard", share, "must be i/n, from 1/n to n/n")
    return [shard for shard in shards if shard % int(of) == int(number) - 1]


def total(done: Iterable[Done]) -> Done:
    """The sums of all shards."""
    parts = list(done)
    names = ("rows", "truncated", "opening", "encoding", "seconds")
    return Done(len(parts), *(sum(getattr(one, name) for one in parts) for name in names))


def gather(name: str) -> Manifest:
    """Check that all shards of a folder are there and of one job, and mark it complete."""
    folder = Folder(name)
    manifest = read_begun(folder)
    if manifest is None or "inputs" not in manifest.facts:
        raise InputError(name, "is not from 'contrasent encode --engine' (manifest missing)")
    try:
        parts = tuple(Part(*given) for given in manifest.facts["inputs"])
        plan = ShardPlan(parts, manifest.facts["rows_a_shard"])
        if plan.shard_rows < 1 or any(part.rows < 0 for part in parts):
            raise ValueError("row counts missing")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(name, f"has a damaged manifest ({error})") from error
    if missing := missing_shards(folder, plan):
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise InputError(
            name,
            f"{len(missing):,} of {plan.shards:,} shards are missing ({shown}); repeat the "
            "command that should write them",
        )
    wanted = {"model": manifest.facts["model"], "job": digest(manifest.facts)}
    shards = []
    for number in range(plan.shards):
        file = folder.file(shard_name(number))
        with open_binary(file) as stream:
            facts, rows = read_facts(stream, file)
        for key, value in (wanted | {"shard": number}).items():
            if facts.get(key) != value:
                what = "another model" if key == "model" else "different input or settings"
                problem = f"is of {what} ({key} {facts.get(key)!r}, not {value!r})"
                raise InputError(file, f"{problem}; remove it and encode it again")
        if rows != plan.size(number):
            problem = f"has {rows:,} rows, not {plan.size(number):,}"
            raise InputError(file, f"{problem}; remove it and encode it again")
        texts = str(facts.get("texts"))
        shards.append({"name": shard_name(number), "rows": rows, "texts": texts})
    whole = replace(manifest, shards=shards, complete=True)
    if whole != manifest:
        _write(folder, whole)
    return whole
