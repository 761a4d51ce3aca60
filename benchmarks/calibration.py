"""Which windows the chain's temperature and power of tasks are best fitted on, by folds of videos.

Each fold is held out; the chain of `small` is trained on the others, in the
end on their training and validation videos together. Its two numbers are fitted

- preset: on validation windows before the training on all videos, after which the temperature
  keeps training windows calibrated as before;
- validation: likewise, but for the change afterwards;
- halves: on each half of the validation videos by one network whose training on all videos left
  it out, geometric means of both;
- folds: on three inner folds likewise, by one network trained on the others;
- likelihood: as in validation, with the power under which true tasks are likeliest;
- held-out: on the held-out windows themselves, to see how well two numbers can do.

The spread is that of mean probabilities over fits on resampled validation videos.

    python benchmarks/calibration.py DATA --out FILE [--rows preset,validation] [--horizon 4]
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

import common
from cefito.cli.console import talk
from cefito.data import Windows, open_dataset
from cefito.data.windows import action_space, joined_windows, video_folds
from cefito.evaluation.statistics import calibration
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.chain.calibration import fit_task_power, known_states
from cefito.planners.chain.model import ChainModel
from cefito.planners.chain.planner import ChainPlanner
from cefito.planners.methods import load_config
from cefito.training.trainer import TrainingContext

LEAST = float(np.log(1e-4))  # log-probability that less likely truths count as
FOLDS, RESAMPLES = 3, 30
ROWS = ("preset", "validation", "halves", "folds", "likelihood", "held-out")
calibrated = ChainModel._calibrated


def trained(train: Windows, val: Windows, **shared: Any) -> tuple[ChainModel, ChainModel]:
    """Chains before and after the training on all videos; the first is calibrated."""
    space = action_space(joined_windows(train, val), "training")
    model, _ = ChainModel.fit(train, val, space=space, **shared)
    return model, model.on_all_videos(train, val, **shared)


def mean_numbers(models: list[ChainModel]) -> tuple[float, ...]:
    """Geometric means of temperatures and powers."""
    logs = [np.log([model.temperature, model.task_power]) for model in models]
    return tuple(np.exp(np.mean(logs, axis=0)).tolist())


def by_halves(before: ChainModel, train: Windows, val: Windows, **shared: Any) -> tuple[float, ...]:
    """Numbers of single networks that were trained further without half of the videos."""
    of, models = video_folds(val.video, 2), []
    for half, network in enumerate(before.networks[:2]):
        rest, left = (val.subset(np.flatnonzero(rows)) for rows in (of != half, of == half))
        further = replace(before, networks=(network,)).on_all_videos(train, rest, **shared)
        models.append(calibrated(further.networks, joined_windows(train, rest), left))
    return mean_numbers(models)


def by_folds(train: Windows, val: Windows, **shared: Any) -> tuple[float, ...]:
    """Numbers of single networks on inner folds that those were not trained on."""
    both = joined_windows(train, val)
    for_val, of, models = np.isin(both.video, val.video), video_folds(both.video, 3), []
    for fold in range(3):
        masks = (~for_val & (of != fold), for_val & (of != fold), of == fold)
        parts = [both.subset(np.flatnonzero(mask)) for mask in masks]
        with patch.object(ChainModel, "_calibrated", lambda own, *_: ChainModel(own, 1.0)):
            _, model = trained(*parts[:2], **shared | {"seed": 10 * (fold + 1)})
        models.append(calibrated(model.networks, joined_windows(*parts[:2]), parts[2]))
    return mean_numbers(models)


def by_likelihood(before: ChainModel, train: Windows, val: Windows) -> tuple[float, ...]:
    """Numbers of the preset, but for the power of the true tasks' greatest likelihood."""
    plain = ChainModel(before.networks, 1.0).scores(Queries.from_windows(val))
    states, tasks = known_states(plain.states, val, train), torch.from_numpy(val.tasks)
    power = fit_task_power(plain, states, tasks, videos=len(np.unique(val.video)))
    return before.temperature, power


def numbers_of(
    row: str, before: ChainModel, after: ChainModel, parts: tuple[Windows, ...], **shared: Any
) -> tuple[float, ...]:
    """Temperature and power of a row."""
    train, val, held = parts
    match row:
        case "preset":
            return after.temperature, after.task_power
        case "validation":
            return before.temperature, before.task_power
        case "halves":
            return by_halves(before, train, val, **shared)
        case "folds":
            return by_folds(train, val, **shared)
        case "likelihood":
            return by_likelihood(before, train, val)
    return mean_numbers([calibrated(after.networks, joined_windows(train, val), held)])


