"""Plan steps of a test video with constraints and over several tasks.

To run it: python examples/constraints.py DATA RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

import cefito
from cefito.data.windows import action_space


def main(data: str, folder: str, *overrides: str) -> None:
    """Train (or go on training) a run; plan a window freely, constrained, and over three tasks."""
    dataset = cefito.open_dataset(data)
    config = cefito.load_config(
        "small", method="cefito+chain", overrides=dict(entry.split("=", 1) for entry in overrides)
    )
    run = cefito.train_run(dataset, Path(folder), config=config, horizon=3, seed=0)
    train = cefito.cut_windows(dataset, horizon=3, split="train")
    test = cefito.cut_windows(dataset, horizon=3, split="test")

    # a window of three different actions, all known to its task from training
    known = action_space(train, "training").actions
    window = next(
        row
        for row, (actions, task) in enumerate(
            zip(test.actions.tolist(), test.tasks.tolist(), strict=True)
        )
        if len(set(actions)) == 3 and set(actions) <= set(known[task])
    )
    video, step = dataset.videos[test.video[window]].video_id, int(test.start[window]) + 1
    start, goal = (video, step), (video, step + 2)
    task = dataset.taxonomy.tasks[int(test.tasks[window])].name
    first, second, last = dataset.taxonomy.names(test.actions[window])
    print(f"annotated: {first} → {second} → {last}")

    print(f"\nfree:\n{run.plan(start=start, goal=goal, task=task, top_k=3)}")
    constrained = run.plan(
        start=start,
        goal=goal,
        task=task,
        top_k=3,
        pin={1: first},
        required=[last],
        before=[(second, last)],
        no_repeats=True,
    )
    print(f"\nconstrained:\n{constrained}")

    several = run.with_search(tasks=3)
    print("\nseveral tasks:")
    for plan in several.plan(start=start, goal=goal, top_k=3).plans:
        print(f"{plan.score:9.3f}  {plan.task}: {' → '.join(plan.steps)}")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
