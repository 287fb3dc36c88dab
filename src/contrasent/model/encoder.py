"""The encoder: backbone, pooler and head, from sentences to vectors."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent import parallel, progress
from contrasent.errors import ModelError, OptionError, OutputError
from contrasent.files import atomic_folder
from contrasent.model import chunks
from contrasent.model import dropout as dropout_
from contrasent.model import folder as folder_
from contrasent.model import packed as packed_
from contrasent.model.backbone import check_vocabulary, load_backbone, longest_input
from contrasent.model.golden import write_golden
from contrasent.model.groups import by_length
from contrasent.model.heads import as_dense, check_head, make_head
from contrasent.model.packing import Packing
from contrasent.model.poolers import check_pooler, layer_weights, pooler
from contrasent.model.pretrained import resolve
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens, Vectors

log = logging.getLogger(__name__)

BUCKET = 8
"""Padded lengths are multiples of it where shapes are bucketed."""


class Encoder(nn.Module):
    """Sentences in, vectors out.

    A head inside the encoder belongs to the model and is saved with it. (A head that training
    alone needs lives in the objective.)

    Attributes:
        backbone: a transformers encoder without its own pooling layer.
        tokenizer: what turns sentences into ids.
        pooling: name of the pooler, see :mod:`contrasent.model.poolers`.
        head: network on the pooled vector, or None.
        normalise: whether ``encode`` scales vectors to unit length.
        lower_case: whether texts are lower-cased before the tokenizer.
        source: the transformers folder that the weights came from, or None.
        truncated: how many of the sentences of the last ``encode`` were cut at ``max_tokens``.
        packed: compute without padding (:mod:`contrasent.model.packed`) where that is possible;
            false for the backbone's own forward pass, in padded groups of similar length.
        chunk: rows whose forward pass is kept in memory at once (:mod:`contrasent.model.chunks`); 0
            for all.
        bucketed: pad a block to a multiple of 8 tokens instead of cutting it into groups: a GPU is
            faster on one block of a known shape.
    """

    def __init__(
        self,
        backbone: nn.Module,
        tokenizer: Tokenizer,
        *,
        pooling: str,
        head: nn.Module | None = None,
        normalise: bool = False,
        lower_case: bool = False,
        source: Path | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.head = head
        self.normalise = normalise
        self.lower_case = lower_case
        self.source = source
        self.truncated = 0
        self._pool = pooler(pooling)
        self._all_layers = layer_weights(pooling, self.layers) is not None
        dropout_.take_over(backbone)
        self.packed = packed_.fits(backbone)
        self.chunk = 0
        self.bucketed = False

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        pooler: str | None = None,
        head: str | None = None,
        normalise: bool | None = None,
        max_tokens: int | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        revision: str | None = None,
        device: str | None = None,
    ) -> "Encoder":
        """Load a model by folder or name; whatever is not given is what the folder says.

        Args:
            name: see :func:`contrasent.model.pretrained.resolve`.
            pooler: needed for a bare transformers encoder, which does not say how to pool.
            head: "none" drops the folder's head; "tanh" or "batchnorm" put a new one there.
            normalise: scale vectors to unit length.
            max_tokens: cut sentences at this many tokens, special tokens included.
            dropout: probability for hidden states in training; the folder's own if None.
            attention_dropout: the same for attention weights.
            revision: commit of a model on the hub.
            device: "cpu", "cuda", ...; if None, this process's GPU if there is one.

        Raises:
            ModelError: no model there, weights missing, newly initialised or of another shape, or
                nothing says how to pool.
            OptionError: a value that cannot be.
        """
        said = folder_.describe(resolve(name, revision=revision))
        pooling = said.pooler if pooler is None else pooler
        if pooling is None:
            raise ModelError(
                f"{name}: a bare encoder does not say how its tokens become one vector; "
                "name a pooler (cls, mean, max, first_last, embeddings_last, last_two), or, for a "
                "checkpoint of SimCSE or its kin, see 'contrasent import'"
            )
        check_pooler(pooling)
        check_head(head)
        backbone = load_backbone(
            said.transformer, dropout=dropout, attention_dropout=attention_dropout
        )
        config: Any = backbone.config
        limit = longest_input(config)
        cut = min(said.max_tokens or limit, limit) if max_tokens is None else max_tokens
        if not 3 <= cut <= limit:
            raise OptionError("max_tokens", cut, f"this encoder takes 3 to {limit} tokens")
        top: nn.Module | None
        if head is None:
            layers = [folder_.read_dense(path) for path in said.head]
            top = nn.Sequential(*layers) if len(layers) > 1 else (layers[0] if layers else None)
        else:
            top = make_head(head, int(config.hidden_size))
        encoder = cls(
            backbone,
            Tokenizer.load(said.transformer, max_tokens=cut),
            pooling=pooling,
            head=top,
            normalise=said.normalise if normalise is None else normalise,
            lower_case=said.lower_case,
            source=said.transformer,
        )
        check_vocabulary(backbone, encoder.tokenizer, said.transformer)
        encoder = encoder.to(device or parallel.device()).eval()
        encoder.bucketed = encoder.device.type != "cpu"
        return encoder

    def compile_backbone(self) -> None:
        """Compile the backbone's own forward pass, for bucketed shapes; on a GPU as CUDA graphs.

        Names of weights stay as they are.
        """
        self.packed, self.bucketed = False, True
        mode = "default" if self.device.type == "cpu" else "reduce-overhead"
        self.backbone.compile(dynamic=False, mode=mode)

    @property
    def layers(self) -> int:
        """Number of transformer layers."""
        return int(self._config.num_hidden_layers)

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        if self.head is None:
            return int(self._config.hidden_size)
        return [m for m in self.head.modules() if isinstance(m, nn.Linear)][-1].out_features

    @property
    def max_tokens(self) -> int:
        """Sentences are cut at this many tokens, special tokens included."""
        return self.tokenizer.max_tokens

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.parameters()).device

    @property
    def identity(self) -> str:
        """A hash of all that decides the vectors: weights, tokenizer, pooling, head, length."""
        digest = hashlib.sha256()
        told = (self.pooling, self.normalise, self.lower_case, self.max_tokens)
        digest.update(repr(told).encode())
        digest.update(self.tokenizer.to_str().encode())
        for key, value in sorted(self.state_dict().items()):
            digest.update(key.encode())
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
        return digest.hexdigest()

    @property
    def _config(self) -> Any:
        return self.backbone.config

    def tokenise(self, sentences: Sequence[str]) -> tuple[Tokens, NDArray[np.bool_]]:
        """Token ids of sentences, and for each whether it was cut at ``max_tokens``."""
        if self.lower_case:
            sentences = [s.lower() for s in sentences]
        return self.tokenizer(sentences)

    def forward(self, tokens: Tokens) -> Tensor:
        """Vectors of tokenised sentences, (n, d), not normalised.

        Rows are packed or grouped by length, so that little or no padding is computed; the result
        does not depend on it. They are float32, whatever the precision inside; float64 of a model
        in float64.
        """
        pooled = self.pool(tokens)
        return pooled if self.head is None else _full(self.head(pooled))

    def pool(self, tokens: Tokens) -> Tensor:
        """Pooled vectors before the head, (n, hidden size), precise as those of ``forward``."""
        if len(tokens) == 0:
            return torch.empty(0, int(self._config.hidden_size), device=self.device)
        if not 0 < self.chunk < len(tokens):
            return self._pool_block(tokens)
        order = chunks.cut(tokens.lengths, self.chunk)
        # When a chunk is computed again, dropout may have been switched on in the meantime.
        still = not self.backbone.training
        work = self._pool_still if still else self._pool_block
        return self._in_order([chunks.replayed(work, tokens.select(rows)) for rows in order], order)

    def _pool_still(self, tokens: Tokens) -> Tensor:
        with self.dropout_off():
            return self._pool_block(tokens)

    def _pool_block(self, tokens: Tokens) -> Tensor:
        if self.packed and packed_.able(self.backbone, tokens):
            return self._in_order(*self._pool_packed(tokens))
        return self._in_order(*self._pool_groups(tokens))

    def _in_order(self, parts: list[Tensor], order: list[NDArray[np.int64]]) -> Tensor:
        """Vectors of parts of a block, in the order of its rows."""
        place = np.argsort(np.concatenate(order), kind="stable")
        vectors = parts[0] if len(parts) == 1 else torch.cat(parts)
        if np.array_equal(place, np.arange(len(place))):
            return vectors  # nothing to move, and nothing for a GPU to wait for
        return vectors[torch.from_numpy(place).to(self.device)]

    def _pool_groups(self, tokens: Tokens) -> tuple[list[Tensor], list[NDArray[np.int64]]]:
        """Pooled vectors of padded groups, and which rows they are."""
        lengths = tokens.lengths
        parts = []
        order = [np.arange(len(lengths))] if self.bucketed else by_length(lengths)
        for rows in order:
            hidden, mask = self.hidden(tokens.select(rows), all_layers=self._all_layers)
            parts.append(_full(self._pool(hidden, mask)))
        return parts, order

    def _pool_packed(self, tokens: Tokens) -> tuple[list[Tensor], list[NDArray[np.int64]]]:
        """The same without padding."""
        packing = Packing.of(tokens)
        firsts = self.pooling == "cls"
        states = packed_.states(self.backbone, packing, all_layers=self._all_layers, firsts=firsts)
        if firsts:
            return [_full(states[-1])], [packing.order]
        parts = []
        for hidden in zip(*[packing.split(state) for state in states], strict=True):
            mask = torch.ones(hidden[0].shape[:2], dtype=torch.bool)
            parts.append(_full(self._pool(hidden, mask)))
        return parts, [packing.order]

    def hidden(
        self, tokens: Tokens, *, all_layers: bool = False
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Token vectors of one padded block.

        Returns:
            Hidden states, each (n, t, d): the last alone, or the embedding output and all layers;
            and the mask (n, t), true on real tokens.
        """
        ids, mask = self.padded(tokens)
        # Without padding there is nothing to mask, and attention takes a faster path.
        told = None if bool((tokens.lengths == ids.shape[1]).all()) else mask
        output = self.backbone(
            input_ids=ids, attention_mask=told, output_hidden_states=all_layers, return_dict=True
        )
        states = output.hidden_states if all_layers else (output.last_hidden_state,)
        return tuple(states), mask

    def padded(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Padded ids (n, t) int64 and mask (n, t) bool on the encoder's device."""
        pad, device = self.tokenizer.specials.pad, self.device
        ids, mask = (torch.from_numpy(array) for array in tokens.pad(pad))
        if self.bucketed:
            room = min(-ids.shape[1] % BUCKET, longest_input(self._config) - ids.shape[1])
            ids = nn.functional.pad(ids, (0, room), value=pad)
            mask = nn.functional.pad(mask, (0, room), value=False)
        if device.type == "cuda":  # a copy from pinned memory is not waited for
            ids, mask = ids.pin_memory(), mask.pin_memory()
        return ids.to(device, non_blocking=True), mask.to(device, non_blocking=True)

    @contextmanager
    def dropout_off(self) -> Iterator[None]:
        """Switch off all dropout, attention included, for the block."""
        with dropout_.off(self):
            yield

    @torch.inference_mode()
    def encode(self, sentences: Sequence[str], *, batch: int = 64) -> Vectors:
        """Vectors of sentences, float32, in the order given.

        Inside, equal sentences are computed once and the longest come first. How many sentences
        were cut is logged as a warning and kept in ``truncated``.

        Args:
            sentences: any number of strings, empty ones included.
            batch: sentences a forward pass.
        """
        if isinstance(sentences, str):
            raise TypeError("encode takes a sequence of sentences, not one string")
        place: dict[str, int] = {}
        where = np.fromiter(
            (place.setdefault(s, len(place)) for s in sentences), np.int64, len(sentences)
        )
        tokens, cut = self.tokenise(list(place))
        self.truncated = int(cut[where].sum())
        if self.truncated:
            log.warning(
                "%d of %d sentences were cut at %d tokens",
                self.truncated,
                len(sentences),
                self.max_tokens,
            )
        out = np.empty((len(place), self.dimension), dtype=np.float32)
        order = np.argsort(-tokens.lengths, kind="stable")
        with self.dropout_off(), progress.task("encode", len(place), "sentences") as advance:
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                out[rows] = self.embed(tokens.select(rows))
                advance(len(rows))
        return out[where]

    @torch.inference_mode()
    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenised sentences in one forward pass, without dropout, as of ``encode``."""
        with self.dropout_off():
            vectors = self(tokens)
        if self.normalise:
            vectors = nn.functional.normalize(vectors, dim=-1)
        return np.asarray(vectors.cpu().numpy(), dtype=np.float32)

    def save(self, folder: str | Path, *, card: str = "") -> None:
        """Write a model folder, atomically; an older model of that name is replaced.

        Golden vectors go with it, for ``contrasent doctor``.

        Args:
            folder: the target.
            card: text of README.md; see :mod:`contrasent.model.card`.

        Raises:
            OutputError: the target cannot be written, or is a folder of other things.
        """
        place = Path(folder)
        if place.is_dir() and any(place.iterdir()) and not (place / "modules.json").is_file():
            raise OutputError(
                f"{folder}: holds other things than a model, which would be lost; choose another "
                "folder"
            )
        with atomic_folder(place) as target:
            self.write(target)
            write_golden(target, self)
            (target / "README.md").write_text(card, "utf-8")

    def write(self, folder: Path) -> None:
        """Write the model's files into a folder that exists."""
        folder_.write(
            folder,
            backbone=self.backbone,
            pooler=self.pooling,
            head=as_dense(self.head) if self.head is not None else [],
            normalise=self.normalise,
            max_tokens=self.max_tokens,
            lower_case=self.lower_case,
        )
        self.tokenizer.save(folder)


def _full(vectors: Tensor) -> Tensor:
    return vectors if vectors.dtype == torch.float64 else vectors.float()
