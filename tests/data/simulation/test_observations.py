"""Simulated observations: what each knob does, and that the same seed gives the same bytes."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from cefito.data import Annotations, Step, Taxonomy, Video, open_dataset
from cefito.data.simulation.observations import ObservationKnobs, observe, simulate
from cefito.errors import ConfigError, DataError

KNOBS = ("task", "progress", "step", "confusion_start", "confusion_end", "style", "noise")
SILENT = ObservationKnobs(**dict.fromkeys(KNOBS, 0), noise_spread=0, hidden=64)
NAMES = ["pour water", "pour milk", "cut", "pour water", "tighten screw", "wait"]
TAXONOMY = Taxonomy.from_names("tiny", [("tea", (0, 1, 2)), ("repair", (3, 4, 5))], NAMES)
SEQUENCES = [(0, [0, 1, 2]), (1, [3, 4, 5, 4]), (0, [2, 0]), (0, []), (1, [4]), (0, [0, 1, 0, 2])]


def annotations(taxonomy=TAXONOMY):
    videos = []
    for index, (task, row) in enumerate(SEQUENCES):
        steps = tuple(Step(start=at, end=at + 1, action=action) for at, action in enumerate(row))
        videos.append(Video(video_id=f"v{index}", split="train", task=task, steps=steps))
    return Annotations(taxonomy=taxonomy, videos=tuple(videos))


ACTIONS = np.array([action for _, row in SEQUENCES for action in row])
VIDEO = np.array([index for index, (_, row) in enumerate(SEQUENCES) for _ in row])
TASK = np.array([task for task, row in SEQUENCES for _ in row])


def look(seed=0, dim=512, **knobs):
    start, end = observe(annotations(), replace(SILENT, **knobs), dim=dim, seed=seed)
    return start.astype(np.float32), end.astype(np.float32)


def alike(one, two):
    """Whether observations are equal but for the last bits of float16.

    Products round by the processor, and there by the place of a row in its array.
    """
    return np.allclose(one, two, rtol=2**-9, atol=2**-9)


def distinct(rows):
    """Number of rows that are not `alike` an earlier one."""
    return sum(not any(alike(row, other) for other in rows[:n]) for n, row in enumerate(rows))


def test_same_seed_same_bytes_other_seed_others():
    one, two, other = (
        observe(annotations(), ObservationKnobs(), dim=16, seed=seed) for seed in (3, 3, 4)
    )
    assert one[0].tobytes() + one[1].tobytes() == two[0].tobytes() + two[1].tobytes()
    assert one[0].tobytes() != other[0].tobytes()
    assert one[0].shape == one[1].shape == (14, 16)
    assert one[0].dtype == one[1].dtype == np.float16


@pytest.mark.parametrize(("knob", "shown"), [("task", TASK), ("step", ACTIONS), ("style", VIDEO)])
def test_a_knob_alone_shows_one_thing(knob, shown):
    start, end = look(**{knob: 3})
    assert alike(start, end)
    assert all(distinct(start[shown == value]) == 1 for value in np.unique(shown))
    assert distinct(start) == len(np.unique(shown))


def test_memory_keeps_or_drops_older_steps():
    last = [2, 13]  # both videos end with action 2 and have done the same set, in different order
    for memory, equal in ((0.0, True), (0.5, False), (1.0, True)):
        _, end = look(progress=3, memory=memory)
        assert alike(end[last[0]], end[last[1]]) is equal


def test_noise_differs_between_observations_and_grows_with_its_knob():
    clear = look(step=3)[0]
    rows = np.concatenate(look(step=3, noise=1))
    assert distinct(rows) == len(rows)
    scales = []
    for noise in (0.05, 0.2, 1.0):
        start, _ = look(step=3, noise=noise)
        scales.append(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(start, clear, strict=True)]))
    assert scales[0] > scales[1] > scales[2]


def test_prepared_data_set_is_complete_and_says_that_it_is_simulated(make_source, tmp_path):
    source = make_source(features=None, text=np.ones((8, 3), dtype=np.float16))
    one, other = (simulate(source, tmp_path / f"{seed}", seed=seed) for seed in (5, 6))
    dataset = open_dataset(tmp_path / "5")
    assert dataset.name == "tiny-simulated"
    assert dataset.start.shape == dataset.end.shape == (35, 1536)
    assert dataset.action_text.shape == (8, 3)
    assert dataset.provenance["observations"] == "simulated"
    assert dataset.provenance["knobs"] == asdict(ObservationKnobs())
    assert str(tmp_path) not in (tmp_path / "5" / "dataset.json").read_text()
    assert one.hashes["features.safetensors"] != other.hashes["features.safetensors"]
    assert one.hashes["videos.jsonl"] == other.hashes["videos.jsonl"]


@pytest.mark.parametrize("text", [np.ones((7, 3)), np.full((8, 2), np.nan)])
def test_unfit_sources_and_taken_targets_are_refused(make_source, tmp_path, text):
    folder = make_source(features=None, text=text)
    with pytest.raises(DataError, match=r"source/action_text_features\.npy: "):
        simulate(folder, tmp_path / "out")
    with pytest.raises(ConfigError, match="seed -1"):
        simulate(folder, tmp_path / "out", seed=-1)
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="exists already"):
        simulate(folder, folder)
