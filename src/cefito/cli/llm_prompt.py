"""`cefito llm-prompt`: what a language model would be told, and how often it would be asked."""

from __future__ import annotations

import sys
from pathlib import Path

from cefito.cli.console import log_warnings, print_json, talk
from cefito.cli.console_errors import printable
from cefito.cli.options import Flag
from cefito.errors import ConfigError

__all__ = ["llm_prompt"]


def llm_prompt(
    run: Path,
    /,
    *,
    window: int = 0,
    split: str = "test",
    sample: int | None = None,
    oracle_task: Flag = False,
    oracle_ends: Flag = False,
    dataset: Path | None = None,
    horizon: int | None = None,
    json: Flag = False,
) -> None:
    """Show the request for one window of a run that asks a language model; nothing is asked.

    It is also said how many requests cefito evaluate with the same options would make at most.

    Args:
        run: Run folder of a method that asks one (llm-ends, llm-ranked).
        window: Which window of the split or sample, counted from 0.
        split: train, val or test.
        sample: A fixed random sample of so many windows, as cefito evaluate takes it.
        oracle_task: With the true task of each window.
        oracle_ends: With the true first and last action of each window.
        dataset: The data set, if not that of the run.
        horizon: Number of actions, of a folder that holds runs of several.
        json: Print JSON, with the schema of answers and all that is sent.
    """
    from cefito.data.videos import SPLITS
    from cefito.evaluation.runs import SAMPLE_SEED
    from cefito.planners.base import Queries
    from cefito.planners.language_model.preview import preview
    from cefito.runs.matching import match_dataset
    from cefito.runs.run import open_run

    if split not in SPLITS:
        raise ConfigError(f"--split {split}: expected one of {', '.join(SPLITS)}.")
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.", setting="sample")
    with log_warnings():
        opened = open_run(run, horizon=horizon)
        windows, _ = match_dataset(opened, opened.dataset(dataset)).windows(split)
        queries = Queries.from_windows(
            windows.sample(sample, SAMPLE_SEED), oracle_task=oracle_task, oracle_ends=oracle_ends
        )
        found = preview(opened.planner, queries, window)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        for message in found.messages:
            lines = [f"{message.role}:", *message.content.split("\n"), ""]
            sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    talk(
        f"{found.queries:,} windows: {found.different:,} different requests, {found.known:,} of "
        f"them answered already; {found.model} at {found.server} would be asked at most "
        f"{found.most:,} times, the budget is {found.budget:,}"
    )
