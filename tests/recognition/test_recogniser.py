"""The recogniser on small films of which each action has its own direction, and its stream."""

import json
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from cefito.data.annotations import Step
from cefito.data.timeline import row_labels
from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.recognition.chain import StepChain, softened
from cefito.recognition.plan_chain import PlanChain
from cefito.recognition.recogniser import (
    RECOGNISER_FILE,
    SETTINGS_FILE,
    Recognition,
    unchained,
)
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.stream import LOST_MORE, StepStream
from cefito.recognition.temporal import TemporalNetwork
from cefito.tracks.track import stored
from row_films import SMALL, prepared_films, scene_films


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return prepared_films(tmp_path_factory.mktemp("films"))


@pytest.fixture(scope="module")
def recogniser(films):
    return SegmentalRecogniser.fit(films, range(10), config=SMALL, seed=0)


@pytest.fixture
def video(films):
    """Rows, steps, and the action of each row of a test video."""
    place = 11
    rows, steps = films.timeline.videos[place].astype(np.float32), films.videos[place].steps
    return rows, steps, row_labels(steps, len(rows), 1.0, 6)


def spans(steps):
    return [(one.action, one.start, one.end) for one in steps]


def test_steps_of_films_are_recognised(films, recogniser):
    right, rows, tasks = 0, 0, []
    for place in range(10, 16):
        found = recogniser.recognise(films.timeline.videos[place])
        truth = row_labels(films.videos[place].steps, len(found.rows), 1.0, 6)
        right, rows = right + (found.rows.argmax(axis=1) == truth).sum(), rows + len(truth)
        tasks.append(found.tasks.argmax() == films.videos[place].task)
        assert found.rows.sum(axis=1) == pytest.approx(1)
    assert right / rows > 0.85
    assert all(tasks)


def test_a_step_has_times_a_name_and_a_probability(recogniser, video):
    rows, truth, _ = video
    found = recogniser.recognise(rows)
    steps = found.steps()
    assert [one.action for one in steps] == [one.action for one in truth]
    for ours, theirs in zip(steps, truth, strict=True):
        assert abs(ours.start - theirs.start) <= 2
        assert abs(ours.end - theirs.end) <= 2
        assert ours.name == f"step {ours.action}"
        part = found.rows[int(ours.start) : int(ours.end), ours.action]
        assert ours.probability == pytest.approx(part.mean())
    assert len(found.steps(sorted(one.probability for one in steps)[1])) == len(steps) - 1


def test_a_task_and_a_plan_that_are_known(recogniser, video):
    rows, truth, _ = video
    assert recogniser.recognise(rows, task=0).tasks.tolist() == [1, 0]
    plan = [one.action for one in truth]
    found = recogniser.recognise(rows, task=1, plan=plan)
    assert [one.action for one in found.steps()] == plan
    assert found.begin.sum(axis=0)[plan] == pytest.approx(1)


def test_saved_and_read_and_trained_again(films, recogniser, video, tmp_path):
    rows = video[0]
    recogniser.save(tmp_path)
    found = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    expected = recogniser.recognise(rows)
    np.testing.assert_allclose(found.recognise(rows).rows, expected.rows, rtol=0, atol=1e-12)
    logs, again = (one.log_seen(rows, past=True) for one in (recogniser, found))
    np.testing.assert_allclose(logs, again, rtol=0, atol=1e-12)
    assert found.trusts == recogniser.trusts
    assert found.temperatures == recogniser.temperatures
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        state = torch.get_rng_state()
        again = SegmentalRecogniser.fit(films, range(10), config=SMALL, seed=0)
        assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(again.recognise(rows).rows, expected.rows)
    (tmp_path / SETTINGS_FILE).write_text("{}")
    with pytest.raises(RunError, match=f"{SETTINGS_FILE}.*Train the run again"):
        SegmentalRecogniser.load(tmp_path, films.taxonomy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("rate", rate) for rate in (0.0, -1.0, 1e9)),
        *((name, [1.0, 0.0]) for name in ("trusts", "temperatures")),
        ("width", 1 << 40),
        ("width", 9),
        ("config.members", 20_000),
        ("config.members", 64),
        ("config.width", 1 << 16),
        ("config.width", 1 << 40),
        ("config.directions", 0),
        ("config.memories", [0.0]),
        ("config.memories", [1.0] * 1000),
        ("config.phases", 10**6),
        ("config.lag", 1e9),
        *(("seen", [{"unseen": [[action]]}]) for action in (-1, 6)),
        *(("again", again) for again in ([[0.5]], [[2.0]] * 6)),
    ],
)
def test_settings_of_a_shared_run_are_bounded(films, recogniser, tmp_path, key, value):
    recogniser.save(tmp_path)
    header = json.loads((tmp_path / SETTINGS_FILE).read_text())
    *sections, name = key.split(".")
    (header[sections[0]] if sections else header)[name] = value
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(header))
    with pytest.raises(RunError, match=r"recogniser\.(json|safetensors).*Train the run again"):
        SegmentalRecogniser.load(tmp_path, films.taxonomy)


