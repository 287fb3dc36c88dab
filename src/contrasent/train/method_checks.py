"""Checks of a training method on a small encoder: ``contrasent train CORPUS --check``."""

import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from contrasent import parallel
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.tensors import (
    read_checkpoint,
    read_tensors,
    restore_checkpoint,
    save_tensors,
    write_checkpoint,
)
from contrasent.engine.objective import Objective
from contrasent.engine.parameters import GuideName, MaskedModelName
from contrasent.engine.registry import check, parameters
from contrasent.errors import OptionError, UserError
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.train.prepare import collator, configure, prepare
from contrasent.train.settings import Settings
from contrasent.types import Batch

STEPS, ROWS, CACHED_ROWS = 3, 6, 5
DRAW = "random_for(seed, purpose, row, step)"
CLOSE = 1e-7  # relative to the largest number: rounding in float64
SENTENCES = [
    f"{who} {did} {what}"
    for what in ("a wooden ladder", "the copper kettle before dawn", "two lamps")
    for did in ("mended", "painted", "sold", "forgot the key to")
    for who in ("the gardener", "an old sailor", "my neighbor", "a young clerk")
]

Verdict = tuple[bool | None, str]


@dataclass(frozen=True, slots=True)
class MethodFinding:
    """The result of a check; ``passed`` is None where it does not apply."""

    check: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A method and its parameters on a small encoder with a masked-LM head, in a folder."""

    method: str
    parameters: Mapping[str, Any]
    base: Path
    cached_rows: int = 0
    head: str | None = None

    @contextmanager
    def training(
        self, *, dropout: float = 0.0, cached_rows: int | None = None
    ) -> Iterator[tuple[Objective, Callable[[int], Batch]]]:
        """The objective in float64, ready to train, and a run's batches."""
        settings = Settings(
            batch_size=ROWS,
            max_steps=STEPS,
            max_seq_length=24,
            seed=3,
            head=self.head,
            dropout=dropout,
            mini_batch_size=self.cached_rows if cached_rows is None else cached_rows,
        )
        objective = prepare(self.base, self.method, dict(self.parameters), settings)
        configure(objective, settings)
        objective.double().train()
        with tempfile.TemporaryDirectory() as home:
            place = Path(home)
            maker = collator(objective, _corpus(objective, place), settings, place / "tokens", None)
            yield objective, lambda step: maker.batch(step, parallel.rank(), parallel.world())


def _corpus(objective: Objective, folder: Path) -> Corpus:
    if objective.graded:
        rows = [(*pair, i % 6) for i, pair in enumerate(pairwise(SENTENCES))]
        return open_corpus(rows, score=2)
    if objective.labeled:
        return open_corpus(list(zip(SENTENCES, SENTENCES[1:], SENTENCES[7:], strict=False)))
    # Documents of four sentences, for views of the next one.
    documents = ["\n".join(SENTENCES[i : i + 4]) for i in range(0, len(SENTENCES), 4)]
    path = folder / "documents.txt"
    path.write_text("\n\n".join(documents) + "\n", "utf-8")
    return open_corpus(path, documents=True)


def make_small_base(folder: Path) -> Path:
    """Write a BERT of two layers with random weights, a masked-LM head and a small vocabulary."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    words = sorted({word for text in SENTENCES for word in text.split()})
    every = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(every)})
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 64, "vocab_size": len(every)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertForMaskedLM(BertConfig(**sizes, initializer_range=0.3)).save_pretrained(folder)
    return folder


def with_small_models(method: str, given: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The parameters with small models instead of those stated or needed."""
    values = dict(given)
    for name, parameter in parameters(method).items():
        if parameter.mark(MaskedModelName) and (values.get(name) or _needed(method, values, name)):
            values[name] = str(base)
        if parameter.mark(GuideName):
            guide = base.with_name("guide")
            TorchEncoder.load(base, pooling="mean").save(guide)
            values[name] = str(guide)
    return values


def _needed(method: str, values: Mapping[str, Any], name: str) -> bool:
    try:
        check(method, values, models=False)
    except OptionError as error:
        return error.option == name
    return False


