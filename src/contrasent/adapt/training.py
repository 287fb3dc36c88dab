"""An encoder trained on user queries and the passages that answer them: ``adapt --train-encoder``.

The held-out verdict of ``train`` decides. What is learned on top of a trained encoder is evaluated
by the queries that were held out, since the encoder has seen the others.
"""

from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.bench import Bench
from contrasent.errors import import_extra
from contrasent.text.corpus import open_corpus
from contrasent.text.heldout import hold_out

METHOD = "simcse_supervised"
SETTINGS = {"num_train_epochs": 3.0, "learning_rate": 5e-5, "max_seq_length": 128}
HELD_OUT = 1000  # pairs at most


def train_encoder(bench: Bench, base: Path, folder: Path, seed: int) -> dict[str, Any]:
    """Train a base on the queries of a bench; a killed run resumes.

    Returns:
        the verdict: "improved", "reason", and the queries that the encoder has "seen".
    """
    fit = import_extra("contrasent.train.fit", "train", "--train-encoder").fit
    pairs = query_passage_pairs(bench)
    settings = SETTINGS | {"eval_size": HELD_OUT, "seed": seed}
    how: dict[str, Any] = {"evaluate": "heldout", "resume": True}
    run = fit(METHOD, pairs, settings, output_dir=folder, base=base, **how)
    rows = hold_out(open_corpus(pairs), HELD_OUT, seed=seed).train
    seen = {pairs[row][0] for row in rows.tolist()}
    reason = f"held-out {run.metric} {run.base_score:.3f} to {run.score:.3f}"
    if run.gain is not None and run.gain.low is not None:
        interval = f"95 % CI [{run.gain.low:+.3f}, {run.gain.high:+.3f}]"
        reason += f" ({run.gain.value:+.3f}, {interval} on {run.gain.count} others)"
    return {"improved": run.improved is True, "reason": reason, "seen": sorted(seen)}


def query_passage_pairs(bench: Bench) -> list[tuple[str, str]]:
    """Each query with the nearest passage of every document that answers it."""
    pairs = []
    for number, query in enumerate(bench.queries):
        for document in (unit for unit, gain in query.relevant.items() if gain > 0):
            rows = bench.rows_of(document)
            nearest = rows[np.argmax(bench.index.vectors[rows] @ bench.vectors[number])]
            (passage,) = bench.index.rows(np.array([nearest]))
            pairs.append((query.text, passage.text))
    return pairs
