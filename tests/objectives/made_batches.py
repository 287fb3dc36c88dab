"""Batches of six sentences, as the training loop makes them, without a corpus on disk."""

import numpy as np

from contrasent.text.batches import random_for
from contrasent.types import Batch, Tokens

TEXTS = [
    "the copper kettle was sold before dawn",
    "an old sailor painted two blue lamps",
    "my neighbor hid his violin",
    "a young clerk measured the wooden ladder while the rain kept falling on the roof",
    "the gardener forgot",
    "a torn map, a blue lamp and a violin",
]


def column(objective, view, index, texts, rows):
    """The texts after a view."""
    tokenizer, prompt = objective.encoder.tokenizer, objective.encoder.prompts.text()
    whole = tokenizer(texts, prompt)[0]
    randoms = [random_for(5, 2 + index, int(row), 0) for row in rows]
    if view.level == "row":
        return tokenizer([TEXTS[(row + 1) % len(TEXTS)] for row in rows], prompt)[0]
    if view.level == "word":
        return tokenizer(view.many(texts, randoms), prompt)[0]
    before, after = tokenizer.around(prompt)
    inner = [whole[i][len(before) : len(whole[i]) - len(after)] for i in range(len(whole))]
    if view.template:
        before, after = tokenizer.around(view.template)
    return Tokens.from_rows(
        np.concatenate([before, ids, after]) for ids in view.many(inner, randoms)
    )


def batch(objective, step=0, part=slice(None)):
    """The views of the sentences.

    For a labeled objective two hard negatives stand next to them; a graded one has other positives
    and scores.
    """
    rows = np.arange(len(TEXTS))[part]
    texts = [TEXTS[row] for row in rows]
    columns = [column(objective, view, i, texts, rows) for i, view in enumerate(objective.views)]
    scores = None
    tokenize, prompt = objective.encoder.tokenizer, objective.encoder.prompts.text()
    if objective.graded:
        columns[1] = tokenize([" ".join(t.split()[::2]) for t in texts], prompt)[0]
        scores = np.array([0, 2.5, 5, 2.5, 1, 4])[part]
    elif objective.labeled:
        hard = [" ".join(reversed(text.split())) for text in texts]
        shorter = [" ".join(text.split()[:3]) for text in texts]
        columns += [tokenize(made, prompt)[0] for made in (hard, shorter)]
    return Batch(tuple(columns), rows.astype(np.int64), step, scores=scores)
