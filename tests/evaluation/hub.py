"""A model hub on this machine: as much of its protocol as pushing and fetching a run takes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler
from typing import Any

import http_servers


class Hub:
    """What lies on it.

    Attributes:
        repositories: Files of each repository, by their names.
        refuse: HTTP status that everything is answered with; 0 for none.
        address: Where it is.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.refuse, self.address, self.private = 0, "", {}

    @property
    def commit(self) -> str:
        """Name of the state that all is in."""
        held = ((name, sorted(files.items())) for name, files in self.repositories.items())
        names = repr(sorted(held))
        return hashlib.sha1(names.encode()).hexdigest()


class _Answers(BaseHTTPRequestHandler):
    hub: Hub

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any, status: int = 200, **headers: str) -> None:
        self._answer(status, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def _none(self, code: str) -> None:
        self._json({"error": code}, 404, X_Error_Code=code)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        if hub.refuse:
            return self._json({"error": "refused"}, hub.refuse)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/.*)?", path):
            if found[1] not in hub.repositories:
                return self._none("RepoNotFound")
            names = [{"rfilename": name} for name in hub.repositories[found[1]]]
            return self._json({"id": found[1], "sha": hub.commit, "siblings": names})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/.*", path):
            files = hub.repositories.get(found[1], {}).items()
            facts = [{"path": name, "size": len(data), "oid": _oid(data)} for name, data in files]
            return self._json([{"type": "file", **fact} for fact in facts])
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, file = found.groups()
            if name not in hub.repositories:
                return self._none("RepoNotFound")
            if revision not in ("main", hub.commit):
                return self._none("RevisionNotFound")
            if file not in hub.repositories[name]:
                return self._json({}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=hub.commit)
            data = hub.repositories[name][file]
            return self._answer(200, data, ETag=f'"{_oid(data)}"', X_Repo_Commit=hub.commit)
        return self._none("EntryNotFound")

    def do_POST(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if hub.refuse:
            return self._json({"error": "refused"}, hub.refuse)
        if path == "/api/repos/create":
            given = json.loads(body)
            name = "/".join(filter(None, (given.get("organization"), given["name"])))
            hub.repositories.setdefault(name, {})
            hub.private[name] = given.get("private")
            return self._json({"url": f"{hub.address}/{name}"})
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if re.fullmatch(r"/api/models/.+/preupload/.+", path):
            names = [file["path"] for file in json.loads(body)["files"]]
            return self._json({"files": [_regular(name) for name in names]})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/.+", path):
            files = hub.repositories[found[1]]
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                if entry["key"] == "deletedFile":
                    for name in [name for name in files if fnmatch(name, entry["value"]["path"])]:
                        del files[name]
            url = f"{hub.address}/{found[1]}/commit/{hub.commit}"
            return self._json({"commitUrl": url, "commitOid": hub.commit, "success": True})
        return self._none("EntryNotFound")


def _oid(data: bytes) -> str:
    """What Git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _regular(name: str) -> dict[str, Any]:
    return {"path": name, "uploadMode": "regular", "shouldIgnore": False, "oid": None}


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers while it is open."""
    hub = Hub()
    with http_servers.serving(type("Answers", (_Answers,), {"hub": hub})) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        yield hub
