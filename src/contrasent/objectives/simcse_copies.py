"""SimCSE with an edited copy of every sentence as an additional example."""

from collections.abc import Mapping
from typing import Any, Literal

from contrasent import engine
from contrasent.engine.masked_models import check_masked_model
from contrasent.errors import OptionError
from contrasent.objectives.simcse import SimCSE
from contrasent.text.views import Draw, Identity


def copy_view(values: Mapping[str, Any]) -> dict[str, Any]:
    """The view that makes an edited copy, and its options."""
    edit, ratio = values["copy_edit"], values["edit_ratio"]
    if edit == "insert":
        view: dict[str, Any] = {"view": "insert_prediction", "rate": ratio, "rule": "exact"}
    else:
        name = {"replace": "masked_lm", "delete": "delete_words"}[edit]
        view = {"view": name, "percent": 100 * ratio}
    for option, edits in {"copy_draw": ("replace",), "copy_filler": ("replace", "insert")}.items():
        if values[option] is not None and edit not in edits:
            problem = f"needs copy_edit {' or '.join(edits)}, not {edit}"
            raise OptionError(option, values[option], problem)
    if edit != "delete" and not values["copy_filler"]:
        check_masked_model("copy_filler", None, None)
    return view | {"draw": values["copy_draw"], "filler": values["copy_filler"]}


class CopiesSimCSE(engine.ContrastObjective):
    """Edited copies as positives or negatives (DiffCSE: Chuang et al., 2022, appendix B, Table 15).

    The paper shows that copies with insertions, deletions or replacements help little as positives
    or negatives. As a negative, the copy is a hard negative of every row (SimCSE, equation 5). As a
    positive, the loss is the mean of the contrasts with both positives, which the paper does not
    specify.

    Args:
        copies: use of the copies, "negative" or "positive".
        copy_edit: how a copy is made: "replace" words by a masked language model, "insert" words
            that it predicts, or "delete" words.
        edit_ratio: share of the words, or of the places between them, to edit.
        copy_draw: how replacements are chosen: "argmax" or "sample".
        copy_filler: folder of the masked language model.
        alpha: weight of a row's own copy as a negative.
        resample_views: draw copies again in each "epoch", or once ("static").
    """

    published = SimCSE.published
    """Not stated; those of SimCSE, which the copies are added to."""
    checks = (copy_view,)

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        copies: Literal["positive", "negative"] = "negative",
        copy_edit: Literal["replace", "insert", "delete"] = "replace",
        edit_ratio: engine.Share = 0.15,
        copy_draw: Draw | None = None,
        copy_filler: engine.MaskedModelFolder = None,
        alpha: engine.Weight = 1.0,
        resample_views: engine.ResampleViews = "epoch",
        **given: Any,
    ) -> None:
        super().__init__(encoder, **given)
        edit = {"copy_edit": copy_edit, "edit_ratio": edit_ratio, "copy_draw": copy_draw}
        _, copy = engine.make_views(encoder, copy_view({**edit, "copy_filler": copy_filler}))
        self.views = (Identity(), Identity(), copy)
        self.roles = ("anchor", "positive", copies)
        self.resample_views = resample_views == "epoch"
        self.refine(alpha=alpha)
