"""Targets of fuzzing: readers of files and requests that strangers may have made.

Each target takes bytes, makes damage of them, and reads it. It may return or raise a ``UserError``;
anything else is a fault. ``tests/test_fuzz.py`` feeds them random bytes for a moment, and
``benchmarks/fuzz.py`` lets atheris, which sees which lines were reached, look for a minute each.
"""

import asyncio
import copy
import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from contrasent.errors import UserError

DIMENSION = 4
ODD = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 1e308, 0.5, "", "cosine", "..", "/etc",
    "../x", "\x00", "\ud800", "segment-000001", "é", [], {}, [[]], [None], {"a": 1}, {"": []},
    float("nan"), float("inf"), "9" * 5000,
)  # fmt: skip


RUDE = (b"\xff", b"\0" * 8, b"\xff" * 8, b"\x80\x7f", b"{", b'"', b"9", b"(", b"O")


class Draw:
    """Decisions, taken from bytes; zeros when they are used up."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def number(self, below):
        width = 1 if below <= 256 else 4
        taken = self.data[self.at : self.at + width]
        self.at += width
        return int.from_bytes(taken, "little") % below

    def choice(self, options):
        return options[self.number(len(options))]

    def rest(self):
        taken = self.data[self.at :]
        self.at = len(self.data)
        return taken


def odd_json(draw, value):
    """JSON with up to four of its values replaced, doubled or taken away; or bytes of its own."""
    if draw.number(8) == 0:
        return draw.rest()
    value = copy.deepcopy(value)
    for _ in range(1 + draw.number(4)):
        value = _changed(draw, value)
    nested = draw.number(64)
    text = json.dumps(value)
    if nested == 1:
        text = "[" * 100_000
    if nested == 2:
        text = text.replace("1", "1" * 5000, 1)
    return text.encode("utf-8", "surrogatepass")


def _changed(draw, value, depth=0):
    inside = isinstance(value, dict | list) and len(value) and depth < 6
    if not inside or draw.number(5) == 0:
        return copy.deepcopy(draw.choice(ODD))
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draw.choice(keys)
    what = draw.number(10)
    if what == 0:
        value.pop(key)
    elif what == 1 and isinstance(value, dict):
        value[draw.choice(["name", "files", "$or", "x", "type", "bytes"])] = value[key]
    elif what == 2 and isinstance(value, list):
        value.append(copy.deepcopy(value[key]))
    else:
        value[key] = _changed(draw, value[key], depth + 1)
    return value


def odd_bytes(draw, content):
    """Bytes with up to four places overwritten; as long as they were, since sizes are checked."""
    content = bytearray(content)
    for _ in range(1 + draw.number(4)):
        at = draw.number(max(1, len(content)))
        new = draw.choice(RUDE)
        content[at : at + len(new)] = new[: max(0, len(content) - at)]
    return bytes(content)


def encode(texts):
    """Vectors that depend on the texts, without a model."""
    rows = [np.frombuffer(text.encode().ljust(DIMENSION)[:DIMENSION], np.uint8) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, DIMENSION) + 1


def contents(folder):
    """The small files of a folder, by their paths in it."""
    paths = [p for p in folder.rglob("*") if p.is_file() and p.stat().st_size < 100_000]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


# --------------------------------------------------------------------------- model folders


def _in_folder(files, use):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "f"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        use(folder)


@cache
def _model_files():
    from contrasent.encoder.encoder import TorchEncoder
    from tiny_models import write_backbone, write_tokenizer

    with tempfile.TemporaryDirectory() as place:
        bare, folder = Path(place) / "bare", Path(place) / "model"
        write_backbone("bert", bare, write_tokenizer("bert", bare))
        TorchEncoder.load(bare, pooling="first_last", head="tanh", normalize=True).save(folder)
        return contents(folder)


def _use_model(folder):
    from contrasent.encoder.heads import read_head
    from contrasent.model.description import describe
    from contrasent.model.golden import read_golden

    read_head(describe(folder).head)
    read_golden(folder)


def model_folder(data):
    draw, files = Draw(data), dict(_model_files())
    name = draw.choice(sorted(name for name in files if name.endswith(".json")))
    files[name] = odd_json(draw, json.loads(files[name]))
    _in_folder(files, _use_model)


def golden_and_weights(data):
    draw, files = Draw(data), dict(_model_files())
    name = draw.choice(sorted(name for name in files if name.endswith(".safetensors")))
    files[name] = odd_bytes(draw, files[name]) if draw.number(2) else draw.rest()
    _in_folder(files, _use_model)


CONFIG_ONLY = ("config.json", "sentence_bert_config.json", "modules.json", "tokenizer.json")


def configs(data):
    """A model folder with one forged file of settings, encoding by numpy."""
    from contrasent.model.opening import open_encoder

    draw, files = Draw(data), dict(_model_files())
    name = draw.choice([*CONFIG_ONLY, *sorted(n for n in files if n.endswith("/config.json"))])
    files[name] = odd_json(draw, json.loads(files[name]))

    def use(folder):
        open_encoder(folder, runtime="numpy", check=False).encode(["a map", "the copper kettle"])

    _in_folder(files, use)


# --------------------------------------------------------------------------- documents

MARKS = (
    "# ", "## ", "a\n===\n", "---\n", "```\n", "~~~ ", "- ", "1. ", "> ", "|a|b|\n|-|-|\n", "|",
    "[a](b)", "![", "[^1]: ", "[a]: b\n", "<b>", "<!-- ", "-->", "<script>", "</", "&amp;", "&#0;",
    "&#1114112;", "\t", "\n\n", "    ", "\\", "`", "**", "_", "title: x\n", "+++\n", "\x00", "\r",
    "\u202e", "word ", "http://a.b/c?d ", "AKIAABCDABCDABCDABCD ", ":a:`b <c>`", "1" * 5000,
)  # fmt: skip


def markdown(data):
    """Texts made of marks and of bytes, as files of the formats that are read as text."""
    from contrasent.documents.archives import Entry, Skip
    from contrasent.documents.parsers import documents
    from contrasent.documents.passages import cut

    draw = Draw(data)
    suffix = draw.choice([".md", ".md", ".md", ".txt", ".html"])
    text = "".join(draw.choice(MARKS) * (1 + draw.number(3)) for _ in range(draw.number(200)))
    content = text.encode() + draw.rest()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"a{suffix}"
        path.write_bytes(content)
        entry = Entry(path.name, suffix, len(content), str(path), 0)
        try:
            found = documents(entry, None, 10**6, "", lambda *_: None)
            for row in cut(found, lambda texts: [len(t.split()) for t in texts], 16):
                json.dumps(row).encode()
        except Skip:
            pass


# --------------------------------------------------------------------------- filters


def filters(data):
    from contrasent.search.filters import check_where, milvus_expression, parse_where
    from contrasent.search.index import Index

    draw = Draw(data)
    if draw.number(2):
        where = parse_where([draw.rest().decode("utf-8", "replace")])
    else:
        start = {
            "$or": [{"n": {"$gte": 1, "$lt": 5}}, {"$not": {"tags": {"$contains": "a"}}}],
            "a.b": {"$in": [1, "x", None]},
            "c": {"$exists": True},
        }
        try:
            where = json.loads(odd_json(draw, start))
        except (ValueError, RecursionError):
            return
    if where is None:
        return
    check_where(where)
    values = [None, {"n": 3, "tags": ["a", 1]}, {"a": {"b": "x"}}, [1], "text"]
    index = Index.build(encode, ["1", "2", "3", "4", "5"], metadata=values)
    index.matching(where)
    milvus_expression(where)


# --------------------------------------------------------------------------- requests


@cache
def _app():
    from types import SimpleNamespace

    from contrasent.model.base import Prompts
    from contrasent.search.index import Index
    from contrasent.serve.app import create_app
    from contrasent.serve.guard import ServerSettings
    from contrasent.types import Tokens

    def tokenize(texts, prompt=""):
        rows = Tokens.from_rows([[1, *text.encode()[:5], 2] for text in texts])
        return rows, np.zeros(len(texts), dtype=bool)

    frame = np.array([1]), np.array([2])
    encoder = SimpleNamespace(
        identity="m", dimension=DIMENSION, max_seq_length=7, matryoshka_dims=(), prompts=Prompts(),
        tokenizer=SimpleNamespace(size=300, frame=frame, knows=lambda word: True),
        tokenize=tokenize,
        embed=lambda tokens: np.ones((len(tokens), DIMENSION), dtype=np.float32),
    )  # fmt: skip
    index = Index.build(encode, ["a", "b"], metadata=[{"n": 1}, None], model="m")
    limits = ServerSettings(max_body=20_000, max_inputs=8, max_compared=4, timeout=60)
    app = create_app(encoder, "m", index=index, settings=limits)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(app.router.lifespan_context(app).__aenter__())
    return app, loop


BODIES = {
    "/v1/embeddings": {
        "input": ["a", "b"], "model": "m", "encoding_format": "base64", "dimensions": 2,
        "user": "u",
    },
    "/similarity": {"a": ["a", "b"], "b": "c"},
    "/search": {"query": ["a"], "k": 2, "threshold": 0.1, "where": {"n": {"$gte": 1}}},
}  # fmt: skip


def requests(data):
    draw = Draw(data)
    path = draw.choice(sorted(BODIES))
    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    if draw.number(16) == 0:
        name = draw.choice([b"content-length", b"authorization", b"host"])
        headers.append((name, draw.rest()[:9]))
    body = odd_json(draw, BODIES[path])
    stated = [{"type": "http.request", "body": body, "more_body": False}]
    sent = []

    async def receive():
        if stated:
            return stated.pop()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    async def ask():
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await asyncio.wait_for(app(scope, receive, send), 240)

    app, loop = _app()
    loop.run_until_complete(ask())
    status = sent[0]["status"]
    assert status < 500, (path, status, body[:200])
    json.loads(b"".join(message.get("body", b"") for message in sent))


# --------------------------------------------------------------------------- texts to index


def records(data):
    from contrasent.search.records import Records, TableColumns

    draw = Draw(data)
    suffix = draw.choice([".txt", ".csv", ".tsv", ".jsonl", ".txt.gz", ".csv.gz", ".parquet"])
    start = {
        ".txt": b"one\ntwo \xc3\xa9\n\n",
        ".csv": b'id,text,n\n1,"a, ""b""",2\n2,"c\nd",3\n',
        ".tsv": b"id\ttext\n1\ta\n",
        ".jsonl": b'{"id": 1, "text": "a", "n": [1]}\n{"id": 2, "text": "b"}\n',
    }.get(suffix, b"")
    damaged = [start, odd_bytes(draw, start), start + draw.rest(), draw.rest()]
    options = draw.choice([(), ("0",), ("text", (), "id", ("*",))])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"rows{suffix}"
        path.write_bytes(damaged[draw.number(4)])
        for _ in Records(str(path), TableColumns(*options)):
            pass


TARGETS = (
    model_folder, golden_and_weights, configs, markdown, filters, requests, records,
)  # fmt: skip
TARGETS = {function.__name__: function for function in TARGETS}


def feed(name, data):
    """Give a target its bytes; a message for users is no fault."""
    try:
        TARGETS[name](data)
    except UserError as error:
        assert "\n" not in str(error).strip(), f"more than a line: {error}"