def test_tensors_of_a_shared_run_are_checked(films, recogniser, tmp_path):
    recogniser.save(tmp_path)
    path, (tensors, _) = (
        tmp_path / RECOGNISER_FILE,
        load_tensors(tmp_path / RECOGNISER_FILE, "pt", ""),
    )
    small = [name for name in tensors if not name.startswith(("whole", "past", "ahead"))]
    changes = {
        f"{name} {kind}": {**tensors, name: change(tensors[name])}
        for name in [*small, "past.members.0.1.weight", "ahead.mean", "whole.temporal.outer.bias"]
        for kind, change in {
            "of another shape": lambda own: own[None].clone(),
            "without its values": lambda own: own.double() * torch.nan,
            "of other numbers": lambda own: own.double() * 0 - 7e9,
        }.items()
    }
    changes |= {
        f"without {name}": {key: own for key, own in tensors.items() if key != name}
        for name in small
    }
    changes["with more"] = {**tensors, "other.thing": torch.zeros(1)}
    known = tensors["chain.transitions"]
    changes["of other sums"] = {**tensors, "chain.transitions": known / 2}
    changes["of other actions"] = {**tensors, "chain.actions": tensors["chain.actions"].flip(1)}
    for content in changes.values():
        write_tensors(path, content)
        with pytest.raises(RunError, match=rf"{RECOGNISER_FILE}: tensor.*Train the run again"):
            SegmentalRecogniser.load(tmp_path, films.taxonomy)


def test_rows_at_another_rate(recogniser, video):
    rows = video[0]
    expected = spans(recogniser.recognise(rows).steps())
    found = spans(recogniser.recognise(np.repeat(rows, 2, axis=0), rate=2.0).steps())
    assert [one[0] for one in found] == [one[0] for one in expected]
    assert np.abs(np.array(found) - np.array(expected)).max() <= 1


def test_the_fewest_rows_of_steps_that_are_known(recogniser, video):
    """One row fewer is refused, these are enough, and each step is there."""
    certain = replace(recogniser.chain, pause=np.ones_like(recogniser.chain.pause))
    always = replace(recogniser, chain=certain)  # pauses before and between all steps
    for own, task, plan in ((recogniser, 1, [3, 4, 5]), (always, 1, [5, 3]), (always, 0, [1])):
        fewest = PlanChain.of(own.chain, plan, task).fewest
        with pytest.raises(ConfigError, match=f"need {fewest}, at 1 rows"):
            own.recognise(video[0][: fewest - 1], task=task, plan=plan)
        for count in range(fewest, fewest + 4):
            found = own.recognise(video[0][:count], task=task, plan=plan)
            assert np.isfinite(found.rows).all()
            assert [one.action for one in found.steps()] == plan


def test_a_task_that_fits_worse_than_another_one(recogniser, video):
    rows = np.concatenate([video[0]] * 60)  # some 3,000
    for task in (0, 1):
        found = recogniser.recognise(rows, task=task)
        assert np.isfinite(found.rows).all()
        assert {one.action for one in found.steps()} <= {*range(3 * task, 3 * task + 3)}


