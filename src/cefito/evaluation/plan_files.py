"""Files with the plans of every scored window, a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.arrays import check_regular
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.evaluation.metrics import unpadded
from cefito.files import FileRecord, read_text, write_text
from cefito.inference.answer import PlannedSequence, planned_sequences
from cefito.search.problem import Plans


class WindowPlans(FileRecord):
    """Plans of one window and the true sequence."""

    what: ClassVar[str] = "plan of a window"
    remedy: ClassVar[str] = "Save the plans again with cefito evaluate."

    video: str  # its id
    from_step: int = Field(ge=1)  # number of the window's first step, from 1
    start: float  # seconds
    end: float
    true_task: int
    true_task_name: str
    predicted_task: int | None  # of the best plan; None if the planner has no notion of tasks
    predicted_task_name: str | None
    true_actions: list[int]
    true_names: list[str]
    plans: list[PlannedSequence]  # best first
    rank: int | None  # of the annotated sequence among the plans, from 1; None if not there
    success: bool  # whether the whole best plan is right
    exact: bool  # whether no other allowed sequence is better than the plans


def window_plans(
    dataset: PreparedDataset,
    windows: Windows,
    plans: Sequence[Plans],
    *,
    tasks: NDArray[np.int64] | None = None,
) -> list[WindowPlans]:
    """Combine the plans of windows with names and true sequences.

    Args:
        dataset: The data set that the windows were cut from.
        windows: The windows.
        plans: The plans of each, from `evaluate_planner`.
        tasks: Tasks of the plans [N]; None if the planner has no notion of tasks.
    """
    taxonomy, found = windows.taxonomy, []
    for row, plan in enumerate(plans):
        video, first = dataset.videos[windows.video[row]], int(windows.start[row])
        truth, task = unpadded(windows.actions[row]), int(windows.tasks[row])
        predicted = None if tasks is None else int(tasks[row])
        of_plans: list[int | None] = [predicted] * len(plan)
        if plan.tasks is not None:
            of_plans = plan.tasks.tolist()
        right = [np.array_equal(actions, truth) for actions in plan.sequences]
        found.append(
            WindowPlans(
                video=video.video_id,
                from_step=first + 1,
                start=video.steps[first].start,
                end=video.steps[first + len(truth) - 1].end,
                true_task=task,
                true_task_name=taxonomy.tasks[task].name,
                predicted_task=predicted,
                predicted_task_name=None if predicted is None else taxonomy.tasks[predicted].name,
                true_actions=truth.tolist(),
                true_names=taxonomy.names(truth),
                plans=planned_sequences(plan, of_plans, taxonomy),
                rank=right.index(True) + 1 if any(right) else None,
                success=any(right[:1]),
                exact=plan.exact,
            )
        )
    return found


def save_plans(found: Sequence[WindowPlans], path: Path | str) -> None:
    """Write the plans of windows into a file, a line of JSON each; an existing one is replaced."""
    rows = (window.to_dict() for window in found)
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    write_text(Path(path), "".join(f"{line}\n" for line in lines))


def read_plans(path: Path | str) -> list[WindowPlans]:
    """Read a file from `save_plans`."""
    path = Path(path)
    check_regular(path, WindowPlans.remedy, RunError)
    try:
        # not splitlines(), which would also split at U+2028 inside a name
        lines = read_text(path, WindowPlans.remedy, RunError).split("\n")
        return [
            WindowPlans.parse(json.loads(line), Path(f"{path}, line {number}"))
            for number, line in enumerate(lines, 1)
            if line
        ]
    except (OSError, ValueError) as problem:
        raise RunError(f"{path}: cannot be read ({problem}). {WindowPlans.remedy}") from problem
