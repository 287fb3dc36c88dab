"""A run defined by names and values."""

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contrasent.datasets.hub import fetch_corpus
from contrasent.datasets.sts import sts_pairs
from contrasent.engine.registry import described, needs_pairs, needs_scores
from contrasent.errors import OptionError
from contrasent.evaluate.geometry import DURING_TRAINING, geometry
from contrasent.evaluate.validation import (
    LabeledValidation,
    NeighborValidation,
    choose_validation,
    confirming,
)
from contrasent.files import read_object
from contrasent.model.base import TASKS, Prompts
from contrasent.model.description import describe
from contrasent.model.pretrained import MINILM, resolve
from contrasent.stats.bootstrap import MIN_ITEMS
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.heldout import Split, hold_out
from contrasent.text.tables import brief
from contrasent.text.tokens import TextKeys, Tokenizer
from contrasent.train.run import Evaluate, Keep, Run, RunFolder, choose_keep
from contrasent.train.settings import (
    LANGUAGE_MODEL,
    Defaults,
    Settings,
    base_kind,
    resolve_settings,
)

if TYPE_CHECKING:
    from contrasent.engine.objective import Objective

log = logging.getLogger(__name__)

OTHERWISE = "train again, or compare with --collection or --pairs on other data"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run before its first step; of a method by name no weights are loaded."""

    objective: "str | Objective"  # the name of a method, or one that is trained as it is
    corpus: Corpus
    settings: Settings
    parameters: Mapping[str, Any] = field(default_factory=dict)  # those that were stated
    defaults: Defaults | None = None  # for settings that were not; None for an objective
    base: str | None
    evaluate: Evaluate | None
    validation: str | None = None  # name of the evaluation, "function" for one from Python
    keep: Keep
    rows: NDArray[np.int64] | None = None  # of the corpus that are trained on; all if None
    note: str = ""  # held-out rows, and limits of the evaluation

    def __post_init__(self) -> None:
        blind = self.evaluate is None or getattr(self.evaluate, "floor", None) is not None
        if blind and (patience := self.settings.early_stopping_patience):
            problem = "needs an evaluation that shows gain, which this run lacks (--evaluate)"
            raise OptionError("early_stopping_patience", patience, problem)

    def notices(self) -> list[str]:
        """What to know before the first step: the role of every column, and what is left out."""
        return [*self.corpus.roles, *self.corpus.notes(), *self.note.splitlines()]

    @property
    def base_name(self) -> str | None:
        """The base without local folders."""
        return Path(self.base).name if self.base and Path(self.base).is_dir() else self.base

    def config(self, objective: dict[str, Any], processes: int) -> dict[str, Any]:
        """The run in ``run/settings.json``; a resumed run must have the same."""
        chosen = {} if self.defaults is None else {"defaults": asdict(self.defaults)}
        return chosen | {
            "settings": asdict(self.settings),
            "objective": objective,
            "base": self.base_name,
            "corpus": {"source": self.corpus.source, "sha256": self.corpus.digest()},
            "rows": None if self.rows is None else rows_digest(self.rows),
            "evaluated": self.evaluate is not None,
            "evaluation": getattr(self.evaluate, "digest", "") or self.validation,
            "processes": processes,
            "keep": None if self.evaluate is None else self.keep,
        }

    def finished(self, folder: Path) -> Run | None:
        """The result of the same run of a method in a folder, if complete."""
        place = RunFolder(folder)
        done = place.finished()
        # Each of several processes must take part in the others' check.
        if done is None or not place.ended() or "WORLD_SIZE" in os.environ:
            return None
        place.check_same(self.config(described(str(self.objective), self.parameters), 1))
        return done


def open_corpora(*sources: Any, **options: Any) -> Corpus:
    """Open one corpus or several, files, folders or the hub's owner/name@commit#config/split."""
    names = [fetch_corpus(source) if isinstance(source, str) else [] for source in sources]
    first, *others = (
        open_corpus(files or source, **options)
        for files, source in zip(names, sources, strict=True)
    )
    return first.join(*others) if others else first


def default_method(corpus: Corpus) -> str:
    """The method for a corpus: by its scores, its pairs, or its single sentences."""
    if corpus.scored:
        return "cosent"
    return "simcse" if corpus.width == 1 else "simcse_supervised"


def make_plan(
    corpus: Corpus,
    given: Mapping[str, Any],
    *,
    method: str,
    base: str | Path | None = None,
    evaluate: Evaluate | str | None = None,
    keep: Keep | None = None,
    stored: Mapping[str, Any] | None = None,
) -> Plan:
    """Complete a run from the given options, see :func:`contrasent.fit`."""
    base = str(base or MINILM)
    folder = resolve(base)
    resolved = resolve_settings(folder, method, given, corpus=corpus, stored=stored)
    paired = needs_pairs(method) and not needs_scores(method)
    prompts = with_prompts(describe(folder).prompts, resolved.settings)
    keys = text_keys(folder, resolved.settings.max_seq_length, prompts, corpus.width, paired=paired)
    evaluator: Evaluate | None
    if callable(evaluate):
        validation, evaluator, rows, note = "function", evaluate, None, ""
    else:
        settings = resolved.settings
        validation, evaluator, rows, note = choose_validation(
            None if evaluate is None else str(evaluate),
            corpus,
            settings.eval_size,
            keys,
        )
    if isinstance(evaluator, NeighborValidation) and base_kind(folder) == LANGUAGE_MODEL:
        # Training should change a language model's neighborhoods.
        evaluator = replace(evaluator, floor=0.0)
    return Plan(
        objective=method,
        corpus=corpus,
        settings=resolved.settings,
        parameters=resolved.parameters,
        defaults=resolved.defaults,
        base=base,
        evaluate=evaluator,
        validation=validation,
        keep=choose_keep(keep, evaluator, note),
        rows=rows,
        note=note,
    )


