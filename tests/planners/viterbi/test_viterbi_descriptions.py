import numpy as np
import pytest

from cefito.data.taxonomy import Action, Taxonomy
from cefito.errors import ConfigError
from cefito.planners.settings import load_config
from cefito.planners.shared.descriptions import name_vectors
from cefito.planners.viterbi.descriptions import fixed_descriptions
from cefito.planners.viterbi.settings import ViterbiConfig

NAMES = ("pour water", "Pour water", "crêpe wenden", "加水", "")


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
        assert load_config(preset, method="viterbi").settings.viterbi.aligned_with == "names"
    with pytest.raises(ConfigError, match=r"viterbi\.name_width"):
        load_config("paper", method="viterbi", overrides={"viterbi.name_width": 0})
