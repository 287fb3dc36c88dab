"""The settings of a run, by the same names in Python, recipes and ``--set``, and their defaults.

A method's published settings are a plain BERT's and worsen a sentence encoder: such a base has
its own, measured in research/results.md.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from contrasent.elsewhere import setting_hint
from contrasent.engine.parameters import (
    Count,
    Parameter,
    Positive,
    Projector,
    Range,
    Size,
    check_values,
)
from contrasent.engine.registry import (
    base_shape,
    needs_pairs,
    parameters,
    parts,
    published,
    resolve,
)
from contrasent.errors import OptionError, check_choice
from contrasent.model.pooling import POOLERS
from contrasent.processes import BF16, instructions

AUTO = "auto"
Precision = Literal["fp32", "bf16", "fp16", "auto"]
Padding = Literal["none", "groups"]
if TYPE_CHECKING:
    Pooler = str
else:
    Pooler = Literal[tuple(POOLERS)]
Probability = Annotated[float, Range(least=0, below=1)]
FINE = (3, 4, 5, 6, 7)  # ESimCSE's fine buckets: up to 3, 4, 5, 6, 7 tokens, and 8 or more


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a training run, for every method.

    Attributes:
        batch_size: rows in a step, over all processes and accumulation steps.
        gradient_accumulation_steps: split each batch into this many forward passes; negatives come
            from the same part.
        max_seq_length: cut training sentences at this many tokens.
        num_train_epochs: passes over the corpus, if ``max_steps`` is None.
        max_steps: number of optimizer steps; takes the place of ``num_train_epochs``.
        learning_rate: peak learning rate of AdamW.
        warmup_ratio: share of the steps over which the learning rate rises to its peak.
        weight_decay: weight decay of AdamW.
        max_grad_norm: clip the gradient at this norm.
        dropout: dropout probability of hidden states.
        attention_dropout: dropout probability of attention weights; as ``dropout`` if None.
        pooling: how token vectors make a sentence vector. If None, as the base says; else "cls",
            "last_token" for a decoder, or "mean" for a bidirectional decoder.
        bidirectional: let every token of a decoder attend to all others; saved with the model
            (LLM2Vec: BehnamGhader et al. 2024, section 2.1).
        lora: rank of the adapters to train (LoRA: Hu et al. 2022), which are merged into the saved
            model; 0 trains all weights.
        head: head that stays in the model: "none", "tanh" or "batchnorm"; the base's own if None.
        normalize: whether the model scales vectors to length one; as the base if None.
        hard_negatives: number of hard negatives that the base finds for each pair among the other
            answers: the nearest with at most 95 % of the positive's cosine.
        query_prompt: text before queries, which are the first column of a corpus of pairs, in
            training and in the saved model; the base's own if None.
        document_prompt: text before documents, which are the other columns.
        precision: precision of the forward pass. "auto" is bf16 on hardware that computes in it (a
            GPU, or a CPU with AVX-512 BF16 or AMX), else fp32. It is the default for methods that
            lose nothing by it (``contrasent reproduce own:precision``).
        padding: "none" computes without padding on a CPU, for encoders that allow it
            (docs/methods.md); "groups" pads groups of similar length. Results differ in
            dropout masks only.
        mini_batch_size: rows, over all views, whose forward pass is kept in memory at once; 0 for
            all. The gradient is that of the whole batch (GradCache), for one more forward pass.
        compile: compile the encoder with torch.compile, on a GPU with CUDA graphs; rows are then
            padded to multiples of 8 tokens.
        buckets: batches of sentences of similar length: "none", "fine" for ESimCSE's six buckets,
            or greatest lengths in tokens, such as "4,8" (ESimCSE, Table 6: an ablation that lowers
            quality).
        weights: with several corpora, the ratio of their batches, such as "2,1"; by default that of
            their rows.
        eval_steps: steps between evaluations.
        geometry_every: steps between measurements of alignment and uniformity on STS-B dev (SimCSE,
            Figure 2), for the run's log; 0 for none.
        save_steps: steps between checkpoints.
        early_stopping_patience: stop after this many evaluations without a better score; 0 never
            stops early.
        eval_size: most pairs, sentences or documents of the corpus to hold out for evaluation.
        seed: random seed.

    Examples:
        >>> from contrasent import Settings
        >>> settings = Settings(batch_size=32, learning_rate=2e-5)
        >>> settings.num_train_epochs, settings.max_seq_length
        (1.0, 32)
        >>> Settings(batch_size=0)
        Traceback (most recent call last):
        contrasent.errors.OptionError: batch_size 0: must be 1 or more
    """

    batch_size: Count = 64
    gradient_accumulation_steps: Count = 1
    # Two tokens are the marks at both ends.
    max_seq_length: Annotated[int, Range(least=3)] = 32
    num_train_epochs: Positive = 1.0
    max_steps: Count | None = None
    learning_rate: Positive = 3e-5
    warmup_ratio: Probability = 0.0
    weight_decay: Annotated[float, Range(least=0)] = 0.0
    max_grad_norm: Annotated[float, Range(above=0, most=math.inf)] = 1.0
    dropout: Probability = 0.1
    attention_dropout: Probability | None = None
    pooling: Pooler | None = None
    bidirectional: bool = False
    lora: Size = 0
    head: Projector | None = None
    normalize: bool | None = None
    hard_negatives: Size = 0
    query_prompt: str | None = None
    document_prompt: str | None = None
    precision: Precision = "fp32"
    padding: Padding = "none"
    mini_batch_size: Size = 0
    compile: bool = False
    buckets: str = "none"
    weights: str = ""
    eval_steps: Count = 125
    geometry_every: Size = 0
    save_steps: Count = 250
    early_stopping_patience: Size = 0
    eval_size: Size = 1000
    seed: Annotated[int, Range(least=0, below=2**63)] = 0

    def __post_init__(self) -> None:
        if self.precision == AUTO:
            object.__setattr__(self, "precision", fast_precision())
        known = run_settings()
        check_values(known.values(), {name: getattr(self, name) for name in known})
        _ = self.bucket_cuts, self.corpus_weights

    @property
    def corpus_weights(self) -> tuple[float, ...]:
        """The weight of each of several corpora; empty for their sizes."""
        try:
            numbers = tuple(float(part) for part in self.weights.split(",") if self.weights)
        except ValueError:
            numbers = (-1.0,)
        if not all(0 < number < math.inf for number in numbers):
            raise OptionError("weights", self.weights, 'must be positive numbers such as "2,1"')
        return numbers

    @property
    def bucket_cuts(self) -> tuple[int, ...]:
        """Greatest length of each bucket but the last; empty without buckets."""
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


