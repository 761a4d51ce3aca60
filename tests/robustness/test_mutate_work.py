"""A few mutations of work; `tests/robustness/mutate_work.py` makes any number."""

import dataclasses

import mutate_work
import pytest
from mutate_work import BAD, limited, make, run, tried

pytestmark = pytest.mark.nightly
COUNT = 60


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return make(tmp_path_factory.mktemp("work"))


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
    monkeypatch.setattr(mutate_work, "limited", lambda _: limited(1))
    subject = dataclasses.replace(subjects[0], answer=answer, anew=None)
    assert tried(subject, "expected", 0, 0).ended == ended
