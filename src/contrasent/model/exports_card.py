"""The section of a model card that lists a model's exports and what they cost."""

from pathlib import Path

from contrasent.files import atomic_file
from contrasent.model.runtime import Export

TITLE = "## Exports"
HEAD = """
Each is the whole model as one graph, used without torch:
`contrasent encode FOLDER --runtime NAME`. Differences are those from torch's vectors.

| export | largest difference | smallest cosine | sentences | measured here |
| --- | --- | --- | --- | --- |
"""


def add_export(model: Path, export: Export, measured: dict[str, float]) -> bool:
    """List an export in its model's card, in place of an older line about it.

    Args:
        model: the model's folder.
        export: what was written into it.
        measured: further figures, by name.

    Returns:
        Whether there is a card.
    """
    path = model / "README.md"
    if not path.is_file():
        return False
    before, _, section = path.read_text("utf-8").partition(f"{TITLE}\n")
    section, following, after = section.partition("\n## ")
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    lines = [line for line in lines if not line.startswith(f"| {export.name} |")]
    told = "; ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in measured.items())
    lines.append(
        f"| {export.name} | {export.difference:.1e} | {export.cosine:.6f} | {export.compared} | "
        f"{told} |"
    )
    table = "\n".join(sorted(lines))
    text = f"{before.rstrip()}\n\n{TITLE}\n{HEAD}{table}\n{following}{after}"
    with atomic_file(path) as stream:
        stream.write(text)
    return True
