"""Plans of what remains, from rows of whole videos alone, against true boundaries.

At the start of each of the last six steps of a test video, a session that has followed the rows so
far plans the rest, with and without the observation after the last step; another is given the steps
done and the observation at the boundary. The last row may show the step that begins: if the session
says that it goes on, its plan need not hold it, so scores are also given with it before the plan.
Needs runs of several lengths with a recogniser.

    python benchmarks/remaining.py DATA RUN [RUN …] --out FILE
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

import common
from cefito.data import PreparedDataset, Video, open_dataset
from cefito.files import write_json
from cefito.inference.session import Session
from cefito.runs.run import Run, open_run

_NAMES = ("success", "edit", "next")
SCORES = (*_NAMES, *(f"{name}_with_present_step" for name in _NAMES))
_DRAWS = 2000


def scored(session: Session, left: list[int]) -> list[float]:
    """Success, edit similarity and next step of the likeliest plan, and with the present step."""
    plan = list(session.plans(1)[0].actions)
    now = session.followed(1).now if session.follows_rows else None
    begun = now is not None and now.action == left[0] != plan[0]
    whole = [left[0], *plan] if begun else plan
    scores: list[float] = []
    for one in (plan, whole):
        scores += [one == left, Levenshtein.normalized_similarity(one, left), one[0] == left[0]]
    return scores


def of_video(data: PreparedDataset, run: Run, place: int) -> Iterator[list[list[float]]]:
    """Yield both scores, from rows and from boundaries, of each start of a step, per goal."""
    video: Video = data.videos[place]
    assert data.timeline is not None
    rows, rate = data.timeline.videos[place], data.timeline.rate
    first, actions = int(data.first_row[place]), [step.action for step in video.steps]
    for goal in (None, data.end[first + len(actions) - 1].astype(np.float32)):
        following, at = run.session(goal=goal), 0
        for step in range(max(0, len(actions) - run.horizon), len(actions)):
            until = min(math.floor(video.steps[step].start * rate) + 1, len(rows))
            for number in range(at, until):  # a row is known at its end
                following.observe(rows[number].astype(np.float32), at=(number + 1) / rate)
            at = max(at, until)
            told = run.session(goal=goal, done=actions[:step])
            told.observe(data.start[first + step].astype(np.float32))
            yield [scored(each, actions[step:]) for each in (following, told)]


def summary(values: NDArray[np.float64], video: NDArray[np.int64]) -> dict[str, Any]:
    """Means of both and the share of the second that the first reaches, videos resampled."""
    count = int(video.max()) + 1
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _DRAWS)
    sums = np.array([values[video == one].sum(axis=0) for one in range(count)])
    every = np.concatenate([np.ones((1, count)), draws]) @ sums  # [draws, both]
    share = 100 * every[:, 0] / np.maximum(every[:, 1], 1e-9)
    low, high = np.percentile(share[1:], (2.5, 97.5))
    means = (100 * values.mean(axis=0)).round(1).tolist()
    share, low, high = (round(float(one), 1) for one in (share[0], low, high))
    return dict(zip(("rows", "boundaries"), means, strict=True)) | {
        "share": {"mean": share, "low": low, "high": high}
    }


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("runs", type=Path, nargs="+")
    given = parser.parse_args()
    data = open_dataset(given.data)
    test = [place for place, video in enumerate(data.videos) if video.split == "test"]
    found, video = [], []
    for run in map(open_run, given.runs):
        for number, place in enumerate(test):
            own = list(of_video(data, run, place))
            found += own
            video += [number] * len(own)
    values = np.array(found, dtype=float)  # [runs × starts × goals, both, scores]
    report: dict[str, Any] = {
        "command": "python benchmarks/remaining.py DATA RUN …",
        "dataset": {"name": data.name, "fingerprint": data.fingerprint},
        "runs": len(given.runs),
        "test_videos": len(test),
        "plans": len(values),
        "scores": {
            name: summary(values[:, :, place], np.array(video)) for place, name in enumerate(SCORES)
        },
    }
    for name, row in report["scores"].items():
        print(name, row)
    if given.out is not None:
        write_json(given.out, report)


if __name__ == "__main__":
    main()
