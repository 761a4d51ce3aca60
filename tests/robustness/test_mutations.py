"""A few mutations of stored files; CEFITO_MUTATIONS asks for more."""

import dataclasses
import os

import mutations
import pytest
from mutated_subjects import stored
from mutations import BAD, limited, run, tried

pytestmark = pytest.mark.nightly
COUNT = int(os.environ.get("CEFITO_MUTATIONS", "48"))


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("mutated"), ("cefito", "nearest"))


def test_changes_are_refused_or_reported_or_make_no_difference(subjects):
    outcomes = list(run(subjects, range(COUNT), seed=3))
    assert [outcome for outcome in outcomes if outcome.ended in BAD] == []
    assert {outcome.ended for outcome in outcomes} >= {"refused", "same"}


def forever(*_):
    while True:
        pass


@pytest.mark.parametrize(
    ("answer", "ended"),
    [(lambda *_: "another", "SILENT"), (lambda *_: 1 / 0, "TRACEBACK"), (forever, "HANG")],
)
def test_faults_are_found(subjects, answer, ended, monkeypatch):
    monkeypatch.setattr(mutations, "limited", lambda _: limited(1))
    subject = dataclasses.replace(subjects[0], answer=answer)
    assert tried(subject, "expected", 0, 0).ended == ended
