"""Loading a transformers encoder strictly: no weight may be missing, new, or of another shape."""

import inspect
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent.encoder import attention, products
from contrasent.encoder import dropout as dropout_
from contrasent.encoder.attention import Packing, by_length, cut
from contrasent.encoder.cached_gradients import recomputed
from contrasent.encoder.poolers import Pooling
from contrasent.encoder.tensors import without_weights
from contrasent.errors import ModelError, OptionError, brief
from contrasent.losses.similarity import full
from contrasent.model.description import read_config
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens

RELATIVE = {"t5", "mt5", "umt5", "funnel", "xlnet"}
"""Kinds whose tokens are placed relative to one another: no text is too long for them."""

LONGEST = 1 << 15  # tokens of a text for such a kind, unless its folder says less

MIXED = {"fnet", "convbert", "funnel", "mobilebert"}
"""Kinds that mix padding into the text: only rows of one length are computed together."""


NUMBERED = {"roberta", "xlm-roberta", "camembert", "mpnet", "longformer"}
NUMBERED |= {"data2vec-text", "xlm-roberta-xl", "roberta-prelayernorm", "xmod", "ibert", "luke"}
NUMBERED |= {"lilt", "layoutlmv3", "markuplm"}
"""Kinds that number tokens from the pad token's own number on."""


LOADING = threading.RLock()
TURNING = threading.Lock()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers, whose reports become errors here, in the block; one thread at a time.

    Its first use by several at once fails.
    """
    from transformers.utils import logging

    with LOADING:
        level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bar:
                logging.enable_progress_bar()


@quiet()
def load_backbone(
    folder: Path,
    *,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    bidirectional: bool = False,
) -> nn.Module:
    """Load an encoder without pooling layer, in float32."""
    if not any(folder.glob("*.safetensors")):
        raise without_weights(folder)
    config = _configuration(folder)
    kind = _text_encoder(config)
    if kind is None:
        raise ModelError(f"{folder}: {config.model_type!r} is not a text encoder")
    if kind.__name__ == "FunnelBaseModel":
        problem = "gives fewer vectors than tokens; only the variant with a decoder can be pooled"
        raise ModelError(f"{folder}: Funnel without its decoder {problem}")
    dropout_.configure(config, dropout, attention_dropout)
    if bidirectional:
        config.is_causal = False
    pools = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    try:
        model, info = kind.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            # They are rejected below, with their names.
            ignore_mismatched_sizes=True,
            **({"add_pooling_layer": False} if pools else {}),
        )
    except Exception as error:  # and here, about the weights
        raise ModelError(f"{folder}: the weights cannot be loaded: {brief(error)}") from error
    _check_complete(folder, info, set(model.state_dict()))
    if bidirectional and not is_causal(model.train(False), always=True):
        problem = f"{config.model_type} already attends to both sides of a token"
        raise OptionError("bidirectional", True, problem)
    if not getattr(config, "is_causal", True):
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = False
    return model  # type: ignore[no-any-return]


def _configuration(folder: Path) -> Any:
    """What transformers reads in config.json, if it computes that without code of the folder."""
    from transformers import CONFIG_MAPPING, AutoConfig

    stated = read_config(folder)
    if "auto_map" in stated and stated.get("model_type") not in CONFIG_MAPPING:
        problem = "needs the publisher's code, which is not run"
        raise ModelError(f"{folder}: model_type {stated.get('model_type')!r} {problem}")
    try:
        # By None, the default, transformers asks on standard input whether to run such code.
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many types here, all about the file
        raise ModelError(f"{folder / 'config.json'}: {brief(error)}") from error
    vars(config).pop("auto_map", None)  # the publisher's code, for which its weights are named
    placed = str(getattr(config, "position_embedding_type", ""))
    if placed.startswith(("relative_key", "alibi")):  # distances would count as an unused head's
        problem = f"position_embedding_type {placed!r} is not computed by transformers 5"
        raise ModelError(f"{folder / 'config.json'}: {problem}")
    return config


def unused_pooler(backbone: nn.Module, own: Iterable[str]) -> dict[str, Tensor]:
    """Zeros for the pooling layer, which other libraries would report as missing."""
    kind: Any = type(backbone)
    if "add_pooling_layer" not in inspect.signature(kind.__init__).parameters:
        return {}
    with quiet(), torch.device("meta"):
        whole = kind(backbone.config).state_dict()
    return {key: torch.zeros(whole[key].shape) for key in whole.keys() - set(own)}


def _text_encoder(config: Any) -> Any:
    """The class of a text encoder; None if it is not one."""
    from transformers.models.auto import modeling_auto as auto

    # Encoder-decoder models such as T5 have a class for the encoder alone.
    kinds = auto.MODEL_FOR_TEXT_ENCODING_MAPPING
    kinds = kinds if type(config) in kinds else auto.MODEL_MAPPING
    needed = ["vocab_size", "hidden_size", "num_hidden_layers"]
    needed += [] if config.model_type in RELATIVE else ["max_position_embeddings"]
    if type(config) not in kinds or not all(hasattr(config, key) for key in needed):
        return None
    model_class = kinds[type(config)]
    if isinstance(model_class, tuple):
        named = config.architectures or ()
        model_class = next((kind for kind in model_class if kind.__name__ in named), model_class[0])
    alone = model_class.__name__.endswith("EncoderModel")
    return model_class if alone or not getattr(config, "is_encoder_decoder", False) else None


def is_causal(backbone: nn.Module, *, always: bool = False) -> bool:
    """Whether attention is causal; ``always``: by the architecture, regardless of the config."""
    config: Any = backbone.config
    as_made = always or getattr(config, "is_causal", True)
    return bool(as_made) and any(getattr(m, "is_causal", False) for m in backbone.modules())


def longest_input(config: Any) -> int:
    """How many tokens an encoder's positions allow."""
    if config.model_type in RELATIVE:
        return LONGEST
    return int(config.max_position_embeddings) - first_position(config)


