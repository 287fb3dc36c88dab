"""Documents in, a better search out, or a plain no: one adaptation from beginning to end."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from contrasent.adapt import shipping
from contrasent.adapt.queries import read_clicks, read_user_queries
from contrasent.adapt.reading import Reading, Say, load_reading, read_source, write_reading
from contrasent.adapt.shipping import Adaptation
from contrasent.adapt.stages import Stages
from contrasent.adapt.update import (
    Previous,
    open_previous,
    with_previous,
)
from contrasent.adapt.work import Work
from contrasent.documents.folder import Documents, open_documents
from contrasent.documents.parsers import TEXT_LIMIT
from contrasent.errors import InputError, OptionError, OutputError, UserError
from contrasent.model.encoder import Encoder
from contrasent.model.pretrained import installed_bases, resolve
from contrasent.search.languages import choose_base
from contrasent.text.sources import missing

SAMPLED = 64  # documents that are read to choose a base by their language
FEWEST_PASSAGES = 20
FEWEST_DOCUMENTS = 10
SHORTEST_BUDGET = 10.0


def adapt(
    source: str | Path | Documents,
    output: str | Path,
    *,
    base: str | None = None,
    update: str | Path | None = None,
    budget: float = 1800.0,
    queries: str | Path | None = None,
    collection: str | Path | None = None,
    clicks: str | Path | None = None,
    columns: Sequence[str] | None = None,
    max_file_text: int = TEXT_LIMIT,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    keep_candidates: bool = False,
    say: Say = lambda text: None,
) -> Adaptation:
    """Try to improve search in documents over the base, and keep what is proven better.

    Documents are divided into those to learn from, those to choose by, and sealed ones. Candidates
    (the base with BM25, whitened, or with a linear map learnt from pairs) are compared by queries
    about the second part. The chosen one takes the base's place only if it is better on the sealed
    part, by the 95 % interval of the paired difference, and general quality has not fallen.
    """
    if budget < SHORTEST_BUDGET:
        raise OptionError("budget", budget, f"must be at least {SHORTEST_BUDGET:g} seconds")
    _check_people(queries, collection, clicks, update)
    target = Path(output)
    base, place, previous = _begin(base, update, target)
    if isinstance(source, str | Path):
        source = open_documents(Path(source).absolute(), columns=columns, most=max_file_text)
        if source.source.resolve().is_relative_to(target.resolve()):
            raise OutputError(f"{target}: holds the documents themselves; choose another folder")
    if resume and (done := shipping.finished(target)) is not None:
        return shipping.tidied(done, keep_candidates)
    shipping.check_target(target, resume=resume, overwrite=overwrite)
    work = Work(
        target / shipping.WORK,
        {
            "source": str(source),
            "base": base,
            "update": previous and previous.stamp,
            "budget": budget,
            "queries": None if queries is None else str(queries),
            "collection": None if collection is None else str(collection),
            "clicks": None if clicks is None else str(clicks),
            "columns": None if columns is None else list(columns),
            "max_file_text": max_file_text,
            "seed": seed,
        },
        resume=resume,
    )
    if base is None or place is None:
        base, place = _base(source, say)
    encoder = Encoder.load(place, normalise=False)
    kept = work.folder / "passages.jsonl"
    try:
        if previous is not None:
            previous.check_model(encoder)
        if not kept.is_file():
            write_reading(kept, _read(source, encoder, previous))
        reading = load_reading(kept)
        user_queries = read_user_queries(queries, collection, reading, say)
        log = read_clicks(clicks, reading, user_queries, say)
    except OutputError:
        raise
    except UserError:
        work.discard()  # a corrected run is another run
        with suppress(OSError):  # it may have held something before
            target.rmdir()
        raise
    for line in reading.lines:
        say(line)
    run = Stages(
        work, reading, encoder, place, base, previous, user_queries, log, budget, seed, say
    )
    done = run.finish(target)
    return shipping.tidied(done, keep_candidates)


def _begin(
    base: str | None, update: str | Path | None, target: Path
) -> tuple[str | None, Path | None, Previous | None]:
    """Name and folder of the model to begin from, if one is given, and what is updated."""
    if update is None:
        return base, None if base is None else resolve(base), None
    if base is not None:
        raise OptionError("base", base, "an update begins from the model that is updated")
    place = resolve(str(update))
    return str(update), place, open_previous(place, target)


def _base(source: Documents, say: Say) -> tuple[str, Path]:
    """The installed base for the language of the first documents."""
    some = islice(source, SAMPLED)
    texts = ("\n".join(part.paragraphs) for document in some for part in document.sections)
    chosen = choose_base(texts, installed_bases())
    say(f"base: {chosen.name}; {chosen.reason}")
    return chosen.name, resolve(chosen.name)


def _check_people(
    queries: str | Path | None,
    collection: str | Path | None,
    clicks: str | Path | None,
    update: str | Path | None,
) -> None:
    """Reject user queries that cannot be used."""
    if queries is not None and collection is not None:
        raise OptionError("queries", str(queries), "give queries or a collection, not both")
    for given in (queries, collection, clicks):
        if given is not None and not Path(given).exists():
            raise InputError(given, missing(Path(given)))
        if given is not None and update is not None:
            problem = "an update is judged by queries made of old and new text alone; leave it out"
            raise OptionError("update", str(given), problem)


def _read(source: Documents, encoder: Encoder, previous: Previous | None) -> Reading:
    def count(texts: Sequence[str]) -> list[int]:
        found = encoder.tokenizer.backend.encode_batch_fast(list(texts))
        return [len(one.ids) for one in found]

    reading = read_source(source, count_tokens=count, max_tokens=encoder.max_tokens)
    if previous is not None:
        return with_previous(previous, reading)
    if len(reading.documents) < FEWEST_DOCUMENTS:
        raise InputError(
            str(source),
            f"holds {len(reading.documents)} documents; at least {FEWEST_DOCUMENTS} are needed, to "
            "learn from some and prove it on others; give more, or search these with "
            "'contrasent index'",
        )
    if len(reading.passages) < FEWEST_PASSAGES:
        raise InputError(
            str(source),
            f"holds {len(reading.passages)} passages of text, and at least {FEWEST_PASSAGES} are "
            "needed to adapt anything; give more documents, or search these with "
            "'contrasent index'",
        )
    return reading
