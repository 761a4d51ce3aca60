"""What was wrong in videos: by counts, and by networks where training videos name errors."""

from dataclasses import replace

import numpy as np
import pytest

from cefito.data.annotations import Step, Taxonomy, Video
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.timeline import verify
from cefito.timeline.verify import VERIFIER_FILE, Verifier, evidence

NAMES = ["boil", "pour", "wait", "stir", "drink", "wash", "hammer"]
TAXONOMY = Taxonomy.from_names("made", [("tea", range(6)), ("nail", [6])], NAMES)


def steps_of(actions, seconds=10.0):
    return tuple(Step(2 * seconds * n, (2 * n + 1) * seconds, a) for n, a in enumerate(actions))


def video(actions, number=0, **more):
    return Video(f"v{number}", "train", 0, steps_of(actions), **more)


@pytest.fixture(scope="module")
def counts():
    """Nine videos without errors; the last two steps come in either order, one video lacks one."""
    rows = [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4]] * 4 + [[0, 1, 2, 3, 4]]
    wrong = video([4, 3, 2, 1, 0, 5], missing=(2,))  # is not counted
    return Verifier.fit([*(video(row, n) for n, row in enumerate(rows)), wrong], TAXONOMY)


def found(verifier, actions, **more):
    value = verifier.verify(steps_of(actions, more.pop("seconds", 10.0)), 0, **more)
    return [(one.kind, one.name, one.step, one.evidence) for one in value.deviations]


@pytest.mark.parametrize(
    ("actions", "more", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], {}, []),
        ([0, 1, 2, 3, 5, 4], {}, []),
        (
            [0, 2, 1, 3, 4, 5],
            {},
            ("order", "pour", 3, "'pour' after 'wait'; 9 of 9 videos without errors have it before"),
        ),
        ([0, 1, 1, 2, 3, 4, 5], {}, ("repeated", "pour", 3, "done 2 times")),
        ([0, 1, 3, 4, 5], {}, ("missing", "wait", None, "in 9 of 9 videos without errors")),
        ([0, 1, 2], {"finished": False}, []),
        (
            [0, 1, 3],
            {"finished": False},
            ("missing", "wait", None, "before 'stir' in 9 of 9 videos without errors"),
        ),
        ([0, 1, 2, 3, 6, 4, 5], {}, ("added", "hammer", 5, "in none of 9 videos without errors")),
        ([0, 1, 2, 3, 4, 5], {"sure": [0.4] * 6}, []),
    ],
)
def test_what_is_wrong_by_counts(counts, actions, more, expected):
    known = found(counts, actions, **more)
    assert known == ([expected] if expected else [])


def test_a_step_that_takes_much_longer_than_usual(counts):
    steps = list(steps_of([0, 1, 2, 3, 4, 5]))
    steps[5] = Step(100, 4000, 5)
    (one,) = counts.verify(steps, 0).deviations
    assert (one.kind, one.words, one.evidence) == ("long", "too long", "3900 s; usual are 10 s")


def test_probabilities_are_those_of_the_counts(counts):
    steps = steps_of([0, 2, 1, 3, 4])
    every = counts.verify(steps, 0, least=0.0).deviations
    assert [one.probability for one in every] == sorted((o.probability for o in every))[::-1]
    by_name = {one.name: one for one in every}
    assert by_name["pour"].probability == pytest.approx(1 - 0.5 / 10)
    assert by_name["wash"].probability == pytest.approx(8.5 / 10)
    doubtful = counts.verify(steps, 0, sure=[1, 1, 0.6, 1, 1], least=0.0).deviations
    assert {one.name: one.probability for one in doubtful}["pour"] == pytest.approx(0.6 * 0.95)
    assert counts.verify(steps, 0, least=0.96).deviations == ()
    assert (counts.probabilities(steps, 0).sum(axis=1) == 1).all()
    with pytest.raises(ConfigError, match="a video without steps cannot be verified"):
        counts.verify([], 0)
    with pytest.raises(ConfigError, match="training named too few errors to count false alarms"):
        counts.threshold(1)


@pytest.mark.parametrize("done", [[], [0], [4], [0, 1, 2, 3, 4, 5], [3, 1]])
def test_the_repair_keeps_the_graph(counts, done):
    repair = counts.verify(steps_of(done or [6]), 0).repair
    assert sorted([*repair, *done]) == list(range(6))
    place = {action: number for number, action in enumerate(repair)}
    for a, b in counts.orders[0].edges:
        assert not {a, b} <= {*repair} or place[a] < place[b]
    other = counts.given({0: ((3, 2), (2, 1))}).verify(steps_of([0]), 0).repair
    assert other.index(3) < other.index(2) < other.index(1)


PAIRS = ([1, 2], [2, 1])