VARIABLE = "CONTRASENT_PRECISION"
SHOWN_IN_BF16 = ("simcse", "simcse_plus_plus", "simcse_supervised")
"""Methods that were shown to train as well in bf16 as in fp32 (``contrasent reproduce
own:precision``): their precision is "auto" unless another is stated, and so is a combination's."""


def fast_precision() -> Precision:
    """The precision that "auto" is: the variable's, or what this machine computes fast in."""
    stated = os.environ.get(VARIABLE, "")
    if stated:
        check_choice(VARIABLE, stated, ("bf16", "fp32"))
        return "bf16" if stated == "bf16" else "fp32"
    import torch  # slow to import for --help

    if torch.cuda.is_available():
        good = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        good = not BF16.isdisjoint(instructions())
    return "bf16" if good else "fp32"


@cache
def run_settings() -> dict[str, Parameter]:
    """The settings of a run by name, with types and ranges."""
    hints = get_type_hints(Settings, include_extras=True)
    return {f.name: Parameter(f.name, hints[f.name], f.default) for f in fields(Settings)}


Values = dict[str, Any]


def choose(
    given: Mapping[str, Any], objective: str | None, *, option: str = "--set"
) -> tuple[Values, Values]:
    """Read named values, and divide them into those of the run and those of the objective."""
    declared, known = {} if objective is None else parameters(objective), run_settings()
    for name in declared.keys() & known.keys():
        problem = f"its parameter {name!r} has the name of a training setting; rename it"
        raise OptionError("--objective", objective, problem)
    for name in given:
        if name not in declared | known:
            if hint := setting_hint(name):
                raise OptionError(option, name, hint)
            problem = f"unknown setting of a run{f' or of {objective}' if objective else ''}"
            raise OptionError(option, name, problem, choices=sorted(known | declared))
    of_run = {name: known[name].read(value) for name, value in given.items() if name in known}
    return of_run, {n: declared[n].read(value) for n, value in given.items() if n in declared}


def assignments(texts: list[str], option: str = "--set", form: str = "key=value") -> dict[str, str]:
    """Read ``key=value`` texts."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name):
            raise OptionError(option, text, f"write {form}")
        pairs[name.strip()] = value
    return pairs


SENTENCE_ENCODER, LANGUAGE_MODEL = "sentence encoder", "language model"

ENCODER_SETTINGS: dict[str, Any] = {
    "batch_size": 64,
    "learning_rate": 3e-6,
    "num_train_epochs": 1.0,
}
"""Settings that take the place of a method's where the base is a sentence encoder."""

ENCODER_SETTINGS_PAIRS = {**ENCODER_SETTINGS, "learning_rate": 2e-5}
"""The same where the method learns from pairs, whose held-out ones watch over it."""

ENCODER_DROPS = ("head", "mini_batch_size")
"""Published settings that a sentence encoder does not use: it keeps its own head."""

MOST_STEPS = 40
"""Steps of a run on single sentences from a sentence encoder, however large the corpus is: what
was measured to do no harm."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values chosen for settings that were not stated."""

    base: str  # what the base is: "sentence encoder" or "language model"
    # names and values of the settings chosen; others are those of `Settings`
    values: dict[str, Any]

    def line(self, objective: str) -> str:
        """The chosen values and the reasons, for people; empty if there are none."""
        chosen: dict[str, list[str]] = {}
        for name, value in self.values.items():
            why = f"from the paper of {objective}"
            if name == "duplicates":
                why = "for repeated texts"
            elif name == "generator":
                why = f"since the base is {value}"
            elif name == "precision":
                why = "for this processor (--set precision=fp32 changes it)"
            elif self.base == SENTENCE_ENCODER and name in (*ENCODER_SETTINGS, "max_steps"):
                why = "for a sentence encoder"
            number = f"{value:g}" if isinstance(value, float) else value
            chosen.setdefault(why, []).append(f"{name} {number}")
        parts = [f"{why}: {', '.join(values)}" for why, values in chosen.items()]
        return f"Defaults {'; '.join(parts)}" if parts else ""


