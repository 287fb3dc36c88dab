"""The STS protocols of published tables, by name (SimCSE, Table B.1)."""

from dataclasses import dataclass
from pathlib import Path

from contrasent.errors import OptionError
from contrasent.evaluate.bootstrap import RESAMPLES
from contrasent.evaluate.relatedness import relatedness
from contrasent.evaluate.sts import sts
from contrasent.report import Report
from contrasent.text.official import STS_TASKS
from contrasent.types import EncodeFn


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a paper scored STS.

    Attributes:
        paper: who.
        regressor: whether STS-B and SICK-R are scored by a trained regressor.
        metrics: "spearman", "pearson" or both.
        aggregate: of a year's subsets.
    """

    paper: str
    regressor: bool
    metrics: tuple[str, ...]
    aggregate: str


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


def sts_by_protocol(
    encode: EncodeFn,
    name: str,
    *,
    form: str = "senteval",
    resamples: int = RESAMPLES,
    folder: Path | None = None,
) -> Report:
    """Score the seven STS sets as a paper did.

    Args:
        encode: the model.
        name: a key of :data:`PROTOCOLS`.
        form: "senteval" or "raw"; the table does not say which a paper read.
        resamples: bootstrap resamples of the intervals; 0 for none.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        Rows of the protocol's metrics and aggregation only; with a regressor, STSB's and SICKR's
        rows have the aggregate "regressor" and there is no mean over the seven.

    Raises:
        OptionError: an unknown name.
        DataError: data that are missing or not official, or vectors that are not finite.
    """
    if name not in PROTOCOLS:
        raise OptionError("protocol", name, "unknown", choices=PROTOCOLS)
    protocol = PROTOCOLS[name]
    tasks = STS_TASKS[:5] if protocol.regressor else STS_TASKS
    found = sts(
        encode,
        tasks=tasks,
        form=form,
        aggregate=protocol.aggregate,
        resamples=resamples,
        folder=folder,
    )
    rows = [row for row in found if row.metric in protocol.metrics]
    if protocol.regressor:
        trained = relatedness(encode, form=form, resamples=resamples, folder=folder)
        rows += [r for r in trained if r.metric in protocol.metrics and r.split == "test"]
    notes = {**found.notes, "protocol": f"{name}: {protocol.paper}"}
    return Report(tuple(rows), notes)