def with_prompts(given: Prompts, settings: Settings) -> Prompts:
    """The base's prompts, replaced by those in the settings; "" for none."""
    texts = dict(given.texts)
    stated = {"query": settings.query_prompt, "document": settings.document_prompt}
    for task, text in stated.items():
        if text is not None:
            texts = {name: t for name, t in texts.items() if name not in TASKS[task]} | {task: text}
    return Prompts(texts, given.default if texts.get(given.default or "") else None)


def column_prompts(prompts: Prompts, width: int, *, paired: bool) -> tuple[str, ...]:
    """The prompts of each column; of pairs, those of a query and of documents."""
    if paired:
        return prompts.of_task("query"), *[prompts.of_task("document")] * (width - 1)
    return (prompts.text(),) * width


def text_keys(
    folder: Path, max_seq_length: int, prompts: Prompts, width: int, *, paired: bool
) -> TextKeys:
    """Which texts are equal as a model reads them in training."""
    stored = describe(folder)
    tokenizer = Tokenizer.load(stored.transformer, max_seq_length=max_seq_length)
    by_column = column_prompts(prompts, width, paired=paired)
    for prompt in by_column:
        taken = len(tokenizer.plain(prompt)) + sum(map(len, tokenizer.around(prompt)))
        if prompt and taken >= max_seq_length:
            problem = f"the prompt {brief(prompt)} leaves no room for a text; with special tokens"
            raise OptionError(
                "max_seq_length", max_seq_length, f"{problem} it has {taken}: raise max_seq_length"
            )
    return TextKeys(tokenizer, stored.lower_case, by_column)


def run_of(folder: Path) -> dict[str, Any]:
    """How a model was trained; empty if its folder tells of no training."""
    # An export and run/best lie inside of the trained model.
    homes = (folder.resolve(), *folder.resolve().parents[:2])
    records = (read_object(home / "run" / "settings.json") for home in homes)
    return next((record for record in records if "corpus" in record), {})


def unseen_pairs(
    models: Mapping[str, Path], corpus: Corpus
) -> tuple[list[str], list[str], list[list[int]]]:
    """Queries, documents and which belong together: of pairs that took no part in any model's run.

    Neither trained on nor used to choose a step. Without a run on the corpus, those of a first one.
    """
    splits: dict[str, Split] = {}
    digest, shown = corpus.digest(), Path(corpus.source).name
    for name, folder in models.items():
        run = run_of(folder)
        if not run or run["rows"] in splits:
            continue
        source, same = run["corpus"]["source"], run["corpus"]["sha256"] == digest
        if not same and shown not in [Path(part).name for part in source.split(" + ")]:
            log.warning("%s was trained on %s: does it share pairs with %s?", name, source, shown)
            continue
        settings, prompts = run["settings"], describe(folder).prompts
        length, paired = int(settings["max_seq_length"]), not corpus.scored
        keys = text_keys(folder, length, prompts, corpus.width, paired=paired)
        split = hold_out(corpus, int(settings["eval_size"]), keys=keys)
        if not same or run["rows"] != rows_digest(split.train):
            problem = f"{name} was trained on other rows or columns than --evaluate heldout leaves"
            raise OptionError("--on", shown, f"{problem}; {OTHERWISE}")
        splits[run["rows"]] = split
    if not splits:
        split = hold_out(corpus, Settings().eval_size)
        return split.queries, split.pool, split.relevant
    fair = []
    for split in splits.values():
        labeled = LabeledValidation(split.queries, split.documents, split.scores)
        every = np.arange(len(split.queries))
        places = labeled.halves()[1] if corpus.scored else confirming(every)
        fair.append({(split.queries[place], split.documents[place]) for place in places})
    split = min(splits.values(), key=lambda split: len(split.queries))
    pairs = enumerate(zip(split.queries, split.documents, strict=True))
    kept = [place for place, pair in pairs if all(pair in few for few in fair)]
    if len(kept) < MIN_ITEMS:
        problem = f"{len(kept)} of its pairs were held out by all models and chose no step"
        remedy = f"{MIN_ITEMS} are needed, as of {10 * MIN_ITEMS} pairs and one eval_size"
        raise OptionError("--on", shown, f"{problem}; {remedy}; {OTHERWISE}")
    return [split.queries[n] for n in kept], split.pool, [split.relevant[n] for n in kept]


def rows_digest(rows: NDArray[np.int64]) -> str:
    """How a run records the rows that it trains on."""
    return hashlib.sha256(rows.tobytes()).hexdigest()


def geometry_on_stsb() -> Evaluate:
    """Alignment and uniformity on STS-B's development split; missing data are an error at once."""
    sts_pairs("STSB", split="dev")
    return lambda encode: geometry(encode, split="dev", sample=DURING_TRAINING, resamples=0)
