"""A few of the mutations; `tests/robustness/mutations.py` makes as many as one likes."""

import dataclasses

import mutations
import pytest
from mutations import is_fine, limited, make, run, tried

COUNT = 54


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole"), ("cefito", "nearest"))


def test_what_is_changed_is_refused_by_name_or_makes_no_difference(subjects):
    outcomes = list(run(subjects, range(COUNT), seed=7))
    assert [outcome for outcome in outcomes if not is_fine(outcome)] == []
    ended = {outcome.ended for outcome in outcomes}
    assert ended >= {"refused", "same"}


def test_what_is_left_as_it_is_is_the_same(subjects):
    for subject in subjects:
        if not subject.name.endswith("checkpoint"):  # going on changes the folder
            assert subject.answer(subject.folder) == subject.expected


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        (lambda _: "another", "different"),
        (lambda _: 1 / 0, "broken"),
    ],
)
def test_the_tester_sees_what_it_looks_for(subjects, answer, ended):
    subject = dataclasses.replace(subjects[0], answer=answer)
    outcome = tried(subject, 0, 0)
    assert outcome.ended == ended
    assert not is_fine(outcome)


def test_the_tester_sees_a_hang(subjects, monkeypatch):
    monkeypatch.setattr(mutations, "limited", lambda _: limited(1))

    def forever(folder):
        while True:
            pass

    assert tried(dataclasses.replace(subjects[0], answer=forever), 0, 0).ended == "hung"
