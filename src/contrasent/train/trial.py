"""A small encoder and sentences, made here, on which a method is tried without a download."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch

from contrasent import parallel
from contrasent.engine.objective import Objective
from contrasent.engine.parameters import GuideName, MaskedModelName
from contrasent.engine.registry import parameters
from contrasent.model.encoder import Encoder
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.train.prepare import configure, prepare
from contrasent.train.rows import collator
from contrasent.train.settings import Settings
from contrasent.types import Batch

SMALL = "small"
"""The small encoder's name as a value of parameters that name a model."""

STEPS, ROWS = 3, 6

WHO = ("the gardener", "an old sailor", "my neighbour", "a young clerk")
DID = ("mended", "painted", "sold", "forgot the key to")
WHAT = ("a wooden ladder", "the copper kettle before dawn", "two lamps")


@dataclass(frozen=True, slots=True)
class Trial:
    """A method and its parameters on a small encoder.

    Attributes:
        base: folder of the encoder, which has a masked-LM head too.
    """

    method: str
    parameters: Mapping[str, Any]
    base: Path

    @contextmanager
    def training(
        self, *, dropout: float = 0.0, cached_rows: int = 0
    ) -> Iterator[tuple[Objective, Callable[[int], Batch]]]:
        """The objective in float64, ready to train, and batches as a run makes them."""
        settings = Settings(
            batch=ROWS,
            steps=STEPS,
            max_tokens=24,
            seed=3,
            dropout=dropout,
            grad_cache_rows=cached_rows,
        )
        objective = prepare(self.base, self.method, dict(self.parameters), settings)
        configure(objective, settings)
        objective.double().train()
        with tempfile.TemporaryDirectory() as home:
            place = Path(home)
            made = collator(objective, _corpus(objective, place), settings, place / "tokens", None)
            yield objective, lambda step: made.batch(step, parallel.rank(), parallel.world())


def make_small_base(folder: Path) -> Path:
    """Write a BERT of two layers with random weights, a masked-LM head and a small vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word for text in _sentences() for word in text.split()})
    vocabulary = {word: i for i, word in enumerate([*marks, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.add_special_tokens(marks)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertForMaskedLM(config).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    named = dict(zip(("pad", "unk", "cls", "sep", "mask"), marks, strict=True))
    tokens = {f"{name}_token": text for name, text in named.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens), "utf-8")
    return folder


def with_small_models(method: str, given: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The parameters with a folder in the place of "small"."""
    found = dict(given)
    for name, parameter in parameters(method).items():
        if found.get(name) == SMALL and parameter.mark(MaskedModelName):
            found[name] = str(base)
        if found.get(name) == SMALL and parameter.mark(GuideName):
            guide = base.with_name("guide")
            Encoder.load(base, pooler="mean").save(guide)
            found[name] = str(guide)
    return found


def _sentences() -> list[str]:
    return [f"{who} {did} {what}" for what, did, who in product(WHAT, DID, WHO)]


def _corpus(objective: Objective, folder: Path) -> Corpus:
    texts = _sentences()
    if objective.graded:
        rows = [(*pair, i % 6) for i, pair in enumerate(pairwise(texts))]
        return open_corpus(rows, score=2)
    if objective.labelled:
        return open_corpus(list(zip(texts, texts[1:], texts[7:], strict=False)))
    # Documents of four sentences, for views of the next one.
    documents = ["\n".join(texts[i : i + 4]) for i in range(0, len(texts), 4)]
    path = folder / "documents.txt"
    path.write_text("\n\n".join(documents) + "\n", "utf-8")
    return open_corpus(path, documents=True)