def scores(model: ChainModel, held: Windows) -> dict[str, NDArray[Any]]:
    """Scores of held-out windows [N], as `summary` reads them."""
    queries = Queries.from_windows(held)
    plans, tasks = ChainPlanner(model).plan(queries, 1), np.exp(model.log_tasks(queries))
    logs = model.scores(queries).log_sequence_probabilities(torch.from_numpy(held.actions))
    return {
        "success": (np.array([one.actions[0] for one in plans]) == held.actions).all(axis=1),
        "sure": np.array([one.probabilities[0] for one in plans if one.probabilities is not None]),
        "likelihood": logs.double().numpy().clip(min=LEAST),
        "task_right": tasks.argmax(axis=1) == held.tasks,
        "task_sure": tasks.max(axis=1),
    }


def summary(
    found: dict[str, NDArray[np.float64]],
    other: dict[str, NDArray[np.float64]],
    video: NDArray[np.int64],
) -> dict[str, Any]:
    """Means in per cent, gains over another row, and errors of calibration."""
    value: dict[str, Any] = {
        "success_rate": 100 * float(found["success"].mean()),
        "gain of success_rate": common.interval(100 * (found["success"] - other["success"]), video),
        "log_likelihood": float(found["likelihood"].mean()),
        "gain of log_likelihood": common.interval(found["likelihood"] - other["likelihood"], video),
    }
    for name, right, sure in (("plans", "success", "sure"), ("tasks", "task_right", "task_sure")):
        errors = calibration(found[sure], found[right] == 1, videos=video)
        value[name] = {
            "calibration_error": errors.expected_calibration_error,
            "by chance": errors.chance_calibration_error,
            "p": errors.calibration_p_value,
            "sure less right": 100 * float((found[sure] - found[right]).mean()),
        }
    return value


def resampled(windows: Windows, generator: np.random.Generator) -> Windows:
    """Windows of as many videos, drawn with repetition."""
    videos = np.unique(windows.video)
    drawn = generator.choice(videos, len(videos))
    return windows.subset(np.concatenate([np.flatnonzero(windows.video == v) for v in drawn]))


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument(
        "--rows", default=",".join(ROWS), help="separated by commas, with validation"
    )
    parser.add_argument("--horizon", type=int, default=3)
    given = parser.parse_args()
    data, generator = open_dataset(given.data), np.random.default_rng(0)
    folds = common.Folds.cut(data, horizon=given.horizon, folds=FOLDS)
    settings, single = (
        load_config("small", method="chain", dataset=data.name, overrides=overrides).settings
        for overrides in ({}, {"chain.members": 1})
    )
    shared: dict[str, Any] = {"seed": 0, "context": TrainingContext()}
    found: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(list))
    spreads = defaultdict(list)
    for fold in range(FOLDS):
        train, val, held = folds.parts(fold)
        before, after = trained(train, val, settings=settings, **shared)
        parts = (train, val, held)
        numbers = {
            row: numbers_of(row, before, after, parts, settings=single, **shared)
            for row in given.rows.split(",")
        }
        for row, own in numbers.items():
            for name, values in scores(ChainModel(after.networks, *own), held).items():
                found[row][name].append(values)
        means = []
        for _ in range(RESAMPLES):
            again = calibrated(before.networks, train, resampled(val, generator))
            own = scores(replace(again, networks=after.networks), held)
            means.append([100 * own[name].mean() for name in ("sure", "task_sure")])
        for name, spread in zip(("plans", "tasks"), np.std(means, axis=0), strict=True):
            spreads[name].append(float(spread))
        talk(f"fold {fold}: {numbers}, spread {dict(spreads)}")
    order = np.argsort(np.concatenate([np.flatnonzero(folds.of == fold) for fold in range(FOLDS)]))
    joined = {
        row: {name: np.concatenate(parts)[order].astype(float) for name, parts in own.items()}
        for row, own in found.items()
    }
    value = {
        "command": "python benchmarks/calibration.py DATA "
        f"--horizon {given.horizon} --rows {given.rows}",
        "dataset": {"name": data.name, "fingerprint": data.fingerprint},
        "fitted on": {
            row: summary(own, joined["validation"], folds.windows.video)
            for row, own in joined.items()
        },
        "spread": {name: float(np.mean(values)) for name, values in spreads.items()},
    }
    talk(str(value))
    if given.out:
        write_json(given.out, value)


if __name__ == "__main__":
    main()
