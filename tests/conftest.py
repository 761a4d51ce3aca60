"""Small data sets for tests, and the real annotations where they are at hand."""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from cefito.data import Annotations, PreparedDataset, Video, read_annotations
from cefito.data.readers.custom import prepare_custom
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.files import sha256, value_sealed
from language_model import StandIn, stand_in
from moved_arrays import all_arrays_moved
from tiny_runs import TINY_LENGTHS, rows_of, small_run

if TYPE_CHECKING:
    from cefito.runs.run import Run

TAXONOMY = {
    "dataset": "tiny",
    "tasks": [
        {"id": 0, "name": "tea", "actions": [0, 1, 2]},
        {"id": 1, "name": "toast", "actions": [2, 3, 4, 5]},
        {"id": 2, "name": "tyre", "actions": [6, 7]},
    ],
    "actions": [
        {"id": index, "name": name}
        for index, name in enumerate(
            ["boil", "pour", "wait", "cut", "heat", "spread", "jack up", "jack down"]
        )
    ],
}
# (video, split, task, actions)
VIDEOS = [
    ("a", "train", 0, [0, 1, 2]),
    ("b", "train", 1, [3, 4, 5, 2, 3]),
    ("c", "train", 2, [6, 7, 6, 7]),
    ("d", "train", 0, [1]),
    ("e", "test", 1, [3, 4, 4, 5, 2, 3]),
    ("f", "test", 0, [2, 1, 0, 1]),
    ("g", "test", 2, []),
    ("h", "train", 0, [0, 2, 1, 2]),
    ("i", "train", 0, [0, 1, 2, 2]),
    ("j", "train", 0, [0, 1, 1, 2]),
]
# of property-based tests; pytest --hypothesis-profile=thorough looks longer
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("quick")
# as of the Makefile: more threads than cores that are free wait for each other
torch.set_num_threads(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))

OBSERVATION_DIM = 4
ACTION_TEXT_DIM = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--move-arrays",
        action="store_true",
        help="let every array that enters the library begin 4 bytes beside its place",
    )


