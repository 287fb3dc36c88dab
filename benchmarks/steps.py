"""What a training step of each method costs, relative to SimCSE's.

    python -m benchmarks.steps --base FOLDER [--rounds 5]

One process holds all methods with equal encoders and the same batch, and takes one step of each in
turn, so that a machine whose speed drifts slows them alike. Printed is the median of the ratios to
the SimCSE step of the same round, with the smallest and the largest, and what the rows alone would
explain: 3 N rows of forward and backward against 2 N are 1.5.
"""

import argparse
import statistics
import time

import numpy as np

METHODS = {
    "simcse": {},
    "esimcse": {},
    "simcse_plus_plus": {},
    "diffcse": {"generator": "BASE"},
    "esimcse+simcse_plus_plus": {},
    "diffcse+simcse_plus_plus": {"generator": "BASE"},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="folder of a masked language model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()

    from pathlib import Path

    import torch

    from benchmarks.worker import sentences
    from contrasent.text.batches import Collator, Plan
    from contrasent.text.cache import tokenised
    from contrasent.text.corpus import open_corpus
    from contrasent.text.tokens import Tokenizer
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings

    base = Path(options.base)
    settings = Settings(batch=options.batch, max_tokens=options.tokens)
    corpus = open_corpus(sentences(options.batch * (options.rounds + 2)))
    work = {}
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, given in METHODS.items():
            values = {k: str(base) if v == "BASE" else v for k, v in given.items()}
            objective = prepare(base, name, values, settings)
            inside = objective.encoder.tokenizer
            tokenizer = Tokenizer(inside.backend, max_tokens=options.tokens, names=inside.names)
            cache = tokenised(corpus, tokenizer, Path(folder) / "tokens", lower=False)
            plan = Plan.make(np.arange(len(cache)), batch=options.batch, seed=0, parts=1)
            optimizer = torch.optim.AdamW(
                [p for p in objective.parameters() if p.requires_grad], lr=1e-5, fused=True
            )
            objective.train()
            work[name] = (objective, Collator(cache, plan, objective.views, tokenizer), optimizer)
        times: dict[str, list[float]] = {name: [] for name in work}
        for step in range(options.rounds + 1):
            for name, (objective, collator, optimizer) in work.items():
                began = time.perf_counter()
                optimizer.zero_grad(set_to_none=True)
                objective.loss(objective(collator.batch(step))).backward()
                optimizer.step()
                objective.after_step()
                if step:
                    times[name].append(time.perf_counter() - began)
    print(
        f"{torch.get_num_threads()} threads, batch {options.batch}, {options.tokens} tokens, fp32"
    )
    for name, seconds in times.items():
        ratios = [a / b for a, b in zip(seconds, times["simcse"], strict=True)]
        print(
            f"{name:28s} {statistics.median(ratios):.2f}x ({min(ratios):.2f} to "
            f"{max(ratios):.2f}), {statistics.median(seconds):.2f} s a step"
        )


if __name__ == "__main__":
    main()
