from hashlib import sha256

import numpy as np
import pytest

from cefito.data.taxonomy import Action, Taxonomy
from cefito.errors import ConfigError
from cefito.planners.settings import load_config
from cefito.planners.viterbi.descriptions import fixed_descriptions, name_vectors
from cefito.planners.viterbi.settings import ViterbiConfig

NAMES = ("pour water", "Pour water", "crêpe wenden", "加水", "")


def test_vectors_are_the_same_everywhere():
    vectors = name_vectors(NAMES, 5)
    assert vectors.shape == (5, 6, 5)
    assert vectors.dtype == np.float32
    assert (vectors[0, 0, :3] * 2**16).tolist() == [25714.0, -619.0, -70862.0]
    assert sha256(vectors.astype("<f4").tobytes()).hexdigest() == (
        "05adc9c767948311ec3b7a77a901c8c732c94027c76f3578cef49b6389c7ee9e"
    )


def test_vectors_by_hand():
    """Twelve little-endian 16-bit numbers of the hash make a coordinate."""
    from hashlib import shake_256

    digest = shake_256("0 crêpe wenden".encode()).digest(6 * 3 * 24)
    expected = [
        (
            sum(
                int.from_bytes(digest[start + part : start + part + 2], "little")
                for part in range(0, 24, 2)
            )
            - 393_210
        )
        / 65_536
        for start in range(0, len(digest), 24)
    ]
    assert name_vectors(NAMES, 3)[2].ravel().tolist() == expected


def test_vectors_depend_on_the_name_alone():
    np.testing.assert_array_equal(name_vectors(NAMES, 4), name_vectors(NAMES[::-1], 4)[::-1])
    assert len({row.tobytes() for row in name_vectors(NAMES, 4)}) == len(NAMES)


def test_equal_names_have_vectors_of_their_own():
    vectors = name_vectors(["pour", "stir", "pour", "pour"], 4)
    assert len({row.tobytes() for row in vectors}) == 4
    np.testing.assert_array_equal(vectors[:1], name_vectors(["pour"], 4))


def test_coordinates_are_nearly_standard_normal():
    vectors = name_vectors([f"action {number}" for number in range(100)], 256).astype(np.float64)
    assert abs(vectors.mean()) < 0.01
    assert vectors.var() == pytest.approx(1, abs=0.01)
    assert (vectors**4).mean() == pytest.approx(2.9, abs=0.05)  # 3 − 1.2 / 12
    assert [(np.abs(vectors) < bound).mean() for bound in (1, 2)] == pytest.approx(
        [0.683, 0.954], abs=0.01
    )
    units = vectors.reshape(600, 256) / np.linalg.norm(vectors.reshape(600, 256), axis=1)[:, None]
    cosines = units @ units.T
    assert np.abs(cosines[~np.eye(600, dtype=bool)]).max() < 0.4


def test_which_descriptions_there_are():
    actions = tuple(Action(id=number, name=name) for number, name in enumerate(NAMES))
    taxonomy = Taxonomy(dataset="made", tasks=(), actions=actions)

    def of(**settings):
        return fixed_descriptions(ViterbiConfig(**settings), taxonomy)

    vectors, digest = of(name_width=6)
    np.testing.assert_array_equal(vectors, name_vectors(NAMES, 6))
    assert digest not in ("", "free", of(name_width=7)[1])
    assert of(descriptions="free") == (None, "free")
    assert of(descriptions="none") == of(descriptions="") == of(alignment=0.0) == (None, "")


def test_settings_of_the_alignment():
    assert ViterbiConfig().descriptions == "names"
    assert ViterbiConfig(descriptions="") == ViterbiConfig(descriptions="none")
    kinds = {"names": "names", "free": "free", "none": "none", "": "none", "a.npy": "file"}
    for value, kind in kinds.items():
        assert ViterbiConfig(descriptions=value).aligned_with == kind
        assert ViterbiConfig(descriptions=value, alignment=0).aligned_with == "none"
    for preset in ("paper", "released", "small", "quickstart"):
        assert load_config(preset).viterbi.aligned_with == "names"
    with pytest.raises(ConfigError, match=r"viterbi\.name_width"):
        load_config("paper", overrides={"viterbi.name_width": 0})
