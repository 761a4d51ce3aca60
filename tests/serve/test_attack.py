"""A short attack by generated requests; `tests/robustness/attack_service.py` is the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cefito.serve.app import create_app

schemathesis = pytest.importorskip("schemathesis")
ROBUSTNESS = Path(__file__).resolve().parents[1] / "robustness"


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_generated_requests_meet_no_defect(address, place, monkeypatch):
    monkeypatch.syspath_prepend(ROBUSTNESS)
    attack_service = pytest.importorskip("attack_service")
    try:
        app = create_app(place.settings())
        schema = schemathesis.openapi.from_dict(app.openapi())
        schema.config.update(base_url=address)
        run = app.state.service.models.runs[0].describe().model_dump()
        met = attack_service.attack(schema, 4, run=run)
        below, defects = attack_service.attack_below(address, 50)
    finally:
        sys.modules.pop("attack_service", None)
    assert sum(met.values()) > 50
    assert {"POST /v1/plan 422", "POST /v1/plan 200"} <= set(met)
    assert not [key for key in met if key.endswith("500")]
    assert not defects
    assert sum(below.values()) == 102
    assert below["health beside slow clients 200"] == 2
