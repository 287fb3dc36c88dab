"""``contrasent pull NAME@COMMIT -o MODEL``."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.errors import ModelError, OptionError
from contrasent.files import atomic_folder

TRAVELS = ("*.json", "*.safetensors", "*.txt", "*.md", "*.model")
"""What a model folder is made of: no code, nothing pickled."""

Endpoint = Annotated[
    str | None, typer.Option(help="Another hub than HF_ENDPOINT or huggingface.co, by its URL.")
]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@options.command
def pull(
    name: Annotated[str, typer.Argument(metavar="NAME@COMMIT")],
    output: options.NewModel,
    endpoint: Endpoint = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Fetch a model from the hub at one commit: weights as safetensors and settings, no code.

    Options:
        name: Model on the hub, pinned.
    """
    repository, _, commit = name.partition("@")
    check_name(repository)
    options.check_new(output, overwrite and (output / "config.json").is_file(), "target")
    hub = hub_client()
    if not _COMMIT.fullmatch(commit):
        with translate_hub_errors(repository):
            newest = hub.HfApi(endpoint=endpoint).model_info(repository).sha
        raise OptionError(
            "NAME@COMMIT", name, f"must name a commit; the newest is {repository}@{newest}"
        )
    with atomic_folder(output) as target:
        # Inside: the hub's errors are an operating system's as well.
        with translate_hub_errors(repository):
            hub.snapshot_download(
                repository,
                revision=commit,
                local_dir=target,
                allow_patterns=list(TRAVELS),
                endpoint=endpoint,
            )
        shutil.rmtree(target / ".cache", ignore_errors=True)
        check_model(
            target,
            name,
            "pickled ones are never read; the hub's converter may offer them as a pull request on "
            "the model's page: pull that commit",
        )
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    return options.Output(
        {"name": repository, "commit": commit, "output": str(output), "bytes": size},
        f"{output}: {name}, {size / 1e6:.1f} MB",
    )


def hub_client() -> Any:
    """The hub's package, which reads its settings when it is imported."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if progress.silent():
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    import huggingface_hub

    return huggingface_hub


def check_model(folder: Path, name: str, remedy: str) -> None:
    """Refuse a folder that is no model, or has no safe weights."""
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise ModelError(f"{name}: is no model folder (no config.json and no modules.json)")
    if not list(folder.rglob("*.safetensors")):
        raise ModelError(f"{name}: has no weights as safetensors; {remedy}")


def check_name(repository: str) -> None:
    """Refuse what cannot be a model's name on a hub."""
    if not _NAME.fullmatch(repository) or ".." in repository:
        raise OptionError("NAME", repository, "is no name on the hub, such as person/model")


@contextmanager
def translate_hub_errors(repository: str) -> Iterator[None]:
    """Turn the hub's complaints into one line."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        yield
    except LocalEntryNotFoundError as error:
        raise ModelError(f"{repository}: the hub cannot be reached") from error
    except HfHubHTTPError as error:
        answer = getattr(error, "response", None)
        code = "with an error" if answer is None else answer.status_code
        raise ModelError(
            f"{repository}: the hub answers {code}; check the name, the commit, and that "
            "HF_TOKEN may do this"
        ) from error
    except HFValidationError as error:
        raise ModelError(f"{repository}: is no name on the hub") from error
    except OfflineModeIsEnabled as error:
        raise ModelError(f"{repository}: HF_HUB_OFFLINE forbids the hub") from error
    except Exception as error:
        # The HTTP library below is not ours to name: it has been two of them in two years.
        if any("Connect" in k.__name__ or "Timeout" in k.__name__ for k in type(error).__mro__):
            raise ModelError(f"{repository}: the hub cannot be reached ({error})") from error
        raise
