"""The whole method once, on a small simulated world: train, plan, compare, draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cefito.data.prepared import PreparedDataset
from cefito.data.simulation.world import write_world
from cefito.data.windows import Windows, cut_windows
from cefito.errors import RunError
from cefito.evaluation.plan_files import WindowPlans, window_plans
from cefito.evaluation.score import Evaluation, evaluate_planner
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.methods import RunConfig, find_method, load_config, method_settings
from cefito.progress import Progress, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.search.problem import Plans
from cefito.search.settings import SearchConfig, search_settings
from cefito.study.figures import EnergyCurve, draw_energies, draw_training
from cefito.training.trainer import TrainingContext

__all__ = ["Quickstart", "run_quickstart"]

HORIZON = 3
EXAMPLES = 3
SIMPLE = ("nearest", "frequent")  # methods that CEFITO is compared with
_EVERYTHING = {"method": "exhaustive", "objective": "energy", "tasks": 1}


@dataclass(frozen=True)
class Quickstart:
    """Results of the quickstart."""

    folder: Path
    run: Run
    evaluations: list[Evaluation]  # of CEFITO, CEFITO with the true task, and `SIMPLE`
    examples: list[WindowPlans]
    pictures: list[Path]


def run_quickstart(
    folder: Path, *, seed: int = 0, config: RunConfig | None = None, progress: Progress = silent
) -> Quickstart:
    """Make the simulated world, train on it, plan its test videos, compare with simple planners."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            f"{folder}: exists already. Choose another folder, or remove it.", setting="out"
        )
    config = config or load_config("quickstart")
    dataset = write_world(folder / "world", seed=seed)
    run = train_run(
        dataset, folder / "run", config=config, horizon=HORIZON, seed=seed, progress=progress
    )
    splits = {
        split: cut_windows(dataset, horizon=HORIZON, split=split)
        for split in ("train", "val", "test")
    }
    evaluations, plans = _compare(run, dataset, splits, config, seed)
    write_json(
        run.folder / "comparison-test.json", [evaluation.to_dict() for evaluation in evaluations]
    )
    rows = _example_rows(splits["test"])
    chosen = [plans[row] for row in rows]
    tasks = np.array([plan.tasks[0] for plan in chosen if plan.tasks is not None])
    examples = window_plans(dataset, splits["test"].subset(rows), chosen, tasks=tasks)
    write_json(run.folder / "examples.json", [example.to_dict() for example in examples])
    pictures = [run.folder / "training.png", run.folder / "energies.png"]
    draw_training(run.folder, pictures[0])
    draw_energies([_curve(run, splits["test"], row) for row in rows], pictures[1])
    return Quickstart(
        folder=folder, run=run, evaluations=evaluations, examples=examples, pictures=pictures
    )


def _compare(
    run: Run, dataset: PreparedDataset, splits: dict[str, Windows], config: RunConfig, seed: int
) -> tuple[list[Evaluation], list[Plans]]:
    """Scores of the run, without and with true task, and of simple methods; the run's plans."""
    test = splits["test"]
    evaluation, plans = evaluate_planner(run.planner, test)
    evaluations = [evaluation, evaluate_planner(run.planner, test, oracle_task=True)[0]]
    # reuses the run's training of the task classifier
    context = TrainingContext(folder=run.folder, key=dataset.fingerprint)
    for name in SIMPLE:
        method = find_method(name)
        fitted = method.planner.fit(
            splits["train"],
            splits["val"],
            settings=method_settings(name, config.sections, place="quickstart"),
            seed=seed,
            context=context,
        )
        evaluations.append(evaluate_planner(fitted.planner, test)[0])
    return evaluations, plans


def _example_rows(test: Windows) -> list[int]:
    """The middle window of each of a few tasks, spread over the tasks."""
    tasks = np.unique(test.tasks)
    chosen = tasks[np.linspace(0, len(tasks) - 1, min(EXAMPLES, len(tasks))).round().astype(int)]
    return [
        int(rows[len(rows) // 2])
        for rows in (np.flatnonzero(test.tasks == task) for task in chosen)
    ]


def _curve(run: Run, test: Windows, row: int) -> EnergyCurve:
    """The energies of all candidates of a query, from a search that keeps every sequence."""
    query = Queries.from_windows(test.subset([row]))
    trained = run.trained_search or SearchConfig()
    planner = run.planner.with_search(search_settings(trained, **_EVERYTHING))
    (best,) = planner.plan(query, 1)
    assert best.tasks is not None
    task = test.taxonomy.tasks[int(best.tasks[0])]
    (everything,) = planner.plan(query, len(task.actions) ** test.horizon)
    same = np.flatnonzero((everything.actions == test.actions[row]).all(axis=1))
    return EnergyCurve(
        title=task.name,
        energies=everything.energies,
        truth_rank=int(same[0]) if len(same) else None,
    )
