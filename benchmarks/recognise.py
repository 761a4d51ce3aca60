"""Seconds of film in a second of processor time: recognised as a whole, and followed row by row.

Rows of the test videos of a prepared data set are given to the recogniser of a run. The median of
some rounds over all videos counts; opening the run and making rows of films are not measured.

    OMP_NUM_THREADS=1 python benchmarks/recognise.py DATA RUN --out FILE [--rounds 5]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import common
from cefito.data.prepared import open_dataset
from cefito.recognition.recogniser import Recogniser
from cefito.recognition.stream import step_stream
from cefito.runs.run import open_run

Rows = NDArray[np.float32]


def followed(recogniser: Recogniser, rows: Rows) -> None:
    """Read rows one by one; after each of them ask for the steps so far."""
    stream = step_stream(recogniser)
    for row in rows:
        stream.observe(row)
        stream.steps()


def cpu_seconds(run: Callable[[Rows], Any], videos: Sequence[Rows], rounds: int) -> float:
    """Return the median over rounds of the processor time of all videos."""
    spent = []
    for _ in range(rounds + 1):  # the first warms up
        begin = time.process_time()
        for rows in videos:
            run(rows)
        spent.append(time.process_time() - begin)
    return statistics.median(spent[1:])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data, recogniser = open_dataset(given.data), open_run(given.run).own_recogniser
    assert data.timeline is not None, "the data set needs rows of whole videos"
    rate = data.timeline.rate
    videos = [
        rows.astype(np.float32)
        for rows, video in zip(data.timeline.videos, data.videos, strict=True)
        if video.split == "test"
    ]
    count = sum(map(len, videos))
    report: dict[str, Any] = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/recognise.py DATA RUN",
        "dataset": {"name": data.name, "fingerprint": data.fingerprint},
        "machine": common.machine(),
        "test_videos": len(videos),
        "seconds_of_film": round(count / rate, 1),
        "rows": {"count": count, "numbers": recogniser.width, "a_second": rate},
    }
    ways: dict[str, Callable[[Rows], Any]] = {
        "recognised": lambda rows: recogniser.recognise(rows, rate=rate).steps(),
        "with_doubt": lambda rows: recogniser.recognise(rows, rate=rate, doubt=True).steps(),
        "followed": partial(followed, recogniser),
    }
    for name, way in ways.items():
        seconds = cpu_seconds(way, videos, given.rounds)
        report[name] = {
            "cpu_ms_a_row": round(1000 * seconds / count, 3),
            "film_seconds_a_cpu_second": round(count / rate / seconds),
        }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
