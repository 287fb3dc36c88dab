"""Train a small BERT from random weights by masked language modelling, as a base.

    python -m benchmarks.pretrain wiki.txt -o my-bert --layers 4 --hidden 256 --set steps=20000

The run is kept in ``OUTPUT.work`` until the model is whole; the same command resumes it, and ends
on CPU in the same bits as a run that was not stopped. docs/pretrain.md has the measured run.
"""

import argparse
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from contrasent import progress
from contrasent.encoder.encoder import Encoder
from contrasent.encoder.packing import Packing
from contrasent.encoder.tensors import read_checkpoint
from contrasent.engine import encodings
from contrasent.engine.encodings import Terms
from contrasent.engine.masked_models import LanguageHead, at_labels
from contrasent.engine.objective import Objective
from contrasent.errors import OptionError, OutputError, TrainingError, UserError
from contrasent.files import atomic_folder, check_writable, read_object, write_json
from contrasent.losses import masked_lm
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.tokens import Tokenizer
from contrasent.text.views import Identity
from contrasent.train.fit import fit
from contrasent.train.settings import Settings, assignments, choose
from contrasent.types import Batch, Tokens

MASK_RATIO = 0.3
"""Of all tokens: 15 %, as BERT has it, learns less from the same time (docs/pretrain.md)."""
SETTINGS = {
    "batch": 128,
    "max_tokens": 64,
    "lr": 1.5e-3,
    "warmup": 0.05,
    "weight_decay": 0.01,
    # SimCSE's noise ruins a base that was trained without it (docs/pretrain.md).
    "dropout": 0.1,
}
MATRIX_RATE = 40 / 3
"""Rate of the layers' matrices, whose steps are orthogonal, as a multiple of the others'."""
BETAS = (0.9, 0.98)
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NAMES = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
MAX_LETTERS = 1000  # as in BERT's vocabulary
MIN_COUNT = 2
PREFIX = "##"


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices of the layers, AdamW for all other weights.

    Muon steps along the orthogonalised momentum of a matrix (Jordan et al., 2024,
    https://kellerjordan.github.io/posts/muon). One rate serves both: that of AdamW.
    """

    def __init__(
        self,
        matrices: list[torch.nn.Parameter],
        others: list[torch.nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
    ) -> None:
        super().__init__([*matrices, *others], {"lr": lr, "weight_decay": weight_decay})
        rate = MATRIX_RATE * lr
        self.matrices = torch.optim.Muon(matrices, lr=rate, weight_decay=weight_decay)
        self.others = torch.optim.AdamW(
            others, lr=lr, betas=BETAS, weight_decay=weight_decay, fused=True
        )
        # One state, that of this optimizer: a checkpoint keeps it.
        self.matrices.state = self.others.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step of both at the rate of this optimizer's group."""
        rate = self.param_groups[0]["lr"]
        self.matrices.param_groups[0]["lr"] = MATRIX_RATE * rate
        self.others.param_groups[0]["lr"] = rate
        self.matrices.step(closure)  # type: ignore[no-untyped-call]
        self.others.step()


class MaskedPretraining(Objective):
    """Masked language modelling alone, on all weights (BERT: Devlin et al., 2019, section 3.1).

    Of 30 % of the tokens 80 % become [MASK], 10 % a random token and 10 % stay; the loss is the
    mean over them. The output layer shares the embeddings' weights; there is no next-sentence task.
    """

    method_name = "pretrain"
    keeps_checkpoint = True  # with the head; the folder is removed when the model is written
    warns_of_drift = False

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.views, self.roles = (Identity(),), ("anchor",)
        self.weights = {"masked_lm": 1.0}
        self.head = LanguageHead.load(None, encoder)
        embeddings: Any = cast(Any, encoder.backbone).get_input_embeddings()
        cast(Any, self.head.model).get_output_embeddings().weight = embeddings.weight

    def forward(self, batch: Batch) -> Terms:
        """The loss of one batch."""
        (column,) = batch.columns
        randoms = encodings.generators(batch, 0)
        edited = encodings.mask_tokens(column, MASK_RATIO, self.encoder.tokenizer, randoms)
        vectors, targets = self._at_labels(edited)
        return {"masked_lm": masked_lm(self.head(vectors), targets)}

    def optimizer(self, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        """Muon for the matrices of the layers, AdamW for embeddings, norms and the head."""
        layers = {id(p) for p in cast(Any, self.encoder.backbone).encoder.parameters()}
        trained = [p for p in self.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim == 2 and id(p) in layers]
        others = [p for p in trained if p.ndim != 2 or id(p) not in layers]
        return MuonWithAdamW(matrices, others, lr=lr, weight_decay=weight_decay)

    def _at_labels(self, edited: encodings.Edited) -> tuple[Tensor, Tensor]:
        """(k, d) vectors and (k,) ids of the chosen tokens, without padding where possible."""
        encoder, tokens = self.encoder, edited.tokens
        if not encoder.packs(tokens):
            return at_labels(encoder, tokens, edited.labels)
        packing = Packing(tokens)
        (states,) = encoder.states(packing)
        labels = Tokens(cast(Any, edited.labels), tokens.offsets).select(packing.order).ids
        chosen = torch.from_numpy(np.flatnonzero(labels >= 0))
        return states[chosen], torch.from_numpy(labels[labels >= 0].astype(np.int64))

    def save(self, folder: Path) -> None:
        """Write encoder, masked-LM head and vocabulary into a folder that exists."""
        model: Any = self.head.model
        setattr(model, model.base_model_prefix, self.encoder.backbone)
        try:
            model.save_pretrained(folder, safe_serialization=True)
        finally:
            setattr(model, model.base_model_prefix, self.head.given)
        self.encoder.tokenizer.save(folder)


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


def write_start(corpus: Corpus, folder: Path, shape: dict[str, Any], settings: Settings) -> None:
    """Write the vocabulary and random weights, as a checkpoint of its own."""
    from transformers import BertConfig, BertForMaskedLM

    backend = word_pieces(
        lambda: (text for row in corpus for text in row),
        shape["vocabulary"],
        lower_case=not shape["cased"],
    )
    names = {**NAMES, "do_lower_case": not shape["cased"]}
    Tokenizer(backend, max_tokens=settings.max_tokens, names=names).save(folder)
    torch.manual_seed(settings.seed)
    config = BertConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=4 * shape["hidden"],
        max_position_embeddings=settings.max_tokens,
        pad_token_id=backend.token_to_id(NAMES["pad_token"]),
    )
    cast(Any, BertForMaskedLM(config)).save_pretrained(folder, safe_serialization=True)


def copy_start(base: Path, folder: Path) -> None:
    """Copy vocabulary and weights, with the masked-LM head, of a model to go on from."""
    for path in base.iterdir():
        if path.suffix in (".json", ".safetensors", ".txt"):
            shutil.copyfile(path, folder / path.name)


def shape_of(base: Path) -> dict[str, Any]:
    """The shape of a model that was made by this script."""
    config, tokenizer = (read_object(base / f"{k}.json") for k in ("config", "tokenizer"))
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "vocabulary": config["vocab_size"],
        "cased": not tokenizer["normalizer"]["lowercase"],
    }


