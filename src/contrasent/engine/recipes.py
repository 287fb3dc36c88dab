"""Recipes of the papers' models, and settings for a base by its shape; no torch here."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from contrasent.files import read_object

SHAPE = ("model_type", "num_hidden_layers", "hidden_size")
RECIPE_ONLY = ("generator", "evaluate_every")
"""Settings of a recipe that do not come with a base: it has a generator by name only."""


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def recipes() -> dict[str, dict[str, Any]]:
    """Method, base and settings of every model of the papers, by its name, and the source."""
    chosen = {"evaluate": "stsb", "keep": "trained"}
    return {
        name: {**recipe, **chosen, "settings": dict(recipe["settings"])}
        for name, recipe in _file().items()
        if name != "shapes"
    }


def base_shape(folder: Path) -> str | None:
    """The published base that has the kind, layers and width of a bare encoder, or None."""
    config = read_object(folder / "config.json")
    shape = [config.get(key) for key in SHAPE]
    return next((name for name, known in _file()["shapes"].items() if known == shape), None)


def settings_for(method: str, base: str | None) -> dict[str, Any]:
    """The settings with which a method was published for a base, for similarity; or none."""
    for recipe in recipes().values():
        if (recipe["objective"], recipe["base"]) == (method, base):
            return {k: v for k, v in recipe["settings"].items() if k not in RECIPE_ONLY}
    return {}
