"""Train on a data set and plan one test query, in Python: python examples/plan.py DATA RUN."""

from __future__ import annotations

import sys
from pathlib import Path

import cefito


def main(data: str, folder: str, *overrides: str) -> None:
    """Train (or go on training) a run, score it, print the best plans of the first test window."""
    dataset = cefito.open_dataset(data)
    config = cefito.load_config("small", overrides=dict(entry.split("=", 1) for entry in overrides))
    run = cefito.train_run(dataset, Path(folder), config=config, horizon=3, seed=0)
    test = cefito.cut_windows(dataset, horizon=3, split="test")
    evaluation, plans = cefito.evaluate_planner(run.planner, test)
    print(f"{evaluation.dataset}: success rate {evaluation.metrics['success_rate']:.2f} %")
    for actions, score in zip(plans[0].actions, plans[0].scores, strict=True):
        print(f"{score:8.4f}  {' → '.join(dataset.taxonomy.names(actions))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
