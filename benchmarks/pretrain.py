"""Train a small BERT from random weights by masked language modeling, as a base.

    python -m benchmarks.pretrain wiki.txt -o my-bert --layers 4 --hidden 256 --set max_steps=20000

One flat loop for a CPU or a GPU. The run is kept in ``OUTPUT.work`` until the model is whole; the
same command resumes it, and ends on CPU in the same bits as a run that was not stopped.
research/pretrain.md has the measured run.
"""

import argparse
import json
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn

from contrasent import progress
from contrasent.encoder.attention_weights import measured
from contrasent.encoder.backbone import quiet
from contrasent.encoder.tensors import read_checkpoint, restore_checkpoint, write_checkpoint
from contrasent.engine.parameters import Count, Positive, Share, Weight, parameters_of
from contrasent.errors import ModelError, OptionError, OutputError, TrainingError, UserError
from contrasent.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    read_object,
    write_json,
    write_object,
)
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.tokens import Tokenizer
from contrasent.train.settings import Probability, assignments
from contrasent.types import batched

MATRIX_RATE = 40 / 3
"""Rate of the layers' matrices, whose steps are orthogonal, as a multiple of the others'."""
BETAS = (0.9, 0.98)
MOMENTUM, NEWTON = 0.95, ((3.4445, -4.775, 2.0315),) * 5
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NAMES = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
MAX_LETTERS = 1000  # as in BERT's vocabulary
MIN_COUNT = 2
PREFIX = "##"
IGNORED = -100
WATCHED = 256  # sentences whose attention the log shows
SHOWN = ("loss", "entropy", "tokens_per_second")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train; ``--set name=value`` changes a field.

    Attributes:
        batch_size: rows of ``width`` tokens a step; sentences in a row see themselves alone.
        max_seq_length: of a sentence; it is cut there.
        max_steps: at most; the rate falls to zero at the last.
        seconds: of training; the run ends then if it is not at its last step, and the rate falls
            with whichever ends first. 0 for no limit. Such a run is not repeatable.
        learning_rate: of AdamW; matrices of the layers step at 13.3 times that.
        mask_ratio: of all tokens; 15 %, as BERT has it, learns less from the same time.
        queries_keys: their matrices are updated by "muon" or by "adamw".
        precision: of the forward pass.
        checkpoint: seconds between two.
        log: steps between two lines of the log.
    """

    batch_size: Count = 128
    width: Count = 128
    max_seq_length: Count = 64
    max_steps: Count = 10_000
    seconds: Weight = 0.0
    learning_rate: Positive = 1.5e-3
    warmup_ratio: Probability = 0.05
    weight_decay: Weight = 0.01
    # SimCSE's noise ruins a base that was trained without it (research/pretrain.md).
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.1
    mask_ratio: Share = 0.3
    queries_keys: Literal["muon", "adamw"] = "muon"
    precision: Literal["bf16", "fp32"] = "bf16"
    checkpoint: Weight = 120.0
    log: Count = 100
    seed: int = 0


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices of the layers, AdamW for all other weights.

    Muon steps along the orthogonalised momentum of a matrix (Jordan et al., 2024,
    https://kellerjordan.github.io/posts/muon); matrices of one shape are orthogonalised together.
    One rate serves both: that of AdamW.
    """

    def __init__(
        self,
        matrices: list[nn.Parameter],
        others: list[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        super().__init__([*matrices, *others], {"lr": learning_rate, "weight_decay": weight_decay})
        self.others = torch.optim.AdamW(
            others, lr=learning_rate, betas=BETAS, weight_decay=weight_decay, fused=True
        )
        self.others.state = self.state  # one state: a checkpoint keeps it
        shapes: dict[torch.Size, list[Tensor]] = {}
        for matrix in matrices:
            shapes.setdefault(matrix.shape, []).append(matrix)
        self.shapes = list(shapes.values())

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step of both at the rate of this optimizer's group."""
        group = self.param_groups[0]
        rate, decay = MATRIX_RATE * group["lr"], group["weight_decay"]
        for matrices in self.shapes:
            grads = [cast(Tensor, matrix.grad) for matrix in matrices]
            moments = [self.state[m].setdefault("momentum", torch.zeros_like(m)) for m in matrices]
            torch._foreach_lerp_(moments, grads, 1 - MOMENTUM)
            ahead = torch.stack(torch._foreach_lerp(grads, moments, MOMENTUM))
            rows, columns = ahead.shape[1:]
            steps = orthogonal(ahead) * max(1.0, rows / columns) ** 0.5
            torch._foreach_mul_(matrices, 1 - rate * decay)
            torch._foreach_add_(matrices, list(steps.to(matrices[0].dtype).unbind()), alpha=-rate)
        self.others.param_groups[0]["lr"] = group["lr"]
        self.others.step()


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (n, r, c) with all singular values near 1, in bf16, by Newton's iteration."""
    wide = matrices.bfloat16()
    tall = wide.shape[1] > wide.shape[2]
    wide = wide.mT if tall else wide
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for a, b, c in NEWTON:
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.mT if tall else wide


def attentions(model: Any) -> list[Any]:
    """The self-attention of each layer."""
    return [layer.attention.self for layer in model.base_model.encoder.layer]


@dataclass(frozen=True)
class Masking:
    """What is masked, and by what.

    Attributes:
        special: (vocabulary,) bool, tokens that are neither masked nor drawn.
        words: ids of all others.
    """

    special: Tensor
    words: Tensor
    cls: int
    pad: int
    mask: int
    ratio: float

    @classmethod
    def of(cls, tokenizer: Tokenizer, ratio: float, device: torch.device) -> "Masking":
        """For a tokenizer."""
        known, frame = tokenizer.specials, tokenizer.frame[0]
        if known.mask is None or not len(frame):
            raise ModelError("the tokenizer has no [MASK] token, or puts no [CLS] before a text")
        special = torch.zeros(tokenizer.size, dtype=torch.bool)
        special[sorted(known.all)] = True
        words = (~special).nonzero()[:, 0]
        return cls(
            special.to(device), words.to(device), int(frame[0]), known.pad, known.mask, ratio
        )

    def apply(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of rows (n, t): edited ids, places (n, k) that were chosen, and their ids.

        Every row has the same number of places, so that nothing waits for a GPU; where a row has
        too few words the rest is ignored. 80 % become [MASK], 10 % another word, 10 % stay (BERT:
        Devlin et al., 2019, section 3.1).
        """
        n, t = ids.shape
        k = max(1, int(self.ratio * t))
        draws = torch.rand(n, t, device=ids.device).masked_fill_(self.special[ids], -1.0)
        drawn, places = draws.topk(k, dim=1)
        old = ids.gather(1, places)
        lot = torch.rand(n, k, device=ids.device)
        other = self.words[torch.randint(len(self.words), (n, k), device=ids.device)]
        new = torch.where(lot < 0.8, self.mask, torch.where(lot < 0.9, other, old))
        chosen = drawn >= 0
        edited = ids.scatter(1, places, torch.where(chosen, new, old))
        return edited, places, old.masked_fill(~chosen, IGNORED)


def sentences_of(ids: Tensor, masking: Masking, longest: int) -> tuple[Tensor, Tensor]:
    """Positions (n, t) within the sentences of packed rows; who sees whom, (n, 1, t, t) bool."""
    starts = ids == masking.cls
    number = starts.cumsum(1).masked_fill(ids == masking.pad, 0)
    place = torch.arange(ids.shape[1], device=ids.device)
    begin = torch.where(starts, place, 0).cummax(1).values
    same = number[:, None, :, None] == number[:, None, None, :]
    return (place - begin).clamp_max(longest - 1), same


def masked_loss(model: Any, ids: Tensor, masking: Masking) -> Tensor:
    """Mean cross entropy of the masked tokens of packed rows (n, t)."""
    positions, same = sentences_of(ids, masking, model.config.max_position_embeddings)
    edited, places, targets = masking.apply(ids)
    states = model.base_model(
        input_ids=edited,
        attention_mask=same,
        position_ids=positions,
        token_type_ids=torch.zeros_like(edited),
        return_dict=True,
    ).last_hidden_state
    chosen = states.gather(1, places[..., None].expand(-1, -1, states.shape[-1])).flatten(0, 1)
    scores = model.cls(chosen)
    return nn.functional.cross_entropy(scores.float(), targets.flatten(), ignore_index=IGNORED)


def packed_rows(corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> NDArray[Any]:
    """Sentences, whole, in rows of ``recipe.width`` tokens, each where it fits best; (n, t) ids.

    Drawn in a random order (Krell et al., 2021: packing without cross-contamination).
    """
    if corpus.width > 1:
        names = ", ".join(corpus.names)
        raise OptionError("--columns", names, "pre-training takes one column of text; name it")
    parts, lengths, width = [], [], recipe.width
    with progress.task("tokens", unit="rows") as advance:
        for texts in batched((text for row in corpus for text in row), 10_000):
            tokens = tokenizer(texts)[0]
            parts.append(tokens.ids)
            lengths.append(tokens.lengths)
            advance(len(texts))
    ids, size = np.concatenate(parts), np.concatenate(lengths)
    begins = np.cumsum(size) - size
    kind = np.int16 if tokenizer.size <= np.iinfo(np.int16).max else np.int32
    rows = np.full((len(size), width), tokenizer.specials.pad, dtype=kind)
    room: list[list[int]] = [[] for _ in range(width + 1)]  # rows by their free places
    used = 0
    for one in np.random.default_rng(recipe.seed).permutation(len(size)).tolist():
        length, begin = int(size[one]), int(begins[one])
        free = next((free for free in range(length, width) if room[free]), width)
        if free == width:
            row, used = used, used + 1
        else:
            row = room[free].pop()
        rows[row, width - free : width - free + length] = ids[begin : begin + length]
        room[free - length].append(row)
    return rows[:used]


def word_pieces(
    texts: Callable[[], Iterable[str]], size: int, *, lower_case: bool = True
) -> tokenizers.Tokenizer:
    """Learn word pieces from text (BERT: Devlin et al., 2019, section 3; Wu et al., 2016).

    Pieces are joined in the order of their frequency. The trainer of ``tokenizers`` numbers letters
    in the order of a hash table and breaks ties by these numbers, so we number them beforehand.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    counted: Counter[str] = Counter()
    with progress.task("letters", unit="rows") as advance:
        for text in _counted(texts(), advance):
            counted.update(normalizer.normalize_str(text))
    frequent = sorted(
        (letter for letter, n in counted.items() if n >= MIN_COUNT and not letter.isspace()),
        key=lambda letter: (-counted[letter], letter),
    )[:MAX_LETTERS]
    inner = (letter for letter in sorted(frequent) if letter.isalnum())
    known = [*MARKS, *sorted(frequent), *(f"{PREFIX}{letter}" for letter in inner)]
    if len(known) >= size:
        problem = f"the text has {len(frequent)} letters, which alone are {len(known)} entries"
        raise TrainingError(f"a vocabulary of {size} is too small: {problem}")
    learner = _tokenizer(models.WordPiece(unk_token=NAMES["unk_token"]), normalizer)
    trainer: Any = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_COUNT,
        show_progress=False,
        special_tokens=known,  # numbered first, in this order
        initial_alphabet=frequent,
        limit_alphabet=len(frequent),
        continuing_subword_prefix=PREFIX,
    )
    with progress.task("word pieces", unit="rows") as advance:
        learner.train_from_iterator(_counted(texts(), advance), trainer)
    # To the learner all letters are special tokens; to the tokenizer only the marks are.
    found = _tokenizer(
        models.WordPiece(learner.get_vocab(), unk_token=NAMES["unk_token"]), normalizer
    )
    found.add_special_tokens(list(MARKS))
    cls, sep = NAMES["cls_token"], NAMES["sep_token"]
    found.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(mark, found.token_to_id(mark)) for mark in (cls, sep)],
    )
    return found


