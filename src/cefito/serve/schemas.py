"""Requests and answers in JSON."""

from __future__ import annotations

from typing import Annotated, Any, BinaryIO, Literal, Self

from fastapi import UploadFile
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    create_model,
    model_validator,
)

from cefito.data.vocabulary import Action, Task
from cefito.inference import constraints
from cefito.inference.answer import Answer, PlannedSequence
from cefito.inference.constraints import NamedConstraints
from cefito.inference.following import Followed
from cefito.inference.outlook import Likely
from cefito.inference.question import Question
from cefito.inference.session import Belief
from cefito.markup import Seconds
from cefito.search.constraints import (
    Constraints,
    EachAction,
    OneAction,
    Step,
    by_step,
    declared,
    entry_parts,
)
from cefito.search.settings import SEARCHES
from cefito.serve.settings import Limits

_MOST_FEATURES = 1 << 17
MOST_NAMED = 64  # actions in each part of the constraints, or errors of a step
MOST_ROWS = 600  # of a request

Text = Annotated[StrictStr, Field(min_length=1, max_length=300)]
Title = Annotated[str, Field(max_length=300)] | None
Whole = Annotated[StrictInt, Field(ge=0, le=999_999_999)]
Place = Annotated[StrictInt, Field(ge=1, le=999_999_999)]
Search: Any = Literal[tuple(SEARCHES)]
Objective = Literal["energy", "chain", "fitted"]
Name = Annotated[Whole | Text, Field(description="Id or name.")]
Names = Annotated[list[Name], Field(max_length=MOST_NAMED)]
Done = Annotated[list[Name], Field(max_length=256)]
StepKey = Annotated[StrictStr, Field(pattern=r"^[1-9][0-9]{0,3}$")]
Observation = Annotated[
    Annotated[list[float], Field(min_length=1, max_length=_MOST_FEATURES)]
    | Annotated[StrictStr, Field(max_length=_MOST_FEATURES * 6)],
    Field(
        description="Numbers, or base64 of little-endian float32.",
        examples=[[0.25, -1.5, 3.0], "AACAPgAAwL8AAEBA"],
    ),
]
File = Annotated[UploadFile | None, WithJsonSchema({"type": "string", "format": "binary"})]
Moment = Annotated[
    Annotated[Seconds, Field(ge=0, le=1e6, allow_inf_nan=False)] | None,
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1e6}),
]


class RequestBody(BaseModel):
    """Base of requests: values are not converted, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def check_only_one(body: BaseModel, *names: str) -> None:
    """Refuse a request that has none or several of some fields (ValueError)."""
    if sum(getattr(body, name) is not None for name in names) != 1:
        raise ValueError(f"expected exactly one of {', '.join(map(repr, names))}")


class RunRequest(RequestBody):
    """The choice of a run."""

    run: Text | None = Field(None, description="Name of the run; optional if only one fits.")
    horizon: Whole | None = Field(None, description="Its number of actions, or the largest.")


class ObservationsRequest(RequestBody):
    """Observations, made like the observations of the run's data set; one for `any_length`."""

    initial: Observation | None = None
    goal: Observation | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.initial is None and self.goal is None:
            raise ValueError("expected 'initial', 'goal' or both")
        return self


class FilmRequest(RequestBody):
    """An annotated video of a data set that the service has opened."""

    id: Text
    split: Literal["train", "val", "test"] | None = Field(None, description="Split of the video.")
    dataset: Text | None = Field(None, description="Name of the data set, if several are open.")


class PlaceRequest(FilmRequest):
    """A step of such a video."""

    step: Place = Field(1, description="Number of the step, from 1; of a window, its first.")


class VideoRequest(PlaceRequest):
    """A window of an annotated video."""

    last: Place | None = Field(None, description="Its last step; by default as far as it can be.")
    goal: StrictBool = Field(True, description="Whether its goal observation is known.")
    done: StrictBool = Field(False, description="Whether its steps before are known as done.")


