"""What was wrong in videos: by counts, and by networks where training videos name errors."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.inference.whole_videos import among_right
from cefito.verification.evidence import StepEvidence
from cefito.verification.order import signed_log
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import VERIFIER_FILE, Verifier

NAMES = ["boil", "pour", "wait", "stir", "drink", "wash", "hammer"]
TAXONOMY = Taxonomy.from_names("made", [("tea", range(6)), ("nail", [6])], NAMES)

SMALL = VerifierConfig(members=1, width=16, training_steps=60)


def steps_of(actions, seconds=10.0):
    return tuple(Step(2 * seconds * n, (2 * n + 1) * seconds, a) for n, a in enumerate(actions))


def fitted(rows, *more):
    videos = [Video(f"v{n}", "train", 0, steps_of(row)) for n, row in enumerate(rows)]
    return Verifier.fit([*videos, *more], TAXONOMY)


@pytest.fixture(scope="module")
def counts():
    """Nine videos without errors; the last two steps come in either order, one video lacks one.

    Of another video the steps count, but not their order.
    """
    late = tuple(replace(step, errors=("order",)) for step in steps_of([4, 3, 2, 1, 0]))
    wrong = Video("wrong", "train", 0, late, missing=(5,))
    return fitted([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4]] * 4 + [[0, 1, 2, 3, 4]], wrong)


@pytest.mark.parametrize(
    ("actions", "more", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], {}, ()),
        ([0, 2, 1, 3, 4, 5], {}, ("order", "pour", 3, "'pour' after 'wait'; 9 of 9 videos")),
        ([0, 1, 1, 2, 3, 4, 5], {}, ("repeated", "pour", 3, "done 2 times")),
        ([0, 1, 3, 4, 5], {}, ("missing", "wait", None, "done in 10 of 10 training videos")),
        ([0, 1, 2], {"finished": False}, ()),
        ([0, 1, 2, 3, 5], {"finished": False, "least": 0.0}, ()),  # 4 may still come
        ([0, 1, 3], {"finished": False}, ("missing", "wait", None, "before 'stir' in 9 of 9 tr")),
        ([0, 1, 2, 3, 6, 4, 5], {}, ("added", "hammer", 5, "done in none of 10 training videos")),
        ([0, 2, 1, 3, 4, 5], {"sure": [1, 1, 0.5, 1, 1, 1]}, ()),
    ],
)
def test_what_is_wrong_by_counts(counts, actions, more, expected):
    found = counts.verify(steps_of(actions), 0, **more).deviations
    assert len(found) == bool(expected)
    for one in found:
        assert (one.kind, one.name, one.step) == expected[:3]
        assert one.evidence.startswith(expected[3])


def by_bayes(shown, videos, prior):
    """p(mistake) of what so many of right videos show, too, most of which agree."""
    return prior / (prior + (1 - prior) * (shown + 1 / 8) / (videos + 1 / 4))


def by_order(shown, videos):
    """p(mistake) of an order that so many of right videos have, less towards a half of them."""
    return (1 - 2 * (shown + 1 / 8) / (videos + 1 / 4)) * by_bayes(shown, videos, 0.1)


def test_steps_of_films_are_judged_in_all_sequences_that_were_drawn(counts):
    """p(mistake) is its mean over sequences, as its likeliest kind; less probable ones are open."""
    usual, order, likeliest = by_bayes(0, 10, 0.2), by_order(0, 9), [0, 1, 2, 3, 4, 5]  # of "wait"

    def verified(*drawn, **more):
        return counts.verify(steps_of(likeliest), 0, drawn=[*map(steps_of, drawn)], **more)

    without, swapped = [0, 1, 3, 4, 5], [0, 2, 1, 3, 4, 5]
    found = verified(without, without, without, likeliest, [])  # without a step, it says nothing
    (missing,) = found.deviations
    assert (missing.kind, missing.step) == ("missing", None)
    assert found.repair == (2,)  # as it says, though the likeliest steps hold it
    assert missing.probability == pytest.approx(0.75 * usual)
    shown = "in 25.0 % of the sequences drawn from the film"
    assert missing.evidence == f"done in 10 of 10 training videos; {shown}"
    assert "under 2 % of" in verified(without).deviations[0].evidence  # of 64 none is not never
    assert "drawn" not in counts.verify(steps_of(without), 0).deviations[0].evidence
    (either,) = verified(without, without, [0, 1, 3, 4, 2, 5]).deviations
    assert (either.kind, either.name) == ("missing", "wait")
    assert either.probability == pytest.approx((2 * usual + order) / 3)
    assert either.evidence.endswith(f"; or out of order, {order / 3:.1%}".replace("%", " %"))
    found = verified(without, likeliest, likeliest)
    assert found.deviations == ()
    (unsure,) = found.unsure
    assert (unsure.kind, unsure.name) == ("missing", "wait")
    assert unsure.probability == pytest.approx(usual / 3)
    assert found.unseen == ()
    film = [steps_of(without), *[steps_of(likeliest)] * 9]
    (unseen,) = counts.verify(steps_of(without), 0, drawn=film).unseen
    assert (unseen.name, unseen.probability) == ("wait", pytest.approx(usual / 10))
    shown = "in 90.0 % of the sequences drawn from the film"
    assert unseen.evidence == f"done in 10 of 10 training videos; {shown}"
    (unseen,) = counts.verify(steps_of(without), 0, least=1.0).unseen  # as they were given
    assert (unseen.name, unseen.probability) == ("wait", pytest.approx(usual))
    found = verified(swapped, swapped, swapped, likeliest)
    (late,) = found.deviations
    assert (late.kind, late.name, late.step) == ("order", "pour", 2)  # of the steps shown
    assert late.probability == pytest.approx(0.75 * order)
    assert [step.mistake for step in found.steps] == pytest.approx([0, 0.75 * order, 0, 0, 0, 0])
    twice = [*likeliest, 1]
    found = counts.verify(steps_of(twice), 0, drawn=[steps_of(twice)] * 4, least=0.99)
    again = counts.verify(steps_of(twice), 0, drawn=[steps_of(twice)] * 4)
    assert found.deviations == ()  # what the default names is open, the likeliest first
    assert [(one.kind, one.name, one.probability) for one in found.unsure] == [
        (one.kind, one.name, one.probability) for one in again.deviations
    ]
    assert "missing" not in {one.kind for one in again.deviations} != set()
    taken = steps_of([0, 1, 1, 3, 4, 5])  # "wait" too early, taken for "pour"
    found = counts.verify(taken, 0, drawn=[taken] * 2)
    (late,) = found.deviations
    assert (late.kind, late.name, late.step, found.repair) == ("order", "pour", 3, ())
    given = {(one.kind, one.name) for one in counts.verify(taken, 0).deviations}
    assert given == {("repeated", "pour"), ("missing", "wait")}
    found = verified(swapped, swapped, [0, 2, 3, 4, 5], [0, 2, 3, 4, 5])
    steps = [step.mistake for step in found.steps]
    assert steps == pytest.approx([0, order, 0, 0, 0, 0])  # if it was done
    assert [step.recognised_wrongly for step in found.steps] == [0, 0.5, 0, 0, 0, 0]
    assert found.steps[1].done_wrongly == pytest.approx(order / 2)
    assert found.steps[1].kinds["order"] == pytest.approx(order)
    lacking = verified([0, 2, 3, 4, 5]).steps[1]  # no sequence has it
    assert (lacking.recognised_wrongly, lacking.done_wrongly, lacking.mistake) == (1, 0, None)
    found = verified(swapped, certainty=0.5)
    assert found.deviations == ()  # of a task that is not sure
    with pytest.raises(ConfigError, match="expected seconds, and an action"):
        counts.verify(steps_of([0]), 0, drawn=[[Step(0, 1, 99)]])


@pytest.mark.parametrize(
    ("kept", "broken", "share"), [(5, 0, 0.784), (4, 1, 0.195), (9, 1, 0.393), (19, 1, 0.592)]
)
def test_an_order_that_a_right_video_breaks_is_a_weaker_one(kept, broken, share):
    """So that nine of ten videos in one order do not make a finding."""
    verifier = fitted([[0, 1, 2]] * kept + [[0, 2, 1]] * broken)
    errors = verifier.probabilities(steps_of([0, 2, 1]), 0)[:, 1]
    assert errors.max() == pytest.approx(by_order(broken, kept + broken))
    assert errors.max() == pytest.approx(share, abs=1e-3)
    said = verifier.verify(steps_of([0, 2, 1]), 0).deviations
    assert bool(said) == (share > 0.5)


def test_probabilities_are_those_of_the_counts_and_need_steps(counts):
    steps = [*steps_of([0, 2, 1, 3]), Step(100, 4000, 4)]
    found = {one.name: one for one in counts.verify(steps, 0).deviations}
    assert found["pour"].probability == pytest.approx(by_order(0, 9))
    assert found["wash"].probability == pytest.approx(by_bayes(1, 10, 0.2))
    assert found["drink"].evidence == "3900 s; usually 10 s"
    with pytest.raises(ConfigError, match="a video without steps"):
        counts.verify([], 0)
    assert counts.verify(steps_of([6]), 1).deviations == ()  # nothing is known of its task
    again = counts.verify([*steps_of([0, 1, 2]), Step(100, 4000, 1)], 0).steps[-1].kinds
    assert {kind for kind, share in again.items() if share > 0.5} == {"repeated", "long"}


@pytest.mark.parametrize(("having", "lacking", "share"), [(5, 0, 91), (9, 1, 69), (7, 3, 45)])
def test_a_step_that_right_videos_lack_is_less_surely_missing(having, lacking, share):
    verifier = fitted([[0, 1, 2]] * having + [[0, 2]] * lacking)
    found = verifier.verify(steps_of([0, 2]), 0, least=0.0).deviations
    assert [round(100 * one.probability) for one in found if one.kind == "missing"][:1] == [share]


def test_the_last_step_of_a_video_that_is_not_over_is_not_too_short(counts):
    steps = [*steps_of([0, 1]), Step(40, 40.5, 2)]
    for finished, short in ((True, ["wait"]), (False, [])):
        found = counts.verify(steps, 0, finished=finished).deviations
        assert [one.name for one in found if one.kind == "short"] == short
    more = counts.verify([*steps, Step(50, 60, 3)], 0, finished=False).deviations
    assert [one.name for one in more if one.kind == "short"] == ["wait"]


@pytest.mark.parametrize("done", [[], [4], [0, 1, 2, 3, 4, 5], [3, 1]])
def test_the_repair_keeps_the_graph(counts, done):
    for verifier in (counts, counts.given({0: (((3, 2), (2, 1)), ())})):
        repair = verifier.verify(steps_of(done or [6]), 0).repair
        assert sorted([*repair, *done]) == list(range(6))
        for a, b in verifier.orders[0].edges:
            assert not {a, b} <= {*repair} or repair.index(a) < repair.index(b)


def test_mistakes_in_videos_that_count_as_right_are_said():
    """Of two of twelve; a video that names its mistake is not among them, nor are usual orders."""
    usual, lacking, exchanged = [0, 1, 2, 3], [0, 1, 3], [0, 2, 1, 3]

    def said(rows, val=(), **missing):
        videos = [
            Video(f"v{n}", split, 0, steps_of(row), missing=missing.get(f"v{n}", ()))
            for n, row in enumerate(rows)
            for split in ["val" if n in val else "train"]
        ]
        return [*among_right(Verifier.fit(videos, TAXONOMY), videos)]

    (note,) = said([usual] * 10 + [lacking, exchanged])
    assert note.startswith("2 training videos without a label of an error")
    assert re.search(r"'v10': 'wait' missing \(.*'v11': '(pour|wait)' out of order \(", note)
    assert said([usual] * 10 + [lacking], v10=(2,)) == []
    assert said([usual] * 10 + [lacking], val=[10]) == []  # it is not trained on
    assert said([usual] * 10 + [[*usual, 3]]) == []  # repeated
    assert said([usual, exchanged] * 6) == []
    others = [0, 1, 2], [0, 2, 3], [0, 1, 3]
    assert len(said([usual] * 9 + [*others])) == 1
    (note,) = said([usual] * 8 + [*others])  # the surest of them, at most a quarter of all
    assert note.startswith("3 training videos")
    assert note.count("' missing (") == 2
    assert "and 1 more" in note


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
        row, at = [0, 1, 2, 3, 4, 5], int(rng.integers(5))
        kinds: list[tuple[str, ...]] = [()] * 6
        if number % 3 == 0:
            row[at : at + 2], kinds[at : at + 2] = [at + 1, at], [("Order Error",)] * 2
        ends = np.cumsum(rng.uniform(5, 15, 12))
        steps = [Step(ends[2 * n], ends[2 * n + 1], a, kinds[n]) for n, a in enumerate(row)]
        videos.append(Video(f"{seed}-{number}", "train", 0, tuple(steps)))
    return videos


@pytest.fixture(scope="module")
def learned():
    return Verifier.fit(shop(60, 1), TAXONOMY, config=SMALL)


def test_what_right_videos_have_often_enough_is_no_doubt():
    """Of six videos one has the last two steps in the other order, and two have a further one."""
    verifier = fitted([[0, 1, 2, 3], [0, 1, 2, 3], *[[0, 1, 2]] * 3, [0, 2, 1]])
    seen = [steps_of(row) for row in ([0, 2, 1], [0, 2, 1], [0, 2, 1], [1, 0, 2])]
    found = verifier.verify(seen[0], 0, drawn=seen)
    assert found.deviations == ()
    assert [(one.kind, one.name) for one in found.unsure] == [("order", TAXONOMY.actions[0].name)]
    assert [one.action for one in found.unseen][:1] == [3]
    assert verifier.verify(seen[0], 0, drawn=seen[:3]).unsure == ()


def test_networks_judge_all_sequences_drawn_at_once(learned):
    likeliest, passes = steps_of([0, 1, 2, 3]), []
    drawn = [*map(steps_of, ([0, 1, 2, 3], [0, 2, 1, 3], [1, 3]))]
    alone = np.mean(
        [1 - learned.probabilities(d, 0)[[s.action for s in d].index(3), 0] for d in drawn]
    )
    hook = learned.network.register_forward_hook(lambda *_: passes.append(1))
    with hook:
        found = learned.verify(likeliest, 0, drawn=drawn, least=0.0)
    assert len(passes) == 1
    assert found.steps[3].mistake == pytest.approx(alone, rel=1e-5)  # of the step "stir"


def slow_findings(verifier, steps, sure, least):
    """What is wrong with each step: its kind, place and probability, each found from all steps."""
    order, found = verifier.orders[0], []
    first = {}
    for place, step in enumerate(steps):
        if step.action in order.index:
            first.setdefault(order.index[step.action], place)
    for place, (step, row) in enumerate(
        zip(steps, verifier.probabilities(steps, 0).tolist(), strict=True)
    ):
        own, probability = order.index.get(step.action, -1), 1 - row[0]
        alone = verifier.network is not None and own >= 0  # networks decide
        before = sum(one.action == step.action for one in steps[:place])
        broken = [
            order.probability[a, b]
            for a, late in first.items()
            for b, early in first.items()
            if early < late and place in (early, late) and order.probability[a, b] > 0.5
        ]
        log = np.log(max(step.end - step.start, 0.5))
        score = 0.0 if own < 0 else (log - order.length[own]) / order.spread[own]
        kind = "order" if row[1] >= row[2] else "wrong"
        if own < 0 or not order.occurs[own]:
            kind, share = "added", 1 - (order.usual[own] if own >= 0 else 0)
            probability = probability if alone else max(probability, share)
        elif before and order.repeated[own] < 0.5:
            again = order.follows.sum(axis=0)[own] - order.occurs[own]
            kind, share = "repeated", by_bayes(max(again, 0), order.videos, 0.2)
            probability = probability if alone else max(probability, share)
        elif kind == "order" and broken:
            pass
        elif abs(score) > 2:
            kind = "long" if score > 0 else "short"
            if verifier.network is None:
                done = order.follows[:, own].sum()
                spread = t(max(done - 0.5, 0.5), scale=np.sqrt(1 + 1 / done))
                as_far = min(1, len(steps) * 2 * spread.sf(abs(score)))
                probability = max(probability, 0.1 / (0.1 + 0.9 * as_far))
        probability *= sure[place]
        if probability >= least and probability > 0:
            found.append((kind, place + 1, pytest.approx(probability)))
    return found


def slow_evidence(order, steps, place):
    """Some of the evidence of a step, each counted from all steps."""
    row = [order.index.get(step.action, -1) for step in steps]
    own, count = row[place], len(steps)
    chances = (order.follows + 0.1) / (order.follows.sum(1, keepdims=True) + 0.1 * order.size)
    lead = np.maximum(0, 2 * order.probability - 1) * order.usual[:, None]
    unmet = [lead[a, own] for a in range(order.size) if a != own and a not in row[:place]]
    return {
        "from_previous": -np.log(chances[row[place - 1] if place else order.size, own]),
        "to_next": -np.log(chances[own, row[place + 1] if place + 1 < count else order.size]),
        "repetitions": row[:place].count(own),
        "unmet": sum(unmet) if own >= 0 else 0.0,
        "pause": steps[place].start - (steps[place - 1].end if place else 0.0),
    }


def test_findings_of_random_steps(counts, learned):
    rng = np.random.default_rng(0)
    for number in range(60):
        starts = np.cumsum(rng.normal(8, 10, size=rng.integers(1, 40))).clip(0)
        steps = [Step(at, at + rng.exponential(20), int(rng.integers(7))) for at in starts]
        sure, least = rng.random(len(steps)), float(rng.choice([0.0, 0.5]))
        for verifier in (counts, learned):
            found = verifier.verify(steps, 0, sure=sure, least=least, finished=bool(number % 2))
            ours = [(d.kind, d.step, d.probability) for d in found.deviations if d.step is not None]
            expected = slow_findings(verifier, steps, sure, least)
            assert sorted(ours, key=lambda one: one[1]) == expected
        evidence = StepEvidence.of(counts.orders[0], steps, counts.taxonomy)
        for place in range(len(steps)):
            for name, value in slow_evidence(counts.orders[0], steps, place).items():
                assert getattr(evidence, name)[place] == pytest.approx(value)


def test_networks_see_the_evidence_in_the_order_of_released_runs(counts):
    evidence = StepEvidence.of(counts.orders[0], steps_of([0, 2, 1, 1, 6]), counts.taxonomy)
    matrix = evidence.matrix()
    assert matrix.shape == (5, StepEvidence.width()) == (5, 64)
    names = "orders_before orders_after worst_before worst_after unseen_before unseen_after "
    names += "from_previous to_next length_change length_distance length_score place_change "
    names += "place_distance place number repetitions usual unmet overlap pause"
    for number, name in enumerate(names.split()):
        column = getattr(evidence, name)
        for place, values in ((0, column), (20, column.mean()), (40, column.max())):
            assert (matrix[:, place + number] == signed_log(values)).all()
    numbers = [evidence.lacking, evidence.most_lacking, 5, 10]
    np.testing.assert_array_equal(matrix[:, 60:], [signed_log(np.array(numbers))] * 5)


@pytest.mark.parametrize("name", ["counts", "learned"])
def test_thousands_of_steps_are_looked_at_once_each(name, request):
    """Steps are read as often as there are, not as often as their square."""

    class Counted(list):
        reads = 0

        def __getitem__(self, place):
            Counted.reads += len(range(len(self))[place]) if isinstance(place, slice) else 1
            return super().__getitem__(place)

        def __iter__(self):
            Counted.reads += len(self)
            return super().__iter__()

    steps = Counted(steps_of([*range(7)] * 300))
    assert request.getfixturevalue(name).verify(steps, 0, least=0.99).deviations
    assert Counted.reads < 20 * len(steps)


def test_a_task_of_which_no_video_was_seen_keeps_its_order_of_before(counts):
    later = Verifier.fit([Video("nail", "train", 1, steps_of([6]))], TAXONOMY)
    continued = later.continued(counts)
    assert continued.orders[0] is counts.orders[0]
    assert continued.orders[1] is later.orders[1]


def test_a_circle_of_orders_that_a_person_gives_is_said_in_names(counts):
    name = counts.taxonomy.actions[1].name
    with pytest.raises(ConfigError, match=rf"circle .* action 1 \('{name}'\)"):
        counts.given({0: (((0, 1), (1, 0)), ())})


def test_numbers_that_are_none_are_refused(counts, learned):
    steps = steps_of([0, 1, 2])
    for task in (-1, 2, np.nan, 0.5):
        with pytest.raises(ConfigError, match="task"):
            counts.verify(steps, task)
    for more in ({"least": np.nan}, {"least": -1}, {"sure": [1, 1]}, {"sure": [1, np.nan, 1]}):
        with pytest.raises(ConfigError, match=r"probability"):
            counts.verify(steps, 0, **more)
    for step in (Step(0, 1, -1), Step(0, 1, 7), Step(np.nan, 1, 0), Step(0, np.inf, 0)):
        with pytest.raises(ConfigError, match=r"step 4 .*expected seconds"):
            counts.verify([*steps, step], 0)
    for alarms, steps in ((np.nan, None), (np.inf, None), (-1, None), (1, 0)):
        with pytest.raises(ConfigError, match="expected a number of at least 0"):
            learned.promise(alarms, per_steps=steps)


def test_errors_of_order_are_learned_and_thresholds_hold(learned):
    unseen = shop(40, 2)
    score = np.concatenate([learned.probabilities(one.steps, 0)[:, 1] for one in unseen])
    truth = np.array([bool(step.errors) for one in unseen for step in one.steps])
    assert (score[truth][:, None] > score[~truth]).mean() > 0.9  # area under the ROC curve
    kinds = [one.kind for v in unseen for one in learned.verify(v.steps, 0).deviations]
    assert kinds.count("order") > 0.9 * len(kinds)
    held_out = learned.whole
    assert held_out.steps.tolist() == [6] * 40  # the right videos of 60
    for rate in (20, 50, 1e6):
        alarms = held_out.alarms(learned.promise(rate).least)
        assert alarms.sum() + max(1, alarms.max()) <= rate * held_out.hours.sum()
    assert learned.promise(1e6).least == 0 < learned.promise(50).least < learned.promise(20).least
    right = [video for video in shop(60, 1) if video.clean]
    known = [learned.verify(video.steps, 0, least=0.0).chances for video in right]
    by_others = sorted(held_out.probability)
    assert learned.temperature > 1  # networks are too sure of videos held out
    assert sorted(p for rows in known for p, *_ in rows) != by_others


def test_networks_decide_of_the_steps_of_their_task_alone(learned):
    """A step of another task has the least probability that it has without labels."""
    steps = steps_of([0, 1, 1, 2, 3, 4, 5, 6])
    found = learned.verify(steps, 0, least=0.0).deviations
    shares = {one.kind: one.probability for one in found if one.step in (3, 8)}
    assert shares["repeated"] == pytest.approx(1 - learned.probabilities(steps, 0)[2, 0]) != 1
    assert shares["added"] == 1
    found = learned.verify(steps[:-2], 0, least=0.0).deviations
    missing = {one.name: one.probability for one in found if one.kind == "missing"}
    assert missing == {"wash": pytest.approx(by_bayes(0, 60, 0.2))}  # as without labels


def test_saved_and_read_and_damaged(counts, learned, tmp_path):
    path = tmp_path / VERIFIER_FILE
    for known_steps in (counts, learned):
        verifier = replace(known_steps, films=known_steps.online)
        verifier.save(tmp_path)
        again = Verifier.load(tmp_path, TAXONOMY, config=SMALL)
        for steps in map(steps_of, ([0, 2, 1, 3], [5, 5, 0], [6])):
            ours, theirs = (one.probabilities(steps, 0) for one in (again, verifier))
            np.testing.assert_array_equal(ours, theirs)
            assert again.verify(steps, 0) == verifier.verify(steps, 0)
        for mode in ("whole", "online", "films"):
            arrays = getattr(verifier, mode).arrays()
            for key, array in getattr(again, mode).arrays().items():
                np.testing.assert_array_equal(array, arrays[key])
    tensors = load_tensors(path, "pt", "", CefitoError)[0]
    for name in tensors:
        for own in (tensors[name][None].clone(), tensors[name].double() * np.nan):
            if not (name.endswith("place") and own.isnan().all()):  # of actions that never occurred
                write_tensors(path, {**tensors, name: own})
                with pytest.raises(
                    RunError, match=rf"{VERIFIER_FILE}: tensor.*Train the run again"
                ):
                    Verifier.load(tmp_path, TAXONOMY, config=SMALL)
    for name, own in (
        ("order.-1.before", tensors["temperature"]),
        ("more", tensors["temperature"]),
    ):
        write_tensors(path, {**tensors, name: own})
        with pytest.raises(RunError, match=f"{VERIFIER_FILE}: tensor"):
            Verifier.load(tmp_path, TAXONOMY, config=SMALL)
    for name in ("order.0.before", "temperature", next(n for n in tensors if "network" in n), ""):
        write_tensors(path, {key: one for key, one in tensors.items() if key != name})
        path.write_bytes(path.read_bytes()[: None if name else 100])
        with pytest.raises(CefitoError, match=VERIFIER_FILE):
            Verifier.load(tmp_path, TAXONOMY, config=SMALL)
