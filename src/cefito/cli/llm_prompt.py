"""`cefito llm-prompt`: show the prompt of one window, and the number of requests."""

from __future__ import annotations

import sys
from pathlib import Path

from cefito.cli.console import log_warnings, print_json, printable, talk
from cefito.cli.options import Flag, given_options
from cefito.errors import ConfigError

__all__ = ["llm_prompt"]


_Given = given_options("oracle_task", "oracle_ends")
_OBSERVATIONS = _Given()


def llm_prompt(
    run: Path,
    /,
    *,
    window: int = 0,
    split: str = "test",
    sample: int | None = None,
    given: _Given = _OBSERVATIONS,  # type: ignore[valid-type]
    dataset: Path | None = None,
    horizon: int | None = None,
    json: Flag = False,
) -> None:
    """Show the request for one window of a run that asks a language model; nothing is asked.

    Also say how many requests cefito evaluate with the same options would make at most.

    Args:
        run: Run folder of llm-ends or llm-ranked.
        window: Number of the window in the split or sample, counted from 0.
        split: train, val or test.
        sample: Size of a fixed random sample of windows, as in cefito evaluate.
        given: What the planner is given.
        dataset: The data set, if not that of the run.
        horizon: Number of actions, for a folder with runs of several.
        json: Print JSON, with the answer schema and all other request fields.
    """
    from cefito.data.annotations import SPLITS
    from cefito.evaluation.runs import SAMPLE_SEED
    from cefito.planners.language_model.dialogue import preview
    from cefito.planners.language_model.planner import LlmPlanner
    from cefito.planners.queries import Queries
    from cefito.runs.matching import match_dataset
    from cefito.runs.run import open_run

    if split not in SPLITS:
        raise ConfigError(f"--split {split}: expected one of {', '.join(SPLITS)}.")
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.", setting="sample")
    with log_warnings():
        opened = open_run(run, horizon=horizon)
        planner = opened.planner
        if not isinstance(planner, LlmPlanner):
            raise ConfigError(f"{planner.name} asks no language model. Name a run that does.")
        windows, _ = match_dataset(opened, opened.dataset(dataset)).windows(split)
        known = given.given()  # type: ignore[attr-defined]
        queries = Queries.from_windows(windows.sample(sample, SAMPLE_SEED), **known)
        found = preview(planner.requests(queries), planner.config, window)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        for message in found.messages:
            lines = [f"{message['role']}:", *message["content"].split("\n"), ""]
            sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    talk(
        f"{found.queries:,} windows: {found.different:,} different requests, {found.known:,} of "
        f"them cached; {found.model} at {found.server} would be asked at most {found.most:,} "
        f"times, the budget is {found.budget:,}"
    )
