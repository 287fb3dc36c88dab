"""The views of a method, from its parameters. No torch until they are made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from contrasent.errors import OptionError
from contrasent.text.views import Identity, View, make_view, options_of

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder

OPTIONS = ("percent", "rate", "rule", "count", "reach", "draw", "wordnet", "filler")
Which = Literal["second", "both"]
"""Which of the two views is changed."""


def check_view(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a view among the parameters of a method.

    Args:
        values: by name; "view" names the view, ``OPTIONS`` are its options, None if not given.

    Raises:
        OptionError: no such view, or an option that the view does not have.
    """
    name = values["view"]
    known = options_of(name)
    if name in {"masked_lm", "insert_prediction"}:
        known = [*known, "filler"]
        if not values.get("filler"):
            raise OptionError(
                "filler", "", f"the view {name!r} needs the folder of a masked language model"
            )
    given = {k: values[k] for k in OPTIONS if values.get(k) is not None}
    for option, value in given.items():
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise OptionError(option, value, f"does not belong to the view {name!r}, which {takes}")
    return given


def make_views(
    encoder: "Encoder", values: Mapping[str, Any], *, views: Which = "second"
) -> tuple[View, View]:
    """The views of anchor and positive.

    Args:
        encoder: for its tokenizer.
        values: "view" names the view; its options are None or missing where they are not given.
        views: "second" leaves the anchor as it is, "both" changes both.

    Returns:
        The view of the anchor and that of the positive.

    Raises:
        OptionError: no such view, or an option of another view.
        ModelError: no [MASK], or a masked language model of another vocabulary.
        DataError: WordNet is missing.
    """
    given = check_view(values)
    filler = given.pop("filler", None)

    def fill() -> Any:
        from contrasent.engine.masked_models import MaskedModel

        return MaskedModel.load(str(filler), encoder, option="filler").fill

    view = make_view(values["view"], given, tokenizer=encoder.tokenizer, fill=fill)
    if views == "second":
        return Identity(), view
    if view.level == "row":
        raise OptionError("views", views, f"the view {values['view']!r} has an anchor of its own")
    return view, view
