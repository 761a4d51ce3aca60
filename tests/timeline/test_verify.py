"""What was wrong in videos: by counts, and by networks where training videos name errors."""

import numpy as np
import pytest

from cefito.data.annotations import Step, Taxonomy, Video
from cefito.errors import CefitoError, ConfigError
from cefito.files import load_tensors, write_tensors
from cefito.timeline import verify
from cefito.timeline.verify import VERIFIER_FILE, Verifier

NAMES = ["boil", "pour", "wait", "stir", "drink", "wash", "hammer"]
TAXONOMY = Taxonomy.from_names("made", [("tea", range(6)), ("nail", [6])], NAMES)


def steps_of(actions, seconds=10.0):
    return tuple(Step(2 * seconds * n, (2 * n + 1) * seconds, a) for n, a in enumerate(actions))


def fitted(rows, *more):
    videos = [Video(f"v{n}", "train", 0, steps_of(row)) for n, row in enumerate(rows)]
    return Verifier.fit([*videos, *more], TAXONOMY)


@pytest.fixture(scope="module")
def counts():
    """Nine videos without errors; the last two steps come in either order, one video lacks one."""
    wrong = Video("wrong", "train", 0, steps_of([4, 3, 2, 1, 0]), missing=(5,))  # is not counted
    return fitted([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4]] * 4 + [[0, 1, 2, 3, 4]], wrong)


@pytest.mark.parametrize(
    ("actions", "more", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], {}, ()),
        ([0, 2, 1, 3, 4, 5], {}, ("order", "pour", 3, "'pour' after 'wait'; 9 of 9 videos")),
        ([0, 1, 1, 2, 3, 4, 5], {}, ("repeated", "pour", 3, "done 2 times")),
        ([0, 1, 3, 4, 5], {}, ("missing", "wait", None, "in 9 of 9 videos without errors")),
        ([0, 1, 2], {"finished": False}, ()),
        ([0, 1, 3], {"finished": False}, ("missing", "wait", None, "before 'stir' in 9 of 9 vid")),
        ([0, 1, 2, 3, 6, 4, 5], {}, ("added", "hammer", 5, "in none of 9 videos without errors")),
        ([0, 2, 1, 3, 4, 5], {"sure": [1, 1, 0.5, 1, 1, 1]}, ()),
    ],
)
def test_what_is_wrong_by_counts(counts, actions, more, expected):
    found = counts.verify(steps_of(actions), 0, **more).deviations
    assert len(found) == bool(expected)
    for one in found:
        assert (one.kind, one.name, one.step) == expected[:3]
        assert one.evidence.startswith(expected[3])


def test_probabilities_are_those_of_the_counts_and_need_steps(counts):
    steps = [*steps_of([0, 2, 1, 3]), Step(100, 4000, 4)]
    found = {one.name: one for one in counts.verify(steps, 0).deviations}
    assert found["pour"].probability == pytest.approx(1 - 1 / 10)
    assert found["wash"].probability == pytest.approx(8.5 / 10)
    assert found["drink"].evidence == "3900 s; usual are 10 s"
    with pytest.raises(ConfigError, match="a video without steps cannot be verified"):
        counts.verify([], 0)
    assert counts.verify(steps_of([6]), 1).deviations == ()  # nothing is known of its task


@pytest.mark.parametrize("done", [[], [4], [0, 1, 2, 3, 4, 5], [3, 1]])
def test_the_repair_keeps_the_graph(counts, done):
    for verifier in (counts, counts.given({0: ((3, 2), (2, 1))})):
        repair = verifier.verify(steps_of(done or [6]), 0).repair
        assert sorted([*repair, *done]) == list(range(6))
        for a, b in verifier.orders[0].edges:
            assert not {a, b} <= {*repair} or repair.index(a) < repair.index(b)


def test_steps_that_are_usually_repeated_are_no_errors():
    """As in furniture: each of four legs is attached and spun, or spun and attached."""
    rows = [[0, *[1, 2] * n, 3, 1, 4, 5] for n in (3, 4, 5)]
    verifier = fitted([*rows, *([0, *[2, 1] * n, 3, 2, 4, 5] for n in (3, 4, 5))])
    for row in ([0, 1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 5], [0, 2, 1, 1, 2, 2, 1, 3, 1, 2, 4, 5]):
        assert verifier.verify(steps_of(row), 0).deviations == ()


def shop(count, seed):
    """Videos of tea of which a third swaps two neighbours and says so; lengths vary."""
    rng, videos = np.random.default_rng(seed), []
    for number in range(count):
        row, kinds, at = [0, 1, 2, 3, 4, 5], [()] * 6, int(rng.integers(5))
        if number % 3 == 0:
            row[at : at + 2], kinds[at : at + 2] = [at + 1, at], [("Order Error",)] * 2
        ends = np.cumsum(rng.uniform(5, 15, 12))
        steps = [Step(*ends[2 * n : 2 * n + 2], a, kinds[n]) for n, a in enumerate(row)]
        videos.append(Video(f"{seed}-{number}", "train", 0, tuple(steps)))
    return videos


@pytest.fixture(scope="module", autouse=True)
def small_networks():
    with pytest.MonkeyPatch.context() as patch:
        small = {"members": 1, "width": 16, "training_steps": 60}
        patch.setattr(verify, "_CONFIG", verify._CONFIG.model_copy(update=small))
        yield


@pytest.fixture(scope="module")
def learned():
    return Verifier.fit(shop(60, 1), TAXONOMY)


def test_errors_of_order_are_learned_and_thresholds_hold(learned):
    unseen = shop(40, 2)
    score = np.concatenate([learned.probabilities(one.steps, 0)[:, 1] for one in unseen])
    truth = np.array([bool(step.errors) for one in unseen for step in one.steps])
    assert (score[truth][:, None] > score[~truth]).mean() > 0.9  # area under the ROC curve
    kinds = {one.kind for v in unseen for one in learned.verify(v.steps, 0).deviations}
    assert kinds == {"order"}
    alarms, seen = np.array(learned.alarms), shop(60, 1)
    assert len(alarms) == sum(not step.errors for one in seen for step in one.steps)
    for rate in (0.0, 1.0, 10.0, 50.0, 1e6):
        assert (alarms >= learned.threshold(rate)).sum() <= rate * learned.hours
    assert learned.threshold(1e6) == 0 < learned.threshold(50) < learned.threshold(1)


def test_saved_and_read_and_damaged(counts, learned, tmp_path):
    path = tmp_path / VERIFIER_FILE
    for verifier in (counts, learned):
        verifier.save(tmp_path)
        again = Verifier.load(tmp_path, TAXONOMY)
        for steps in map(steps_of, ([0, 2, 1, 3], [5, 5, 0], [6])):
            both = [one.probabilities(steps, 0) for one in (again, verifier)]
            np.testing.assert_array_equal(*both)
            assert again.verify(steps, 0) == verifier.verify(steps, 0)
        assert again.alarms == verifier.alarms
    tensors = load_tensors(path, "pt", "", CefitoError)[0]
    for name in ("order.0.before", "temperature", next(n for n in tensors if "network" in n), ""):
        write_tensors(path, {key: one for key, one in tensors.items() if key != name})
        path.write_bytes(path.read_bytes()[: None if name else 100])
        with pytest.raises(CefitoError, match=VERIFIER_FILE):
            Verifier.load(tmp_path, TAXONOMY)
