"""Plan a test query with constraints and over several tasks.

To run it: python examples/constraints.py DATA RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

import cefito
from cefito.data import Taxonomy
from cefito.data.windows import action_space
from cefito.search import Constraints
from cefito.search.settings import search_settings


def main(data: str, folder: str, *overrides: str) -> None:
    """Train (or go on training) a run; plan a window freely, constrained, and over three tasks."""
    dataset = cefito.open_dataset(data)
    config = cefito.load_config("small", overrides=dict(entry.split("=", 1) for entry in overrides))
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
    first, second, last = test.actions[window].tolist()
    chosen = test.subset([window])
    print("annotated: " + " → ".join(dataset.taxonomy.names(chosen.actions[0])))

    of_its_task = cefito.Queries.from_windows(chosen, oracle_task=True)
    show("free", run.planner.plan(of_its_task, top_k=3)[0], dataset.taxonomy)
    constraints = Constraints(
        pinned=((1, first),), required=(last,), before=((second, last),), no_repeats=True
    )
    plans = run.planner.plan(of_its_task, top_k=3, constraints=constraints)[0]
    show("constrained", plans, dataset.taxonomy)

    assert run.trained_search is not None
    several = run.with_search(search_settings(run.trained_search, tasks=3))
    plans = several.planner.plan(cefito.Queries.from_windows(chosen), top_k=3)[0]
    show("several tasks", plans, dataset.taxonomy)


def show(title: str, plans: cefito.Plans, taxonomy: Taxonomy) -> None:
    """Print the plans of one query: score, task and actions."""
    assert plans.tasks is not None
    print(
        f"{title}, {'exact' if plans.exact else 'not exact'}, {plans.evaluated.leaves} sequences "
        "evaluated:"
    )
    for actions, score, task in zip(plans.actions, plans.scores, plans.tasks.tolist(), strict=True):
        print(f"{score:9.3f}  {taxonomy.tasks[task].name}: {' → '.join(taxonomy.names(actions))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
