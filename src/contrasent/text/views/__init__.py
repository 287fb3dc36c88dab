"""Views: a sentence rewritten, so that two views of it make a positive pair. No torch here.

Each view is a pure function of a sentence and a random generator. The caller makes one generator
for each (seed, epoch, row, view), so that neither the number of workers nor a resumed run changes
what comes out.
"""

from contrasent.text.views._base import Ids, Level, Rule, View
from contrasent.text.views.make import VIEWS, make_view, options_of, word_continuations
from contrasent.text.views.synonyms import wordnet_synonyms
from contrasent.text.views.tokens import (
    Fill,
    Identity,
    InsertMask,
    InsertMaskedPrediction,
    InTemplate,
    NextSentence,
    RepeatTokens,
    ReplaceMasked,
)
from contrasent.text.views.words import (
    STOP_WORDS,
    Crop,
    DeleteOneWord,
    DeleteWords,
    InsertStopWords,
    RepeatWords,
    ReplaceSynonym,
)

__all__ = [
    "STOP_WORDS",
    "VIEWS",
    "Crop",
    "DeleteOneWord",
    "DeleteWords",
    "Fill",
    "Identity",
    "Ids",
    "InTemplate",
    "InsertMask",
    "InsertMaskedPrediction",
    "InsertStopWords",
    "Level",
    "NextSentence",
    "RepeatTokens",
    "RepeatWords",
    "ReplaceMasked",
    "ReplaceSynonym",
    "Rule",
    "View",
    "make_view",
    "options_of",
    "word_continuations",
    "wordnet_synonyms",
]
