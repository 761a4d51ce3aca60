"""Mistakes of steps by those before them, learned from right videos of all tasks alone."""

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.verification import foresight
from cefito.verification.foresight import NameCounts, evidence
from cefito.verification.order import TaskOrder
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import VERIFIER_FILE, Verifier

ONLINE = VerifierConfig(online=True)
# two toys of the same parts: the wheel comes after the base; the third has no right video
NAMES = ["base", "wheel", "body", "roof", "light"]
TOYS = Taxonomy.from_names("toys", [(toy, range(5)) for toy in ("car", "truck", "bus")], NAMES)


def steps_of(actions, seconds=10.0):
    return tuple(Step(20.0 * n, 20.0 * n + seconds, a) for n, a in enumerate(actions))


def learned(rows, taxonomy=TOYS):
    videos = [Video(f"v{n}", "train", task, steps_of(row)) for n, (task, row) in enumerate(rows)]
    return Verifier.fit(videos, taxonomy, config=ONLINE)


ORDERS = [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2], [0, 2, 3, 1]]


@pytest.fixture(scope="module")
def toys():
    return learned([(task, row) for task in (0, 1) for row in ORDERS])


def mistakes(verifier, actions, task=0):
    return [one.mistake for one in verifier.verify(steps_of(actions), task, online=True).steps]


def test_evidence_is_the_equation_of_the_module():
    own = NameCounts.of(TaskOrder.of([Video("v", "train", 0, steps_of([0, 1]))], range(2)), 3)
    others = NameCounts.of(TaskOrder.of([Video("w", "train", 0, steps_of([0, 1, 2]))], range(3)), 3)
    rows = evidence(own, others, [], [1, 2])
    occurs = (np.array([1, 1, 0]) + 0.5 * (np.array([1, 1, 1]) + 0.5) / 2) / 1.5
    before = (1 + 3 * 3 / 5) / 4  # 0 before 1: one video of its own, one of the others
    assert rows[0, 0] == pytest.approx(occurs[0] * (2 * before - 1))
    prior = np.array([1, 0, 0]) + occurs / occurs.sum()  # what comes first
    follows = (np.array([1, 0, 0]) + 2 * prior / prior.sum()) / 3
    assert rows[:, 1] == pytest.approx(-np.log(follows[1:]))
    assert rows[:, 2] == pytest.approx(-np.log(occurs[1:]))
    assert evidence(own, others, [0, 1], [1])[0, 0] == 0  # was done before


def test_what_equal_beginnings_of_sequences_show_is_computed_once(toys, monkeypatch):
    asked = []

    def counted(own, others, done, actions):
        asked.append((*done, *actions))
        return evidence(own, others, done, actions)

    rows = [[0, 1, 2], [0, 1, 3], [0, 1]]
    alone = [toys.judge(steps_of(row), 0).judgements(steps_of(row)) for row in rows]
    monkeypatch.setattr(foresight, "evidence", counted)
    chances = [*toys.foresight.chances(toys.orders[0], map(steps_of, rows), TOYS)]
    assert asked == [(0,), (0, 1), (0, 1, 2), (0, 1, 3)]
    for (_, wrong), steps in zip(chances, alone, strict=True):
        assert [step.mistake for step in steps] == pytest.approx(wrong)


def test_a_step_without_what_it_needs_is_the_likeliest_mistake(toys):
    first = {a: mistakes(toys, [a])[0] for a in range(4)}
    assert first[0] < 0.2 < min(first[a] for a in (1, 2, 3))
    assert mistakes(toys, [0, 1, 2, 3]) < [0.5] * 4


def test_a_task_without_right_videos_is_judged_by_the_others(toys):
    new = mistakes(toys, [1, 0, 2], task=2)
    assert new[0] > 0.5 > new[1]
    assert None not in new


def test_what_right_videos_do_often_is_no_sign_of_a_mistake():
    """An action that the other videos of a task lack: usual in some tables, never in others."""
    stable = learned([(0, [0, 1, 2])] * 6 + [(1, [3, 4])] * 6)
    varied = learned([(task, [0, 1, part]) for task in (0, 1) for part in (2, 3, 4)])
    assert mistakes(stable, [0, 1, 3])[2] > 0.5 > mistakes(varied, [0, 1, 4, 3])[2]
    kinds = [v.verify(steps_of([0, 3]), 0, least=0).steps[1].kinds for v in (stable, varied)]
    assert kinds[0]["added"] > 0.5
    assert kinds[1]["added"] == 0