def load_start(start: Path, settings: Settings) -> MaskedPretraining:
    """The objective around the weights of :func:`write_start`."""
    attention = settings.attention_dropout
    encoder = Encoder.load(
        start,
        pooler="cls",
        dropout=settings.dropout,
        attention_dropout=settings.dropout if attention is None else attention,
    )
    return MaskedPretraining(encoder).to(encoder.device)


def pretrain(
    corpus: Corpus,
    output: Path,
    shape: dict[str, Any],
    settings: Settings,
    base: Path | None = None,
) -> dict[str, Any]:
    """Learn a vocabulary and a language model from text, or go on; a stopped run is resumed."""
    if output.exists():
        raise OutputError(f"{output}: exists; choose another folder")
    if corpus.width > 1:
        names = ", ".join(corpus.names)
        raise OptionError("--columns", names, "pre-training takes one column of text; name it")
    check_writable(output.absolute().parent)
    work = output.with_name(f"{output.name}.work")
    start, training, stated = work / "start", work / "training", work / "shape.json"
    if stated.is_file() and json.loads(stated.read_text("utf-8")) != shape:
        raise OutputError(
            f"{work}: a run of another shape; resume with the same options or remove it"
        )
    write_json(stated, shape)
    if not start.is_dir():
        with atomic_folder(start) as target:
            if base is None:
                write_start(corpus, target, shape, settings)
            else:
                copy_start(base, target)
    objective = load_start(start, settings)
    resume = training.is_dir() and any(training.iterdir())
    run = fit(objective, corpus, settings, folder=training, keep="last", resume=resume)
    # After a kill between the last step and here, only the checkpoint has the weights.
    tensors, _ = read_checkpoint(training / "run" / "checkpoint.safetensors")
    objective.load_state_dict(
        {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    )
    lines = map(json.loads, (training / "run" / "log.jsonl").read_text("utf-8").splitlines())
    losses = [line["loss"] for line in lines if "loss" in line]
    last = losses[-max(1, len(losses) // 10) :]
    with atomic_folder(output) as target:
        objective.save(target)
        (target / "run").mkdir()
        for name in ("settings.json", "log.jsonl", "result.json"):
            shutil.copy2(training / "run" / name, target / "run" / name)
    shutil.rmtree(work)
    return {
        "steps": run.steps,
        "sentences_per_second": run.sentences_per_second,
        "loss": sum(last) / len(last),
        "parameters": sum(p.numel() for p in objective.parameters()),
        "vocabulary": objective.encoder.tokenizer.size,
    }


def parsed(
    arguments: list[str],
) -> tuple[Corpus, Path, dict[str, Any], Settings, Path | None]:
    """Corpus, output folder, shape, settings and the model to go on from of a command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.pretrain", description=__doc__)
    parser.add_argument("corpus", help="txt, csv, tsv, jsonl, parquet, a folder, or -")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="a model to go on from, whose shape it keeps")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help="dimensions of the vectors")
    parser.add_argument("--heads", type=int, default=0, help="default: one for every 64 dimensions")
    parser.add_argument("--vocabulary", type=int, default=16000, help="entries, at most")
    parser.add_argument("--cased", action="store_true", help="keep capital letters and accents")
    parser.add_argument("--columns", help="column of a table with the text")
    parser.add_argument("--set", action="append", default=[], help="key=value; may be repeated")
    options = parser.parse_args(arguments)
    shape = {name: getattr(options, name) for name in ("layers", "hidden", "heads", "vocabulary")}
    shape["heads"] = shape["heads"] or max(1, options.hidden // 64)
    shape["cased"] = options.cased
    for name in ("layers", "hidden", "heads"):
        if shape[name] < 1:
            raise OptionError(f"--{name}", shape[name], "must be 1 or more")
    if options.hidden % shape["heads"]:
        raise OptionError("--heads", shape["heads"], f"does not divide {options.hidden} dimensions")
    if options.base is not None:
        shape = shape_of(options.base)
    of_run, of_method = choose(assignments(options.set), "simcse")
    for name in of_method:
        raise OptionError("--set", name, "no setting of pre-training")
    columns = options.columns.split(",") if options.columns else None
    corpus = open_corpus(options.corpus, columns=columns)
    settings = Settings(**{**SETTINGS, **of_run})
    return corpus, options.output, shape, settings, options.base


def main(arguments: list[str] | None = None) -> None:
    """Train, and print a line."""
    try:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise TrainingError("pre-training runs in one process; start it without torchrun")
        given = sys.argv[1:] if arguments is None else arguments
        corpus, output, shape, settings, base = parsed(given)
        found = pretrain(corpus, output, shape, settings, base)
    except UserError as error:
        sys.exit(f"pretrain: {error}")
    print(
        f"{output}: {found['steps']} steps, {found['parameters'] / 1e6:.1f} M weights, "
        f"{found['vocabulary']:,} entries; masked-LM loss {found['loss']:.2f} at the end, "
        f"{found['sentences_per_second']:,.0f} sentences/s"
    )


if __name__ == "__main__":
    main()
