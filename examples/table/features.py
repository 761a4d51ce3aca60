"""Make SIMULATED features for the videos of steps.csv.

Each video has one file, one row of 16 numbers a second.

While a step is done, rows look like that step, with noise; between two steps like neither. For
videos of your own, extract real features instead, for example with `cefito extract`.

    python examples/table/features.py FEATURES
    cefito data prepare custom examples/table/steps.csv DATA --features FEATURES
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

SIZE = 16


def main(target: Path) -> None:
    """Write the files into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    with (Path(__file__).parent / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    looks = {
        name: generator.standard_normal(SIZE)
        for name in sorted({row["step"].casefold() for row in rows})
    }
    for video in dict.fromkeys(row["video"] for row in rows):
        steps = [row for row in rows if row["video"] == video]
        seconds = round(max(float(row["end"]) for row in steps)) + 2
        features = 0.3 * generator.standard_normal((seconds, SIZE))
        for row in steps:
            features[round(float(row["start"])) : round(float(row["end"])) + 1] += looks[
                row["step"].casefold()
            ]
        np.save(target / f"{video}.npy", features.astype(np.float32))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
