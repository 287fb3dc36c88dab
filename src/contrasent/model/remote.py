"""A model behind a server with OpenAI's interface, as an ``EncodeFn``."""

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urldefrag, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from contrasent.errors import ModelError, OptionError
from contrasent.model.base import TASKS
from contrasent.types import EncodeFn, Task, Vectors

KEY = "CONTRASENT_API_KEY"  # variable of the environment that holds the key
LARGEST = 256 * 1024 * 1024
TIMEOUT = 120.0
ATTEMPTS = 4
LONGEST_WAIT = 30.0
BUSY = (429, 500, 502, 503, 504)


def is_address(name: str) -> bool:
    """Whether a model's name is a server's address."""
    return "://" in name


def check_address(address: str, option: str) -> None:
    """Reject an address that is not http."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(option, address, "is no http:// or https:// address")


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the key goes to the named server alone."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        """Follow nothing."""


class RemoteModel:
    """A served model; sentences in, vectors out."""

    # A busy or failing server is tried again a few times, once it has answered at all. Prompts are
    # put before texts only by a server that names them in its list of models, as ours does.

    def __init__(self, address: str, *, batch: int = 64, option: str = "MODEL") -> None:
        bare, of_address = urldefrag(address)
        check_address(bare, option)
        self.base = bare.rstrip("/")
        self.base = self.base if self.base.endswith("/v1") else f"{self.base}/v1"
        self.batch, self.requests, self.dimension = batch, 0, 0
        self._answered = False
        self.name = of_address
        listed: list[dict[str, Any]] = []
        with suppress(ModelError) if self.name else nullcontext():  # not every server has one
            listed = self._listed()
        if not self.name:
            if not listed:
                raise ModelError(f"{self.base}/models: names no model; write {bare}#MODEL")
            self.name = str(listed[0]["id"])
        about = next((one for one in listed if one["id"] == self.name), {})
        self.identity = str(about.get("identity") or "")
        self._prompts = about.get("prompts") or {}

    def _listed(self) -> list[dict[str, Any]]:
        found = self._talk("models", None).get("data")
        rows = found if isinstance(found, list) else []
        return [row for row in rows if isinstance(row, dict) and "id" in row]

    def for_task(self, task: Task) -> EncodeFn:
        """Encode queries or documents; see ``types.for_task``."""
        named = next((n for n in TASKS[task] if n in self._prompts), None)
        return self if named is None else lambda texts: self._encode(texts, named)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """(n, d) vectors, in requests of ``batch`` texts."""
        return self._encode(texts, None)

    def _encode(self, texts: Sequence[str], prompt: str | None) -> Vectors:
        blocks = []
        for start in range(0, len(texts), self.batch):
            part = list(texts[start : start + self.batch])
            body = {"model": self.name, "input": part, "encoding_format": "float"}
            answer = self._talk("embeddings", body | ({"prompt_name": prompt} if prompt else {}))
            blocks.append(self._vectors(answer, len(part)))
        sizes = {block.shape[1] for block in blocks}
        if len(sizes) > 1:
            raise ModelError(f"{self.base}: gave vectors of different sizes ({sorted(sizes)})")
        self.dimension = sizes.pop() if sizes else self.dimension
        return np.concatenate(blocks) if blocks else np.empty((0, self.dimension), np.float32)

    def _vectors(self, answer: dict[str, Any], count: int) -> Vectors:
        try:
            rows = sorted(answer["data"], key=lambda item: item["index"])
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{self.base}: did not answer with vectors ({error})") from error
        if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
            raise ModelError(f"{self.base}: gave {vectors.shape} for {count} texts")
        return vectors

    def _talk(self, path: str, body: Any) -> dict[str, Any]:
        """One answer; once a server has answered, some failures are waited out."""
        self.requests += 1
        attempts = ATTEMPTS if self._answered else 1
        found = exchange(f"{self.base}/{path}", body, KEY, attempts=attempts)
        self._answered = True
        return found


def exchange(
    url: str,
    body: Any,
    key: str,
    *,
    timeout: float = TIMEOUT,
    attempts: int = ATTEMPTS,
    until: float = math.inf,
) -> dict[str, Any]:
    """The JSON object that a server answers with; failures that may pass are waited out.

    ``key`` is the variable that holds the key, ``until`` the time (monotonic) not to wait beyond.
    """
    secret = os.environ.get(key, "").strip()
    for attempt in range(attempts):
        try:
            return _send(url, body, secret, max(0.1, min(timeout, until - time.monotonic())))
        except _Busy as error:
            wait = min(max(error.wait, 0.5 * 2**attempt), LONGEST_WAIT)
            if attempt == attempts - 1 or time.monotonic() + wait >= until:
                raise
            time.sleep(wait)
    raise AssertionError  # the last attempt returns or raises


def _send(url: str, body: Any, secret: str, timeout: float) -> dict[str, Any]:
    headers, data, until = {"Accept": "application/json"}, None, time.monotonic() + timeout
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    content = bytearray()
    try:
        opener = build_opener(_NoRedirect)
        with opener.open(Request(url, data, headers), timeout=timeout) as answer:
            while part := answer.read1(1 << 20):
                content += part
                if len(content) > LARGEST or time.monotonic() > until:
                    raise TimeoutError(f"no whole answer in {timeout:.0f} s")
        found = json.loads(content)
    except HTTPError as error:
        words = ""
        with error, suppress(OSError, HTTPException):
            words = " ".join(error.read(500).decode("utf-8", "replace").split())
        words = words.replace(secret, "...") if secret else words  # some servers repeat the key
        problem = f"{url}: answered {error.code}: {words}"
        if error.code not in BUSY:
            raise ModelError(problem) from error
        after = error.headers.get("Retry-After") or ""
        raise _Busy(problem, float(after) if after.isdecimal() else 0.0) from error
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise _Busy(f"{url}: does not answer ({reason})") from error
    except ValueError as error:
        raise ModelError(f"{url}: did not answer with JSON") from error
    if not isinstance(found, dict):
        raise ModelError(f"{url}: did not answer with a JSON object")
    return found


class _Busy(ModelError):
    """A failure that may pass, and after how many seconds to try again."""

    def __init__(self, problem: str, wait: float = 0.0) -> None:
        super().__init__(problem)
        self.wait = wait
