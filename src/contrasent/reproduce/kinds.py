"""What can be measured, and the options of each measure; nothing heavy is imported here."""

from typing import Any

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
KNOWN_STS = (*STS, "SICKR-all", "STSB-de", "STSB-es")
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
FORMS = ("senteval", "raw")
SPLITS = ("train", "dev", "test")

Option = tuple[str, tuple[str, ...]]
"""Kind of value ("text", "texts", "count", "flag") and, for texts, what is allowed."""

MEASURES: dict[str, dict[str, Option]] = {
    "sts": {
        "tasks": ("texts", KNOWN_STS),
        "split": ("text", SPLITS),
        "form": ("text", FORMS),
        "aggregate": ("texts", ("all", "mean", "wmean")),
        "subsets": ("flag", ()),
    },
    "transfer": {
        "tasks": ("texts", TRANSFER),
        "solver": ("text", ("fast", "senteval", "senteval_prototype")),
    },
    "geometry": {
        "split": ("text", ("all", *SPLITS)),
        "form": ("text", FORMS),
    },
    "trace": {
        "every": ("count", ()),
        "split": ("text", ("all", *SPLITS)),
        "form": ("text", FORMS),
        "sample": ("count", ()),
    },
    "stsb_retrieval": {
        "directions": ("text", ("both", "first")),
        "split": ("text", SPLITS),
        "form": ("text", FORMS),
    },
    "caption_retrieval": {"captions": ("count", ())},
    "listing": {
        "queries": ("texts", ()),
        "documents": ("text", ("flickr30k", "stsb-test")),
        "captions": ("count", ()),
        "k": ("count", ()),
    },
    "length_bias": {"tasks": ("texts", STS), "form": ("text", FORMS)},
    "repetition_bias": {"queries": ("count", ()), "text": ("text", ("flickr30k", "wiki"))},
    "pair_similarity": {"query": ("text", ()), "texts": ("texts", ())},
    "speed": {},
}
"""Each measure's options; ``measure.py`` says what they do.

``trace`` follows a training run and ``speed`` reads its clock; the others need a model alone.
"""

DEFAULTS: dict[str, dict[str, Any]] = {
    "sts": {
        "tasks": STS,
        "split": "test",
        "form": "senteval",
        "aggregate": ("all",),
        "subsets": False,
    },
    "transfer": {"tasks": TRANSFER, "solver": "fast"},
    "geometry": {"split": "all", "form": "senteval"},
    "trace": {"every": 10, "split": "all", "form": "senteval", "sample": 0},
    "stsb_retrieval": {"directions": "both", "split": "test", "form": "senteval"},
    "caption_retrieval": {"captions": 5000},
    "listing": {"documents": "flickr30k", "captions": 0, "k": 3},
    "length_bias": {"tasks": STS, "form": "senteval"},
    "repetition_bias": {"queries": 100, "text": "flickr30k"},
    "pair_similarity": {"query": "", "texts": ()},
    "speed": {},
}
"""What an option is that a recipe does not give; 0 captions or samples are all of them."""

OF_TRAINING = ("trace", "speed")
LOWER = ("alignment", "uniformity", "anisotropy", "seconds")
"""Metrics that are better when they are lower."""

FIELDS = ("task", "split", "metric", "aggregate")
