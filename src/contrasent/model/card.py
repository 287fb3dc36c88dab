"""The model card: README.md with YAML that the hub shows, and how to load the model."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.files import write_text
from contrasent.model.heads import as_dense
from contrasent.report import Report, Row
from contrasent.text.cache import TokenCache

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder
    from contrasent.model.runtime import Export


@dataclass(frozen=True, slots=True)
class CardMetadata:
    """What a card shows beyond the model itself; all of it measured or set, nothing guessed."""

    base: str | None = None  # name of the model that training began from
    objective: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    report: Report | None = None

    def with_data(self, source: str, rows: int, cache: TokenCache) -> "CardMetadata":
        """Add what was trained on."""
        name = source.rsplit("/", 1)[-1]
        data = {"source": name, "rows": rows, "sha256": cache.digest, "cut": cache.truncated}
        return replace(self, data=data)

    def with_training(
        self, objective: dict[str, Any], settings: dict[str, Any], step: int, report: Report | None
    ) -> "CardMetadata":
        """Add how it was trained and what it scored."""
        return replace(self, objective=objective, settings=settings, step=step, report=report)


def card(encoder: "Encoder", facts: CardMetadata) -> str:
    """The text of README.md."""
    head = {
        "library_name": "sentence-transformers" if encoder.pooler.portable else "contrasent",
        "pipeline_tag": "sentence-similarity",
        "tags": _tags(facts)[not encoder.pooler.portable :],
        **({"base_model": facts.base.partition("@")[0]} if facts.base else {}),
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


def _tags(facts: CardMetadata) -> list[str]:
    """What the hub filters by; the last two as sentence-transformers names them."""
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "contrasent"]
    if "rows" in facts.data:
        tags.append(f"dataset_size:{facts.data['rows']}")
    if "matryoshka" in str(facts.objective.get("name")):
        tags.append("matryoshka")
    if "name" in facts.objective:
        tags.append(f"loss:{facts.objective['name']}")
    return tags


def _about(encoder: "Encoder") -> str:
    unit = "unit length" if encoder.normalise else "not normalised"
    return (
        f"Vectors of {encoder.dimension} dimensions ({unit}), pooled by `{encoder.pooling}` from "
        f"{encoder.layers} layers; texts are cut at {encoder.max_tokens} tokens. "
        f"Compare vectors by cosine.{_nested(encoder)}\n"
    )


def _nested(encoder: "Encoder") -> str:
    if not encoder.nested:
        return ""
    *most, last = encoder.nested[1:]
    sizes = f"{', '.join(map(str, most))} or {last}" if most else f"{last}"
    return f" Their first {sizes} dimensions alone are vectors too (Matryoshka)."


def _use(encoder: "Encoder") -> str:
    lines = [
        "## Use\n",
        "```python",
        "from contrasent import Encoder",
        'vectors = Encoder.load("FOLDER").encode(["a sentence", "another"])',
        "```\n",
    ]
    if not encoder.pooler.portable:
        lines.append(encoder.pooler.card.replace("TEMPLATE", encoder.prompts.text()))
        return "\n".join(lines)
    lines += [
        "```python",
        "from sentence_transformers import SentenceTransformer",
        'vectors = SentenceTransformer("FOLDER").encode(["a sentence", "another"])',
        "```\n",
    ]
    named = ", ".join(f"`{name}`: {text!r}" for name, text in encoder.prompts.texts.items())
    if named:
        lines.append(f"The model wants prompts before texts, {named}.\n")
    return "\n".join([*lines, "```python", *_transformers(encoder), "```\n"])


POOLING = {
    "cls": ["vectors = output.last_hidden_state[:, 0]"],
    "mean": ["vectors = (output.last_hidden_state * mask).sum(1) / mask.sum(1)"],
    "max": ["vectors = output.last_hidden_state.masked_fill(mask == 0, -torch.inf).amax(1)"],
    "first_last": ["states = (output.hidden_states[1] + output.hidden_states[-1]) / 2"],
    "embeddings_last": ["states = (output.hidden_states[0] + output.hidden_states[-1]) / 2"],
    "last_two": ["states = (output.hidden_states[-2] + output.hidden_states[-1]) / 2"],
}
"""How transformers' output becomes one vector a text, by the name of the pooler."""


