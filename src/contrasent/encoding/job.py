"""A job: an input, a model and a folder, divided into shards that know nothing of one another.

A shard is one parquet file, ``shard-000000.parquet`` and so on, there as a whole or not at all. Its
footer says of which job it is and of which texts. ``manifest.json`` says what the job is; when all
shards are there, :func:`gather` compares their footers with it and marks it complete. Whoever goes
on lists the folder once and makes what is missing, on any machine and in any order.
"""

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from contrasent.encoding.inputs import Part, Plan
from contrasent.encoding.places import Folder
from contrasent.encoding.shards import NAME, Manifest, hashes, parse_manifest, to_json
from contrasent.encoding.table import GROUP, TableWriter
from contrasent.errors import InputError, ModelError, OutputError, UserError
from contrasent.types import EncodeFn, batched

FORMAT = "contrasent-shard"
CALL = 4096
"""Texts a call of the model, and between two signs of life."""

Advance = Callable[[int], None]


class Opened(NamedTuple):
    """A model, opened where it computes.

    Attributes:
        truncated: how many texts were cut so far.
        settings: JSON that decides the vectors, with the identity as "model".
    """

    encode: EncodeFn
    identity: str
    dimension: int
    truncated: Callable[[], int]
    settings: dict[str, Any]
    notes: Sequence[str] = ()


class Opener(Protocol):
    """How a worker opens the model: can be pickled, and equal ones open equal models."""

    def __call__(self) -> Opened:
        """Open it."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a shard.

    Attributes:
        opening: seconds for opening the model, 0 where it was open already.
        encoding: seconds in calls of the model.
        seconds: of all that the worker did for the shard.
        problem: why it failed, for the user; empty if it did not.
    """

    shard: int
    rows: int = 0
    truncated: int = 0
    opening: float = 0.0
    encoding: float = 0.0
    seconds: float = 0.0
    problem: str = ""


@lru_cache(maxsize=1)
def opened(opener: Opener) -> Opened:
    """The model of this process: opened for its first shard, and there for the others."""
    return opener()


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker is told; it can be pickled.

    Attributes:
        output: folder of the shards, from the root or a URL.
        dtype: of what is stored, one of :data:`contrasent.encoding.table.TYPES`.
        settings: JSON that decides the vectors, with the model's identity as "model".
    """

    output: str
    plan: Plan
    opener: Opener
    dimension: int
    dtype: str
    keep_texts: bool
    settings: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """What two runs of one job have in common."""
        plan = self.plan
        return {
            **self.settings,
            "dtype": self.dtype,
            "texts_kept": self.keep_texts,
            "rows_a_shard": plan.shard_rows,
            "columns": [plan.text, plan.identity],
            "inputs": [list(asdict(part).values()) for part in plan.parts],
        }

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
        if model.identity != self.settings["model"]:
            raise ModelError(
                f"{socket.gethostname()} has another model under that name "
                f"({model.identity[:12]}) than {self.settings['model'][:12]}; copy it there"
            )
        cut, encoding, rows, texts = model.truncated(), 0.0, 0, hashlib.sha256()
        with (
            Folder(self.output).put(shard_name(shard)) as stream,
            TableWriter(stream, self.dimension, self.dtype, texts=self.keep_texts) as writer,
        ):
            for block in batched(self.plan.read(shard), GROUP):
                vectors = np.empty((len(block), self.dimension), dtype=np.float32)
                for start in range(0, len(block), CALL):
                    called = [text for text, _ in block[start : start + CALL]]
                    before = time.monotonic()
                    vectors[start : start + len(called)] = model.encode(called)
                    encoding += time.monotonic() - before
                    advance(len(called))
                found = [text for text, _ in block]
                texts.update(hashes(found).tobytes())
                writer.append(vectors, ids=[name for _, name in block], texts=found)
                rows += len(block)
            writer.finish(
                {
                    "format": FORMAT,
                    **self.settings,
                    "dtype": self.dtype,
                    "dimension": self.dimension,
                    "shard": shard,
                    "of": self.plan.shards,
                    "job": digest(self.facts),
                    "texts": texts.hexdigest(),
                }
            )
        seconds = time.monotonic() - began
        return Done(shard, rows, model.truncated() - cut, opening, encoding, seconds)


def shard_name(shard: int) -> str:
    """The file of a shard."""
    return f"shard-{shard:06d}.parquet"


def digest(facts: dict[str, Any]) -> str:
    """A short name of a job's facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def read_begun(folder: Folder) -> Manifest | None:
    """The manifest of a folder of such shards; None if there is none."""
    data = folder.read(NAME)
    return None if data is None else parse_manifest(data, folder.file(NAME))


def plan_before(manifest: Manifest | None, source: str) -> Plan | None:
    """The plan of a job that was begun, its files counted; None of another kind of manifest."""
    if manifest is None or "inputs" not in manifest.facts:
        return None
    try:
        parts = tuple(
            Part(str(n), int(s), str(t), int(r)) for n, s, t, r in manifest.facts["inputs"]
        )
        plan = Plan(parts, int(manifest.facts["rows_a_shard"]))
        if plan.shard_rows < 1 or any(part.rows < 0 for part in parts):
            raise ValueError("no counts of rows")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(source, f"has a damaged manifest ({error})") from error
    return plan


def begin(job: Job, manifest: Manifest | None) -> list[int]:
    """Write the manifest, or compare it; the shards that are missing."""
    folder = Folder(job.output)
    folder.check()
    names = folder.names()
    facts = json.loads(json.dumps(job.facts))
    if manifest is None:
        if other := sorted(name for name in names if not name.startswith(".")):
            raise OutputError(
                f"{folder}: exists and is no folder of vectors ({other[0]}); choose another"
            )
        folder.put_bytes(NAME, to_json(Manifest(facts, job.dimension)))
    elif manifest.facts != facts:
        keys = facts.keys() | manifest.facts.keys()
        differing = sorted(k for k in keys if manifest.facts.get(k) != facts.get(k))
        raise OutputError(
            f"{folder}: was begun with other settings ({', '.join(differing)}); finish it with "
            "those, or remove it"
        )
    return missing_shards(job)


def missing_shards(job: Job) -> list[int]:
    """The shards that are not in the folder."""
    names = Folder(job.output).names()
    return [number for number in range(job.plan.shards) if shard_name(number) not in names]


def chosen_shards(share: str | None, shards: Sequence[int]) -> list[int]:
    """The shards of one of several machines that do not know one another."""
    if share is None:
        return list(shards)
    number, slash, of = share.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ValueError("write i/n, from 1/n to n/n")
    return [shard for shard in shards if shard % int(of) == int(number) - 1]


def total(done: Iterable[Done]) -> Done:
    """The sums of all; the number of shards as ``shard``."""
    parts = list(done)
    return Done(
        len(parts),
        sum(one.rows for one in parts),
        sum(one.truncated for one in parts),
        sum(one.opening for one in parts),
        sum(one.encoding for one in parts),
        sum(one.seconds for one in parts),
    )
