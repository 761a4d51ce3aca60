"""`cefito quickstart`: the whole method once, in minutes, on an embedded world."""

from __future__ import annotations

import time
from pathlib import Path

from cefito.cli.console import log_warnings, progress, table, talk
from cefito.cli.scores import metric_cells, metric_columns

__all__ = ["quickstart"]


def quickstart(*, out: Path = Path("runs/quickstart"), seed: int = 0) -> None:
    """Make a small simulated world, train on it, plan its test videos.

    Two simple planners are scored for comparison.

    Args:
        out: New folder for data set, run and pictures.
        seed: Seed of world and training.
    """
    from cefito.study.quickstart import run_quickstart

    started = time.monotonic()
    with log_warnings():
        made = run_quickstart(out, seed=seed, progress=progress)
    first, columns = made.evaluations[0], metric_columns(made.evaluations)
    rows = [
        [
            f"{evaluation.planner}, true task" if evaluation.oracle_task else evaluation.planner,
            *metric_cells(evaluation, columns),
            f"{1000 * evaluation.seconds_per_query:.1f}",
        ]
        for evaluation in made.evaluations
    ]
    table(
        f"{first.dataset}: {first.windows} test windows, T = {first.horizon}; per cent",
        ("planner", *columns.values(), "ms a query"),
        rows,
    )
    for example in made.examples:
        task = example.true_task_name
        if example.predicted_task_name != task:
            task += f" (taken for: {example.predicted_task_name})"
        lines = [
            (f"{plan.score:.3f}", f"{plan.energy:.4f}", " → ".join(plan.names), mark)
            for plan in example.plans
            for mark in ["annotated" if plan.names == example.true_names else ""]
        ]
        title = f"\n{task} – {example.video}, from step {example.from_step}\n"
        title += f"  annotated: {' → '.join(example.true_names)}"
        table(title, ("score", "energy", "plan", ""), lines)
    pictures = " and ".join(map(str, made.pictures))
    seconds = time.monotonic() - started
    talk(f"\nDone in {seconds:.0f} s. Everything is in {out}; look at {pictures}.")
    example = made.examples[0]
    talk(
        "What next:\n"
        f"  one plan          cefito plan {out}/run --video {example.video} --from-step "
        f"{example.from_step}\n"
        "  your own videos   cefito data prepare custom STEPS.csv DATA --features FOLDER, then "
        "cefito train DATA --horizon 3 --out RUN\n"
        "  the paper's size  cefito train DATA --horizon 3 --preset paper --out RUN"
    )
