"""A language model from random weights: masked language modelling on text of one's own.

```
BASE/            the model: weights with their masked-LM head, vocabulary; written last
BASE/run/        settings.json, log.jsonl and result.json of the training, shape.json
BASE/start/      until then: vocabulary and random weights
BASE/training/   until then: the run, as ``fit`` keeps it
```
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from contrasent import parallel
from contrasent.engine import edits
from contrasent.engine.encodings import Terms
from contrasent.engine.masked_models import LanguageHead, at_labels
from contrasent.engine.objective import Objective
from contrasent.engine.parameters import Share
from contrasent.errors import OptionError, OutputError, TrainingError
from contrasent.files import atomic_folder, check_writable, write_json, writing
from contrasent.losses import masked_lm
from contrasent.model import packed
from contrasent.model.encoder import Encoder
from contrasent.model.packing import Packing
from contrasent.text.corpus import Corpus
from contrasent.text.tokens import Tokenizer
from contrasent.text.views import Identity
from contrasent.text.vocabulary import NAMES, word_pieces
from contrasent.train import checkpoint
from contrasent.train.fit import fit
from contrasent.train.prepare import configure
from contrasent.train.run import RunFolder
from contrasent.train.settings import Settings
from contrasent.train.shape import Shape
from contrasent.types import Batch, Tokens


class MaskedPretraining(Objective):
    """Masked language modelling alone, on all weights (BERT: Devlin et al., 2019, section 3.1).

    Of 15 % of the tokens 80 % become [MASK], 10 % a random token and 10 % stay; the loss is the
    mean over them. There is no next-sentence task. The output layer is that of the embeddings.
    """

    def __init__(self, encoder: Encoder, *, mask_ratio: Share = 0.15) -> None:
        super().__init__(encoder)
        self.mask_ratio = mask_ratio
        self.views, self.roles = (Identity(),), ("anchor",)
        self.weights = {"masked_lm": 1.0}
        self.head = LanguageHead.load(None, encoder)
        embeddings: Any = cast(Any, encoder.backbone).get_input_embeddings()
        cast(Any, self.head.model).get_output_embeddings().weight = embeddings.weight

    def forward(self, batch: Batch) -> Terms:
        """The loss of one batch."""
        (column,) = batch.columns
        randoms = edits.generators(batch, 0)
        edited = edits.mask(column, self.mask_ratio, self.encoder.tokenizer, randoms)
        vectors, targets = self._at_labels(edited)
        count = parallel.average(torch.tensor(float(len(targets)), device=vectors.device))
        return {"masked_lm": masked_lm(self.head(vectors), targets, count=count.clamp_min(1e-6))}

    def _at_labels(self, edited: edits.Edited) -> tuple[Tensor, Tensor]:
        """(k, d) vectors and (k,) ids of the chosen tokens; where it can be, nothing is padded."""
        encoder, tokens = self.encoder, edited.tokens
        if not (encoder.packed and packed.supports_batch(encoder.backbone, tokens)):
            return at_labels(encoder, tokens, edited.labels)
        packing = Packing.of(tokens)
        (states,) = packed.states(encoder.backbone, packing)
        labels = Tokens(cast(Any, edited.labels), tokens.offsets).select(packing.order).ids
        chosen = torch.from_numpy(np.flatnonzero(labels >= 0))
        return states[chosen], torch.from_numpy(labels[labels >= 0].astype(np.int64))

    def save(self, folder: Path) -> None:
        """Write encoder, head and vocabulary into a folder that exists."""
        model: Any = self.head.model
        setattr(model, model.base_model_prefix, self.encoder.backbone)
        try:
            model.save_pretrained(folder, safe_serialization=True)
        finally:
            setattr(model, model.base_model_prefix, self.head.given)
        self.encoder.tokenizer.save(folder)


@dataclass(frozen=True, slots=True)
class Pretrained:
    """What came of it.

    Attributes:
        sentences_per_second: of its steps; 0 if none was left.
        loss: mean over the last tenth of the logged steps, in nats a masked token.
    """

    folder: str
    steps: int
    seconds: float
    sentences_per_second: float
    loss: float
    parameters: int
    vocabulary: int


def pretrain(
    corpus: Corpus,
    folder: Path,
    shape: Shape,
    settings: Settings,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Pretrained:
    """Learn a vocabulary and a language model from text.

    Order, masks, dropout and learning rate are functions of the seed and the step: a run that was
    killed and is resumed ends, on CPU, in the same bits as one that was not.

    ``settings``: of the run, see :func:`contrasent.train.shape.pretraining_settings`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise TrainingError("pretraining runs in one process; start it without torchrun")
    if corpus.width > 1:
        names = ", ".join(corpus.names)
        raise OptionError("--columns", names, "pretraining takes one column of text; name it")
    place = _Place(folder)
    stated = {**asdict(shape), "max_tokens": settings.max_tokens, "seed": settings.seed}
    place.open({**stated, "corpus": corpus.digest()}, resume=resume, overwrite=overwrite)
    if place.finished:
        return place.result()
    if not place.start.is_dir():
        with atomic_folder(place.start) as target:
            _write_start(corpus, target, shape, settings)
    objective = _prepared(place.start, settings)
    fit(
        objective,
        corpus,
        settings,
        folder=place.training,
        keep="last",
        resume=place.training.is_dir() and any(place.training.iterdir()),
    )
    # A run that was killed after its last step has its weights in the checkpoint alone.
    tensors, _ = checkpoint.read(RunFolder(place.training).checkpoint)
    objective.load_state_dict(
        {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    )
    place.publish(objective)
    return place.result()


def _write_start(corpus: Corpus, folder: Path, shape: Shape, settings: Settings) -> None:
    """The vocabulary and random weights, as a checkpoint of its own."""
    from transformers import BertConfig, BertForMaskedLM

    def texts() -> Iterator[str]:
        return (text for row in corpus for text in row)

    backend = word_pieces(texts, shape.vocabulary, lower_case=shape.lower_case)
    names = {**NAMES, "do_lower_case": shape.lower_case}
    Tokenizer(backend, max_tokens=settings.max_tokens, names=names).save(folder)
    torch.manual_seed(settings.seed)
    config = BertConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=settings.max_tokens,
        pad_token_id=backend.token_to_id(NAMES["pad_token"]),
    )
    cast(Any, BertForMaskedLM(config)).save_pretrained(folder, safe_serialization=True)


