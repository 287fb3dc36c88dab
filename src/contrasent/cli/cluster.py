"""``contrasent cluster INDEX``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli.listing import Output, check_listing, write_listing
from contrasent.cli.options import IndexFolder, Json, Overwrite, Quiet, emit, quieten, shortened
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contrasent.search.cluster import Clusters
    from contrasent.search.rows import Rows

SHOWN = 20


def cluster(
    index: IndexFolder,
    clusters: Annotated[
        int | None, typer.Option("--clusters", "-c", help="How many clusters (k-means).")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Instead: a text joins a cluster at this cosine or more."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of k-means.")] = 0,
    output: Output = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Group the texts of an index; without -c or --threshold, the square root of half their number.

    The file of -o has a text a line with its cluster, numbered from the largest down, and its
    cosine with the cluster's middle.
    """
    quieten(quiet)
    if clusters is not None and threshold is not None:
        raise OptionError("--threshold", threshold, "or --clusters: choose one of the two")
    if clusters is not None and clusters < 1:
        raise OptionError("--clusters", clusters, "must be at least 1")
    check_listing(output, overwrite)
    from contrasent.search.opening import local_index

    with local_index(index) as opened:
        found = grouped(opened, clusters, threshold, seed)
        if output is not None:
            write_listing(output, labelled(opened, found))
        if as_json:
            emit(described(index, opened, found))
        else:
            show(opened, found)


def grouped(opened: "Rows", clusters: int | None, threshold: float | None, seed: int) -> "Clusters":
    """Clusters by k-means, or around leaders."""
    from contrasent.search.cluster import kmeans, leaders

    if threshold is not None:
        return leaders(opened, threshold)
    return kmeans(opened, clusters or max(1, round((len(opened) / 2) ** 0.5)), seed=seed)


def labelled(opened: "Rows", found: "Clusters") -> "Iterator[dict[str, Any]]":
    """Each text with its cluster."""
    for row, label, score in zip(found.rows, found.labels, found.scores, strict=True):
        yield {**opened.named(int(row)), "cluster": int(label), "score": float(score)}


def described(index: Path, opened: "Rows", found: "Clusters") -> dict[str, Any]:
    """All clusters, for programs."""
    groups = []
    for label in range(len(found.centres)):
        members = found.members(label)
        texts = [opened.named(int(found.rows[at])) for at in members[:3]]
        mean = float(found.scores[members].mean())
        groups.append({"cluster": label, "texts": len(members), "cosine": mean, "middle": texts})
    return {
        "index": str(index),
        "texts": len(opened),
        "cosine": float(found.scores.mean()),
        "clusters": groups,
    }


def show(opened: "Rows", found: "Clusters") -> None:
    """The largest clusters, for people."""
    for label in range(min(SHOWN, len(found.centres))):
        members = found.members(label)
        middle = opened.named(int(found.rows[members[0]]))["text"]
        mean = float(found.scores[members].mean())
        typer.echo(f"{label:>4}  {len(members):>7,} texts  {mean:.4f}  {shortened(middle, 70)}")
    if len(found.centres) > SHOWN:
        typer.echo(f"... and {len(found.centres) - SHOWN:,} smaller ones: --json shows all")
    typer.echo(
        f"{len(found.centres):,} clusters of {len(opened):,} texts, mean cosine "
        f"{float(found.scores.mean()):.4f}"
    )
