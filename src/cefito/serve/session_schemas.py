"""Uploads, and requests and answers of live sessions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Json, WithJsonSchema, model_validator

from cefito.inference.answer import PlannedSequence
from cefito.inference.session import Belief, Likely
from cefito.serve.schemas import (
    MOST_DONE,
    File,
    Moment,
    Name,
    Observation,
    PlaceRequest,
    RequestBody,
    RunRequest,
    Text,
    UploadRequest,
)


class SessionRequest(RunRequest):
    """A live session; without a goal, its plans lead to the end of the procedure."""

    task: Name | None = Field(None, description="The task, instead of the inferred one.")
    done: Annotated[list[Name], Field(max_length=MOST_DONE)] | None = Field(
        [], description="Actions done before, oldest first; null if unknown."
    )
    goal: Observation | None = None
    goal_video: PlaceRequest | None = Field(None, description="Its end is the goal.")
    goal_text: Text | None = Field(None, description="The goal in words.")

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        if sum(one is not None for one in (self.goal, self.goal_video, self.goal_text)) > 1:
            raise ValueError("expected at most one of 'goal', 'goal_video' and 'goal_text'")
        return self


class EventRequest(RequestBody):
    """An event of a session: an observation, a step done, or undo."""

    observation: Observation | None = None
    video: PlaceRequest | None = Field(None, description="Its start is the observation.")
    done: Name | None = Field(None, description="A step done, by id or name.")
    undo: Literal[True] | None = Field(None, description="Take back the last other event.")

    @model_validator(mode="after")
    def _one_event(self) -> Self:
        given = (self.observation, self.video, self.done, self.undo)
        if sum(one is not None for one in given) != 1:
            raise ValueError("expected exactly one of 'observation', 'video', 'done' and 'undo'")
        return self

    @property
    def kind(self) -> str:
        """Observation, done or undo."""
        return "undo" if self.undo else "observation" if self.done is None else "done"


class UploadedForm(BaseModel):
    """Base of uploads: pictures, or a video with seconds of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    pictures: ClassVar[tuple[str, ...]]  # fields that may be given together
    seconds: ClassVar[tuple[str, ...]]  # the same of a video

    video: File = Field(None, description="A video, instead of pictures.")

    @property
    def given(self) -> set[str]:
        """Names of the files and seconds that are given."""
        return self.model_fields_set - {"request"}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        of_video = self.given - {"video"}
        if not (self.given and self.given <= {*self.pictures}) and not (
            "video" in self.given and of_video and of_video <= {*self.seconds}
        ):
            files, times = (" and ".join(map(repr, each)) for each in (self.pictures, self.seconds))
            found = ", ".join(map(repr, sorted(self.given))) or "nothing"
            raise ValueError(f"expected {files}, or 'video' with {times}; found {found}")
        return self


class UploadForm(UploadedForm):
    """An upload: two pictures, or a video with two of its seconds; one for `any_length`."""

    pictures = ("initial", "goal")
    seconds = ("start", "end")

    initial: File = Field(None, description="Picture before the first step.")
    goal: File = Field(None, description="Picture after the last step.")
    start: Moment = Field(None, description="Second where the first step begins.")
    end: Moment = Field(None, description="Second where the last step ends.")
    request: Annotated[Json[UploadRequest], WithJsonSchema({"type": "string"})] = Field(
        default_factory=UploadRequest,
        description="JSON of the fields of PlanRequest except 'observations' and 'video'.",
    )

    @property
    def whole(self) -> bool:
        """Whether both observations are given."""
        return self.given >= {*self.pictures} or self.given >= {*self.seconds}

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        if self.request.goal_text is not None and self.given & {"goal", "end"}:
            raise ValueError("'goal_text' takes the place of 'goal' and 'end'; leave out one")
        return self


class GoalForm(UploadedForm):
    """The uploaded goal of a session: a picture, or a second of a video."""

    pictures = ("goal",)
    seconds = ("end",)

    goal: File = Field(None, description="Picture after the last step.")
    end: Moment = Field(None, description="Second where the last step ends.")
    request: Annotated[Json[SessionRequest], WithJsonSchema({"type": "string"})] = Field(
        default_factory=SessionRequest,
        description="JSON of the fields of SessionRequest except the goals.",
    )

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        if self.request.model_fields_set & {"goal", "goal_video", "goal_text"}:
            raise ValueError("the upload takes the place of other goals; leave them out")
        return self


class SceneForm(UploadedForm):
    """An uploaded observation for a session: a picture, or a second of a video."""

    pictures = ("initial",)
    seconds = ("start",)

    initial: File = Field(None, description="Picture of the present scene.")
    start: Moment = Field(None, description="Second of the scene.")

    @property
    def kind(self) -> str:
        """Kind of the event."""
        return "observation"


class SessionAnswer(Belief):
    """The state of a live session."""

    id: str
    run: str
    horizon: int
    number: int = Field(description="Of events so far, undo included.")
    events: int = Field(description="Number of events that undo can take back.")
    goal: bool = Field(description="Whether it has a goal.")
    next_steps: list[Likely] = Field(description="Likeliest first.")
    plans: list[PlannedSequence] = Field(description="Of the steps that follow, best first.")
    notes: list[str] = Field(description="Remarks on steps that were not expected, oldest first.")
    most_events: int = Field(description="Limit of `events`.")
    idle_seconds: float = Field(description="Seconds without a request after which it ends.")
