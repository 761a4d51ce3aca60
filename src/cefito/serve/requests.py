"""From a request to a search that may begin, or to a refusal; and from its plans to an answer."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cefito.data.text import nfc
from cefito.errors import CefitoError, ConfigError
from cefito.inference.answer import Answer, answer_of, asked_of, in_names
from cefito.inference.query import query_of_window
from cefito.planners.base import Queries, check_min_probability, check_queries
from cefito.runs.matching import DatasetName
from cefito.runs.run import Run
from cefito.search.constraints import Constraints
from cefito.search.settings import SearchConfig, search_settings
from cefito.serve.models import Models, Served
from cefito.serve.problems import ProblemError, of_error
from cefito.serve.scheduler import Job
from cefito.serve.schemas import (
    EffortOfAnswer,
    Named,
    PlanAnswer,
    PlanOfAnswer,
    PlanRequest,
    TaskOut,
    UploadRequest,
    VideoRequest,
)
from cefito.serve.settings import Limits

__all__ = ["PreparedRequest", "answered", "job_of", "prepare", "solve"]


@dataclass(frozen=True)
class PreparedRequest:
    """A query that can be searched.

    Attributes:
        served: The run that it is for.
        run: The same with the search that is asked for.
        query: One query.
        top_k: Plans wanted.
        constraints: What every plan must satisfy.
        min_probability: How probable the best plan must be for the answer to be sure.
        truth: The annotated actions, where they are known.
        dataset: Where the query came from, if from another data set than that of the run.
        operations: What its search may cost at most; None where that does not grow.
        kind: Equal for queries that can be walked together.
    """

    served: Served
    run: Run
    query: Queries
    top_k: int
    constraints: Constraints
    min_probability: float | None
    truth: NDArray[np.int64] | None
    dataset: DatasetName | None
    operations: float | None
    kind: Hashable


def prepare(
    models: Models, limits: Limits, request: UploadRequest, observed: Queries | None = None
) -> PreparedRequest:
    """Check a request, and make of it what a search needs; nothing is searched.

    Args:
        models: All runs.
        limits: What is done at most.
        request: The request, with its source of observations unless these are given.
        observed: The observations, where they were uploaded.

    Raises:
        ProblemError: It cannot be answered, or would cost too much.
    """
    served = models.find(request.run, request.horizon)
    try:
        return _prepared(served, limits, request, observed)
    except CefitoError as problem:
        raise of_error(problem, models.names) from problem


def _prepared(
    served: Served, limits: Limits, request: UploadRequest, observed: Queries | None
) -> PreparedRequest:
    if request.top_k > limits.top_k:
        raise ProblemError(
            422,
            "invalid",
            f"top_k {request.top_k}: this service gives at most {limits.top_k} plans. Ask for "
            "fewer.",
            field="top_k",
            numbers={"limit": limits.top_k},
        )
    run, changes = _searching(served.run, request)
    truth, dataset = None, None
    if observed is None:
        assert isinstance(request, PlanRequest)
        if request.video is not None:
            observed, truth, dataset = _of_video(served, request.video)
        else:
            observed = _of_observations(request)
    given = None if request.task is None else request.task
    query, constraints = asked_of(
        run, observed, task=given, constraints=request.constraints.named()
    )
    if request.min_probability is not None:
        check_min_probability(run.planner, request.min_probability)
    check_queries(run.planner, query, request.top_k, constraints)
    bounds = run.planner.most_operations(query, request.top_k, constraints)
    operations = None if bounds is None else float(bounds[0])
    if operations is not None and operations > limits.gflop * 1e9:
        raise _too_dear(run, operations, limits)
    return PreparedRequest(
        served=served,
        run=run,
        query=query,
        top_k=request.top_k,
        constraints=constraints,
        min_probability=request.min_probability,
        truth=truth,
        dataset=dataset,
        operations=operations,
        kind=(
            id(served.run),
            tuple(sorted(changes.items())),
            request.top_k,
            constraints,
            query.tasks is None,
        ),
    )


def _searching(run: Run, request: UploadRequest) -> tuple[Run, dict[str, object]]:
    """The run with the search that is asked for, and what is changed in it."""
    wanted: dict[str, object] = {
        "method": request.search,
        "budget_gflop": request.budget,
        "tasks": request.tasks,
        "objective": request.objective,
    }
    changes = {name: value for name, value in wanted.items() if value is not None}
    if not changes:
        return run, changes
    if run.trained_search is None:
        run.with_search(SearchConfig())  # which refuses, and names the methods that can
    assert run.trained_search is not None
    return run.with_search(search_settings(run.trained_search, **changes)), changes


def _of_observations(request: PlanRequest) -> Queries:
    """The query of two observations as they came."""
    assert request.observations is not None
    both = {
        name: _observation(getattr(request.observations, name), name)
        for name in ("initial", "goal")
    }
    for name, values in both.items():
        if not (np.abs(values) <= 1e12).all():  # NaN is never below
            raise ProblemError(
                422,
                "invalid",
                f"observations.{name}: holds NaN, infinity or a number too large to compute with. "
                "Give finite numbers.",
                field=f"observations.{name}",
            )
    if both["initial"].size != both["goal"].size:
        raise ProblemError(
            422,
            "invalid",
            f"observations: 'initial' has {both['initial'].size} numbers and 'goal' "
            f"{both['goal'].size}; expected equally many.",
            field="observations",
        )
    return Queries(initial=both["initial"][None], goal=both["goal"][None])


def _observation(given: Sequence[float] | str, name: str) -> NDArray[np.float32]:
    field = f"observations.{name}"
    if not isinstance(given, str):
        with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
            return np.array(given, dtype=np.float64).astype(np.float32)
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise ProblemError(
            422,
            "invalid",
            f"{field}: is no base64 ({problem}). Give a list of numbers, or base64 of "
            "little-endian float32.",
            field=field,
        ) from problem
    if not data or len(data) % 4:
        raise ProblemError(
            422,
            "invalid",
            f"{field}: its base64 holds {len(data)} bytes; expected four for each number, "
            "little-endian float32.",
            field=field,
        )
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def _of_video(
    served: Served, wanted: VideoRequest
) -> tuple[Queries, NDArray[np.int64] | None, DatasetName | None]:
    """The query of a window of a video, its truth, and its data set if that is another one."""
    if not served.matches:
        raise ProblemError(
            422,
            "invalid",
            f"no data set is open for the run {served.title}. Send the observations themselves.",
            field="video",
        )
    found = [
        (match, index)
        for match, index in served.videos.get(nfc(wanted.id), ())
        if wanted.dataset in (None, match.dataset.name)
        and wanted.split in (None, match.dataset.videos[index].split)
    ]
    if not found:
        where = ", ".join(repr(match.dataset.name) for match in served.matches)
        named = f" and split '{wanted.split}'" if wanted.split else ""
        raise ProblemError(
            422,
            "invalid",
            f"no video of id {wanted.id!r}{named} in {wanted.dataset or where}. GET /v1/videos "
            "lists those there are.",
            field="video.id",
        )
    if len(found) > 1:
        raise ProblemError(
            422,
            "invalid",
            f"video {wanted.id!r} is in several data sets. Say which dataset is meant.",
            field="video.dataset",
        )
    match = found[0][0]
    query, truth = query_of_window(match, wanted.id, wanted.step)
    dataset = match.dataset
    name = DatasetName(name=dataset.name, fingerprint=dataset.fingerprint)
    return query, truth, None if match.own else name


def _too_dear(run: Run, operations: float, limits: Limits) -> ProblemError:
    description = run.planner.describe()
    method = description.search.method if description.search else None
    gflop, most = _digits(operations / 1e9), _digits(limits.gflop)
    return ProblemError(
        422,
        "too-dear",
        f"the search '{method}' may take {gflop:,g} GFLOP for this query; this service allows "
        f"{most:,g}. Search with 'guided' or 'auto', consider fewer tasks, or pin steps.",
        field="search",
        numbers={"gflop": gflop, "limit": most},
    )


def _digits(value: float) -> float:
    """A number with four digits."""
    return float(f"{value:.4g}")


def job_of(asked: PreparedRequest, limits: Limits, deadline: float) -> Job:
    """The search of a query, to be put into the queue.

    Args:
        asked: The query.
        limits: What is done at most.
        deadline: By `time.monotonic`.
    """
    cheap = asked.operations is None or asked.operations <= limits.cheap_gflop * 1e9
    return Job(work=asked, kind=asked.kind if cheap else None, cheap=cheap, deadline=deadline)


def solve(jobs: Sequence[Job], stop: Callable[[], bool]) -> list[Answer]:
    """The answers to queries of one kind, walked together.

    Raises:
        CefitoError: A query that the planner refuses.
    """
    asked: list[PreparedRequest] = [job.work for job in jobs]
    first, query = asked[0], asked[0].query
    if len(asked) > 1:
        tasks = [one.query.tasks for one in asked if one.query.tasks is not None]
        query = Queries(
            initial=np.concatenate([one.query.initial for one in asked]),
            goal=np.concatenate([one.query.goal for one in asked]),
            tasks=np.concatenate(tasks) if tasks else None,
        )
    try:
        found = first.run.planner.plan(query, first.top_k, constraints=first.constraints, stop=stop)
    except ConfigError as problem:
        raise in_names(problem, first.run.taxonomy) from problem
    interrupted = stop()
    return [
        answer_of(
            one.run,
            one.query,
            plans,
            min_probability=one.min_probability,
            truth=one.truth,
            dataset=one.dataset,
            interrupted=interrupted and not plans.exact,
        )
        for one, plans in zip(asked, found, strict=True)
    ]


def answered(
    asked: PreparedRequest, answer: Answer, *, request_id: str, began: float, job: Job
) -> PlanAnswer:
    """An answer as it is sent.

    Args:
        asked: The query.
        answer: The answer.
        request_id: Of the request.
        began: When it arrived, by `time.monotonic`.
        job: Its search.
    """
    taxonomy, operations = asked.run.taxonomy, asked.operations

    def named(actions: Sequence[int], names: Sequence[str]) -> list[Named]:
        return [Named(id=id_, name=name) for id_, name in zip(actions, names, strict=True)]

    return PlanAnswer(
        request_id=request_id,
        run=asked.served.name,
        horizon=asked.run.horizon,
        task=TaskOut(**answer.task.model_dump()),
        plans=[
            PlanOfAnswer(
                actions=named(plan.actions, plan.names),
                energy=plan.energy,
                score=plan.score,
                probability=plan.probability,
                task=(
                    None
                    if plan.task is None
                    else Named(id=plan.task, name=taxonomy.tasks[plan.task].name)
                ),
            )
            for plan in answer.plans
        ],
        exact=answer.exact,
        sure=answer.sure,
        searched_mass=answer.searched_mass,
        weights=answer.weights,
        effort=EffortOfAnswer(
            search=answer.search.method,
            tasks=answer.search.tasks,
            token_forwards=answer.evaluated.token_forwards,
            leaves=answer.evaluated.leaves,
            most_gflop=None if operations is None else _digits(operations / 1e9),
            walked_with=job.together - 1,
            interrupted=answer.search.interrupted,
        ),
        milliseconds=round(1e3 * (time.monotonic() - began), 3),
        truth=(None if answer.truth is None else named(answer.truth.actions, answer.truth.names)),
        dataset=None if answer.dataset is None else answer.dataset.name,
    )
