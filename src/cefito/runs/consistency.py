"""Whether the parts of a run fit each other: what its records say, and what its weights are for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cefito.data.taxonomy import Taxonomy
from cefito.errors import RunError
from cefito.planners.base import Planner

if TYPE_CHECKING:
    from cefito.runs.info import RunInfo

__all__ = ["check_fit"]


def check_fit(planner: Planner, info: RunInfo, taxonomy: Taxonomy, *, folder: Path) -> None:
    """See that weights are for the horizon and the taxonomy that the run's records name.

    Args:
        planner: The planner that was loaded.
        info: Content of the run's `run.json`.
        taxonomy: The run's tasks and actions.
        folder: The run folder, for the message.

    Raises:
        RunError: They are for others; the message names the field.
    """
    tasks, actions, least = planner.vocabulary
    for field, place, said, found in (
        ("horizon", "run.json", info.horizon, planner.horizon),
        ("tasks", "taxonomy.json", len(taxonomy.tasks), tasks),
        ("actions", "taxonomy.json", len(taxonomy.actions), actions),
    ):
        enough = least and field != "horizon" and found is not None and said >= found
        if found not in (None, said) and not enough:
            raise RunError(
                f"{folder / place}: {field}: {said}, but the planner's files are for {found}. The "
                "files are of different runs. Copy the run again, or train it again."
            )
