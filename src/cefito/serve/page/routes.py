"""What the page is made of, and frames of videos, as routes of the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files

import anyio
from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from cefito.data.prepared import PreparedDataset
from cefito.errors import CefitoError
from cefito.planners.run import Run
from cefito.report.frames import EACH, VideoFiles, find_video_files

__all__ = ["POLICY", "PageRun", "page_router"]

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
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FRAMES = 512  # frames kept in memory, of at most `EACH` bytes
_SIDE = 256  # pixels of a frame's longer side


@dataclass(frozen=True)
class PageRun:
    """A run that the page offers.

    Attributes:
        name: Its name in requests.
        run: The run.
        dataset: The data set whose videos can be named; None where there is none.
    """

    name: str
    run: Run
    dataset: PreparedDataset | None


def page_router(runs: Callable[[], Sequence[PageRun]]) -> APIRouter:
    """The routes of the page: `/`, its style and script, and `/frame`.

    Args:
        runs: Gives what is served; asked when a page is, so that it may be loaded later.
    """
    router = APIRouter(include_in_schema=False)
    finder = _Frames(runs)

    @router.get("/", response_class=HTMLResponse)
    def page() -> Response:
        return HTMLResponse(_page(runs()), headers=_HEADERS)

    @router.get("/page.css")
    def style() -> Response:
        return Response(_style(), media_type="text/css", headers=_HEADERS)

    @router.get("/page.js")
    def script() -> Response:
        return Response(_script(), media_type="text/javascript", headers=_HEADERS)

    @router.get("/frame")
    async def frame(run: str, horizon: int, video: str, step: int, side: str) -> Response:
        picture = await finder.picture(run, horizon, video, step, side)
        if picture is None:
            return Response(status_code=204, headers=_HEADERS)
        return Response(
            picture,
            media_type="image/jpeg",
            headers=_HEADERS | {"Cache-Control": "private, max-age=3600"},
        )

    return router


class _Frames:
    """Frames of the videos of the data sets of runs; one is decoded at a time.

    Files are found by the ids of the data set once; what a client says is only compared with ids.
    """

    def __init__(self, runs: Callable[[], Sequence[PageRun]]) -> None:
        self._runs = runs
        self._files: dict[str, VideoFiles] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        self._made = lru_cache(_FRAMES)(self._make)

    async def picture(
        self, run: str, horizon: int, video: str, step: int, side: str
    ) -> bytes | None:
        """A frame at the start or the end of a window; None where there is none."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(
            self._made, run, horizon, video, step, side, limiter=self._limiter
        )

    def _make(self, run: str, horizon: int, video: str, step: int, side: str) -> bytes | None:
        for one in self._runs():
            if (one.name, one.run.horizon) == (run, horizon) and one.dataset is not None:
                return self._frame(one.dataset, horizon, video, step, side)
        return None

    def _frame(
        self, dataset: PreparedDataset, horizon: int, video: str, step: int, side: str
    ) -> bytes | None:
        from cefito.encoders.thumbnails import thumbnails

        if dataset.fingerprint not in self._files:
            self._files[dataset.fingerprint] = find_video_files(dataset)
        path = self._files[dataset.fingerprint].paths.get(video)
        found = next((one for one in dataset.videos if one.video_id == video), None)
        if path is None or found is None or not 0 <= step <= len(found.steps) - horizon:
            return None
        time = found.steps[step].start if side == "start" else found.steps[step + horizon - 1].end
        try:
            ((_, picture),) = thumbnails(path, [max(0.0, time)], most=2 * EACH, side=_SIDE)
        except CefitoError:  # a video that cannot be read: the page shows its time alone
            return None
        return picture


def _page(runs: Sequence[PageRun]) -> str:
    environment = Environment(
        loader=PackageLoader("cefito.serve.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = [
        {
            "name": one.name,
            "horizon": one.run.horizon,
            "dataset": one.run.info.dataset.name,
            "simulated": "simulated" in one.run.info.dataset.name.lower()
            or one.run.info.dataset.simulation is not None,
        }
        for one in runs
    ]
    return environment.get_template("page.html.j2").render(
        runs=shown,
        tasks=runs[0].run.taxonomy.tasks if runs else (),
        version=version("cefito"),
    )


def _style() -> str:
    """The look of reports, and what the page has beside it."""
    shared = files("cefito.report") / "templates" / "look.css"
    own = files("cefito.serve.page") / "static" / "page.css"
    return shared.read_text(encoding="utf-8") + own.read_text(encoding="utf-8")


def _script() -> str:
    return (files("cefito.serve.page") / "static" / "page.js").read_text(encoding="utf-8")
