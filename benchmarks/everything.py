"""Chain, CEFITO and ViterbiPlanNet on several data sets: one table, and the pooled differences.

Every planner has the settings of its preset. The test split is scored once; what WORK has is not
trained again. The planner that others are compared with is not
trained again where a comparison has it on the same data (--known). Differences of success rates
have intervals with videos resampled; the pooled one takes the windows of all data sets together,
and the mean one counts each data set alike.

    python benchmarks/everything.py DATA… --work WORK --out FILE [--seeds 3]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.cli.console import progress, talk
from cefito.data.prepared import open_dataset
from cefito.evaluation.statistics import paired_difference, seed_interval
from cefito.files import write_json
from cefito.study.results import Results
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import TrialFile, TrialScores, find_rows, read_trial

ERRORS = ("expected_calibration_error", "chance_calibration_error", "calibration_p_value")
METRICS = ("success_rate", "mean_accuracy", "task_accuracy")


@dataclass(frozen=True)
class Scores:
    """A planner's trials on one data set at one horizon."""

    success: NDArray[np.float64]  # of each seed and window [S, N]
    video: NDArray[np.int64]  # of each window [N]
    figures: dict[str, Any]  # metrics: mean over seeds and half the width of their 90 % interval

    @classmethod
    def read(cls, study: Study, planner: str, horizon: int) -> Scores:
        """Those of a finished study; its failures were said before."""
        found = [
            read_trial(trial)
            for trial in study.trials
            if (trial.row.name, trial.horizon) == (planner, horizon)
        ]
        files = [value for value in found if isinstance(value, TrialFile)]
        return cls.of(files, files[0].videos)

    @classmethod
    def of(cls, files: Sequence[TrialScores], videos: Sequence[int]) -> Scores:
        """Those of trials of one planner over windows of these videos."""
        figures = {}
        columns = {name: [file.percent(name) for file in files] for name in METRICS}
        for name in ERRORS:
            columns[name] = [getattr(file.calibration, name, None) for file in files]
            columns[f"task_{name}"] = [getattr(file.task_calibration, name, None) for file in files]
        columns["milliseconds_per_query"] = [1000 * file.seconds_per_query for file in files]
        for name, column in columns.items():
            values = [value for value in column if value is not None]
            if values:
                interval = seed_interval(values)
                figures[name] = [interval.mean, interval.half_width]
        success = np.array([[float(digit) for digit in file.success] for file in files])
        return cls(success, np.array(videos), figures)


def difference(ours: list[Scores], theirs: list[Scores]) -> dict[str, float]:
    """Difference of success rates over the windows of all data sets, in points."""
    first = np.concatenate([one.success for one in ours], axis=1)
    second = np.concatenate([one.success for one in theirs], axis=1)
    offsets = np.cumsum([0, *(one.video.max() + 1 for one in ours)])
    video = np.concatenate([one.video + start for one, start in zip(ours, offsets, strict=False)])
    found = paired_difference(first, second, video)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def data_scores(
    folder: Path, given: argparse.Namespace, planners: list[str], horizons: tuple[int, ...]
) -> dict[tuple[int, str], Scores]:
    """Scores on one data set, known or measured, by horizon and planner."""
    dataset = open_dataset(folder)
    scores = {}
    for results in map(Results.read, given.known):
        if results.dataset.fingerprint == dataset.fingerprint:
            for horizon in results.horizons:
                trials = results.scored(horizon, given.against)[: given.seeds]
                videos = results.windows[horizon].video
                scores[horizon, given.against] = Scores.of(trials, videos)
    needed = [place for place in product(horizons, planners) if place not in scores]
    study = Study(
        dataset=dataset,
        out=given.work / folder.name,
        rows=find_rows([name for name in planners if name in {planner for _, planner in needed}]),
        horizons=horizons,
        seeds=tuple(range(given.seeds)),
    )
    for problem in run_study(study, progress=progress):
        talk(problem)
    return scores | {place: Scores.read(study, place[1], place[0]) for place in needed}


def main() -> None:
    parser = common.parser(__doc__, data="many")
    parser.add_argument("--work", type=Path, required=True, help="runs and scores go there")
    parser.add_argument("--planners", default="chain,cefito+chain,viterbi")
    parser.add_argument("--against", default="viterbi")
    parser.add_argument("--horizons", default="3,4")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--known",
        type=Path,
        nargs="*",
        default=[],
        help="comparisons on the same data that have the planner `against`",
    )
    given = parser.parse_args()
    planners = given.planners.split(",")
    horizons = tuple(int(horizon) for horizon in given.horizons.split(","))
    names = [folder.name for folder in given.data]
    fingerprints = {folder.name: open_dataset(folder).fingerprint for folder in given.data}
    scores: dict[tuple[str, int, str], Scores] = {}
    for folder in given.data:
        found = data_scores(folder, given, planners, horizons)
        scores |= {(folder.name, *place): one for place, one in found.items()}
    print(f"| success rate | {' | '.join(planners)} |\n| --- |{' ---: |' * len(planners)}")
    differences = {}
    for horizon in horizons:
        for name in names:
            cells = [scores[name, horizon, one].figures["success_rate"] for one in planners]
            texts = (f"{mean:.1f}" + (f" ± {half:.1f}" if half else "") for mean, half in cells)
            print(f"| {name}, T = {horizon} | {' | '.join(texts)} |")
        for planner in planners:
            if planner == given.against:
                continue
            pairs = {
                name: [scores[name, horizon, one] for one in (planner, given.against)]
                for name in names
            }
            apart = {name: difference([ours], [theirs]) for name, (ours, theirs) in pairs.items()}
            ours, theirs = zip(*pairs.values(), strict=True)
            differences[f"{planner}, T = {horizon}"] = {
                **apart,
                "pooled": difference(list(ours), list(theirs)),
                "mean": float(np.mean([one["mean"] for one in apart.values()])),
            }
    value = {
        "command": "python benchmarks/everything.py DATA…",
        "arguments": {
            name: part
            for name, part in vars(given).items()
            if name not in ("data", "work", "out", "known")
        },
        "fingerprints": fingerprints,
        "scores": {
            f"{name}, T = {horizon}": {
                planner: scores[name, horizon, planner].figures for planner in planners
            }
            for horizon in horizons
            for name in names
        },
        f"success rate less that of {given.against}": differences,
    }
    if given.out:
        write_json(given.out, value)
    for name, parts in differences.items():
        pooled = parts["pooled"]
        print(
            f"{name}: {pooled['mean']:+.1f} ({pooled['low']:.1f} to {pooled['high']:.1f}) pooled, "
            f"{parts['mean']:+.1f} as a mean of the data sets, against {given.against}"
        )


if __name__ == "__main__":
    main()
