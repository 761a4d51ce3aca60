"""Processor time of a row that is followed, as a film goes on, beside its stream alone.

Test videos are joined to one film. A session takes each row and says what goes on, what comes next
and what was wrong; the stream of steps alone takes the row and says the steps. Needs a run of
several lengths with a recogniser.

    OMP_NUM_THREADS=1 python benchmarks/following.py DATA RUN --out FILE
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import cefito
import common
from cefito.data import open_dataset
from cefito.files import write_json
from cefito.recognition.stream import step_stream

PART = 200  # rows of a line of the table


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=int, default=1400)
    given = parser.parse_args()
    data = open_dataset(given.data)
    assert data.timeline is not None
    test = [place for place, video in enumerate(data.videos) if video.split == "test"]
    film = np.concatenate([data.timeline.videos[place] for place in test]).astype(np.float32)
    film = np.resize(film, (given.rows, film.shape[1]))  # again from the first one, if too short
    run, rate = cefito.open_run(given.run), data.timeline.rate
    session, stream = cefito.follow(run), step_stream(run.own_recogniser)
    times = np.empty((len(film), 2))  # milliseconds of the session, and of the stream
    for number, row in enumerate(film):
        begun = time.process_time()
        session.observe(row, at=number / rate)
        session.followed(3)
        between = time.process_time()
        stream.observe(row)
        stream.steps()
        times[number] = 1e3 * (between - begun), 1e3 * (time.process_time() - between)
    parts = []
    for first in range(0, len(times), PART):
        part = times[first : first + PART]
        mean, alone = part.mean(axis=0).round(2).tolist()
        p95, most = np.percentile(part[:, 0], (95, 100)).round(1).tolist()
        row = {"rows": first + len(part), "mean": mean, "p95": p95, "most": most, "stream": alone}
        print(row)
        parts.append(row)
    report: dict[str, Any] = {
        "command": "python benchmarks/following.py DATA RUN",
        "machine": common.machine(),
        "dataset": {"name": data.name, "fingerprint": data.fingerprint},
        "milliseconds_a_row": parts,
    }
    if given.out is not None:
        write_json(given.out, report)


if __name__ == "__main__":
    main()
