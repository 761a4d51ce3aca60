"""Small data sets cut out of a large one, on which every setting must hold.

And what planners reach there.

A draw keeps some recipes, and of their videos a number for training and validation, spread over the
recipes; all test videos of these recipes stay. Shares of the training videos give learning curves.
Settings are chosen by the validation scores of all draws; test scores are reported beside them.

    python benchmarks/draws.py DATA --work WORK --planners chain,cefito+chain,viterbi \
        --out benchmarks/results/draws.json
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.cli.console import progress, talk
from cefito.data.annotations import Annotations, Step
from cefito.data.prepared import PreparedDataset, open_dataset, write_dataset
from cefito.data.vocabulary import Action, Task, Taxonomy
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.evaluation.score import evaluate_planner
from cefito.evaluation.statistics import seed_interval
from cefito.files import write_json
from cefito.runs.run import open_run
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows, read_trial

METRICS = ("success_rate", "mean_accuracy", "task_accuracy")
MOST_DRAWS = 10_000


def draw(
    dataset: PreparedDataset, seed: int, *, recipes: int, train: int, val: int, share: float
) -> tuple[list[int], list[int]]:
    """Tasks, ascending, and videos, in their order.

    A smaller share's videos are among a larger's.
    """
    rng = np.random.default_rng([20261121, seed])
    videos: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, video in enumerate(dataset.videos):
        videos[video.split, video.task].append(index)
    wanted = {"train": train, "val": val}
    for _ in range(MOST_DRAWS):
        count = len(dataset.taxonomy.tasks)
        tasks = sorted(rng.choice(count, size=recipes, replace=False).tolist())
        groups = {split: [videos[split, task] for task in tasks] for split in wanted}
        if all(sum(map(len, groups[split])) >= number for split, number in wanted.items()):
            break
    else:
        raise ConfigError(
            f"{recipes} recipes of '{dataset.name}' hardly ever have {train} training and {val} "
            "validation videos. Ask for fewer videos, or more recipes."
        )
    kept = [index for task in tasks for index in videos["test", task]]
    for split, number in wanted.items():
        for part in stratified(groups[split], number, rng):
            fewer = max(1, round(share * len(part))) if split == "train" and part else len(part)
            kept += part[:fewer]
    return tasks, sorted(kept)


def stratified(groups: list[list[int]], count: int, rng: np.random.Generator) -> list[list[int]]:
    """`count` members in all, of each group about the same share, in random order."""
    sizes = np.array([len(group) for group in groups])
    exact = count * sizes / sizes.sum()
    take = np.floor(exact).astype(int)
    order = np.argsort(-(exact - take) + 1e-9 * rng.random(len(sizes)))
    take[order[: count - take.sum()]] += 1
    return [
        rng.choice(group, size=number, replace=False).tolist()
        for group, number in zip(groups, take, strict=True)
    ]


def cut_down(
    dataset: PreparedDataset, tasks: list[int], videos: list[int], folder: Path, name: str
) -> PreparedDataset:
    """Write the data set of some tasks and videos, tasks and actions numbered anew."""
    old = dataset.taxonomy
    actions = sorted({action for task in tasks for action in old.tasks[task].actions})
    number = {action: place for place, action in enumerate(actions)}
    taxonomy = Taxonomy(
        dataset=name,
        tasks=tuple(
            Task(
                id=place,
                name=old.tasks[task].name,
                actions=tuple(number[action] for action in old.tasks[task].actions),
            )
            for place, task in enumerate(tasks)
        ),
        actions=tuple(
            Action(id=place, name=old.actions[action].name) for place, action in enumerate(actions)
        ),
    )
    cut, rows = [], []
    for index in videos:
        video = dataset.videos[index]
        steps = tuple(
            Step(start=step.start, end=step.end, action=number[step.action]) for step in video.steps
        )
        task = tasks.index(video.task)
        # a step of a recipe that was not drawn has no name here
        missing = tuple(number[action] for action in video.missing if action in number)
        cut.append(replace(video, task=task, steps=steps, missing=missing))
        rows.append(dataset.first_row[index] + np.arange(len(steps)))
    index = np.concatenate(rows)
    return write_dataset(
        folder,
        name=name,
        annotations=Annotations(taxonomy=taxonomy, videos=tuple(cut)),
        start=dataset.start[index],
        end=dataset.end[index],
        action_text=None if dataset.action_text is None else dataset.action_text[actions],
        provenance={"source": dataset.name, "tasks": tasks, "videos": len(videos)},
    )


def scores(study: Study, horizon: int, *, validation: bool) -> dict[str, dict[str, Any]]:
    """Test scores of each row, and those on validation windows."""
    result = {}
    for trial in study.trials:
        if trial.horizon != horizon:
            continue
        value = read_trial(trial)
        if value is None or not hasattr(value, "metrics"):
            continue
        row: dict[str, Any] = {
            "test": {name: value.metrics.get(name) for name in METRICS},
            "success": value.success,
        }
        if validation:
            run = open_run(trial.run_folder)
            windows = cut_windows(study.dataset, horizon=horizon, split="val")
            planner = trial.row.apply(run.planner)
            evaluation, _ = evaluate_planner(planner, windows, oracle_task=trial.row.true_task)
            row["val"] = {name: evaluation.metrics.get(name) for name in METRICS}
        result[trial.row.name] = row
    return result


def summary(results: list[dict[str, Any]], planners: list[str]) -> list[dict[str, Any]]:
    """Means over draws with half their 90 % intervals, by horizon and share."""
    rows = []
    keys = sorted({(result["horizon"], result["share"]) for result in results})
    for horizon, share in keys:
        for planner in planners:
            found = [
                result["rows"][planner]
                for result in results
                if (result["horizon"], result["share"]) == (horizon, share)
                and planner in result["rows"]
            ]
            if not found:
                continue
            row: dict[str, Any] = {"horizon": horizon, "share": share, "planner": planner}
            for split in ("val", "test"):
                for metric in METRICS:
                    values = [part[split][metric] for part in found if split in part]
                    if values and None not in values:
                        interval = seed_interval(values)
                        row[f"{split} {metric}"] = [interval.mean, interval.half_width]
            rows.append(row)
    return rows


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("--work", type=Path, required=True, help="data sets and runs go there")
    parser.add_argument("--planners", default="chain,cefito+chain,viterbi")
    parser.add_argument("--horizons", default="3,4")
    parser.add_argument("--shares", default="1", help="of the training videos, as in 0.25,0.5,1")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--recipes", type=int, default=8)
    parser.add_argument("--train", type=int, default=66)
    parser.add_argument("--val", type=int, default=15)
    parser.add_argument("--preset", default="small")
    common.add_settings(parser)
    parser.add_argument("--no-validation", action="store_true", help="test scores alone")
    given = parser.parse_args()
    whole = open_dataset(given.data)
    planners = given.planners.split(",")
    horizons = tuple(int(horizon) for horizon in given.horizons.split(","))
    results: list[dict[str, Any]] = []
    for seed in range(given.draws):
        for share in (float(share) for share in given.shares.split(",")):
            name = f"{whole.name}-draw{seed}-{round(100 * share)}"
            folder = given.work / "data" / name
            if not folder.exists():
                folder.parent.mkdir(parents=True, exist_ok=True)
                tasks, videos = draw(
                    whole,
                    seed,
                    recipes=given.recipes,
                    train=given.train,
                    val=given.val,
                    share=share,
                )
                cut_down(whole, tasks, videos, folder, name)
            study = Study(
                dataset=open_dataset(folder),
                out=given.work / "study" / name,
                rows=find_rows(planners),
                horizons=horizons,
                seeds=(0,),
                preset=given.preset,
                settings=common.settings(given.set),
            )
            for problem in run_study(study, progress=progress):
                talk(problem)
            for horizon in horizons:
                found = scores(study, horizon, validation=not given.no_validation)
                results.append({"draw": seed, "share": share, "horizon": horizon, "rows": found})
                for row, value in found.items():
                    talk(f"{name} T={horizon} {row}: " + json.dumps({**value, "success": None}))
    value = {
        **common.about("draws", given, whole),
        "summary": summary(results, planners),
        "draws": results,
    }
    if given.out:
        write_json(given.out, value)
    print(json.dumps(value["summary"], indent=1))


if __name__ == "__main__":
    main()