QUEUE = ("momentum", "momentum_init", "queue_column", "queue_start")
DIMENSIONS = ("temperature", "norm", "variance", "reduction", "epsilon")
NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "bias": {"loss": ("sigmoid",)},
    "alpha": {"copies": ("negative",), "hard_negatives": ()},
    "edit_ratio": {"edits": ("insert", "delete", "all")},
    "passes": {"positives": ("mean",), "negatives": ("mean",)},
    "noise_variance": {"positives": ("gaussian",), "negatives": ("gaussian",)},
    **{name: {"queue_size": ()} for name in QUEUE},
    **{f"dimension_{name}": {"dimension_weight": ()} for name in DIMENSIONS},
}
"""Parameters that have an effect with others alone: one of their values, or any but 0."""


def check_needs(objective: str, given: Values, stated: Iterable[str], run: Values) -> None:
    """Reject a stated parameter, not its default, that other values leave without effect."""
    for name in NEEDS.keys() & given.keys() & set(stated):
        absent: Values = {}
        for method, values in resolve(objective, given):
            if name in values and given[name] != method.parameters[name].default:
                found = {key: (run | values)[key] for key in NEEDS[name] if key in run | values}
                needs = NEEDS[name].items()
                if not found or any(found.get(k) in v if v else found.get(k) for k, v in needs):
                    break
                absent |= found
        else:
            wanted = [f"{key}={' or '.join(NEEDS[name][key]) or '...'}" for key in absent]
            if wanted:
                problem = f"has no effect without {' or '.join(wanted)}"
                raise OptionError(name, given[name], problem)


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """All settings of a run."""

    settings: Settings
    parameters: dict[str, Any]  # of the objective, those that were stated
    # what was chosen for settings that were not; None for a run that was begun from Python
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
    of_run, of_objective = choose(given or {}, objective)
    checked = Settings(**of_run)  # rejects bad values before anything is counted by them
    stated = of_run | of_objective
    if stored is not None and not stored:
        return ResolvedSettings(checked, of_objective, None)
    if stored:
        kind, values = stored["base"], dict(stored["values"])
    else:
        kind = base_kind(base)
        values = _unstated(base, kind, objective, stated, corpus)
    if stated.get("precision") == AUTO:
        del stated["precision"]
        values.setdefault("precision", checked.precision)
    values = {name: value for name, value in values.items() if name not in stated}
    of_run, of_objective = choose({**values, **stated}, objective)
    settings = Settings(**of_run)
    hard = settings.hard_negatives or max(0, getattr(corpus, "width", 3) - 2)  # or columns
    check_needs(objective, of_objective, stated, {"hard_negatives": hard})
    return ResolvedSettings(settings, of_objective, Defaults(kind, values))


def base_kind(folder: Path | None) -> str:
    """The kind of a model: a sentence encoder if its folder states how to pool."""
    for home in (folder, folder.parent) if folder is not None else ():
        try:
            modules = json.loads((home / "modules.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        kinds = [str(m.get("type")) for m in modules if isinstance(m, dict)]
        if any(kind.endswith("Pooling") for kind in kinds):
            return SENTENCE_ENCODER
    return LANGUAGE_MODEL


def _unstated(
    base: Path,
    kind: str,
    objective: str,
    stated: Mapping[str, Any],
    corpus: Iterable[Any] | None,
) -> Values:
    """Values that suit the base and the method; those that are stated count for the others."""
    paired = needs_pairs(objective)
    values = dict(published(objective, base_shape(base) if kind == LANGUAGE_MODEL else None))
    if kind == SENTENCE_ENCODER:
        values = {k: v for k, v in values.items() if k not in ENCODER_DROPS}
        values |= ENCODER_SETTINGS_PAIRS if paired else ENCODER_SETTINGS
    if not stated.keys().isdisjoint(("max_steps", "num_train_epochs")):
        values.pop("num_train_epochs", None)
    elif kind == SENTENCE_ENCODER and corpus is not None and not paired:
        batch = int(stated.get("batch_size", values["batch_size"]))
        if sum(1 for _ in corpus) // batch > MOST_STEPS:
            del values["num_train_epochs"]
            values["max_steps"] = MOST_STEPS
    known = parameters(objective)
    if paired and "duplicates" in known:
        values["duplicates"] = "mask"
    shown = all(name in SHOWN_IN_BF16 for name in parts(objective))
    if shown and "precision" not in stated and (precision := fast_precision()) != "fp32":
        values["precision"] = precision
    if "generator" in known:
        from contrasent.model.pretrained import SMALL, installed_small  # numpy, as above

        if base == installed_small():
            values["generator"] = SMALL
    return values
