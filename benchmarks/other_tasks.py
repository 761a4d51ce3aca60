"""Films of tasks that a recogniser was not trained on: how many are said to show another task.

Trains a recogniser without the videos of some tasks, and recognises with doubt, as `verify` does,
all videos of these tasks and the test videos of the others. A film is said to show another task, or
none that is known, if the likeliest one has a probability of one half or less.

    python benchmarks/other_tasks.py DATA --left-out 2 7 --out FILE
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import common
from cefito.data.prepared import open_dataset
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("--left-out", type=int, nargs="+", required=True, help="ids of tasks")
    parser.add_argument("--members", type=int, default=RecogniserConfig().members)
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data)
    timeline, left_out = dataset.timeline, {*given.left_out}
    assert timeline is not None, "the data set needs rows of whole videos"
    known = [
        place
        for place, video in enumerate(dataset.videos)
        if video.split != "test" and video.task not in left_out
    ]
    config = RecogniserConfig(members=given.members)
    recogniser = SegmentalRecogniser.fit(dataset, known, config=config)
    doubted: dict[str, list[bool]] = {"left out": [], "learned": []}
    for place, video in enumerate(dataset.videos):
        if video.task in left_out or video.split == "test":
            rows = timeline.videos[place].astype(np.float32)
            tasks = recogniser.recognise(rows, doubt=True).tasks
            whose = "left out" if video.task in left_out else "learned"
            doubted[whose].append(bool(tasks.max() <= 0.5))
    report = common.about("other-tasks", given, dataset) | {
        "command": "python benchmarks/other_tasks.py DATA --left-out …",
        "machine": common.machine(),
        "least_ratios": [round(ratio, 2) for ratio in recogniser.least_ratios],
        "films of tasks": {
            whose: {"films": len(said), "doubted": sum(said)} for whose, said in doubted.items()
        },
    }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
