"""The encoder: backbone, pooler and head, from sentences to vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder import heads
from contrasent.encoder.backbone import (
    PooledBackbone,
    is_causal,
    load_backbone,
    longest_input,
    unused_pooler,
    workers,
)
from contrasent.encoder.dropout import without_place
from contrasent.encoder.poolers import width
from contrasent.encoder.tensors import save_tensors
from contrasent.errors import ModelError, OptionError, brief, check_choice
from contrasent.files import atomic_folder, read_object, write_object
from contrasent.losses.similarity import full
from contrasent.model import base
from contrasent.model.base import BUDGET, Prompts, by_budget, in_calls
from contrasent.model.description import (
    ORIGIN,
    check_replaceable,
    describe,
    write_description,
)
from contrasent.model.golden import (
    EncoderConfig,
    check_weights,
    model_identity,
    write_golden,
)
from contrasent.model.pooling import MODULES, POOLERS
from contrasent.model.pretrained import resolve
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens, Vectors

WRITTEN_FOR = "5.3.0"  # the version of sentence-transformers written to a folder


class TorchEncoder(PooledBackbone, base.Encoder):
    """An encoder in torch, which can be trained.

    Its head is saved with the model. A projector for training alone belongs to the objective.

    Args:
        backbone: a transformers model without a pooling layer.
        head: network on the pooled vector, or None.
        normalize: whether ``encode`` scales vectors to length one.
        lower_case: whether texts are lower-cased before the tokenizer.
        source: the transformers folder of the weights, or None.
        prompts: texts that ``encode`` can prepend to sentences, by name.
    """

    runtime = "torch"

    def __init__(
        self,
        backbone: nn.Module,
        tokenizer: Tokenizer,
        *,
        pooling: str,
        head: nn.Module | None = None,
        normalize: bool = False,
        lower_case: bool = False,
        source: Path | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        super().__init__(backbone, tokenizer, pooling)
        self.head = head
        self.normalize = normalize
        self.lower_case = lower_case
        self.source = source
        self.prompts = prompts or Prompts()

    @classmethod
    def load(  # type: ignore[override]
        cls,
        name: str | Path,
        *,
        pooling: str | None = None,
        head: str | None = None,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        bidirectional: bool = False,
        revision: str | None = None,
        device: str | None = None,
        check: bool = True,
    ) -> "TorchEncoder":
        """Load a model; settings that are None are those of its folder.

        Args:
            name: a folder, an installed model such as "contrasent-small", or a name on the hub,
                with a commit to download it (NAME@COMMIT).
            pooling: needed for a plain transformers encoder, whose folder does not name one.
            head: "none" removes the folder's head; "tanh" or "batchnorm" replaces it by a new one.
            normalize: scale vectors to length one.
            max_seq_length: cut sentences at this many tokens, special tokens included.
            dropout: dropout probability of hidden states in training, or of pooled states for an
                architecture without hidden dropout.
            attention_dropout: dropout probability of attention weights.
            bidirectional: let every token of a decoder attend to all others (LLM2Vec: BehnamGhader
                et al. 2024, section 2.1); saved with the model.
            revision: commit of a model on the hub.
            device: "cpu", "cuda", ...; by default this process's GPU, if any.
            check: verify the weights by the digests that :meth:`save` stored.

        Raises:
            ModelError: the folder is not a model, its weights are missing, damaged or of another
                shape, or its pooling is unknown.
            OptionError: a value is invalid.
        """
        folder = resolve(name, revision=revision)
        stored = describe(folder)
        if check:
            check_weights(folder)
        pooling = stored.pooling_or(pooling, name, POOLERS)
        if head is not None:
            check_choice("head", head, heads.HEADS)
        backbone = load_backbone(
            stored.transformer,
            dropout=dropout,
            attention_dropout=attention_dropout,
            bidirectional=bidirectional,
        )
        if pooling == "cls" and is_causal(backbone):
            problem = (
                "the first token of a decoder does not see the text; use pooling last_token or mean"
            )
            raise OptionError("pooling", "cls", f"{problem}, or set bidirectional=true")
        config: Any = backbone.config
        cut, size = stored.length(max_seq_length, longest_input(config)), width(config)
        encoder = cls(
            backbone,
            Tokenizer.load(stored.transformer, max_seq_length=cut).within(int(config.vocab_size)),
            pooling=pooling,
            head=heads.read_head(stored.head) if head is None else heads.make_head(head, size),
            normalize=stored.normalize if normalize is None else normalize,
            lower_case=stored.lower_case,
            source=stored.transformer,
            prompts=stored.prompts,
        )
        encoder.longest = longest_input(config)
        if pooling == stored.pooling and stored.pooling_folder is not None:
            encoder.pooler.load(stored.pooling_folder)
        entries = encoder.tokenizer.size
        if entries > int(config.vocab_size):
            sizes = f"the tokenizer has {entries} entries and the encoder {config.vocab_size}"
            raise ModelError(f"{stored.transformer}: {sizes}; they belong to different models")
        encoder.states_dropout.p = without_place(config, dropout)
        try:
            encoder = encoder.to(device or parallel.device()).eval()
        except (RuntimeError, AssertionError) as error:  # the latter from torch without CUDA
            raise OptionError("device", device, f"cannot be used ({brief(error)})") from error
        encoder.bucketed = encoder.device.type != "cpu"
        return encoder

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        if self.head is None:
            return self.pooler.size
        return [m for m in self.head.modules() if isinstance(m, nn.Linear)][-1].out_features

    @property
    def matryoshka_dims(self) -> tuple[int, ...]:
        """Sizes that vectors were trained to be cut to, largest first; empty for most models.

        Kept in config.json as ``matryoshka_dimensions``, where vLLM looks for them.
        """
        sizes = getattr(self._config, "matryoshka_dimensions", None)
        return tuple(int(size) for size in sizes or ())

    @matryoshka_dims.setter
    def matryoshka_dims(self, sizes: Sequence[int]) -> None:
        if sizes:
            self._config.matryoshka_dimensions = list(sizes)
        elif hasattr(self._config, "matryoshka_dimensions"):
            del self._config.matryoshka_dimensions

    @property
    def identity(self) -> str:
        """A hash of what determines the vectors: weights, tokenizer, settings, prompts."""
        with heads.merged_lora(self.backbone):
            state = heads.without_lora(self.state_dict())
            arrays = {key: value.detach().cpu().numpy() for key, value in state.items()}
            layers = self.head.modules() if self.head is not None else ()
            head = [type(m.activation).__name__ for m in layers if isinstance(m, heads.Dense)]
            usual = type(self._config)().to_dict()
            return model_identity(self, arrays, head, self._config.to_dict(), usual)

    @property
    def config(self) -> EncoderConfig:
        """The settings that determine the vectors, with :attr:`identity`."""
        settings = (self.pooling, self.head is not None, self.normalize, self.lower_case)
        return EncoderConfig(self.identity, *settings, self.max_seq_length, self.dimension)

    def forward(self, tokens: Tokens, places: Tensor | None = None) -> Tensor:
        """Encode tokenized sentences as vectors (n, d), not normalized.

        Rows are packed or grouped by length, which does not change the result. Vectors are float32
        regardless of the precision inside, or float64 for a model in float64.

        Args:
            tokens: the sentences.
            places: (n, t) int64, position of every token; 0, 1, 2, ... by default.
        """
        pooled = self.pool(tokens) if places is None else self.pool_at(tokens, places)
        return pooled if self.head is None else full(self.head(pooled))

    @torch.inference_mode()
    def encode_tokens(self, tokens: Tokens, batch_size: int) -> Vectors:
        """Vectors of distinct rows in calls of at most ``batch_size`` of them."""
        budget = BUDGET if self.device.type == "cpu" else None
        calls = by_budget(tokens.lengths, batch_size, budget=budget)
        with self.dropout_off(), workers(self.device, len(calls)) as pool:
            return in_calls(self.embed, tokens, self.dimension, calls, pool)

    @torch.inference_mode()
    def embed(self, tokens: Tokens) -> Vectors:
        """Encode tokenized sentences in one forward pass without dropout, as ``encode`` does."""
        with self.dropout_off():
            vectors = self(tokens)
        if self.normalize:
            vectors = nn.functional.normalize(vectors, dim=-1)
        return np.asarray(vectors.cpu().numpy(), dtype=np.float32)

    def add_layer(self, matrix: NDArray[np.float64], bias: NDArray[np.float64]) -> None:
        """Add a linear layer x @ matrix + bias on top of the head, and scale vectors to length one.

        Args:
            matrix: (d, k), fitted on unscaled vectors.
            bias: (k,).
        """
        weights = torch.from_numpy(matrix.T.copy()), torch.from_numpy(bias.copy())
        below = heads.as_dense(self.head) if self.head is not None else []
        self.head = heads.stacked([*below, heads.dense_of(*weights, nn.Identity())])
        self.to(self.device).eval()
        self.normalize, self.matryoshka_dims = True, ()

    def save(self, folder: str | Path, *, card: str = "") -> None:
        """Write a model folder, atomically; an older model in it is replaced.

        The folder gets test vectors for ``contrasent doctor``.

        Args:
            folder: folder to write.
            card: text of README.md; see :mod:`contrasent.encoder.card`.

        Raises:
            OutputError: the folder cannot be written, or holds files that are not part of a model.
        """
        check_replaceable(place := Path(folder))
        with atomic_folder(place) as target, heads.merged_lora(self.backbone):
            self.write(target)
            write_golden(target, self.golden())
            (target / "README.md").write_text(card, "utf-8")

    def write(self, folder: Path) -> None:
        """Write the model's files, except the card, into an existing folder."""
        private = ("_attn_implementation", "_name_or_path")
        config = {k: v for k, v in self._config.to_dict().items() if k not in private}
        config["architectures"] = [type(self.backbone).__name__]
        if len(self.pooler.layers) > 1:
            config["output_hidden_states"] = True
        write_object(folder / "config.json", config)
        tied = getattr(self.backbone, "all_tied_weights_keys", {})  # T5's embeddings have two names
        weights = {k: v for k, v in self.backbone.state_dict().items() if k not in tied}
        weights = heads.without_lora(weights)
        save_tensors(folder / "model.safetensors", weights | unused_pooler(self.backbone, weights))
        parts = self.pooler.parts()
        for layer in heads.as_dense(self.head) if self.head is not None else []:
            parts.append((f"{MODULES}.Dense", layer.describe(), layer.state_dict()))
        if self.normalize:
            parts.append((f"{MODULES}.Normalize", {}, {}))
        versions = {"sentence_transformers": WRITTEN_FOR, "pytorch": torch.__version__}
        versions["transformers"] = str(self._config.transformers_version or "")
        write_description(
            folder,
            parts,
            max_seq_length=self.max_seq_length,
            lower_case=self.lower_case,
            prompts=self.prompts,
            save=save_tensors,
            __version__=versions,
        )
        self.tokenizer.save(folder)
        if self.source is not None and (origin := read_object(self.source / ORIGIN)):
            write_object(folder / ORIGIN, origin)
