"""Train on a data set and plan steps of a test video: python examples/plan.py DATA RUN."""

from __future__ import annotations

import sys
from pathlib import Path

import cefito


def main(data: str, folder: str, *overrides: str) -> None:
    """Train (or go on training) a run, score it, and plan the first steps of a test video."""
    dataset = cefito.open_dataset(data)
    config = cefito.load_config(
        "small", method="chain", overrides=dict(entry.split("=", 1) for entry in overrides)
    )
    run = cefito.train_run(dataset, Path(folder), config=config, horizon=3, seed=0)
    test = cefito.cut_windows(dataset, horizon=3, split="test")
    evaluation, _ = cefito.evaluate_planner(run.planner, test)
    print(f"{evaluation.dataset}: success rate {evaluation.metrics['success_rate']:.2f} %")
    video = dataset.videos[test.video[0]].video_id
    print(run.plan(start=(video, 1), goal=(video, 3)))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
