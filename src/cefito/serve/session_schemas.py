"""Requests and answers of live sessions in JSON."""

from __future__ import annotations

from typing import Annotated, Literal, Self

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


class _OneUpload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = self.model_fields_set - {"request"}
        picture, video, second = (name for name in type(self).model_fields if name != "request")
        if given not in ({picture}, {video, second}):
            found = ", ".join(map(repr, sorted(given))) or "nothing"
            raise ValueError(
                f"expected the file '{picture}', or '{video}' with '{second}'; found {found}"
            )
        return self


class GoalForm(_OneUpload):
    """The uploaded goal of a session: a picture, or a second of a video."""

    goal: File = Field(None, description="Picture after the last step.")
    video: File = Field(None, description="A video, instead of the picture.")
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


class SceneForm(_OneUpload):
    """An uploaded observation for a session: a picture, or a second of a video."""

    initial: File = Field(None, description="Picture of the present scene.")
    video: File = Field(None, description="A video, instead of the picture.")
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
