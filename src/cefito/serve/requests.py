"""From a request to a search, and from its plans to an answer."""

from __future__ import annotations

import base64
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from asgi_correlation_id import correlation_id
from numpy.typing import NDArray

from cefito.data.vocabulary import nfc, similar_names
from cefito.errors import DataError, RunError
from cefito.inference.answer import Answer, Asked
from cefito.inference.query import query_from_window
from cefito.inference.question import planning
from cefito.parts.matching import DatasetMatch, DatasetName
from cefito.parts.opened import OpenedRun
from cefito.planners.queries import LARGEST, Queries
from cefito.serve.models import Models, Served
from cefito.serve.problems import ProblemError
from cefito.serve.scheduler import SearchJob
from cefito.serve.schemas import (
    FilmRequest,
    ObservationsRequest,
    PlanAnswer,
    PlanRequest,
    UploadRequest,
    VideoRequest,
)
from cefito.serve.settings import Limits


@dataclass(frozen=True)
class PreparedRequest:
    """A query ready to be searched."""

    served: Served  # its run, as the service opened it
    asked: Asked  # of the same run with the search of the request
    operations: float | None  # upper bound of the search's; None if its cost does not vary
    kind: Hashable  # equal for queries that can be planned as one batch


def prepare(
    models: Models,
    limits: Limits,
    request: UploadRequest,
    observed: Queries | None = None,
    goal: NDArray[np.float32] | None = None,
) -> PreparedRequest:
    """Check a request and gather the inputs of its search; nothing is searched.

    Args:
        models: Opened runs.
        limits: Limits of the service.
        request: A `PlanRequest`, or what is asked between uploaded observations.
        observed: Uploaded observations, encoded.
        goal: Observation [E] of its goal in words, if it has one.
    """
    served = models.find(request.run, request.horizon, request.steps)
    if request.top_k > limits.top_k:
        detail = f"top_k {request.top_k}: at most {limits.top_k} plans are returned. Ask for fewer."
        raise ProblemError(detail, "top_k", limit=limits.top_k)
    run, changes = _with_search(served.run, request)
    truth, dataset, question = None, None, request.question()
    if isinstance(request, PlanRequest):
        if request.video is not None:
            window = planning(run, question.steps)
            observed, truth, dataset = _window(served, window, request.video)
        else:
            observed = _observations(run, request.observations)
    assert observed is not None
    if goal is not None:
        observed = observed.with_goal(goal)
    asked = Asked.of(question, run, observed, truth=truth, dataset=dataset)
    planner = asked.run.planner
    bounds = planner.most_operations(asked.query, asked.searched, asked.constraints)
    operations = None if bounds is None else float(bounds[0])
    if operations is not None and operations > limits.gflop * 1e9:
        raise _too_expensive(asked.run, operations, limits)
    kind = (id(served.run), tuple(sorted(changes.items())), asked.kind)
    return PreparedRequest(served, asked, operations, kind)


def _with_search(run: OpenedRun, request: UploadRequest) -> tuple[OpenedRun, dict[str, object]]:
    """The run with the search of a request, and the settings that this changes."""
    wanted: dict[str, object] = {
        "method": request.search,
        "budget_gflop": request.budget,
        "tasks": request.tasks,
        "objective": request.objective,
    }
    changes = {name: value for name, value in wanted.items() if value is not None}
    return run.with_search(**changes) if changes else run, changes


def _observations(run: OpenedRun, sent: ObservationsRequest | None) -> Queries:
    """The query of the given observations."""
    rows = {
        name: read_numbers(numbers, f"observations.{name}")
        for name in ("initial", "goal")
        if (numbers := getattr(sent, name, None)) is not None
    }
    size = len(next(iter(rows.values()))) if rows else run.planner.observation_dim
    try:
        return Queries.partial(size=size, initial=rows.get("initial"), goal=rows.get("goal"))
    except DataError as problem:
        raise ProblemError(str(problem), "observations") from problem


def read_numbers(sent: Sequence[float] | str, field: str) -> NDArray[np.floating[Any]]:
    """The observation in a field of a request."""
    if not isinstance(sent, str):
        return np.array(sent, dtype=np.float64)
    try:
        data = base64.b64decode(sent, validate=True)
        fault = f"its base64 holds {len(data)} bytes"
    except ValueError as problem:
        data, fault = b"", f"is not base64 ({problem})"
    if not data or len(data) % 4:
        expected = "expected numbers, or base64 of little-endian float32"
        raise ProblemError(f"{field}: {fault}; {expected}.", field)
    return np.frombuffer(data, dtype="<f4").copy()  # writable, as torch expects


