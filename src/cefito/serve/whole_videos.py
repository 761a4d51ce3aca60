"""Routes of whole videos: their steps are recognised or verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from cefito.arrays import load_npy
from cefito.errors import CefitoError
from cefito.inference.recordings import Recording, recording_of, row_rate
from cefito.inference.whole_videos import recognise, verify
from cefito.serve.models import Served
from cefito.serve.problems import ProblemError
from cefito.serve.requests import answered, find_video, of_field, read_row
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

    async def recognise(self, request: Request, body: RecogniseRequest) -> TrackAnswer:
        """Recognise the steps of a whole video, with their times and probabilities."""
        return await self._recognised(request, body, lambda served: _recording(served, body))

    async def recognise_upload(
        self, request: Request, form: VideoForm, body: RecogniseUploadRequest
    ) -> TrackAnswer:
        """Recognise the steps of an upload."""
        rows = await self._uploaded(form, body)
        return await self._recognised(request, body, lambda served: _of_rows(served, rows, body))

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyAnswer:
        """Say which steps were skipped, out of order, added, repeated or done wrongly."""
        if (track := body.track) is not None:
            return await self._verified(request, body, lambda _: track)
        return await self._verified(request, body, lambda served: _recording(served, body))

    async def verify_upload(
        self, request: Request, form: VideoForm, body: VerifyUploadRequest
    ) -> VerifyAnswer:
        """Verify an upload."""
        rows = await self._uploaded(form, body)
        return await self._verified(request, body, lambda served: _of_rows(served, rows, body))

    async def _recognised(
        self,
        request: Request,
        body: RecogniseUploadRequest,
        source: Callable[[Served], Recording],
    ) -> TrackAnswer:
        def answer(served: Served) -> TrackAnswer:
            known: Any = {"task": body.task, "steps_known": body.steps_known}
            whole = source(served)
            with of_field(_field(body)):
                track = recognise(served.run, whole, **known, least=body.min_probability)
            facts = answered(served, served.run.horizon, request.state.began)
            return TrackAnswer(**facts, track=track)

        return await self._called(request, body, answer)

    async def _verified(
        self,
        request: Request,
        body: VerifyUploadRequest,
        source: Callable[[Served], Track | Recording],
    ) -> VerifyAnswer:
        def answer(served: Served) -> VerifyAnswer:
            _ = served.run.own_verifier  # refuses a run without one, whatever the source
            asked: Any = {"task": body.task, "false_alarms": body.false_alarms}
            asked["online"] = body.online
            whole = source(served)
            with of_field(_field(body)):
                track = verify(served.run, whole, **asked, least=body.min_probability)
            facts = answered(served, served.run.horizon, request.state.began)
            return VerifyAnswer(**facts, track=track)

        return await self._called(request, body, answer)

    async def _called(
        self, request: Request, body: WholeVideoRequest, answer: Callable[[Served], _Answer]
    ) -> _Answer:
        """The answer to a request, which many rows make an expensive one."""
        served = self._service.models.find(body.run, body.horizon)
        rows, track = getattr(body, "rows", None), getattr(body, "track", None)
        large = track is None and (rows is None or len(rows) > MANY)
        large |= getattr(body, "online", False)  # as many verifications as there are steps

        def call(_: Watch) -> _Answer:
            return answer(served)

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
    return rows


def _recording(served: Served, body: RecogniseRequest | VerifyRequest) -> Recording:
    """The video of a request: its rows, or one of a data set."""
    width = served.run.own_recogniser.width  # refuses a run without one, whatever the source
    if body.rows is not None:
        rows = [read_row(sent, f"rows.{place}", width) for place, sent in enumerate(body.rows)]
        return _of_rows(served, np.stack(rows), body)
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
