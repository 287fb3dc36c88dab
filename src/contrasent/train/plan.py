"""A run that is stated by names and values: its settings completed, its evaluation chosen."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contrasent.datasets.hub import fetch_corpus
from contrasent.datasets.sts import sts_pairs
from contrasent.engine.registry import described
from contrasent.evaluate.geometry import DURING_TRAINING, geometry
from contrasent.evaluate.validation import NeighbourValidation, choose_validation
from contrasent.model.pretrained import MINILM, resolve
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.train.run import Keep, Run, RunFolder, run_config
from contrasent.train.settings import (
    LANGUAGE_MODEL,
    ResolvedSettings,
    base_kind,
    resolve_settings,
)

if TYPE_CHECKING:
    from contrasent.train.monitor import Evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run before its first step; no weights are loaded."""

    method: str
    base: str
    corpus: Corpus
    resolved: ResolvedSettings
    validation: str  # name of the evaluation, "function" for one from Python
    evaluate: "Evaluate | None"
    rows: NDArray[np.int64] | None  # training rows of the corpus; all if None
    note: str  # held-out rows, and limits of the evaluation

    @property
    def public_base(self) -> str:
        """The base's name without folders of this machine."""
        return Path(self.base).name if Path(self.base).is_dir() else self.base

    def finished(self, folder: Path, keep: Keep) -> Run | None:
        """The result of the same run in a folder if it is complete there."""
        done = RunFolder(folder).finished()
        # Of several processes each must take part in the check of the others.
        if done is None or not RunFolder(folder).ended() or "WORLD_SIZE" in os.environ:
            return None
        config = run_config(
            self.resolved.settings,
            described(self.method, self.resolved.parameters),
            self.corpus,
            self.rows,
            base=self.public_base,
            evaluated=self.evaluate is not None,
            processes=1,
            defaults=self.resolved.defaults,
            keep=keep,
        )
        RunFolder(folder).check_same(config)
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
    evaluate: "Evaluate | str | None" = None,
    stored: Mapping[str, Any] | None = None,
) -> Plan:
    """Complete a run from what was stated, see :func:`contrasent.fit`."""
    base = str(base or MINILM)
    folder = resolve(base)
    resolved = resolve_settings(folder, method, given, corpus=corpus, stored=stored)
    judge: Evaluate | None
    if callable(evaluate):
        validation, judge, rows, note = "function", evaluate, None, ""
    else:
        settings = resolved.settings
        validation, judge, rows, note = choose_validation(
            evaluate, corpus, settings.heldout, settings.seed
        )
    if isinstance(judge, NeighbourValidation) and base_kind(folder) == LANGUAGE_MODEL:
        # Training is to move a language model's neighbourhoods, not to leave them.
        judge = replace(judge, floor=0.0)
    return Plan(
        method=method,
        base=base,
        corpus=corpus,
        resolved=resolved,
        validation=validation,
        evaluate=judge,
        rows=rows,
        note=note,
    )


def geometry_on_stsb(every: int) -> "Evaluate | None":
    """Alignment and uniformity on STS-B's development split; missing data are an error at once."""
    if not every:
        return None
    sts_pairs("STSB", split="dev")
    return lambda encode: geometry(encode, split="dev", sample=DURING_TRAINING, resamples=0)
