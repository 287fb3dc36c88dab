"""The settings of a run: the same names in Python, in recipes and in ``--set``; no torch here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from contrasent.errors import OptionError
from contrasent.objectives._find import Parameter, parameters
from contrasent.text.buckets import FINE

Precision = Literal["fp32", "bf16", "fp16"]
Padding = Literal["none", "groups"]
Pooler = Literal["cls", "mean", "max", "first_last", "embeddings_last", "last_two"]
Head = Literal["none", "tanh", "batchnorm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to train, whatever the objective.

    Attributes:
        batch: rows a step, over all processes and accumulated parts.
        accumulate: cut each batch into this many forward passes; negatives come from a part alone.
        max_tokens: cut sentences at this many tokens in training.
        epochs: passes over the corpus, unless ``steps`` is given.
        steps: optimizer steps.
        lr: peak learning rate of AdamW.
        warmup: share of the steps over which the rate rises to its peak.
        weight_decay: of AdamW.
        clip: gradient norm to clip at.
        dropout: probability for hidden states.
        attention_dropout: probability for attention weights; that of ``dropout`` if None.
        pooler: pooler of the model; the base's own if None.
        head: head of the model, kept at inference: "none", "tanh", "batchnorm"; base's own if None.
        normalise: whether the model gives unit vectors; as the base does if None.
        precision: of the forward pass.
        padding: "none" computes rows without padding where the encoder is of a kind that allows it
            (:mod:`contrasent.model.packed`); "groups" goes through the encoder's own forward pass,
            in padded groups of similar length. The mathematics is the same, dropout masks are not.
        chunk: rows (of all views) whose forward pass is kept in memory at once; 0 for all. The
            gradient is that of the whole batch, for one more forward pass
            (:mod:`contrasent.model.groups`).
        compile: compile the encoder's own forward pass with torch.compile, on a GPU with CUDA
            graphs; rows are then padded to multiples of 8 tokens.
        buckets: "none"; "fine" for ESimCSE's six buckets of sentence length; or greatest lengths in
            tokens, such as "5" or "4,8" (ESimCSE, Table 6: an ablation that costs quality).
        evaluate_every: steps between evaluations.
        geometry_every: steps between measurements of alignment and uniformity on STS-B's dev split
            (SimCSE, Figure 2), kept in the run's log; 0 for none.
        checkpoint_every: steps between checkpoints.
        patience: stop after this many evaluations without a new best; 0 never stops.
        heldout: pairs, sentences or documents of the corpus held out for evaluation, at most.
        seed: of everything random.
    """

    batch: int = 64
    accumulate: int = 1
    max_tokens: int = 32
    epochs: float = 1.0
    steps: int | None = None
    lr: float = 3e-5
    warmup: float = 0.0
    weight_decay: float = 0.0
    clip: float = 1.0
    dropout: float = 0.1
    attention_dropout: float | None = None
    pooler: Pooler | None = None
    head: Head | None = None
    normalise: bool | None = None
    precision: Precision = "fp32"
    padding: Padding = "none"
    chunk: int = 0
    compile: bool = False
    buckets: str = "none"
    evaluate_every: int = 125
    geometry_every: int = 0
    checkpoint_every: int = 250
    patience: int = 0
    heldout: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "accumulate", "evaluate_every", "checkpoint_every"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "must be at least 1")
        # Two of them are the marks at both ends.
        _require("max_tokens", self.max_tokens, self.max_tokens >= 3, "must be at least 3")
        _require("steps", self.steps, self.steps is None or self.steps >= 1, "must be at least 1")
        for name in ("epochs", "lr"):
            value = getattr(self, name)
            _require(name, value, 0 < value < math.inf, "must be positive and finite")
        _require("warmup", self.warmup, 0 <= self.warmup < 1, "must be a share in [0, 1)")
        _require("clip", self.clip, self.clip > 0, "must be positive")
        decay = self.weight_decay
        _require("weight_decay", decay, 0 <= decay < math.inf, "must be finite and not negative")
        for name in ("dropout", "attention_dropout"):
            p = getattr(self, name)
            _require(name, p, p is None or 0 <= p < 1, "must be a probability in [0, 1)")
        for name in ("patience", "heldout", "seed", "geometry_every", "chunk"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, "must not be negative")
        _require("seed", self.seed, self.seed < 2**63, "must be less than 2^63")
        for name, kind in (
            ("precision", Precision),
            ("padding", Padding),
            ("pooler", Pooler),
            ("head", Head),
        ):
            value = getattr(self, name)
            if value is not None and value not in get_args(kind):
                raise OptionError(name, value, f"no such {name}", choices=get_args(kind))
        _ = self.bucket_cuts

    @property
    def bucket_cuts(self) -> tuple[int, ...]:
        """Greatest length of each bucket but the last; empty without buckets.

        Raises:
            OptionError: neither a name nor lengths.
        """
        if self.buckets == "none":
            return ()
        if self.buckets == "fine":
            return FINE
        try:
            return tuple(int(part) for part in self.buckets.split(","))
        except ValueError as error:
            raise OptionError(
                "buckets", self.buckets, 'write lengths such as "4,8"', choices=("fine", "none")
            ) from error


