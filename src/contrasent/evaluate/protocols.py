"""The STS protocols of published tables, by name (SimCSE, Table B.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contrasent.errors import check_choice
from contrasent.evaluate.relatedness import relatedness
from contrasent.evaluate.sts import AGGREGATES, sts
from contrasent.report import Report, Row, RowKey
from contrasent.stats.bootstrap import RESAMPLES
from contrasent.text.official import STS_TASKS
from contrasent.types import EncodeFn


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a paper scored STS.

    Attributes:
        regressor: whether STS-B and SICK-R are scored by a trained regressor.
    """

    paper: str
    regressor: bool
    metrics: tuple[str, ...]
    aggregate: str


OTHER_LANGUAGES = ("STSB-de", "STSB-es")

PROTOCOLS: dict[str, Protocol] = {
    "hill2016": Protocol("Hill et al. (2016)", False, ("spearman", "pearson"), "all"),
    "infersent": Protocol("Conneau et al. (2017)", True, ("pearson",), "mean"),
    "senteval": Protocol("Conneau and Kiela (2018)", True, ("pearson",), "mean"),
    "sbert": Protocol("Reimers and Gurevych (2019)", False, ("spearman",), "all"),
    "is-bert": Protocol("Zhang et al. (2020)", False, ("spearman",), "all"),
    "bert-flow": Protocol("Li et al. (2020)", False, ("spearman",), "wmean"),
    "bert-whitening": Protocol("Su et al. (2021)", False, ("spearman",), "wmean"),
    "wieting2020": Protocol("Wieting et al. (2020)", False, ("pearson",), "mean"),
    "declutr": Protocol("Giorgi et al. (2021)", False, ("spearman",), "mean"),
    "simcse": Protocol("Gao et al. (2021)", False, ("spearman",), "all"),
}


def every_protocol(
    encode: EncodeFn,
    names: Sequence[str] = tuple(PROTOCOLS),
    *,
    form: str = "senteval",
    resamples: int = RESAMPLES,
    folder: Path | None = None,
) -> Report:
    """What one model scores under each protocol, and the sets that only some papers use."""
    for name in names:
        check_choice("--protocol", name, PROTOCOLS)
    score = partial(sts, encode, resamples=resamples, folder=folder)
    whole = score(aggregate=AGGREGATES, form=form)
    trained = relatedness(encode, form=form, resamples=resamples, folder=folder)
    others = [
        score(tasks=("STSB", "SICKR"), split="dev", form=form),
        score(tasks=("SICKR-all",), form=form),
        score(tasks=OTHER_LANGUAGES, form="raw"),
    ]
    rows = [row for row in whole if row.aggregate != "all"]
    rows += [*trained, *(row for report in others for row in report)]
    items = Report.join((whole, trained, *others)).items
    for name in names:
        protocol = PROTOCOLS[name]
        for metric in protocol.metrics:
            row, parts = _sts7_mean(name, protocol, metric, whole, trained)
            rows.append(row)
            items[row.key] = parts
    notes = {
        "protocols": {n: f"{PROTOCOLS[n].paper}: {describe(PROTOCOLS[n])}" for n in names},
        "form": f"{form}; STSB-de and STSB-es raw",
        "regressor": trained.notes["relatedness"],
    }
    return Report(tuple(rows), notes, items)


def describe(protocol: Protocol) -> str:
    """A protocol in a few words, as in Table B.1."""
    how = "regressor for STS-B and SICK-R, " if protocol.regressor else ""
    return f"{how}{' and '.join(protocol.metrics)}, {protocol.aggregate}"


def _sts7_mean(
    name: str, protocol: Protocol, metric: str, whole: Report, trained: Report
) -> tuple[Row, tuple[RowKey, ...]]:
    found = [
        trained.one(task=task, split="test", metric=metric)
        if protocol.regressor and task in ("STSB", "SICKR")
        else whole.one(task=task, metric=metric, aggregate=protocol.aggregate)
        for task in STS_TASKS
    ]
    value = sum(row.value for row in found) / len(found)
    count = sum(row.count for row in found)
    row = Row(f"protocol {name}", "test", metric, protocol.aggregate, value, count)
    return row, tuple(part.key for part in found)
