"""The documentation of the interface at /docs: Swagger UI from the package, nothing from elsewhere.

Its files are kept compressed and are sent so; whoever takes no gzip gets them unpacked.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_FOLDER = files("cefito.serve") / "swagger"
_FILES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
    "LICENSE": "text/plain; charset=utf-8",
    "NOTICE": "text/plain; charset=utf-8",
    "LICENSE-bundled.txt": "text/plain; charset=utf-8",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>cefito: the interface</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="docs"><noscript>The interface as a document: <a href="openapi.json">openapi.json</a>.
</noscript></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""


@router.get("/docs")
async def docs() -> HTMLResponse:
    """The page."""
    return HTMLResponse(_PAGE)


@router.get("/docs/{name}")
def asset(name: str, request: Request) -> Response:
    """A file of Swagger UI."""
    if name not in _FILES:
        raise HTTPException(404)
    packed = (_FOLDER / f"{name}.gz").is_file()
    data = _read(f"{name}.gz" if packed else name)
    headers = {"content-type": _FILES[name], "cache-control": "max-age=3600"}
    if packed and "gzip" in request.headers.get("accept-encoding", ""):
        headers |= {"content-encoding": "gzip", "vary": "accept-encoding"}
    elif packed:
        data = gzip.decompress(data)
    return Response(data, headers=headers)


@cache
def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
