"""Servers of a test's own; one answers as the hub does, with the files of one repository."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0de"


def send(handler, status, headers, content):
    """Answer a request."""
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(content))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


@contextmanager
def serving(reply):
    """The address of a server that answers a request's handler by ``reply``."""
    known = dict.fromkeys(("do_GET", "do_HEAD", "do_POST"), reply)
    known["log_message"] = lambda handler, *_: None
    kind = type("Handler", (BaseHTTPRequestHandler,), known)
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Hub:
    """Every data set has these files, by name; there is no data set if they are None.

    Attributes:
        asked: the paths of all lists and files that were fetched.
    """

    def __init__(self, files):
        self.files, self.asked = files, []

    def answer(self, path):
        """Status, headers and content."""
        words = unquote(urlsplit(path).path).strip("/").split("/")
        if words == [""]:
            return 200, {}, b""
        if self.files is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if words[:2] == ["api", "datasets"] and words[4] == "tree":
            listed = [
                {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                for name, content in self.files.items()
            ]
            return 200, {"Content-Type": "application/json"}, json.dumps(listed).encode()
        assert (words[0], words[3]) == ("datasets", "resolve"), path
        content = self.files["/".join(words[5:])]
        digest = hashlib.sha256(content).hexdigest()
        return 200, {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT}, content

    def running(self):
        """The address where it answers."""

        def reply(handler):
            answer = self.answer(handler.path)
            if handler.command == "GET":
                self.asked.append(unquote(urlsplit(handler.path).path))
            send(handler, *answer)

        return serving(reply)