def check_objective(
    method: str, given: Mapping[str, Any], corpus: Corpus
) -> Iterator[MethodFinding]:
    """Check a method and whether a corpus suits it; yields findings one by one."""

    def check_corpus(trial: Trial) -> Verdict:
        with trial.training() as (objective, _):
            objective.check(corpus.width, ordered=corpus.documents, scored=corpus.scored)
        return True, f"{corpus.source} suits {objective.name}"

    with tempfile.TemporaryDirectory() as home:
        base = make_small_base(Path(home) / "base")
        small = with_small_models(method, given, base)
        for name in small.keys() - {key for key, value in given.items() if value == small[key]}:
            need = "" if given.get(name) else f"; training needs --set {name}=MODEL"
            yield MethodFinding(name, None, f"a small model of the check's own{need}")
        trial = Trial(method, small, base)
        for trial_check in (check_corpus, check_one_step):
            result = finding(trial_check, trial)
            yield result
            if not result.passed:
                return
        for trial_check in (check_gradient, check_cached_gradients, check_resume):
            yield finding(trial_check, trial)
        yield from check_two_processes([trial])


def finding(check: Callable[[Trial], Verdict], trial: Trial, name: str = "") -> MethodFinding:
    """The result of a check, by its name or the function's."""
    name = name or check.__name__.removeprefix("check_").replace("_", " ")
    try:
        return MethodFinding(name, *check(trial))
    except UserError:
        raise
    except Exception as error:  # a user's method may raise anything
        return MethodFinding(name, False, _failure(error))


def _failure(error: Exception) -> str:
    """An exception of the method, with the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{type(error).__name__} in {where}: {' '.join(str(error).split())}"


def check_one_step(trial: Trial) -> Verdict:
    """Whether terms are finite, complete and repeatable, and all that trains has a gradient."""
    with trial.training(dropout=0.1) as (objective, batch):
        first = objective.warmup_steps  # before it there is a part that does not learn
        with torch.no_grad():
            terms = objective(batch(first))
        odd = [k for k, v in terms.items() if v.dim() or not bool(v.isfinite())]
        if odd:
            return False, f"the term {odd[0]!r} is not a single finite number"
        missing = sorted(objective.weights.keys() - terms.keys())
        if missing:
            return False, f"the term {missing[0]!r} has a weight but is missing"
        loss = _step(objective, batch(first))
        idle = [k for k, p in objective.named_parameters() if p.requires_grad and p.grad is None]
        if idle:
            return False, f"{idle[0]} is trainable, but the loss does not depend on it"
        again = _step(objective, batch(first))
        if loss.item() != again.item():
            problem = f"draw with torch's default generator or {DRAW}"
            return False, f"the same step twice gives {loss} and {again}; {problem}"
    return True, f"loss {loss.item():.4f}, twice the same; all trained parameters have a gradient"


def check_gradient(trial: Trial) -> Verdict:
    """Whether the gradient is the slope of the loss, by differences in a random direction."""
    with trial.training() as (objective, batch):
        generator = torch.Generator().manual_seed(1)
        direction = {
            p: torch.randn(p.shape, generator=generator, dtype=p.dtype)
            for p in objective.parameters()
            if p.requires_grad
        }
        for module in objective.modules():
            # Torch gives the vector of padding no gradient, even where padding is in the loss.
            padding = getattr(module, "padding_idx", None)
            weight: Any = getattr(module, "weight", None)
            if padding is not None and weight in direction:
                direction[weight][padding] = 0.0
        _step(objective, batch(0))
        slope = sum((p.grad * w).sum().item() for p, w in direction.items() if p.grad is not None)
        size, losses = 1e-6, []
        for sign in (1, -2):
            with torch.no_grad():
                for p, w in direction.items():
                    p.add_(w, alpha=sign * size)
            losses.append(_step(objective, batch(0)).item())
    measured = (losses[0] - losses[1]) / (2 * size)
    if abs(measured - slope) <= 1e-4 * max(abs(measured), abs(slope), 1e-3):
        return True, "the gradient is the slope of the loss (float64)"
    return False, (
        f"the gradient says {slope:.6g}, the loss changes by {measured:.6g}: something is "
        "detached, rounded or computed in no_grad; check that this is intended"
    )


def check_cached_gradients(trial: Trial) -> Verdict:
    """Whether cached gradients (``mini_batch_size``) are those of the whole batch."""
    gradients = []
    for rows in (0, CACHED_ROWS):
        try:
            with trial.training(cached_rows=rows) as (objective, batch):
                _step(objective, batch(0))
                grads = ((k, p.grad) for k, p in objective.named_parameters())
                gradients.append({k: grad for k, grad in grads if grad is not None})
        except OptionError as error:
            return None, str(error)
    if far := farthest(*gradients):
        return False, f"with {CACHED_ROWS} rows at once the gradient of {far}"
    return True, f"{CACHED_ROWS} rows at once, the same gradient (float64)"


def check_resume(trial: Trial) -> Verdict:
    """Whether a run resumed from a checkpoint ends in the bits of one that was not stopped."""
    ends = []
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "checkpoint.safetensors"
        for steps in ((0, 1, 2, 3), (2, 3)):
            with trial.training(dropout=0.1) as (objective, batch):
                optimizer = objective.optimizer(learning_rate=1e-3, weight_decay=0.01)
                if path.is_file():
                    restore_checkpoint(read_checkpoint(path)[0], objective, optimizer)
                for step in steps:
                    if step == 2 and not path.is_file():
                        write_checkpoint(path, objective, optimizer, {})
                    _step(objective, batch(step))
                    optimizer.step()
                    objective.after_step()
                ends.append(objective.state_dict())
    for key, value in ends[0].items():
        if not torch.equal(value, ends[1][key]):
            return False, f"{key} differs after resuming; store all state in parameters and buffers"
    return True, "resumes from a checkpoint with the same bits"


def check_two_processes(trials: Sequence[Trial]) -> list[MethodFinding]:
    """Whether two processes, each with half a batch, do the same as one; started once."""
    with tempfile.TemporaryDirectory() as home:
        place = Path(home)
        spawn(_work, (place, list(trials)), nprocs=2)  # type: ignore[no-untyped-call]
        return [
            finding(partial(_compare, place, number), trial, "two processes")
            for number, trial in enumerate(trials)
        ]


def _work(rank: int, place: Path, trials: list[Trial]) -> None:
    """One of two processes, which writes its results to files."""
    torch.set_num_threads(1)
    store = f"file://{place / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    for number, trial in enumerate(trials):
        try:
            save_tensors(place / f"{number}.{rank}.safetensors", _trained(trial))
        except Exception as error:
            (place / f"{number}.{rank}.txt").write_text(_failure(error), "utf-8")
            break  # the other process may wait for this one, so end it too
    torch.distributed.destroy_process_group()


def _trained(trial: Trial) -> dict[str, Tensor]:
    """Losses and state after some steps without dropout, on this process's share of the batches."""
    with trial.training() as (objective, batch):
        module = parallel.wrap(objective)
        optimizer = torch.optim.SGD(objective.parameters(), lr=0.05)
        losses = []
        for step in range(STEPS):
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = objective.loss(module(batch(step)))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            objective.after_step()
            losses.append(parallel.average(loss))
        state = {name: value.detach().clone() for name, value in objective.state_dict().items()}
        return {"the loss": torch.stack(losses), **state}