def _tokenizer(model: Any, normalizer: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(model)
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix=PREFIX)
    return made


def _counted(texts: Iterable[str], advance: Callable[..., Any]) -> Iterator[str]:
    for text in texts:
        yield text
        advance(1)


def write_start(
    corpus: Corpus, folder: Path, shape: dict[str, Any], recipe: Recipe, tokenizer: Path | None
) -> None:
    """Write the vocabulary and random weights, as a checkpoint of its own."""
    from transformers import BertConfig, BertForMaskedLM

    if tokenizer is None:
        backend = word_pieces(
            lambda: (text for row in corpus for text in row),
            shape["vocabulary"],
            lower_case=not shape["cased"],
        )
        names = {**NAMES, "do_lower_case": not shape["cased"]}
        made = Tokenizer(backend, max_seq_length=recipe.max_seq_length, names=names)
    else:
        made = Tokenizer.load(tokenizer, max_seq_length=recipe.max_seq_length)
    made.save(folder)
    torch.manual_seed(recipe.seed)
    config = BertConfig(
        vocab_size=made.size,
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=shape["wide"],
        max_position_embeddings=recipe.max_seq_length,
        pad_token_id=made.specials.pad,
    )
    with quiet():
        cast(Any, BertForMaskedLM(config)).save_pretrained(folder, safe_serialization=True)


