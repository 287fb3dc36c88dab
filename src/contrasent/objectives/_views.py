"""The view of an objective, from its parameters."""

from collections.abc import Mapping
from typing import Any

from contrasent.model.encoder import Encoder
from contrasent.objectives._checks import check_view
from contrasent.text.views import Identity, View, make_view


def choose(
    encoder: Encoder, name: str, options: Mapping[str, Any], *, views: str = "second"
) -> tuple[View, View]:
    """The views of anchor and positive.

    Args:
        encoder: for its tokenizer.
        name: of the view.
        options: values of all parameters that belong to views, None where not given.
        views: "second" leaves the anchor as it is, "both" changes both.

    Raises:
        OptionError: no such view, or an option of another view.
        ModelError: no [MASK], or a masked language model of another vocabulary.
        DataError: WordNet is missing.
    """
    from contrasent.errors import OptionError

    given = check_view({"view": name, **options})
    filler = given.pop("filler", None)
    loaded: list[Any] = []

    def fill() -> Any:
        from contrasent.objectives._masked_model import MaskedModel

        if not loaded:
            loaded.append(MaskedModel.load(str(filler), encoder, option="filler").fill)
        return loaded[0]

    view = make_view(name, given, tokenizer=encoder.tokenizer, fill=fill)
    if views == "second":
        return Identity(), view
    if view.level == "row":
        raise OptionError("views", views, f"the view {name!r} has an anchor of its own")
    return view, view