def _constraint(name: str) -> Any:
    """The type and default of a constraint in a request, by its type in the library."""
    kind, how = declared()[name]
    default, most = getattr(Constraints, name), None
    types: Any = {Step: Place, OneAction: Name, EachAction: Name, bool: StrictBool}
    parts = tuple(types.get(entry_part, Whole) for entry_part in entry_parts(kind) or (kind,))
    shape, examples = parts[0], None
    if by_step(kind):
        shape, default, most = dict.__class_getitem__((StepKey, parts[1])), {}, MOST_NAMED
        examples = [{str(step): value for step, value in how.example}]
    elif default == ():
        if parts[1:]:
            shape = Annotated[tuple.__class_getitem__(parts), Field(strict=False)]
        shape, default, most = list.__class_getitem__(shape), [], MOST_NAMED
    return shape, Field(default, max_length=most, examples=examples, description=how.description)


_CONSTRAINTS: Any = {how.option: _constraint(name) for name, (_, how) in declared().items()}


class ConstraintsRequest(create_model("_Fields", __base__=RequestBody, **_CONSTRAINTS)):  # type: ignore[misc]
    """Constraints that every plan satisfies; actions by id or name."""

    def named(self) -> NamedConstraints:
        """Return the constraints by their fields in the library."""
        values = {
            name: value
            for name, (_, how) in declared().items()
            if (value := getattr(self, how.option))
        }
        for name, value in values.items():
            if isinstance(value, dict):
                values[name] = [(int(step), action) for step, action in value.items()]
        return NamedConstraints(**values)


_IN_JSON: dict[Any, Any] = {  # type of a fact in a request, by its type in the library
    tuple[constraints.Name, ...] | None: Done | None,
    constraints.Name | None: Name | None,
    int: StrictInt,  # the limits of the service say how many
}
FACTS: Any = {  # the fields of a question in a request, but for its constraints
    name: (
        Annotated[
            _IN_JSON.get(fact.annotation, fact.annotation),
            Field(description=fact.description, examples=fact.examples),
            *fact.metadata,
        ],
        fact.default,
    )
    for name, fact in Question.model_fields.items()
    if name != "constraints"
}


class UploadRequest(create_model("_Question", __base__=RunRequest, **FACTS)):  # type: ignore[misc]
    """A question about a query without its observations."""

    constraints: ConstraintsRequest = Field(
        default_factory=ConstraintsRequest,
        description=Question.model_fields["constraints"].description,
    )
    goal_text: Text | None = Field(None, description="The scene after the last step in words.")
    search: Search | None = Field(None, description="Its name; by default the run's.")
    budget: float | None = Field(None, ge=0, description="10⁹ operations of an exact auto.")
    tasks: Place | None = Field(None, description="Number of likely tasks to search.")
    objective: Objective | None = Field(None, description="Of the search; by default the run's.")
    deadline_seconds: float | None = Field(
        None,
        gt=0,
        description="From the arrival, or the end of an upload's encoding, to the answer.",
    )

    def question(self) -> Question:
        """Return the question in the library's form."""
        facts = {name: getattr(self, name) for name in FACTS}
        return Question(**facts, constraints=self.constraints.named())


