"""`cefito plan`: the best plans between two observations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cefito.cli.console import log_warnings, passing_progress, print_json, stoppable, table, talk
from cefito.cli.observe import NOT_OBSERVED, ObserveOptions, find_query
from cefito.cli.options import Flag, Several
from cefito.cli.search_options import AS_TRAINED, SearchOptions

if TYPE_CHECKING:
    from cefito.data.taxonomy import Taxonomy
    from cefito.inference.answer import Answer, ReplyAnswer

__all__ = ["plan"]


def plan(
    run: Path,
    /,
    *,
    video: str | None = None,
    from_step: int = 0,
    initial: Path | None = None,
    goal: Path | None = None,
    queries: Path | None = None,
    task: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    top_k: int = 5,
    pin: Several = (),
    require: Several = (),
    forbid: Several = (),
    before: Several = (),
    no_repeats: Flag = False,
    ids: Flag = False,
    min_probability: float | None = None,
    options: SearchOptions = AS_TRAINED,
    observe: ObserveOptions = NOT_OBSERVED,
    dataset: Path | None = None,
    horizon: int | None = None,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Plan the actions between two observations.

    The observations are those of a video of the data set, two files, two moments of features or of
    a video file, or two pictures.

    Ctrl-C stops a long search and shows the best plans that it met; a second Ctrl-C ends it at
    once.

    Args:
        run: Run folder, as cefito train makes it.
        video: Id of a video of the data set; with --start and --end, a video file.
        from_step: Number of the first step to plan, counted from 0; the plan covers as many steps
            as the run's horizon.
        initial: .npy file of the observation before the first step.
        goal: .npy file of the observation after the last step.
        queries: Short list of queries, .jsonl, .csv or .parquet, each line with features, start and
            end, or with initial and goal, and an id, a task and constraints if you like; files are
            found from the folder of the list. cefito plan-batch plans long ones.
        task: Name or id of the task, instead of the predicted one.
        top_k: How many plans.
        pin: STEP=ACTION: the action of a step, counted from 1, is known; may be repeated. Actions
            are named, or given by their ids.
        require: An action that must occur; may be repeated.
        forbid: An action that must not occur; may be repeated.
        before: A,B: where actions A and B both occur, A comes first; may be repeated.
        no_repeats: No action may occur twice.
        ids: Show the ids of actions behind their names.
        min_probability: From 0 to 1: where the best plan is less probable, the answer says that it
            is not sure; the plans are shown all the same.
        options: How to search.
        observe: How to make the observations from features, a video file or pictures.
        dataset: The data set that --video is of, if not that of the run: any whose observations
            were made in the same way.
        horizon: Number of actions, of a folder that holds runs of several.
        device: auto, cpu or cuda.
        json: Print JSON instead of a table.
    """
    from cefito.cli.plan_many import plan_many
    from cefito.data.names import find_task
    from cefito.inference.answer import answer
    from cefito.inference.named_constraints import parse_constraints
    from cefito.runs.matching import named_dataset
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
        if queries is not None:
            return plan_many(
                opened,
                queries,
                observe,
                alone=(video, initial, goal) == (None, None, None) and not from_step,
                json=json,
                ids=ids,
                task=given,
                top_k=top_k,
                constraints=named,
                min_probability=min_probability,
            )
        constraints = named.resolved(opened.taxonomy, task=given)
        query, truth = find_query(
            opened,
            video=video,
            from_step=from_step,
            initial=initial,
            goal=goal,
            observe=observe,
            dataset=dataset,
            device=place,
        )
        with stoppable(
            "stopping with the best plans so far; press Ctrl-C again to end at once"
        ) as stop:
            found = answer(
                opened,
                query,
                task=given,
                top_k=top_k,
                constraints=constraints,
                min_probability=min_probability,
                truth=truth,
                dataset=named_dataset(opened, dataset) if video and not observe else None,
                stop=stop,
                progress=passing_progress,
            )
    if json:
        print_json(found.to_dict())
    else:
        _show(found, opened.taxonomy, min_probability, ids=ids)
    return 0 if found.plans else 130  # only an interrupted search finds none


def _show(found: Answer, taxonomy: Taxonomy, min_probability: float | None, *, ids: bool) -> None:
    from cefito.data.names import sequence

    task, plans, searched = found.task, found.plans, found.search.tasks
    among = f"; {searched} tasks searched" if searched > 1 else ""
    if task.id is not None:
        likely = "" if task.probability is None else f", {_percent(task.probability)}"
        talk(f"task {task.id}: {task.name} ({task.source}{likely}{among})")
    energies = [f"{plan.energy:.4f}" for plan in plans]
    if any(plan.score != plan.energy for plan in plans):
        columns = {
            "energy": energies,
            "score (lower is better)": [f"{plan.score:.4f}" for plan in plans],
        }
    else:
        columns = {"energy (lower is better)": energies}
    if any(plan.probability is not None for plan in plans):
        columns["probability"] = [
            "" if plan.probability is None else _percent(plan.probability) for plan in plans
        ]
    if len({plan.task for plan in plans}) > 1:
        columns["task"] = [_task_cell(plan.task, taxonomy) for plan in plans]
    columns["plan"] = [sequence(taxonomy, plan.actions, ids=ids) for plan in plans]
    if plans:
        table("", tuple(columns), list(zip(*columns.values(), strict=True)))
    talk(_quality(found))
    if found.reply is not None:
        talk(_answered(found.reply))
    if found.searched_mass is not None and found.searched_mass < 1:
        talk(
            f"probabilities: the sequences compared hold {_percent(found.searched_mass)} of all "
            "probability"
        )
    if min_probability is not None and found.sure is False:
        best = _percent(plans[0].probability or 0.0) if plans else "missing"
        talk(
            f"not sure: the best plan's probability is {best}; "
            f"{_percent(min_probability)} was asked for"
        )
    if found.dataset is not None:
        where = f"'{found.dataset.name}', fingerprint {found.dataset.fingerprint[:12]}"
        talk(f"planned for another data set than that of the run: {where}")
    if found.truth is not None:
        talk(f"annotated: {sequence(taxonomy, found.truth.actions, ids=ids)}")


def _answered(reply: ReplyAnswer) -> str:
    """Whose the plans are, in a line."""
    if reply.outcome == "unasked":
        return f"{reply.model} was not asked; the plan is PKG's"
    said = {
        "kept": "its answer was valid",
        "repaired": "its answer was invalid and has been repaired",
        "replaced": "its answer was of no use; the plan is PKG's",
    }[reply.outcome]
    return f"{reply.model} at {reply.host}, {reply.asked[:10]}: {said}"


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %"


def _task_cell(task: int | None, taxonomy: Taxonomy) -> str:
    return "" if task is None else f"{task}: {taxonomy.tasks[task].name}"


def _quality(found: Answer) -> str:
    """Whether the result is exact, and what it cost, in a line."""
    if found.exact:
        words = "exact: no other allowed sequence is better"
    elif not found.plans:
        words = "interrupted before any plan was found"
    elif found.search.interrupted:
        words = "interrupted, not exact: the best plans met so far"
    else:
        words = "not exact: the best plans met, there may be better ones"
    return f"{words}; {found.evaluated.token_forwards:,} token forwards"
