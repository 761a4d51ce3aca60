"""A few of the mutations; `tests/robustness/mutations.py` makes any number."""

import dataclasses

import mutations
import pytest
from mutations import BAD, limited, make, run, tried

pytestmark = pytest.mark.nightly
COUNT = 24


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole"), ("cefito", "nearest"))


def test_mutations_are_refused_by_name_or_make_no_difference(subjects):
    outcomes = list(run(subjects, range(COUNT), seed=7))
    assert [outcome for outcome in outcomes if outcome.ended in BAD] == []
    assert {outcome.ended for outcome in outcomes} == {"refused", "same"}


def test_unchanged_subjects_give_the_same_answer(subjects):
    for subject in subjects:
        if subject.name != "checkpoint":  # continuing it changes the folder
            assert subject.answer(subject.folder) == subject.expected


def forever(folder):
    while True:
        pass


@pytest.mark.parametrize(
    ("answer", "ended"),
    [(lambda _: "another", "different"), (lambda _: 1 / 0, "broken"), (forever, "hung")],
)
def test_faults_are_found(subjects, answer, ended, monkeypatch):
    monkeypatch.setattr(mutations, "limited", lambda _: limited(1))
    assert tried(dataclasses.replace(subjects[0], answer=answer), 0, 0).ended == ended
