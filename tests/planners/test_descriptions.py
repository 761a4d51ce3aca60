from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.errors import DataError
from cefito.planners.shared.descriptions import EndMeans, name_vectors, read_descriptions

KNOBS = {"train": 12, "val": 4, "test": 4, "dim": 5}
NAMES = ("pour water", "Pour water", "crêpe wenden", "加水", "")


def test_vectors_are_the_same_everywhere():
    vectors = name_vectors(NAMES, 5)
    assert vectors.shape == (5, 6, 5)
    assert vectors.dtype == np.float32
    assert (vectors[0, 0, :3] * 2**16).tolist() == [25714.0, -619.0, -70862.0]
    assert sha256(vectors.astype("<f4").tobytes()).hexdigest() == (
        "05adc9c767948311ec3b7a77a901c8c732c94027c76f3578cef49b6389c7ee9e"
    )


def test_equal_names_have_vectors_of_their_own():
    vectors = name_vectors(["pour", "stir", "pour", "pour"], 4)
    assert len({row.tobytes() for row in vectors}) == 4
    np.testing.assert_array_equal(vectors[1::-1], name_vectors(["stir", "pour"], 4))


def test_files_of_descriptions(tmp_path):
    path = tmp_path / "descriptions.npy"
    given = np.random.default_rng(0).standard_normal((3, 6, 5)).astype(np.float16)
    np.save(path, given)
    vectors = read_descriptions(path, actions=3, setting="method.descriptions")
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, given.astype(np.float32))
    with pytest.raises(DataError, match=r"\[3, 6, 5\]; expected \[4, 6, any\]"):
        read_descriptions(path, actions=4, setting="method.descriptions")
    with pytest.raises(DataError, match=r"Correct method\.descriptions"):
        read_descriptions(tmp_path / "none.npy", actions=3, setting="method.descriptions")


def test_means_of_starts_and_ends_by_hand(world):
    windows, _ = world
    centre = torch.from_numpy(windows.initial.mean(axis=0))
    means = EndMeans(windows, lambda x: F.layer_norm(x - centre, (5,)))
    rows = np.arange(len(windows))
    others = rows[windows.video != windows.video[0]]
    without = means.without(torch.tensor([0]), 0.0, torch.Generator())
    for found, kept in ((means.all(), rows), (without, others)):
        assert found.shape == (len(windows.taxonomy.actions), 2, 5)
        for action in range(len(found)):
            for side, (observed, place) in enumerate(((windows.initial, 0), (windows.goal, -1))):
                seen = [
                    F.layer_norm(torch.from_numpy(observed[row]) - centre, (5,))
                    for row in kept
                    if windows.actions[row, place] == action
                ]
                expected = torch.stack(seen).mean(dim=0) if seen else torch.zeros(5)
                torch.testing.assert_close(found[action, side], expected, rtol=1e-4, atol=1e-5)
    # what lies between the ends of all windows is not looked at
    other = replace(windows, actions=windows.actions[:, [0, 0, 2]])
    same = EndMeans(other, lambda x: F.layer_norm(x - centre, (5,)))
    torch.testing.assert_close(same.all(), means.all(), rtol=0, atol=0)
