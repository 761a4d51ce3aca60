"""`cefito plan` and `plan-batch`: the best plans of one query, or of many."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
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
from cefito.cli.options import OUTPUT, RunFolder, given_options
from cefito.cli.plan_options import (
    AS_TRAINED,
    DEFAULTS,
    NO_QUERY,
    PlanOptions,
    QueryOptions,
    SearchOptions,
)
from cefito.cli.values import Flag
from cefito.errors import ConfigError
from cefito.inference.question import Question
from cefito.markup import counted, percent

if TYPE_CHECKING:
    from cefito.data.vocabulary import Taxonomy
    from cefito.inference.answer import Answer
    from cefito.inference.sets import PlanSets, StepSet


def plan(
    run: RunFolder,
    /,
    *,
    query: QueryOptions = NO_QUERY,
    ids: Annotated[Flag, Parameter(group=OUTPUT)] = False,
    options: PlanOptions = DEFAULTS,
    search: SearchOptions = AS_TRAINED,
) -> int:
    """Plan the actions between two observations; cefito plan-batch plans many queries.

    Args:
        ids: Show the ids of actions after their names.
    """
    from cefito.inference.answer import Asked, answers
    from cefito.parts.matching import named_dataset

    with log_warnings():
        opened, device = options.open(run, search)
        question = options.question(opened, Question).resolved(opened)
        if query.after_done and question.done is not None:
            raise ConfigError("--after-done and --done both give the steps done. Leave one out.")
        has_facts = question.task is not None or question.done is not None
        observed, truth = query.find(opened, device, has_facts=has_facts)
        with stoppable(
            "stopping with the best plans so far; press Ctrl-C again to end at once"
        ) as stop:
            dataset = named_dataset(opened, query.dataset)
            asked = Asked.of(question, opened, observed, truth=truth, dataset=dataset)
            (answer,) = answers([asked], stop=stop, progress=passing_progress)
    for warning in answer.warnings:
        talk(f"warning: {warning}", urgent=True)
    if options.json:
        print_json(answer.to_dict())
    else:
        _show(answer, opened.taxonomy, question.min_probability, ids=ids)
        if answer.sets is not None:
            _show_sets(answer.sets, opened.taxonomy, ids=ids)
    return 0 if answer.plans else 130  # only an interrupted search finds none


def _show(answer: Answer, taxonomy: Taxonomy, min_probability: float | None, *, ids: bool) -> None:
    plans, searched = answer.plans, answer.search.tasks
    among = f"; {searched} tasks searched" if searched > 1 else ""
    if answer.task is not None:
        likely = "" if answer.task_probability is None else f", {percent(answer.task_probability)}"
        talk(f"task {answer.task_id}: {answer.task} ({answer.task_source}{likely}{among})")
    if answer.known is not None and answer.known.done is not None:
        talk(f"done: {taxonomy.sequence(answer.known.done, ids=ids) or 'nothing'}")
    if answer.lengths_in_words:
        talk(answer.lengths_in_words)
    columns = {"score (lower is better)": [f"{plan.score:z.4f}" for plan in plans]}
    if answer.by_energy:
        alone = all(plan.score == plan.energy for plan in plans)
        energies = [f"{plan.energy:z.4f}" for plan in plans]
        columns = (
            {"energy (lower is better)": energies} if alone else {"energy": energies, **columns}
        )
    if any(plan.probability is not None for plan in plans):
        columns["probability"] = [percent(plan.probability) for plan in plans]
    if len({plan.task for plan in plans}) > 1:
        columns["task"] = [
            "" if plan.task is None else f"{plan.task_id}: {plan.task}" for plan in plans
        ]
    columns["plan"] = [taxonomy.sequence(plan.actions, ids=ids) for plan in plans]
    if plans:
        table("", tuple(columns), list(zip(*columns.values(), strict=True)))
    for remark in _remarks(answer, min_probability):
        talk(remark)
    if answer.truth is not None:
        talk(f"annotated: {taxonomy.sequence(answer.truth.actions, ids=ids)}")


def _remarks(answer: Answer, min_probability: float | None) -> Iterator[str]:
    """Yield what is to be said of an answer below its plans, a line each."""
    yield f"{_quality(answer)}; {answer.evaluated.token_forwards:,} token forwards"
    if answer.searched_mass is not None and answer.searched_mass < 1:
        mass = percent(answer.searched_mass)
        yield f"probabilities: the compared sequences have {mass} of all probability"
    if min_probability is not None and answer.sure is False:
        best = percent(answer.plans[0].probability) if answer.plans else "missing"
        wanted = percent(min_probability)
        yield f"not sure: the best plan's probability is {best}; requested: {wanted}"
    if (other := answer.dataset) is not None:
        where = f"'{other.name}', fingerprint {other.fingerprint[:12]}"
        yield f"planned for another data set than that of the run: {where}"


def _show_sets(sets: PlanSets, taxonomy: Taxonomy, *, ids: bool) -> None:
    """Print the set of plans; if it is too large, the sets of first steps."""
    shown: dict[str, StepSet | None] = {"plan": sets.plans}
    if not sets.plans.steps:
        shown = {"next step": sets.next_step, "next two steps": sets.next_two}
    for name, step_set in shown.items():
        if step_set is not None and step_set.steps:
            rows = [
                (
                    percent(member.probability),
                    taxonomy.sequence(member.actions, ids=ids) + " (the last)" * member.ends,
                )
                for member in step_set.steps
            ]
            title = f"the set for {100 * sets.coverage:g} %" if name == "plan" else ""
            table(title, ("probability", name), rows)
    talk(sets.in_words())


def _quality(answer: Answer) -> str:
    if answer.exact:
        return "exact: no other allowed sequence is better"
    if not answer.plans:
        return "interrupted before any plan was found"
    if answer.search.interrupted:
        return "interrupted, not exact: the best plans so far"
    if answer.margin is not None:
        return f"not exact: screened in bfloat16, by a margin of {answer.margin:.2g}"
    proof = answer.search.method in ("auto", "guided")
    return "not exact: there may be better plans" + "; --search exhaustive finds out" * proof


_Given = given_options("without_goal", "after_done")
_OBSERVATIONS = _Given()


def plan_batch(
    run: RunFolder,
    queries: Path,
    /,
    *,
    out: Path | None = None,
    format: str | None = None,
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
    """Plan any number of queries into a file or on stdout, one row a plan.

    Args:
        queries: A prepared data set, of which every window of a split is planned; a table, .jsonl,
            .csv or .parquet, each line with features, start and end, or with initial and goal, and
            optionally an id and facts such as a task; or a folder of features, of which every file
            is planned from its first second to its last. Options hold for queries that do not say
            otherwise.
        out: File of the plans: .jsonl, .csv, .md (a table in Markdown) or .parquet, which needs
            the extra table.
        format: Without --out, what is printed: jsonl, csv, md (the default) or parquet.
        split: Split of a data set: train, val or test; by default test.
        seconds: With features, rows that make one observation; only for runs that do not say it.
        precision: With features, stored type of the run's data set; only for runs that do not say
            it.
        executor: serial (in this process), processes, or ray, which needs the extra ray;
            by default serial for one worker and processes for several.
        workers: Number of parts of the queries that are planned at the same time.
        address: Address of a running Ray cluster, for the executor ray; by default it works on this
            machine.
        threads: Threads of each worker. More workers are faster than more threads.
        shard: Queries of a part, a multiple of 64.
    """
    from cefito.batch.batch import plan_batch
    from cefito.batch.planning import QuerySettings
    from cefito.inference.plan_formats import find_format

    if out is not None and format is not None:
        raise ConfigError("--format: the ending of --out is the format. Leave one out.")
    if out is None and format is not None and options.json:
        raise ConfigError("--format and --json both choose the output. Leave one out.")
    chosen = find_format(format or ("jsonl" if options.json else "md"))
    if out is None and chosen.binary and sys.stdout.isatty():
        raise ConfigError(f"--format {format} is not text. Write it into a file, with > FILE.")
    with log_warnings(), TemporaryDirectory() as folder:
        printed = out is None
        if out is None:
            out = Path(folder, f"plans{chosen.ending}")
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
            progress=passing_progress if printed else progress,
            **given.given(),  # type: ignore[attr-defined]
        )
        for problem in done.problems:
            talk(f"failed: {problem}", urgent=True)
        if printed and not done.problems:
            print_bytes(out.read_bytes())
            for line in done.bad.read_bytes().splitlines() if done.bad else ():
                talk(f"failed: {json.loads(line)['reason']}", urgent=True)
            return 0 if done.counts.plans else 1
    if done.problems:
        talk("error: no plans were written. Repeat the command.", urgent=True)
        return 1
    counts, before = done.counts, done.done_before
    if options.json:
        files = {"plans": str(done.plans), "bad": None if done.bad is None else str(done.bad)}
        print_json({**counts.model_dump(), "queries_before": before, "files": files})
    if before:
        talk(f"{before:,} of {counts.queries:,} queries were done before")
    if done.bad is not None:
        failed = f"{counts.bad:,} of {counts.queries:,} queries could not be planned"
        talk(f"{failed}; {done.bad} says why", urgent=True)
    planned = counted(counts.queries - counts.bad, "query", "queries")
    talk(f"wrote {done.plans}: {counted(counts.plans, 'plan')} of {planned}")
    return 0 if counts.plans else 1