def first_position(config: Any) -> int:
    """The position of a row's first token: RoBERTa and its kin number from pad + 1."""
    return int(config.pad_token_id) + 1 if config.model_type in NUMBERED else 0


def blocks(config: Any, lengths: NDArray[np.int64], *, whole: bool) -> list[NDArray[np.int64]]:
    """Rows of (n,) tokens each, to pad and compute together: all, if ``whole`` and not mixed."""
    mixed = config.model_type in MIXED
    if whole and not mixed:
        return [np.arange(len(lengths))]
    return by_length(lengths, **({"overhead": 0} if mixed else {}))


def _check_complete(folder: Path, info: dict[str, Any], known: set[str]) -> None:
    """Reject missing weights and those of additional layers; unused heads are allowed."""
    missing = sorted(k for k in info.get("missing_keys", ()) if not k.startswith("pooler."))
    if missing:
        raise ModelError(
            f"{folder}: {len(missing)} weights are missing "
            f"({', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''})"
        )
    for name, stored, wanted in sorted(info.get("mismatched_keys", ())):
        raise ModelError(
            f"{folder}: the weights do not match config.json: {name} has shape "
            f"{tuple(stored)}, expected {tuple(wanted)}"
        )

    def pattern(key: str) -> str:
        return re.sub(r"\d+", "N", key)

    patterns = {pattern(key) for key in known}
    extra = sorted(
        key
        for key in info.get("unexpected_keys", ())
        # A head's model keeps its encoder under a prefix such as "bert.".
        if any(part in patterns for part in (pattern(key), pattern(key).partition(".")[2]))
    )
    if extra:
        raise ModelError(
            f"{folder}: {len(extra)} weights are unknown to the model in config.json ({extra[0]})"
        )


