"""``contrasent cluster INDEX``."""

from typing import Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.listing import Listing, check_listing, write_listing
from contrasent.errors import OptionError

SHOWN = 20


@options.command
def cluster(
    index: options.IndexFolder,
    clusters: Annotated[int | None, typer.Option("--clusters", "-c")] = None,
    threshold: float | None = None,
    seed: int = 0,
    output: Listing = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Group the texts of an index; without -c or --threshold, the square root of half their number.

    The file of -o has a text a line with its cluster, numbered from the largest down, and its
    cosine with the cluster's middle.

    Options:
        clusters: How many clusters (k-means).
        threshold: Instead: a text joins a cluster at this cosine or more.
        seed: Start of k-means.
    """
    if clusters is not None and threshold is not None:
        raise OptionError("--threshold", threshold, "or --clusters: choose one of the two")
    if clusters is not None and clusters < 1:
        raise OptionError("--clusters", clusters, "must be at least 1")
    check_listing(output, overwrite)
    from contrasent.search.cluster import kmeans, leaders
    from contrasent.search.opening import local_index

    with local_index(index) as opened:
        if threshold is not None:
            found = leaders(opened, threshold)
        else:
            count = clusters or max(1, round((len(opened) / 2) ** 0.5))
            found = kmeans(opened, count, seed=seed)
        members = zip(found.rows, found.labels, found.scores, strict=True)
        write_listing(
            output,
            (
                {**opened.named(int(row)), "cluster": int(label), "score": float(score)}
                for row, label, score in members
            ),
        )
        groups: list[dict[str, Any]] = []
        for label in range(len(found.centres)):
            inside = found.members(label)
            groups.append(
                {
                    "cluster": label,
                    "texts": len(inside),
                    "cosine": float(found.scores[inside].mean()),
                    "middle": [opened.named(int(found.rows[at])) for at in inside[:3]],
                }
            )
        total, cosine = len(opened), float(found.scores.mean())
    lines = [
        f"{one['cluster']:>4}  {one['texts']:>7,} texts  {one['cosine']:.4f}  "
        f"{options.shortened(one['middle'][0]['text'], 70)}"
        for one in groups[:SHOWN]
    ]
    if len(groups) > SHOWN:
        lines.append(f"... and {len(groups) - SHOWN:,} smaller ones: --json shows all")
    lines.append(f"{len(groups):,} clusters of {total:,} texts, mean cosine {cosine:.4f}")
    facts = {"index": str(index), "texts": total, "cosine": cosine, "clusters": groups}
    return options.Output(facts, "\n".join(lines))
