"""What parameters of objectives may be, checked before anything heavy is loaded: no torch here.

A parameter of one name means the same in every objective, so one table serves all of them.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contrasent.errors import OptionError

CHOICES: dict[str, tuple[str, ...]] = {
    "similarity": ("cosine", "dot"),
    "projector": ("none", "tanh", "batchnorm"),
    "masks": ("independent", "fixed"),
    "views": ("second", "both"),
    "fresh": ("epoch", "static"),
    "rule": ("code", "paper", "exact"),
    "draw": ("argmax", "sample"),
    "copy_draw": ("argmax", "sample"),
    "generator_draw": ("argmax", "sample"),
    "positives": ("noisy", "gaussian", "mean"),
    "negatives": ("noisy", "gaussian", "mean", "off_dropout"),
    "factor_form": ("positive_logit", "negative_sum"),
    "dimension_norm": ("batch", "none"),
    "dimension_variance": ("biased", "unbiased"),
    "dimension_reduction": ("mean", "sum"),
    "barlow_norm": ("batch", "length"),
    "momentum_init": ("copy", "random"),
    "queue_column": ("first", "second"),
    "queue_start": ("grow", "full"),
    "normalisation": ("mean_with_padding", "mean_tokens", "sum"),
    "generator_positions": ("all", "masked"),
    "condition": ("projected", "pooled"),
    "edits": ("replace", "insert", "delete", "all"),
    "task": ("detection", "masked_lm", "corrective"),
    "target": ("same", "next", "both"),
    "copy_edit": ("replace", "insert", "delete"),
    "copies": ("positive", "negative"),
}

Range = tuple[Callable[[float], bool], str]
POSITIVE: Range = (lambda x: 0 < x < math.inf, "must be greater than 0")
NOT_NEGATIVE: Range = (lambda x: 0 <= x < math.inf, "must be 0 or more")
SHARE: Range = (lambda x: 0 < x < 1, "must lie between 0 and 1, both excluded")
RANGES: dict[str, Range] = {
    "temperature": POSITIVE,
    "dimension_temperature": POSITIVE,
    "dimension_epsilon": POSITIVE,
    "factor": POSITIVE,
    "alpha": NOT_NEGATIVE,
    "noise_variance": NOT_NEGATIVE,
    "queue_size": NOT_NEGATIVE,
    "artificial": NOT_NEGATIVE,
    "off_diagonal": NOT_NEGATIVE,
    "mask_ratio": SHARE,
    "edit_ratio": SHARE,
    "momentum": (lambda x: 0 <= x < 1, "must be from 0 up to, not including, 1"),
    "rate": (lambda x: 0 <= x <= 1, "must be from 0 to 1, such as 0.32"),
    "percent": (lambda x: 0 <= x < 100, "must be from 0 up to, not including, 100"),
    "encoders": (lambda x: x in {1, 2}, "must be 1 (shared) or 2 (independent)"),
    "passes": (lambda x: x >= 1, "must be 1 or more"),
    "reach": (lambda x: x >= 1, "must be 1 (the next sentence) or more"),
    "count": (lambda x: x >= 1, "must be 1 or more"),
}
VIEW_OPTIONS = ("percent", "rate", "rule", "count", "reach", "draw", "wordnet", "filler")


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that no objective can take.

    Raises:
        OptionError: a value out of range or an unknown name.
    """
    for name, value in values.items():
        if value is None:
            continue
        if name in CHOICES and value not in CHOICES[name]:
            raise OptionError(name, value, "unknown", choices=CHOICES[name])
        holds, problem = RANGES.get(name, (None, ""))
        if name.endswith("_weight"):
            holds, problem = NOT_NEGATIVE
        if holds is not None and not holds(value):
            raise OptionError(name, value, problem)


def check(objective: str, given: Mapping[str, Any], *, base: Path | None = None) -> None:
    """Refuse parameters of an objective before any weights are loaded.

    Args:
        objective: its name, or several joined by "+".
        given: the parameters that were set.
        base: folder of the encoder, to compare a generator's vocabulary with its own.

    Raises:
        OptionError: a value out of range, or one that does not belong with the others.
        ModelError: a model that a parameter names is missing, or has another vocabulary.
    """
    from contrasent.objectives._find import agree, methods, parameters

    values = {name: p.default for name, p in parameters(objective).items()} | dict(given)
    check_values(values)
    agree(objective, given)
    for method in methods(objective):
        _check_one({name: values[name] for name in parameters(method)}, base)


