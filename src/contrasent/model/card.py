"""The model card: README.md with YAML that the hub shows, and how to load the model."""

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from contrasent.report import Report
from contrasent.text.cache import TokenCache

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card tells beyond the model itself; all of it measured or set, nothing guessed.

    Attributes:
        base: name of the model that training began from.
        objective: name and parameters.
        data: source, rows, hash, truncated sentences.
        settings: of the run.
        step: after which this model was taken.
        report: its scores.
    """

    base: str | None = None
    objective: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    report: Report | None = None

    def with_data(self, source: str, rows: int, cache: TokenCache) -> "Facts":
        """Add what was trained on."""
        name = source.rsplit("/", 1)[-1]
        data = {"source": name, "rows": rows, "sha256": cache.digest, "cut": cache.truncated}
        return replace(self, data=data)

    def with_training(
        self, objective: dict[str, Any], settings: dict[str, Any], step: int, report: Report | None
    ) -> "Facts":
        """Add how it was trained and what it scored."""
        return replace(self, objective=objective, settings=settings, step=step, report=report)


def card(encoder: "Encoder", facts: Facts) -> str:
    """The text of README.md."""
    head = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": [
            "sentence-transformers",
            "sentence-similarity",
            "feature-extraction",
            "contrasent",
        ],
        **({"base_model": facts.base} if facts.base else {}),
        **({"model-index": _index(facts.report)} if facts.report else {}),
    }
    # JSON is YAML, and json.dumps quotes what has to be quoted.
    yaml = "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items())
    parts = [f"---\n{yaml}\n---\n", "# A sentence encoder\n", _about(encoder), _use(encoder)]
    if facts.objective:
        parts.append(_training(facts))
    if facts.report:
        parts.append("## Scores\n\n" + _scores(facts.report))
    return "\n".join(parts)


def _about(encoder: "Encoder") -> str:
    unit = "unit length" if encoder.normalise else "not normalised"
    return (
        f"Vectors of {encoder.dimension} dimensions ({unit}), pooled by `{encoder.pooling}` from "
        f"{encoder.layers} layers; texts are cut at {encoder.max_tokens} tokens. "
        "Compare vectors by cosine.\n"
    )


def _use(encoder: "Encoder") -> str:
    lines = [
        "## Use\n",
        "```python",
        "from contrasent import Encoder",
        'vectors = Encoder.load("FOLDER").encode(["a sentence", "another"])',
        "```\n",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        'vectors = SentenceTransformer("FOLDER").encode(["a sentence", "another"])',
        "```\n",
    ]
    if encoder.head is None and encoder.pooling == "cls":
        lines += [
            "```python",
            "from transformers import AutoModel, AutoTokenizer",
            'tokenizer, model = (c.from_pretrained("FOLDER") for c in (AutoTokenizer, AutoModel))',
            'inputs = tokenizer(["a sentence"], padding=True, return_tensors="pt")',
            "vectors = model(**inputs).last_hidden_state[:, 0]",
            "```\n",
        ]
    return "\n".join(lines)


def _training(facts: Facts) -> str:
    rows = [
        ("base", facts.base or "not stated"),
        ("objective", json.dumps(facts.objective)),
        ("data", json.dumps(facts.data)),
        ("settings", json.dumps(facts.settings)),
        ("taken after step", str(facts.step)),
    ]
    table = "\n".join(f"| {name} | `{value}` |" for name, value in rows)
    return f"## Training\n\n| what | value |\n| --- | --- |\n{table}\n"


def _scores(report: Report) -> str:
    lines = [
        "| task | split | metric | value | 95 % interval | count |",
        "|---|---|---|---|---|---|",
    ]
    for r in report:
        interval = "" if r.low is None or r.high is None else f"{r.low:.4f} to {r.high:.4f}"
        metric = f"{r.metric} ({r.aggregate})" if r.aggregate else r.metric
        lines.append(
            f"| {r.task} | {r.split} | {metric} | {r.value:.4f} | {interval} | {r.count} |"
        )
    return "\n".join(lines) + "\n"


def _index(report: Report) -> list[dict[str, Any]]:
    results = [
        {
            "task": {"type": "sentence-similarity", "name": row.task},
            "dataset": {"name": row.task, "type": row.task, "split": row.split},
            "metrics": [{"type": row.metric, "value": row.value, "name": row.metric}],
        }
        for row in report
    ]
    return [{"name": "this model", "results": results}]
