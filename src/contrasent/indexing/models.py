"""The model of an index, which searches it, and the base for texts in a language."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrasent.errors import ModelError
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import find_model, open_encoder
from contrasent.model.pretrained import MINILM, installed_bases
from contrasent.search.index import BaseIndex, Hit
from contrasent.search.languages import SAMPLE, choose_base, fit, sampled
from contrasent.types import Log, Vectors


def model_settings(index: BaseIndex) -> dict[str, Any]:
    """The settings that an index's model was opened with."""
    return {key: index.facts.settings.get(key) for key in ("pooler", "max_tokens")}


def find_index_model(index: BaseIndex) -> Path:
    """The folder of the model that made an index's vectors."""
    name = index.facts.source
    if not name:
        raise ModelError(f"{index.folder}: does not say which model made it; name it with --model")
    if index.folder is not None and Path(name).is_absolute() and not Path(name).exists():
        moved = index.folder.parent / Path(name).name  # with the folder that adapt made
        name = str(moved) if moved.is_dir() else name
    try:
        return find_model(name)
    except ModelError as error:
        raise ModelError(f"{error} (the index's model; if it has moved, use --model)") from error


def open_index_model(
    index: BaseIndex,
    name: str | None = None,
    *,
    runtime: str | None = None,
    batch: int = 64,
    batch_invariant: bool = False,
) -> TaskEncoder:
    """The model that made an index's vectors, or ``name`` if it has moved, with its settings."""
    folder = find_index_model(index) if name is None else find_model(name)
    encoder = open_encoder(folder, runtime=runtime, light=True, **model_settings(index))
    index.check_model(encoder.identity, f"the model {name or index.facts.source}")
    return TaskEncoder(encoder, batch=batch, batch_invariant=batch_invariant)


class OpenedBase(NamedTuple):
    """A model for some texts."""

    name: str
    encode: TaskEncoder
    word_weight: float  # the share of words in a score that suits the texts
    remarks: tuple[str, ...] = ()  # a line if the model was named and does not know the language


def open_base(
    texts: Iterable[str],
    name: str | None = None,
    *,
    firsts: Sequence[str] = (),
    log: Log = lambda line: None,
    runtime: str | None = None,
    pooler: str | None = None,
    max_tokens: int | None = None,
    batch: int = 64,
) -> OpenedBase:
    """Open the model of a name, or the installed base that knows the language of some texts.

    A thousand of these, drawn at random, are looked at, and ``firsts``, texts of each file.
    """
    sample, chosen = sampled(texts, SAMPLE), None
    if name is None and sample:
        chosen = choose_base(sample, installed_bases(), firsts)
        log(f"base: {chosen.name}; {chosen.reason}")
    name = chosen.name if chosen else name or MINILM
    encoder = open_encoder(
        find_model(name), runtime=runtime, pooler=pooler, max_tokens=max_tokens, light=True
    )
    encode = TaskEncoder(encoder, batch=batch)
    if chosen:
        return OpenedBase(name, encode, chosen.fit.word_weight)
    language = fit(sample, encoder.tokenizer)
    remark = (
        f"the model's vocabulary is of another language than the texts ({language.pieces:.1f} "
        f"tokens a word): words count for {language.word_weight:g} of a score (--word-weight)"
    )
    return OpenedBase(name, encode, language.word_weight, () if language.known else (remark,))


def find_hits(
    opened: BaseIndex,
    queries: list[str],
    encode: TaskEncoder,
    *,
    rows: bool,
    exact: bool,
    **how: Any,
) -> tuple[list[str], Vectors, list[list[Hit]]]:
    """The queries without typing errors, their vectors and their hits, as of `search_index`."""
    texts = queries if exact else opened.repaired(queries, encode.encoder.tokenizer.knows)
    vectors = opened.query_vectors(texts, encode)
    search = opened.search if rows else opened.search_documents
    return texts, vectors, search(texts, vectors=vectors, **how)
