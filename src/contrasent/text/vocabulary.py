"""A vocabulary of word pieces, learnt from text: the same one from the same text, always."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from contrasent import progress
from contrasent.errors import TrainingError

MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NAMES = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
"""The special tokens, as a tokenizer's settings name them."""

LETTERS = 1000
"""Letters of the vocabulary at most, the most frequent ones; BERT's has as many."""

PREFIX = "##"
FEWEST = 2


def word_pieces(
    texts: Callable[[], Iterable[str]], size: int, *, lower_case: bool = True
) -> tokenizers.Tokenizer:
    """Learn word pieces from text (BERT: Devlin et al., 2019, section 3; Wu et al., 2016).

    Pieces are joined in the order of their frequency. The library's own trainer numbers letters in
    the order of a hash table, and breaks ties by these numbers; here they are numbered beforehand.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    counted: Counter[str] = Counter()
    with progress.task("letters", unit="rows") as advance:
        for text in _told(texts(), advance):
            counted.update(normalizer.normalize_str(text))
    frequent = sorted(
        (letter for letter, count in counted.items() if count >= FEWEST and not letter.isspace()),
        key=lambda letter: (-counted[letter], letter),
    )[:LETTERS]
    inner = (letter for letter in sorted(frequent) if letter.isalnum())
    known = [*MARKS, *sorted(frequent), *(f"{PREFIX}{letter}" for letter in inner)]
    if len(known) >= size:
        problem = f"the text has {len(frequent)} letters, which alone are {len(known)} entries"
        raise TrainingError(f"a vocabulary of {size} is too small: {problem}")
    learner = _tokenizer(models.WordPiece(unk_token=NAMES["unk_token"]), normalizer)
    trainer: Any = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=FEWEST,
        show_progress=False,
        special_tokens=known,  # numbered first, in this order
        initial_alphabet=frequent,
        limit_alphabet=len(frequent),
        continuing_subword_prefix=PREFIX,
    )
    with progress.task("word pieces", unit="rows") as advance:
        learner.train_from_iterator(_told(texts(), advance), trainer)
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


def _told(texts: Iterable[str], advance: Callable[..., Any]) -> Iterator[str]:
    for text in texts:
        yield text
        advance(1)
