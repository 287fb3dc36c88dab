"""sentence-transformers: objectives as losses of its trainer.

A saved model folder needs no adapter: ``SentenceTransformer("my-model")`` reads it.
"""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.heads import Dense, stacked
from contrasent.engine.objective import Objective
from contrasent.engine.registry import check, find
from contrasent.errors import ModelError, OptionError, TrainingError
from contrasent.model.pooling import modes
from contrasent.text.batches import VIEW, random_for
from contrasent.text.tokens import Tokenizer
from contrasent.text.views import Identity, View
from contrasent.types import Batch, Tokens


class ObjectiveLoss(nn.Module):
    """A training method as a loss for ``SentenceTransformerTrainer``.

    ::

        model = SentenceTransformer("my-model")
        loss = ObjectiveLoss(model, "esimcse+simcse_plus_plus", queue_size=160)
        SentenceTransformerTrainer(model, train_dataset=sentences, loss=loss).train()

    The data set has a column of sentences or, for a method on pairs, its columns, with scores as
    the label. The model's weights are trained, with the model's own dropout. Projectors, queues,
    generators and discriminators are not saved. Momentum encoders and queues are updated with every
    batch, also if gradients are accumulated.

    Attributes:
        objective: the objective, whose encoder shares the model's weights.
    """

    def __init__(
        self, model: Any, objective: str = "simcse", *, seed: int = 0, **parameters: Any
    ) -> None:
        """Make the objective for a ``SentenceTransformer``."""
        super().__init__()
        check(objective, parameters)
        self.objective: Objective = find(objective)(encoder_around(model), **parameters)
        encoder = self.objective.encoder
        if encoder.pooling not in modes().values():
            problem = "pools at a mask token, which this trainer does not insert"
            raise OptionError("objective", objective, f"{problem}; use contrasent train")
        self.objective.to(encoder.device)
        for view in self.objective.views:
            if view.level != "token":
                problem = f"the view {type(view).__name__} needs the text, which this trainer omits"
                remedy = "add the copies to the dataset, or use contrasent train"
                raise OptionError("objective", objective, f"{problem}; {remedy}")
        self.seed = seed
        self.batches = 0
        self._stepped = True

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a batch; ``labels``: (n,) scores of its pairs, if it has any."""
        if parallel.world() > 1:
            raise TrainingError(
                "this loss does not share gradients between processes; use contrasent train "
                "under torchrun"
            )
        training = bool(self.objective.encoder.backbone.training)
        self.objective.train(training)
        if training and not self._stepped:
            self.objective.after_step()
        columns = [_tokens(features) for features in sentence_features]
        self.objective.check(len(columns), scored=labels is not None)
        terms = self.objective(self._batch(columns, labels))
        if training:
            self._stepped = False
            self.batches += 1
        return self.objective.loss(terms)

    def _batch(self, columns: list[Tokens], labels: Tensor | None) -> Batch:
        views = self.objective.views
        if not self.objective.labeled:
            columns = columns * len(views)
        count = len(columns[0])
        rows = np.arange(self.batches * count, (self.batches + 1) * count)
        viewed = [
            self._viewed(views[i] if i < len(views) else Identity(), column, i, rows)
            for i, column in enumerate(columns)
        ]
        scores = None if labels is None else labels.cpu().numpy().astype(np.float64)
        return Batch(tuple(viewed), rows, self.batches, self.seed, scores, tuple(columns))

    def _viewed(self, view: View, tokens: Tokens, index: int, rows: Any) -> Tokens:
        if isinstance(view, Identity):
            return tokens
        before, after = self.objective.encoder.tokenizer.frame
        inner = [tokens[i][len(before) : len(tokens[i]) - len(after)] for i in range(len(tokens))]
        randoms = [random_for(self.seed, VIEW + index, int(row), 0) for row in rows]
        return Tokens.from_rows(
            np.concatenate([before, ids, after]) for ids in view.many(inner, randoms)
        )


def encoder_around(model: Any) -> TorchEncoder:
    """An encoder that shares the weights of a ``SentenceTransformer``."""
    modules = list(model.children())
    if len(modules) < 2:
        raise ModelError("the model needs a Transformer and a Pooling module")
    transformer, pooling, *following = modules
    # The attribute was renamed in sentence-transformers 6.
    backbone = getattr(transformer, "model", None) or getattr(transformer, "auto_model", None)
    if not isinstance(backbone, nn.Module) or not hasattr(pooling, "pooling_mode"):
        raise ModelError("the model must begin with a Transformer and a Pooling module")
    heads = [_dense(module) for module in following if type(module).__name__ != "Normalize"]
    slow = model.tokenizer
    length = int(model.max_seq_length or cast(Any, backbone).config.max_position_embeddings)
    encoder = TorchEncoder(
        backbone,
        Tokenizer(slow.backend_tokenizer, max_seq_length=length, names=slow.special_tokens_map),
        pooling=_mode(pooling),
        head=stacked(heads),
    )
    return encoder.to(model.device)


def _mode(pooling: Any) -> str:
    mode = pooling.pooling_mode
    names, known = [mode] if isinstance(mode, str) else list(mode), modes()
    if len(names) != 1 or names[0] not in known:
        raise ModelError(f"pooling {names} is not supported; use one of {', '.join(known)}")
    return known[str(names[0])]


def _dense(module: Any) -> Dense:
    if type(module).__name__ != "Dense" or getattr(module, "use_residual", False):
        raise ModelError(f"the module {module} is not supported")
    dense = Dense(1, 1, module.activation_function)
    dense.linear = module.linear
    return dense


def _tokens(features: dict[str, Tensor]) -> Tokens:
    if "attention_mask" not in features or features["input_ids"].dim() != 2:
        raise TrainingError(
            "the loss needs padded input_ids with an attention_mask; turn off unpad_inputs"
        )
    ids = features["input_ids"].cpu().numpy().astype(np.int32)
    mask = features["attention_mask"].cpu().numpy().astype(bool)
    return Tokens.from_rows(row[real] for row, real in zip(ids, mask, strict=True))
