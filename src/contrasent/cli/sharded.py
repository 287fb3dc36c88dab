"""``contrasent encode --engine``: shards of parquet, on this machine or on a cluster."""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from contrasent.cli.loading import find_model
from contrasent.cli.options import Loading, Output, Workers
from contrasent.cli.workers import Form, OpenModel, make_engine, run_job, worker_threads
from contrasent.errors import MissingExtraError, OptionError, check_choice

SHARD_ROWS = 250_000


class Request(NamedTuple):
    """Options of ``contrasent encode`` for shards of parquet."""

    column: str | None
    id_column: str | None
    keep_text: bool
    dtype: str
    shard_rows: int | None
    shard: str | None
    overwrite: bool


def encode_sharded(
    model: str,
    source: str,
    output: str,
    loading: Loading,
    workers: Workers,
    form: Form,
    request: Request,
) -> Output:
    """``contrasent encode`` into shards of parquet."""
    from contrasent.encoding.inputs import plan
    from contrasent.encoding.job import Job, chosen_shards, opened, plan_before, read_begun
    from contrasent.encoding.places import Folder
    from contrasent.encoding.table import TYPES
    from contrasent.text.tables import column

    if find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "encoding in shards")
    engine = make_engine(workers)
    check_choice("--dtype", request.dtype, TYPES)
    try:
        chosen_shards(request.shard, [])
    except ValueError as error:
        raise OptionError("--shard", request.shard, str(error)) from None
    if request.shard and request.overwrite:
        raise OptionError("--overwrite", True, "would remove the shards of others; leave it out")
    if Path(output).suffix in (".npy", ".parquet"):
        raise OptionError("-o", output, "must be a folder with --engine: it holds a file a shard")
    folder = Folder(output)
    begun = read_begun(folder)
    if request.overwrite and begun is not None:
        folder.remove()
        begun = None
    rows = plan(
        source,
        shard_rows=request.shard_rows or SHARD_ROWS,
        text=column(request.column),
        identity=column(request.id_column),
        before=plan_before(begun, folder.name),
    )
    where = str(find_model(model).absolute())
    opener = OpenModel(where, loading, form, threads=worker_threads(workers))
    here = opened(opener)
    job = Job(
        folder.name, rows, opener, here.dimension, request.dtype, request.keep_text, here.settings
    )
    ran = run_job(job, engine, share=request.shard, begun=begun)
    done = ran.done
    each = (done.seconds - done.opening) / max(1, done.shard)
    beside = each - done.encoding / max(1, done.shard)
    facts = {
        "output": output,
        "model": model,
        "identity": here.identity,
        "texts": rows.rows,
        "shards": rows.shards,
        "encoded": done.rows,
        "encoded_shards": done.shard,
        "complete": ran.manifest is not None,
        "dimension": here.dimension,
        "dtype": request.dtype,
        "truncated": done.truncated,
        "seconds": round(ran.seconds, 3),
        "seconds_a_shard": round(each, 3),
        "overhead_a_shard": round(beside, 3),
    }
    text = (
        f"{output}: {done.rows:,} vectors of {here.dimension} dimensions in {done.shard:,} of "
        f"{rows.shards:,} shards, {ran.seconds:.1f} s"
    )
    if done.shard:
        text += f"\na shard: {each:.2f} s, of these {beside:.3f} s to read and write"
    if ran.manifest is None:
        text += f"\n{ran.left:,} shards are still missing; the run that makes the last checks all"
    else:
        text += f"\ncomplete: all {rows.shards:,} shards checked, {rows.rows:,} rows of one model"
    notes = list(here.notes)
    if done.truncated:
        notes.append(f"{done.truncated:,} of {done.rows:,} texts were cut (--max-tokens)")
    return Output(facts, text, notes)
