"""`cefito evaluate`: score a run on a split."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import log_warnings, print_json, table, talk
from cefito.cli.options import Flag
from cefito.cli.scores import METRIC_COLUMNS, metric_cells
from cefito.cli.search_options import AS_TRAINED, SearchOptions
from cefito.errors import ConfigError

__all__ = ["evaluate"]


def evaluate(
    run: Path,
    /,
    *,
    split: str = "test",
    oracle_task: Flag = False,
    sample: int | None = None,
    options: SearchOptions = AS_TRAINED,
    dataset: Path | None = None,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Score a run: success rate, mean accuracy, IoU, task accuracy, cost.

    The scores are also kept in the run folder, those of another search in a file of their own.

    Args:
        run: Run folder, as cefito train makes it.
        split: train, val or test.
        oracle_task: Plan with the true task of each window.
        sample: Score a fixed random sample of so many windows.
        options: How to search.
        dataset: Where the data set lies, if it has moved.
        device: auto, cpu or cuda.
        json: Print JSON instead of a table.
    """
    from cefito.data.videos import SPLITS
    from cefito.evaluation.runs import changed_search, evaluate_run
    from cefito.planners.run import open_run
    from cefito.runtime import pick_device

    if split not in SPLITS:
        raise ConfigError(f"--split {split}: expected one of {', '.join(SPLITS)}.")
    with log_warnings():
        opened = options.applied(open_run(run, device=pick_device(device)))
        try:
            evaluation, path = evaluate_run(
                opened, split=split, oracle_task=oracle_task, sample=sample, dataset=dataset
            )
        except KeyboardInterrupt:
            talk("error: interrupted; no scores were kept")
            return 130
    if json:
        print_json(evaluation)
        return 0
    task = ", ".join(["true task" if oracle_task else "predicted task", *changed_search(opened)])
    of = (
        f" of {evaluation['sampled_from']:,}"
        if evaluation["sampled_from"] != evaluation["windows"]
        else ""
    )
    table(
        f"{evaluation['dataset']}, {split}, T = {evaluation['horizon']}, "
        f"{evaluation['windows']:,}{of} windows, {task}; per cent",
        ("planner", *METRIC_COLUMNS),
        [[evaluation["planner"], *metric_cells(evaluation["metrics"])]],
    )
    fallback = evaluation.get("tasks_without_training")
    if fallback and fallback["tasks"]:
        talk(
            f"tasks without training windows: {len(fallback['tasks'])}; windows that belong to "
            f"them: {fallback['windows']}"
        )
    exact = "every search was exact" if evaluation["exact"] else "not every search was exact"
    talk(
        f"{evaluation['seconds_per_query']:.3f} s and "
        f"{evaluation['token_forwards_per_query']:,.0f} token forwards a query; {exact}; kept in "
        f"{path}"
    )
    return 0
