"""A report as one self-contained HTML page: tables with intervals, pictures, what was done.

No script, no font and no picture is fetched: the page reads the same on any machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from contrasent.evaluate import pictures
from contrasent.evaluate.few_shot import AVERAGE as FEW_SHOT_AVERAGE
from contrasent.evaluate.pictures import check_matplotlib as check_matplotlib
from contrasent.evaluate.sts import AVERAGE as STS_AVERAGE
from contrasent.evaluate.transfer import AVERAGE as TRANSFER_AVERAGE
from contrasent.evaluate.transfer import TASKS as TRANSFER_TASKS
from contrasent.files import atomic_file
from contrasent.pages import document
from contrasent.report import Report, Row, shown
from contrasent.text.official import STS_TASKS

Reports = Mapping[str, Report]

Section = tuple[str, str, str]
"""Heading, remark, HTML."""


def write_page(target: Path, reports: Reports, *, arrows: bool = False) -> None:
    """Write the page, atomically.

    Args:
        target: the file.
        reports: names of models and their reports, in order.
        arrows: join the models by arrows where alignment is drawn against uniformity, for
            checkpoints of one run.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written.
    """
    text = page(reports, arrows=arrows)
    with atomic_file(target) as stream:
        stream.write(text)


def page(reports: Reports, *, arrows: bool = False) -> str:
    """The page's text; see :func:`write_page`."""
    check_matplotlib()
    named = dict(zip(titles(tuple(reports)), reports.values(), strict=True))
    parts = [
        f"<h2>{escape(title)}</h2>\n<p class=faint>{remark}</p>\n{body}"
        for title, remark, body in _sections(named, arrows)
        if body
    ]
    few = len(reports) < 4
    names = ", ".join(named) if few else f"{len(reports)} models"
    about = (
        "<p>Correlations and rates are in hundredths. Small numbers under a value are its 95 % "
        "bootstrap interval.</p>"
    )
    return document(f"contrasent: {names}", f"Evaluation of {names}", [about, *parts])


def titles(names: Sequence[str]) -> list[str]:
    """Names of models without the folders that they have in common.

    A page is for others to read: of a path, as many last parts are kept as keep the names apart.
    """
    parts = [Path(name).parts or (name,) for name in names]
    for kept in range(1, max(map(len, parts), default=1) + 1):
        found = [str(Path(*own[-kept:])) for own in parts]
        if len(set(found)) == len(found):
            # A hub's name is "owner/model"; it is a name as it stands.
            return [
                n if n.count("/") == 1 and not n.startswith((".", "/")) else f
                for n, f in zip(names, found, strict=True)
            ]
    return list(names)


def _sections(reports: Reports, arrows: bool) -> Iterable[Section]:
    sts = {"metric": "spearman", "aggregate": "all"}
    yield (
        "Semantic textual similarity",
        "Spearman's correlation of cosine and gold score, <em>all</em> aggregation.",
        _drawn(
            _table(reports, _is_sts),
            pictures.scores(reports, (*STS_TASKS, STS_AVERAGE), sts, "Spearman x 100, STS"),
        ),
    )
    yield (
        "Other aggregations, Pearson, subsets",
        "<em>mean</em> and <em>wmean</em> average the correlations of a year's subsets; "
        "<em>regressor</em> trains one on the vectors, as SentEval does.",
        _folded(_table(reports, _is_other_sts)),
    )
    yield (
        "One model, many protocols",
        "The mean of the same seven sets, as each paper scored them (SimCSE, Table B.1).",
        _drawn(_table(reports, _is_protocol), _protocols(reports)),
    )
    yield (
        "Transfer",
        "Accuracy of a linear classifier on fixed vectors.",
        _drawn(
            _table(reports, lambda r: r.metric in ("accuracy", "f1", "accuracy_seed_sd")),
            pictures.scores(
                reports,
                (*TRANSFER_TASKS, TRANSFER_AVERAGE),
                {"metric": "accuracy", "split": "test"},
                "accuracy x 100, transfer",
            ),
        ),
    )
    yield (
        "Few examples, pairs, triples, groups",
        "Accuracy of logistic regression from K examples a class (accuracy@K); paraphrases found "
        "by cosine: average precision and F1 at the best threshold; entailed sentences nearer than "
        "contradicted ones; V-measure of k-means.",
        _table(reports, _is_decision),
    )
    yield (
        "Alignment and uniformity",
        "Near positives and an evenly filled space: both want to be small (Wang and Isola, 2020).",
        _drawn(pictures.plane(reports, arrows=arrows), _table(reports, _is_geometry)),
    )
    yield (
        "During training",
        "The way of the space, from the ringed mark on (SimCSE, Figure 2).",
        _drawn(
            pictures.trajectories({n: r.notes.get("trajectory", ()) for n, r in reports.items()})
        ),
    )
    yield (
        "Singular values",
        "Of the matrix of STS-B's sentences, over the largest one.",
        _drawn(pictures.spectrum(reports)),
    )
    yield (
        "Cosine by rating",
        "Where the cosines of STS-B's pairs lie, for each band of gold scores.",
        _drawn(pictures.densities(reports)),
    )
    yield (
        "Retrieval",
        "Recall, mean reciprocal rank and nDCG; ties count against the model.",
        _table(reports, lambda r: r.metric.split("@")[0] in ("mrr", "recall", "ndcg")),
    )
    yield "What is found", "The nearest captions to a few captions.", _listings(reports)
    yield (
        "Bias of length and repetition",
        "Cosine less gold score, in hundredths, for pairs of like (near) and unlike (far) length; "
        "mean cosine with a sentence and with the same sentence, its shared words repeated.",
        _table(reports, _is_bias),
    )
    yield "How it was measured", "The protocol of every number.", _notes(reports)


