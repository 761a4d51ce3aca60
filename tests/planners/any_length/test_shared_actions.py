"""Tasks that share actions, by brute force: one probability for one plan, and `exact` is true."""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from rapidfuzz.distance import Levenshtein

from cefito.data.readers.custom import prepare_custom
from cefito.data.windows import fitting_windows
from cefito.errors import ConfigError
from cefito.evaluation.conformal import calibrate_run
from cefito.inference.answer import answer
from cefito.inference.sets import LARGEST_SET
from cefito.parts.coverage import Condition
from cefito.planners.any_length.planner import AnyLengthPlanner
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.search.constraints import UNCONSTRAINED, Constraints
from tiny_runs import TINY_LENGTHS, small_run

TASKS = ((0, 1, 2, 3, 4), (2, 3, 4, 5, 6), (0, 1, 2, 4, 6))
ACTIONS = 7
WIDTH = 4
LEAST = 1e-9  # probabilities below are not compared


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three tasks of five actions each, of which every one but one is of several."""
    generator, folder = np.random.default_rng(0), tmp_path_factory.mktemp("shared") / "source"
    folder.mkdir()
    tasks = [{"id": n, "name": f"t{n}", "actions": list(own)} for n, own in enumerate(TASKS)]
    actions = [{"id": number, "name": f"a{number}"} for number in range(ACTIONS)]
    text = json.dumps({"dataset": "shared", "tasks": tasks, "actions": actions})
    (folder / "taxonomy.json").write_text(text)
    count, lines = 0, []
    for video in range(36):
        own = generator.choice(TASKS[video % 3], size=generator.integers(3, 7)).tolist()
        steps = [[2.0 * place, 2.0 * place + 1, action] for place, action in enumerate(own)]
        split = ("train", "train", "val")[video // 3 % 3]
        facts = {"video_id": f"v{video}", "split": split, "task_id": video % 3, "steps": steps}
        lines.append(json.dumps(facts))
        count += len(steps)
    (folder / "videos.jsonl").write_text("\n".join(lines))
    rows = generator.standard_normal((2, count, WIDTH)).astype(np.float32)
    np.savez(folder / "features.npz", start=rows[0], end=rows[1])
    return prepare_custom(folder, folder.parent / "data")


@pytest.fixture(scope="module")
def fitted(data):
    settings = load_config("small", method="any-length", overrides=TINY_LENGTHS).settings
    train, val = fitting_windows(data, horizon=3, shortest=1)
    return AnyLengthPlanner.fit(train, val, settings=settings, seed=0).planner


def varied(planner, generator):
    """The planner with other weights, from nearly uniform to nearly certain ones."""
    networks, scale = copy.deepcopy(planner.model.networks), 10 ** generator.uniform(-1, 0.7)
    for network in networks:
        for weights in network.parameters():
            noise = torch.from_numpy(generator.standard_normal(tuple(weights.shape)))
            width = weights.shape[-1] if weights.ndim else 1
            weights.data = weights.data + scale * noise.to(weights.dtype) / width
    model = copy.copy(planner.model)
    object.__setattr__(model, "networks", networks)
    return replace(planner, model=model)


@torch.inference_mode()
def enumerated(planner, query):
    """Probability of every sequence of every length."""
    sums = defaultdict(float)
    for part in planner.weighted_scores(query):
        scores = part.scores
        for task, own in enumerate(TASKS):
            if query.tasks is not None and task != query.tasks[0]:
                continue
            every = torch.tensor(list(product(own, repeat=scores.horizon)))
            states = scores.states.find(torch.full((len(every),), task), every)
            logs = scores.scores(states[None]).double()[0] - scores.log_partition().double()
            for sequence, log in zip(every.tolist(), logs.tolist(), strict=True):
                sums[tuple(sequence)] += np.exp(log + float(part.log_weight))
    return dict(sums)


def asked(generator):
    start, goal = generator.standard_normal((2, WIDTH)).astype(np.float32)
    query = Queries.partial(
        size=WIDTH,
        initial=start,
        goal=goal if generator.random() < 0.6 else None,
        done=generator.integers(0, ACTIONS, 2).tolist() if generator.random() < 0.3 else None,
    )
    return query.with_task(int(generator.integers(3))) if generator.random() < 0.25 else query


def constrained(generator):
    if generator.random() < 0.5:
        return UNCONSTRAINED
    one, two, three = generator.integers(0, ACTIONS, 3).tolist()
    return [
        Constraints(forbidden=(one,)),
        Constraints(required=(one,)),
        Constraints(pinned=((int(generator.integers(1, 4)), one),)),
        Constraints(no_repeats=True, before=((one, two),) if one != two else ()),
        Constraints(forbidden=(one,), required=(three,) if three != one else ()),
    ][generator.integers(5)]


def satisfies(sequence, constraints):
    places = {action: place for place, action in enumerate(sequence)}
    return (
        not {*sequence} & {*constraints.forbidden}
        and {*constraints.required} <= {*sequence}
        and all(len(sequence) >= n and sequence[n - 1] == a for n, a in constraints.pinned)
        and (len(places) == len(sequence) or not constraints.no_repeats)
        and not any(
            second in sequence[: places.get(first, 0)] for first, second in constraints.before
        )
    )


def attack(fitted, generator, counts):
    """One question, compared with the list of all sequences."""
    shortest, longest = [(1, 3), (1, 1), (2, 2), (2, 3)][generator.integers(4)]
    planner = varied(fitted, generator).with_lengths(shortest, longest)
    query = asked(generator)
    every = enumerated(planner, query)
    total = sum(every.values())
    counts["questions"] += 1
    counts["sums that are not 1"] += abs(total - 1) > 1e-4

    # log_probabilities and lists agree, and are those of the enumeration
    names = list(every)
    chosen = [names[place] for place in generator.integers(0, len(names), 8)]
    chosen += [tuple(generator.integers(0, ACTIONS, 3).tolist()) for _ in range(4)]
    rows = np.array([[*name, -1, -1][:3] for name in chosen])
    many = query.subset([0] * len(rows))
    found = np.exp(planner.log_probabilities(many, rows))
    expected = np.array([every.get(name, 0) for name in chosen])
    wrong = ~np.isclose(found, expected, rtol=1e-3, atol=LEAST)
    counts["probabilities"] += len(rows)
    counts["wrong probabilities"] += int(wrong.sum())
    pairs = planner.first_pairs(query)[0]
    sums = np.zeros_like(pairs)
    for name, value in every.items():
        sums[name[0], name[1] if len(name) > 1 else ACTIONS] += value
    counts["wrong first pairs"] += not np.allclose(pairs, sums, atol=1e-5)
    marginals, steps = planner.marginals(query), np.zeros((longest, ACTIONS))
    for name, value in every.items():
        steps[np.arange(len(name)), name] += value
    counts["wrong marginals"] += not np.allclose(marginals.steps[0], steps, atol=1e-5)
    tasks = np.exp(planner.log_tasks(query))
    counts["wrong marginals"] += not np.allclose(marginals.tasks, tasks, rtol=1e-4)

    constraints, top_k = constrained(generator), int(generator.choice([1, 3, 20, 64, 101]))
    allowed = {name: value for name, value in every.items() if satisfies(name, constraints)}
    try:
        (plans,) = planner.plan(query, top_k, constraints=constraints)
    except ConfigError:
        counts["wrong refusals"] += bool(allowed)
        return
    listed = [tuple(plan.tolist()) for plan in plans.sequences]
    counts["plans that are not allowed"] += not {*listed} <= {*allowed}
    if not constraints:
        own = np.array([every[name] for name in listed])
        near = np.isclose(plans.probabilities, own, rtol=1e-3, atol=LEAST)
        counts["wrong probabilities"] += int((~near).sum())
        again = planner.log_probabilities(
            query.subset([0] * len(listed)), np.array([[*name, -1, -1][:3] for name in listed])
        )
        near = np.isclose(np.exp(again), plans.probabilities, rtol=1e-4, atol=LEAST)
        counts["lists that differ from log_probabilities"] += not near.all()
    counts["exact"] += plans.exact
    if plans.exact:
        likely = [allowed[name] for name in listed if allowed[name] > LEAST]
        outside = [value for name, value in allowed.items() if name not in {*listed}]
        better = likely and outside and max(outside) > min(likely) * np.exp(1e-4)
        counts["wrong exact"] += bool(better)
        counts["wrong exact"] += len(listed) < min(top_k, len(allowed))


def attacked(fitted, questions, seed):
    counts, generator = Counter(), np.random.default_rng(seed)
    for _ in range(questions):
        attack(fitted, generator, counts)
    print(dict(counts))  # noqa: T201
    return {name: count for name, count in counts.items() if " that " in name or "wrong" in name}


def test_a_sample_of_questions(fitted):
    wrong = attacked(fitted, 6, seed=0)
    assert not any(wrong.values()), wrong


@pytest.mark.nightly
def test_many_questions(fitted):
    wrong = attacked(fitted, 1000, seed=1)
    assert not any(wrong.values()), wrong


@pytest.fixture(scope="module")
def calibrated(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated") / "run"
    given: dict[str, Any] = {"overrides": TINY_LENGTHS, "shortest": 1}
    run = small_run(data, folder, "any-length", **given)
    calibrate_run(run, folds=0)
    return open_run(folder)


def attack_sets(run, generator, counts):
    """Sets of plans and of first steps, beside the probabilities of all sequences."""
    steps = int(generator.integers(0, 4))
    run = run.with_steps(steps, steps) if steps else run
    query = asked(generator)
    level = float(generator.choice([0.5, 0.6, 0.7, 0.8]))
    every = enumerated(run.planner, query)
    try:
        sets = answer(run, query, coverage=level, top_k=2).sets
    except ConfigError:  # of this condition too few videos
        counts["not calibrated"] += 1
        return
    counts["sets"] += 1
    goal, done = bool(query.known[0, 1]), query.done is not None
    condition = Condition(steps=steps or None, goal=goal, done=done, task=query.tasks is not None)
    found, place = run.calibrated().of(condition, level, place="run")
    for name, length in (("plans", 9), ("next_step", 1), ("next_two", 2)):
        part, thresholds = getattr(sets, name), getattr(found, name)
        if part is None or part.size is None or part.size > LARGEST_SET:
            continue
        sums = defaultdict(float)
        for sequence, value in every.items():
            sums[sequence[:length]] += value
        limit = -np.inf if thresholds[place] is None else np.exp(-thresholds[place])
        listed = {tuple(one.actions): one.probability for one in part.steps}
        counts["listed"] += len(listed)
        best = max(sums.values())
        for sequence, value in sums.items():
            inside = value >= limit * (1 + 1e-3) or value >= best * (1 + 1e-3)
            outside = value < limit * (1 - 1e-3) and value < best * (1 - 1e-3)
            counts["wrong sets"] += (inside and sequence not in listed) or (
                outside and sequence in listed
            )
        near = [np.isclose(one, sums[name], rtol=1e-3, atol=LEAST) for name, one in listed.items()]
        counts["wrong probabilities"] += near.count(False)


@pytest.mark.parametrize(
    "questions", [6, pytest.param(300, marks=pytest.mark.nightly)], ids=["some", "many"]
)
def test_sets_with_a_guarantee(calibrated, questions):
    counts, generator = Counter(), np.random.default_rng(questions)
    for _ in range(questions):
        attack_sets(calibrated, generator, counts)
    print(dict(counts))  # noqa: T201
    assert counts["sets"] > questions / 3
    assert (counts["wrong sets"], counts["wrong probabilities"]) == (0, 0)


def test_plans_by_the_least_expected_edit_distance(fitted):
    planner, generator = replace(fitted, edit=True), np.random.default_rng(2)
    for _ in range(4):
        query = asked(generator)
        every = enumerated(planner, query)
        likely = sorted(every, key=every.__getitem__, reverse=True)[:64]
        weights = np.array([every[name] for name in likely])
        (plans,) = planner.plan(query, 20)
        assert not plans.exact
        assert (np.diff(plans.scores) >= 0).all()
        for plan, score in zip(plans.sequences, plans.scores, strict=True):
            distances = [Levenshtein.normalized_distance(plan.tolist(), name) for name in likely]
            assert score == pytest.approx(weights @ distances / weights.sum(), abs=1e-4)
