"""The preset `released` against the authors' values, setting by setting."""

from __future__ import annotations

from collections import Counter

import pytest

from cefito.planners.cefito.method import CefitoSettings
from cefito.planners.methods import load_config
from cefito.settings import flattened, setting_names, variant_applies
from planners.released_page import PAGE, SECTIONS, TABLE, page, values, variants

PLACES = [
    ("crosstask", 3),
    ("crosstask", 4),
    ("crosstask", 5),
    ("crosstask-simulated", 3),
    ("coin", 3),
    ("coin", 4),
    ("niv", 3),
    ("niv", 4),
    ("mine", 3),
    ("my-coin", 4),
]


@pytest.mark.parametrize(("dataset", "horizon"), PLACES)
def test_released_has_the_authors_values(dataset, horizon):
    theirs = values()
    for where, changed in variants():
        if variant_applies(where, dataset=dataset, horizon=horizon):
            theirs |= changed
    theirs |= {entry["setting"]: entry["value"] for entry in TABLE["difference"]}
    config = load_config("released", dataset=dataset, horizon=horizon)
    ours = flattened(config.sections)
    assert {key: ours[key] for key in theirs} == theirs


def test_every_setting_is_theirs_or_named():
    """Nothing is inherited from `paper` unseen."""
    named = [entry["setting"] for entry in TABLE["difference"]]
    named += [name for entry in TABLE["unused"] for name in entry["settings"]]
    counts = Counter([*values(), *named])
    assert max(counts.values()) == 1
    known = setting_names(CefitoSettings)
    assert set(counts) == {name for name in known if name.partition(".")[0] in SECTIONS}


def test_the_page_is_made_of_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), "run tests/planners/released_page.py"
