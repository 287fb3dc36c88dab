"""Models from strangers: forged configs, weights and lists of modules."""

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.attack.bench import Bench, tiny_model, warm

SIZES: tuple[Any, ...] = (
    -1,
    0,
    1,
    3,
    2**31,
    2**63,
    10**30,
    0.5,
    1e308,
    "x",
    "2",
    "",
    None,
    True,
    [],
    {},
    [2],
)
KEYS = (
    "model_type", "num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size",
    "max_position_embeddings", "vocab_size", "hidden_act", "layer_norm_eps", "pad_token_id",
    "type_vocab_size", "position_embedding_type",
)  # fmt: skip


def forged(folder: Path, bench: Bench) -> str:
    """Change a model folder in place; what was done."""
    from fuzz_targets import Draw, odd_bytes, odd_json

    draw = bench.draw
    if draw.random() < 0.5:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        key, value = draw.choice(KEYS), draw.choice(SIZES)
        config[key] = value
        if draw.random() < 0.1:
            del config[key]
        path.write_text(json.dumps(config))
        return f"config.json, {key} = {value!r}"
    path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    decisions = Draw(draw.randbytes(64))
    if path.suffix == ".json":
        path.write_bytes(odd_json(decisions, json.loads(path.read_text())))
    else:
        path.write_bytes(odd_bytes(decisions, path.read_bytes()))
    return str(path.relative_to(folder))


def strangers(bench: Bench) -> None:
    """Forged folders, under commands that encode without torch and describe."""
    model = tiny_model(bench.home / "model")
    warm()
    for number in bench.numbers():
        copy = bench.home / "copy"
        shutil.copytree(model, copy)
        label = f"model {number}: {forged(copy, bench)}"
        bench.command(label, "similarity", copy, "a map", "a ladder")
        bench.command(label, "doctor", copy)
        shutil.rmtree(copy)


CASES = {"strangers' models": (strangers, 40)}
