"""Steps that were cut out of test videos with rows: how many are found, at how many false alarms.

Trains a recogniser (one member) and orders on the training and validation videos of a folder with
taxonomy.json, videos.jsonl and timeline.npz. From each test video it cuts, one at a time, up to
`--cuts` steps that are usual (70 % of videos) and done once, with half of the pauses around them.

    python benchmarks/removed_steps.py --data FOLDER --out FILE [--cuts 2] [--seeds 1] [--videos N]

`likeliest` scores a step by the likeliest steps alone, as before films were asked for each one;
`film` by 1 − p(done) of the whole film. False alarms are of the uncut test videos. `said` counts,
at the default probability of 50 %, cut steps that are found, and those that are found or unsure;
`unsure_an_hour` counts steps of uncut videos. With `--videos N`, N are learned from of each task.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.data.annotations import Step, Video
from cefito.data.prepared import PreparedDataset
from cefito.data.readers.custom import prepare
from cefito.files import write_json
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.verification.verifier import Verifier

_USUAL = 0.7  # share of videos with a step that is cut
_RATES = (1, 3, 10)  # false alarms an hour
Rows = NDArray[Any]


def without(video: Video, rows: Rows, rate: float, place: int) -> tuple[Video, Rows]:
    """Cut one step and half of the pauses beside it out of a video and its rows [n, D]."""
    steps = sorted(video.steps, key=lambda step: step.start)
    borders = [(a.end + b.start) / 2 for a, b in pairwise(steps)]
    edges = np.rint(np.array([0, *borders, len(rows) / rate]) * rate).astype(int)
    start, end = edges[place], edges[place + 1]
    shift = (end - start) / rate
    kept = [*steps[:place], *(moved(step, -shift) for step in steps[place + 1 :])]
    return replace(video, steps=tuple(kept)), np.concatenate([rows[:start], rows[end:]])


def moved(step: Step, seconds: float) -> Step:
    """Return a step that begins some seconds later."""
    return replace(step, start=step.start + seconds, end=step.end + seconds)


def missing(recogniser: Any, verifier: Verifier, rows: Rows, rate: float, task: int) -> Any:
    """Return p(missing) of each action by the likeliest steps, by the film, and unsure steps."""
    seen = recogniser.recognise(rows, rate=rate, task=task)
    found = seen.steps()
    if not found:
        return {}, {}, {}
    steps = [Step(step.start, step.end, step.action) for step in found]
    sure = [step.probability for step in found]
    present = seen.present.tolist()
    free = seen.present_in_any_order.tolist()

    def scores(**film: Any) -> dict[int, float]:
        verification = verifier.verify(steps, task, sure=sure, least=0.0, **film)
        missed = (one for one in verification.deviations if one.step is None)
        return {one.action: one.probability for one in missed if one.action is not None}

    film = verifier.verify(steps, task, sure=sure, present=present, in_any_order=free)
    unsure = {one.action: one.probability for one in film.unsure}
    return scores(), scores(present=present, in_any_order=free), unsure


def measured(dataset: PreparedDataset, cuts: int, seed: int, most: int | None) -> dict[str, Any]:
    """Train with a seed, and score cut and uncut test videos."""
    timeline, generator = dataset.timeline, np.random.default_rng(seed)
    assert timeline is not None, "the data set needs rows of whole videos"
    learned = [place for place, video in enumerate(dataset.videos) if video.split != "test"]
    if most is not None:
        tasks = {dataset.videos[place].task for place in learned}
        of = {task: [p for p in learned if dataset.videos[p].task == task] for task in tasks}
        learned = sorted(p for ps in of.values() for p in generator.permutation(ps)[:most].tolist())
    recogniser = SegmentalRecogniser.fit(
        dataset, learned, config=RecogniserConfig(members=1), seed=seed
    )
    verifier = Verifier.fit([dataset.videos[place] for place in learned], dataset.taxonomy)
    uncut: tuple[list[float], list[float]] = ([], [])
    cut, seconds, unsure_uncut, said = [], 0.0, 0, []
    for place, video in enumerate(dataset.videos):
        if video.split != "test":
            continue
        rows, order = timeline.videos[place].astype(np.float32), verifier.orders[video.task]
        *both, unsure = missing(recogniser, verifier, rows, timeline.rate, video.task)
        for scores, found in zip(uncut, both, strict=True):
            scores += found.values()
        seconds, unsure_uncut = seconds + len(rows) / timeline.rate, unsure_uncut + len(unsure)
        actions = [step.action for step in sorted(video.steps, key=lambda step: step.start)]
        usual = [
            where
            for where, action in enumerate(actions)
            if actions.count(action) == 1 and order.usual[order.index[action]] > _USUAL
        ]
        for where in generator.permutation(usual)[:cuts].tolist():
            _, shorter = without(video, rows, timeline.rate, where)
            *both, unsure = missing(recogniser, verifier, shorter, timeline.rate, video.task)
            action = actions[where]
            cut.append([found.get(action, 0.0) for found in both])
            said.append((both[1].get(action, 0.0) >= 0.5, action in unsure))
    hours, table = seconds / 3600, np.array(cut)
    result: dict[str, Any] = {"seed": seed, "cut": len(cut), "hours": round(hours, 2)}
    for column, name in enumerate(("likeliest", "film")):
        alarms = sorted(uncut[column], reverse=True)
        result[name] = {
            f"found_at_{rate}_an_hour": share(table[:, column] > _threshold(alarms, rate * hours))
            for rate in _RATES
        } | {
            "found": share(table[:, column] >= 0.5),
            "alarms_an_hour": round(sum(one >= 0.5 for one in alarms) / hours, 1),
        }
    result["said"] = {
        "found": share([found for found, _ in said]),
        "found_or_unsure": share([found or unsure for found, unsure in said]),
        "unsure_an_hour": round(unsure_uncut / hours, 1),
    }
    return result


def _threshold(alarms: Sequence[float], most: float) -> float:
    return alarms[int(most)] if int(most) < len(alarms) else 0.0


def share(values: Any) -> float:
    """Return the share of true values, in per cent."""
    return round(100 * float(np.mean(values)), 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cuts", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--videos", type=int)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        for name in ("taxonomy.json", "videos.jsonl", "timeline.npz"):
            shutil.copy(given.data / name, source)
        dataset = prepare(source, Path(folder) / "DATA")
        runs = [measured(dataset, given.cuts, seed, given.videos) for seed in range(given.seeds)]
    report = {
        "command": f"python benchmarks/removed_steps.py --data {given.data.name}"
        f" --cuts {given.cuts} --seeds {given.seeds}"
        + (f" --videos {given.videos}" if given.videos else ""),
        "machine": common.machine(),
        "runs": runs,
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