def _prepared(start: Path, settings: Settings) -> MaskedPretraining:
    attention = settings.attention_dropout
    encoder = Encoder.load(
        start,
        pooler="cls",
        dropout=settings.dropout,
        attention_dropout=settings.dropout if attention is None else attention,
    )
    objective = MaskedPretraining(encoder).to(encoder.device)
    configure(objective, settings)
    return objective


class _Place:
    """The folder of a model that is being pre-trained."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.start, self.training = folder / "start", folder / "training"
        self.shape = self.run / "shape.json"

    @property
    def finished(self) -> bool:
        """Whether the model is there: its configuration is written last."""
        return (self.folder / "config.json").is_file()

    def open(self, shape: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Make sure that the folder may be written, and belongs to this run."""
        check_writable(self.folder)
        names = sorted(path.name for path in self.folder.iterdir())
        ours = self.shape.is_file()
        if names and not ours and not (overwrite and self.finished):
            raise OutputError(f"{self.folder}: holds {names[0]!r}; choose another folder")
        if ours and not (resume or overwrite):
            problem = "already holds a run; --resume goes on with it, --overwrite starts afresh"
            raise OutputError(f"{self.folder}: {problem}")
        if names and overwrite and not resume:
            with writing(self.folder):
                shutil.rmtree(self.folder)
        if ours and self.finished:  # it may have been killed while it cleaned up
            self.clean()
        if ours and resume:
            before = json.loads(self.shape.read_text("utf-8"))
            for key, value in shape.items():
                if before.get(key) != value:
                    problem = f"the run there has {key} {before.get(key)!r}, this one {value!r}"
                    raise OutputError(f"{self.folder}: {problem}; resume with the same command")
        else:
            write_json(self.shape, shape)

    def publish(self, objective: MaskedPretraining) -> None:
        """Put the finished model into the folder, and leave of the run what is no weight."""
        record = RunFolder(self.training)
        parameters = sum(p.numel() for p in objective.parameters())
        with writing(self.folder):
            for source in (record.settings, record.log, record.result):
                shutil.copy2(source, self.run / source.name)
            with atomic_folder(self.run / "model") as target:
                objective.save(target)
            found = {"parameters": parameters, "vocabulary": objective.encoder.tokenizer.size}
            write_json(self.run / "model.json", found)
            made = sorted((self.run / "model").iterdir(), key=lambda p: p.name == "config.json")
            for path in made:
                path.replace(self.folder / path.name)
        self.clean()

    def clean(self) -> None:
        """Remove what a finished model has no use for."""
        for leftover in (self.run / "model", self.training, self.start):
            shutil.rmtree(leftover, ignore_errors=True)

    def result(self) -> Pretrained:
        """What the record of the run says."""
        run = json.loads((self.run / "result.json").read_text("utf-8"))
        model = json.loads((self.run / "model.json").read_text("utf-8"))
        lines = map(json.loads, (self.run / "log.jsonl").read_text("utf-8").splitlines())
        losses = [line["loss"] for line in lines if "loss" in line]
        last = losses[-max(1, len(losses) // 10) :]
        return Pretrained(
            folder=str(self.folder),
            steps=run["steps"],
            seconds=run["seconds"],
            sentences_per_second=run["sentences_per_second"],
            loss=sum(last) / len(last),
            **model,
        )
