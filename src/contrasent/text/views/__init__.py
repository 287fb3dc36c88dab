"""Views: a sentence rewritten, so that two views of it make a positive pair. No torch here."""

# Each view is a pure function of a sentence and a generator, one for each (seed, epoch, row, view).

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import ModelError, OptionError, check_choice
from contrasent.text.tokens import Tokenizer
from contrasent.text.views.tokens import (
    Draw,
    Fill,
    Identity,
    InsertMask,
    InsertMaskedPrediction,
    InTemplate,
    NextSentence,
    RepeatTokens,
    ReplaceMasked,
)  # fmt: skip
from contrasent.text.views.words import (
    STOP_WORDS,
    Crop,
    DeleteOneWord,
    DeleteWords,
    InsertStopWords,
    RepeatWords,
    ReplaceSynonym,
    Rule,
    View,
    wordnet_synonyms,
)  # fmt: skip

__all__ = [
    "STOP_WORDS", "VIEWS", "Crop", "DeleteOneWord", "DeleteWords", "Draw", "Fill", "Identity",
    "InTemplate", "InsertMask", "InsertMaskedPrediction", "InsertStopWords", "NextSentence",
    "RepeatTokens", "RepeatWords", "ReplaceMasked", "ReplaceSynonym", "Rule", "View", "make_view",
    "options_of", "word_continuations", "wordnet_synonyms",
]  # fmt: skip

VIEWS: dict[str, type[View]] = {
    "dropout": Identity,
    "crop": Crop,
    "delete_words": DeleteWords,
    "delete_one_word": DeleteOneWord,
    "synonym": ReplaceSynonym,
    "masked_lm": ReplaceMasked,
    "repeat_words": RepeatWords,
    "repeat_tokens": RepeatTokens,
    "insert_stop_words": InsertStopWords,
    "insert_mask": InsertMask,
    "insert_prediction": InsertMaskedPrediction,
    "next_sentence": NextSentence,
}
GIVEN = {"mask", "continues", "fill", "synonyms", "where"}
"""Parameters that come from the tokenizer, a model or a data set, not from an option."""


def options_of(name: str) -> list[str]:
    """Names of the options that a view takes."""
    check_choice("view", name, VIEWS)
    # A prediction is inserted where a [MASK] would be.
    kind = InsertMask if name == "insert_prediction" else VIEWS[name]
    found = [f.name for f in fields(kind) if f.name not in GIVEN]  # type: ignore[arg-type]
    return found + (["wordnet"] if name == "synonym" else [])


def make_view(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    fill: Callable[[], Fill] | None = None,
) -> View:
    """A view from its name and options."""
    given: dict[str, Any] = dict(options or {})
    known = options_of(name)
    for option in given:
        if option not in known:
            problem = f"the view {name!r} has no option of that name"
            raise OptionError("option", option, problem, choices=known)
    if name == "synonym":
        return ReplaceSynonym(synonyms=wordnet_synonyms(given.pop("wordnet", None)), **given)
    if name in {"masked_lm", "insert_mask", "insert_prediction"}:
        given.update(mask=_mask(name, tokenizer), continues=word_continuations(tokenizer))
        if name == "insert_mask":
            return InsertMask(**given)
        if fill is None:
            raise ModelError(f"the view {name!r} needs a masked language model")
        if name == "masked_lm":
            return ReplaceMasked(**given, fill=fill())
        return InsertMaskedPrediction(where=InsertMask(**given), fill=fill())
    return VIEWS[name](**given)


def word_continuations(tokenizer: Tokenizer | None) -> NDArray[np.bool_] | None:
    """(vocabulary,) bool, true for ids that continue a word; None if that is not known."""
    if tokenizer is None:
        return None
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values(), default=-1) + 1
    hashes = sum(text.startswith("##") for text in vocabulary)
    spaces = sum(text.startswith(("Ġ", "▁")) for text in vocabulary)
    if not hashes and not spaces:
        return None
    continues = np.zeros(size, dtype=np.bool_)
    for text, i in vocabulary.items():
        if hashes > spaces:
            continues[i] = text.startswith("##")
        else:
            continues[i] = not text.startswith(("Ġ", "▁")) and i not in tokenizer.specials.all
    return continues


def _mask(name: str, tokenizer: Tokenizer | None) -> int:
    if tokenizer is None or tokenizer.specials.mask is None:
        raise ModelError(f"the view {name!r} needs a tokenizer with a [MASK] token")
    return tokenizer.specials.mask
