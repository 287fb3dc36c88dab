"""Queries that a language model writes about passages, served with OpenAI's chat interface."""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

from contrasent import progress
from contrasent.adapt.user_queries import UserQueries, folded, is_foreign, known_words
from contrasent.errors import InputError, ModelError, OptionError
from contrasent.files import writing
from contrasent.model.remote import JsonServer, ServerError, check_address
from contrasent.search.words import words
from contrasent.types import Log

PROMPT = """\
Write what people might type into a search box who need what the passage below says and have not
read it: questions or short queries in the passage's language, but in other words than its own. Each
must make sense without the passage and have at most 15 words. Number of queries: {count}. Write one
a line, and nothing else.

{passage}
"""
OPTION, KEY = "--writer", "OPENAI_API_KEY"  # the variable of the environment with the key
WANTED, EACH = 400, 3  # queries in all, and at most about one passage
DEPTH, TIMED = 20, 3  # rows among which a query must find its document; answers that tell the cost
LONGEST, MAX_TOKENS = 4000, 1500  # characters of a passage; tokens of an answer, thoughts included
TIMEOUT, ATTEMPTS = 60.0, 3
MISSES, FAILURE = 50, 25  # useless answers in a row where it gives up; how many a failure counts
ASKING = 0.9  # share of the time; the rest is for looking whether the queries find their passages
SHORTEST, MOST_WORDS = 2, 40  # words of a query
COPIED = 6  # words from which a query that stands in the passage is copied from it

_THOUGHT = re.compile(r"<(think\w*|reason\w*)>.*?(?:</\1>|\Z)|\A.*</(?:think|reason)\w*>", re.S)
_MARKS = re.compile(r"^[\W_]*(?:(?:\d{1,3}[.):]+|(?:question|query|q) *\d*[:.])\W+)?(?=\w)", re.I)


@dataclass(frozen=True)
class Writer:
    """A served language model and its prompt."""

    url: str  # of the interface, such as http://localhost:8080/v1
    model: str
    prompt: str = PROMPT

    @cached_property
    def server(self) -> JsonServer:
        """The server, whose connection is kept open."""
        return JsonServer(self.url, KEY)

    @classmethod
    def of(cls, address: str, prompt: str | Path | None = None) -> "Writer":
        """The writer at URL#MODEL, with the prompt of a file if there is one."""
        bare, model = urldefrag(address)
        if "@" in urlsplit(bare).netloc:
            raise OptionError(OPTION, "...@...", f"put the key into the variable {KEY}")
        check_address(bare, OPTION)
        if not model:
            raise OptionError(OPTION, address, "names no model: write http://HOST:PORT/v1#MODEL")
        try:
            text = PROMPT if prompt is None else Path(prompt).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(str(prompt), f"cannot be read ({error})") from error
        if "{passage}" not in text:
            raise InputError(str(prompt), "must hold {passage} where the passage is to stand")
        url = bare.rstrip("/")
        return cls(url if urlsplit(url).path else f"{url}/v1", model, text)

    def check(self) -> None:
        """Make sure, before any work, that the server is there and takes the key."""
        try:
            self.server.ask("models", timeout=10.0, attempts=1)
        except ModelError as error:
            status = error.status if isinstance(error, ServerError) else None
            if status is None or status in (401, 403):  # not every server has this list
                remedy = f"start it, or put its key into the variable {KEY}"
                raise OptionError(OPTION, self.url, f"{error}; {remedy}") from error

    def answer(self, prompt: str, until: float) -> tuple[str, int]:
        """An answer without thoughts, and its tokens."""
        path, message = "chat/completions", {"role": "user", "content": prompt}
        body = {"model": self.model, "messages": [message], "max_tokens": MAX_TOKENS}
        found = self.server.ask(path, body, timeout=TIMEOUT, attempts=ATTEMPTS, until=until)
        try:
            content = found["choices"][0]["message"]["content"] or ""
            tokens = int((found.get("usage") or {}).get("total_tokens") or 0)
            return _THOUGHT.sub("", content).strip()[:LONGEST], tokens
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ModelError(f"{self.url}/{path}: did not answer with a message") from error


