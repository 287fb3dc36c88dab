"""What stands beside an exported graph, ``export.json``, and in its model's card."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contrasent.errors import ModelError
from contrasent.files import atomic_file, write_json
from contrasent.model.golden import EncoderConfig, digest

NAME = "export.json"
FORMAT = "contrasent-export-1"
EXPORTS = ("onnx", "onnx-int8", "openvino", "openvino-int8")
DECIDING = ("config.json", "modules.json", "tokenizer.json", "sentence_bert_config.json")
TITLE = "## Exports"
HEAD = """
Each is the whole model as one graph, used without torch:
`contrasent encode FOLDER --runtime NAME`. Differences are those from torch's vectors.

| export | largest difference | smallest cosine | sentences | measured here |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Export:
    """The content of ``export.json``.

    Attributes:
        facts: the settings of the torch model; the name is that of the file's key.
        difference: largest difference of a component from torch's vectors, on the sentences that
            were compared.
        sources: sha256 of the model's files that it was made from, by name; empty if it lies
            elsewhere.
        made: versions of what made it, and how it was quantised.
        graph: sha256 of the graph's files, by name; empty if none was stored.
    """

    engine: str
    precision: str
    facts: EncoderConfig
    difference: float
    cosine: float
    compared: int
    sources: dict[str, str] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    graph: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What ``--runtime`` calls it."""
        return self.engine if self.precision == "fp32" else f"{self.engine}-{self.precision}"


def write_export(folder: Path, export: Export) -> None:
    """Write ``export.json``."""
    write_json(folder / NAME, {"format": FORMAT, **asdict(export)})


def read_export(folder: Path) -> Export:
    """Read ``export.json``."""
    path = folder / NAME
    try:
        data = json.loads(path.read_text("utf-8"))
        if data.pop("format") != FORMAT:
            raise ModelError(f"{path}: is no export that this program reads ({FORMAT})")
        export = Export(**{**data, "facts": EncoderConfig(**data["facts"])})
    except OSError as error:
        raise ModelError(
            f"{folder}: holds no exported model; make one with 'contrasent export'"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: is damaged ({error}); export the model again") from error
    if export.name not in EXPORTS:
        raise ModelError(f"{path}: {export.name!r} is no runtime ({', '.join(EXPORTS)})")
    return export


def source_files(model: Path) -> dict[str, str]:
    """The sha256 of every file that decides a model's vectors, by its path in the folder."""
    found: dict[str, str] = {}
    for path in sorted([*model.glob("*"), *model.glob("[0-9]*_*/*")]):
        decides = path.suffix == ".safetensors" or path.name in DECIDING
        if path.is_file() and decides and path.name != "golden.safetensors":
            found[path.relative_to(model).as_posix()] = digest(path)
    return found


def add_export(model: Path, export: Export, measured: dict[str, float]) -> bool:
    """List an export and its cost in its model's card, replacing an older line about it."""
    path = model / "README.md"
    if not path.is_file():
        return False
    before, _, section = path.read_text("utf-8").partition(f"{TITLE}\n")
    section, following, after = section.partition("\n## ")
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    lines = [line for line in lines if not line.startswith(f"| {export.name} |")]
    figures = "; ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in measured.items())
    lines.append(
        f"| {export.name} | {export.difference:.1e} | {export.cosine:.6f} | {export.compared} | "
        f"{figures} |"
    )
    table = "\n".join(sorted(lines))
    text = f"{before.rstrip()}\n\n{TITLE}\n{HEAD}{table}\n{following}{after}"
    with atomic_file(path) as stream:
        stream.write(text)
    return True