def test_what_is_refused(films, recogniser, video):
    rows = video[0].copy()
    with pytest.raises(DataError, match=r"rows \[\d+, 7\]: expected \[rows, 8\]"):
        recogniser.recognise(rows[:, :7])
    for task, plan in ((None, [3, 4]), (1, [3, 0]), (1, [])):
        with pytest.raises(ConfigError, match="not steps of one task"):
            recogniser.recognise(rows, task=task, plan=plan)
    with pytest.raises(ConfigError, match="2 rows is too short"):
        recogniser.recognise(rows[:2], task=1, plan=[3, 4, 5])
    for task in (-1, 2, 0.5, np.nan, True):
        with pytest.raises(ConfigError, match="task"):
            recogniser.recognise(rows, task=task)
        with pytest.raises(ConfigError, match="task"):
            StepStream(recogniser, task=task)  # type: ignore[arg-type]
    for rate in (-1, 0, np.nan, np.inf, 1e-9, 1e9):
        with pytest.raises(ConfigError, match=r"0\.01 to 1000 rows"):
            recogniser.recognise(rows, rate=rate)
    for action in (-1, 6, np.nan, 3.5):
        with pytest.raises(ConfigError, match="action"):
            recogniser.recognise(rows, task=1, plan=[action])
    for least in (-0.1, np.nan, np.inf):
        with pytest.raises(ConfigError, match="expected 0 to 1"):
            recogniser.recognise(rows).steps(least)
    for action in (-1, 6, 7):
        with pytest.raises(ConfigError, match="not one of the task"):
            StepStream(recogniser).correct(action)
    with pytest.raises(DataError, match="expected numbers"):
        recogniser.recognise([["a"] * 8])
    with pytest.raises(DataError, match="holds NaN or infinity"):
        recogniser.recognise(np.full((2, 8), 1e300))
    rows[4, 2] = np.nan
    with pytest.raises(DataError, match=r"row 4 .* holds NaN"):
        recogniser.recognise(rows)
    bare = replace(films, hashes={})
    with pytest.raises(DataError, match="holds no rows of whole videos"):
        SegmentalRecogniser.fit(bare, range(10), config=SMALL)


def test_the_present_row_is_the_forward_pass(recogniser, video):
    rows, _, truth = video
    log_seen = recogniser.log_seen(rows, past=True)
    seen = recogniser.likelihoods(log_seen, past=True)
    weight, temperature = 0.75, 1.5
    recogniser = replace(recogniser, weights=(0.0, weight), temperatures=(1.0, temperature))
    stream, right = StepStream(recogniser), 0
    assert stream.now.argmax() == 6
    filtered = recogniser.chain.filtered(seen)
    labels = recogniser.chain.by_label(filtered.states)
    shown = zip(rows, labels, filtered.tasks, log_seen, truth, strict=True)
    for row, now, tasks, logs, label in shown:
        assert stream.observe(row)
        alone = np.exp(logs + recogniser.config.prior_power * recogniser.log_prior)
        both = now ** (1 - weight) * alone**weight
        expected = softened(both / both.sum(), temperature)
        np.testing.assert_allclose(stream.now, expected, atol=1e-4)
        np.testing.assert_allclose(stream.tasks, tasks, atol=1e-6)
        right += stream.now.argmax() == label
    assert stream.seconds == len(rows)
    assert right / len(rows) > 0.8
    assert [one.action for one in stream.steps()] == [one.action for one in video[1]]
    assert np.argmax(stream.tasks) == 1


def test_networks_have_half_their_weight_in_a_row_that_is_told_later(recogniser, video):
    rows, lag = video[0], 2
    noise = np.random.default_rng(0).standard_normal(rows.shape).astype(np.float32)
    rows = rows + 2 * rows.std() * noise
    alone = (
        recogniser.log_seen(rows, past=True) + recogniser.config.prior_power * recogniser.log_prior
    )
    labels = {}
    for weight in (0.0, 2.0):  # half of 2 leaves nothing to the chain
        changes = {"sure_step": 0.0, "shortest_step": 0.0}
        config = recogniser.config.model_copy(update=changes)
        stream = StepStream(replace(recogniser, config=config, weights=(0.0, weight)))
        labels[weight] = []
        for place, row in enumerate(rows):
            stream.observe(row)
            steps = stream.steps(lag) if place >= lag else []
            goes_on = steps and steps[-1].end == place + 1 - lag
            labels[weight].append(steps[-1].action if goes_on else 6)
    assert labels[2.0][lag:] == alone[:-lag].argmax(axis=1).tolist()
    assert labels[0.0] != labels[2.0]
    stream.correct(0)
    shown = [stream.steps(1)[-1] for row in rows[:3] if stream.observe(row)]
    assert {step.action for step in shown} == {0}  # what a person told is told later, too


