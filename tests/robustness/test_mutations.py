"""A few mutations of stored files; CEFITO_MUTATIONS asks for more."""

import os

import pytest
from mutated_subjects import stored
from mutations import BAD, run

pytestmark = pytest.mark.nightly
COUNT = int(os.environ.get("CEFITO_MUTATIONS", "48"))


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("mutated"), ("cefito", "nearest"))


def test_changes_are_refused_or_reported_or_make_no_difference(subjects):
    outcomes = list(run(subjects, range(COUNT), seed=3))
    assert [outcome for outcome in outcomes if outcome.ended in BAD] == []
    assert {outcome.ended for outcome in outcomes} >= {"refused", "same"}