class _InTurn(nn.Module):
    """Rotary positions that keep a call's factors, Phi-3's: computed by one thread at a time."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with TURNING:
            return self.rotary(*args, **kwargs)


BUCKET = 8  # padded lengths are multiples of it where shapes are bucketed

MOST = 4  # concurrent calls; more would wait for each other between torch's operations


class PooledBackbone(nn.Module):
    """A backbone and a pooler: one vector for each row of tokens, independent of its batch.

    Attributes:
        backbone: a transformers encoder without its own pooling layer.
        pooler: makes one vector of a row's token vectors.
        states_dropout: on the states that are pooled, for a kind that has no hidden dropout.
        packed: compute without padding (:mod:`contrasent.encoder.attention`) where that is
            possible; false for padded groups of similar length.
        mini_batch_size: rows whose forward pass is kept in memory at once; 0 for all.
        bucketed: pad a block to a multiple of 8 tokens instead of cutting it into groups: a GPU is
            faster on one block of a known shape.
    """

    def __init__(self, backbone: nn.Module, tokenizer: Tokenizer, pooling: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.use_pooler(pooling)
        dropout_.take_over(backbone)
        attention.take_over(backbone)
        turning: Any = getattr(backbone, "rotary_emb", None)
        if getattr(turning, "rope_type", None) == "longrope":
            backbone.rotary_emb = _InTurn(turning)
        products.used()  # chooses, if nothing has yet
        self.states_dropout = dropout_.Dropout(0.0)
        self.packed = True
        self._packs: bool | None = None
        self.mini_batch_size = 0
        self.bucketed = False

    def use_pooler(self, pooling: str) -> None:
        """Pool by another pooler from now on."""
        self.pooler = Pooling(pooling, self._config, self.tokenizer).to(self.device)

    @property
    def pooling(self) -> str:
        """Name of the pooler."""
        return self.pooler.name

    @property
    def _all_layers(self) -> bool:
        return self.pooler.layers != (-1,)

    def compile_backbone(self) -> None:
        """Compile the backbone's own forward pass, for bucketed shapes; on a GPU as CUDA graphs."""
        self.packed, self.bucketed = False, True
        mode = "default" if self.device.type == "cpu" else "reduce-overhead"
        self.backbone.compile(dynamic=False, mode=mode)

    @property
    def layers(self) -> int:
        """Number of transformer layers."""
        return int(self._config.num_hidden_layers)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.parameters()).device

    @property
    def _config(self) -> Any:
        return self.backbone.config

    def pool(self, tokens: Tokens) -> Tensor:
        """Pooled vectors before the head, (n, hidden size), as precise as those of ``forward``."""
        if len(tokens) == 0:
            return torch.empty(0, self.pooler.size, device=self.device)
        if not 0 < self.mini_batch_size < len(tokens):
            return self._pool_block(tokens)
        order = cut(tokens.lengths, self.mini_batch_size)
        # When a chunk is recomputed, dropout may have been switched on in the meantime.
        work = self._pool_chunk if self.backbone.training else self.dropout_off()(self._pool_chunk)
        weights = [*self.backbone.parameters(), *self.pooler.parameters()]
        parts = [recomputed(weights, work, tokens.select(rows)) for rows in order]
        return self._in_order(parts, order)

    def _pool_chunk(self, tokens: Tokens) -> Tensor:
        # A copy: the vectors of first tokens are a view that would hold the states of all.
        return self._pool_block(tokens).clone()

    def _pool_block(self, tokens: Tokens) -> Tensor:
        if len(order := self._turned_alike(tokens.lengths)) > 1:
            return self._in_order([self._pool_block(tokens.select(rows)) for rows in order], order)
        if self.packs(tokens):
            return self._in_order(*self._pool_packed(tokens))
        order = self.blocks(tokens.lengths)
        return self._in_order([self._pool_padded(tokens.select(rows)) for rows in order], order)

    def _turned_alike(self, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Rows (n,) whose rotary positions are the same: Phi-3's long texts turn all of a call."""
        stated = getattr(self._config, "rope_parameters", None) or {}
        longrope = stated.get("rope_type") == "longrope"
        far = lengths > (stated["original_max_position_embeddings"] if longrope else np.inf)
        return [rows for rows in map(np.flatnonzero, (~far, far)) if len(rows)]

    def blocks(self, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Rows of (n,) tokens each, to pad and compute together."""
        return blocks(self._config, lengths, whole=self.bucketed)

    def _in_order(self, parts: list[Tensor], order: list[NDArray[np.int64]]) -> Tensor:
        """Vectors of parts of a block, in the order of its rows."""
        place = np.argsort(np.concatenate(order), kind="stable")
        vectors = parts[0] if len(parts) == 1 else torch.cat(parts)
        if np.array_equal(place, np.arange(len(place))):
            return vectors  # nothing to reorder, so a GPU need not wait
        return vectors[torch.from_numpy(place).to(self.device)]

    def _pool_padded(self, tokens: Tokens, **further: Tensor) -> Tensor:
        """Pooled vectors of one padded block; ``further`` as for ``hidden``."""
        states, ids, mask = self.hidden(tokens, all_layers=self._all_layers, **further)
        return full(self.pooler(tuple(map(self.states_dropout, states)), ids, mask))

    def pool_at(self, tokens: Tokens, places: Tensor) -> Tensor:
        """Pooled vectors, (n, hidden size), of tokens at ``places`` (n, t), which count from 0."""
        room = self.padded(tokens)[0].shape[1] - places.shape[1]
        positions = nn.functional.pad(places, (0, room)) + first_position(self._config)
        return self._pool_padded(tokens, position_ids=positions.to(self.device))

    def packs(self, tokens: Tokens) -> bool:
        """Whether a batch is computed without padding: on CPU, if it has been shown to be right."""
        if not self.packed or self.device.type != "cpu":
            return False
        pad = self.tokenizer.specials.pad
        if first_position(self._config) and bool((tokens.ids == pad).any()):
            return False  # positions skip padding tokens inside a text
        if self._packs is None:
            self._packs = attention.may_pack(self.backbone) and self._packs_rightly()
        return self._packs

    @torch.no_grad()
    def _packs_rightly(self) -> bool:
        """Whether packed rows of a few tokens have the states that they have one by one."""
        vocabulary = np.arange(self.tokenizer.size)
        known = vocabulary[~np.isin(vocabulary, list(self.tokenizer.specials.all))]
        drawn = np.random.default_rng(0).choice(known, 11)
        tokens = Tokens.from_rows([drawn[:3], drawn[3:6], drawn[6:]])
        with self.dropout_off(), torch.autocast("cpu", enabled=False):
            try:
                (packed,) = self.states(Packing(tokens))
            except (RuntimeError, ValueError, TypeError, AttributeError, IndexError):
                return False  # its code takes a batch for what it is not
            rows = [self.hidden(tokens.select(np.array([row])))[0][0][0] for row in range(3)]
        apart = (packed - torch.cat(rows)).abs().max()
        return bool(apart <= attention.NEAR * packed.abs().max())

    def states(self, packing: Packing, *, all_layers: bool = False) -> tuple[Tensor, ...]:
        """Hidden states (T, d) of packed rows: the last, or the embeddings and all."""
        first = first_position(self._config)
        return attention.states(self.backbone, packing, first, all_layers=all_layers)

    def _pool_packed(self, tokens: Tokens) -> tuple[list[Tensor], list[NDArray[np.int64]]]:
        """Pooled vectors of a block without padding, in parts, and the order of their rows."""
        packing = Packing(tokens)
        states = map(self.states_dropout, self.states(packing, all_layers=self._all_layers))
        parts = []
        ids = packing.split(packing.ids)
        for hidden, rows in zip(zip(*map(packing.split, states), strict=True), ids, strict=True):
            mask = torch.ones(hidden[0].shape[:2], dtype=torch.bool)
            parts.append(full(self.pooler(hidden, rows[..., 0], mask)))
        return parts, [packing.order]

    def hidden(
        self, tokens: Tokens, *, all_layers: bool = False, **further: Tensor
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """Hidden states (n, t, d), the last or the embeddings and all; ids and mask (n, t).

        One padded block; ``further`` goes to the backbone.
        """
        ids, mask = self.padded(tokens)
        # Without padding there is nothing to mask, and attention takes a faster path.
        whole = bool((tokens.lengths == ids.shape[1]).all()) and "position_ids" not in further
        # As numbers, since some kinds compute with it. Given places need one: decoders take a jump
        # in them for the beginning of another text.
        attention_mask = None if whole else mask.long()
        output = self.backbone(
            input_ids=ids,
            attention_mask=attention_mask,
            output_hidden_states=all_layers,
            return_dict=True,
            **attention.without_cache(self.backbone),
            **further,
        )
        states = output.hidden_states if all_layers else (output.last_hidden_state,)
        return tuple(states), ids, mask

    def padded(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Padded ids (n, t) int64 and mask (n, t) bool on the encoder's device."""
        pad, device = self.tokenizer.specials.pad, self.device
        ids, mask = (torch.from_numpy(array) for array in tokens.pad(pad))
        room, width = 0, ids.shape[1]
        if self.bucketed and self._config.model_type not in MIXED:
            room = min(-width % BUCKET, longest_input(self._config) - width)
        if blocks := len(getattr(self._config, "block_sizes", ())):
            # Funnel halves a text before each block but the first, which must not be too short.
            room = max(0, 2 ** (blocks - 1) + 1 - width)
        if room:
            ids = nn.functional.pad(ids, (0, room), value=pad)
            mask = nn.functional.pad(mask, (0, room), value=False)
        if device.type == "cuda":  # copies from pinned memory are asynchronous
            ids, mask = ids.pin_memory(), mask.pin_memory()
        return ids.to(device, non_blocking=True), mask.to(device, non_blocking=True)

    @contextmanager
    def dropout_off(self) -> Iterator[None]:
        """Switch off all dropout, attention included, for the block."""
        with dropout_.off(self):
            yield


@contextmanager
def workers(device: torch.device, calls: int) -> Iterator[Executor | None]:
    """Threads that share torch's cores: two small products on a core each beat one on two."""
    threads = torch.get_num_threads()
    count = min(threads, calls, MOST)
    if device.type != "cpu" or count < 2:
        yield None
        return
    begun = threading.Barrier(count + 1)

    def begin() -> None:
        # A thread's first query of the number would reset it to the common one, so query it now.
        torch.get_num_threads()
        # Applies to this thread and to new ones; the caller resets it.
        torch.set_num_threads(threads // count)
        begun.wait()

    with ThreadPoolExecutor(count, "contrasent-encode", begin) as pool:
        for _ in range(count):
            pool.submit(int)  # starts one thread for each, as none is idle yet
        begun.wait()
        torch.set_num_threads(threads)
        yield pool
