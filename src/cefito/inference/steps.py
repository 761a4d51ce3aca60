"""Numbers of steps to plan: one, such as 3, or a range, such as "2-4"."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from cefito.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from cefito.runs.run import Run

__all__ = ["open_planning", "planning", "steps_range"]


def steps_range(given: int | str, setting: str = "steps") -> tuple[int, int]:
    """Parse a number of steps such as 3 or "3", or a range such as "1-6": shortest and longest."""
    found = re.fullmatch(r"([1-9][0-9]{0,3})(?:-([1-9][0-9]{0,3}))?", str(given).strip())
    shortest, longest = (
        (int(part) for part in (found[1], found[2] or found[1])) if found else (1, 0)
    )
    if shortest > longest:
        raise ConfigError(
            f"{setting} {str(given)[:40]}: expected a number of steps, or a range, as in 3 or 1-6.",
            setting=setting,
        )
    return shortest, longest


def planning(run: Run, steps: int | str | None) -> Run:
    """Return the run with plans of these numbers of steps; None for all that it can plan.

    Raises:
        ConfigError: Not a number or range, or the run does not plan it.
    """
    if steps is None or (wanted := steps_range(steps)) == run.chosen_steps:
        return run
    return run.with_steps(*wanted)


def open_planning(
    folder: Path | str,
    *,
    horizon: int | None = None,
    steps: int | str | None = None,
    device: torch.device | str | None = None,
) -> Run:
    """Open a run that plans these numbers of steps; `horizon` and `device` are as in `open_run`.

    One number of steps also chooses among runs of several horizons.

    Raises:
        ConfigError: Not a number or range, or the run does not plan it.
        RunError: See `cefito.runs.run.open_run`.
    """
    from cefito.runs.folder import horizons_in
    from cefito.runs.run import open_run

    if steps is not None:
        shortest, longest = steps_range(steps)
        if horizon is not None and (shortest, longest) != (horizon, horizon):
            raise ConfigError(f"horizon {horizon} and steps {steps}: leave out one of both.")
        if shortest == longest and horizons_in(Path(folder)):
            horizon = shortest
    return planning(open_run(folder, horizon=horizon, device=device), steps)
