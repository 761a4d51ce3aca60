"""Plan one test query with constraints and over several tasks, in Python.

Python examples/constraints.py DATA RUN.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cefito
from cefito.data import Taxonomy
from cefito.search import Constraints
from cefito.search.settings import search_settings


def main(data: str, folder: str, *overrides: str) -> None:
    """Train (or go on training) a run, then plan a test window freely, with what is known of it.

    And over three tasks.
    """
    dataset = cefito.open_dataset(data)
    config = cefito.load_config("small", overrides=dict(entry.split("=", 1) for entry in overrides))
    planner = cefito.train_run(dataset, Path(folder), config=config, horizon=3, seed=0).planner
    test = cefito.cut_windows(dataset, horizon=3, split="test")
    assert planner.space is not None

    # a window of three different actions, all known to its task from training
    row = next(
        row
        for row, (actions, task) in enumerate(
            zip(test.actions.tolist(), test.tasks.tolist(), strict=True)
        )
        if len(set(actions)) == 3 and set(actions) <= set(planner.space.actions[task])
    )
    first, second, last = test.actions[row].tolist()
    one = test.subset([row])
    print("annotated: " + " → ".join(dataset.taxonomy.names(one.actions[0])))

    given = cefito.Queries.from_windows(one, oracle_task=True)
    show("free", planner.plan(given, top_k=3)[0], dataset.taxonomy)
    known = Constraints(
        pinned=((1, first),), required=(last,), before=((second, last),), no_repeats=True
    )
    show("constrained", planner.plan(given, top_k=3, constraints=known)[0], dataset.taxonomy)

    planner.use(search_settings(planner.config.search, tasks=3))
    show(
        "several tasks",
        planner.plan(cefito.Queries.from_windows(one), top_k=3)[0],
        dataset.taxonomy,
    )


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
