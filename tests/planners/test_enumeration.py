"""Every planner that says `exact`, beside lists of all sequences of random small problems.

Plans of several lengths, and sets with a guarantee, are in any_length/test_shared_actions.py.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

from cefito.errors import ConfigError
from cefito.field.fields import incremental_field
from cefito.planners.cefito.hypotheses import CHAIN, ENERGY, Weights
from cefito.planners.chain.model import ChainModel
from cefito.planners.chain.planner import ChainPlanner
from cefito.planners.queries import Queries
from cefito.planners.shared.transitions import cheapest_paths, transition_costs
from cefito.search import Constraints
from cefito.search.constraints import UNCONSTRAINED
from cefito.search.settings import search_settings
from planners.random_chains import every_score, random_chain
from search.conftest import satisfies
from tiny_cefito import fit

KNOBS = {"train": 36, "val": 12, "test": 24, "dim": 8}
NEAR = 1e-4  # relative difference of scores that rounding explains
ACTIONS = 6  # of random chains
WEIGHTS = (ENERGY, CHAIN, Weights(energy=3.0, chain=0.7))


def constrained(generator, actions, horizon=3):
    """Any constraints together, or none."""
    some = generator.random(5) < 0.3
    one, two, three, four, five = generator.choice(actions, 5).tolist()
    step = int(generator.integers(1, horizon + 1))
    return Constraints(
        pinned=((step, one),) if some[0] else (),
        required=(two,) if some[1] else (),
        forbidden=(three,) if some[2] else (),
        before=((four, five),) if some[3] and four != five else (),
        no_repeats=bool(some[4]),
    )


def compare(counts, plans, expected, top_k):
    """Plans with the scores of everything allowed, {sequence: score}, of which they are exact."""
    counts["questions"] += 1
    counts["exact"] += plans.exact
    listed = [tuple(row) for row in plans.actions.tolist()]
    counts["wrong: not allowed or twice"] += len({*listed} & {*expected}) < len(listed)
    for name, score in zip(listed, plans.scores.tolist(), strict=True):
        own = expected.get(name, math.inf)
        counts["wrong scores"] += not math.isclose(score, own, rel_tol=NEAR, abs_tol=NEAR)
    counts["wrong orders"] += bool((np.diff(plans.scores) < 0).any())
    if plans.exact:
        best = sorted(expected.values())[:top_k]
        near = len(best) == len(listed) and np.allclose(plans.scores, best, rtol=NEAR, atol=NEAR)
        counts["wrong exact"] += not near


def attack_chain(generator, counts):
    """Several tasks that share actions, one or two members, any temperature."""
    sizes = (4, *generator.integers(1, 5, generator.integers(0, 3)))
    drawn = (generator.choice(ACTIONS, size, replace=False) for size in sizes)
    tasks = tuple(tuple(sorted(one.tolist())) for one in drawn)
    seed, scale = int(generator.integers(1 << 30)), float(10 ** generator.uniform(-1, 1))
    members = range(seed, seed + int(generator.integers(1, 3)))
    chains = (random_chain(tasks, width=3, seed=one, scale=scale) for one in members)
    planner = ChainPlanner(ChainModel(tuple(chains), float(generator.uniform(0.5, 2))))
    initial, goal = generator.standard_normal((2, 1, 3)).astype(np.float32)
    query, task = Queries(initial=initial, goal=goal), None
    every = every_score(planner.model, query, 0, tasks)
    if generator.random() < 0.4:
        task = int(generator.integers(len(tasks)))
        query = query.with_task(task)
    constraints = constrained(generator, ACTIONS) if generator.random() < 0.6 else UNCONSTRAINED
    logs = {pair: score for pair, score in every.items() if task in (None, pair[0])}
    total = np.logaddexp.reduce([*logs.values()])
    sums = defaultdict(list)
    for (_, sequence), value in logs.items():
        if satisfies(sequence, constraints):
            sums[sequence].append(value)
    allowed = {name: float(total - np.logaddexp.reduce(own)) for name, own in sums.items()}
    top_k = int(generator.choice([1, 3, 20, 300]))
    try:
        (plans,) = planner.plan(query, top_k, constraints=constraints)
    except ConfigError:
        counts["wrong refusals"] += bool(allowed)
        return
    compare(counts, plans, allowed, top_k)
    if not constraints:
        own = np.exp(-np.array([allowed[tuple(row)] for row in plans.actions.tolist()]))
        counts["wrong probabilities"] += not np.allclose(
            np.array(plans.probabilities), own, rtol=1e-3
        )
    counts["wrong probabilities"] += plans.probabilities.sum() > 1 + NEAR


def attack_graph(generator, counts):
    """Paths of random graphs from one action to another, as PKG plans."""
    size, horizon = int(generator.integers(1, 6)), int(generator.integers(2, 6))
    table = generator.integers(0, 5, (size, size)) * (generator.random((size, size)) < 0.6)
    costs = transition_costs(table, horizon=horizon, smoothing=float(generator.choice([0.0, 0.1])))
    first, last = generator.integers(0, size, 2).tolist()
    top_k = int(generator.choice([1, 5, 700]))
    between = itertools.product(range(size), repeat=horizon - 2)
    paths = [(first, *middle, last) for middle in between]
    expected = sorted(
        (round(sum(costs[pair] for pair in itertools.pairwise(path)), 6), path) for path in paths
    )[:top_k]
    found, spent = cheapest_paths(costs, first=first, last=last, horizon=horizon, count=top_k)
    counts["questions"] += 1
    counts["exact"] += 1
    values = [score for score, _ in expected]
    counts["wrong exact"] += len(found) != len(expected) or not np.allclose(
        spent, values, atol=1e-5
    )
    counts["wrong: not allowed or twice"] += len({*map(tuple, found.tolist())} & {*paths}) < len(
        found
    )


@pytest.fixture(scope="module")
def cefito(splits):
    return fit(splits, "small", **{"search.objective": "energy"}).planner


def varied(planner, generator):
    """The planner with another random field."""
    field = copy.deepcopy(planner.field)
    for weights in field.parameters():
        noise = torch.from_numpy(generator.standard_normal(tuple(weights.shape)))
        weights.data += 0.5 * noise.to(weights.dtype) / max(weights.shape, default=1) ** 0.5
    return replace(planner, incremental=incremental_field(field))


def attack_cefito(planner, windows, generator, counts):
    """All objectives, searches and numbers of tasks; steps and tasks known or not."""
    weights = WEIGHTS[generator.integers(3)]
    objective = {ENERGY: "energy", CHAIN: "chain"}.get(weights, "fitted")
    method = str(generator.choice(["exhaustive", "guided", "auto"]))
    screening = {"screening": str(generator.choice(["on", "off"]))}
    search = search_settings(
        planner.settings.search,
        **{"objective": objective, "method": method, "tasks": int(generator.integers(1, 4))},
        **screening,
    )
    planner = replace(varied(planner, generator), fitted=weights).with_search(search)
    known = bool(generator.random() < 0.4)
    query = Queries.from_windows(windows, oracle_task=known).subset(
        [int(generator.integers(len(windows)))]
    )
    constraints = UNCONSTRAINED
    if generator.random() < 0.6:
        task = int(planner.predict_tasks(query)[0])
        constraints = constrained(generator, planner.space.actions[task])
    hypotheses = planner.hypotheses.of(query, search.tasks)
    chain = None
    if weights.chain or planner.hypotheses.by_chain:
        chain = planner.chain.evidence(query)
    expected = {}
    for one in hypotheses:
        (asked,) = planner.hypotheses.problems(
            query, [one], chain, horizon=3, weights=weights, constraints=constraints
        )
        sequences = np.array([*itertools.product(range(len(asked.actions)), repeat=3)])
        ids = np.array(asked.actions)[sequences]
        ends = (torch.from_numpy(part).expand(len(ids), -1) for part in (query.initial, query.goal))
        with torch.inference_mode():
            energies = planner.field.energy(*ends, torch.from_numpy(ids)).double().numpy()
        costs = 0.0 if asked.objective.costs is None else asked.objective.costs.cost(sequences)
        scores = weights.energy * energies + costs + asked.objective.offset
        for name, score in zip(map(tuple, ids.tolist()), scores.tolist(), strict=True):
            if satisfies(name, constraints):
                expected[name] = min(score, expected.get(name, math.inf))
    top_k = int(generator.choice([1, 4, 30, 400]))
    try:
        (plans,) = planner.plan(query, top_k, constraints=constraints)
    except ConfigError:
        counts["wrong refusals"] += bool(expected)
        return
    if objective == "chain" and not constraints:  # sums over tasks; the chain's own attack has them
        counts["questions"] += 1
        return
    compare(counts, plans, expected, top_k)
    screened = screening["screening"] == "on" and plans.margin is not None
    counts["screened"] += screened
    if screened:
        best = min(expected.values())
        counts["screened, and the best found"] += bool(plans.scores[0] <= best + NEAR * abs(best))
    if method == "exhaustive" and not screened:
        counts["wrong: exhaustive and not exact"] += not plans.exact
    if plans.probabilities is not None:
        counts["wrong probabilities"] += plans.probabilities.sum() > 1 + NEAR


def attacked(attack, questions, seed, *given):
    counts, generator = Counter(), np.random.default_rng(seed)
    for _ in range(questions):
        attack(*given, generator, counts)
    print(attack.__name__, dict(counts))  # noqa: T201
    wrong = {name: count for name, count in counts.items() if "wrong" in name and count}
    assert wrong == {}
    assert counts["exact"]


@pytest.mark.parametrize("attack", [attack_chain, attack_graph])
@pytest.mark.parametrize(
    "questions", [12, pytest.param(1000, marks=pytest.mark.nightly)], ids=["some", "many"]
)
def test_lists_of_chains_and_graphs(attack, questions):
    attacked(attack, questions, questions)


@pytest.mark.parametrize(
    "questions", [12, pytest.param(1000, marks=pytest.mark.nightly)], ids=["some", "many"]
)
def test_plans_of_cefito(cefito, splits, questions):
    attacked(attack_cefito, questions, questions, cefito, splits["test"])