def load_start(start: Path, recipe: Recipe) -> nn.Module:
    """The model around the weights of :func:`write_start`."""
    from transformers import BertForMaskedLM

    with quiet():
        model: Any = BertForMaskedLM.from_pretrained(
            start,
            dtype=torch.float32,
            local_files_only=True,
            attn_implementation="sdpa",
            hidden_dropout_prob=recipe.dropout,
            attention_probs_dropout_prob=recipe.attention_dropout,
        )
    return cast(nn.Module, model.train())


def optimizer_of(model: Any, recipe: Recipe) -> MuonWithAdamW:
    """Muon for the matrices of the layers, AdamW for embeddings, norms and the head."""
    own = {id(p) for p in model.base_model.encoder.parameters() if p.ndim == 2}
    if recipe.queries_keys == "adamw":
        own -= {id(part.weight) for one in attentions(model) for part in (one.query, one.key)}
    matrices = [p for p in model.parameters() if id(p) in own]
    others = [p for p in model.parameters() if id(p) not in own]
    return MuonWithAdamW(
        matrices, others, learning_rate=recipe.learning_rate, weight_decay=recipe.weight_decay
    )


def rate_at(done: float, recipe: Recipe) -> float:
    """The rate when a share of the run is done: a linear rise, then a linear fall to zero."""
    rise = done / recipe.warmup_ratio if recipe.warmup_ratio else 1.0
    return recipe.learning_rate * min(rise, (1 - done) / (1 - recipe.warmup_ratio), 1.0)


