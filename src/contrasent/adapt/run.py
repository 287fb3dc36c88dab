"""One adaptation, from documents or an index to a better search."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contrasent.adapt.bench import Bench, queries_of
from contrasent.adapt.cross_validation import learn_from_queries
from contrasent.adapt.learner import train_encoder as fit_encoder
from contrasent.adapt.report import (
    PAGE,
    REPORT,
    gain_of_bm25,
    largest_changes,
    report_facts,
    write_report,
)
from contrasent.adapt.steps import learn_from_text
from contrasent.adapt.user_queries import (
    Files,
    UserQueries,
    folded,
    log_roles,
    needed,
    paths,
    read_user_queries,
    too_few,
)
from contrasent.documents.folder import Documents, DocumentSource, Origin
from contrasent.documents.parsers import TEXT_LIMIT
from contrasent.errors import InputError, OptionError, OutputError, import_extra
from contrasent.files import (
    check_writable,
    only_process,
    remove,
    remove_temporaries,
    write_json,
    write_text,
    writing,
)
from contrasent.indexing.build import read_input
from contrasent.indexing.changes import change_model
from contrasent.indexing.following import count_rows, sync_index
from contrasent.indexing.models import find_index_model, model_settings, open_index_model
from contrasent.indexing.remaining import pace, quick
from contrasent.model.base import TaskEncoder
from contrasent.model.golden import digest
from contrasent.model.opening import find_model
from contrasent.progress import duration
from contrasent.search.folder import in_milvus, is_index
from contrasent.search.index import Index, document_of
from contrasent.search.opening import INSIDE, resolve_index
from contrasent.search.ranking import Ranker
from contrasent.search.records import IndexRow
from contrasent.search.store import Facts
from contrasent.search.writer import WAIT, Writer
from contrasent.text.sources import missing
from contrasent.types import Log, several

STATE, QUERIES, MODEL = "unfinished.json", "queries.jsonl", "model"
USERS = "queries, collection, clicks"  # of what a run was given, as digests
OWN = (STATE, INSIDE, MODEL, QUERIES, PAGE, REPORT)  # what is ours in an output
SHORTEST_BUDGET = 10.0
ENCODING = 0.7  # share of the budget that encoding may take
CheckNames = Callable[[Sequence[str], Mapping[str, Any]], object]
PATIENCE = 600.0  # seconds to wait for a writer before what was learned is lost
PROBED = 64  # passages encoded to estimate the time for all


@dataclass(frozen=True, slots=True)
class Adaptation:
    """The outcome of :func:`adapt_index`.

    Attributes:
        folder: folder with the index, ``report.html`` and ``report.json``.
        improved: whether learning from the queries gave a significant gain and was saved.
        reason: the verdict in one line.
        facts: the content of ``report.json``.
    """

    folder: Path
    improved: bool
    reason: str
    facts: dict[str, Any]


def adapt_index(
    source: str | Path | Documents,
    output: str | Path,
    *,
    model: str | Path | None = None,
    budget: float = 1800.0,
    queries: Files = None,
    collection: Files = None,
    clicks: Files = None,
    columns: Sequence[str] | None = None,
    max_file_text: int = TEXT_LIMIT,
    seed: int = 0,
    train_encoder: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    log: Log = lambda line: None,
) -> Adaptation:
    """Index documents, and learn from user queries to search them better.

    The search starts as ``contrasent index`` would make it. With 40 user queries or more, what is
    learned from them is saved if cross-validation shows a gain. With fewer, what is learned from
    the text alone is saved, without measuring it on these documents.

    Args:
        source: a folder, file or archive of documents, or an index, which is copied.
        output: folder to write the index and the report to.
        model: folder or name of the model; by default the installed one that suits the language.
        budget: most seconds to spend, except for ``train_encoder``.
        queries: tables of user queries, with columns query, document and optionally gain.
        collection: folders of user queries in BEIR's layout.
        clicks: tables of clicks, with columns query, document and optionally count.
        columns: columns of tables to index, the title first.
        max_file_text: skip files with more characters.
        seed: random seed.
        train_encoder: train the model on the queries first, and index by it if it is better on
            held-out queries; needs the extra "train".
        resume: resume a run that was killed.
        overwrite: replace an earlier output; other files in the folder stay.
        log: called with a line about each step.

    Returns:
        The outcome, with the verdict.

    Raises:
        UserError: an input, an option or the output is invalid.

    Examples:
        >>> from contrasent import adapt_index, search_index
        >>> done = adapt_index("examples/handbook", "adapted", queries="examples/asked.csv")
        >>> print(done.reason)
        Improved and saved. Documents with training queries: nDCG@10 ...
        >>> search_index("adapted", "who pays for a broken drill?")[0][0].metadata["document"]
        'tools/damage.md'
    """
    _check_budget(budget)
    target, users = Path(output), (queries, collection, clicks)
    model = None if model is None else str(model)
    columns = None if columns is None else several(columns)
    inputs = [path for files in users for path in paths(files)]
    for place in inputs:
        if not place.exists():
            raise InputError(place, missing(place))
    given = {
        "source": str(source),
        "model": model,
        "columns": columns,
        "max_file_text": int(max_file_text),
        "seed": int(seed),
        "train_encoder": train_encoder,
    }
    asked = given | {USERS: [_digests(files) for files in users]}
    if resume and (done := finished(target)) is not None:
        _check_same(target, done.facts.get("given", {}), asked)
        log(f"{target}: already finished; 'contrasent adapt {target} --update' learns again")
        return done
    documents = _source(source, target, model, columns, max_file_text)
    used = documents.facts.source if isinstance(documents, Index) else model
    if model is not None:
        find_model(model)
    if train_encoder:
        import_extra("torch", "train", "--train-encoder")
        if not inputs:
            raise OptionError("train_encoder", True, f"needs {needed()}")
    log_roles(*users, log)  # before anything is encoded or removed
    inputs += [Path(used)] if used and os.path.exists(used) else []  # noqa: PTH110
    _check_target(target, inputs, resume=resume, overwrite=overwrite)
    state = (_left(target, asked) if resume else {}) or {"given": given}
    run = _AdaptationRun(target, state, budget, seed, log)

    def check(names: Sequence[str], origin: Mapping[str, Any]) -> None:
        root = origin.get("root", "")
        usable, _ = read_user_queries(*users, names, lambda line: None, root=root)
        if train_encoder and (problem := too_few(usable)):
            raise OptionError("train_encoder", True, problem)
        with writing(target):
            if os.path.lexists(run.place) and not is_index(run.place):  # broken: it finds nothing
                remove(run.place)
        write_json(target / STATE, state)

    run.start(documents, model, check)
    run.read(*users)
    state["given"] = asked  # now that they are known to be of use
    write_json(target / STATE, state)
    if train_encoder:
        run.train()
    return run.finish()


def update_adaptation(
    folder: str | Path,
    *,
    queries: Files = None,
    collection: Files = None,
    clicks: Files = None,
    budget: float = 1800.0,
    seed: int = 0,
    log: Log = lambda line: None,
) -> Adaptation:
    """Learn again, in place, after documents or queries changed.

    The index is synchronized with its documents first. Earlier user queries are used again.

    Args:
        folder: output of :func:`adapt_index`.
        queries: tables of further user queries, as for :func:`adapt_index`.
        collection: see :func:`adapt_index`.
        clicks: see :func:`adapt_index`.
        budget: most seconds to spend.
        seed: random seed.
        log: called with a line about each step.

    Raises:
        UserError: the folder was not made by ``adapt_index``, an input is invalid, or another
            process learns again in this folder.
    """
    _check_budget(budget)
    target = Path(folder)
    if not _holds(target / REPORT, "format"):
        raise InputError(
            target, "is not an output of 'contrasent adapt'; create one with -o OUT first"
        )
    log_roles(queries, collection, clicks, log)
    with only_process(target, "is learning again here", WAIT):
        facts = json.loads((target / REPORT).read_text("utf-8"))
        state = {name: facts[name] for name in ("default", "given") if name in facts}
        run = _AdaptationRun(target, state, budget, seed, log)
        run.synchronize()
        # It stays unless the index was encoded by another model; the folder may have been copied.
        if run.index.facts.source in (facts.get("base"), str((target / MODEL).resolve())):
            run.encoder = facts.get("encoder")
        earlier = target / QUERIES
        run.read(queries, collection, clicks, earlier if earlier.is_file() else None)
        return run.finish()


def _check_budget(seconds: float) -> None:
    if seconds < SHORTEST_BUDGET:
        raise OptionError("budget", seconds, f"must be at least {SHORTEST_BUDGET:g} seconds")


def finished(target: Path) -> Adaptation | None:
    """The outcome of a complete adaptation; None if there is none."""
    path = target / REPORT
    if not _holds(path, "format") or (target / STATE).exists():
        return None
    facts = json.loads(path.read_text("utf-8"))
    return Adaptation(target, facts["improved"], facts["reason"], facts)


def _digests(files: Files) -> list[str]:
    """The SHA-256 of every file, also in folders."""
    found = (sorted(path.rglob("*")) if path.is_dir() else [path] for path in paths(files))
    return [digest(path) for several in found for path in several if path.is_file()]


def _left(target: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What a killed run of the same options left to continue with; empty if there is none."""
    if not (target / STATE).is_file():
        return {}
    state: dict[str, Any] = json.loads((target / STATE).read_text("utf-8"))
    _check_same(target, state["given"], asked)
    return state