def _require(name: str, value: object, holds: bool, problem: str) -> None:
    if not holds:
        raise OptionError(name, value, problem)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Named values, divided into those of the run and those of the objective."""

    run: dict[str, Any]
    objective: dict[str, Any]


def choose(given: Mapping[str, Any], objective: str, *, option: str = "--set") -> Chosen:
    """Divide and check named values.

    Args:
        given: names and values, from ``--set`` or a recipe. Texts are read as the type wanted.
        objective: name of the objective.
        option: what to call the source in an error.

    Raises:
        OptionError: an unknown name, with the nearest known one, or a value of another type.
    """
    own = parameters(objective)
    known = {field.name for field in fields(Settings)}
    hints = get_type_hints(Settings)
    chosen = Chosen({}, {})
    for name, value in given.items():
        if name in own:
            chosen.objective[name] = _read(name, value, _kinds(own[name]))
        elif name in known:
            chosen.run[name] = _read(name, value, _options(hints[name]))
        else:
            problem = f"no such setting of a run or of {objective}"
            raise OptionError(option, name, problem, choices=sorted(known | set(own)))
    return chosen


def assignments(texts: list[str]) -> dict[str, str]:
    """Read ``key=value`` texts.

    Raises:
        OptionError: there is no "=".
    """
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError("--set", text, "write key=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _kinds(parameter: Parameter) -> tuple[Any, ...]:
    if parameter.default is not None:
        return (type(parameter.default), *((None,) if "None" in parameter.annotation else ()))
    simple = {"int": int, "float": float, "str": str, "bool": bool, "None": None}
    parts = [part.strip() for part in parameter.annotation.split("|")]
    return tuple(simple[part] for part in parts if part in simple)


def _options(hint: Any) -> tuple[Any, ...]:
    parts = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    names = [name for part in parts if get_origin(part) is Literal for name in get_args(part)]
    kinds = [str if get_origin(part) is Literal else part for part in parts]
    # The text "none" is a head; it stands for None only where it is no value itself.
    return tuple(
        None if k is NoneType else k for k in kinds if k is not NoneType or "none" not in names
    )


def _read(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    text = str(value)
    if None in kinds and (value is None or text.lower() in {"none", "null"}):
        return None
    for kind in kinds:
        if kind is bool:
            if text.lower() in {"true", "false"}:
                return text.lower() == "true"
        elif kind is str and isinstance(value, str):
            return value
        elif kind in (int, float) and not isinstance(value, bool):
            try:
                return kind(text)
            except ValueError:
                continue
    wanted = " or ".join("none" if k is None else k.__name__ for k in kinds)
    raise OptionError(name, value, f"must be of type {wanted}")
