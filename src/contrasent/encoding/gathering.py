"""All shards of a job: whether they are there and agree, and their vectors in the rows' order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from contrasent.encoding.job import digest, plan_before, read_begun, shard_name
from contrasent.encoding.places import Folder
from contrasent.encoding.shards import NAME, Manifest, Shard, to_json
from contrasent.encoding.table import read_facts, read_vectors
from contrasent.errors import InputError
from contrasent.types import Vectors


def gather(name: str) -> Manifest:
    """Check that all shards of a folder are there and of one job, and mark it complete."""
    folder = Folder(name)
    manifest = read_begun(folder)
    plan = plan_before(manifest, name)
    if manifest is None or plan is None:
        raise InputError(name, "is no folder of 'contrasent encode --engine' (no manifest of one)")
    names = folder.names()
    if missing := [n for n in range(plan.shards) if shard_name(n) not in names]:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise InputError(
            name,
            f"{len(missing):,} of {plan.shards:,} shards are missing ({shown}); give the command "
            "that was to make them again",
        )
    job, shards = digest(manifest.facts), []
    for number in range(plan.shards):
        file = shard_name(number)
        with folder.open(file) as stream:
            facts, rows = read_facts(stream, folder.file(file))
        for key, wanted in (
            ("model", manifest.facts["model"]),
            ("job", job),
            ("shard", number),
        ):
            if facts.get(key) != wanted:
                what = "another model" if key == "model" else "another input or other settings"
                problem = f"is of {what} ({key} {facts.get(key)!r}, not {wanted!r}); remove it"
                raise InputError(folder.file(file), f"{problem} and encode it again")
        if rows != plan.size(number):
            raise InputError(folder.file(file), f"has {rows:,} rows, not {plan.size(number):,}")
        shards.append(Shard(file, rows, str(facts.get("texts"))))
    whole = replace(manifest, shards=tuple(shards), complete=True)
    if whole != manifest:
        folder.put_bytes(NAME, to_json(whole))
    return whole


class Stored:
    """An ``EncodeFn`` that gives the stored vectors of a folder, once, in the order of its rows."""

    def __init__(self, name: str) -> None:
        self.folder = Folder(name)
        self._rows = self._read(gather(name))

    def _read(self, manifest: Manifest) -> Iterator[tuple[Vectors, str]]:
        for shard in manifest.shards:
            with self.folder.open(shard.name) as stream:
                for vectors, texts in read_vectors(stream, self.folder.file(shard.name)):
                    yield from zip(vectors, texts, strict=True)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """The next vectors, if they are of these texts."""
        found = list(islice(self._rows, len(texts)))
        if [text for _, text in found] != list(texts):
            raise InputError(self.folder.name, "holds vectors of other texts than the input has")
        return np.stack([vector for vector, _ in found])
