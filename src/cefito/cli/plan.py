"""`cefito plan` and `plan-batch`: the best plans of one query, or of many."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from cefito.cli.console import (
    log_warnings,
    passing_progress,
    print_bytes,
    print_json,
    progress,
    stoppable,
    table,
    talk,
)
from cefito.cli.options import OUTPUT, QUERY, Flag, given_options
from cefito.cli.plan_options import (
    AS_TRAINED,
    DEFAULTS,
    NO_QUERY,
    PlanOptions,
    QueryOptions,
    SearchOptions,
)
from cefito.errors import ConfigError
from cefito.inference.question import Question
from cefito.markup import counted, percent

if TYPE_CHECKING:
    from cefito.batch.planning import QuerySettings
    from cefito.data.annotations import Taxonomy
    from cefito.inference.answer import Answer, PlannedSequence, ReplyAnswer
    from cefito.inference.plan_formats import PlanFormat, PlanRow
    from cefito.inference.sets import PlanSets, StepSet
    from cefito.runs.run import Run


def plan(
    run: Path,
    /,
    *,
    query: QueryOptions = NO_QUERY,
    queries: Annotated[Path | None, Parameter(group=QUERY)] = None,
    ids: Annotated[Flag, Parameter(group=OUTPUT)] = False,
    format: Annotated[str | None, Parameter(group=OUTPUT)] = None,
    options: PlanOptions = DEFAULTS,
    search: SearchOptions = AS_TRAINED,
) -> int:
    """Plan the actions between two observations.

    The observations are those of a video of the data set, two files, two times of features or of a
    video file, or two pictures. A run of several lengths (cefito train --steps 1-6) plans any
    number of steps, also from one of the two observations, after steps done before, or for a task
    alone.

    Ctrl-C stops a long search and shows the best plans so far; a second Ctrl-C ends it at once.

    Args:
        run: Run folder, as cefito train makes it.
        query: What to plan.
        queries: Short table of queries, .jsonl, .csv or .parquet, each line with features, start
            and end, or with initial and goal, and optionally an id, a task, constraints, steps,
            done and elapsed; files are found relative to the folder of the table. Other options
            hold for queries that do not say otherwise. cefito plan-batch plans long tables.
        ids: Show the ids of actions after their names.
        format: Print one row a plan in a format of cefito plan-batch: jsonl, csv, md (a table in
            Markdown), howto (JSON-LD of schema.org) or parquet.
        options: How to plan.
        search: How to search.
    """
    from cefito.inference.answer import answers
    from cefito.inference.asked import Asked
    from cefito.inference.plan_formats import PlanRow
    from cefito.runs.matching import named_dataset

    chosen = _format(format, json=options.json)
    with log_warnings():
        opened, device = options.open(run, search)
        if queries is not None:
            from cefito.batch.planning import QuerySettings

            if query.given - {"seconds", "precision"}:
                raise ConfigError("--queries replaces --video, --features and others. Omit these.")
            how = {"seconds": query.seconds, "precision": query.precision}
            settings = options.question(opened, QuerySettings, **how)
            return _plan_many(opened, queries, settings, json=options.json, ids=ids, chosen=chosen)
        question = options.question(opened, Question).resolved(opened)
        if query.after_done and question.done is not None:
            raise ConfigError("--after-done and --done both give the steps done. Leave one out.")
        known = question.task is not None or question.done is not None
        observed, truth = query.find(opened, device, known=known)
        with stoppable(
            "stopping with the best plans so far; press Ctrl-C again to end at once"
        ) as stop:
            dataset = named_dataset(opened, query.dataset)
            asked = Asked.of(question, opened, observed, truth=truth, dataset=dataset)
            (found,) = answers([asked], stop=stop, progress=passing_progress)
    _warn(found)
    if chosen is not None:
        _print_rows(chosen, PlanRow.of(found, "1", 1))
    elif options.json:
        print_json(found.to_dict())
    else:
        _show(found, opened.taxonomy, question.min_probability, ids=ids)
        if found.sets is not None:
            _show_sets(found.sets, opened.taxonomy, ids=ids)
    return 0 if found.plans else 130  # only an interrupted search finds none


def _format(name: str | None, *, json: bool) -> PlanFormat | None:
    """Return the format of the output; None for tables and JSON."""
    from cefito.inference.plan_formats import find_format

    if name is None:
        return None
    if json:
        raise ConfigError("--format and --json both choose the output. Leave one out.")
    chosen = find_format(name)
    if chosen.binary and sys.stdout.isatty():
        raise ConfigError(f"--format {name} is not text. Write it into a file, with > FILE.")
    return chosen


def _print_rows(chosen: PlanFormat, rows: Sequence[PlanRow]) -> None:
    from cefito.inference.plan_formats import json_line

    file = BytesIO()
    chosen.write(map(json_line, rows), file)
    print_bytes(file.getvalue())


def _show(found: Answer, taxonomy: Taxonomy, min_probability: float | None, *, ids: bool) -> None:
    from cefito.data.vocabulary import sequence

    plans, searched = found.plans, found.search.tasks
    among = f"; {searched} tasks searched" if searched > 1 else ""
    if found.task is not None:
        likely = "" if found.task_probability is None else f", {percent(found.task_probability)}"
        talk(f"task {found.task_id}: {found.task} ({found.task_source}{likely}{among})")
    if found.known is not None and found.known.done is not None:
        talk(f"done: {sequence(taxonomy, found.known.done, ids=ids) or 'nothing'}")
    if found.lengths_in_words:
        talk(found.lengths_in_words)
    columns = {"score (lower is better)": [f"{plan.score:z.4f}" for plan in plans]}
    if found.by_energy:
        alone = all(plan.score == plan.energy for plan in plans)
        energies = [f"{plan.energy:z.4f}" for plan in plans]
        columns = (
            {"energy (lower is better)": energies} if alone else {"energy": energies, **columns}
        )
    columns |= _probabilities(plans)
    if len({plan.task for plan in plans}) > 1:
        columns["task"] = [
            "" if plan.task is None else f"{plan.task_id}: {plan.task}" for plan in plans
        ]
    columns["plan"] = [sequence(taxonomy, plan.actions, ids=ids) for plan in plans]
    if plans:
        table("", tuple(columns), list(zip(*columns.values(), strict=True)))
    talk(_quality(found))
    if found.reply is not None:
        talk(_answered(found.reply))
    if found.searched_mass is not None and found.searched_mass < 1:
        mass = percent(found.searched_mass)
        talk(f"probabilities: the compared sequences have {mass} of all probability")
    if min_probability is not None and found.sure is False:
        best = percent(plans[0].probability) if plans else "missing"
        wanted = percent(min_probability)
        talk(f"not sure: the best plan's probability is {best}; requested: {wanted}")
    if (other := found.dataset) is not None:
        where = f"'{other.name}', fingerprint {other.fingerprint[:12]}"
        talk(f"planned for another data set than that of the run: {where}")
    if found.truth is not None:
        talk(f"annotated: {sequence(taxonomy, found.truth.actions, ids=ids)}")


def _show_sets(sets: PlanSets, taxonomy: Taxonomy, *, ids: bool) -> None:
    """Print the set of plans; if it is too large, the sets of first steps."""
    from cefito.data.vocabulary import sequence

    shown: dict[str, StepSet | None] = {"plan": sets.plans}
    if not sets.plans.steps:
        shown = {"next step": sets.next_step, "next two steps": sets.next_two}
    for name, part in shown.items():
        if part is not None and part.steps:
            rows = [
                (
                    percent(one.probability),
                    sequence(taxonomy, one.actions, ids=ids) + " (the last)" * one.ends,
                )
                for one in part.steps
            ]
            title = f"the set for {100 * sets.coverage:g} %" if name == "plan" else ""
            table(title, ("probability", name), rows)
    talk(sets.in_words())


def _warn(found: Answer, query: str = "") -> None:
    for warning in found.warnings:
        talk(f"warning: {query}{warning}", urgent=True)


def _answered(reply: ReplyAnswer) -> str:
    """Return the part of the language model in the plans, in a line."""
    said = {
        "kept": "its answer was valid",
        "repaired": "its answer was invalid and has been repaired",
        "replaced": "its answer was unusable; the plan is PKG's",
    }.get(reply.outcome)
    if said is None:
        return f"{reply.model} was not asked; the plan is PKG's"
    return f"{reply.model} at {reply.host}, {reply.asked[:10]}: {said}"


def _quality(found: Answer) -> str:
    """Return whether the result is exact, and its cost, in a line."""
    if found.exact:
        words = "exact: no other allowed sequence is better"
    elif not found.plans:
        words = "interrupted before any plan was found"
    elif found.search.interrupted:
        words = "interrupted, not exact: the best plans so far"
    else:
        words = "not exact: there may be better plans"
    return f"{words}; {found.evaluated.token_forwards:,} token forwards"


def _plan_many(
    run: Run,
    path: Path,
    settings: QuerySettings,
    *,
    json: bool,
    ids: bool,
    chosen: PlanFormat | None,
) -> int:
    """Plan every query of a table, print the answers, and return the exit code."""
    from cefito.batch.planning import read_queries
    from cefito.inference.answer import answers
    from cefito.inference.plan_formats import PlanRow

    queries = read_queries(run, path, settings)
    found: list[tuple[str, Answer]] = []
    rows: list[PlanRow] = []
    with (
        stoppable("stopping with the plans so far; press Ctrl-C again to end at once") as stop,
        passing_progress("planning", total=len(queries)) as advance,
    ):
        for entry in queries:
            (made,) = answers([entry.asked], stop=stop)
            if made.plans:
                _warn(made, f"query {entry.id}: ")
                found.append((entry.id, made))
                rows += PlanRow.of(made, entry.id, entry.line)
                if json:
                    line = {"id": entry.id, **made.to_dict()}
                    sys.stdout.write(jsons.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            if stop():
                break
            advance()
    if chosen is not None:
        _print_rows(chosen, rows)
    elif not json:
        _show_many(found, run.taxonomy, ids=ids)
    if len(found) < len(queries):
        talk(f"interrupted: {len(found)} of {len(queries)} queries were planned")
        return 130
    exact = sum(made.exact for _, made in found)
    talk(f"{counted(len(found), 'query', 'queries')}, the plans of {exact} are exact")
    return 0


def _show_many(found: list[tuple[str, Answer]], taxonomy: Taxonomy, *, ids: bool) -> None:
    """Print the best plan of each query."""
    from cefito.data.vocabulary import sequence

    best = [made.plans[0] for _, made in found]
    columns = {
        "query": [name for name, _ in found],
        "task": [made.task or "" for _, made in found],
        "score (lower is better)": [f"{plan.score:z.4f}" for plan in best],
        **_probabilities(best),
        "best plan": [sequence(taxonomy, plan.actions, ids=ids) for plan in best],
    }
    table("", tuple(columns), list(zip(*columns.values(), strict=True)))


def _probabilities(plans: list[PlannedSequence]) -> dict[str, list[str]]:
    """Return the column of probabilities, if there are any."""
    cells = [percent(plan.probability) for plan in plans]
    return {"probability": cells} if any(cells) else {}


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
    from cefito.batch.planning import QuerySettings

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
