"""The model card: README.md with YAML that the hub shows, and how to load the model."""

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contrasent.encoder.heads import as_dense
from contrasent.files import read_object, render
from contrasent.model.description import ORIGIN
from contrasent.report import Report, Row

if TYPE_CHECKING:
    from contrasent.encoder.encoder import TorchEncoder


@dataclass(frozen=True, slots=True)
class CardMetadata:
    """Facts for a card beyond the model itself, all measured or set."""

    base: str | None = None  # name of the model that training began from
    objective: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    report: Report | None = None
    # of the encoder's gradient by term, and "step"
    shares: list[dict[str, float]] = field(default_factory=list)


def card(encoder: "TorchEncoder", facts: CardMetadata) -> str:
    """The text of README.md."""
    portable, report = encoder.pooler.portable, facts.report or Report(())
    rows = [(row, *_labels(row)) for row in report]
    origin = read_object(encoder.source / ORIGIN) if encoder.source is not None else {}
    head = {
        **({"license": origin["license"]} if "license" in origin else {}),
        "library_name": "sentence-transformers" if portable else "contrasent",
        "pipeline_tag": "sentence-similarity",
        "tags": _tags(encoder, facts)[not portable :],
        **({"base_model": facts.base.partition("@")[0]} if facts.base else {}),
        **({"model-index": _index(rows)} if rows else {}),
    }
    training = {
        "base": facts.base or "not stated",
        **({"origin of the base": json.dumps(origin)} if origin else {}),
        "objective": json.dumps(facts.objective),
        "data": json.dumps(facts.data),
        "settings": json.dumps(facts.settings),
        "taken after step": facts.step,
    }
    dense = as_dense(encoder.head) if portable and encoder.head is not None else []
    return render(
        "card.jinja",
        # JSON is YAML, and json.dumps quotes what has to be quoted.
        head={key: json.dumps(value) for key, value in head.items()},
        encoder=encoder,
        # The encoder of an encoder-decoder model such as T5 has its own class.
        auto="AutoModelForTextEncoding"
        if type(encoder.backbone).__name__.endswith("EncoderModel")
        else "AutoModel",
        sizes=encoder.matryoshka_dims[1:],
        layers=encoder.pooler.layers,
        prompts=[f"`{name}`: {text!r}" for name, text in encoder.prompts.texts.items() if text],
        dense=[(_function(layer.activation), layer.linear.bias is not None) for layer in dense],
        training=training if facts.objective else None,
        shares=facts.shares,
        rows=rows,
    )


def _tags(encoder: "TorchEncoder", facts: CardMetadata) -> list[str]:
    """Tags for the hub's filters; the last two are those of sentence-transformers."""
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "contrasent"]
    if "rows" in facts.data:
        tags.append(f"dataset_size:{facts.data['rows']}")
    if encoder.matryoshka_dims:
        tags.append("matryoshka")
    if "name" in facts.objective:
        tags.append(f"loss:{facts.objective['name']}")
    return tags


def _function(activation: object) -> str:
    """An activation as code; nothing for the identity."""
    kind = type(activation).__name__
    named = {"Tanh": "torch.tanh", "Identity": ""}
    return named.get(kind, f"torch.nn.functional.{kind.lower()}")


def _labels(row: Row) -> tuple[str, str]:
    """A row's metric with its aggregate, and its interval."""
    bounded = row.low is not None and row.high is not None
    interval = f"{row.low:.4f} to {row.high:.4f}" if bounded else ""
    return f"{row.metric} ({row.aggregate})" if row.aggregate else row.metric, interval


def _index(rows: list[tuple[Row, str, str]]) -> list[dict[str, Any]]:
    """Scores in the hub's format; an interval fits only into a metric's name."""
    results = []
    for row, metric, interval in rows:
        kind = "information-retrieval" if "@" in row.metric else "sentence-similarity"
        if row.metric.startswith(("spearman", "pearson")):
            kind = "semantic-similarity"
        slug = re.sub(r"[^a-z0-9.]+", "-", row.task.lower()).strip("-.") or "unknown"
        name = f"{metric}{f', 95 % interval {interval}' if interval else ''}, n = {row.count}"
        results.append(
            {
                "task": {"type": kind, "name": row.task},
                "dataset": {"name": row.task, "type": slug, "split": row.split},
                "metrics": [{"type": row.metric, "value": row.value, "name": name}],
            }
        )
    return [{"name": "this model", "results": results}]
