import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cefito.data.windows import video_folds
from cefito.planners.base import Queries
from cefito.planners.diffusion.planner import sampled_scores
from cefito.planners.kepp import planner as planner_module
from cefito.planners.kepp.method import KeppConfig, KeppSettings
from cefito.planners.kepp.planner import KeppPlanner, StepModel, WalkGraph
from cefito.planners.shared.transitions import counted_transitions
from cefito.search.problem import SearchCost
from cefito.training.trainer import TrainingContext
from planners.small_methods import small_method

KNOBS = {"train": 36, "val": 12, "test": 12, "dim": 8}
SIZES = {
    "widths": [16],
    "steps": 20,
    "sampling": 4,
    "training.optimiser.epochs": 2,
    "training.stopping.every": 1,
    "training.stopping.windows": 0,
}
TINY = {f"kepp.{part}.{key}": value for part in ("step", "plan") for key, value in SIZES.items()}
FOLDS = ("-fold1of2", "-fold2of2")
STEP, PLAN = StepModel.title, KeppPlanner.title
tiny, fit = small_method("kepp", TINY | {"kepp.folds": 2})


@pytest.fixture(scope="module")
def training(world):
    return fit(world)


@pytest.fixture(scope="module")
def planner(training):
    return training.planner


def test_no_more_folds_than_videos(world, monkeypatch, caplog):
    made, walks = [], np.zeros((1, 3, 3), np.int64)

    def look(*_, suffix, **__):
        made.append(suffix)
        step = SimpleNamespace(walks=lambda queries: walks.repeat(len(queries), axis=0))
        return step, {STEP + suffix: None}

    monkeypatch.setattr(StepModel, "train", look)
    (train, val), settings = world, KeppSettings(kepp=KeppConfig(folds=5, walks=3))
    videos = np.unique(train.video)
    few = train.subset(np.flatnonzero(np.isin(train.video, videos[:3])))
    planner_module._out_of_fold_walks(few, val, settings, seed=0)
    assert made == [f"-fold{number}of3" for number in (1, 2, 3)]
    one = train.subset(np.flatnonzero(train.video == videos[0]))
    with caplog.at_level(logging.WARNING):
        assert planner_module._out_of_fold_walks(one, val, settings, seed=0) == (None, {})
    assert len(made) == 3
    assert "there is a single training video" in caplog.text


@pytest.mark.parametrize("paths", ["out-of-fold", "in-sample"])
def test_what_the_plan_network_is_told(world, monkeypatch, paths):
    train, val = world
    told = {}

    def look(train, val, settings, walks, val_walks, config, step, **_):
        told.update(walks=walks, val_walks=val_walks)
        return KeppPlanner((), step.shape, config, step), {PLAN: None}

    monkeypatch.setattr(KeppPlanner, "train", look)
    result = fit(world, **{"kepp.paths": paths})
    step = result.planner.step
    counts = counted_transitions(train, len(train.taxonomy.actions))
    np.testing.assert_array_equal(step.graph.counts, counts)
    np.testing.assert_array_equal(told["val_walks"], step.walks(Queries.from_windows(val)))
    if paths == "in-sample":
        np.testing.assert_array_equal(told["walks"], step.walks(Queries.from_windows(train)))
        assert list(result.trainings) == [STEP, PLAN]
        return
    assert list(result.trainings) == [STEP, *(STEP + fold for fold in FOLDS), PLAN]
    folds, queries = video_folds(train.video, 2), Queries.from_windows(train)
    for fold, name in enumerate(FOLDS):
        inside, held = (train.subset(np.flatnonzero((folds == fold) == side)) for side in (0, 1))
        given: dict[str, Any] = {"seed": 0, "context": TrainingContext(), "suffix": name}
        step_of_fold, _ = StepModel.train(inside, val, tiny(), **given)
        ends = step_of_fold.ends(Queries.from_windows(held))
        counts = counted_transitions(inside, len(train.taxonomy.actions))
        walks = WalkGraph(counts, 3, 2).between(ends)
        np.testing.assert_array_equal(told["walks"][folds == fold], walks)
    assert (told["walks"] != step.walks(queries)).any()


def test_plans_are_those_of_the_parts(world, training, planner):
    _, val = world
    queries = Queries.from_windows(val)
    ends = sampled_scores(planner.step, queries).argmax(axis=2)[:, [0, 2]]
    walks = planner.step.graph.between(ends)
    assert (walks[:, :, [0, 2]] == ends[:, None]).all()
    scores = sampled_scores(planner, queries, walks)
    plans = planner.plan(queries, 3)
    for plan, table in zip(plans, scores, strict=True):
        np.testing.assert_array_equal(plan.actions[0], table.argmax(axis=1))
        np.testing.assert_allclose(
            plan.energies, -table[np.arange(3), plan.actions].astype(float).sum(axis=1)
        )
        assert plan.evaluated == SearchCost(token_forwards=3 * 8, leaves=0)
        assert not plan.exact
    right = (np.stack([plan.actions[0] for plan in plans]) == val.actions).all(axis=1)
    assert 100 * right.mean() == pytest.approx(training.trainings[PLAN].scores[0])
    pairs = (ends == val.actions[:, [0, 2]]).all(axis=1)
    assert 100 * pairs.mean() == pytest.approx(training.trainings[STEP].scores[0])