def _is_sts(row: Row) -> bool:
    wanted = (row.metric, row.aggregate) == ("spearman", "all")
    return wanted and not _is_protocol(row)


def _is_other_sts(row: Row) -> bool:
    known = row.metric in ("spearman", "pearson") and not _is_protocol(row)
    return known and (row.metric, row.aggregate) != ("spearman", "all")


def _is_protocol(row: Row) -> bool:
    return row.task.startswith("protocol ")


def _is_geometry(row: Row) -> bool:
    return row.metric in ("alignment", "uniformity", "anisotropy", "isoscore", "effective_rank")


def _is_decision(row: Row) -> bool:
    known = ("ap", "f1_best", "accuracy_triplet", "v_measure")
    return row.metric in known or row.metric.startswith("accuracy@")


def _is_bias(row: Row) -> bool:
    known = ("once", "twice", "repetition_gain")
    return row.metric in known or row.metric.startswith(("error_", "absolute_"))


def _table(reports: Reports, wanted: Any) -> str:
    """Rows by task, split, metric and aggregate; a column a model."""
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for name, report in reports.items():
        for row in report:
            if wanted(row):
                key = (row.task, row.metric, row.aggregate, row.split)
                cells.setdefault(key, {})[name] = row
    if not cells:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in reports)
    lines = [f"<thead><tr><th></th>{head}<th>count</th></tr></thead>\n<tbody>"]
    # Rows of one kind together, each kind in the order of its tasks.
    kinds = list(dict.fromkeys(key[1:] for key in cells))
    for (task, metric, aggregate, split), found in sorted(
        cells.items(), key=lambda cell: kinds.index(cell[0][1:])
    ):
        kind = " class=total" if task in (STS_AVERAGE, TRANSFER_AVERAGE, FEW_SHOT_AVERAGE) else ""
        label = (
            f"{escape(task)} <small>{escape(' '.join(filter(None, (metric, aggregate, split))))}"
        )
        values = "".join(f"<td>{_cell(found.get(name))}</td>" for name in reports)
        count = next(iter(found.values())).count
        lines.append(f"<tr{kind}><td>{label}</small></td>{values}<td>{count:,}</td></tr>")
    return f"<div class=wide><table>{''.join(lines)}</tbody></table></div>"


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    text = shown(row.metric, row.value)
    if row.low is not None and row.high is not None:
        text += f"<small>{shown(row.metric, row.low)} – {shown(row.metric, row.high)}</small>"
    return text


def _folded(body: str) -> str:
    """A long table, folded until it is opened."""
    return f"<details><summary>Show</summary>{body}</details>" if body else ""


def _drawn(*parts: str | None) -> str:
    return "\n".join(
        f"<figure>{part}</figure>" if part.startswith("<svg") else part for part in parts if part
    )


def _listings(reports: Reports) -> str:
    known = {n: r.notes["listing"] for n, r in reports.items() if "listing" in r.notes}
    if not known:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in known)
    lines = [f"<thead><tr><th>query</th>{head}</tr></thead>\n<tbody>"]
    for i, (query, _) in enumerate(next(iter(known.values()))):
        columns = ""
        for listing in known.values():
            found = "<br>".join(f"{score:.2f} {escape(text)}" for score, text in listing[i][1])
            columns += f"<td>{found}</td>"
        lines.append(f"<tr><td>{escape(query)}</td>{columns}</tr>")
    return f"<div class='wide listing'><table>{''.join(lines)}</tbody></table></div>"


def _protocols(reports: Reports) -> str:
    """Who each protocol belongs to."""
    for report in reports.values():
        known = report.notes.get("protocols", {}).get("protocols", {})
        if known:
            lines = "".join(
                f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in known.items()
            )
            return f"<dl>{lines}</dl>"
    return ""


def _notes(reports: Reports) -> str:
    """What was done: once what holds for all models, then what does not."""
    notes_of = {name: dict(_flat(report.notes)) for name, report in reports.items()}
    first = next(iter(notes_of.values()), {})
    shared = {
        key: value
        for key, value in first.items()
        if all(notes.get(key) == value for notes in notes_of.values())
    }
    parts = [("All models" if len(notes_of) > 1 else next(iter(notes_of), ""), shared)]
    parts += [
        (name, {k: v for k, v in notes.items() if k not in shared})
        for name, notes in notes_of.items()
    ]
    return "\n".join(
        f"<h3>{escape(title)}</h3>\n<dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in notes.items())
        + "</dl>"
        for title, notes in parts
        if notes
    )


def _flat(notes: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in notes.items():
        # Histograms are drawn, and who wrote which protocol stands beside its table.
        if isinstance(value, dict) and key in ("cosine_by_rating", "protocols") and prefix:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key} ")
        elif not isinstance(value, (list, dict)):
            yield f"{prefix}{key}", f"{value:,}" if type(value) is int else value
