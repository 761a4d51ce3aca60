"""The present step of test videos, told some seconds later.

Follows the test videos of a prepared data set with rows of whole videos by the recogniser of each
run, and counts the rows whose label is right, asked 0, 1, 2 and 5 seconds after each of them.

    python benchmarks/lag.py DATA RUN [RUN …] --out FILE
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import common
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.timeline import row_labels
from cefito.recognition.stream import StepStream, step_stream
from cefito.runs.run import Run, open_run
from cefito.tracks.track import stored

_LAGS = (0, 1, 2, 5)  # seconds


def shown(stream: StepStream, later: int, background: int) -> int:
    """Return the action of the step that is shown so many rows later; else the background."""
    steps, end = (
        stored(stream.steps(later)),
        stream.seconds - (later + 0.5) / stream.recogniser.rate,
    )
    return steps[-1].action if steps and steps[-1].end > end else background


def measured(dataset: PreparedDataset, run: Run) -> dict[str, float]:
    """Return the share of right labels by lag, in per cent."""
    timeline = dataset.timeline
    assert timeline is not None, "the data set needs rows of whole videos"
    background, right, count = len(dataset.taxonomy.actions), dict.fromkeys(_LAGS, 0), 0
    for place, video in enumerate(dataset.videos):
        if video.split != "test":
            continue
        rows = timeline.videos[place].astype(np.float32)
        truth = row_labels(video.steps, len(rows), timeline.rate, background).tolist()
        stream, count = step_stream(run.own_recogniser), count + len(rows)
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
    parser.add_argument("runs", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data)
    report = common.about("lag", given, dataset) | {
        "command": "python benchmarks/lag.py DATA RUN …",
        "machine": common.machine(),
        "runs": [measured(dataset, run) for run in map(open_run, given.runs)],
    }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
