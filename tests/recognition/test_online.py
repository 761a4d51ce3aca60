"""Causal networks that label each row from those so far, and the rule that keeps labels."""

from dataclasses import replace

import numpy as np
import pytest

from cefito.errors import ConfigError, DataError
from cefito.recognition.online import LabelRule, OnlineRecogniser
from cefito.recognition.settings import OnlineConfig
from cefito.recognition.stream import step_stream
from row_films import prepared_films


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return prepared_films(tmp_path_factory.mktemp("films"))


@pytest.fixture(scope="module", params=["tcn", "lstm"])
def recogniser(films, request):
    config = OnlineConfig(network=request.param, epochs=4, units=16, channels=16, layers=3)
    return OnlineRecogniser.fit(films, range(10), config=config)


@pytest.mark.parametrize("task", [None, 1])
@pytest.mark.parametrize("rule", [False, True])
def test_rows_one_by_one_are_those_of_a_whole_video(films, recogniser, rule, task):
    changes = {"rule": rule, "sure": 0.6, "shortest": 0.5}
    recogniser = replace(recogniser, config=recogniser.config.model_copy(update=changes))
    rows = films.timeline.videos[12].astype(np.float32)
    whole, stream, now = recogniser.recognise(rows, task=task), recogniser.stream(task), []
    assert stream.now.argmax() == 6
    for row in rows:
        assert stream.observe(row)
        now.append(stream.now)
    np.testing.assert_allclose(np.array(now), whole.rows, rtol=0, atol=1e-5)
    expected = [(step.action, step.start, step.end) for step in whole.steps()]
    assert [(step.action, step.start, step.end) for step in stream.steps()] == expected
    probabilities = [step.probability for step in stream.steps()]
    assert probabilities == pytest.approx([step.probability for step in whole.steps()], abs=1e-5)


def test_later_rows_change_nothing(films, recogniser):
    rows = films.timeline.videos[12].astype(np.float32)
    first = recogniser.recognise(rows[:9]).rows
    np.testing.assert_allclose(recogniser.recognise(rows).rows[:9], first, rtol=0, atol=1e-5)


def test_a_mean_segment_is_counted_with_pauses(films, recogniser):
    rows = sum(len(films.timeline.videos[place]) for place in range(10))
    segments = sum(2 * len(films.videos[place].steps) + 1 for place in range(10))
    assert float(recogniser.fitted.segment) == pytest.approx(rows / segments)


def test_it_is_trained_by_the_loss_of_a_stage(films, recogniser):
    """Whose part of changes counts, too."""
    config = recogniser.config.model_copy(update={"smoothing": 0.0})
    other = OnlineRecogniser.fit(films, range(10), config=config)
    rows = films.timeline.videos[12].astype(np.float32)
    ours, theirs = recogniser.recognise(rows).rows, other.recognise(rows).rows
    assert recogniser.config.smoothing == 0.15
    assert np.abs(np.diff(ours, axis=0)).mean() < np.abs(np.diff(theirs, axis=0)).mean()


def test_the_rule_keeps_the_last_label_while_the_next_is_unsure_and_its_segment_short():
    sure, unsure = 0.9, 0.6
    shown = [(0, unsure), (1, unsure), (1, unsure), (1, unsure), (0, sure), (0, unsure)]
    rule, rows = LabelRule(0.8, 3), []
    for label, probability in shown:
        row = np.full(3, (1 - probability) / 2)
        row[label] = probability
        rows.append(rule.kept(row))
    # two unsure rows are kept out; then the segment is long; a sure one begins at once
    assert [int(row.argmax()) for row in rows] == [0, 0, 0, 1, 0, 0]
    np.testing.assert_allclose(rows[1], [0.6, 0.2, 0.2])


def test_what_it_cannot_do_is_refused(films, recogniser):
    stream = recogniser.stream()
    for wrong in (np.zeros(7), np.zeros((1, 8)), np.full(8, np.nan)):
        with pytest.raises(DataError):
            stream.observe(wrong)
    assert stream.next_actions is None
    with pytest.raises(ConfigError, match=r"cannot tell next steps.*method=segmental"):
        step_stream(recogniser)
    with pytest.raises(ConfigError, match="cannot align steps"):
        recogniser.recognise(films.timeline.videos[12], task=0, plan=[0, 1, 2])
