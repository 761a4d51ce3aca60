"""One query, one answer: plans with names and energies, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.taxonomy import Taxonomy
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import check_array, load_npy
from cefito.planners.base import Queries
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.run import Run
from cefito.search.constraints import Constraints, Feasible

__all__ = ["answer", "query_from_files", "query_from_video"]

_NONE = Constraints()


def query_from_video(
    run: Run[Any], video_id: str, from_step: int, dataset: Path | None = None
) -> tuple[Queries, NDArray[np.int64]]:
    """The query of a window of a video, and its annotated actions [T].

    Raises:
        ConfigError: No such video, or it has too few steps behind `from_step`.
        RunError: The data set is gone or another one.
    """
    opened = run.dataset(dataset)
    index = next(
        (number for number, video in enumerate(opened.videos) if video.video_id == video_id), None
    )
    if index is None:
        raise ConfigError(
            f"no video '{video_id}' in {opened.folder}. Its videos.jsonl lists those there are."
        )
    horizon, steps = run.horizon, opened.videos[index].steps
    if from_step < 0 or from_step + horizon > len(steps):
        raise ConfigError(
            f"video '{video_id}' has {len(steps)} steps; {horizon} steps from step {from_step} "
            "(counted from 0) "
            f"do not fit. "
            + (
                f"The last possible start is {len(steps) - horizon}."
                if len(steps) >= horizon
                else f"It is too short for a horizon of {horizon}."
            )
        )
    row = int(opened.first_row[index]) + from_step
    query = Queries(
        initial=opened.start[row][None].astype(np.float32),
        goal=opened.end[row + horizon - 1][None].astype(np.float32),
    )
    return query, np.array(
        [step.action for step in steps[from_step : from_step + horizon]], dtype=np.int64
    )


def query_from_files(video: str | None, initial: Path | None, goal: Path | None) -> Queries:
    """The query of two .npy files, each one observation [E].

    Raises:
        ConfigError: Not exactly the two files.
        DataError: A file is missing, damaged, pickled, of another shape, or holds NaN.
    """
    if initial is None or goal is None or video is not None:
        raise ConfigError(
            "give --video (with --from-step, or a file with --start and --end), --initial and "
            "--goal, or "
            "--initial-image and --goal-image."
        )
    rows = []
    for path in (initial, goal):
        array = load_npy(path)
        if array.ndim == 2 and len(array) == 1:
            array = array[0]
        if array.ndim != 1:
            raise DataError(f"{path}: has shape {list(array.shape)}; expected one observation [E].")
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
                array = array.astype(np.float32)
        rows.append(check_array(array[None], shape=(1, None), place=str(path)))
    if rows[0].shape != rows[1].shape:
        raise DataError(
            f"{initial} has {rows[0].shape[1]} features, {goal} {rows[1].shape[1]}; expected "
            "equally many."
        )
    return Queries(initial=rows[0], goal=rows[1])


def answer(
    planner: CefitoPlanner,
    query: Queries,
    *,
    task: int | None = None,
    top_k: int = 5,
    constraints: Constraints = _NONE,
    truth: NDArray[np.int64] | None = None,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Plan one query.

    Args:
        planner: A trained planner.
        query: One query.
        task: Id of the task instead of the predicted one.
        top_k: Plans wanted.
        constraints: What every plan must satisfy.
        truth: Annotated actions [T], repeated in the answer.
        stop: Asked now and then; once it says so, the answer holds the best plans met so far,
            perhaps none.

    Returns:
        {"task": {"id", "name", "source"} of the best plan, "plans": [{"actions", "names", "energy",
        "score", "task"}, …] best first, "evaluated": {"token_forwards", "leaves"}, "exact",
        "search": {"method", "tasks": how many were searched, "interrupted"}, "weights": of the
        objective}, and "truth" where it was given.

    Raises:
        ConfigError: Unknown task or action, constraints that cannot be satisfied, or top_k below 1.
        RunError: Not fitted, or observations of another dimension.
    """
    taxonomy = planner.taxonomy
    assert taxonomy is not None
    if task is not None:
        if task not in range(len(taxonomy.tasks)):
            raise ConfigError(f"unknown task {task}; the run knows 0 to {len(taxonomy.tasks) - 1}.")
        query = Queries(initial=query.initial, goal=query.goal, tasks=np.array([task]))
    _check_actions(constraints, taxonomy)
    searched = _searched(planner, query, constraints)
    plans = planner.plan(query, top_k, constraints=constraints, stop=stop)[0]
    tasks = np.full(len(plans), searched[0]) if plans.tasks is None else plans.tasks
    chosen = int(tasks[0]) if len(plans) else searched[0]
    value: dict[str, Any] = {
        "task": {
            "id": chosen,
            "name": taxonomy.tasks[chosen].name,
            "source": "predicted" if task is None else "given",
        },
        "plans": [
            {
                "actions": actions.tolist(),
                "names": taxonomy.names(actions),
                "energy": float(energy),
                "score": float(score),
                "task": int(own),
            }
            for actions, energy, score, own in zip(
                plans.actions, plans.energies, plans.scores, tasks, strict=True
            )
        ],
        "evaluated": vars(plans.evaluated),
        "exact": plans.exact,
        "search": {
            "method": planner.config.search.method,
            "tasks": len(searched),
            "interrupted": stop is not None and stop(),
        },
        "weights": vars(planner.weights),
    }
    if truth is not None:
        value["truth"] = {"actions": truth.tolist(), "names": taxonomy.names(truth)}
    return value


def _check_actions(constraints: Constraints, taxonomy: Taxonomy) -> None:
    """Refuse actions that no task has; of those that other tasks have, a search decides."""
    named = [
        *(action for _, action in constraints.pinned),
        *constraints.required,
        *constraints.forbidden,
        *(action for pair in constraints.before for action in pair),
    ]
    for action in named:
        if action not in range(len(taxonomy.actions)):
            raise ConfigError(
                f"unknown action {action}; the run knows 0 to {len(taxonomy.actions) - 1}."
            )


def _searched(planner: CefitoPlanner, query: Queries, constraints: Constraints) -> list[int]:
    """The tasks that a plan for one query is searched in, likeliest first.

    Those that can satisfy the constraints.

    Raises:
        ConfigError: No likely task can.
    """
    if planner.hypotheses is None or planner.taxonomy is None:
        raise RunError("this planner has not been fitted; call fit or load first.")
    tasks = [
        one.task
        for one in planner.hypotheses.of(
            query, planner.config.search.tasks or planner.hypotheses.tasks
        )
    ]
    if not constraints:
        return tasks
    feasible, refusals = [], []
    for task in tasks:
        try:
            Feasible(constraints, planner.hypotheses.space.actions[task], planner.horizon)
            feasible.append(task)
        except ConfigError as refusal:
            refusals.append(f"task {task} ('{planner.taxonomy.tasks[task].name}'): {refusal}")
    if not feasible:
        others = len(tasks) - 1
        raise ConfigError(
            refusals[0]
            + (
                f" The next {others} likely tasks cannot satisfy it either."
                if others > 1
                else " The next likely task cannot satisfy it either."
                if others
                else ""
            )
        )
    return feasible