def test_rows_that_are_lost_late_or_broken(recogniser, video, monkeypatch):
    monkeypatch.setattr("cefito.recognition.stream.FILM", 9)  # rows kept
    rows = video[0]
    broken = rows[3].copy()
    broken[0] = np.nan
    lost = [StepStream(recogniser).doubted() for _ in range(3)]
    for stream, third in zip(lost, (None, broken, ...), strict=True):
        for count, row in enumerate(rows[:8]):
            if count != 3:
                assert stream.observe(row, at=count + 0.4)
            elif third is not ...:
                assert stream.observe(third, at=3)
        assert (stream.seconds, stream.keeps_rows) == (8, True)
    for stream in lost[1:]:
        np.testing.assert_array_equal(stream.now, lost[0].now)
    before = lost[0].now
    for late in (7.9, 3, 0):
        assert not lost[0].observe(rows[0], at=late)
    np.testing.assert_array_equal(lost[0].now, before)
    for width in ((7,), (1, 8)):
        with pytest.raises(DataError, match=r"expected \[8\]"):
            lost[0].observe(np.zeros(width))
    with pytest.raises(DataError, match="nan: expected seconds"):
        lost[0].observe(rows[0], at=np.nan)
    assert lost[0].seconds == 8
    assert all(lost[1].observe(rows[8], at=at) for at in (8, 9))
    assert lost[0].observe(rows[8], at=10**9)  # a clock that jumped
    assert lost[0].seconds == 10**9 + 1
    assert np.isfinite(lost[0].now).all()
    assert [stream.keeps_rows for stream in lost] == [False, False, True]


def test_a_gap_passed_at_once_is_that_of_its_rows_one_by_one(recogniser, video):
    """What is believed now and expected next, by the rows; the steps before the gap, too."""
    rows, gaps = video[0], {5: 3, 9: 200, 12: 31}
    uncounted = replace(recogniser, again=())
    streams = [StepStream(uncounted, lost=lost) for lost in (10**9, -(10**9))]
    for stream in streams:
        at = 0
        for place, row in enumerate(rows[:16]):
            at += 1 + gaps.get(place, 0)
            stream.observe(row, at=at)
    slow, fast = streams
    assert slow.seconds == fast.seconds
    for name in ("now", "tasks", "next_states"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-6, atol=1e-9)
    held = [[s for s in one.steps() if s.start < 200 and s.end > 20] for one in streams]
    assert [*map(bool, held)] == [True, False]  # between rows of the long gap
    unseen = StepStream(recogniser, lost=0)
    unseen.observe(None, at=300)
    one_by_one = StepStream(recogniser)
    one_by_one.observe(None, at=300)
    np.testing.assert_allclose(unseen.now, one_by_one.now, rtol=1e-6)


@pytest.mark.parametrize("hours", [1, 1000])
def test_gaps_cost_as_much_as_rows(recogniser, video, monkeypatch, hours):
    """Rows an hour apart: each row is worth some lost ones, however long the gaps."""
    updates, filtered = [], StepChain.filtered
    count = lambda *given: updates.append(1) or filtered(*given)  # noqa: E731
    monkeypatch.setattr(StepChain, "filtered", count)
    stream = StepStream(recogniser, lost=100)
    for place in range(60):
        stream.observe(video[0][0] if place % 2 else None, at=3600 * hours * place)
    assert len(updates) <= 100 + 60 * (1 + LOST_MORE)
    assert stream.seconds == 59 * 3600 * hours + 1
    assert np.isfinite(stream.now).all()


