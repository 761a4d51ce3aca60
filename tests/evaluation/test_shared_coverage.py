"""The guarantee of sets of a shared run, on videos that neither training nor calibration saw."""

from __future__ import annotations

import numpy as np
import pytest

from cefito.data import cut_windows
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.errors import RunError
from cefito.evaluation.conformal import WindowScores, calibrate_run, windows_for
from cefito.evaluation.sharing import export_run
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.runs.train import train_run

TINY = {
    "chain.hidden": 16,
    "chain.width": 16,
    "chain.emission": 16,
    "chain.members": 1,
    "chain_training.optimiser.epochs": 5,
}


def covered(run, windows, level):
    """Share of windows whose set holds the truth, each video alike, over all conditions."""
    shares = []
    for condition in (one.condition for one in run.calibrated().thresholds):
        part = windows_for(windows, condition)
        scores = WindowScores.of(run.planner, part, condition)
        found, place = run.calibrated().of(condition, level, place=run.place)
        for name in ("plans", "next_step", "next_two"):
            limit = getattr(found, name)[place]
            inside = getattr(scores, name) <= (np.inf if limit is None else limit)
            counts = np.bincount(part.video)
            shares.append(np.bincount(part.video, weights=inside)[counts > 0] / counts[counts > 0])
    return 100 * float(np.mean(shares)), len(windows), len(np.unique(windows.video))


@pytest.mark.nightly
def test_coverage_of_exported_runs(tmp_path):
    knobs = WorldKnobs(train=48, val=600, test=600, dim=8)
    world = write_world(tmp_path / "world", seed=0, knobs=knobs)
    windows = cut_windows(world, horizon=3, split="test")
    for name, share in (("without", 0.0), ("all", 0.5)):
        config = load_config(
            "small", method="chain", overrides={**TINY, "chain_training.all_videos": share}
        )
        folder = tmp_path / name
        run = train_run(world, folder, config=config, horizon=3, seed=0, tracker="none")
        export_run(folder, tmp_path / f"{name}.zip")
        if share:  # trained on all videos: none of these may calibrate it, wherever it is
            for place in (folder, tmp_path / f"{name}.zip"):
                with pytest.raises(RunError, match="was trained on validation videos"):
                    calibrate_run(open_run(place), folds=0, dataset=world.folder)
            continue
        calibrate_run(run, folds=0)
        export_run(folder, tmp_path / "calibrated.zip")
        shared = open_run(tmp_path / "calibrated.zip")
        for level in (0.8, 0.9):
            found, count, videos = covered(shared, windows, level)
            print(f"asked for {level:.0%}: {found:.1f} % of {count} windows of {videos} videos")  # noqa: T201
            assert 100 * level - 2 <= found <= 100 * level + 2
