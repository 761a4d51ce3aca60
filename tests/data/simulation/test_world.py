"""The embedded world: structure, difficulty, and that the same seed gives the same bytes."""

from collections import Counter, defaultdict
from dataclasses import asdict, replace

import numpy as np
import pytest

from cefito.data import open_dataset
from cefito.data.simulation.world import (
    WORLD_NAME,
    WorldKnobs,
    make_world,
    world_tasks,
    write_world,
)
from cefito.errors import ConfigError, DataError

SMALL = WorldKnobs(train=24, val=12, test=12, dim=8)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("worlds") / "world")


def sequences(annotations):
    """Task and action names of every video."""
    taxonomy = annotations.taxonomy
    return [
        (taxonomy.tasks[video.task].name, taxonomy.names([step.action for step in video.steps]))
        for video in annotations.videos
    ]


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
    opened = open_dataset(world.folder, verify=True)
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


def test_options_alternatives_repeats_and_orders_occur(world):
    videos = defaultdict(list)
    for task, names in sequences(world.annotations):
        videos[task].append(names)
    for task, slots in world_tasks().items():
        for slot in slots:
            counts = [sum(names.count(name) for name in slot.names) for names in videos[task]]
            assert (0 in counts) == slot.optional
            assert (2 in counts) == slot.repeated
            assert max(counts) <= 2
            for name in slot.names:
                assert any(name in names for names in videos[task])
        assert len({tuple(names) for names in videos[task]}) >= 6
    together = [names for group in videos.values() for names in group]
    assert any(names[at] == names[at - 1] for names in together for at in range(1, len(names)))
    threes = [
        three for names in together for three in zip(names, names[1:], names[2:], strict=False)
    ]
    assert any(one == three != two for one, two, three in threes)


def test_stages_keep_their_order():
    for task, names in sequences(make_world(knobs=replace(SMALL, repeat=0.0, order_freedom=1.0))):
        stage = {name: slot.stage for slot in world_tasks()[task] for name in slot.names}
        assert [stage[name] for name in names] == sorted(stage[name] for name in names)


def test_without_freedom_every_video_of_a_task_is_the_same():
    knobs = replace(SMALL, order_freedom=0.0, optional=1.0, repeat=0.0, alternative=0.0)
    expected = {task: [slot.names[0] for slot in slots] for task, slots in world_tasks().items()}
    for task, names in sequences(make_world(knobs=knobs)):
        assert names == expected[task]


def test_taken_folder_and_negative_seed_are_refused(world, tmp_path):
    with pytest.raises(DataError, match="exists already"):
        write_world(world.folder, knobs=SMALL)
    with pytest.raises(ConfigError, match="seed -3"):
        write_world(tmp_path / "new", seed=-3, knobs=SMALL)
    assert not (tmp_path / "new").exists()