def _check_same(target: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Reject to resume a run with other options or user queries than it was started with."""
    for name, value in before.items():
        if value != now.get(name):
            what = f"{name} {value!r}, not {now.get(name)!r}"
            if name == USERS:
                what = "other queries, collections or clicks"
            problem = f"was started with {what}; give the same, or --overwrite starts again"
            raise OutputError(f"{target}: {problem}")


def _source(
    source: str | Path | Documents,
    target: Path,
    model: str | None,
    columns: Sequence[str] | None,
    max_file_text: int,
) -> Documents | Index:
    """Documents, or an index to be copied."""
    if not isinstance(source, str | Path):
        return source
    place = resolve_index(source)
    if in_milvus(place):
        raise InputError(place, "is in Milvus; adapt needs a local index")
    if is_index(place):
        if place.resolve().is_relative_to(target.resolve()):
            problem = f"{target}: contains the index; choose another folder"
            if _holds(target / REPORT, "format"):
                problem += f", or 'contrasent adapt {target} --update' learns again in place"
            raise OutputError(problem)
        stated: dict[str, Any] = {"model": model, "columns": columns}
        stated |= {"max_file_text": max_file_text} if max_file_text != TEXT_LIMIT else {}
        for name, value in stated.items():
            if value is not None:
                raise OptionError(
                    name, value, "an index already has a model and texts; omit this option"
                )
        index = Index.open(place)
        index.check_finished("adapt")
        _check_metric(index.facts)
        return index
    path = Path(source).absolute()
    documents = DocumentSource(path, columns=columns, max_file_text=max_file_text)
    if documents.source.resolve().is_relative_to(target.resolve()):
        raise OutputError(f"{target}: contains the documents; choose another folder")
    return documents


def _check_metric(facts: Facts) -> None:
    """Reject an index whose vectors keep their lengths."""
    if facts.metric != "cosine":
        problem = "cannot be learned from; index with --metric cosine, then adapt that index"
        raise OptionError("metric", facts.metric, problem)


def _check_target(target: Path, inputs: Sequence[Path], *, resume: bool, overwrite: bool) -> None:
    """Reject, before any work, an output that exists or cannot be written."""
    there, begun = target.exists(), _holds(target / STATE, "given")
    if target.is_dir():
        remove_temporaries(target, *OWN)
        there = any(target.iterdir())
    if there and overwrite and not resume:
        if not begun and not _holds(target / REPORT, "format"):
            raise OutputError(
                f"{target}: is not an output of contrasent adapt; choose another folder"
            )
        own = [(target / name).resolve() for name in OWN]
        for place in inputs:
            if any(map(place.resolve().is_relative_to, own)):
                raise InputError(place, "would be deleted by --overwrite; copy it elsewhere first")
    elif there and not begun:
        raise OutputError(f"{target}: already exists; choose another folder or add --overwrite")
    elif there and not resume:
        problem = "contains an unfinished adaptation; --resume continues it, --overwrite starts"
        raise OutputError(f"{target}: {problem} again")
    check_writable(target)


def _holds(path: Path, key: str) -> bool:
    """True if a file is a JSON object with this key, as adapt writes it."""
    with suppress(OSError, ValueError):
        facts = json.loads(path.read_text("utf-8"))
        return isinstance(facts, dict) and key in facts
    return False


class _AdaptationRun:
    """One adaptation in progress; ``state`` is what a killed one is to know again."""

    def __init__(
        self, target: Path, state: dict[str, Any], budget: float, seed: int, log: Log
    ) -> None:
        self.target, self.state, self.budget, self.seed, self.log = target, state, budget, seed, log
        self.place, self.began = target / INSIDE, time.monotonic()
        self.lines: list[str] = []
        self.users: UserQueries = []
        self.ignored = ""  # why queries that were given are too few
        self.encoder: dict[str, Any] | None = None  # the verdict about one trained on queries
        self.given: list[dict[str, Any]] = []

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget - (time.monotonic() - self.began)

    def note(self, line: str) -> None:
        """Log a line and add it to the report."""
        self.log(line)
        self.lines.append(line)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """A JSON value of the run, made and stored if it is not known."""
        if name not in self.state:
            self.state[name] = make()
            write_json(self.target / STATE, self.state)
        return self.state[name]

    def start(self, source: Documents | Index, base: str | None, check: CheckNames) -> None:
        """Make the index, or copy it, in place of an earlier one, unless a killed run did."""
        if "read" not in self.state:
            lines: list[str] = []
            if isinstance(source, Index):
                check([*source.row_documents.numbers], source.facts.origin)
                self.log(f"copying {source.folder}")
                source.save(self.place, overwrite=True)
            else:
                lines = make_index(source, self.place, base, self.left(), self.log, check)
            with writing(self.target):
                for path in filter(os.path.lexists, (self.target / name for name in OWN[2:])):
                    remove(path)
            self.kept("read", lambda: lines)
            self.log(f'Index ready; you can search it now: contrasent search {self.target} "..."')
        self.lines += self.state["read"]
        self.open()

    def synchronize(self) -> None:
        """Let the index follow its documents, where it knows them."""
        with closing(Index.open(self.place)) as index:
            origin = Origin.read(index.facts.origin)
        if origin is not None:
            self.note(str(sync_index(self.place)))
        self.open()

    def open(self) -> None:
        """Open the index, its model, and the search to beat."""
        self.index = Index.open(self.place)
        self.encode = open_index_model(self.index)
        self.documents = [*self.index.row_documents.numbers]
        # Stored, since learning changes the ranker of the index before the run is complete.
        default = Ranker(self.index.ranker.bm25_weight)
        self.prior = Ranker.from_json(self.kept("default", default.to_json))

    def read(
        self, queries: Files, collection: Files, clicks: Files, earlier: Path | None = None
    ) -> None:
        """Read the queries of users, also those of an earlier run."""
        if queries or collection or clicks or earlier:
            files, root = (queries, collection, clicks), self.index.facts.origin.get("root", "")
            self.users, self.given = read_user_queries(
                *files, self.documents, self.note, earlier=earlier, root=root
            )
            self.ignored = too_few(self.users)
            if self.ignored:
                self.note(f"Warning: queries ignored: {self.ignored}")
                self.users = []

    def train(self) -> None:
        """Train an encoder on the queries, and index by it if it is better."""
        base, model, began = find_index_model(self.index), self.target / MODEL, time.monotonic()
        if (bench := self.bench()) is None:
            raise OptionError("train_encoder", True, self.ignored or f"needs {needed()}")
        found = self.kept("encoder", lambda: fit_encoder(bench, base, model, self.seed))
        verdict = (
            "Improved and saved" if found["improved"] else "No reliable improvement, the base stays"
        )
        self.note(f"Encoder trained on queries: {verdict}: {found['reason']}")
        if found["improved"]:
            self.encoder = found
            if self.index.facts.source != str(model.absolute()):
                self.index.close()
                most = model_settings(self.index)["max_seq_length"]
                change_model(self.place, model, max_seq_length=most).index.close()
                self.open()
        elif model.exists():
            remove(model)
        self.budget += time.monotonic() - began

    def bench(self) -> Bench | None:
        """The queries on the index; None where there are too few."""
        if not self.users:
            return None
        queries = queries_of(self.users)
        vectors = self.index.query_vectors([query.text for query in queries], self.encode)
        return Bench(self.index, queries, vectors)

    def finish(self) -> Adaptation:
        """Learn from the text and from queries, keep what is better, and write the report."""
        if self.encoder is not None:  # it has seen the others, so they would flatter it
            seen = set(map(folded, self.encoder["seen"]))
            self.users = [user for user in self.users if folded(user[0]) not in seen]
            if too_few(self.users):
                self.ignored = f"the encoder was trained on all but {len(self.users)} of them"
                self.users = []
        bench = self.bench()
        self.log("learning from the text")
        common: dict[str, Any] = {"seed": self.seed, "until": self.left}
        steps = learn_from_text(
            self.index, self.encode, self.prior, log=self.log, evaluate=bench is None, **common
        )
        for line in steps.notes:
            self.log(line)
        ranker, learned, result, bm25_gain = steps.ranker, steps.learned, None, None
        changes: list[dict[str, Any]] = []
        if bench:
            bench.learned = learned
            self.log(f"learning from {len(bench.queries):,} queries")
            result = learn_from_queries(bench, self.prior, start=ranker, **common)
            bm25_gain = gain_of_bm25(bench, self.prior, seed=self.seed)
            ranker, learned = result.ranker, result.learned
            if result.improved:
                changes = largest_changes(bench, result, self.prior, self.encode)
        self.index.close()  # a reader would keep the log of the change
        with Writer(self.place, wait=PATIENCE) as writer:
            was, now = self.index.facts, writer.facts
            if (was.identity, was.vectors) != (now.identity, now.vectors):
                problem = "was rewritten while it was learned from; learn again"
                raise OutputError(f"{self.place}: {problem}")
            writer.set(ranker=ranker, learned=learned)
        facts = report_facts(
            self.prior, ranker, bm25_gain, steps, result, ignored=self.ignored, encoder=self.encoder
        )
        facts |= {
            "base": self.index.facts.source,
            "documents": len(self.documents),
            "passages": len(self.index),
            "queries": {"users": len(self.users)},
            "changes": changes,
            "read": self.lines,
            "given": self.state.get("given", {}),
        }
        if self.given:
            lines = (json.dumps(row, ensure_ascii=False) for row in self.given)
            write_text(self.target / QUERIES, "\n".join(lines) + "\n")
        seconds = time.monotonic() - self.began
        facts["seconds"] = round(seconds, 1)
        self.log(f"finished in {duration(seconds)}")
        write_report(self.target, facts)
        (self.target / STATE).unlink(missing_ok=True)
        return Adaptation(self.target, facts["improved"], facts["reason"], facts)


def make_index(
    source: Documents,
    target: Path,
    base: str | None,
    budget: float,
    log: Log,
    check: CheckNames = lambda names, origin: None,
) -> list[str]:
    """Index documents, or as many of them as the budget allows; lines about what was read.

    ``check`` is given the names of the documents and their origin before anything is encoded.
    """
    index_input = read_input(source, base, log=log)
    _check_metric(index_input.facts)
    lines, rows, count = source.report.lines(), index_input.rows, source.report.documents
    assert isinstance(rows, list)
    check(list(_names(rows)), index_input.facts.origin)
    encode = quick(index_input.encode, sum(len(text) for text, *_ in rows))
    index_input = replace(index_input, encode=encode)
    seconds = _estimate(rows, encode)
    time_needed = f"encoding them takes about {duration(seconds)}"
    log(f"{len(rows):,} passages of {count:,} documents; {time_needed}")
    if seconds > ENCODING * budget:
        rows, few = _sample(rows, ENCODING * budget / seconds)
        minutes = math.ceil(seconds / ENCODING / 60)
        line = (
            f"only {few:,} of {count:,} documents are searched: encoding all takes about "
            f"{duration(seconds)}. --budget {minutes}m covers all; "
            "'contrasent index OUT --sync' adds the rest"
        )
        whole = {file: facts["rows"] for file, facts in index_input.files.items()}
        count_rows(index_input.files, rows)
        files = {file: facts for file, facts in index_input.files.items() if facts["rows"]}
        for file in (file for file, facts in files.items() if facts["rows"] < whole[file]):
            files[file] |= {"digest": "", "modified": 0}  # a sync reads it again
        index_input = replace(index_input, rows=rows, files=files)
        log(line)
        lines.append(line)
    index_input.write(target, overwrite=True).close()
    return lines


def _estimate(rows: Sequence[IndexRow], encode: TaskEncoder) -> float:
    """Seconds that encoding all rows takes, by encoding a few from all over them."""
    probe = [text for text, *_ in rows[:: max(1, len(rows) // PROBED)]][:PROBED]
    return pace(encode, probe) * len(rows)


def _names(rows: Sequence[IndexRow]) -> dict[str, None]:
    """The names of the documents of rows."""
    return dict.fromkeys(document_of(str(name), about) for _, name, about in rows)


def _sample(rows: Sequence[IndexRow], share: float) -> tuple[list[IndexRow], int]:
    """The rows of a share of the documents, drawn by a hash of their names, and how many."""

    def mark(name: str) -> bytes:
        return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()

    names = _names(rows)
    few = set(sorted(names, key=mark)[: max(1, int(share * len(names)))])
    return [row for row in rows if document_of(str(row[1]), row[2]) in few], len(few)