class UploadForm(BaseModel):
    """An upload: one or two pictures, or a video with seconds of it; and the other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: File = Field(None, description="Picture before the first step.")
    goal: File = Field(None, description="Picture after the last step.")
    video: File = Field(None, description="A video, instead of pictures.")
    start: Moment = Field(None, description="Its second instead of `initial`.")
    end: Moment = Field(None, description="Its second instead of `goal`.")
    request: Annotated[Json[Any], WithJsonSchema({"type": "string"})] = Field(
        default_factory=dict, description="JSON of a PlanRequest without observations."
    )

    @property
    def files(self) -> dict[str, BinaryIO]:
        """The files by their names."""
        uploads = {name: getattr(self, name) for name in ("initial", "goal", "video")}
        return {name: upload.file for name, upload in uploads.items() if upload is not None}

    @model_validator(mode="after")
    def _pictures_or_video(self) -> Self:
        fields = self.model_fields_set - {"request"}
        times = fields - {"video"} if "video" in fields else set()
        if not ({"initial", "goal"} >= fields > set() or {"start", "end"} >= times > set()):
            names = ", ".join(map(repr, sorted(fields))) or "nothing"
            raise ValueError(
                f"expected 'initial' and 'goal', or 'video' with 'start' and 'end'; found {names}"
            )
        return self


class PlanRequest(UploadRequest):
    """A query: observations, a window of a video or what else is known, and search options."""

    observations: ObservationsRequest | None = None
    video: VideoRequest | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        observations, video = self.observations, self.video
        asked = any(fact is not None for fact in (self.task, self.done, self.goal_text))
        if (observations and video) or not (observations or video or asked):
            raise ValueError(
                "expected exactly one of 'observations' and 'video', or for a run of several "
                "lengths 'task' or 'done'"
            )
        if video is not None and video.done and self.done is not None:
            raise ValueError("'done' and 'video.done' both give the steps done; leave out one")
        if self.goal_text is not None and observations and observations.goal is not None:
            raise ValueError("'goal_text' takes the place of 'observations.goal'; leave out one")
        return self


class SessionRequest(RunRequest):
    """A live session; without a goal, its plans lead to the end of the procedure."""

    task: Name | None = Field(None, description="The task, instead of the inferred one.")
    done: Done | None = Field([], description="Actions done before, oldest first; null if unknown.")
    goal: Observation | None = None
    goal_video: PlaceRequest | None = Field(None, description="Its end is the goal.")
    goal_text: Text | None = Field(None, description="The goal in words.")

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        if sum(goal is not None for goal in (self.goal, self.goal_video, self.goal_text)) > 1:
            raise ValueError("expected at most one of 'goal', 'goal_video' and 'goal_text'")
        return self


class OpenRequest(SessionRequest):
    """A live session that is opened."""

    false_alarms: float | None = Field(None, ge=0, description="Greatest number an hour.")


class RowRequest(RequestBody):
    """A row of a video, as the run's recogniser reads it."""

    at: float = Field(ge=0, le=1e7, description="Seconds since the video began.")
    row: Observation | None = Field(description="Its numbers; null if it was lost.")


Rows = Annotated[list[RowRequest], Field(min_length=1, max_length=MOST_ROWS)]
Brief = Annotated[
    bool, Field(description="Leave out what costs most: tasks, done, unseen, remaining and plans.")
]


class RowsRequest(RequestBody):
    """Rows of a video, whose steps need no boundaries."""

    rows: Rows
    brief: Brief = False


class EventRequest(RequestBody):
    """An event of a session: an observation, rows of a video, its end, a step done, or undo."""

    observation: Observation | None = None
    video: PlaceRequest | None = Field(None, description="Its start is the observation.")
    done: Name | None = Field(None, description="A step done, by id or name.")
    rows: Rows | None = None
    over: Literal[True] | None = Field(
        None,
        description="The video whose rows were sent is over, until a further row comes: steps that "
        "did not come are missing.",
    )
    undo: Literal[True] | None = Field(
        None, description="Take back the last other event; rows stay."
    )
    brief: Brief = False

    @model_validator(mode="after")
    def _one_event(self) -> Self:
        check_only_one(self, "observation", "video", "rows", "done", "over", "undo")
        return self


class SavedSession(RequestBody):
    """The first line of a session's file: how it was opened."""

    run: str
    horizon: int
    fingerprint: str
    digest: str = ""  # of the run that it began with; empty if that was not kept
    place: str = ""  # of the same run
    client: str
    open: OpenRequest