def write_queries(
    passages: Sequence[tuple[str, int]],
    writer: Writer,
    *,
    kept: Path,
    finds: Callable[[list[str]], list[list[int]]],
    limit: float,
    log: Log,
) -> tuple[UserQueries, dict[str, Any]]:
    """Queries about passages, each with its document's number, in ``limit`` seconds; and facts.

    ``finds`` gives the documents of the best rows for each query. Answers are kept in a file, and
    those that are there are not requested again.
    """
    order = _sample(passages)
    each = max(1, min(EACH, WANTED // max(1, len(order))))
    wanted = min(WANTED // each, len(order))
    log(f"{writer.model} writes {each} queries about each of {wanted} passages: {writer.url}")
    filled = writer.prompt.replace("{count}", str(each))
    prompts = (filled.replace("{passage}", passages[at][0][:LONGEST]) for at in order)
    answers = _ask(prompts, wanted, writer, kept, time.monotonic() + ASKING * limit, log)
    known, lost = known_words(passages[order[number]][0] for number in answers), Counter[str]()
    written: list[tuple[str, int]] = []
    for number, answer in answers.items():
        passage, document = passages[order[number]]
        for query in _lines(answer, lost)[:each]:
            if is_foreign(query, known):
                lost["in another language"] += 1
            elif len(words(query)) >= COPIED and folded(query) in folded(passage):
                lost["copied from their passage"] += 1
            else:
                written.append((query, document))
    found: dict[str, tuple[str, dict[int, float]]] = {}
    places = finds([query for query, _ in written]) if written else []
    for (query, document), first in zip(written, places, strict=True):
        if document in first[:DEPTH]:
            found.setdefault(folded(query), (query, {}))[1][document] = 1.0
        else:
            lost["that do not find their passage"] += 1
    counts = {why: count for why, count in lost.items() if count}
    shown = ", ".join(f"{count} {why}" for why, count in counts.items())
    log(f"{len(found)} queries of {len(answers)} answers; left out: {shown or 'none'}")
    facts = {"passages": wanted, "answers": len(answers), "left_out": counts}
    return list(found.values()), {"model": writer.model, "url": writer.url, **facts}


def _sample(passages: Sequence[tuple[str, int]]) -> list[int]:
    """All passages in the order of asking, one of each document before a second of any."""
    earlier, ranks = Counter[int](), list[tuple[int, int, int]]()
    # By hashes, so that much the same passages, whose answers are kept, are chosen of a later text.
    hashes = [hashlib.sha256(text.encode()).digest() for text, _ in passages]
    for at in sorted(range(len(passages)), key=hashes.__getitem__):
        document = passages[at][1]
        ranks.append((earlier[document], len(ranks), at))
        earlier[document] += 1
    return [at for _, _, at in sorted(ranks)]


def _lines(answer: str, lost: Counter[str]) -> list[str]:
    """The lines of an answer that look like queries, without numbers and marks."""
    lines = [_MARKS.sub("", line).strip(" \t\"'`*_”“»«,;]}") for line in answer.splitlines()]
    found = [line for line in lines if len(words(line)) >= SHORTEST and line[-1] not in ":："]
    short = [line for line in found if len(words(line)) <= MOST_WORDS]
    lost["too long"] += len(found) - len(short)
    lost["answers without a query"] += not found
    return short


def _ask(
    prompts: Iterable[str], wanted: int, writer: Writer, kept: Path, until: float, log: Log
) -> dict[int, str]:
    """Answers by the numbers of their prompts, until so many hold queries, or no more come."""
    stored: dict[str, str] = {}
    for line in kept.read_text("utf-8", "replace").split("\n") if kept.exists() else ():
        with suppress(ValueError, TypeError):  # a line may be torn
            stored.update(json.loads(line or "{}"))
    found: dict[int, str] = {}
    given = tokens = misses = useful = 0
    began, over = time.monotonic(), ""
    with progress.task("written queries", wanted, "answers") as advance:
        for number, prompt in enumerate(prompts):
            if not over and (misses >= MISSES or time.monotonic() >= until):
                over = "gives nothing of use" if misses >= MISSES else "has no time left"
                log(f"{writer.model} {over}, after {given} answers")
            key = hashlib.sha256(f"{writer.model}\n{prompt}".encode()).hexdigest()
            if key not in stored and not over:
                try:
                    stored[key], spent = writer.answer(prompt, until)
                except ModelError as error:
                    misses += FAILURE
                    log(f"no answer: {error}")
                    continue
                with writing(kept), kept.open("a", encoding="utf-8") as stream:
                    stream.write(f"\n{json.dumps({key: stored[key]})}")
                given, tokens = given + 1, tokens + spent
                misses = 0 if _lines(stored[key], Counter()) else misses + 1
                if given == TIMED:
                    now, more = time.monotonic(), (wanted - useful - 1) / given
                    cost = f"{(now - began) * more:.0f} of {until - now:.0f} s"
                    log(f"the other answers cost about {cost} and {tokens * more:,.0f} tokens")
            if key in stored:
                found[number] = stored[key]
                useful += bool(_lines(stored[key], Counter()))
                advance()
            if useful == wanted:
                break
    return found
