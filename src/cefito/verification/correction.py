"""Corrections of recognised steps by the learned order of their task.

A step that lasted as long as two is split (`parted`), and some repetitions are exchanges
(`likelier_done`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from cefito.data.annotations import Step
from cefito.data.vocabulary import Taxonomy
from cefito.tracks.track import TimedStep, stored
from cefito.verification.order import UNUSUAL, Bools, TaskOrder, log_length

NONE = -1
"""Action of what was recognised as a step, but was none."""
_SLIP = 0.4  # as `shortest_step` of the recogniser, by which a live session leaves steps out


def parted(order: TaskOrder, steps: Sequence[Step], *, finished: bool) -> list[tuple[int, Step]]:
    """Return the steps of a film, each with its place, and in two if it lasted as long as two.

    A step is parted if its seconds are unusual, but less so for itself and a neighbour together,
    which every right video has, and which is the only usual step that this one lacks. The sum of
    both lengths has the sum of their variances.

    Args:
        order: Order of the task.
        steps: Steps in the order of their times, as they were recognised.
        finished: Whether the film is over; else an action is missing only if a later one was done.
    """
    places, parts = [order.index.get(step.action, -1) for step in steps], list[tuple[int, Step]]()
    omitted = _omitted(order, places, finished=finished)
    omitted &= (order.occurs >= order.videos) & (omitted.sum() == 1)
    for at, (step, place) in enumerate(zip(steps, places, strict=True)):
        neighbour, after = _neighbour(order, place, omitted) if place >= 0 else (NONE, False)
        cuts = [step.start, step.end]
        if neighbour != NONE and places.count(place) == 1:
            pair = [neighbour, place] if after else [place, neighbour]
            seconds, length = np.exp(order.length[pair]), log_length(*cuts)
            spread = np.hypot(*(seconds * order.spread[pair])) / seconds.sum()
            alone = (length - order.length[place]) / order.spread[place]
            if alone > UNUSUAL and abs(length - np.log(seconds.sum())) / spread < alone:
                share = float(seconds[0] / seconds.sum())
                cuts.insert(1, step.start + share * (step.end - step.start))
                omitted[neighbour] = False
        parts += [(at, replace(step, start=start, end=end)) for start, end in pairwise(cuts)]
    return parts


def _omitted(order: TaskOrder, places: Iterable[int], *, finished: bool) -> Bools:
    """Return which usual actions were not done [A], of the places of those that were."""
    omitted, done = order.usual >= 0.5, [place for place in places if place >= 0]
    omitted[done] = False
    if not finished:
        omitted &= order.earlier[:, done].any(axis=1)
    return omitted


def _neighbour(order: TaskOrder, place: int, omitted: Bools) -> tuple[int, bool]:
    """Return the omitted action that came next to another most often, and whether after it.

    It never came on the other side of it. NONE without one, or if the other is often repeated.
    """
    if order.repeated[place] >= 0.5:
        return NONE, False
    after = np.where(omitted & (order.before[:, place] == 0), order.follows[place, :-1], 0)
    before = np.where(omitted & (order.before[place] == 0), order.follows[:-1, place], 0)
    comes_after = bool(after.max() >= before.max())
    times = after if comes_after else before
    return int(times.argmax()) if times.max() > 0 else NONE, comes_after


def likelier_done(order: TaskOrder, steps: Sequence[Step], *, finished: bool) -> list[Step]:
    """Return the steps of a film with what the recogniser mistakes for a repetition corrected.

    A step that is seen again for less than `_SLIP` of its usual seconds is `NONE`. One that is seen
    twice in a row, while its neighbour never is, was exchanged with it: a step too early shows what
    no right video does, and is taken for the neighbour that usually comes first; so is one too late
    for the neighbour after it. Steps that hold two are `parted` before.
    Arguments are as of `parted`.
    """
    once = order.repeated < 0.5
    seconds = _SLIP * np.exp(order.length[once])
    shortest = dict(zip(order.actions[once].tolist(), seconds, strict=True))
    short = [step.end - step.start < shortest.get(step.action, 0) for step in steps]
    whole = {step.action for step, slip in zip(steps, short, strict=True) if not slip}
    corrected = [
        replace(step, action=NONE) if slip and step.action in whole else step
        for step, slip in zip(steps, short, strict=True)
    ]
    at = [number for number, step in enumerate(corrected) if step.action != NONE]
    places = [order.index.get(corrected[number].action, -1) for number in at]
    omitted = _omitted(order, places, finished=finished)
    for k, place in enumerate(places[1:], 1):
        if place < 0 or places[k - 1] != place:
            continue
        neighbour, after = _neighbour(order, place, omitted)
        if neighbour != NONE:
            number = at[k - 1] if after else at[k]
            corrected[number] = replace(corrected[number], action=int(order.actions[neighbour]))
            omitted[neighbour] = False
    return corrected


def corrected_steps(
    steps: Sequence[TimedStep], order: TaskOrder, taxonomy: Taxonomy, *, finished: bool
) -> tuple[tuple[TimedStep, ...], list[str]]:
    """Return recognised steps as they were likelier done, and what was seen instead, in words.

    Arguments are those of `likelier_done`; the taxonomy names its actions.
    """
    kept, notes = list[TimedStep](), list[str]()
    parts = parted(order, stored(steps), finished=finished)
    likely = likelier_done(order, [step for _, step in parts], finished=finished)
    for (place, _), likelier in zip(parts, likely, strict=True):
        whole = steps[place]
        step = whole.model_copy(update={"start": likelier.start, "end": likelier.end})
        if likelier.action == NONE:
            again = f"'{step.name}' was seen again for {step.end - step.start:.1f} s"
            notes.append(f"{again}, too short for a repetition")
            continue
        if likelier.action != step.action:
            name, seconds = taxonomy.actions[likelier.action].name, whole.end - whole.start
            seen = f"'{step.name}' was seen twice in a row and '{name}' never"
            if step.end - step.start < seconds:  # parted
                seen = f"'{step.name}' lasted {seconds:.0f} s, as it and '{name}' do together"
            notes.append(f"{seen}; most likely they were exchanged")
            step = step.model_copy(update={"action": likelier.action, "name": name})
        kept.append(step)
    return tuple(kept), notes
