"""A model behind a server with OpenAI's interface, as an ``EncodeFn``."""

import json
import os
import ssl
import time
import weakref
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import httpx
import numpy as np

from contrasent.errors import InputError, ModelError, OptionError
from contrasent.model.base import TASKS
from contrasent.types import EncodeFn, Task, Vectors, batched

KEY = "CONTRASENT_API_KEY"  # variable of the environment that holds the key
LARGEST = 256 * 1024 * 1024
TIMEOUT = 120.0
ATTEMPTS = 4
LONGEST_WAIT = 30.0
BUSY = (429, 500, 502, 503, 504)


def is_address(name: str) -> bool:
    """Whether a model's name is a server's address."""
    return "://" in name


def check_key(given: str, place: str | Path = KEY) -> str:
    """A key without space around it; one that no header of a request can hold is an error."""
    key = given.strip()
    if not (key and key.isascii() and key.isprintable()):
        raise InputError(place, "must contain a key of printable ASCII characters")
    return key


class JsonServer:
    """A server that answers with JSON objects, over one open connection.

    Redirects are not followed: the key goes to the named server alone.
    """

    def __init__(self, base: str, timeout: float = TIMEOUT) -> None:
        self.base, self.timeout = base, timeout
        self._secret = check_key(given) if (given := os.environ.get(KEY)) else ""
        headers = {"Accept": "application/json", "User-Agent": "contrasent"}
        headers |= {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        trusted = ssl.create_default_context()  # whom the system trusts, such as a company's own
        self._client = httpx.Client(headers=headers, timeout=timeout, verify=trusted)
        weakref.finalize(self, self._client.close)

    def ask(self, path: str, body: Any = None, *, attempts: int = ATTEMPTS) -> dict[str, Any]:
        """The answer to a JSON body, or to a GET; a request to a silent or busy server is repeated.

        Raises:
            ModelError: it does not answer, or not with a JSON object.
        """
        for attempt in range(attempts):
            last = attempt == attempts - 1
            wait = 0.5 * 2**attempt
            try:
                response, content = self._answer(f"{self.base}/{path}", body)
            except ModelError:
                if last:
                    raise
            else:
                if last or response.status_code not in BUSY:
                    break
                after = response.headers.get("Retry-After", "")
                wait = max(wait, float(after) if after.isdecimal() else 0.0)
            time.sleep(min(wait, LONGEST_WAIT))
        url = response.url
        if not response.is_success:
            words = " ".join(content[:500].decode("utf-8", "replace").split())
            if self._secret:
                words = words.replace(self._secret, "...")  # some servers repeat the key
            raise ModelError(f"{url}: answered {response.status_code}: {words}")
        try:
            answer = json.loads(content)
        except ValueError as error:
            raise ModelError(f"{url}: did not answer with JSON") from error
        if not isinstance(answer, dict):
            raise ModelError(f"{url}: did not answer with a JSON object")
        return answer

    def _answer(self, url: str, body: Any) -> tuple[httpx.Response, bytes]:
        until = time.monotonic() + self.timeout
        content, method = bytearray(), "GET" if body is None else "POST"
        try:
            with self._client.stream(method, url, json=body) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > LARGEST or time.monotonic() > until:
                        raise TimeoutError(f"no complete answer within {self.timeout:g} s")
        except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise ModelError(f"{url}: is not responding ({error})") from error
        return response, bytes(content)


class RemoteModel:
    """A served model; sentences in, vectors out.

    A busy or failing server is tried again a few times, once it has answered at all. Prompts are
    put before texts only by a server that names them in its list of models, as contrasent's does.
    """

    def __init__(self, address: str, *, batch_size: int = 64, option: str = "MODEL") -> None:
        bare, self.name = urldefrag(address)
        try:
            url = httpx.URL(bare)
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in ("http", "https") or not url.host:
            raise OptionError(option, bare, "is not an http:// or https:// address")
        self.base = f"{bare.rstrip('/').removesuffix('/v1')}/v1"
        self._server, self._attempts = JsonServer(self.base), 1
        self.batch_size, self.dimension = batch_size, 0
        listed: list[dict[str, Any]] = []
        with suppress(ModelError) if self.name else nullcontext():  # not every server has one
            rows = self._talk("models", None).get("data")
            rows = rows if isinstance(rows, list) else []
            listed = [row for row in rows if isinstance(row, dict) and "id" in row]
        if not (self.name or listed):
            raise ModelError(f"{self.base}/models: lists no model; write {bare}#MODEL")
        self.name = self.name or str(listed[0]["id"])
        about = next((entry for entry in listed if entry["id"] == self.name), {})
        self.identity = str(about.get("identity") or "")
        self._prompts = about.get("prompts") or {}

    def for_task(self, task: Task) -> EncodeFn:
        """Encode queries or documents; see ``types.for_task``."""
        known = [name for name in TASKS[task] if name in self._prompts]
        # An empty one is named too, or the server would take its default prompt.
        named = next((name for name in known if self._prompts[name]), known[0] if known else None)
        return self if named is None else lambda texts: self._encode(texts, prompt_name=named)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """(n, d) vectors, in requests of ``batch_size`` texts."""
        return self._encode(texts)

    def _encode(self, texts: Sequence[str], **prompt: str) -> Vectors:
        blocks = []
        for part in batched(texts, self.batch_size):
            body = {"model": self.name, "input": part, "encoding_format": "float", **prompt}
            answer = self._talk("embeddings", body)
            try:
                rows = sorted(answer["data"], key=lambda item: item["index"])
                vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
            except (KeyError, TypeError, ValueError) as error:
                raise ModelError(f"{self.base}: did not answer with vectors ({error})") from error
            if vectors.ndim != 2 or len(vectors) != len(part) or not np.isfinite(vectors).all():
                raise ModelError(f"{self.base}: gave {vectors.shape} for {len(part)} texts")
            blocks.append(vectors)
        sizes = {block.shape[1] for block in blocks}
        if len(sizes) > 1:
            raise ModelError(f"{self.base}: returned vectors of different sizes ({sorted(sizes)})")
        self.dimension = sizes.pop() if sizes else self.dimension
        return np.concatenate(blocks) if blocks else np.empty((0, self.dimension), np.float32)

    def _talk(self, path: str, body: Any) -> dict[str, Any]:
        answer = self._server.ask(path, body, attempts=self._attempts)
        self._attempts = ATTEMPTS
        return answer
