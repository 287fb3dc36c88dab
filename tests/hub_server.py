"""A server that answers as the hub does, with the files of one repository."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0de"


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

    @contextmanager
    def running(self):
        """The address where it answers."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def reply(self):
                status, headers, content = hub.answer(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    hub.asked.append(unquote(urlsplit(self.path).path))
                    self.wfile.write(content)

            do_GET = do_HEAD = reply

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
