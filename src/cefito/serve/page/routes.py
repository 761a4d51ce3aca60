"""The routes of the page: `/`, its style and script, and frames of videos."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from cefito.serve.models import Models
from cefito.serve.page.frames import Frames

__all__ = ["POLICY", "page_router"]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy of the page: nothing inline, and nothing from elsewhere."""
_HEADERS = {"content-security-policy": POLICY}
_KEPT = {"cache-control": "private, max-age=3600"}

Text = Annotated[str, Query(max_length=300)]
Whole = Annotated[int, Query(ge=0, le=999_999_999)]


def page_router(models: Models) -> APIRouter:
    """The routes of the page.

    Args:
        models: The runs and data sets of the service.
    """
    router = APIRouter(include_in_schema=False)
    frames = Frames(models)

    @router.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(_page(models), headers=_HEADERS)

    @router.get("/page.css")
    def style() -> Response:
        return Response(_style(), media_type="text/css")

    @router.get("/page.js")
    def script() -> Response:
        return Response(_script(), media_type="text/javascript")

    @router.get("/frame")
    async def frame(
        run: Text,
        horizon: Whole,
        dataset: Text,
        video: Text,
        step: Whole,
        side: Literal["start", "end"],
    ) -> Response:
        picture = await frames.picture(run, horizon, dataset, video, step, goal=side == "end")
        if picture is None:
            return Response(status_code=204)
        return Response(picture, media_type="image/jpeg", headers=_KEPT)

    return router


def _page(models: Models) -> str:
    environment = Environment(
        loader=PackageLoader("cefito.serve.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        runs=models.runs, version=version("cefito")
    )


@cache
def _style() -> str:
    """The look of reports, and what the page has beside it."""
    shared = files("cefito.report") / "templates" / "look.css"
    own = files("cefito.serve.page") / "static" / "page.css"
    return shared.read_text(encoding="utf-8") + own.read_text(encoding="utf-8")


@cache
def _script() -> str:
    return (files("cefito.serve.page") / "static" / "page.js").read_text(encoding="utf-8")
