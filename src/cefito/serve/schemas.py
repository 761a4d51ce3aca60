"""Requests and answers as they are in JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)

from cefito.inference.named_constraints import NamedConstraints
from cefito.search.registry import SEARCHES
from cefito.serve.problems import Problem

__all__ = [
    "BatchAnswer",
    "BatchRequest",
    "ConstraintsRequest",
    "Health",
    "ModelAnswer",
    "ObservationsRequest",
    "PlanAnswer",
    "PlanRequest",
    "UploadRequest",
    "VideoRequest",
    "VideosAnswer",
]

_MOST_FEATURES = 1 << 17
_MOST_NAMED = 64  # actions in each part of the constraints
_LONGEST = 300  # characters of a name

Text = Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST)]
# Beyond nine digits nothing is an id; JSON knows no bound.
Whole = Annotated[StrictInt, Field(ge=0, le=999_999_999)]
Name = Annotated[Whole | Text, Field(description="Id or name.")]
Names = Annotated[list[Name], Field(max_length=_MOST_NAMED)]
Step = Annotated[StrictStr, Field(pattern=r"^[1-9][0-9]{0,3}$")]
Observation = Annotated[
    Annotated[list[float], Field(min_length=1, max_length=_MOST_FEATURES)]
    | Annotated[StrictStr, Field(max_length=_MOST_FEATURES * 6)],
    Field(
        description="Numbers, or base64 of little-endian float32.",
        examples=[[0.25, -1.5, 3.0], "AACAPgAAwL8AAEBA"],
    ),
]


class Request(BaseModel):
    """Base of requests: nothing is converted, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ObservationsRequest(Request):
    """Two observations, made as those of the run's data set were."""

    initial: Observation
    goal: Observation


class VideoRequest(Request):
    """A window of an annotated video of a data set that the service has opened."""

    id: Text
    step: Whole = Field(0, description="Index of the window's first step, from 0.")
    split: Literal["train", "val", "test"] | None = Field(
        None, description="Split that the video must be of."
    )
    dataset: Text | None = Field(None, description="Name of the data set, where several are open.")


class ConstraintsRequest(Request):
    """What every plan must satisfy; actions by id or name."""

    pin: dict[Step, Name] = Field(
        default_factory=dict,
        max_length=_MOST_NAMED,
        description="The action of each step that is known, steps counted from 1.",
        examples=[{"1": 17}],
    )
    require: Names = Field(default_factory=list, description="Actions that must occur.")
    forbid: Names = Field(default_factory=list, description="Actions that must not occur.")
    before: list[Annotated[list[Name], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list,
        max_length=_MOST_NAMED,
        description="Pairs [A, B]: where both occur, every A stands before every B.",
    )
    no_repeats: StrictBool = Field(False, description="No action may occur twice.")

    def named(self) -> NamedConstraints:
        """The same for the library."""
        return NamedConstraints(
            pinned=tuple((int(step), action) for step, action in self.pin.items()),
            required=tuple(self.require),
            forbidden=tuple(self.forbid),
            before=tuple((first, second) for first, second in self.before),
            no_repeats=self.no_repeats,
        )


class UploadRequest(Request):
    """What is asked for, besides the observations."""

    run: Text | None = Field(None, description="Name of the run; may be left out where one fits.")
    horizon: Whole | None = Field(None, description="Number of actions; picks the run.")
    top_k: Annotated[StrictInt, Field(ge=1, le=10_000)] = Field(5, description="Plans wanted.")
    search: Literal[tuple(SEARCHES)] | None = Field(  # type: ignore[valid-type]
        None, description="Name of the search; by default the run's."
    )
    budget: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Of the search auto: 10⁹ operations up to which it is exact."
    )
    tasks: Whole | None = Field(
        None, description="Likeliest tasks to consider; 0 for as many as did best in training."
    )
    task: Name | None = Field(None, description="The task, instead of the predicted one.")
    objective: Literal["energy", "prior", "fitted", "likelihood"] | None = Field(
        None, description="What is minimised; by default the run's."
    )
    constraints: ConstraintsRequest = Field(default_factory=ConstraintsRequest)
    min_probability: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="How probable the best plan must be for the answer to be sure."
    )
    deadline_seconds: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Seconds from the request's arrival to its answer; of an upload, from when it "
        "is encoded.",
    )


class PlanRequest(UploadRequest):
    """A query: the observations, or a video's window, and what is asked for."""

    observations: ObservationsRequest | None = None
    video: VideoRequest | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.observations is None) == (self.video is None):
            raise ValueError("expected exactly one of 'observations' and 'video'")
        return self


