"""One query, one answer: plans with names and energies, ready for JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError, DataError
from cefito.files import check_array, load_npy
from cefito.planners.base import Queries
from cefito.planners.cefito import CefitoPlanner
from cefito.planners.run import Run

__all__ = ["answer", "query_from_files", "query_from_video"]


def query_from_video(run: Run, video_id: str, from_step: int, dataset: Path | None = None
                     ) -> tuple[Queries, NDArray[np.int64]]:
    """The query of a window of a video, and its annotated actions [T].

    Raises:
        ConfigError: No such video, or it has too few steps behind `from_step`.
        RunError: The data set is gone or another one.
    """
    opened = run.dataset(dataset)
    index = next((number for number, video in enumerate(opened.videos) if video.video_id == video_id), None)
    if index is None:
        raise ConfigError(f"no video '{video_id}' in {opened.folder}. Its videos.jsonl lists those there are.")
    horizon, steps = run.planner.horizon, opened.videos[index].steps
    if from_step < 0 or from_step + horizon > len(steps):
        raise ConfigError(f"video '{video_id}' has {len(steps)} steps; {horizon} steps from step {from_step} (counted from 0) "
                          f"do not fit. " + (f"The last possible start is {len(steps) - horizon}." if len(steps) >= horizon
                                             else f"It is too short for a horizon of {horizon}."))
    row = int(opened.first_row[index]) + from_step
    query = Queries(initial=opened.start[row][None].astype(np.float32),
                    goal=opened.end[row + horizon - 1][None].astype(np.float32))
    return query, np.array([step.action for step in steps[from_step:from_step + horizon]], dtype=np.int64)


def query_from_files(video: str | None, initial: Path | None, goal: Path | None) -> Queries:
    """The query of two .npy files, each one observation [E].

    Raises:
        ConfigError: Not exactly the two files.
        DataError: A file is missing, damaged, pickled, of another shape, or holds NaN.
    """
    if initial is None or goal is None or video is not None:
        raise ConfigError("give either --video (with --from-step) or both --initial and --goal.")
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
        raise DataError(f"{initial} has {rows[0].shape[1]} features, {goal} {rows[1].shape[1]}; expected equally many.")
    return Queries(initial=rows[0], goal=rows[1])


def answer(planner: CefitoPlanner, query: Queries, *, task: int | None = None, top_k: int = 5,
           truth: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Plan one query.

    Args:
        planner: A trained planner.
        query: One query.
        task: Id of the task instead of the predicted one.
        top_k: Plans wanted.
        truth: Annotated actions [T], repeated in the answer.

    Returns:
        {"task": {"id", "name", "source"}, "plans": [{"actions", "names", "energy"}, …] best first, "evaluated", "exact"}.

    Raises:
        ConfigError: Unknown task, or top_k below 1.
    """
    taxonomy = planner.taxonomy
    assert taxonomy is not None
    if task is not None:
        if task not in range(len(taxonomy.tasks)):
            raise ConfigError(f"unknown task {task}; the run knows 0 to {len(taxonomy.tasks) - 1}.")
        query = Queries(initial=query.initial, goal=query.goal, tasks=np.array([task]))
    plans = planner.plan(query, top_k)[0]
    chosen = int(planner.predict_tasks(query)[0])
    value: dict[str, Any] = {
        "task": {"id": chosen, "name": taxonomy.tasks[chosen].name, "source": "predicted" if task is None else "given"},
        "plans": [{"actions": actions.tolist(), "names": taxonomy.names(actions), "energy": float(energy)}
                  for actions, energy in zip(plans.actions, plans.energies, strict=True)],
        "evaluated": vars(plans.evaluated), "exact": plans.exact}
    if truth is not None:
        value["truth"] = {"actions": truth.tolist(), "names": taxonomy.names(truth)}
    return value