def order_of(rows: int, epoch: int, recipe: Recipe) -> Tensor:
    """The order of the rows in an epoch."""
    generator = torch.Generator().manual_seed(recipe.seed * 1000 + epoch)
    return torch.randperm(rows, generator=generator)


class Log:
    """A line every ``recipe.log`` steps, in a file; the sums of the steps since the last one."""

    def __init__(self, path: Path, recipe: Recipe, device: torch.device) -> None:
        self.path, self.recipe = path, recipe
        self.lines: list[dict[str, Any]] = []
        self.loss = torch.zeros((), device=device)
        self.since, self.marked = 0, time.monotonic()

    def write(self, step: int, seconds: float, rate: float, model: nn.Module, watched: Any) -> None:
        """Add a line, and begin the next."""
        steps, spent = step - self.since, time.monotonic() - self.marked
        loss = self.loss.item() / steps
        if not math.isfinite(loss):
            remedy = "try a smaller rate: --set learning_rate="
            raise TrainingError(f"the loss is {loss} before step {step}; {remedy}")
        line = {
            "step": step,
            "seconds": round(seconds, 1),
            "loss": round(loss, 4),
            "learning_rate": rate,
            "tokens_per_second": round(steps * self.recipe.batch_size * self.recipe.width / spent),
            "entropy": entropy_of(model, watched),
        }
        self.lines.append(line)
        with atomic_file(self.path) as stream:
            stream.writelines(json.dumps(one) + "\n" for one in self.lines)
        self.loss.zero_()
        self.since, self.marked = step, time.monotonic()