def test_a_step_that_was_done_is_less_likely_next(films, recogniser, video):
    """As in √(1 − 0.8 (1 − r)), where r is a share of videos that is counted here slowly."""
    counts = [Counter(step.action for step in one.steps) for one in films.videos[:10]]
    for action, shares in enumerate(recogniser.again):
        assert len(shares) == max(one[action] for one in counts)
        for done, share in enumerate(shares, 1):
            having, more = (sum(one[action] >= k for one in counts) for k in (done, done + 1))
            assert share == pytest.approx((more + 0.5) / (having + 1), abs=1e-4)
    shares = (), *[(0.9, 0.5)] * 5
    plain, ours = (StepStream(replace(recogniser, again=again)) for again in ((), shares))
    seen = set()
    for row in [*video[0], *video[0]]:
        plain.observe(row)
        ours.observe(row)
        done = Counter(step.action for step in plain.steps())
        lost = np.array([0.8 * (0, 0.1, 0.5)[min(done[action], 2)] for action in range(6)])
        expected = plain.next_actions * np.sqrt(1 - lost * (np.arange(6) > 0))
        np.testing.assert_allclose(ours.next_actions, expected / expected.sum(), atol=1e-9)
        seen |= {*done.values()}
    assert {1, 2} <= seen


def test_a_copy_goes_on_by_itself(recogniser, video):
    rows = video[0]
    stream, whole = StepStream(recogniser), StepStream(recogniser)
    for row in rows[:20]:
        stream.observe(row)
        whole.observe(row)
    other = stream.copy()
    for row in rows[5:0:-1]:
        other.observe(row)
    other.correct(1)
    for row in rows[20:]:
        stream.observe(row)
        whole.observe(row)
    np.testing.assert_array_equal(stream.now, whole.now)
    np.testing.assert_array_equal(stream.next_states, whole.next_states)
    assert stream.steps() == whole.steps()
    assert other.seconds == 25


def test_the_state_does_not_grow(recogniser, video):
    row, sizes = video[0][8], []
    config = SMALL.model_copy(update={"lag": 2.0})
    stream = StepStream(replace(recogniser, config=config))
    for count in range(1, 1801):
        stream.observe(row)
        if count in (300, 1800):
            sizes.append(len(pickle.dumps(stream)))
    assert abs(sizes[1] - sizes[0]) < 100
    assert len(stream.steps()) <= 2


def test_a_row_is_settled_after_the_lag_and_before_twice_as_long(recogniser, video):
    noise = np.random.default_rng(0).standard_normal(video[0].shape).astype(np.float32)
    changes = {"lag": 4.0, "sure_step": 0.0, "shortest_step": 0.0}
    config = recogniser.config.model_copy(update=changes)
    stream, ages = StepStream(replace(recogniser, config=config)), set()
    before = np.zeros(0, int)
    for row in video[0] + 3 * video[0].std() * noise:
        stream.observe(row)
        labels = row_labels(stored(stream.steps()), len(before) + 1, 1.0, 6)
        ages |= {len(before) - int(at) for at in np.flatnonzero(labels[:-1] != before)}
        before = labels
    assert 4 < max(ages) <= 8


def test_single_rows_say_steps_their_beginnings_and_the_task():
    taxonomy = Taxonomy.from_names("made", [("tea", [0, 1]), ("toast", [2])], [*"abc"])
    rows = np.array([[0.5, 0.1, 0.2, 0.2], [0.2, 0.6, 0.1, 0.1]])
    free = unchained(rows, taxonomy, 2.0, None)
    np.testing.assert_array_equal(free.rows, rows)
    np.testing.assert_allclose(free.begin, [[0.5, 0.1, 0.2], [0, 0.5, 0]])
    assert free.tasks == pytest.approx([1.4 / 1.7, 0.3 / 1.7])
    assert spans(free.steps()) == [(0, 0, 0.5), (1, 0.5, 1)]
    toast = unchained(rows, taxonomy, 2.0, 1)
    np.testing.assert_allclose(toast.rows, [[0, 0, 0.5, 0.5]] * 2)
    assert toast.tasks.tolist() == [0, 1]


def test_drawn_labels_are_steps_at_the_rate_of_their_rows():
    taxonomy = Taxonomy.from_names("made", [("tea", [0, 1])], [*"ab"])
    rows, drawn = np.full((4, 3), 1 / 3), np.array([[0, 0, 2, 1], [2, 2, 2, 2]])
    seen = Recognition(rows, rows[:, :-1], np.ones(1), 2.0, taxonomy)
    assert seen.drawn_steps is None
    assert replace(seen, drawn=drawn).drawn_steps == [(Step(0, 1, 0), Step(1.5, 2, 1)), ()]


