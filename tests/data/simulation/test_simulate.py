"""Simulated data sets: what is written, what is measured, and how they are calibrated."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from cefito.data import open_dataset
from cefito.data.simulation.simulate import LIKE, REFERENCE_TRAIN, Figures, run_probe, simulate
from cefito.errors import ConfigError, DataError


@pytest.fixture
def source(make_source):
    return make_source(features=None, text=np.ones((8, 3), dtype=np.float16))


@pytest.fixture
def shared_source(make_source, tiny_taxonomy):
    """The tiny annotations with a shared vocabulary of 3 names: ids 0-2, 3-5, 6-7."""
    tiny_taxonomy["map_8_to_3"] = [0, 0, 0, 1, 1, 1, 2, 2]
    tiny_taxonomy["actions_3"] = [{"id": index, "name": name} for index, name in enumerate("abc")]
    return make_source(features=None, taxonomy=tiny_taxonomy)


def test_prepared_data_set_is_complete_and_says_that_it_is_simulated(source, tmp_path):
    lines = []
    calibration = simulate(source, tmp_path / "out", seed=5, progress=lines.append)
    dataset = open_dataset(tmp_path / "out", verify=True)
    assert dataset.name == calibration.dataset == "tiny-simulated"
    assert dataset.start.shape == dataset.end.shape == (35, 1536)
    assert dataset.start.dtype == np.float16
    assert np.shape(dataset.action_text) == (8, 3)
    assert dataset.provenance["observations"] == "simulated"
    assert dataset.provenance["knobs"] == asdict(LIKE["s3d"])
    assert dataset.provenance["seed"] == 5
    assert dataset.provenance["calibration"] == asdict(calibration)
    assert str(tmp_path) not in (tmp_path / "out" / "dataset.json").read_text()
    assert any("simulating" in line for line in lines)
    assert any("probe" in line for line in lines)


def test_same_seed_same_bytes_other_seed_others(source, tmp_path):
    results = [
        (simulate(source, tmp_path / name, seed=seed), open_dataset(tmp_path / name, verify=True))
        for name, seed in (("one", 1), ("two", 1), ("other", 2))
    ]
    assert results[0][0] == results[1][0]
    assert results[0][1].fingerprint == results[1][1].fingerprint
    headers = [(tmp_path / name / "dataset.json").read_bytes() for name in ("one", "two")]
    assert headers[0] == headers[1]
    one, other = results[0][1].hashes, results[2][1].hashes
    assert one["features.safetensors"] != other["features.safetensors"]
    assert one["videos.jsonl"] == other["videos.jsonl"]


def test_shared_actions_change_the_vocabulary_and_not_the_observations(shared_source, tmp_path):
    np.save(shared_source / "action_text_features.npy", np.ones((8, 4), dtype=np.float16))
    np.save(shared_source / "action_text_features_3.npy", np.full((3, 4), 2, dtype=np.float16))
    full = simulate(shared_source, tmp_path / "full")
    shared = simulate(shared_source, tmp_path / "shared", shared_actions=True)
    assert (full.test, full.train, full.vocabulary) == (shared.test, shared.train, 3)
    assert shared.dataset == "tiny-3-simulated"
    one, two = (open_dataset(tmp_path / name, verify=True) for name in ("full", "shared"))
    assert one.hashes["features.safetensors"] == two.hashes["features.safetensors"]
    assert [len(dataset.taxonomy.actions) for dataset in (one, two)] == [8, 3]
    assert [np.shape(dataset.action_text) for dataset in (one, two)] == [(8, 4), (3, 4)]
    assert two.videos[2].steps[0].action == 2


@pytest.mark.parametrize("text", [np.ones((7, 3)), np.full((8, 2), np.nan)])
def test_unfit_action_text_is_named(make_source, tmp_path, text):
    folder = make_source(features=None, text=text)
    with pytest.raises(DataError, match=r"source/action_text_features\.npy: "):
        simulate(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_calibration_without_windows_has_no_figures(make_source, tmp_path, tiny_videos):
    short = [{**video, "steps": video["steps"][:3]} for video in tiny_videos]
    calibration = simulate(make_source(features=None, videos=short), tmp_path / "out")
    assert calibration.test is None
    assert calibration.train is None
    dataset = open_dataset(tmp_path / "out", verify=True)
    assert dataset.provenance["calibration"]["test"] is None
    assert dataset.action_text is None
    assert all(row["simulated test"] is None for row in calibration.rows())


def predictions(folder, *values):
    lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
    (folder / "s3d_predictions.jsonl").write_text("\n".join(lines) + "\n")


def test_reference_figures_are_read_in_the_shared_vocabulary(shared_source, tmp_path):
    # Video e: task 1, shared actions 1 1 1 1 0 1. Video f: task 0, shared actions 0 0 0 0.
    predictions(
        shared_source,
        {"video_id": "e", "start": 0, "horizon": 3, "task": 0},
        {"video_id": "e", "start": 0, "horizon": 4, "task": 1, "first_3": 1, "last_3": 1},
        {"video_id": "e", "start": 1, "horizon": 4, "task": 1, "first_3": 1, "last_3": 1},
        {"video_id": "e", "start": 2, "horizon": 4, "task": 1, "first_3": 2, "last_3": 1},
        {"video_id": "f", "start": 0, "horizon": 4, "task": 2, "first_3": 0, "last_3": 2},
    )
    calibration = simulate(shared_source, tmp_path / "out")
    assert calibration.reference_test == Figures(task=75.0, first=75.0, last=50.0, both=25.0)
    assert calibration.reference_train == REFERENCE_TRAIN


GOOD = {"video_id": "e", "start": 0, "horizon": 4, "task": 1, "first_3": 1, "last_3": 1}


@pytest.mark.parametrize(
    "bad",
    [
        "[]",
        {**GOOD, "video_id": "unknown"},
        {**GOOD, "start": 3},
        {**GOOD, "start": -1},
        {key: value for key, value in GOOD.items() if key != "task"},
    ],
)
def test_malformed_reference_is_named_with_its_line(shared_source, tmp_path, bad):
    predictions(shared_source, GOOD, bad)
    with pytest.raises(DataError, match=r"s3d_predictions\.jsonl, line 2: "):
        simulate(shared_source, tmp_path / "out")


def test_unknown_features_taken_target_and_negative_seed_are_refused(source, tmp_path):
    with pytest.raises(ConfigError, match=r"'clip'.*s3d"):
        simulate(source, tmp_path / "out", like="clip")
    with pytest.raises(ConfigError, match="seed -1"):
        simulate(source, tmp_path / "out", seed=-1)
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="exists already"):
        simulate(source, source)


def test_probe_learns_what_is_there_and_repeats_itself():
    generator = np.random.default_rng(0)
    labels = np.stack([generator.integers(3, size=400), generator.integers(2, size=400)], axis=1)
    inputs = generator.standard_normal((400, 12)).astype(np.float32)
    inputs[np.arange(400), labels[:, 0]] += 5  # the second label leaves no trace
    settings = {"width": 32, "epochs": 10, "batch": 32, "rate": 1e-2}
    one, two, other = (
        run_probe(inputs[:300], labels[:300], inputs[300:], classes=[3, 2], seed=seed, **settings)
        for seed in (0, 0, 1)
    )
    right = (one[1] == labels[300:]).mean(axis=0)
    assert right[0] > 0.95
    assert right[1] < 0.65
    assert one[1].shape == (100, 2)
    assert np.array_equal(one[1], two[1])
    assert np.array_equal(one[0], two[0])
    assert not np.array_equal(one[1], other[1])


@pytest.mark.slow
def test_crosstask_is_as_hard_as_real_features(shared_data, tmp_path):
    calibration = simulate(shared_data / "crosstask", tmp_path / "out")
    assert calibration.reference_test == Figures(task=94.0, first=72.9, last=63.3, both=50.0)
    test, train = calibration.test, calibration.train
    assert test.task == pytest.approx(94.0, abs=1.5)
    assert test.first == pytest.approx(73.0, abs=2)
    assert test.last == pytest.approx(63.0, abs=2)
    assert min(train.task, train.first, train.last) > 90
    assert open_dataset(tmp_path / "out", verify=True).name == "crosstask-simulated"
