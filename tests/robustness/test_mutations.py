"""A few of the mutations; `tests/robustness/mutations.py` makes any number."""

import dataclasses

import mutations
import pytest
from mutations import is_fine, limited, make, run, tried

COUNT = 24


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole"), ("cefito", "nearest"))


def test_mutations_are_refused_by_name_or_make_no_difference(subjects):
    outcomes = list(run(subjects, range(COUNT), seed=7))
    assert [outcome for outcome in outcomes if not is_fine(outcome)] == []
    assert {outcome.ended for outcome in outcomes} == {"refused", "same"}


def test_unchanged_subjects_give_the_same_answer(subjects):
    for subject in subjects:
        if not subject.name.endswith("checkpoint"):  # continuing it changes the folder
            assert subject.answer(subject.folder) == subject.expected


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        (lambda _: "another", "different"),
        (lambda _: 1 / 0, "broken"),
    ],
)
def test_faults_are_found(subjects, answer, ended):
    subject = dataclasses.replace(subjects[0], answer=answer)
    outcome = tried(subject, 0, 0)
    assert outcome.ended == ended
    assert not is_fine(outcome)


def test_hangs_are_found(subjects, monkeypatch):
    monkeypatch.setattr(mutations, "limited", lambda _: limited(1))

    def forever(folder):
        while True:
            pass

    assert tried(dataclasses.replace(subjects[0], answer=forever), 0, 0).ended == "hung"
