"""DiffCSE's difference prediction: finding edits with the help of the sentence vector."""

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder.backbone import longest_input
from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.encodings import (
    BatchEncodings,
    Term,
    delete_tokens,
    insert_masks,
    mask_tokens,
)
from contrasent.engine.masked_models import LanguageHead, MaskedModel
from contrasent.engine.momentum_queue import copy_encoder
from contrasent.errors import ModelError, OptionError
from contrasent.losses import Normalization, corrective_lm, masked_lm, token_detection
from contrasent.text.batches import random_for
from contrasent.types import Batch, Tokens

Edits = Literal["replace", "insert", "delete", "all"]
Task = Literal["detection", "masked_lm", "corrective"]
Target = Literal["same", "next", "both"]
Positions = Literal["all", "masked"]
Draw = Literal["argmax", "sample"]
Condition = Literal["projected", "pooled"]
ConditionVector = Literal["own", "permuted", "zero"]

PERMUTATION = 99  # purpose of its random numbers


class DifferencePrediction(Term):
    """The term "difference": detection, or the language-modeling tasks of DiffCSE's Table 3."""

    def __init__(
        self,
        encoder: TorchEncoder,
        *,
        task: Task,
        edits: Edits,
        target: Target,
        mask_ratio: float,
        edit_ratio: float,
        normalization: Normalization,
        draw: Draw,
        positions: Positions,
        condition: Condition,
        condition_vector: ConditionVector,
        generator: MaskedModel | None,
        language_head: str | None,
        learning_rate: float | None,
        warmup_steps: int,
    ) -> None:
        """Take the parameters of ``DiffCSE``, which says what each means."""
        super().__init__()
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        if encoder.tokenizer.specials.mask is None:
            raise ModelError("DiffCSE needs a tokenizer with a [MASK] token")
        self.task, self.target, self.normalization = task, target, normalization
        self.mask_ratio, self.edit_ratio = mask_ratio, edit_ratio
        self.draw, self.positions = draw, positions
        self.condition, self.condition_vector = condition, condition_vector
        every = ("replace", "insert", "delete")
        self.kinds: tuple[str, ...] = every if edits == "all" else (edits,)
        self.generator = generator
        readers: list[Any] = [encoder.backbone, *([generator.model] if generator else [])]
        self.longest = min(longest_input(reader.config) for reader in readers)
        self.discriminator = Discriminator(encoder)
        kinds = self.kinds if task == "detection" else ()
        self.detect = nn.ModuleDict({kind: nn.Linear(encoder.dimension, 2) for kind in kinds})
        self.language = self.copy = None
        if task != "detection":
            self.language = LanguageHead.load(language_head, encoder)
        if task == "corrective":
            self.copy = nn.Linear(encoder.dimension, 1)
        self.to(encoder.device)

    def forward(self, encodings: BatchEncodings) -> dict[str, Tensor]:
        """The term of a step, and the discriminator's accuracy."""
        conditions = encodings.noisy if self.condition == "projected" else encodings.pooled
        # The sentences to edit, and the view that helps: (view, tokens, column of masks).
        sentences = encodings.columns("anchor", "positive")[:2]
        sources: list[tuple[int, Tokens, int]] = []
        if self.target != "next":
            sources += [(i, tokens, i) for i, tokens in enumerate(sentences)]
        if self.target != "same":
            following = encodings.columns("edited")[0]
            sources += [(i, following, 2 + i) for i in range(len(sentences))]
        condition = torch.cat([self._given(conditions[i], encodings.batch) for i, _, _ in sources])
        terms: list[dict[str, Tensor]] = []
        for k, kind in enumerate(self.kinds):
            edited = [self._edit(kind, encodings, tokens, 8 * k + c) for _, tokens, c in sources]
            whole = Edit.join(edited)
            terms.append(self._predict(kind, whole, condition))
        # Losses of several kinds of edits are summed; shares are means.
        found = {name: torch.stack([term[name] for term in terms]) for name in terms[0]}
        return {k: v.sum() if k == "difference" else v.mean() for k, v in found.items()}

    def _given(self, vectors: Tensor, batch: Batch) -> Tensor:
        """What the discriminator is given in the place of sentence vectors (n, d) of a view."""
        if self.condition_vector == "zero":
            return torch.zeros_like(vectors)
        if self.condition_vector == "own":
            return vectors
        every, first = parallel.gather(vectors), parallel.first_row(len(vectors))
        others = other_rows(len(every), batch.seed, batch.step)[first : first + len(vectors)]
        return every[torch.from_numpy(others).to(vectors.device)]

    def _edit(self, kind: str, encodings: BatchEncodings, tokens: Tokens, column: int) -> "Edit":
        randoms = encodings.generators(self, column)
        tokenizer = encodings.networks.encoder.tokenizer
        if kind == "delete":
            gone = delete_tokens(tokens, self.edit_ratio, tokenizer, randoms)
            return Edit(gone.tokens, gone.labels, gone.labels)
        if kind == "insert":
            longer = insert_masks(tokens, self.edit_ratio, tokenizer, randoms, self.longest)
            new = self._generate(longer.tokens, longer.labels > 0, randoms)
            return Edit(new, longer.labels, longer.labels)
        masked = mask_tokens(tokens, self.mask_ratio, tokenizer, randoms)
        if self.task == "masked_lm":
            return Edit(masked.tokens, masked.labels, tokens.ids.astype(np.int64))
        where = masked.labels >= 0
        if self.task == "detection" and self.positions == "all":
            # As in the released code: the generator rewrites every token but the first.
            where = np.ones(len(where), dtype=np.bool_)
            where[masked.tokens.offsets[:-1]] = False
        new = self._generate(masked.tokens, where, randoms)
        return Edit(new, masked.labels, tokens.ids.astype(np.int64))

    def _generate(
        self, rows: Tokens, where: NDArray[np.bool_], randoms: list[np.random.Generator]
    ) -> Tokens:
        """Rows with the generator's tokens at chosen places."""
        if self.generator is None:
            raise TypeError("this edit needs a generator")
        sampled = randoms if self.draw == "sample" else None
        return Tokens(self.generator.predict(rows, where, randoms=sampled), rows.offsets)

    def _predict(self, kind: str, edit: "Edit", condition: Tensor) -> dict[str, Tensor]:
        if self.task == "detection":
            return self._detection(kind, edit, condition)
        vectors, labels, truth, seen = self._read(edit, condition)
        chosen = labels >= 0
        language = cast(LanguageHead, self.language)
        if self.copy is None:
            count = _everywhere(chosen.sum())
            return {"difference": masked_lm(language(vectors[chosen]), labels[chosen], count=count)}
        loss = corrective_lm(
            language(vectors[chosen]),
            labels[chosen],
            (seen == truth)[chosen],
            cast(Tensor, self.copy(vectors)).squeeze(1),
            seen == truth,
            chosen,
            count=_everywhere(torch.tensor(len(seen), device=seen.device)),
        )
        return {"difference": loss}

    def _detection(self, kind: str, edit: "Edit", condition: Tensor) -> dict[str, Tensor]:
        changed = edit.changed(kind)
        padded = self.normalization == "mean_with_padding"
        flags = Tokens(changed.astype(np.int32), edit.tokens.offsets)
        total = torch.zeros((), device=condition.device)
        tally = torch.zeros(4, device=condition.device)
        positions = 0
        width = _longest(edit.tokens, condition.device) if padded else None
        # All rows together where padding counts.
        lengths = edit.tokens.lengths
        groups = [np.arange(len(lengths))] if padded else self.discriminator.reader.blocks(lengths)
        for rows in groups:
            block = edit.tokens.select(rows)
            place = torch.from_numpy(rows).to(condition.device)
            vectors, mask = self.discriminator(block, condition[place], width=width)
            labels = torch.from_numpy(flags.select(rows).pad(0)[0]).to(condition.device)
            labels = nn.functional.pad(labels, (0, mask.shape[1] - labels.shape[1]))
            scores = self.detect[kind](vectors)
            part: Normalization = "mean_with_padding" if padded else "sum"
            total = total + token_detection(scores, labels, mask, normalization=part, count=1.0)
            positions += mask.numel()
            # Changed tokens detected and in total; original ones likewise.
            guess = scores.detach().argmax(-1)
            changed_here, original = labels.bool() & mask, ~labels.bool() & mask
            hits = (guess == 1) & changed_here, changed_here, (guess == 0) & original, original
            tally += torch.stack([where.sum().float() for where in hits])
        count: Tensor | float
        if self.normalization == "sum":
            count = 1 / parallel.world()
        else:
            seen = positions if padded else len(edit.tokens.ids)
            count = _everywhere(torch.tensor(seen, device=condition.device))
        hit, replaced, unchanged, originals = tally
        return {
            "difference": total / count,
            "changed_share": replaced / (replaced + originals).clamp_min(1),
            "changed_found": hit / replaced.clamp_min(1),
            "kept_found": unchanged / originals.clamp_min(1),
        }

    def _read(self, edit: "Edit", condition: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Vectors (t, d), labels, true ids and seen ids of all real tokens."""
        parts: list[tuple[Tensor, ...]] = []
        for rows in self.discriminator.reader.blocks(edit.tokens.lengths):
            block, device = edit.tokens.select(rows), condition.device
            place = torch.from_numpy(rows).to(device)
            vectors, _ = self.discriminator(block, condition[place])
            sides = []
            for values in (edit.labels, edit.truth, edit.tokens.ids):
                side = Tokens(cast(Any, values), edit.tokens.offsets).select(rows).ids
                sides.append(torch.from_numpy(side.astype(np.int64)).to(device))
            # By numbers, since a GPU would be asked how many places a mask has.
            real = torch.from_numpy(np.flatnonzero(block.pad(0)[1])).to(device)
            parts.append((vectors.flatten(0, 1)[real], *sides))
        joined = [torch.cat(same) for same in zip(*parts, strict=True)]
        return joined[0], joined[1], joined[2], joined[3]


@dataclass(frozen=True, eq=False)
class Edit:
    """Edited rows with labels and, where lengths are kept, the true ids."""

    tokens: Tokens
    labels: NDArray[np.int64]
    truth: NDArray[np.int64]

    @classmethod
    def join(cls, parts: list["Edit"]) -> "Edit":
        """Several blocks of rows as one."""
        return cls(
            Tokens.concatenate([part.tokens for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.truth for part in parts]),
        )

    def changed(self, kind: str) -> NDArray[np.bool_]:
        """(total,) what the discriminator should find."""
        return self.tokens.ids != self.truth if kind == "replace" else self.labels > 0


class Discriminator(nn.Module):
    """A copy of the encoder that reads an edited sentence with the sentence vector in front.

    The vector takes the place of the first token's embedding, as in DiffCSE's released code.
    """

    def __init__(self, encoder: TorchEncoder) -> None:
        super().__init__()
        self.reader = copy_encoder(encoder)
        self.reader.head = None
        backbone = cast(Any, self.reader.backbone)
        # ELECTRA and ALBERT project embeddings to the hidden size in a separate layer.
        places = ("embeddings_project", "encoder.embedding_hidden_mapping_in", "embeddings")
        known = {name for name, _ in backbone.named_modules()}
        place = next((name for name in places if name in known), None)
        if place is None:
            raise ModelError(
                f"a discriminator cannot be made of a {backbone.config.model_type!r} encoder: it "
                "has no embedding layer for the sentence vector"
            )
        if encoder.dimension != backbone.config.hidden_size:
            raise ModelError(
                f"a discriminator takes sentence vectors of the encoder's hidden size "
                f"{backbone.config.hidden_size}, not {encoder.dimension}; remove the encoder's head"
            )
        if not len(encoder.tokenizer.frame[0]):
            raise ModelError(
                "a discriminator needs a tokenizer whose first token is special, such as [CLS]; "
                "the sentence vector replaces it"
            )
        _take_condition(backbone, place)

    def forward(
        self, tokens: Tokens, condition: Tensor, *, width: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Token vectors (n, t, d) of one block, padded to its longest row, and its mask (n, t)."""
        rows, longest = len(tokens), int(tokens.lengths.max())
        width = longest if width is None else width
        if width > longest:
            # A row of that length makes the padding; its result is discarded.
            longer = Tokens.from_rows([np.full(width, tokens.ids[0], dtype=np.int32)])
            tokens = Tokens.concatenate([tokens, longer])
            condition = torch.cat([condition, condition[:1].detach()])
        hidden, _, mask = self.reader.hidden(tokens, condition=condition)
        # With bucketed shapes there is more padding, which is ignored.
        return hidden[-1][:rows, :width], mask[:rows, :width]


def _take_condition(backbone: nn.Module, name: str) -> None:
    """Make ``condition`` (n, d) one more input of a backbone, put first in a part's output."""
    # Both modules get classes of their own: compiled code is shared with the encoder, and hooks are
    # not looked at when it is chosen.
    place = backbone.get_submodule(name)
    embeds, reads = type(place), type(backbone)

    def embed(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        output: Tensor = embeds.forward(self, *args, **kwargs)
        return torch.cat([self.condition.to(output.dtype)[:, None], output[:, 1:]], dim=1)

    def read(self: Any, *args: Any, condition: Tensor, **kwargs: Any) -> Any:
        place = self.get_submodule(name)
        place.condition = condition
        try:
            return reads.forward(self, *args, **kwargs)
        finally:
            place.condition = None

    place.__class__ = type(f"Conditional{embeds.__name__}", (embeds,), {"forward": embed})
    backbone.__class__ = type(f"Conditional{reads.__name__}", (reads,), {"forward": read})


def other_rows(count: int, seed: int, step: int) -> NDArray[np.int64]:
    """(count,) for each row another one, each once: the next in one random cycle through all."""
    if count < 2:
        problem = "takes the vector of another sentence in the batch; use batch_size=2"
        raise OptionError("condition_vector", "permuted", f"{problem} or more")
    order = random_for(seed, PERMUTATION, step).permutation(count)
    others = np.empty_like(order)
    others[order] = np.roll(order, -1)
    return others


def _longest(tokens: Tokens, device: torch.device) -> int:
    """Tokens of the longest row of all processes; one by itself does not wait for a GPU."""
    longest = int(tokens.lengths.max())
    if parallel.world() == 1:
        return longest
    return int(parallel.gather(torch.tensor([longest], device=device)).max())


def _everywhere(count: Tensor) -> Tensor:
    """A count averaged over processes, so that DDP's average divides by the total count."""
    return parallel.average(count.float()).clamp_min(1e-6)