class BatchRequest(Request):
    """Several queries; each is read by itself, so that a bad one leaves the others as they are."""

    queries: Annotated[
        list[Any],
        Field(min_length=1),
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 1,
                "items": {"$ref": "#/components/schemas/PlanRequest"},
            }
        ),
    ]


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Named(Answer):
    """A task or an action."""

    id: int
    name: str


class TaskOut(Answer):
    """The task of the best plan; null where the method has no notion of tasks."""

    id: int | None
    name: str | None
    source: Literal["predicted", "given"] | None
    probability: float | None = Field(description="Of the task; null where given or not known.")


class PlanOfAnswer(Answer):
    """One plan."""

    actions: list[Named]
    energy: float
    score: float = Field(description="What plans are ordered by, lower is better.")
    probability: float | None = Field(description="Of plan and task; null where there is none.")
    task: Named | None = Field(description="The task that it was found for.")


class EffortOfAnswer(Answer):
    """What the search cost."""

    search: str | None
    tasks: int = Field(description="Tasks that were searched.")
    token_forwards: int = Field(description="Tokens that went through the network.")
    leaves: int = Field(description="Sequences whose energy was computed.")
    most_gflop: float | None = Field(description="What it could have cost, known before, 10⁹.")
    walked_with: int = Field(description="Queries of other requests that were walked along.")
    interrupted: bool = Field(description="Whether the deadline stopped it.")


class PlanAnswer(Answer):
    """The plans of one query."""

    request_id: str
    run: str
    horizon: int
    task: TaskOut
    plans: list[PlanOfAnswer] = Field(description="Best first.")
    exact: bool = Field(description="Whether no other allowed sequence is better.")
    sure: bool | None = Field(description="Whether the best plan is as probable as was asked for.")
    searched_mass: float | None = Field(
        description="Share of all probability that the sequences compared hold."
    )
    weights: dict[str, float] | None = Field(description="Of the objective's terms.")
    effort: EffortOfAnswer
    milliseconds: float = Field(description="From the arrival of the request to its answer.")
    truth: list[Named] | None = Field(description="The annotated actions, of queries by video.")
    dataset: str | None = Field(description="Of queries by video, where it is not the run's own.")


class BatchAnswer(Answer):
    """An answer, or a problem in its place, for each query in its order."""

    request_id: str
    answers: list[PlanAnswer | Problem]
    milliseconds: float


class TaskOfModel(Named):
    """A task with the ids of its actions."""

    actions: list[int]


class RunOfModel(Answer):
    """A run that the service has opened."""

    name: str
    horizon: int
    method: str
    planner: str
    observation_dim: int
    dataset: str
    fingerprint: str = Field(description="Of the data set; empty for imported weights.")
    simulated: bool = Field(description="Whether its observations are simulated.")
    seed: int | None
    search: dict[str, Any] | None = Field(description="Settings of its search.")
    probabilities: bool
    constraints: bool
    true_task: bool
    uploads: list[Literal["pictures", "video"]]
    datasets: list[str] = Field(description="Opened data sets whose videos it can plan.")
    versions: dict[str, str] = Field(description="Of what it was trained with.")
    tasks: list[TaskOfModel]
    actions: list[Named]


class LimitsOfModel(Answer):
    """What the service does at most."""

    top_k: int
    queries: int
    gflop: float
    deadline_seconds: float
    longest_seconds: float
    body_bytes: int
    upload_bytes: int
    upload_pixels: int
    queue: int


class ModelAnswer(Answer):
    """What the service plans with."""

    runs: list[RunOfModel]
    searches: list[str]
    limits: LimitsOfModel
    versions: dict[str, str] = Field(description="Of what the service runs on.")


class StepOfVideo(Answer):
    """A step of a video; the id is the run's, null where the run does not know the action."""

    id: int | None
    name: str
    start: float = Field(description="Second at which it begins.")
    end: float = Field(description="Second at which it ends.")


class VideoOfAnswer(Answer):
    """An annotated video."""

    id: str
    dataset: str
    split: str
    task: Named
    steps: list[StepOfVideo]
    first_steps: list[int] = Field(description="Where windows of the run's horizon may begin.")


class VideosAnswer(Answer):
    """Videos of the opened data sets whose task the run knows."""

    run: str
    horizon: int
    total: int = Field(description="How many there are, of which this is a part.")
    videos: list[VideoOfAnswer]


class Health(Answer):
    """That the service is there."""

    status: Literal["ok", "ready"]