def _transformers(encoder: "Encoder") -> list[str]:
    """The same vectors with transformers alone, line by line."""
    lines = [
        "import torch",
        *(["from safetensors.torch import load_file"] if encoder.head is not None else []),
        "from transformers import AutoModel, AutoTokenizer",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        'model = AutoModel.from_pretrained("FOLDER")',
        'texts = ["a sentence", "another"]',
        *(["texts = [text.lower() for text in texts]"] if encoder.lower_case else []),
        'inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")',
        "with torch.no_grad():",
        "    output = model(**inputs, output_hidden_states=True)",
        'mask = inputs["attention_mask"][..., None]',
        *POOLING[encoder.pooling],
    ]
    averaged = len(encoder.pooler.layers) > 1
    if averaged:
        lines.append("vectors = (states * mask).sum(1) / mask.sum(1)")
    if encoder.head is not None:
        for number, layer in enumerate(as_dense(encoder.head), 3 if averaged else 2):
            lines.append(f'dense = load_file("FOLDER/{number}_Dense/model.safetensors")')
            product = 'vectors @ dense["linear.weight"].T'
            if layer.linear.bias is not None:
                product += ' + dense["linear.bias"]'
            kind = type(layer.activation).__name__
            function = {"Tanh": "torch.tanh", "Identity": ""}.get(
                kind, f"torch.nn.functional.{kind.lower()}"
            )
            lines.append(f"vectors = {function}({product})")
    if encoder.normalise:
        lines.append("vectors = torch.nn.functional.normalize(vectors)")
    return lines


def _training(facts: CardMetadata) -> str:
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
    """Scores as the hub shows them; it has no place for an interval but a metric's name."""
    results = [
        {
            "task": {"type": _task(row.metric), "name": row.task},
            "dataset": {"name": row.task, "type": _slug(row.task), "split": row.split},
            "metrics": [{"type": row.metric, "value": row.value, "name": _named(row)}],
        }
        for row in report
    ]
    return [{"name": "this model", "results": results}]


def _named(row: Row) -> str:
    aggregate = f" ({row.aggregate})" if row.aggregate else ""
    interval = (
        ""
        if row.low is None or row.high is None
        else (f", 95 % interval {row.low:.4f} to {row.high:.4f}")
    )
    return f"{row.metric}{aggregate}{interval}, n = {row.count}"


def _task(metric: str) -> str:
    if metric.split("_")[0] in ("spearman", "pearson"):
        return "semantic-similarity"
    return "information-retrieval" if "@" in metric else "sentence-similarity"


def _slug(name: str) -> str:
    """What the hub takes as a data set's type."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unknown"


EXPORTS_TITLE = "## Exports"
EXPORTS_HEAD = """
Each is the whole model as one graph, used without torch:
`contrasent encode FOLDER --runtime NAME`. Differences are those from torch's vectors.

| export | largest difference | smallest cosine | sentences |
| --- | --- | --- | --- |
"""


def add_export(model: Path, export: "Export") -> bool:
    """List an export in its model's card, replacing an older line about it."""
    path = model / "README.md"
    if not path.is_file():
        return False
    before, _, section = path.read_text("utf-8").partition(f"{EXPORTS_TITLE}\n")
    section, following, after = section.partition("\n## ")
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    lines = [line for line in lines if not line.startswith(f"| {export.name} |")]
    lines.append(
        f"| {export.name} | {export.difference:.1e} | {export.cosine:.6f} | {export.compared} |"
    )
    table = "\n".join(sorted(lines))
    section = f"{EXPORTS_TITLE}\n{EXPORTS_HEAD}{table}\n{following}{after}"
    write_text(path, f"{before.rstrip()}\n\n{section}")
    return True
