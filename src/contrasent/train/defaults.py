"""The settings of a run that nobody stated: they fit the base and the method; no torch here.

A method's published settings are those of a plain BERT: 3e-5 and thousands of steps make a sentence
encoder of it. A base that is one already is worsened by them, so it has settings of its own, which
were measured (``benchmarks/harm.py``, docs/results.md).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasent.engine.parameters import renamed
from contrasent.engine.registry import needs_pairs, parameters, published
from contrasent.text.heldout import shares_texts
from contrasent.train.settings import Settings, choose

SENTENCE_ENCODER, LANGUAGE_MODEL = "sentence encoder", "language model"

ENCODER_SETTINGS: dict[str, Any] = {"batch": 64, "lr": 3e-6, "epochs": 1.0}
"""Settings that take the place of a method's where the base is a sentence encoder."""

ENCODER_SETTINGS_PAIRS = {**ENCODER_SETTINGS, "lr": 2e-5}
"""The same where the method learns from pairs: they teach, and the held-out ones watch over it."""

ENCODER_DROPS = ("head", "grad_cache_rows")
"""Published settings that a sentence encoder has no use for: it keeps its own head."""

MOST_STEPS = 40
"""Steps of a run on single sentences from a sentence encoder, however large the corpus is: what
was measured to do no harm."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What was chosen for the settings that nobody stated.

    Attributes:
        base: what the base is: "sentence encoder" or "language model".
        values: names and values of the settings chosen; others are those of ``Settings``.
    """

    base: str
    values: dict[str, Any]

    def line(self, objective: str) -> str:
        """What was chosen and why, for people; empty if nothing was."""
        chosen: dict[str, list[str]] = {}
        for name, value in self.values.items():
            if name == "duplicates":
                chosen["rows share texts"] = [f"duplicates {value}"]
                continue
            suits = self.base == SENTENCE_ENCODER and name in (*ENCODER_SETTINGS, "steps")
            why = "the base is a sentence encoder" if suits else f"published for {objective}"
            number = f"{value:g}" if isinstance(value, float) else value
            chosen.setdefault(why, []).append(f"{name} {number}")
        parts = [f"({why}): {', '.join(values)}" for why, values in chosen.items()]
        return f"settings chosen {'; '.join(parts)}" if parts else ""


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """All settings of a run.

    Attributes:
        parameters: of the objective, those that were stated.
        defaults: what was chosen for settings that were not; None for a run of an older version.
    """

    settings: Settings
    parameters: dict[str, Any]
    defaults: Defaults | None


def resolve_settings(
    base: Path,
    objective: str,
    given: Mapping[str, Any] | None = None,
    *,
    corpus: Iterable[Any] | None = None,
    stored: Mapping[str, Any] | None = None,
) -> ResolvedSettings:
    """Complete the settings of a run: stated ones, those of the base, those of the method.

    The first that says a value has it: ``given``; what suits a sentence encoder, if the base is
    one; the objective's published settings; the defaults of ``Settings``.
    """
    chosen = choose(given or {}, objective)
    Settings(**chosen.run)  # refuse what cannot be before anything is counted by it
    stated = {**chosen.run, **chosen.objective}
    if stored is None:
        defaults = _choose(base, objective, stated, corpus)
    elif stored:
        values = renamed(stored["values"])
        left = {k: v for k, v in values.items() if k not in stated}
        defaults = Defaults(stored["base"], left)
    else:
        return ResolvedSettings(Settings(**chosen.run), chosen.objective, None)
    completed = choose({**defaults.values, **stated}, objective)
    return ResolvedSettings(Settings(**completed.run), completed.objective, defaults)


def base_kind(folder: Path | None) -> str:
    """What a model is, as its folder says: a sentence encoder if it states how to pool."""
    for home in (folder, folder.parent) if folder is not None else ():
        try:
            modules = json.loads((home / "modules.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        kinds = [str(m.get("type")) for m in modules if isinstance(m, dict)]
        if any(kind.endswith("Pooling") for kind in kinds):
            return SENTENCE_ENCODER
    return LANGUAGE_MODEL


def _choose(
    base: Path, objective: str, stated: Mapping[str, Any], corpus: Iterable[Any] | None
) -> Defaults:
    kind = base_kind(base)
    values = dict(published(objective))
    if kind == SENTENCE_ENCODER:
        values = {k: v for k, v in values.items() if k not in ENCODER_DROPS}
        values |= ENCODER_SETTINGS_PAIRS if needs_pairs(objective) else ENCODER_SETTINGS
    length_stated = not stated.keys().isdisjoint(("steps", "epochs"))
    if length_stated:
        values.pop("epochs", None)
    elif kind == SENTENCE_ENCODER and corpus is not None and not needs_pairs(objective):
        batch = int(stated.get("batch", values["batch"]))
        if sum(1 for _ in corpus) // batch > MOST_STEPS:
            del values["epochs"]
            values["steps"] = MOST_STEPS
    masks = corpus is not None and needs_pairs(objective) and "duplicates" in parameters(objective)
    if corpus is not None and masks and "duplicates" not in stated and shares_texts(corpus):
        values["duplicates"] = "mask"
    return Defaults(kind, {k: v for k, v in values.items() if k not in stated})
