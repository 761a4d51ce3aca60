"""Time and memory of preparing a benchmark's S3D features.

On SIMULATED archives of COIN's size a video.

Archives are written in the published form (a member frames_features.npy of [seconds, 512] float32),
annotations as taxonomy.json and videos.jsonl. Each case is prepared in a process of its own, so
that its peak memory is its own; two sizes give what one video adds, and from that the whole of COIN
is extrapolated. The peak while videos are observed stands beside that of everything, to which the
opening of the finished data set adds its file and its arrays.

    python benchmarks/prepare.py --videos 600 11800 > benchmarks/results/prepare.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cefito.progress import Advance, silent

WHOLE = 11_800
SIZE = 512
STEPS = 4


def write(folder: Path, *, videos: int, seconds: int, compressed: bool) -> None:
    generator = np.random.default_rng(0)
    (folder / "features").mkdir(parents=True)
    actions = list(range(STEPS))
    (folder / "taxonomy.json").write_text(
        json.dumps(
            {
                "dataset": "simulated",
                "tasks": [{"id": 0, "name": "task", "actions": actions}],
                "actions": [{"id": action, "name": f"action {action}"} for action in actions],
            }
        )
    )
    lines = []
    for number in range(videos):
        times = (
            np.sort(generator.uniform(0, seconds - 2, 2 * STEPS))
            .round(1)
            .reshape(STEPS, 2)
            .tolist()
        )
        lines.append(
            json.dumps(
                {
                    "video_id": f"v{number:05}",
                    "split": "train" if number % 3 else "test",
                    "task_id": 0,
                    "steps": [[*pair, action] for action, pair in zip(actions, times, strict=True)],
                }
            )
        )
        with (
            zipfile.ZipFile(
                folder / "features" / f"v{number:05}.npy",
                "w",
                zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED,
            ) as archive,
            archive.open("frames_features.npy", "w") as member,
        ):
            np.save(member, generator.standard_normal((seconds, SIZE), dtype=np.float32))
    (folder / "videos.jsonl").write_text("\n".join(lines) + "\n")


def measure(folder: Path, workers: int) -> None:
    from cefito.data.readers.assemble import prepare
    from cefito.data.readers.benchmarks import read_benchmark

    observed = before = peak()

    @contextmanager
    def progress(description: str, *, total: int | None = None) -> Iterator[Advance]:
        nonlocal observed
        with silent(description, total=total) as advance:
            yield advance
        observed = peak()

    wall, used = time.perf_counter(), time.process_time()
    dataset = prepare(
        read_benchmark("coin", folder),
        folder / "features",
        folder / "out",
        workers=workers,
        progress=progress,
    )
    wall, used = time.perf_counter() - wall, time.process_time() - used
    size = sum(path.stat().st_size for path in (folder / "out").iterdir()) / 2**20
    print(
        json.dumps(
            {
                "videos": len(dataset.videos),
                "steps": len(dataset.start),
                "seconds": round(wall, 2),
                "cpu_seconds": round(used, 2),
                "start_mib": before,
                "data_set_mib": round(size, 1),
                "observing_peak_mib": observed,
                "peak_mib": peak(),
            }
        )
    )


def peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def extrapolate(small: dict[str, float], large: dict[str, float]) -> dict[str, float]:
    more = (WHOLE - large["videos"]) / (large["videos"] - small["videos"])
    return {"videos": WHOLE} | {
        key: round(large[key] + more * (large[key] - small[key]), 1)
        for key in ("seconds", "cpu_seconds", "observing_peak_mib", "peak_mib", "data_set_mib")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--videos", type=int, nargs=2, default=[200, 600])
    parser.add_argument("--length", type=int, default=200, help="seconds a video")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--measure",
        type=Path,
        help="prepare what is there and print how long it took; used by this program",
    )
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.workers[0])
        return
    cases = []
    with tempfile.TemporaryDirectory() as place:
        for compressed in (False, True):
            folders = {videos: Path(place) / str(videos) for videos in given.videos}
            for videos, folder in folders.items():
                write(folder, videos=videos, seconds=given.length, compressed=compressed)
            for workers in given.workers:
                found = []
                for folder in folders.values():
                    shutil.rmtree(folder / "out", ignore_errors=True)
                    done = subprocess.run(
                        [sys.executable, __file__, "--measure", folder, "--workers", str(workers)],
                        check=True,
                        capture_output=True,
                        text=True,
                    )
                    found.append(json.loads(done.stdout))
                cases.append(
                    {
                        "compressed": compressed,
                        "workers": workers,
                        "measured": found,
                        "extrapolated": extrapolate(*found),
                    }
                )
            for folder in folders.values():
                shutil.rmtree(folder)
    print(
        json.dumps(
            {
                "features": f"simulated, float32 [{given.length}, {SIZE}] a video",
                "stored_as": "float16",
                "steps": STEPS,
                "cores": os.cpu_count(),
                "load_average_at_the_end": round(os.getloadavg()[0], 2),
                "numpy": np.__version__,
                "cases": cases,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