class ResponseBody(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class Named(ResponseBody):
    """A task or an action."""

    id: int
    name: str


class PlanAnswer(Answer):
    """The answer to one query, as `cefito plan --json` gives it, and how the service made it."""

    request_id: str
    run: str
    horizon: int
    milliseconds: float = Field(description="Milliseconds from the request's arrival.")
    most_gflop: float | None = Field(description="Most 10⁹ operations; null if they do not vary.")
    walked_with: int = Field(description="Other queries in the same batch.")


class SessionAnswer(Belief):
    """The state of a live session; in a brief one, what belongs to plans is empty."""

    id: str
    run: str
    horizon: int
    digest: str = Field(description="Of the run's version that it follows.")
    number: int = Field(description="Requests that have changed it, undo included.")
    events: int = Field(description="Number of events that undo can take back.")
    goal: bool = Field(description="Whether it has a goal.")
    followed: Followed | None = Field(description="Found in rows of a video; null without any.")
    next_steps: list[Likely] = Field(description="Likeliest first.")
    plans: list[PlannedSequence] = Field(
        description="Best first; those that begin with the likeliest next step go before."
    )
    notes: list[str] = Field(
        description="Remarks on steps that were not expected, oldest first, and on ignored rows."
    )


class RunOut(ResponseBody):
    """A run that the service has opened."""

    name: str
    horizon: int
    method: str
    planner: str
    observation_dim: int
    dataset: str
    fingerprint: str = Field(description="Hash of the data set; empty for imported weights.")
    digest: str = Field(description="Hash of the run's files, which tells its versions apart.")
    simulated: bool = Field(description="Whether its observations are simulated.")
    seed: int | None
    search: dict[str, Any] | None = Field(description="Settings of its search.")
    probabilities: bool
    constraints: bool
    true_task: bool
    any_length: bool = Field(description="Whether one observation, none or steps done are enough.")
    recogniser: bool = Field(description="Whether its sessions follow rows of a video.")
    false_alarms: bool = Field(description="Whether a number of false alarms can be promised.")
    graph: bool = Field(description="Whether it has learned the order of each task's steps.")
    elapsed: bool = Field(description="Whether it uses the time between both observations.")
    shortest: int = Field(description="Smallest number of steps; `horizon` is the largest.")
    uploads: list[Literal["pictures", "video", "text"]] = Field(description="That can be encoded.")
    datasets: list[str] = Field(description="Opened data sets with videos for the run.")
    versions: dict[str, str] = Field(description="Versions of the packages at training.")
    tasks: list[Task]
    actions: list[Action]


class ModelAnswer(ResponseBody):
    """Runs, limits and versions of the service."""

    runs: list[RunOut]
    searches: list[str]
    limits: Limits
    versions: dict[str, str] = Field(description="Versions of the packages of the service.")


class StepOut(ResponseBody):
    """A step of a video; its id is the run's, or null if the run does not know the action."""

    id: int | None
    name: str
    start: float = Field(description="Second at which it begins.")
    end: float = Field(description="Second at which it ends.")


class VideoOut(ResponseBody):
    """An annotated video."""

    id: str
    dataset: str
    split: str
    task: Named
    steps: list[StepOut]
    first_steps: list[int] = Field(description="First steps of the run's windows, counted from 1.")


class VideosRequest(BaseModel):
    """Which videos of a run are listed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Title = None
    horizon: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    task: Title = Field(None, description="Id or name of a task.")
    split: Literal["train", "val", "test"] | None = None
    offset: int = Field(0, ge=0, le=999_999_999)
    limit: int = Field(200, ge=1, le=1000)
    search: Title = Field(
        None,
        description="Words that the id, the task or the steps hold. The video of this id comes "
        "first, then test, val and train.",
    )
    windows: bool = Field(False, description="Only videos with windows.")


class VideosAnswer(ResponseBody):
    """Videos of the opened data sets with tasks that the run knows."""

    run: str
    horizon: int
    total: int = Field(description="Number of all videos, of which this is a part.")
    videos: list[VideoOut]


class Health(ResponseBody):
    """State of the service."""

    status: Literal["ok", "ready"]
