"""A few mutations of stored files and of users' work; CEFITO_MUTATIONS asks for more."""

import dataclasses
import os

import mutations
import pytest
from mutated_subjects import stored, work
from mutations import BAD, limited, run, tried

pytestmark = pytest.mark.nightly
COUNT = int(os.environ.get("CEFITO_MUTATIONS", "48"))


@pytest.fixture(scope="module", params=["stored", "work"])
def subjects(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("mutated")
    return work(root) if request.param == "work" else stored(root, ("cefito", "nearest"))


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
    subject = dataclasses.replace(subjects[0], answer=answer, anew=None)
    assert tried(subject, "expected", 0, 0).ended == ended
