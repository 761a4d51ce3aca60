"""`cefito plan-batch`: the best plans of any number of queries, into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from cefito.cli.console import log_warnings, print_json, progress, talk
from cefito.cli.options import Flag, Several
from cefito.cli.search_options import AS_TRAINED, SearchOptions

__all__ = ["plan_batch"]


def plan_batch(
    run: Path,
    queries: Path,
    /,
    *,
    out: Path,
    split: str | None = None,
    task: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    top_k: int = 5,
    pin: Several = (),
    require: Several = (),
    forbid: Several = (),
    before: Several = (),
    no_repeats: Flag = False,
    min_probability: float | None = None,
    options: SearchOptions = AS_TRAINED,
    seconds: int | None = None,
    precision: Literal["float16", "float32"] | None = None,
    horizon: int | None = None,
    executor: str | None = None,
    workers: int = 1,
    address: str | None = None,
    threads: int = 1,
    shard: int = 512,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Plan any number of queries into a file, one row a plan.

    Repeat the command to go on after an interruption: what is done is kept. Queries that cannot be
    planned are listed with the reason in a file beside that of the plans, and hold up no other.
    Rows are the same whatever executor and workers.

    Args:
        run: Run folder, as cefito train makes it.
        queries: A prepared data set, of which every window of a split is planned; a table, .jsonl,
            .csv or .parquet, each line with features, start and end, or with initial and goal, and
            an id, a task and constraints if you like; or a folder of features, of which every file
            is planned from its first second to its last.
        out: File of the plans, .jsonl or .parquet. Parquet needs pip install cefito[table].
        split: Of a data set: train, val or test; by default test.
        task: Name or id of the task of queries that name none, instead of the predicted one.
        top_k: How many plans a query.
        pin: STEP=ACTION: the action of a step, counted from 1, is known; may be repeated. Actions
            are named, or given by their ids.
        require: An action that must occur; may be repeated.
        forbid: An action that must not occur; may be repeated.
        before: A,B: where actions A and B both occur, A comes first; may be repeated.
        no_repeats: No action may occur twice.
        min_probability: From 0 to 1: where the best plan is less probable, its rows say that it is
            not sure.
        options: How to search.
        seconds: With features, rows that make one observation; only for runs that do not say it.
        precision: With features, type in which the run's data set is stored; only for runs that do
            not say it.
        horizon: Number of actions, of a folder that holds runs of several.
        executor: serial (in this process), processes, or ray, which needs pip install cefito[ray];
            by default one worker works in this process, and several in processes of their own.
        workers: How many parts of the list are worked on at the same time.
        address: Of a Ray cluster that runs, for the executor ray; by default it works on this
            machine.
        threads: Threads that each worker computes with. More workers are faster than more threads.
        shard: Queries that are kept together, a multiple of 64.
        device: auto, cpu or cuda.
        json: Print what was done as JSON.
    """
    from cefito.batch.batch import plan_batch
    from cefito.batch.query_rows import Asked
    from cefito.data.names import find_task
    from cefito.inference.named_constraints import parse_constraints
    from cefito.runs.run import open_run
    from cefito.runtime import pick_device

    place = pick_device(device)
    with log_warnings():
        opened = options.applied(open_run(run, horizon=horizon, device=place))
        given = None if task is None else find_task(opened.taxonomy, task)
        named = parse_constraints(
            opened.taxonomy,
            pinned=pin,
            required=require,
            forbidden=forbid,
            before=before,
            no_repeats=no_repeats,
            task=given,
        )
        named.resolved(opened.taxonomy, task=given)  # refused once, and not for every query
        done = plan_batch(
            opened,
            queries,
            out,
            asked=Asked(
                top_k=top_k,
                task=given,
                constraints=named,
                min_probability=min_probability,
                seconds=seconds,
                precision=precision,
            ),
            split=split,
            executor=executor,
            workers=workers,
            address=address,
            threads=threads,
            shard=shard,
            device=str(place),
            progress=progress,
        )
    for problem in done.problems:
        talk(f"failed: {problem}", urgent=True)
    if done.problems:
        talk("no file of plans was written; repeat the command to go on", urgent=True)
        return 1
    sums = done.sums
    if json:
        files = {"plans": str(done.plans), "bad": None if done.bad is None else str(done.bad)}
        print_json({**sums.model_dump(), "queries_before": done.before, "files": files})
    if done.before:
        talk(f"{done.before:,} of {sums.queries:,} queries were done before")
    if done.bad is not None:
        talk(
            f"{sums.bad:,} of {sums.queries:,} queries could not be planned; {done.bad} says why",
            urgent=True,
        )
    talk(f"wrote {done.plans}: {sums.plans:,} plans of {sums.queries - sums.bad:,} queries")
    return 0 if sums.plans else 1