@pytest.fixture(scope="session", autouse=True)
def moved_on_request(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --move-arrays, tests run as on machines where arrays begin anywhere in memory."""
    with all_arrays_moved() if request.config.getoption("--move-arrays") else nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_disks() -> Iterator[None]:
    """Files that tests write need not survive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def tiny_taxonomy() -> dict[str, Any]:
    """Content of a taxonomy.json: 3 tasks, 8 actions, action 2 in two tasks."""
    return copy.deepcopy(TAXONOMY)


@pytest.fixture
def shared_taxonomy(tiny_taxonomy: dict[str, Any]) -> dict[str, Any]:
    """The tiny taxonomy with a shared vocabulary of 3 actions."""
    names = enumerate(["liquid", "food", "jack"])
    shared = [{"id": number, "name": name} for number, name in names]
    return tiny_taxonomy | {"map_8_to_3": [0, 0, 1, 1, 1, 1, 2, 2], "actions_3": shared}


@pytest.fixture
def tiny_videos() -> list[dict[str, Any]]:
    """Lines of a videos.jsonl: 10 videos, 35 steps, no val split."""
    return [
        {
            "video_id": name,
            "split": split,
            "task_id": task,
            "steps": [
                [2.0 * place, 2.0 * place + 1.5, action] for place, action in enumerate(actions)
            ],
        }
        for name, split, task, actions in VIDEOS
    ]


@pytest.fixture
def make_source(
    tmp_path: Path, tiny_taxonomy: dict[str, Any], tiny_videos: list[dict[str, Any]]
) -> Callable[..., Path]:
    """Write a source folder of tiny annotations and features; each part can be replaced.

    `videos` may be the text of the file; without `features` or `text` that file is left out.
    """

    def make(
        name: str = "source",
        *,
        taxonomy: Any = tiny_taxonomy,
        videos: Any = tiny_videos,
        features: Any = "random",
        text: Any = None,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
        if not isinstance(videos, str):
            lines = "".join(json.dumps(video) + "\n" for video in videos)
        (folder / "videos.jsonl").write_text(videos if isinstance(videos, str) else lines)
        if isinstance(features, str):
            features = random_features(sum(len(video["steps"]) for video in videos))
        if features is not None:
            np.savez(folder / "features.npz", **features)
        if text is not None:
            np.save(folder / "action_text_features.npy", text)
        return folder

    return make


def random_features(steps: int, width: int = OBSERVATION_DIM) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    return {
        name: generator.standard_normal((steps, width)).astype(np.float32)
        for name in ("start", "end")
    }


@pytest.fixture
def tiny_dataset(make_source: Callable[..., Path], tmp_path: Path) -> PreparedDataset:
    """A prepared data set of the tiny annotations, with action text."""
    shape = (len(TAXONOMY["actions"]), ACTION_TEXT_DIM)
    text = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    return prepare_custom(make_source("tiny-source", text=text), tmp_path / "tiny")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real annotations (crosstask, coin, niv, captaincook4d).

    The test is skipped where it is absent.
    """
    root = Path(__file__).resolve().parents[1]
    places = [root.parent / "shared" / "data", root / "shared" / "data"]
    if "CEFITO_SHARED_DATA" in os.environ:
        places = [Path(os.environ["CEFITO_SHARED_DATA"])]
    for place in places:
        if (place / "crosstask" / "videos.jsonl").exists():
            return place
    pytest.skip(
        "real annotations are not at hand: set CEFITO_SHARED_DATA to the folder that holds "
        "crosstask/, coin/, niv/ and captaincook4d/"
    )


@pytest.fixture(scope="session")
def real_annotations(shared_data: Path) -> Callable[[str], Annotations]:
    """Real annotations by the name of their folder, read once."""
    return cache(lambda name: read_annotations(shared_data / name))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    """A small simulated data set, not to be changed."""
    knobs = WorldKnobs(train=24, val=12, test=12, dim=8)
    return write_world(tmp_path_factory.mktemp("simulated") / "world", knobs=knobs)


@pytest.fixture(scope="session")
def video(world: PreparedDataset) -> Video:
    """A test video of at least six steps of the simulated data set."""
    return next(one for one in world.videos if one.split == "test" and len(one.steps) >= 6)


@pytest.fixture(scope="session")
def nearest_run(world: PreparedDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 3 steps, of a method that trains nothing, not to be changed."""
    return small_run(world, tmp_path_factory.mktemp("nearest") / "run")


@pytest.fixture(scope="session")
def run_of_lengths(world: PreparedDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 1 to 4 steps on the simulated data set, not to be changed."""
    folder = tmp_path_factory.mktemp("lengths") / "run"
    return small_run(world, folder, "any-length", overrides=TINY_LENGTHS, horizon=4, shortest=1)


@pytest.fixture(scope="session")
def run_with_recogniser(
    world: PreparedDataset, run_of_lengths: Run, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """The same run with a recogniser of steps in the rows of whole videos; not to be changed."""
    from cefito.data.timeline import Timeline
    from cefito.recognition.segmental import SegmentalRecogniser
    from cefito.recognition.settings import RecogniserConfig

    every = tuple(rows_of(world, video).astype(np.float16) for video in range(len(world.videos)))
    dataset = replace(world, hashes=dict(world.hashes))
    vars(dataset)["timeline"] = Timeline(every)
    seen = [place for place, video in enumerate(world.videos) if video.split != "test"]
    config = RecogniserConfig(
        members=1,
        width=64,
        training_steps=300,
        learning_rate=1e-2,
        folds=2,
        trusts=(0.6,),
        temporal_steps=60,
        temporal_passes=20,
        attention_layers=0,
    )
    recogniser = SegmentalRecogniser.fit(dataset, seen, config=config)
    folder = tmp_path_factory.mktemp("recogniser") / "run"
    folder.mkdir()
    return replace(run_of_lengths, folder=folder, recogniser=recogniser).written()


@pytest.fixture(scope="session")
def calibrated(run_of_lengths: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same run, its sets calibrated on 12 validation videos; not to be changed."""
    from cefito.evaluation.conformal import calibrate_run
    from cefito.runs.run import open_run

    folder = tmp_path_factory.mktemp("calibrated") / "run"
    run = open_run(shutil.copytree(run_of_lengths.folder, folder))
    calibrate_run(run, folds=0)
    return open_run(folder)


@pytest.fixture(scope="session")
def reseal():
    """A function that makes a prepared data set whole again after its files were edited by hand."""

    def made_whole(folder: Path) -> None:
        header = json.loads((folder / "dataset.json").read_text())
        header["hashes"] = {name: sha256(folder / name) for name in header["hashes"]}
        (folder / "dataset.json").write_text(json.dumps(value_sealed(header)))

    return made_whole


@pytest.fixture(scope="session", autouse=True)
def nobody_is_asked() -> Iterator[None]:
    """No test uses a key, or asks a language model, of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("OPENAI_", "CEFITO_LLM_")):
                patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def asked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """A stand-in that planners ask while a module's tests run, whatever their settings name."""
    with stand_in() as served, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CEFITO_LLM_SERVER", served.url)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("answers")))
        yield served


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray cluster of two workers on this machine, which the executor "ray" finds and leaves."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: make test-ray installs it and runs these tests")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "180"}
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=2,  # as Ray counts them
            object_store_memory=128 << 20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    yield
    ray.shutdown()
