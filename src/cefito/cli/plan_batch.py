"""`cefito plan-batch`: the best plans of any number of queries, into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cefito.cli.console import log_warnings, print_json, progress, talk
from cefito.cli.options import given_options
from cefito.cli.plan_options import AS_TRAINED, DEFAULTS, PlanOptions, SearchOptions
from cefito.markup import counted

__all__ = ["plan_batch"]


_Given = given_options("without_goal", "after_done")
_OBSERVATIONS = _Given()


def plan_batch(
    run: Path,
    queries: Path,
    /,
    *,
    out: Path,
    split: str | None = None,
    given: _Given = _OBSERVATIONS,  # type: ignore[valid-type]
    options: PlanOptions = DEFAULTS,
    search: SearchOptions = AS_TRAINED,
    seconds: int | None = None,
    precision: Literal["float16", "float32"] | None = None,
    executor: str | None = None,
    workers: int = 1,
    address: str | None = None,
    threads: int = 1,
    shard: int = 512,
) -> int:
    """Plan any number of queries into a file, one row a plan.

    Repeat the command after an interruption to resume: finished work is kept. Queries that cannot
    be planned are listed with the reason in a file of their own and do not affect the others. Rows
    do not depend on executor and workers.

    Args:
        run: Run folder, as cefito train makes it.
        queries: A prepared data set, of which every window of a split is planned; a table, .jsonl,
            .csv or .parquet, each line with features, start and end, or with initial and goal, and
            optionally an id, a task, constraints, steps, done and elapsed; or a folder of features,
            of which every file is planned from its first second to its last. Options hold for
            queries that do not say otherwise.
        out: File of the plans: .jsonl, .csv, .md (a table in Markdown), .jsonld (schema.org HowTo)
            or .parquet, which needs pip install cefito[table].
        split: Split of a data set: train, val or test; by default test.
        given: What is given of the windows of a data set.
        options: How to plan.
        search: How to search.
        seconds: With features, rows that make one observation; only for runs that do not say it.
        precision: With features, stored type of the run's data set; only for runs that do not say
            it.
        executor: serial (in this process), processes, or ray, which needs pip install cefito[ray];
            by default serial for one worker and processes for several.
        workers: Number of parts of the queries that are planned at the same time.
        address: Address of a running Ray cluster, for the executor ray; by default it works on this
            machine.
        threads: Threads of each worker. More workers are faster than more threads.
        shard: Queries of a part, a multiple of 64.
    """
    from cefito.batch.batch import plan_batch
    from cefito.batch.query_rows import QuerySettings

    with log_warnings():
        opened, device = options.open(run, search)
        done = plan_batch(
            opened,
            queries,
            out,
            settings=options.question(opened, QuerySettings, seconds=seconds, precision=precision),
            split=split,
            executor=executor,
            workers=workers,
            address=address,
            threads=threads,
            shard=shard,
            device=str(device),
            progress=progress,
            **given.given(),  # type: ignore[attr-defined]
        )
    for problem in done.problems:
        talk(f"failed: {problem}", urgent=True)
    if done.problems:
        talk("error: no file of plans was written. Repeat the command to resume.", urgent=True)
        return 1
    counts, before = done.counts, done.done_before
    if options.json:
        files = {"plans": str(done.plans), "bad": None if done.bad is None else str(done.bad)}
        print_json({**counts.model_dump(), "queries_before": before, "files": files})
    if before:
        talk(f"{before:,} of {counts.queries:,} queries were done before")
    if done.bad is not None:
        found = f"{counts.bad:,} of {counts.queries:,} queries could not be planned"
        talk(f"{found}; {done.bad} says why", urgent=True)
    planned = counted(counts.queries - counts.bad, "query", "queries")
    talk(f"wrote {done.plans}: {counted(counts.plans, 'plan')} of {planned}")
    return 0 if counts.plans else 1