def _compare(place: Path, number: int, trial: Trial) -> Verdict:
    files = [place / f"{number}.{rank}.safetensors" for rank in (0, 1)]
    if not all(file.is_file() for file in files):
        failed = [path.read_text("utf-8") for path in sorted(place.glob("*.txt"))]
        return False, failed[0] if failed else "the processes ended early"
    first, second = map(read_tensors, files)
    whole = _trained(trial)
    if far := farthest(whole, first) or farthest(whole, second):
        remedy = "average over own rows, compare with those of all (gather), and draw with "
        return False, f"with half a batch each {far}; {remedy}{DRAW}"
    return True, f"two processes with half a batch each: the same after {STEPS} steps (float64)"


def farthest(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> str:
    """The first difference beyond rounding, in words; empty if there is none."""
    for name in sorted(one.keys() ^ two.keys()):
        return f"{name} exists only once"
    for name, value in one.items():
        if value.numel():
            gap = (value.double() - two[name].double()).abs().max().item()
            if not gap <= CLOSE * max(1.0, value.double().abs().max().item()):
                return f"{name} differs by {gap:.2g}"
    return ""


def _step(objective: Objective, batch: Batch) -> Tensor:
    """The loss of a batch; leaves the gradient in the parameters."""
    torch.manual_seed(batch.step)
    objective.zero_grad(set_to_none=True)
    loss = objective.loss(objective(batch))
    loss.backward()  # type: ignore[no-untyped-call]
    return loss
