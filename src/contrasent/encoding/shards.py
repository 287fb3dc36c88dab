"""Vectors in shards on disk, of a stream of texts, and in tables of parquet."""

# Of a stream memory is bounded, and a kill costs one shard. A shard is written under another name,
# flushed, renamed, and only then named by the manifest. A text that came before is copied, known by
# 128 bits of a hash (the first four million texts).

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import InputError, OutputError, import_extra, see
from contrasent.files import atomic_file, check_writable, encoded, write_json, write_text
from contrasent.text.sources import reading
from contrasent.types import EncodeFn, Vectors, batched

NAME = "manifest.json"
FORMAT = "contrasent-vectors"
MOST = 4_000_000  # different texts whose hashes are kept


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: its files, its rows, and a hash of the texts that it was made of."""

    name: str
    rows: int
    texts: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``manifest.json``."""

    # what decides the vectors, such as the model's identity; resumed only if equal
    facts: dict[str, Any]
    dimension: int
    shards: tuple[Shard, ...] = ()
    complete: bool = False

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)


def read_manifest(folder: Path) -> Manifest | None:
    """Read a folder's manifest; None if it has none."""
    path = folder / NAME
    if not path.is_file():
        return None
    with reading(str(path)):
        content = path.read_bytes()
    return parse_manifest(content, path)


