"""A sample of the odd inputs: every 160th, or as many as CEFITO_BAD_INPUTS says."""

import os

import pytest

from robustness.bad_cases import all_cases
from robustness.bad_inputs import GOOD, make_world, run_case

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="inputs run in forked processes"),
]
EVERY = int(os.environ.get("CEFITO_BAD_INPUTS", "160"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("bad") / "world")


def test_names_are_unique():
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names) >= 2000


@pytest.mark.parametrize(
    "case", all_cases()[7 % EVERY :: EVERY], ids=lambda case: ascii(case.name)[:60]
)
def test_sample(case, world, tmp_path_factory):
    outcome = run_case(case, world, world.root.parent / tmp_path_factory.mktemp("case").name)
    assert outcome.kind in GOOD, f"{outcome.kind}, exit code {outcome.code}: {outcome.said[-500:]}"
