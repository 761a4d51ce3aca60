"""Routes of whole videos: their steps are recognised or verified."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio.to_thread
import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from starlette.requests import Request

from cefito.arrays import load_npy
from cefito.errors import CefitoError
from cefito.inference.recordings import Recording, recording_of, row_rate
from cefito.inference.verification import verify
from cefito.inference.whole_videos import recognise
from cefito.runs.run import Run
from cefito.serve.models import Served
from cefito.serve.problems import ProblemError
from cefito.serve.requests import answered, check_numbers, find_video, of_field, read_row
from cefito.serve.schemas import (
    MOST_VIDEO_ROWS,
    RecogniseRequest,
    RecogniseUploadRequest,
    TrackAnswer,
    VerifyAnswer,
    VerifyRequest,
    VerifyUploadRequest,
    VideoForm,
    WholeVideoRequest,
)
from cefito.serve.service import Service, Watch
from cefito.serve.sessions import MANY
from cefito.serve.uploads import kept
from cefito.tracks import Track

_UNNAMED = "video"  # name of the video of rows
_Rows = NDArray[np.floating[Any]]
_Answer = TypeVar("_Answer", bound=TrackAnswer)


class WholeVideos:
    """Answers about whole videos."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, app: FastAPI) -> None:
        """Add the routes of videos, but those of uploads, to an application."""
        add = partial(app.add_api_route, methods=["POST"], tags=["videos"])
        add("/v1/recognise", self.recognise)
        add("/v1/verify", self.verify)

    async def recognise(self, request: Request, body: RecogniseRequest) -> TrackAnswer:
        """Recognise the steps of a whole video, with their times and probabilities."""
        return await self._recognised(request, body)

    async def recognise_upload(
        self, request: Request, form: VideoForm, body: RecogniseUploadRequest
    ) -> TrackAnswer:
        """Recognise the steps of an upload."""
        return await self._recognised(request, body, await self._uploaded(form, body))

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyAnswer:
        """Say which steps were skipped, out of order, added, repeated or done wrongly."""
        return await self._verified(request, body)

    async def verify_upload(
        self, request: Request, form: VideoForm, body: VerifyUploadRequest
    ) -> VerifyAnswer:
        """Verify an upload."""
        return await self._verified(request, body, await self._uploaded(form, body))

    async def _recognised(
        self, request: Request, body: RecogniseUploadRequest, rows: _Rows | None = None
    ) -> TrackAnswer:
        def ask(run: Run, whole: Any) -> Track:
            known: Any = {"task": body.task, "steps_known": body.steps_known}
            return recognise(run, whole, **known, least=body.min_probability)

        return await self._called(request, body, rows, ask, TrackAnswer)

    async def _verified(
        self, request: Request, body: VerifyUploadRequest, rows: _Rows | None = None
    ) -> VerifyAnswer:
        def ask(run: Run, whole: Any) -> Track:
            asked: Any = {"task": body.task, "false_alarms": body.false_alarms}
            asked["per_steps"] = body.per_steps
            return verify(run, whole, **asked, online=body.online, least=body.min_probability)

        return await self._called(request, body, rows, ask, VerifyAnswer)

    async def _called(
        self,
        request: Request,
        body: WholeVideoRequest,
        rows: _Rows | None,
        ask: Callable[[Run, Any], Track],
        kind: type[_Answer],
    ) -> _Answer:
        """The answer to a request, which many rows [n, D] make an expensive one."""
        served = self._service.models.find(body.run, body.horizon)
        sent, track = getattr(body, "rows", None), getattr(body, "track", None)
        large = track is None and (sent is None or len(sent) > MANY)
        large |= getattr(body, "online", False)  # as many verifications as there are steps

        def call(_watch: Watch) -> _Answer:
            if kind is VerifyAnswer:
                _ = served.run.own_verifier  # refuses a run without one, whatever the source
            whole = track or _recording(served, body, rows)
            with of_field(_field(body)):
                answer = ask(served.run, whole)
            return kind(**answered(served, served.run.horizon, request.state.began), track=answer)

        return await self._service.call(
            request, served, call, expensive=large, seconds=body.deadline_seconds
        )

    async def _uploaded(self, form: VideoForm, body: WholeVideoRequest) -> _Rows:
        """The rows [n, D] of an upload."""
        if form.features is not None:
            return await anyio.to_thread.run_sync(_loaded, form.features.file)
        if body.rate is not None:
            raise ProblemError("'rate' is of features; a video has one row a second.", "rate")
        assert form.video is not None  # of the form
        served = self._service.models.find(body.run, body.horizon)
        return await self._service.observed_film(served, form.video.file)


def _field(body: WholeVideoRequest) -> str:
    """The field that a request takes its video from."""
    names = ("rows", "video", "track")
    return next((name for name in names if getattr(body, name, None) is not None), "features")


def _loaded(features: BinaryIO) -> _Rows:
    """The array in an uploaded file."""
    with kept({"features": features}) as paths:
        path: Path = paths["features"]
        try:
            rows = load_npy(path)
        except CefitoError as problem:
            detail = str(problem).replace(str(path), "'features'")
            raise ProblemError(detail, "features", kind="upload") from problem
    if rows.dtype.kind not in "fiu" or rows.ndim != 2:
        fault = f"'features' holds {rows.dtype} {list(rows.shape)}; expected numbers [rows, D]"
        raise ProblemError(f"{fault}, one array.", "features", kind="upload")
    check_numbers(rows, "features")
    return rows


def _recording(served: Served, body: WholeVideoRequest, rows: _Rows | None) -> Recording:
    """The video of a request: rows of an upload, its own rows, or one of a data set."""
    width = served.run.own_recogniser.width  # refuses a run without one, whatever the source
    if rows is not None:
        return _of_rows(served, rows, body)
    assert isinstance(body, RecogniseRequest | VerifyRequest)
    if body.rows is not None:
        sent = [read_row(row, f"rows.{place}", width) for place, row in enumerate(body.rows)]
        return _of_rows(served, np.stack(sent), body)
    assert body.video is not None  # of the request
    match = find_video(served, body.video, "video")
    with of_field("video"):
        return _checked(served, recording_of(match, body.video.id))


def _of_rows(served: Served, rows: _Rows, body: WholeVideoRequest) -> Recording:
    return _checked(served, Recording(_UNNAMED, "", rows, row_rate(served.run, body.rate)))


def _checked(served: Served, whole: Recording) -> Recording:
    """Refuse more rows than a request may hold, also at the rate of the run's recogniser."""
    count = len(whole.rows) * max(1.0, served.run.own_recogniser.rate / whole.rate)
    if count > MOST_VIDEO_ROWS:
        detail = f"{count:,.0f} rows: a video has at most {MOST_VIDEO_ROWS:,}. Send it in parts."
        raise ProblemError(detail, limit=MOST_VIDEO_ROWS, kind="too-large")
    return whole
