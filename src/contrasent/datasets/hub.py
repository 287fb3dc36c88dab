"""Named data sets on the hub, at pinned revisions."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from contrasent.datasets.official import Pin
from contrasent.errors import DataError, OptionError
from contrasent.text.sources import Source, form_of
from contrasent.text.tables import open_table

PATIENCE = 5.0  # seconds to wait for an answer

CORPUS = re.compile(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})(?:#(.+))?")
PAIR_FORMS = r"jsonl(?:\.gz)?|parquet"
CORPUS_FORMS = rf"{PAIR_FORMS}|json|csv(?:\.gz)?|tsv(?:\.gz)?"

HUB_SPLITS = {"train": "train", "dev": "(?:validation|dev)", "test": "test"}


def fetch_pairs(task: str, pin: Pin, split: str, place: str) -> list[tuple[str, str, float]]:
    """Download one split of a pinned data set and read its scored pairs."""
    paths = _fetch(
        pin.repository,
        pin.revision,
        lambda names: split_files(names, split, pin.config),
        f"{task}: not in the local folder, and {pin.repository} cannot be read from the hub",
        f"put the file at {place} in a folder that CONTRASENT_DATA names",
    )
    source = f"{pin.repository}@{pin.revision}"
    if not paths:
        raise DataError(f"{source}: contains no file for the split {split!r}")
    rows = [row for path in paths for row in _rows(path)]
    expected = pin.rows[split]
    if len(rows) != expected:
        problem = f"{len(rows):,} pairs in {split!r}, expected {expected:,}"
        raise DataError(f"{source}: {problem}; clear the hub's cache and download it again")
    return rows


def fetch_corpus(name: str) -> list[Path]:
    """The files of a corpus on the hub, ``owner/name@commit`` with ``#split`` or ``#config/split``.

    The split is train if none is named. Any other name has no files.
    """
    stated = CORPUS.fullmatch(name)
    if stated is None or Path(name).exists():
        return []
    repository, revision, part = stated.groups()
    config, _, split = (part or "train").rpartition("/")

    def choose(names: list[str]) -> list[str]:
        fitting = split_files(names, split, config, forms=CORPUS_FORMS)
        known = {re.sub(rf"(^|[-_/]){_pattern(split)}[-_/.].*$", "", name) for name in fitting}
        if len(known) > 1:
            problem = f"has several configurations; add #CONFIG/{split}"
            raise OptionError("corpus", name, problem, choices=sorted(known))
        return fitting

    problem = f"{name}: this dataset cannot be read from the hub"
    remedy = "check the name, the commit and the network, or give a file"
    paths = _fetch(repository, revision, choose, problem, remedy)
    if not paths:
        raise DataError(f"{name}: contains no table for the split {split!r}; add #SPLIT")
    return paths


def _fetch(
    repository: str,
    revision: str,
    choose: Callable[[list[str]], list[str]],
    problem: str,
    remedy: str,
) -> list[Path]:
    """Download the chosen files of a data set at a revision, or take them from the hub's cache."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    pinned: dict[str, Any] = {"repo_type": "dataset", "revision": revision}
    try:
        if not hub_is_reachable():
            try:
                home = Path(snapshot_download(repository, local_files_only=True, **pinned))
            except LocalEntryNotFoundError as error:
                raise ConnectionError("the hub cannot be reached") from error
            there = (path for path in home.rglob("*") if path.is_file())
            names = choose([path.relative_to(home).as_posix() for path in there])
            # The numbers in their names show whether part of a download is missing.
            shards = (re.fullmatch(r"(.*)-\d+-of-(\d+)\D.*", name) for name in names)
            counts = Counter(shard.groups() for shard in shards if shard)
            for (stem, total), count in counts.items():
                if count < int(total):
                    raise ConnectionError(f"of {stem}-*-of-{total} only {count} in the cache")
            return [home / name for name in names]
        names = choose(HfApi().list_repo_files(repository, **pinned))
        return [Path(hf_hub_download(repository, name, **pinned)) for name in names]
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError, ValueError) as error:
        reason = (str(error) or type(error).__name__).split("\n")[0][:120]
        raise DataError(f"{problem} ({reason}); {remedy}") from error


def _pattern(split: str) -> str:
    return HUB_SPLITS.get(split, re.escape(split))


def split_files(
    names: list[str], split: str, config: str = "", forms: str = PAIR_FORMS
) -> list[str]:
    """The files of a data set's repository that hold a split, sorted; JSON lines or parquet."""
    # Numbers of shards may follow, or the configuration; "train_sft" is another split.
    shard = rf"[-_](?:\d|{re.escape(config)}\b)[^/]*" if config else r"[-_]\d[^/]*"
    last = re.compile(rf"(?:^|[-_/]){_pattern(split)}(?:{shard}|/[^/]*)?\.(?:{forms})$")
    part = re.compile(rf"(?:^|[-_/]){re.escape(config)}(?:[-_/.]|$)")
    fitting = sorted(n for n in names if last.search(n) and (not config or part.search(n)))
    # "pair" is a folder of its own beside "pair-class".
    return [n for n in fitting if f"/{config}/" in f"/{n}"] or fitting


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    table = open_table(Source(path, form_of(path) or "", str(path)), header=True)
    names = table.columns
    try:
        first, second = names.index("sentence1"), names.index("sentence2")
        score = names.index("score" if "score" in names else "similarity_score")
        for _, cells in table.rows((first, second, score)):
            if cells is not None:
                yield str(cells[0]), str(cells[1]), float(cells[2])
    except (TypeError, ValueError) as error:
        problem = f"its rows have {', '.join(names)}; expected sentence1, sentence2 and a number"
        raise DataError(f"{path}: {problem} as score") from error


def hub_is_reachable() -> bool:
    """One quick request to the hub, where its client would make six."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # the type depends on the HTTP client of the hub's package
        return False
    return True
