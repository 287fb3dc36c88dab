"""Named data sets on the hub, at pinned revisions."""

import re
from collections.abc import Iterator
from pathlib import Path

from contrasent.datasets.official import Pin
from contrasent.errors import DataError
from contrasent.text.sources import Source, form_of
from contrasent.text.tables import open_table

PATIENCE = 5.0  # seconds to wait for an answer

HUB_SPLITS = {"train": "train", "dev": "(?:validation|dev)", "test": "test"}


def fetch_pairs(task: str, pin: Pin, split: str, place: str) -> list[tuple[str, str, float]]:
    """Download one split of a pinned data set and read its scored pairs."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        if not hub_is_reachable():
            raise ConnectionError("it cannot be reached")
        names = HfApi().list_repo_files(pin.repository, repo_type="dataset", revision=pin.revision)
        paths = [
            Path(hf_hub_download(pin.repository, name, repo_type="dataset", revision=pin.revision))
            for name in split_files(names, split, pin.config)
        ]
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError, ValueError) as error:
        reason = (str(error) or type(error).__name__).split("\n")[0][:120]
        raise DataError(
            f"{task}: not in the local folder, and the hub's {pin.repository} cannot be read "
            f"({reason}); put the file at {place} in a folder that CONTRASENT_DATA names"
        ) from error
    if not paths:
        raise DataError(f"{pin.repository}@{pin.revision}: holds no file of the split {split!r}")
    rows = [row for path in paths for row in _rows(path)]
    expected = pin.rows[split]
    if len(rows) != expected:
        raise DataError(
            f"{pin.repository}@{pin.revision}: {len(rows):,} pairs in {split!r}, expected "
            f"{expected:,}; clear the hub's cache and fetch it again"
        )
    return rows


def split_files(names: list[str], split: str, config: str = "") -> list[str]:
    """The files of a data set's repository that hold a split, JSON lines or parquet, sorted."""
    last = re.compile(
        rf"(?:^|[-_/]){HUB_SPLITS[split]}(?:[-_/][^/]*)?\.(?:jsonl(?:\.gz)?|parquet)$"
    )
    part = re.compile(rf"(?:^|[-_/]){re.escape(config)}(?:[-_/.]|$)")
    return sorted(n for n in names if last.search(n) and (not config or part.search(n)))


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    table = open_table(Source(path, form_of(path) or "", str(path)), header=True)
    names = table.columns
    try:
        one, two = names.index("sentence1"), names.index("sentence2")
        score = names.index("score" if "score" in names else "similarity_score")
        for _, cells in table.rows((one, two, score)):
            if cells is not None:
                yield str(cells[0]), str(cells[1]), float(cells[2])
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{path}: its rows have {', '.join(names)}; expected sentence1, sentence2 and a number "
            "as score"
        ) from error


def hub_is_reachable() -> bool:
    """One quick request to the hub, where its client would make six."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of whichever HTTP client the hub's package uses
        return False
    return True