def test_a_stream_with_doubt_draws_steps_and_sees_all_rows_again(recogniser, video):
    """As whole films are recognised; by rows of the past, those of the last fifth row."""
    rows, steps, _ = video
    stream, silent, known = StepStream(recogniser).doubted(), StepStream(recogniser), []
    for row in rows[:-1]:
        assert stream.observe(row)
        assert silent.observe(row)
        known.append(stream.tasks)
    seen = len(known) // 5 * 5
    assert seen < len(known)
    assert stream.doubted_rows == seen
    np.testing.assert_array_equal(stream.doubted_tasks, known[seen - 1])
    np.testing.assert_array_equal(silent.doubted_tasks, known[-1])
    drawn = stream.drawn_steps(1, 16)
    assert len(drawn) == 16
    done = [step.action for step in steps]
    assert sum([step.action for step in way] == done for way in drawn) > 8
    assert {way[-1].end <= seen for way in drawn} == {True}
    doubting = replace(recogniser, config=recogniser.config.model_copy(update={"drawn": 16}))
    whole = doubting.recognise(rows[:20], task=1, doubt=True)
    assert stream.drawn_again(1, 16, 20) == whole.drawn_steps
    again = stream.steps_again(1)
    assert [step.action for step in again] == done
    for ours, theirs in zip(again, steps, strict=True):
        assert abs(ours.start - theirs.start) <= 2
        assert abs(ours.end - theirs.end) <= 2
    assert silent.drawn_steps(1, 16) == silent.drawn_again(1, 16, 20) == []
    assert silent.steps_again(1) == []


def test_what_a_person_tells(recogniser, video):
    stream = StepStream(recogniser, task=0)
    for row in np.zeros((4, 8)):
        stream.observe(row)
    stream.correct(2)
    assert stream.now.argmax() == 2
    assert (stream.steps()[-1].action, stream.steps()[-1].end) == (2, 4)
    with pytest.raises(ConfigError, match="not one of the task"):
        stream.correct(4)
    assert stream.now.argmax() == 2
    # without a task, what is told decides the task, against what was recognised
    free = StepStream(recogniser)
    for row in video[0][:12]:
        free.observe(row)
    assert np.argmax(free.tasks) == 1
    free.correct(1)
    assert np.argmax(free.tasks) == 0
    assert free.next_actions[[3, 4, 5]].sum() < 1e-9


def test_short_steps_are_done_only_if_they_go_on_or_were_told(recogniser, video):
    chain, shown = recogniser.chain, video[2].argmin()  # a row of an action
    action = int(video[2][shown])
    assert (chain.lasting[:-1] >= 1).all()
    long = replace(recogniser, chain=replace(chain, leave=chain.leave / 100))
    assert long.chain.lasting[action] == pytest.approx(100 * chain.lasting[action])
    streams = [StepStream(long) for _ in range(2)]
    for count, row in enumerate(video[0]):
        for told, stream in enumerate(streams):
            stream.observe(row)
            if told and count == shown:
                stream.correct(action)
    for told, stream in enumerate(streams):
        done = [step for step in stream.steps() if step.end < stream.seconds]
        assert [step.action for step in done] == [action] * told
    never = recogniser.config.model_copy(update={"sure_step": 1.01})  # no step is as sure
    stream = StepStream(replace(recogniser, config=never))
    assert all(stream.observe(row) for row in video[0])
    assert not [step for step in stream.steps() if step.end < stream.seconds]


