"""``contrasent push MODEL NAME``."""

from pathlib import Path

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
    model: Path,
    name: str,
    message: str = "Upload a contrasent model",
    private: bool = False,
    endpoint: Endpoint = None,
) -> options.Output:
    """Put a model folder on the hub, with its card; prints the commit to pull it by.

    The hub's key is read from HF_TOKEN or from 'hf auth login'. Only the files of a model travel:
    safetensors, json, txt, md, and tokenizer models.

    Options:
        model: Model folder.
        name: Name on the hub: person/model.
        message: Of the commit.
        private: If the model is new.
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
