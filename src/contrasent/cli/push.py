"""``contrasent push MODEL NAME``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli.options import Json, Quiet, emit, quieten
from contrasent.cli.pull import TRAVELS, Endpoint, check_name, translate_hub_errors
from contrasent.errors import ModelError


def push(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    name: Annotated[str, typer.Argument(help="Name on the hub: person/model.")],
    message: Annotated[str, typer.Option(help="Of the commit.")] = "Upload a contrasent model",
    private: Annotated[bool, typer.Option("--private", help="If the model is new.")] = False,
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put a model folder on the hub, with its card; prints the commit to pull it by.

    The hub's key is read from HF_TOKEN or from 'hf auth login'. Only the files of a model travel:
    safetensors, json, txt, md, and tokenizer models.
    """
    quieten(quiet)
    check_name(name)
    if not (model / "config.json").is_file() and not (model / "modules.json").is_file():
        raise ModelError(f"{model}: is no model folder (no config.json and no modules.json)")
    if not list(model.rglob("*.safetensors")):
        raise ModelError(f"{model}: has no weights as safetensors")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # before it is imported
    if quiet:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    import huggingface_hub as hub

    with translate_hub_errors(name):
        api = hub.HfApi(endpoint=endpoint)
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=model,
            allow_patterns=list(TRAVELS),
            commit_message=message,
        )
    if as_json:
        emit({"model": str(model), "name": name, "commit": commit.oid})
    else:
        typer.echo(f"{name}@{commit.oid}\nfetch it: contrasent pull {name}@{commit.oid} -o MODEL")
