"""The present step of test videos, told some seconds later.

Trains the recogniser on the training and validation videos of a prepared data set with rows of
whole videos, follows the test videos, and counts the rows whose label is right, asked 0, 1, 2 and 5
seconds after each of them.

    python benchmarks/lag.py DATA --out FILE [--seeds 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import common
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.timeline import row_labels
from cefito.files import write_json
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.stream import StepStream
from cefito.tracks.track import stored

_LAGS = (0, 1, 2, 5)  # seconds


def shown(stream: StepStream, later: int, background: int) -> int:
    """Return the action of the step that is shown so many rows later; else the background."""
    steps, end = (
        stored(stream.steps(later)),
        stream.seconds - (later + 0.5) / stream.recogniser.rate,
    )
    return steps[-1].action if steps and steps[-1].end > end else background


def measured(dataset: PreparedDataset, seed: int) -> dict[str, Any]:
    """Train with a seed; return the share of right labels by lag, in per cent."""
    timeline, splits = dataset.timeline, [video.split for video in dataset.videos]
    assert timeline is not None, "the data set needs rows of whole videos"
    learned = [place for place, split in enumerate(splits) if split != "test"]
    recogniser = SegmentalRecogniser.fit(dataset, learned, seed=seed)
    background, right, count = len(dataset.taxonomy.actions), dict.fromkeys(_LAGS, 0), 0
    for place, video in enumerate(dataset.videos):
        if video.split != "test":
            continue
        rows = timeline.videos[place].astype(np.float32)
        truth = row_labels(video.steps, len(rows), timeline.rate, background).tolist()
        stream, count = recogniser.stream(), count + len(rows)
        for row_number, row in enumerate(rows):
            stream.observe(row)
            for lag in _LAGS:
                later = round(lag * timeline.rate)
                # the last rows are told at the end of the video
                for asked in {later, *range(later)} if row_number == len(rows) - 1 else {later}:
                    if asked <= row_number:
                        right[lag] += shown(stream, asked, background) == truth[row_number - asked]
    return {f"right_after_{lag}_s": round(100 * right[lag] / count, 1) for lag in _LAGS}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data)
    report = common.about("lag", given, dataset)
    report |= {
        "machine": common.machine(),
        "runs": [measured(dataset, seed) for seed in range(given.seeds)],
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