@pytest.mark.parametrize(("often", "told"), [(False, True), (True, False)])
def test_repetitions_and_lengths_count_if_right_videos_have_them_seldom(often, told):
    videos = []
    for number in range(12):  # of each fourth one, if `often`, a step comes again and one is long
        steps = [Step(99 * n, 99 * n + 10, a) for n, a in enumerate([0, 1, 2, 2, 3])]
        if often and number % 3 == 0:
            steps[number // 3] = Step(99 * (number // 3), 99 * (number // 3) + 90, number // 3)
        else:
            del steps[3]
        videos.append(Video(f"v{number}", "train", 0, tuple(steps)))
    verifier = Verifier.fit(videos, TOYS, config=ONLINE)
    steps = [*steps_of([0, 1, 2, 2]), Step(100, 999, 3)]
    found = verifier.verify(steps, 0, online=True, least=0.0)
    assert ("repeated" in {one.kind for one in found.deviations}) == told
    *_, again, long = found.steps
    assert (again.kinds["repeated"] > 0, long.kinds["long"] > 0) == (told, told)


@pytest.mark.parametrize(("lacking", "kinds"), [(3, {"order"}), (2, {"order", "missing"})])
def test_missing_steps_are_said_from_one_half_on(lacking, kinds):
    """If three of ten right videos lack a step, it is missing with 45 %; if two, with 55 %."""
    verifier = learned([(0, [0, 1, 3])] * (10 - lacking) + [(0, [0, 3])] * lacking)
    found = verifier.verify(steps_of([0, 3]), 0, online=True, least=0.0).deviations
    assert {one.kind for one in found} == kinds


def test_false_alarms_are_promised_by_right_videos_each_judged_by_the_others(toys):
    """So the promise needs no label, and counts missing steps, too."""
    held_out = toys.online
    assert held_out.hours.sum() == pytest.approx(8 * 70 / 3600)
    assert held_out.steps.tolist() == [4] * 8
    promise = toys.promise(2 / held_out.hours.sum(), online=True)
    assert promise.videos == 8
    assert held_out.alarms(promise.least).sum() <= 1
    found = toys.verify(steps_of([1]), 0, online=True, least=promise.least).deviations
    assert {one.kind: one.probability >= 0.5 for one in found} == {"order": True, "missing": True}
    with pytest.raises(ConfigError, match="cannot be promised"):
        toys.promise(0, online=True)
    assert toys.whole.steps.tolist() == [4] * 8


def test_one_right_video_teaches_no_more_than_its_counts_do():
    """No other video judges it, so that nothing tells how seldom right steps look like mistakes."""
    alone = learned([(0, [0, 1, 2, 3])])
    assert max(mistakes(alone, [0, 2, 1, 3])) == pytest.approx(0.375)  # (2 · 3/4 − 1) · 3/4
    assert mistakes(alone, [0, 1, 2, 3]) == [0] * 4
    with pytest.raises(ConfigError, match="false alarms"):
        alone.promise(1, online=True)


def test_the_right_videos_again_are_no_false_alarm():
    """Evidence that is the same of all steps, here that each occurs, has no weight."""
    same = learned([(0, [0, 1, 2, 3, 4])] * 12)
    steps, least = steps_of([0, 1, 2, 3, 4]), same.promise(10, online=True).least
    assert same.verify(steps, 0, online=True, least=least).deviations == ()
    assert same.foresight.weights[2] == 0


def test_lengths_of_a_task_without_right_videos_are_not_invented(toys):
    found = toys.verify(steps_of([1, 0], seconds=0.5), 2, online=True, least=0.0).deviations
    assert {"order"} == {one.kind for one in found}


def test_each_of_many_steps_is_looked_at_once(toys, monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args)
        return evidence(*args)

    monkeypatch.setattr(foresight, "evidence", counted)
    whole = mistakes(toys, [0, 1, 2, 3] * 10)
    assert len(calls) == 40
    assert whole[:7] == mistakes(toys, [0, 1, 2, 3, 0, 1, 2])  # by those before it alone


def test_orders_of_a_person_are_kept_alone(toys):
    given = toys.given({0: (((1, 0),), ())})
    found = given.verify(steps_of([0, 1]), 0, online=True).deviations
    assert ("order", "base") in [(one.kind, one.name) for one in found]


def test_it_is_stored_with_the_orders(toys, tmp_path):
    toys.save(tmp_path)
    again = Verifier.load(tmp_path, TOYS, config=ONLINE)
    assert mistakes(again, [1, 0, 3, 2]) == mistakes(toys, [1, 0, 3, 2])
    assert again.promise(20, online=True) == toys.promise(20, online=True)
    tensors, _ = load_tensors(tmp_path / VERIFIER_FILE, "pt", "", RunError)
    write_tensors(
        tmp_path / VERIFIER_FILE, tensors | {"foresight.weights": tensors["online.hours"]}
    )
    with pytest.raises(RunError, match=r"foresight|weights"):
        Verifier.load(tmp_path, TOYS, config=ONLINE)