def _check_one(values: Mapping[str, Any], base: Path | None) -> None:
    if "copy_edit" in values:
        view, options = copy_view(values["copy_edit"], values["edit_ratio"])
        check_view(
            {"draw": values["copy_draw"], "filler": values["copy_filler"], "view": view, **options}
        )
    if "view" in values:
        check_view(values)
    if values.get("masks") == "fixed":
        check_fixed(values)
    if "generator" in values and check_difference(values):
        check_generator(values["generator"], base, option="generator")
    for option in ("filler", "copy_filler"):
        if values.get(option):
            check_generator(values[option], base, option=option)


def check_view(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a view among the values of an objective.

    Raises:
        OptionError: no such view, or an option that the view does not have.
    """
    from contrasent.text.views import options_of

    name = values["view"]
    known = options_of(name)
    if name in {"masked_lm", "insert_prediction"}:
        known = [*known, "filler"]
        if not values.get("filler"):
            raise OptionError(
                "filler", "", f"the view {name!r} needs the folder of a masked language model"
            )
    given = {k: values[k] for k in VIEW_OPTIONS if values.get(k) is not None}
    for option, value in given.items():
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise OptionError(option, value, f"does not belong to the view {name!r}, which {takes}")
    return given


def copy_view(edit: str, ratio: float) -> tuple[str, dict[str, Any]]:
    """The view that makes an edited copy, and its options."""
    if edit == "insert":
        return "insert_prediction", {"rate": ratio, "rule": "exact"}
    return {"replace": "masked_lm", "delete": "delete_words"}[edit], {"percent": 100 * ratio}


def check_fixed(values: Mapping[str, Any]) -> None:
    """Refuse the same dropout masks for views that differ otherwise.

    Raises:
        OptionError: they do.
    """
    for option, plain in (("view", "dropout"), ("encoders", 1), ("positives", "noisy")):
        value = values.get(option, plain)
        if value != plain:
            raise OptionError(
                "masks", "fixed", f"both views are then one vector; {option} must be {plain!r}"
            )


def check_difference(values: Mapping[str, Any]) -> bool:
    """Whether these values of DiffCSE make use of a generator.

    Raises:
        OptionError: edits for a task that has none, or neither term has a weight.
    """
    if not values["difference_weight"]:
        if not values["contrast_weight"]:
            raise OptionError(
                "difference_weight", 0, "and contrast_weight 0 leave nothing to learn"
            )
        return False
    if values["task"] != "detection" and values["edits"] != "replace":
        raise OptionError("edits", values["edits"], "belongs to task 'detection' alone")
    return bool(values["task"] != "masked_lm" and values["edits"] != "delete")


def check_generator(name: str | None, base: Path | None, *, option: str) -> None:
    """Refuse a masked language model that is missing or reads other ids than the encoder.

    Raises:
        OptionError: none is named.
        ModelError: it cannot be found, or its vocabulary is not the encoder's.
    """
    from contrasent.model.pretrained import resolve
    from contrasent.text.tokens import Tokenizer

    if not name:
        raise OptionError(
            option,
            "",
            "needs a masked language model with the encoder's vocabulary, by folder or name@commit "
            "(the paper takes distilbert-base-uncased for bert-base-uncased)",
        )
    folder = resolve(name)
    if base is not None:
        from contrasent.model.folder import describe

        own = Tokenizer.load(describe(base).transformer, max_tokens=16)
        check_vocabularies(Tokenizer.load(folder, max_tokens=16), own, name)


def check_vocabularies(one: Any, other: Any, name: str) -> None:
    """Refuse two tokenizers that give different ids to the same text.

    Raises:
        ModelError: their vocabularies differ.
    """
    from contrasent.errors import ModelError

    mine, own = (t.backend.get_vocab(with_added_tokens=True) for t in (one, other))
    if mine != own:
        differing = next(t for t in sorted(own.keys() | mine.keys()) if own.get(t) != mine.get(t))
        raise ModelError(
            f"{name}: its vocabulary ({len(mine)} entries) is not the encoder's ({len(own)}; they "
            f"differ in {differing!r}), so its predictions would be other words; choose a masked "
            "language model of the encoder's family"
        )
