"""Films in the order in which their labels are expected to help, and the parts to look at first."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cefito.data.vocabulary import Action, Task, Taxonomy
from cefito.inference.next_films import (
    FilmToLabel,
    LabelledFilms,
    Stretch,
    mean_of,
    ordered,
    stretches_of,
)
from cefito.inference.proposals import doubt
from cefito.inference.recordings import Recording
from cefito.recognition.classifier import Standard
from cefito.recognition.recogniser import Recognition
from cefito.tracks import TimedStep, Track

ACTIONS = tuple(Action(number, name) for number, name in enumerate(("boil", "pour", "cut")))
TAXONOMY = Taxonomy(
    "films",
    tuple(Task(number, name, (0, 1, 2)) for number, name in enumerate(("tea", "toast", "jam"))),
    ACTIONS,
)
LENGTH = 240


def seen(seed):
    """Rows of a film in which something happens that no film of another seed shows."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.standard_normal((LENGTH // 24, 40)), 24, axis=0).astype(np.float32)


LABELLED = seen(0), seen(1)


def labelled(films=LABELLED, tasks=(2, 1, 0)):
    standard = Standard.of(list(films), 40)
    means = np.stack([mean_of(rows, standard) for rows in films])
    return LabelledFilms(standard, means, np.array(tasks))


def recognition(sure, task):
    """One step of which each row is as sure as the probabilities [n] say."""
    rows = np.repeat((1 - np.asarray(sure))[:, None] / 3, 4, axis=1)
    rows[:, 0] = sure
    tasks = np.eye(3)[task]
    return Recognition(rows, np.zeros((len(rows), 3)), tasks, 1.0, TAXONOMY)


def film(name, rows, *, sure=0.6, task=0, among=None):
    recognised = recognition(np.full(len(rows), sure), task)
    return FilmToLabel.of(Recording(name, "", rows, 1.0), recognised, among or labelled())


def names(films, among=None):
    return [facts.film for _, facts in ordered(films, among or labelled())]


def test_a_film_that_repeats_a_labelled_one_comes_last():
    films = [film("again", LABELLED[1], sure=0.3), film("a", seen(2)), film("b", seen(3), sure=0.5)]
    order = ordered(films, labelled())
    assert [facts.film for _, facts in order] == ["b", "a", "again"]
    last = order[-1][1]
    assert (last.help, last.new) == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))  # type: ignore[comparison-overlap]
    assert last.why == "70 % unsure, 0 % new, 2 labelled films of its task"


def test_a_film_of_a_task_without_labels_comes_first():
    films = [film("tea", seen(2), sure=0.3), film("jam", seen(3), sure=0.9, task=2)]
    (_, first), (_, second) = ordered(films, labelled())
    assert (first.film, first.help, first.labelled) == ("jam", first.new, 0)
    assert first.why.endswith("no labelled film of its task")
    assert (second.unsure, second.labelled) == (pytest.approx(0.7), 2)  # type: ignore[comparison-overlap]
    assert second.help == pytest.approx(0.7 * second.new)


def test_of_films_that_are_alike_one_comes_early():
    films = [film("a", seen(2), sure=0.2), film("twin", seen(2), sure=0.2), film("b", seen(3))]
    order = ordered(films, labelled())
    assert [facts.film for _, facts in order] == ["a", "b", "twin"]
    assert order[2][1].new == pytest.approx(0, abs=1e-6)
    helps = [facts.help for _, facts in order]
    assert helps == sorted(helps, reverse=True)


def test_a_chosen_film_is_one_of_its_task():
    films = [film("a", seen(2), task=2, sure=0.9), film("b", seen(3), task=2, sure=0.9)]
    (_, first), (_, second) = ordered(films, labelled())
    assert {first.film, second.film} == {"a", "b"}
    assert (first.help, second.help) == (first.new, pytest.approx(0.1 * second.new))


def test_new_is_the_angle_to_the_labelled_film_that_is_most_alike():
    rows = np.concatenate([LABELLED[0][: LENGTH // 2], seen(2)[: LENGTH // 2]])
    half, new = (ordered([film("x", one)], labelled())[0][1] for one in (rows, seen(2)))
    assert 0.1 < half.new < new.new <= 1
    assert half.help == pytest.approx(half.new * 0.4)
    standard = labelled().standard
    means = [standard.scaled(one).mean(axis=0) for one in (rows, *LABELLED)]
    lengths = [np.sqrt(mean @ mean + 0.01 * len(mean)) for mean in means]
    cosines = [
        (means[0] @ mean + 0.01 * len(mean)) / lengths[0] / length
        for mean, length in zip(means[1:], lengths[1:], strict=True)
    ]
    assert half.new == pytest.approx(1 - max(cosines), abs=1e-5)


def test_films_that_help_alike_keep_their_order():
    films = [film(name, LABELLED[0]) for name in "bca"]
    assert names(films) == ["b", "c", "a"]
    assert [facts.film for _, facts in ordered(films, None)] == ["b", "c", "a"]


def test_one_film_and_none():
    assert names([film("a", seen(2))]) == ["a"]
    assert ordered([], labelled()) == ordered([], None) == []
    alone = labelled([seen(0)], (1, 0, 0))
    assert names([film("again", seen(0), among=alone), film("a", seen(2), among=alone)], alone) == [
        "a",
        "again",
    ]


def test_without_labelled_films_the_least_sure_comes_first():
    films = [film("sure", seen(2), sure=0.9), film("unsure", seen(3), sure=0.4)]
    (_, first), (_, second) = ordered(films, None)
    assert (first.film, second.film) == ("unsure", "sure")
    assert (first.help, first.new, first.labelled) == (pytest.approx(0.6), None, None)  # type: ignore[comparison-overlap]
    assert first.why == "60 % unsure"
    spans = ((0, 1, 0.2), (1, 4, 0.6))
    steps = tuple(TimedStep(name="a", start=s, end=e, probability=p) for s, e, p in spans)
    track = Track(video="x", task="tea", seconds=4, task_probability=0.5, steps=steps)
    assert doubt(track) == pytest.approx(1 - 0.5 * (0.2 + 3 * 0.6) / 4)  # long steps count more


def test_a_film_at_another_rate_is_the_same_film():
    fast = Recording("fast", "", seen(0).repeat(4, axis=0), 4.0)
    recognised = recognition(np.full(4 * LENGTH, 0.6), 0)
    made = FilmToLabel.of(fast, recognised, labelled())
    assert ordered([made], labelled())[0][1].new == pytest.approx(0, abs=1e-6)


def test_the_parts_to_look_at_are_where_labels_are_alike_probable():
    sure = np.full(LENGTH, 0.9)
    sure[30:60] = 0.3
    sure[150:180] = 0.5
    found = stretches_of(recognition(sure, 0))
    assert [(part.start, part.end) for part in found] == [(30, 60), (150, 180)]
    assert [part.unsure for part in found] == pytest.approx([0.7, 0.5])
    assert [part.words for part in found] == ["0:30-1:00", "2:30-3:00"]


def test_at_most_three_parts_that_do_not_overlap_and_none_of_what_is_sure():
    for count in (1, 5, 60, 240, 1000):
        found = stretches_of(recognition(np.full(count, 0.5), 0))
        assert 1 <= len(found) <= 3
        assert all(part.end <= after.start for part, after in pairwise(found))
        assert max(part.end - part.start for part in found) <= 30
    assert stretches_of(recognition(np.full(100, 0.97), 0)) == ()
    assert Stretch(start=65, end=95.4, unsure=1).words == "1:05-1:35"