def parse_manifest(content: bytes, source: str | Path) -> Manifest:
    """The manifest that a file's content is."""
    try:
        data = json.loads(content)
        if data.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        data["shards"] = tuple(Shard(**shard) for shard in data["shards"])
        return Manifest(**data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(source, f"is no manifest of vectors ({error})") from error


def to_json(manifest: Manifest) -> bytes:
    """The content of a manifest's file."""
    data = {"format": FORMAT, **asdict(manifest)}
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def check_same(facts: dict[str, Any], begun: Manifest, folder: object) -> None:
    """Raise an OutputError if a folder was begun with other settings."""
    differing = sorted(k for k in facts | begun.facts if begun.facts.get(k) != facts.get(k))
    if differing:
        raise OutputError(
            f"{folder}: was begun with other settings ({', '.join(differing)}); finish it with "
            "those, or remove it"
        )


def encode_shards(
    folder: Path,
    encode: EncodeFn,
    texts: Iterable[str],
    *,
    facts: dict[str, Any],
    dimension: int,
    rows: int,
    keep_texts: bool = False,
) -> Manifest:
    """Encode a stream into a folder, or go on where a run that was killed left off."""
    check_writable(folder)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        problem = "another process is writing to it; try again when it has ended"
        raise OutputError(f"{folder}: {problem}{see('index-locked')}") from error
    with lock:
        facts = {**facts, "rows_a_shard": rows, "texts_kept": keep_texts}
        manifest = read_manifest(folder) or Manifest(facts, dimension)
        check_same(facts, manifest, folder)
        named = {shard.name for shard in manifest.shards}
        named |= {_texts_path(folder, shard).name for shard in manifest.shards}
        for pattern in ("shard-*", ".shard-*", f".{NAME}.*"):  # what a killed run left half done
            for path in folder.glob(pattern):
                if path.name not in named:
                    path.unlink(missing_ok=True)
        return _fill(folder, manifest, encode, texts, keep_texts=keep_texts, size=rows)


def _fill(
    folder: Path,
    manifest: Manifest,
    encode: EncodeFn,
    texts: Iterable[str],
    *,
    keep_texts: bool,
    size: int,
) -> Manifest:
    seen, first = Seen(), 0
    with progress.task("encode", unit="sentences", start=manifest.rows) as advance:
        for number, block in enumerate(batched(texts, size)):
            keys = hashes(block)
            digest = hashlib.sha256(keys.tobytes()).hexdigest()
            if number < len(manifest.shards):
                done = manifest.shards[number]
                if (done.texts, done.rows) != (digest, len(block)):
                    raise InputError(
                        folder / done.name,
                        "was made of other texts than the input holds now; give the same input, or "
                        "remove the folder to start over",
                    )
            else:
                shard = Shard(f"shard-{number:06d}.npy", len(block), digest)
                vectors = _vectors(folder, manifest, encode, block, keys, seen, size)
                if keep_texts:
                    write_json(_texts_path(folder, shard), block)
                with atomic_file(folder / shard.name, "wb") as target:
                    np.save(target, vectors, allow_pickle=False)
                manifest = replace(manifest, shards=(*manifest.shards, shard))
                write_text(folder / NAME, to_json(manifest).decode())
                advance(len(block))
            seen.add(keys, first)
            first += len(block)
    if first < manifest.rows:
        raise InputError(
            folder,
            f"holds {manifest.rows:,} vectors and the input has {first:,} texts now; give the same "
            "input, or remove the folder to start over",
        )
    manifest = replace(manifest, complete=True)
    write_text(folder / NAME, to_json(manifest).decode())
    return manifest


def _vectors(
    folder: Path,
    manifest: Manifest,
    encode: EncodeFn,
    texts: Sequence[str],
    keys: NDArray[np.uint64],
    seen: "Seen",
    size: int,
) -> Vectors:
    """Vectors of a block: of texts that came before from where they are, of others computed."""
    _, firsts, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    origin = firsts[which.reshape(-1)]  # the row in this block where a text came first
    firsts = np.sort(firsts)  # computed in the order of the texts
    before = seen.find(keys[firsts])
    vectors = np.empty((len(texts), manifest.dimension), dtype=np.float32)
    fresh = firsts[before < 0]
    if len(fresh):
        vectors[fresh] = encode([texts[row] for row in fresh.tolist()])
    for shard in np.unique(before[before >= 0] // size):
        of_shard = (before >= 0) & (before // size == shard)
        stored = np.load(folder / manifest.shards[shard].name, mmap_mode="r", allow_pickle=False)
        vectors[firsts[of_shard]] = stored[before[of_shard] - shard * size]
    again = np.flatnonzero(origin != np.arange(len(texts)))
    vectors[again] = vectors[origin[again]]
    return vectors


def _texts_path(folder: Path, shard: Shard) -> Path:
    """Where the texts of a shard are kept."""
    return (folder / shard.name).with_suffix(".json")


def join_shards(target: Path, folder: Path, manifest: Manifest) -> None:
    """Write the shards of a folder as one .npy or .parquet file, with memory for one of them."""
    parts = [folder / shard.name for shard in manifest.shards]
    blocks = (np.load(part, mmap_mode="r", allow_pickle=False) for part in parts)
    with atomic_file(target, "wb") as stream:
        if target.suffix == ".npy":
            shape = (manifest.rows, manifest.dimension)
            facts = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, facts)
            for block in blocks:
                stream.write(np.ascontiguousarray(block, dtype="<f4").tobytes())
            return
        with TableWriter(stream, manifest.dimension, ids=False, texts=True) as writer:
            for shard, block in zip(manifest.shards, blocks, strict=True):
                writer.append(
                    block, texts=json.loads(_texts_path(folder, shard).read_text("utf-8"))
                )
            writer.finish({"dimension": manifest.dimension})


def hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """(n, 2) uint64: 128 bits of BLAKE2b of each text."""
    joined = b"".join(hashlib.blake2b(encoded(text), digest_size=16).digest() for text in texts)
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2)


class Seen:
    """Which texts came before, and in which row first: sorted hashes, 24 bytes a text."""

    def __init__(self) -> None:
        self.high = np.empty(0, dtype=np.uint64)
        self.low = np.empty(0, dtype=np.uint64)
        self.rows = np.empty(0, dtype=np.int64)

    def add(self, keys: NDArray[np.uint64], first: int) -> None:
        """Remember the texts of a block whose first row is ``first``, while there is room."""
        # `keys`: (n, 2) hashes of the texts.
        keys, at = np.unique(keys, axis=0, return_index=True)
        new = (self.find(keys) < 0).nonzero()[0][: MOST - len(self.rows)]
        high = np.concatenate([self.high, keys[new, 0]])
        order = np.argsort(high, kind="stable")
        self.high = high[order]
        self.low = np.concatenate([self.low, keys[new, 1]])[order]
        self.rows = np.concatenate([self.rows, at[new] + first])[order]

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For each text the row it first came in, -1 where it is not known."""
        found = np.full(len(keys), -1, dtype=np.int64)
        if len(self.high):
            places = np.minimum(np.searchsorted(self.high, keys[:, 0]), len(self.high) - 1)
            # Two texts that share their first 64 bits but not the rest: one is computed again.
            same = (self.high[places] == keys[:, 0]) & (self.low[places] == keys[:, 1])
            found[same] = self.rows[places[same]]
        return found


# Columns of a table: id, text (on request), vector (float32, float16, int8, or uint8 with the signs
# as bits, the first dimension highest) and, of int8, scale. The footer has JSON under `contrasent`.

GROUP = 25_000  # rows a row group: some 40 MB of 384 dimensions, what a reader holds at least
KEY = "contrasent"


Pack = Callable[[Vectors], tuple[NDArray[Any], Vectors | None]]
"""From vectors (n, d) to the numbers (n, width) that are stored and, of some, scales (n,)."""


def to_int8(vectors: Vectors) -> tuple[NDArray[np.int8], Vectors]:
    """The nearest multiples of a row's largest magnitude / 127, and that number of each row."""
    # `vectors`: (n, d). Returns (n, d) from -127 to 127, and scales (n,); a row of zeros has the
    # scale 0.
    scales = np.abs(vectors).max(axis=1) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    # The smallest floats are so coarse that a scale of theirs may be far too small.
    steps = np.clip(np.rint(vectors / safe[:, None]), -127, 127)
    return steps.astype(np.int8), scales.astype(np.float32)


TYPES: dict[str, tuple[str, Pack]] = {
    "float32": ("float", lambda v: (v, None)),
    "float16": ("halffloat", lambda v: (v.astype(np.float16), None)),
    "int8": ("int8", to_int8),
    "binary": ("uint8", lambda v: (np.packbits(v > 0, axis=1), None)),
}
"""By the name that ``--dtype`` takes: the numbers' type in Arrow, and how they are made."""


class TableWriter:
    """Writes one such file, a row group at a time; a context, which lets go of the stream."""

    def __init__(
        self,
        stream: IO[bytes],
        dimension: int,
        dtype: str = "float32",
        *,
        ids: bool = True,
        texts: bool = False,
    ) -> None:
        pa = import_extra("pyarrow", "parquet", "writing parquet")
        import pyarrow.parquet as pq

        kind, self._pack = TYPES[dtype]
        width = -(-dimension // 8) if dtype == "binary" else dimension
        vector = pa.list_(pa.type_for_alias(kind), width)
        columns = [("id", pa.string())] * ids + [("text", pa.string())] * texts
        columns += [("vector", vector)] + [("scale", pa.float32())] * (dtype == "int8")
        self._schema = pa.schema(columns)
        strings = [name for name, kind in columns if kind == pa.string()]
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            write_page_index=True,
            use_dictionary=False,
            # Numbers that a network made cannot be made shorter.
            compression={name: "zstd" for name in strings} | {"vector.list.element": "none"},
        )

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def append(
        self, vectors: Vectors, *, ids: Sequence[str] = (), texts: Sequence[str] = ()
    ) -> None:
        """Write rows, as one row group if they are no more than fit."""
        import pyarrow as pa

        numbers, scales = self._pack(vectors)
        kind = self._schema.field("vector").type
        flat = pa.array(np.ascontiguousarray(numbers).reshape(-1), kind.value_type)
        given = {"id": ids, "text": texts, "scale": scales}
        arrays = [
            pa.FixedSizeListArray.from_arrays(flat, type=kind)
            if field.name == "vector"
            else pa.array(given[field.name], field.type)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=GROUP)

    def finish(self, facts: dict[str, Any]) -> None:
        """End the file."""
        self._writer.add_key_value_metadata({KEY: json.dumps(facts, ensure_ascii=False)})
        self._writer.close()


def read_facts(stream: IO[bytes], source: str) -> tuple[dict[str, Any], int]:
    """The object in a file's footer, and its number of rows."""
    pa = import_extra("pyarrow", "parquet", f"reading {source}")
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(stream)
        facts = json.loads((footer.metadata or {})[KEY.encode()])
        if not isinstance(facts, dict):
            raise ValueError("its footer holds no object")
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise InputError(source, f"is no whole file of vectors ({error})") from error
    return facts, int(footer.num_rows)