def train(
    model: Any, rows: NDArray[Any], tokenizer: Tokenizer, recipe: Recipe, work: Path
) -> dict[str, Any]:
    """The loop. What a step draws is a function of (seed, step), so a resumed run is the same."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    model.to(device)
    data = torch.from_numpy(rows).to(device)
    masking = Masking.of(tokenizer, recipe.mask_ratio, device)
    watched = [part.to(device) for part in watched_sentences(rows, masking, recipe.max_seq_length)]
    optimizer = optimizer_of(model, recipe)
    log, checkpoint = Log(work / "log.jsonl", recipe, device), work / "checkpoint.safetensors"
    step, before = 0, 0.0

    def share(step: int, seconds: float) -> float:
        return max(step / recipe.max_steps, seconds / recipe.seconds if recipe.seconds else 0.0)

    if checkpoint.is_file():
        tensors, state = read_checkpoint(checkpoint)
        restore_checkpoint(tensors, model, optimizer)
        step, before = state["step"], state["seconds"]
        log.since, log.lines = step, state["log"]
    per_epoch, order, epoch = len(rows) // recipe.batch_size, torch.empty(0), -1
    began = saved = time.monotonic()
    with progress.task("pretrain", recipe.max_steps, "steps", step) as advance:
        done = share(step, before)
        while done < 1:
            if epoch != step // per_epoch:
                epoch = step // per_epoch
                order = order_of(len(rows), epoch, recipe).to(device)
            at = step % per_epoch * recipe.batch_size
            ids = data[order[at : at + recipe.batch_size]].long()
            torch.manual_seed(recipe.seed * 10**9 + step)
            rate = optimizer.param_groups[0]["lr"] = rate_at(done, recipe)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
                loss = masked_loss(model, ids, masking)
            loss.backward()  # type: ignore[no-untyped-call]
            log.loss += loss.detach()
            optimizer.step()
            step += 1
            seconds = before + time.monotonic() - began
            done = share(step, seconds)
            if step % recipe.log == 0 or done >= 1:
                log.write(step, seconds, rate, model, watched)
                last = log.lines[-1]
                advance(step % recipe.log or recipe.log, **{k: last[k] for k in SHOWN})
            if time.monotonic() - saved >= recipe.checkpoint or done >= 1:
                state = {"step": step, "seconds": seconds, "log": log.lines}
                write_checkpoint(checkpoint, model, optimizer, state)
                saved = time.monotonic()
    end = log.lines[-max(1, len(log.lines) // 10) :]
    return {
        "steps": step,
        "seconds": round(log.lines[-1]["seconds"], 1),
        "tokens": step * recipe.batch_size * recipe.width,
        "loss": sum(line["loss"] for line in end) / len(end),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }


def watched_sentences(rows: NDArray[Any], masking: Masking, longest: int) -> list[Tensor]:
    """Ids and mask of the first sentence of some rows, padded."""
    ids = torch.from_numpy(rows[:WATCHED, :longest].astype(np.int64))
    first = (ids == masking.cls).cumsum(1) == 1
    mask = first & (ids != masking.pad)
    return [ids.masked_fill(~mask, masking.pad), mask]


def entropy_of(model: Any, watched: list[Tensor]) -> list[float]:
    """The entropy of each layer's attention in nats."""
    found = measured(model.base_model, iter([(watched[0], watched[1])]))
    return [] if found is None else [round(x, 3) for x in found.entropy.mean(1).tolist()]


