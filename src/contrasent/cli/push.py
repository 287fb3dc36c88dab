"""``contrasent push MODEL NAME``."""

from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.cli.pull import (
    TRAVELS,
    Endpoint,
    check_model,
    check_name,
    hub_client,
    translate_hub_errors,
)


@options.command
def push(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    name: Annotated[str, typer.Argument(help="Name on the hub: person/model.")],
    message: Annotated[str, typer.Option(help="Of the commit.")] = "Upload a contrasent model",
    private: Annotated[bool, typer.Option("--private", help="If the model is new.")] = False,
    endpoint: Endpoint = None,
) -> options.Output:
    """Put a model folder on the hub, with its card; prints the commit to pull it by.

    The hub's key is read from HF_TOKEN or from 'hf auth login'. Only the files of a model travel:
    safetensors, json, txt, md, and tokenizer models.
    """
    check_name(name)
    check_model(model, str(model), "save them so first")
    hub = hub_client()
    with translate_hub_errors(name):
        api = hub.HfApi(endpoint=endpoint)
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=model,
            allow_patterns=list(TRAVELS),
            commit_message=message,
        ).oid
    return options.Output(
        {"model": str(model), "name": name, "commit": commit},
        f"{name}@{commit}\nfetch it: contrasent pull {name}@{commit} -o MODEL",
    )
