"""As much of the hub's HTTP interface as pushing and pulling a model needs, in memory."""

import base64
import hashlib
import json

from fastapi import FastAPI, Request, Response


def stand_in():  # noqa: C901
    """The application; ``app.state.commits`` is {commit: {path: bytes}}, in order."""
    app = FastAPI()
    state = app.state
    state.commits, state.names, state.blobs, state.token = {}, set(), {}, "hf_right"

    def allowed(request):
        return request.headers.get("authorization") == f"Bearer {state.token}"

    @app.post("/api/repos/create")
    async def create(request: Request):
        if not allowed(request):
            return Response("{}", 401)
        body = await request.json()
        name = "/".join(x for x in (body.get("organization"), body["name"]) if x)
        if name in state.names:
            return Response(json.dumps({"url": f"{request.base_url}{name}"}), 409)
        state.names.add(name)
        return {"url": f"{request.base_url}{name}", "name": name}

    @app.post("/api/validate-yaml")
    async def validate(request: Request):
        assert "---" in (await request.json())["content"]
        return {"errors": [], "warnings": []}

    @app.post("/api/models/{owner}/{name}/preupload/{revision}")
    async def preupload(request: Request):
        body = await request.json()
        return {
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith("safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in body["files"]
            ]
        }

    @app.post("/{owner}/{name}.git/info/lfs/objects/batch")
    async def batch(request: Request):
        body = await request.json()
        objects = [
            {
                "oid": item["oid"],
                "size": item["size"],
                "actions": {"upload": {"href": f"{request.base_url}blobs/{item['oid']}"}},
            }
            for item in body["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    @app.put("/blobs/{oid}")
    async def blob(oid: str, request: Request):
        data = await request.body()
        assert hashlib.sha256(data).hexdigest() == oid
        state.blobs[oid] = data
        return {}

    @app.post("/api/models/{owner}/{name}/commit/{revision}")
    async def commit(owner: str, name: str, request: Request):
        last = next(reversed(state.commits.values()), {})
        files = dict(last)
        for line in (await request.body()).splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = state.blobs[value["oid"]]
        oid = hashlib.sha1(repr(sorted(files)).encode() + bytes([len(state.commits)])).hexdigest()
        state.commits[oid] = files
        url = f"{request.base_url}{owner}/{name}/commit/{oid}"
        return {"success": True, "commitOid": oid, "commitUrl": url}

    def info(owner, name, revision):
        if f"{owner}/{name}" not in state.names:
            return Response("{}", 404, {"X-Error-Code": "RepoNotFound"})
        oid = next(reversed(state.commits)) if revision == "main" else revision
        if oid not in state.commits:
            return Response("{}", 404, {"X-Error-Code": "RevisionNotFound"})
        siblings = [{"rfilename": path} for path in state.commits[oid]]
        return {"id": f"{owner}/{name}", "sha": oid, "siblings": siblings, "tags": []}

    @app.get("/api/models/{owner}/{name}")
    async def newest(owner: str, name: str):
        return info(owner, name, "main")

    @app.get("/api/models/{owner}/{name}/revision/{revision}")
    async def at(owner: str, name: str, revision: str):
        return info(owner, name, revision)

    @app.get("/api/models/{owner}/{name}/tree/{revision}")
    async def tree(owner: str, name: str, revision: str):
        files = state.commits.get(revision)
        if files is None:
            return Response("{}", 404, {"X-Error-Code": "RevisionNotFound"})
        return [
            {
                "type": "file",
                "path": path,
                "size": len(data),
                "oid": hashlib.sha1(data).hexdigest(),
            }
            for path, data in files.items()
        ]

    @app.api_route("/{owner}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
    async def resolve(revision: str, path: str, request: Request):
        data = state.commits.get(revision, {}).get(path)
        if data is None:
            return Response("", 404, {"X-Error-Code": "EntryNotFound"})
        headers = {
            "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
            "X-Repo-Commit": revision,
            "Accept-Ranges": "bytes",
        }
        if request.method == "HEAD":
            return Response(b"", 200, {**headers, "Content-Length": str(len(data))})
        return Response(data, 200, headers)

    return app