def test_rows_one_by_one_give_the_temporal_network_what_all_rows_give():
    torch.manual_seed(0)
    config = RecogniserConfig(temporal_layers=4, temporal_channels=16)
    network, rows = TemporalNetwork(5, 3, config, causal=True).eval(), torch.randn(90, 5)
    with torch.inference_mode():
        whole, past = network(rows.T[None])[0].T, network.beginning()
        single = torch.tensor(np.stack([network.ahead(row, past) for row in rows.numpy()]))
        later = network(torch.cat([rows[:40], torch.randn(50, 5)]).T[None])[0].T
    torch.testing.assert_close(single, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(later[:40], whole[:40])  # no row sees those after it


def test_few_films_of_one_order_show_steps_in_another_order(tmp_path):
    """What steps leave behind tells the usual step; how rows change tells the step itself."""
    learned, checked = [[0, 1, 2, 3]] * 6, [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3]]
    splits = ["train"] * 6 + ["test"] * 3
    films = scene_films(tmp_path, learned + checked, splits)
    config = SMALL.model_copy(update={"training_steps": 300, "temporal_steps": 60})

    def seen(recogniser):
        found = []
        for place in range(6, 9):
            rows = films.timeline.videos[place].astype(np.float32)
            recognition = recogniser.recognise(rows, doubt=True)
            assert recognition.drawn.shape == (64, len(rows))
            found.append([step.action for step in recognition.steps()])
        return found

    recogniser = SegmentalRecogniser.fit(films, range(6), config=config)
    assert seen(recogniser) == checked
    assert recogniser.seen is not None
    (tried,) = recogniser.seen
    assert (tried.of_skipped, tried.of_exchanged, tried.right) == (6, 6, 6)
    assert tried.enough
    assert tried.false == 0
    recogniser.save(tmp_path)
    again = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    assert sorted(recogniser.films) == [*range(6)]
    for place, film in recogniser.films.items():
        assert [step.action for step in film.steps] == learned[place]
        assert (film.task, len(film.drawn)) == (0, 64)
    assert recogniser.held_out is not None
    assert recogniser.held_out.videos == 6
    assert recogniser.held_out.enough
    assert (recogniser.held_out.learned, recogniser.held_out.half) == (3, 2)
    assert 90 < recogniser.held_out.half_edit <= 100
    assert min(recogniser.held_out.edit, recogniser.held_out.f1_50) > 90
    for name in ("doubt", "seen", "shares", "weights", "chained", "held_out"):
        assert getattr(again, name) == getattr(recogniser, name)
    assert seen(again) == checked
    without = config.model_copy(update={"changes": 0})
    usual = SegmentalRecogniser.fit(films, range(6), config=without)
    assert usual.changes is None
    assert usual.shares == (0.0, 0.0)
    assert usual.seen is not None
    assert usual.seen[0].exchanged <= tried.exchanged


def test_arrays_of_another_precision_are_read(films, recogniser, video, tmp_path):
    recogniser.save(tmp_path)
    tensors, _ = load_tensors(tmp_path / RECOGNISER_FILE, "pt", "")
    names = [name for name in tensors if name.startswith("standard.") or "directions" in name]
    assert len(names) == 4
    doubles = {name: tensors[name].double() for name in names}
    write_tensors(tmp_path / RECOGNISER_FILE, tensors | doubles)
    found = SegmentalRecogniser.load(tmp_path, films.taxonomy).recognise(video[0])
    assert np.array_equal(found.rows, recogniser.recognise(video[0]).rows)


def test_a_recogniser_of_before_has_no_networks_of_changes(films, recogniser, video, tmp_path):
    recogniser.save(tmp_path)
    tensors, _ = load_tensors(tmp_path / RECOGNISER_FILE, "pt", "")
    kept = {name: one for name, one in tensors.items() if "changes" not in name}
    assert len(kept) < len(tensors)
    write_tensors(tmp_path / RECOGNISER_FILE, kept)
    header = json.loads((tmp_path / SETTINGS_FILE).read_text())
    for name in ("shares", "doubt", "seen", "weights", "chained", "held_out"):
        del header[name]
    for name in ("changes", "rearranged", "shares", "doubts", "drawn", "weights"):
        del header["config"][name]
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(header))
    old = SegmentalRecogniser.load(tmp_path, films.taxonomy)
    assert (old.changes, old.shares, old.seen) == (None, (0.0, 0.0), None)
    assert (old.weights, old.chained) == ((0.0, 0.0), old.temperatures)
    usual = replace(recogniser, shares=(0.0, 0.0), changes=None, weights=(0.0, 0.0))
    for doubt in (False, True):
        ours = old.recognise(video[0], doubt=doubt)
        assert np.isfinite(ours.rows).all()
        assert (ours.drawn is not None) == doubt
    assert np.array_equal(old.recognise(video[0]).rows, usual.recognise(video[0]).rows)
