"""Kinds of mistakes: what each declares, and that none can be declared in part."""

import pytest
from scipy.special import stdtr

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.verification.findings import Deviation
from cefito.verification.mistakes import KINDS, OmittedMistake, StepMistake, share_within
from cefito.verification.verifier import Verifier

TAXONOMY = Taxonomy.from_names("made", [("tea", range(3))], ["boil", "pour", "stir"])


def steps_of(actions):
    return tuple(Step(20.0 * at, 20.0 * at + 10, action) for at, action in enumerate(actions))


@pytest.fixture(scope="module")
def verifier():
    return Verifier.fit(
        [Video(f"v{n}", "train", 0, steps_of(range(3))) for n in range(9)], TAXONOMY
    )


def test_all_kinds_have_words_and_are_in_the_schema():
    known = {
        "missing": "missing",
        "order": "out of order",
        "added": "not a step of the task",
        "repeated": "repeated",
        "long": "too long",
        "short": "too short",
        "wrong": "done wrongly",
        "unknown": "not a known step",
    }
    assert known.items() <= {name: kind.words for name, kind in KINDS.items()}.items()
    schema = Deviation.model_json_schema()["properties"]
    assert set(schema["kind"]["enum"]) == set(KINDS)


WHOLE = {
    "name": "wrong tool",
    "words": "done with a wrong tool",
    "applies": lambda _, subject: subject.length_score < -2,
    "probability": lambda *_: 0.75,
    "evidence": lambda _, subject: f"only step {subject.place + 1}",
}


@pytest.mark.parametrize("base", [StepMistake, OmittedMistake])
@pytest.mark.parametrize("part", WHOLE)
def test_a_kind_without_a_whole_meaning_cannot_be_declared(base, part):
    known = dict(KINDS)
    for declared in (
        {name: value for name, value in WHOLE.items() if name != part},
        {**WHOLE, part: None},
        *({**WHOLE, part: empty} for empty in ("", " \n") if part in ("name", "words")),
    ):
        with pytest.raises(TypeError, match=f"WrongTool lacks {part}"):
            type("WrongTool", (base,), declared)
    with pytest.raises(TypeError, match="two mistakes are named 'order'"):
        type("WrongTool", (base,), {**WHOLE, "name": "order"})
    assert known == KINDS


def test_a_declared_kind_is_found_with_its_words(verifier):
    steps = [*steps_of(range(2)), Step(60, 60.5, 2)]
    assert [one.kind for one in verifier.verify(steps, 0).deviations] == ["short"]
    try:
        type("WrongTool", (StepMistake,), WHOLE)
        (deviation,) = verifier.verify(steps, 0).deviations
    finally:
        KINDS.pop("wrong tool")
    assert (deviation.kind, deviation.words) == ("wrong tool", "done with a wrong tool")
    assert (deviation.probability, deviation.evidence) == (0.75, "only step 3")
    assert (deviation.step, deviation.name) == (3, "stir")


@pytest.mark.parametrize("freedom", [0.5, 1, 3.5, 9.5, 60, 2000])
def test_the_share_within_is_that_of_student_s_t(freedom):
    for score in (0.0, 0.01, 0.7, 2.0, 6.0, 40.0):
        assert share_within(score, freedom) == pytest.approx(1 - 2 * stdtr(freedom, -score))
