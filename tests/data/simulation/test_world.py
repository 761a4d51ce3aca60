"""The embedded world: structure, difficulty, and that the same seed gives the same bytes."""

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from cefito.data import open_dataset
from cefito.data.simulation.world import WORLD_NAME, WorldKnobs, write_world
from cefito.errors import ConfigError, DataError

SMALL = WorldKnobs(train=24, val=12, test=12, dim=8)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("worlds") / "world")


def test_same_seed_same_bytes_other_seed_others(tmp_path):
    one, two, other = (
        write_world(tmp_path / name, seed=seed, knobs=SMALL)
        for name, seed in (("one", 7), ("two", 7), ("other", 8))
    )
    for path in one.folder.iterdir():
        assert path.read_bytes() == (two.folder / path.name).read_bytes()
    assert one.fingerprint != other.fingerprint
    assert one.hashes["taxonomy.json"] == other.hashes["taxonomy.json"]
    assert one.hashes["videos.jsonl"] != other.hashes["videos.jsonl"]


def test_prepared_folder_verifies_and_says_that_it_is_simulated(world):
    opened = open_dataset(world.folder)
    assert opened.name == WORLD_NAME == "synthetic world (simulated)"
    assert opened.observation_dim == 128
    assert opened.action_text is None
    assert opened.provenance["observations"] == "simulated"
    assert opened.provenance["seed"] == 0
    assert opened.provenance["knobs"] == asdict(WorldKnobs())


def test_counts(world):
    assert len(world.taxonomy.tasks) == 12
    assert 75 <= len(world.taxonomy.actions) <= 90
    assert Counter(video.split for video in world.videos) == {"train": 420, "val": 60, "test": 120}
    per_task = Counter((video.task, video.split) for video in world.videos)
    assert set(per_task.values()) == {35, 5, 10}
    lengths = [len(video.steps) for video in world.videos]
    assert min(lengths) >= 5
    assert max(lengths) <= 11
    assert 6 <= np.mean(lengths) <= 8


def test_each_action_belongs_to_one_task_and_some_names_to_several(world):
    owners = Counter(action for task in world.taxonomy.tasks for action in task.actions)
    assert set(owners) == set(range(len(world.taxonomy.actions)))
    assert set(owners.values()) == {1}
    names = Counter(action.name for action in world.taxonomy.actions)
    assert sum(count > 1 for count in names.values()) >= 10
    for task in world.taxonomy.tasks:
        assert len({world.taxonomy.actions[action].name for action in task.actions}) == len(
            task.actions
        )


def test_taken_folder_and_negative_seed_are_refused(world, tmp_path):
    with pytest.raises(DataError, match="exists already"):
        write_world(world.folder, knobs=SMALL)
    with pytest.raises(ConfigError, match="seed -3"):
        write_world(tmp_path / "new", seed=-3, knobs=SMALL)
    assert not (tmp_path / "new").exists()
