"""Feature archives as they are published, and annotations in each public form, made small."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cefito.data import read_annotations
from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.source import Source
from cefito.errors import DataError
from refusals import refusal
from traps import Trap, npy_bytes

DIM = 6


@pytest.fixture
def flag(tmp_path: Path) -> Iterator[Path]:
    """A file that exists only once something was unpickled."""
    path = tmp_path / "unpickled"
    yield path
    assert not path.exists(), "something was unpickled"


@pytest.fixture
def write_archive(flag: Path) -> Callable[..., Path]:
    """Write a published archive, which ends in .npy: `frames_features` beside a pickle."""

    def write(path: Path, features: np.ndarray, *, compression: int = zipfile.ZIP_STORED) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        trap = npy_bytes(np.array([Trap(flag)], dtype=object), pickled=True)
        assert b"touch" in trap
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("steps_features.npy", trap)
            archive.writestr("frames_features.npy", npy_bytes(features))
            archive.writestr("../../outside.npy", npy_bytes(features[:1]))
            archive.writestr("info.pkl", pickle.dumps(Trap(flag)))
        return path

    return write


@pytest.fixture
def features_of() -> Callable[..., np.ndarray]:
    """Features of a video, float32 [seconds, DIM], always the same for a name."""

    def make(name: str, seconds: int, width: int = DIM) -> np.ndarray:
        generator = np.random.default_rng(list(name.encode()))
        return generator.standard_normal((seconds, width), dtype=np.float32)

    return make


@pytest.fixture
def write_windows() -> Callable[..., None]:
    """Write a folder in the common form as window files of the unified protocol."""

    def write(source, target, *, horizons=(3,), vid=True):
        tasks = json.loads((source / "taxonomy.json").read_text())["tasks"]
        videos = [json.loads(line) for line in (source / "videos.jsonl").read_text().splitlines()]
        target.mkdir(parents=True, exist_ok=True)
        for horizon in horizons:
            for split in ("train", "test"):
                windows = []
                for video in videos:
                    steps = video["steps"]
                    if video["split"] != split or not video.get("in_protocol", True):
                        continue
                    for first in range(len(steps) - horizon + 1):
                        name = video["video_id"]
                        value = {
                            "task": tasks[video["task_id"]]["name"],
                            "task_id": video["task_id"],
                            "feature": f"somewhere/else/{name}.npy",
                            "legal_range": steps[first : first + horizon],
                        }
                        value |= {"vid": name} if vid else {}
                        windows.append({"id": value, "instruction_len": len(steps)})
                (target / f"tiny_{split}_T{horizon}.json").write_text(json.dumps(windows))

    return write


@pytest.fixture
def wrong() -> Callable[..., None]:
    """Check that reading fails with one line."""

    def check(name: str, path: Path, match: str, **options: Any) -> None:
        refusal(DataError, read_benchmark, name, path, match=match, **options)

    return check


@pytest.fixture
def store(make_source, tiny_videos, write_archive, features_of, tmp_path):
    """Tiny annotations, published archives of 14 s a video, and the arrays in them.

    Videos d and i have shorter ones, by more than the rounding of a video's length.
    """
    tiny_videos[3]["steps"] = [[0.0, 2.0, 1]]
    source = make_source(videos=tiny_videos, features=None)
    videos = [video for video in read_annotations(source).videos if video.steps]
    seconds = {"d": 1, "i": 5}
    arrays = {
        video.video_id: features_of(video.video_id, seconds.get(video.video_id, 14))
        for video in videos
    }
    for name, array in arrays.items():
        write_archive(tmp_path / "features" / f"{name}.npy", array)
    return source, tmp_path / "features", arrays


@pytest.fixture
def source(store) -> Source:
    """The annotations of `store`."""
    return read_benchmark("niv", store[0])
