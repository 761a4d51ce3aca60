"""`cefito plan`: the best plans between two observations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cefito.cli.console import log_warnings, print_json, table, talk

__all__ = ["plan"]


def plan(run: Path, /, *, video: str | None = None, from_step: int = 0, initial: Path | None = None,
         goal: Path | None = None, task: int | None = None, top_k: int = 5, dataset: Path | None = None,
         device: str = "auto", json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Plan the actions between two observations, of a video of the data set or from files.

    Args:
        run: Run folder, as cefito train makes it.
        video: Id of a video of the run's data set.
        from_step: Number of the first step to plan, counted from 0; the plan covers as many steps as the run's horizon.
        initial: .npy file of the observation before the first step.
        goal: .npy file of the observation after the last step.
        task: Id of the task, instead of the predicted one.
        top_k: How many plans.
        dataset: Where the data set lies, if it has moved.
        device: auto, cpu or cuda.
        json: Print JSON instead of a table.
    """
    from cefito.planners.answer import answer, query_from_files, query_from_video
    from cefito.planners.run import open_run, pick_device

    with log_warnings():
        opened = open_run(run, device=pick_device(device))
        if video is not None and initial is None and goal is None:
            query, truth = query_from_video(opened, video, from_step, dataset)
        else:
            query, truth = query_from_files(video, initial, goal), None
        value = answer(opened.planner, query, task=task, top_k=top_k, truth=truth)
    if json:
        print_json(value)
        return
    chosen = value["task"]
    talk(f"task {chosen['id']}: {chosen['name']} ({chosen['source']})")
    table("", ("energy", "plan"), [(f"{entry['energy']:.4f}", " → ".join(entry["names"])) for entry in value["plans"]])
    if truth is not None:
        talk("annotated: " + " → ".join(value["truth"]["names"]))
