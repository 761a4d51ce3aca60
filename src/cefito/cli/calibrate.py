"""`cefito calibrate`: thresholds for sets of plans with a guarantee."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import log_warnings, passing_progress, talk
from cefito.markup import counted

__all__ = ["calibrate"]


def calibrate(
    run: Path,
    /,
    *,
    folds: int | None = None,
    dataset: Path | None = None,
    horizon: int | None = None,
    device: str = "auto",
) -> None:
    """Calibrate the sets of plans of a run, for cefito plan --coverage.

    Without folds, on the validation videos. With folds, the training is repeated without a part of
    the training videos, for each part; an interrupted calibration continues.

    Args:
        run: Run folder, as cefito train makes it.
        folds: Number of parts of the training videos; 0 to use the validation videos. By default 0
            if there are at least 50 of these and the run was not trained on them, else 10.
        dataset: The run's data set, if it has moved; with --folds 0 any data set with validation
            videos and observations made in the same way.
        horizon: Number of actions, if the folder holds runs of several.
        device: auto, cpu or cuda.
    """
    from cefito.evaluation.conformal import calibrate_run
    from cefito.runs.coverage import COVERAGE_FILE
    from cefito.runs.run import open_run
    from cefito.runtime import pick_device

    with log_warnings():
        chosen = pick_device(device)
        opened = open_run(run, horizon=horizon, device=chosen)
        table = calibrate_run(
            opened, folds=folds, dataset=dataset, device=chosen, progress=passing_progress
        )
    videos = max(one.videos for one in table.thresholds)
    how = f"{table.folds} folds of training videos" if table.folds else "validation videos"
    talk(
        f"calibrated on {counted(videos, 'video')} ({how}), for a coverage of at most "
        f"{min(table.levels[-1], videos / (videos + 1)):.3f}; kept in "
        f"{opened.folder / COVERAGE_FILE}"
    )
    talk(f"ask with: cefito plan {run} … --coverage 0.9")
