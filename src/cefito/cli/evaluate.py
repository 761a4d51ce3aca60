"""`cefito evaluate`: score a run on a split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, print_json, progress, table, talk
from cefito.cli.options import Flag
from cefito.cli.scores import metric_cells, metric_columns
from cefito.cli.search_options import AS_TRAINED, SearchOptions, option_of
from cefito.errors import ConfigError

if TYPE_CHECKING:
    from cefito.evaluation.records import RunEvaluation

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
            scores, path = evaluate_run(
                opened,
                split=split,
                oracle_task=oracle_task,
                sample=sample,
                dataset=dataset,
                progress=progress,
            )
        except KeyboardInterrupt:
            talk("error: interrupted; no scores were kept")
            return 130
    if json:
        print_json(scores.to_dict())
    else:
        _show(scores, changed_search(opened), path)
    return 0


def _show(scores: RunEvaluation, changed: Mapping[str, object], path: Path) -> None:
    how = ["true task" if scores.oracle_task else "predicted task"]
    for name, value in changed.items():
        shown = f"{value:g}" if isinstance(value, float) else value
        how.append(f"{option_of(name).removeprefix('--')} {shown}")
    sampled = scores.windows != scores.sampled_from
    windows = f"{scores.windows:,}" + (f" of {scores.sampled_from:,}" if sampled else "")
    table(
        f"{scores.dataset}, {scores.split}, T = {scores.horizon}, {windows} windows, "
        f"{', '.join(how)}; per cent",
        ("planner", *metric_columns().values()),
        [[scores.planner, *metric_cells(scores)]],
    )
    fallback = scores.tasks_without_training
    if fallback and fallback.tasks:
        talk(
            f"tasks without training windows: {len(fallback.tasks)}; windows that belong to them: "
            f"{fallback.windows}"
        )
    exact = "every search was exact" if scores.exact else "not every search was exact"
    talk(
        f"{scores.seconds_per_query:.3f} s and {scores.token_forwards_per_query:,.0f} token "
        f"forwards a query; {exact}; kept in {path}"
    )