def save_model(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Write encoder, masked-LM head, in float16, and vocabulary into a folder that exists."""
    with quiet():
        model.to(torch.float16).save_pretrained(folder, safe_serialization=True)
    config = read_object(folder / "config.json")
    write_object(folder / "config.json", {**config, "dtype": "float32"})
    tokenizer.save(folder)


def pretrain(
    corpus: Corpus, output: Path, shape: dict[str, Any], recipe: Recipe, tokenizer: Path | None
) -> dict[str, Any]:
    """Learn a language model from text; a stopped run is resumed."""
    if output.exists():
        raise OutputError(f"{output}: exists; choose another folder")
    check_writable(output.absolute().parent)
    work = output.with_name(f"{output.name}.work")
    start, stated, packed = work / "start", work / "run.json", work / "rows.npy"
    said = {"corpus": corpus.digest(), "shape": shape, "settings": asdict(recipe)}
    if stated.is_file() and (known := read_object(stated)) != said:
        differing = next(key for key in said if known.get(key) != said[key])
        raise OutputError(
            f"{work}: a run of another {differing.removesuffix('s')}; resume with the same "
            "options or remove it"
        )
    write_json(stated, said)
    if not start.is_dir():
        with atomic_folder(start) as target:
            write_start(corpus, target, shape, recipe, tokenizer)
    words = Tokenizer.load(start, max_seq_length=recipe.max_seq_length)
    if not packed.is_file():
        with atomic_file(packed, "wb") as stream:
            np.save(stream, packed_rows(corpus, words, recipe), allow_pickle=False)
    rows = np.load(packed, allow_pickle=False)
    recipe = replace(recipe, batch_size=min(recipe.batch_size, len(rows)))
    model: Any = load_start(start, recipe)
    result = train(model, rows, words, recipe, work)
    result["parameters"] = sum(p.numel() for p in model.parameters())
    result["vocabulary"] = words.size
    with atomic_folder(output) as target:
        save_model(model, words, target)
        (target / "run").mkdir()
        shutil.copy2(work / "log.jsonl", target / "run" / "log.jsonl")
        named = None if tokenizer is None else str(tokenizer)
        facts = {"settings": asdict(recipe), "shape": shape, "tokenizer": named}
        write_json(target / "run" / "settings.json", facts)
        write_json(target / "run" / "result.json", result)
    shutil.rmtree(work)
    return result


def recipe_of(given: list[str]) -> Recipe:
    """The recipe that ``--set name=value`` gives."""
    known, values = parameters_of(Recipe), dict[str, Any]()
    for name, value in assignments(given).items():
        if name not in known:
            raise OptionError("--set", name, "no setting of pre-training", choices=known)
        values[name] = known[name].read(value)
    recipe = Recipe(**values)
    if recipe.max_seq_length > recipe.width:
        raise OptionError("width", recipe.width, f"must hold {recipe.max_seq_length} tokens")
    return recipe


def main(arguments: list[str] | None = None) -> None:
    """Train, and print a line."""
    parser = argparse.ArgumentParser(prog="benchmarks.pretrain", description=__doc__)
    parser.add_argument("corpus", help="txt, csv, tsv, jsonl, parquet, a folder or -")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--tokenizer", type=Path, help="a model's folder; learned from the text")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help="dimensions of the vectors")
    parser.add_argument("--wide", type=int, default=0, help="of feed-forward; default: 4 x hidden")
    parser.add_argument("--vocabulary", type=int, default=16000, help="entries, at most")
    parser.add_argument("--cased", action="store_true", help="keep capital letters and accents")
    parser.add_argument("--columns", help="column of a table with the text")
    parser.add_argument("--set", action="append", default=[], help="key=value; may be repeated")
    options = parser.parse_args(arguments)
    try:
        shape = {name: getattr(options, name) for name in ("layers", "hidden", "vocabulary")}
        shape["heads"] = max(1, options.hidden // 64)
        shape["wide"] = options.wide or 4 * options.hidden
        shape["cased"] = options.cased
        for name in ("layers", "hidden", "wide"):
            if shape[name] < 1:
                raise OptionError(f"--{name}", shape[name], "must be 1 or more")
        if options.hidden % shape["heads"]:
            raise OptionError("--hidden", options.hidden, f"has no {shape['heads']} equal heads")
        recipe = recipe_of(options.set)
        columns = options.columns.split(",") if options.columns else None
        corpus = open_corpus(options.corpus, columns=columns)
        found = pretrain(corpus, options.output, shape, recipe, options.tokenizer)
    except UserError as error:
        sys.exit(f"pretrain: {error}")
    print(
        f"{options.output}: {found['steps']} steps, {found['parameters'] / 1e6:.1f} M weights, "
        f"{found['vocabulary']:,} entries; masked-LM loss {found['loss']:.2f} at the end, "
        f"{found['tokens'] / max(found['seconds'], 0.1):,.0f} tokens/s"
    )


if __name__ == "__main__":
    progress.show("auto")
    main()
