"""Requests and answers of live sessions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cefito.inference.answer import PlannedSequence
from cefito.inference.session import Belief, Likely
from cefito.serve.schemas import (
    MOST_DONE,
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