def test_steps_that_are_usually_repeated_are_no_errors():
    """As in furniture: each of four legs is attached and spun, or spun and attached."""
    rows = [[0, *pair * (3 + n % 3), 3, pair[0], 4, 5] for n in range(10) for pair in PAIRS]
    verifier = Verifier.fit([video(row, n) for n, row in enumerate(rows)], TAXONOMY)
    for row in ([0, 1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 5], [0, 2, 1, 1, 2, 2, 1, 3, 1, 2, 4, 5]):
        assert found(verifier, row) == []


def shop(count, seed):
    """Videos of tea of which a third swaps two neighbours and says so; lengths vary."""
    rng, videos = np.random.default_rng(seed), []
    for number in range(count):
        row, kinds = [0, 1, 2, 3, 4, 5], [()] * 6
        if rng.random() < 1 / 3:
            at = int(rng.integers(5))
            row[at], row[at + 1] = row[at + 1], row[at]
            kinds[at] = kinds[at + 1] = ("Order Error",)
        ends = np.cumsum(rng.uniform(5, 15, 12))
        steps = [Step(*ends[2 * n : 2 * n + 2], a, kinds[n]) for n, a in enumerate(row)]
        videos.append(Video(f"{seed}-{number}", "train", 0, tuple(steps)))
    return videos


@pytest.fixture(scope="module", autouse=True)
def small_networks():
    with pytest.MonkeyPatch.context() as patch:
        small = {"members": 1, "width": 16, "training_steps": 100}
        patch.setattr(verify, "_CONFIG", verify._CONFIG.model_copy(update=small))
        yield


@pytest.fixture(scope="module")
def learned():
    return Verifier.fit(shop(60, 1), TAXONOMY)


def test_errors_of_order_are_learned(learned):
    unseen = shop(40, 2)
    score = np.concatenate([learned.probabilities(one.steps, 0)[:, 1] for one in unseen])
    truth = np.array([bool(step.errors) for one in unseen for step in one.steps])
    auc = (score[truth][:, None] > score[~truth]).mean()
    assert auc > 0.9
    kinds = {one.kind for v in unseen for one in learned.verify(v.steps, 0).deviations}
    assert kinds == {"order"}


def test_thresholds_hold_on_the_scores_that_were_held_out(learned):
    alarms = np.array(learned.alarms)
    assert len(alarms) == sum(not step.errors for one in shop(60, 1) for step in one.steps)
    assert learned.hours == pytest.approx(sum(v.steps[-1].end for v in shop(60, 1)) / 3600)
    last = 1.0
    for rate in (0.0, 1.0, 10.0, 50.0, 1e6):
        least = learned.threshold(rate)
        assert (alarms >= least).sum() <= rate * learned.hours
        assert least <= last or rate == 0
        last = least
    assert last == 0


def test_saved_and_read(counts, learned, tmp_path):
    for number, verifier in enumerate((counts, learned)):
        folder = tmp_path / str(number)
        folder.mkdir()
        verifier.save(folder)
        again = Verifier.load(folder, TAXONOMY)
        for row in ([0, 2, 1, 3], [5, 5, 0], [6]):
            steps = steps_of(row)
            np.testing.assert_array_equal(
                again.probabilities(steps, 0), verifier.probabilities(steps, 0)
            )
            assert again.verify(steps, 0) == verifier.verify(steps, 0)
        assert again.alarms == verifier.alarms
    same = Verifier.fit(shop(60, 1), TAXONOMY)
    assert same.alarms == learned.alarms


def test_damaged_files_are_refused(learned, tmp_path):
    learned.save(tmp_path)
    path = tmp_path / VERIFIER_FILE
    whole, (tensors, _) = path.read_bytes(), load_tensors(path, "pt", "", RunError)
    for name in ("order.0.before", "temperature", "hours", next(n for n in tensors if "net" in n)):
        write_tensors(path, {key: one for key, one in tensors.items() if key != name})
        with pytest.raises(CefitoError, match=f"{VERIFIER_FILE}"):
            Verifier.load(tmp_path, TAXONOMY)
    for data in (b"", whole[:100], whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(RunError, match=f"{VERIFIER_FILE}.*Train the run again"):
            Verifier.load(tmp_path, TAXONOMY)


def test_evidence_is_finite_and_does_not_see_the_labels(learned):
    order = learned.orders[0]
    for row in ([6], [0], [5, 4, 3, 2, 1, 0], [1, 1, 6, 1]):
        steps = steps_of(row)
        rows = evidence(order, steps)
        assert rows.shape[0] == len(row)
        assert np.isfinite(rows).all()
        marked = [replace(step, errors=("Order Error",)) for step in steps]
        np.testing.assert_array_equal(evidence(order, marked), rows)
