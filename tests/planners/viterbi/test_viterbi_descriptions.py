import pytest

from cefito.errors import ConfigError
from cefito.planners.settings import load_config
from cefito.planners.viterbi.settings import ViterbiConfig


def test_settings_of_the_alignment():
    assert ViterbiConfig().descriptions == "names"
    for value, kind in {"names": "names", "free": "free", "none": "none", "a.npy": "file"}.items():
        assert ViterbiConfig(descriptions=value).aligned_with == kind
        assert ViterbiConfig(descriptions=value, alignment=0).aligned_with == "none"
    with pytest.raises(ConfigError, match=r"viterbi\.name_width"):
        load_config("paper", method="viterbi", overrides={"viterbi.name_width": 0})