def read_row(sent: Sequence[float] | str, field: str, width: int) -> NDArray[np.floating[Any]]:
    """The row [width] of a video in a field of a request.

    Args:
        sent: Numbers, or base64 of 32-bit floats.
        field: Name of the field, for problems.
        width: Numbers of a row, D.
    """
    row = read_numbers(sent, field)
    if len(row) != width:
        detail = f"{field}: {len(row)} numbers; expected [{width}], as in training."
        raise ProblemError(detail, field)
    check_numbers(row, field)
    return row


def check_numbers(rows: NDArray[Any], field: str) -> None:
    """Refuse numbers that are too large to compute with, as observations are checked."""
    for place in np.argwhere(np.isfinite(rows) & (np.abs(rows) > LARGEST))[:1]:
        where = ".".join(map(str, place))
        fault = f"{rows[tuple(place)]:g} is too large to compute with"
        raise ProblemError(f"{field}.{where}: {fault}. Extract these features again.", field)


@contextmanager
def of_field(name: str) -> Iterator[None]:
    """Name the field of a request in refusals of its features."""
    try:
        yield
    except (DataError, RunError) as problem:
        raise ProblemError(str(problem), name) from problem


def _window(
    served: Served, run: OpenedRun, wanted: VideoRequest
) -> tuple[Queries, NDArray[np.int64] | None, DatasetName | None]:
    """The query of a window of a video, its truth, and its data set if not the run's own."""
    match = replace(find_video(served, wanted, "video"), run=run)
    query, truth = query_from_window(
        match, wanted.id, wanted.step, wanted.last, goal=wanted.goal, done=wanted.done
    )
    return query, truth, None if match.own else DatasetName.of(match.dataset)


def find_video(served: Served, wanted: FilmRequest, field: str) -> DatasetMatch:
    """The data set of the video that a field of a request names.

    Args:
        served: Run with its data sets.
        wanted: Id of the video, and perhaps data set and split.
        field: Field of the request, for messages.
    """
    if not served.matches:
        detail = f"no data set is open for the run {served.title}. Send observations themselves."
        raise ProblemError(detail, field)
    matches = [
        match
        for match, index in served.videos.get(nfc(wanted.id), ())
        if wanted.dataset in (None, match.dataset.name)
        and wanted.split in (None, match.dataset.videos[index].split)
    ]
    if not matches:
        elsewhere = nfc(wanted.id) in served.videos  # in another data set or split
        near = [] if elsewhere else similar_names(wanted.id, served.videos)
        listed = f" Similar ids: {', '.join(map(repr, near))}." if near else ""
        detail = f"no video of id {wanted.id!r} there.{listed} GET /v1/videos lists all."
        raise ProblemError(detail, f"{field}.id")
    if len(matches) > 1:
        detail = f"video {wanted.id!r} is in several data sets. Name one in 'dataset'."
        raise ProblemError(detail, f"{field}.dataset")
    return matches[0]


def _too_expensive(run: OpenedRun, operations: float, limits: Limits) -> ProblemError:
    search = run.planner.describe().search
    gflop, most = _rounded(operations / 1e9), _rounded(limits.gflop)
    return ProblemError(
        f"the search '{search.method if search else None}' may take {gflop:,g} GFLOP for this "
        f"query; this service allows {most:,g}. Search with 'guided' or 'auto', search fewer "
        "tasks, or pin steps.",
        "search",
        gflop=gflop,
        limit=most,
        kind="expensive",
    )


def _rounded(value: float) -> float:
    """A number to four digits."""
    return float(f"{value:.4g}")


def answered(served: Served, horizon: int, began: float) -> dict[str, Any]:
    """What every answer says of its request.

    Args:
        served: The run that answered.
        horizon: T that it planned.
        began: When the request arrived, by `time.monotonic`.
    """
    return {
        "request_id": correlation_id.get() or "",
        "run": served.name,
        "horizon": horizon,
        "milliseconds": round(1e3 * (time.monotonic() - began), 3),
    }


def to_response(job: SearchJob, answer: Answer, began: float) -> PlanAnswer:
    """The answer in JSON to a request that arrived at `began`, by `time.monotonic`.

    Args:
        job: The search, at its end.
        answer: Its answer.
        began: When the request arrived, by `time.monotonic`.
    """
    prepared: PreparedRequest = job.work
    operations = prepared.operations
    return PlanAnswer(
        **dict(answer),
        **answered(prepared.served, prepared.asked.run.horizon, began),
        most_gflop=None if operations is None else _rounded(operations / 1e9),
        walked_with=job.together - 1,
    )
