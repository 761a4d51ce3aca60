"""Routes of whole videos, whose steps are recognised or verified; requests and answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self, TypeVar

import anyio.to_thread
import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, Json, WithJsonSchema, model_validator
from starlette.requests import Request

from cefito.arrays import load_npy
from cefito.errors import CefitoError
from cefito.inference.recordings import Recording, recording_of, row_rate
from cefito.inference.verification import VerifiedVideo, verify
from cefito.inference.whole_videos import recognise
from cefito.runs.run import Run
from cefito.serve.models import Served
from cefito.serve.problems import ProblemError
from cefito.serve.requests import answered, check_numbers, find_video, of_field, read_row
from cefito.serve.schemas import (
    MOST_NAMED,
    Done,
    File,
    FilmRequest,
    Name,
    Observation,
    RequestBody,
    ResponseBody,
    RunRequest,
    Text,
    check_only_one,
)
from cefito.serve.service import Service, Watch
from cefito.serve.sessions import MANY
from cefito.serve.uploads import kept
from cefito.tracks import TimedStep, Track
from cefito.verification.findings import LEAST

MOST_VIDEO_ROWS = 7200
"""Rows of a whole video: two hours at one a second."""
_MOST_STEPS = 2000  # of a track
_UNNAMED = "video"  # name of the video of rows
_SOURCES = "rows", "video", "track"  # fields that give a video, of which a request has one
_Rows = NDArray[np.floating[Any]]

VideoRows = Annotated[
    list[Observation],
    Field(
        min_length=1,
        max_length=MOST_VIDEO_ROWS,
        description="Rows of the whole video, as the run's recogniser reads them, each as numbers "
        "or as base64 of little-endian float32.",
    ),
]


class WholeVideoRequest(RunRequest):
    """What is asked about a whole video."""

    task: Name | None = Field(None, description="The task, instead of the recognised one.")
    rate: float | None = Field(
        None, gt=0, description="Rows of features a second; by default as in training."
    )
    deadline_seconds: float | None = Field(
        None, gt=0, description="From the arrival, or the end of an upload's encoding, to the end."
    )


class _SourceRequest(WholeVideoRequest):
    """A whole video in a request itself."""

    rows: VideoRows | None = None
    video: FilmRequest | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        check_only_one(self, *(name for name in _SOURCES if name in type(self).model_fields))
        if self.rate is not None and self.rows is None:
            raise ValueError("'rate' is of rows of features; leave it out")
        return self


class RecogniseUploadRequest(WholeVideoRequest):
    """What is recognised in an uploaded video."""

    steps_known: Done | None = Field(
        None, description="All steps in order: only their times are recognised. Needs the task."
    )
    min_probability: float = Field(0.0, ge=0, le=1, description="Leave out less probable steps.")


class RecogniseRequest(RecogniseUploadRequest, _SourceRequest):
    """A whole video whose steps are recognised."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"rows": [[0.1, -0.4], [0.3, -0.2]], "task": "make tea"}]}
    )


class VerifyUploadRequest(WholeVideoRequest):
    """What is verified in an uploaded video."""

    min_probability: float = Field(LEAST, ge=0, le=1, description="Leave out what is less likely.")
    false_alarms: float | None = Field(
        None, ge=0, description="Greatest number an hour, instead of `min_probability`."
    )
    per_steps: int | None = Field(
        None, ge=1, description="Greatest number in so many steps, instead of an hour."
    )
    online: bool = Field(False, description="Judge each step from those before it alone.")


class TrackStepRequest(TimedStep):
    """A step in time of a track; its name counts, not its id."""

    model_config = RequestBody.model_config

    name: Text
    probability: float = Field(1.0, ge=0, le=1)
    errors: Annotated[tuple[Text, ...], Field(strict=False, max_length=MOST_NAMED)] = ()


_TrackSteps = Annotated[
    tuple[TrackStepRequest, ...], Field(strict=False, min_length=1, max_length=_MOST_STEPS)
]


class TrackRequest(Track):
    """Steps in time that are given, or were recognised before."""

    model_config = RequestBody.model_config

    video: Text = "video"
    task: Text = Field("", description="Its name; not needed beside `task` of the request.")
    task_probability: float = Field(1.0, ge=0, le=1)
    seconds: float = Field(0, ge=0, description="Length of the video.")
    steps: _TrackSteps
    drawn: None = Field(None, exclude=True)
    annotated: _TrackSteps | None = None
    file: None = None
    tier: Literal[""] = Field("", exclude=True)


class VerifyRequest(VerifyUploadRequest, _SourceRequest):
    """A whole video, or steps in time, that are verified."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "track": {
                        "task": "make tea",
                        "steps": [
                            {"name": "boil water", "start": 0, "end": 40},
                            {"name": "pour", "start": 45, "end": 52.5},
                        ],
                    }
                }
            ]
        }
    )

    track: TrackRequest | None = None


class VideoForm(BaseModel):
    """An upload of a whole video: its rows or itself; and the other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    features: File = Field(None, description="Rows [n, D], as numpy.save writes them (.npy).")
    video: File = Field(None, description="A video, which the run's encoder encodes.")
    request: Annotated[Json[Any], WithJsonSchema({"type": "string"})] = Field(
        default_factory=dict, description="JSON of the request without its source."
    )

    @model_validator(mode="after")
    def _one_file(self) -> Self:
        check_only_one(self, "features", "video")
        return self


class TrackAnswer(ResponseBody):
    """The steps of a video, and how the service found them."""

    request_id: str
    run: str
    horizon: int
    milliseconds: float = Field(description="Milliseconds from the request's arrival.")
    track: Track


class VerifyAnswer(TrackAnswer):
    """What was wrong in a video, as `cefito verify --json` gives it."""

    track: VerifiedVideo


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
        return await self.recognised(request, body)

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyAnswer:
        """Say which steps were skipped, out of order, added, repeated or done wrongly."""
        return await self.verified(request, body)

    async def recognised(
        self, request: Request, body: RecogniseUploadRequest, form: VideoForm | None = None
    ) -> TrackAnswer:
        """Recognise the steps of the video of a request, or of its upload."""

        def ask(run: Run, whole: Any) -> Track:
            known: Any = {"task": body.task, "steps_known": body.steps_known}
            return recognise(run, whole, **known, least=body.min_probability)

        return await self._called(request, body, form, ask, TrackAnswer)

    async def verified(
        self, request: Request, body: VerifyUploadRequest, form: VideoForm | None = None
    ) -> VerifyAnswer:
        """Verify the video of a request, or its upload."""

        def ask(run: Run, whole: Any) -> Track:
            asked: Any = {"task": body.task, "false_alarms": body.false_alarms}
            asked["per_steps"] = body.per_steps
            return verify(run, whole, **asked, online=body.online, least=body.min_probability)

        return await self._called(request, body, form, ask, VerifyAnswer)

    async def _called(
        self,
        request: Request,
        body: WholeVideoRequest,
        form: VideoForm | None,
        ask: Callable[[Run, Any], Track],
        kind: type[_Answer],
    ) -> _Answer:
        """The answer to a request, which many rows [n, D] make an expensive one."""
        rows = None if form is None else await self._uploaded(form, body)
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
    return next((name for name in _SOURCES if getattr(body, name, None) is not None), "features")


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
    assert isinstance(body, _SourceRequest)
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
