"""Language models and encoders inside a method: masked-LM heads, frozen fillers, guides."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder.backbone import blocks, longest_input, quiet
from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.encodings import BatchEncodings, Term, Terms, mask_tokens
from contrasent.errors import ModelError, OptionError, brief
from contrasent.losses import masked_lm
from contrasent.model.description import describe
from contrasent.model.pretrained import SMALL, resolve
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens

ROWS, GPU_ROWS = 32, 256
"""Rows at a time through the vocabulary layer, which is the largest block in memory."""


class _Given(nn.Module):
    """Takes the place of a masked language model's encoder, and returns what it was given."""

    hidden: Tensor | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The hidden states as an encoder's output."""
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=cast(Any, self.hidden))


class LanguageHead(nn.Module):
    """The head of a masked language model: from token vectors to scores of the vocabulary.

    It works for every architecture. As in SimCSE's released code, the output layer has its own
    weights, not tied to the embeddings.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.given = _Given()
        setattr(model, cast(Any, model).base_model_prefix, self.given)

    @classmethod
    def load(cls, source: str | Path | None, encoder: TorchEncoder) -> "LanguageHead":
        """Load the head of a checkpoint, or make a new one."""
        if source is None:
            source = encoder.source
        if source is None:
            raise OptionError(
                "language_head",
                None,
                "give the folder with the masked-LM head, or 'new' to train one from scratch",
            )
        model: Any
        if source == "new":
            from transformers import AutoModelForMaskedLM

            backbone = cast(Any, encoder.backbone)
            model = AutoModelForMaskedLM.from_config(backbone.config)
            with torch.no_grad():
                output = model.get_output_embeddings()
                output.weight.copy_(backbone.get_input_embeddings().weight)
        else:
            model = _read(str(source))
        configs: list[Any] = [model.config, encoder.backbone.config]
        if len({(config.hidden_size, config.vocab_size) for config in configs}) > 1:
            raise ModelError(f"{source}: its masked-LM head does not match the encoder's vectors")
        return cls(model).to(encoder.device)

    def forward(self, vectors: Tensor) -> Tensor:
        """Compute scores (k, vocabulary) from token vectors (k, d)."""
        self.given.hidden = vectors[None]
        ids = torch.zeros(1, len(vectors), dtype=torch.long, device=vectors.device)
        try:
            scores = self.model(input_ids=ids, return_dict=True).logits
        finally:
            self.given.hidden = None
        return cast(Tensor, scores.reshape(-1, scores.shape[-1]))


class MaskedModel(nn.Module):
    """A frozen masked language model that predicts tokens, such as DiffCSE's generator.

    It stays in evaluation mode unless ``noisy``.

    Args:
        model: a masked language model of transformers.
        tokenizer: the encoder's.
        noisy: use its dropout in training.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, *, noisy: bool = False) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.tokenizer = tokenizer
        self.noisy = noisy
        self.longest = longest_input(cast(Any, model).config)
        self.eval()

    @classmethod
    def load(
        cls, name: str | None, encoder: TorchEncoder, *, option: str, noisy: bool = False
    ) -> "MaskedModel":
        """Load a model and check that its vocabulary is the encoder's."""
        folder = check_masked_model(option, name, None)
        tokenizer = Tokenizer.load(folder, max_seq_length=16)
        check_vocabularies(tokenizer, encoder.tokenizer, str(name))
        return cls(_read(str(folder)), encoder.tokenizer, noisy=noisy).to(encoder.device)

    def train(self, mode: bool = True) -> "MaskedModel":
        """Set training mode, if ``noisy``."""
        return super().train(mode and self.noisy)

    @torch.no_grad()
    def predict(
        self,
        tokens: Tokens,
        where: NDArray[np.bool_],
        *,
        randoms: Sequence[np.random.Generator] | None = None,
    ) -> NDArray[np.int32]:
        """Predict the ids at some positions.

        ``where``: (total,) bool, one for each of ``tokens.ids``. Returns (total,) int32:
        predictions at these positions, the given ids elsewhere.
        """
        out = tokens.ids.astype(np.int32)
        levels = None
        if randoms is not None:
            pairs = zip(randoms, tokens.lengths, strict=True)
            levels = np.concatenate([random.random(count) for random, count in pairs])
        places: list[NDArray[np.int64]] = []
        guesses: list[Tensor] = []
        for rows, logits, mask in self._blocks(tokens):
            # (n, t) where each token stands among all, beyond a row's end where there is none
            at = tokens.offsets[rows][:, None] + np.arange(mask.shape[1])
            chosen = mask.copy()
            chosen[mask] = where[at[mask]]
            scores = logits.flatten(0, 1)[_on(logits, np.flatnonzero(chosen))]
            guess = scores.argmax(-1)
            if levels is not None:
                shares = scores.double().softmax(-1).cumsum(-1)
                drawn = _on(shares, levels[at[chosen]])[:, None]
                guess = torch.searchsorted(shares, drawn * shares[:, -1:]).squeeze(1)
            places.append(at[chosen])
            guesses.append(guess)
        # One copy, so that a GPU is waited for once.
        out[np.concatenate(places)] = torch.cat(guesses).cpu().numpy()
        return out

    @torch.no_grad()
    def fill(
        self, rows: Sequence[NDArray[np.int32]], positions: Sequence[NDArray[np.int64]]
    ) -> list[NDArray[np.float32]]:
        """Compute the scores at some positions of rows without special tokens.

        ``positions``: (k,) int64 for each row. Returns (k, vocabulary) float32 for each row; the
        scores of special tokens are -inf.
        """
        before, after = self.tokenizer.frame
        tokens = Tokens.from_rows(np.concatenate([before, row, after]) for row in rows)
        special = torch.as_tensor(sorted(self.tokenizer.specials.all))
        all_scores: list[NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(rows)
        for group, logits, _ in self._blocks(tokens):
            for k, row in enumerate(group.tolist()):
                scores = logits[k][_on(logits, positions[row] + len(before))].float().cpu()
                scores[:, special] = float("-inf")
                all_scores[row] = scores.numpy()
        return all_scores

    def _blocks(self, tokens: Tokens) -> Any:
        """Groups of rows of similar length with their scores (n, t, vocabulary) and numpy mask."""
        most = max(tokens.lengths.tolist(), default=0)
        if most > self.longest:
            problem = f"is longer than the masked language model can read ({self.longest} tokens)"
            raise OptionError("max_seq_length", most, problem)
        device = next(self.model.parameters()).device
        # As elsewhere, a GPU is faster on few large blocks than without padding.
        gpu = device.type != "cpu"
        size = GPU_ROWS if gpu else ROWS
        for group in blocks(cast(Any, self.model).config, tokens.lengths, whole=gpu):
            group = group[np.argsort(tokens.lengths[group], kind="stable")]
            for start in range(0, len(group), size):
                rows = group[start : start + size]
                ids, mask = tokens.select(rows).pad(self.tokenizer.specials.pad)
                real = torch.from_numpy(mask).to(device).long()
                output = self.model(input_ids=torch.from_numpy(ids).to(device), attention_mask=real)
                yield rows, output.logits, mask


def _on(beside: Tensor, values: NDArray[Any]) -> Tensor:
    """An array on a tensor's device."""
    return torch.from_numpy(values).to(beside.device)


class MaskedLanguageModeling(Term):
    """Masked language modeling on copies of all columns (SimCSE, appendix A).

    Masks are drawn independently for every row of every view, and do not affect the contrastive
    loss. This loss is the mean over the masked tokens of all processes.

    Args:
        mask_ratio: share of the tokens to mask.
    """

    def __init__(self, encoder: TorchEncoder, *, mask_ratio: float, head: str | None) -> None:
        super().__init__()
        if encoder.tokenizer.specials.mask is None:
            raise ModelError("masked language modeling needs a tokenizer with a [MASK] token")
        self.mask_ratio = mask_ratio
        self.head = LanguageHead.load(head, encoder)

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        encoder = encodings.networks.encoder
        parts = [
            mask_tokens(column, self.mask_ratio, encoder.tokenizer, encodings.generators(self, c))
            for c, column in enumerate(encodings.batch.columns)
        ]
        tokens = Tokens.concatenate([part.tokens for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        vectors, targets = at_labels(encoder, tokens, labels)
        count = parallel.average(torch.tensor(float(len(targets)), device=encoder.device))
        return {"masked_lm": masked_lm(self.head(vectors), targets, count=count.clamp_min(1e-6))}


def at_labels(
    encoder: TorchEncoder, tokens: Tokens, labels: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    """Token vectors and labels where a label is not -1."""
    vectors, targets = [], []
    for rows in encoder.blocks(tokens.lengths):
        states = encoder.hidden(tokens.select(rows))[0][-1]
        wanted = Tokens(cast(Any, labels), tokens.offsets).select(rows).pad(-1)[0]
        # By numbers, since a GPU would be asked how many places a mask has.
        row, place = np.nonzero(wanted >= 0)
        vectors.append(states.flatten(0, 1)[_on(states, row * states.shape[1] + place)])
        targets.append(_on(states, wanted[row, place]))
    return torch.cat(vectors), torch.cat(targets)


def check_masked_model(option: str, name: str | None, base: Path | None) -> Path:
    """The folder of an existing masked language model that reads the base's ids."""
    if not name:
        raise OptionError(
            option,
            "",
            f"needs a masked language model with the encoder's vocabulary: --set {option}={SMALL} "
            f"with --base {SMALL}, or a folder or name@commit (the paper takes "
            "distilbert-base-uncased for bert-base-uncased)",
        )
    folder = resolve(name)
    if base is not None:
        tokenizer = Tokenizer.load(describe(base).transformer, max_seq_length=16)
        check_vocabularies(Tokenizer.load(folder, max_seq_length=16), tokenizer, name)
    return folder


def check_vocabularies(generator: Any, encoder: Any, name: str) -> None:
    """Reject two tokenizers that give different ids to the same text."""
    a, b = (t.backend.get_vocab(with_added_tokens=True) for t in (generator, encoder))
    if a != b:
        differing = next(t for t in sorted(b.keys() | a.keys()) if b.get(t) != a.get(t))
        raise ModelError(
            f"{name}: its vocabulary ({len(a)} entries) is not the encoder's ({len(b)}; they "
            f"differ in {differing!r}), so its predictions would be different tokens; choose "
            "a masked language model of the encoder's family"
        )


def _read(name: str) -> nn.Module:
    from transformers import AutoModelForMaskedLM

    options = {"local_files_only": True, "use_safetensors": True, "output_loading_info": True}
    options["trust_remote_code"] = False  # None, the default, would ask whether to run its code
    load = AutoModelForMaskedLM.from_pretrained
    folder = resolve(name)
    try:
        with quiet():
            model, info = load(folder, dtype=torch.float32, **options)
    except Exception as error:  # transformers raises many types here, all about the files
        raise ModelError(f"{name}: not a masked language model ({brief(error)})") from error
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise ModelError(
            f"{name}: has no masked-LM head ({missing[0]} is missing); use another folder, or "
            "language_head=new to train one"
        )
    return cast(nn.Module, model)


class Guide:
    """A frozen sentence encoder that guides training; its weights are not in checkpoints.

    Attributes:
        student: the encoder to train, whose token ids the guide is given.
    """

    def __init__(self, encoder: TorchEncoder, student: TorchEncoder) -> None:
        self.encoder = encoder.requires_grad_(False).eval()
        self.student = student
        mine, theirs = encoder.tokenizer, student.tokenizer
        longer = mine.max_seq_length >= theirs.max_seq_length
        self._same_ids = longer and _uncut(mine) == _uncut(theirs)

    @classmethod
    def load(cls, name: str | None, student: TorchEncoder) -> "Guide":
        """Load a guide by name or folder."""
        folder = check_guide("guide", name)
        return cls(TorchEncoder.load(folder, device=str(student.device)), student)

    @torch.no_grad()
    def __call__(self, columns: Sequence[Tokens]) -> list[Tensor]:
        """Encode columns of the student's token ids as vectors, (n, g) each."""
        self.encoder.mini_batch_size = self.student.mini_batch_size
        tokens = Tokens.concatenate(columns)
        if not self._same_ids:
            backend = self.student.tokenizer.backend
            texts = backend.decode_batch([tokens[i].tolist() for i in range(len(tokens))])
            tokens = self.encoder.tokenize(texts)[0]
        return list(self.encoder(tokens).split([len(column) for column in columns]))


def _uncut(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer's description without the length that it cuts at."""
    stated: dict[str, Any] = json.loads(tokenizer.to_str())
    return stated | {"truncation": None, "padding": None}


def check_guide(option: str, name: str | None) -> Path:
    """The folder of an existing guide that states its pooling."""
    if not name:
        raise OptionError(
            option, "", "needs a sentence encoder as a guide, by folder or name@commit"
        )
    folder = resolve(name)
    if describe(folder).pooling is None:
        raise ModelError(f"{name}: a guide must define its pooling, and this encoder does not")
    return folder
