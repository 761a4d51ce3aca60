"""The pages at `/` and `/session`, and frames and films of videos."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import anyio.to_thread
from fastapi import APIRouter, Query
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import FileResponse, HTMLResponse, Response

from cefito.data.annotations import Video, nfc
from cefito.data.prepared import PreparedDataset
from cefito.errors import CefitoError
from cefito.report.frames import EACH, VideoFiles, find_video_files
from cefito.search.constraints import Declared, EachAction, OneAction, declared
from cefito.serve.models import Models
from cefito.serve.problems import ProblemError

_KEPT = 512  # frames in memory, each of at most `_MOST` bytes
_MOST = 2 * EACH
_SIDE = 256  # pixels of a frame's longer side

Text = Annotated[str, Query(max_length=300)]
Whole = Annotated[int, Query(ge=0, le=999_999_999)]


def page_router(models: Models) -> APIRouter:
    """The routes of the pages of a service with these runs and data sets."""
    router = APIRouter(include_in_schema=False)
    frames = _Frames(models)

    @router.get("/")
    def page() -> HTMLResponse:
        return _rendered("plan.html.j2", runs=models.runs, constraints=_constraint_forms())

    @router.get("/session")
    def session() -> HTMLResponse:
        runs = [one for one in models.runs if one.run.planner.abilities.any_length]
        return _rendered("session.html.j2", runs=runs)

    @router.get("/look.css")
    def look() -> Response:
        shared = files("cefito.report") / "templates" / "look.css"
        return Response(shared.read_bytes(), media_type="text/css")

    @router.get("/frame")
    async def frame(
        run: Text,
        horizon: Whole,
        dataset: Text,
        video: Text,
        step: Whole,
        side: Literal["start", "end"],
        length: Whole | None = None,
    ) -> Response:
        last = step + (horizon if length is None else length) - 1
        picture = await frames.picture(run, horizon, dataset, video, step, last, side == "end")
        if picture is None:
            return Response(status_code=204)
        return Response(
            picture,
            media_type="image/jpeg",
            headers={"cache-control": "private, max-age=3600"},
        )

    @router.get("/film")
    def film(run: Text, horizon: Whole, dataset: Text, video: Text) -> Response:
        found = frames.video(run, horizon, dataset, video)
        path = None if found is None else frames.file(*found)
        return Response(status_code=204) if path is None else FileResponse(path)

    return router


def _rendered(template: str, **values: Any) -> HTMLResponse:
    environment = Environment(
        loader=PackageLoader("cefito.serve.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template).render(version=version("cefito"), **values)
    return HTMLResponse(page)


class _ConstraintForm(NamedTuple):
    """A form that adds a constraint: its words, with inputs in their places."""

    how: Declared
    shape: Literal["map", "list", "value"]  # of its value in a request
    kinds: list[str]  # "step", "action" or "number" of each part of an entry
    inputs: list[tuple[str, int]]  # label of each input and the part that it gives, as displayed


@cache
def _constraint_forms() -> list[_ConstraintForm]:
    forms = []
    for kind, how in declared().values():
        several = get_origin(kind) is tuple
        entry = get_args(kind)[0] if several else kind
        parts = get_args(entry) if get_origin(entry) is tuple else (entry,)
        names = {int: "step" if several else "number", OneAction: "action", EachAction: "action"}
        kinds = [names[part] for part in parts if part is not bool]
        inputs: list[tuple[str, int]] = []
        for text, field, _, _ in Formatter().parse(how.words):
            if field is not None:
                inputs.append((f"{text.strip()} …", int(field) if field else len(inputs)))
            elif inputs:  # words after the last input
                label, part = inputs[-1]
                inputs[-1] = (f"{label} {text.strip()}", part)
        shape: Literal["map", "list", "value"] = "list" if several else "value"
        if several and "step" in kinds:
            shape = "map"
        forms.append(_ConstraintForm(how, shape, kinds, inputs))
    return forms


class _Frames:
    """Files of videos of the opened data sets, and frames; one is decoded at a time, then cached.

    Files are found by the ids of the data set. Text of a client is compared with these ids, and is
    never a path.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._files: dict[str, VideoFiles] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        self._cached = lru_cache(_KEPT)(self._find)

    def video(
        self, run: str, horizon: int, dataset: str, video: str
    ) -> tuple[PreparedDataset, Video] | None:
        """The data set of a run that has a video, and the video; None if there is none."""
        try:
            served = self._models.find(run, horizon)
        except ProblemError:
            return None
        for match, index in served.videos.get(nfc(video), ()):
            if match.dataset.name == dataset:
                return match.dataset, match.dataset.videos[index]
        return None

    def file(self, dataset: PreparedDataset, video: Video) -> Path | None:
        """The file of a video; None if the data set names none that is there."""
        if dataset.fingerprint not in self._files:
            self._files[dataset.fingerprint] = find_video_files(dataset)
        path = self._files[dataset.fingerprint].paths.get(video.video_id)
        return path if path is not None and path.is_file() else None

    async def picture(self, *wanted: Any) -> bytes | None:
        """The arguments of `_find`, off the event loop."""
        if self._limiter is None:  # belongs to the event loop
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(self._cached, *wanted, limiter=self._limiter)

    def _find(
        self, run: str, horizon: int, dataset: str, video: str, step: int, last: int, goal: bool
    ) -> bytes | None:
        """The frame where a window begins or ends, as JPEG; None if it cannot be shown."""
        from cefito.encoders.frames import thumbnails

        if (found := self.video(run, horizon, dataset, video)) is None:
            return None
        path, steps = self.file(*found), found[1].steps
        if path is None or not 1 <= step <= last <= len(steps):
            return None
        time = steps[last - 1].end if goal else steps[step - 1].start
        try:
            ((_, picture),) = thumbnails(path, [max(0.0, time)], most=_MOST, side=_SIDE)
        except CefitoError:  # it cannot be read: the page shows the second alone
            return None
        return picture
