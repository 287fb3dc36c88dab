"""The report of an adaptation as one self-contained page: what was read, tried and proven."""

import shlex
from pathlib import Path
from typing import Any

from contrasent.adapt.evidence import WRITTEN
from contrasent.adapt.teaching import AGAIN, NEW
from contrasent.files import render


def page(facts: dict[str, Any], folder: Path) -> str:
    """The page's text."""
    kinds, changes = facts["verdict"]["kinds"], facts["changes"]
    title = f"Adaptation of {Path(facts['base']).name}"
    return render(
        "adaptation.html",
        **facts,
        window=f": {title}",
        heading=title,
        folder=shlex.quote(str(folder)),
        of_people=set(kinds) <= {"click", AGAIN, NEW},
        taught=AGAIN in kinds,
        written=[kind for kind in kinds if kind in WRITTEN],
        gained=[one for one in changes if one["after"] > one["before"]],
        lost=[one for one in changes if one["after"] < one["before"]],
    )
