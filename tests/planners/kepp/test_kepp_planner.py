import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from cefito.data import cut_windows
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import Windows, video_folds
from cefito.errors import ConfigError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Fitted, Queries
from cefito.planners.context import TrainingContext
from cefito.planners.diffusion.loss import DiffusionLoss
from cefito.planners.kepp.fitting import out_of_fold_walks, walk_graph
from cefito.planners.kepp.networks import PlanModel, StepModel
from cefito.planners.kepp.planner import KeppPlanner
from cefito.planners.kepp.settings import KeppConfig, KeppSettings
from cefito.planners.settings import load_config
from cefito.search.problem import SearchCost

TINY = {
    f"kepp.{network}.{key}": value
    for network in ("step", "plan")
    for key, value in {
        "widths": [16],
        "steps": 20,
        "sampling": 4,
        "training.optimiser.epochs": 2,
        "training.stopping.every": 1,
        "training.stopping.windows": 0,
    }.items()
} | {"kepp.folds": 2}
FOLDS = ("-fold1of2", "-fold2of2")
STEP, PLAN = StepModel.title, PlanModel.title


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple[Windows, Windows]:
    """Training and validation windows of a small embedded world, T = 3."""
    dataset = write_world(
        tmp_path_factory.mktemp("data") / "world",
        seed=0,
        knobs=WorldKnobs(train=36, val=12, test=12, dim=8),
    )
    return tuple(cut_windows(dataset, horizon=3, split=split) for split in ("train", "val"))


def tiny(**overrides: object) -> KeppSettings:
    return load_config("small", method="kepp", overrides={**TINY, **overrides}).settings


def fit(
    world: tuple[Windows, Windows],
    *,
    seed: int = 0,
    context: TrainingContext = TrainingContext(),
    **overrides: object,
) -> Fitted[KeppPlanner]:
    return KeppPlanner.fit(*world, settings=tiny(**overrides), seed=seed, context=context)


@pytest.fixture(scope="module")
def training(world) -> Fitted[KeppPlanner]:
    return fit(world)


@pytest.fixture(scope="module")
def planner(training) -> KeppPlanner:
    return training.planner


@pytest.fixture(scope="module")
def graphless(world) -> KeppPlanner:
    return fit(world, **{"kepp.knowledge": "none"}).planner


def same_weights(one: KeppPlanner, other: KeppPlanner) -> bool:
    pairs = ((one.model, other.model), (one.source.step, other.source.step))
    states = ((left.network.state_dict(), right.network.state_dict()) for left, right in pairs)
    return all(
        torch.equal(tensor, right[name]) for left, right in states for name, tensor in left.items()
    )


# out of fold


class Noting:
    """A step network that says of every query the number of training windows that it knows."""

    def __init__(self, train: Windows) -> None:
        self.train = train
        self.asked: list[Queries] = []

    def ends(self, queries: Queries) -> np.ndarray:
        self.asked.append(queries)
        return np.full((len(queries), 2), len(self.train) % len(self.train.taxonomy.actions))


@pytest.fixture
def noted(monkeypatch) -> list[tuple[Noting, str, Windows]]:
    """Instead of training, what step networks are trained on, under which name, validated on."""
    made = []

    def look(train, val, *, fold="", **_):
        made.append((Noting(train), fold, val))
        return made[-1][0], None

    monkeypatch.setattr(StepModel, "fit", look)
    return made


@pytest.mark.parametrize("folds", [2, 5])
def test_walks_of_a_window_know_nothing_of_its_video(world, noted, folds):
    train, val = world
    config = KeppConfig(folds=folds, walks=3)
    walks, results = out_of_fold_walks(train, val, config=config, seed=0, context=TrainingContext())
    assert walks.shape == (len(train), 3, 3)
    names = [f"-fold{number}of{folds}" for number in range(1, folds + 1)]
    assert [fold for _, fold, _ in noted] == names
    assert list(results) == [STEP + name for name in names]
    assert all(seen is val for _, _, seen in noted)
    told = set()
    for model, _, _ in noted:
        (queries,) = model.asked
        rows = [
            row
            for row in range(len(train))
            if any(np.array_equal(train.initial[row], initial) for initial in queries.initial)
        ]
        assert len(rows) == len(queries)
        assert not told & set(rows)
        told |= set(rows)
        assert not set(train.video[rows].tolist()) & set(model.train.video.tolist())
        assert len(model.train) + len(rows) == len(train)
        # the graph, too, is of the other videos
        seen = {pair for actions in model.train.actions.tolist() for pair in pairwise(actions)}
        ends = model.ends(queries)
        np.testing.assert_array_equal(walks[rows], walk_graph(model.train, config).between(ends))
        for walk in walks[rows].reshape(-1, 3).tolist():
            halves = [walk[0], walk[0], walk[2]]
            assert walk == halves or set(pairwise(walk)) <= seen
    assert told == set(range(len(train)))


def test_no_more_folds_than_videos(world, noted, caplog):
    train, val = world
    videos = np.unique(train.video)
    few = train.subset(np.flatnonzero(np.isin(train.video, videos[:3])))
    config = KeppConfig(folds=5)
    out_of_fold_walks(few, val, config=config, seed=0, context=TrainingContext())
    assert [fold for _, fold, _ in noted] == [f"-fold{number}of3" for number in (1, 2, 3)]
    one = train.subset(np.flatnonzero(train.video == videos[0]))
    with caplog.at_level(logging.WARNING):
        found = out_of_fold_walks(one, val, config=config, seed=0, context=TrainingContext())
    assert found is None
    assert len(noted) == 3
    assert "there is a single training video" in caplog.text


@pytest.mark.parametrize("paths", ["out-of-fold", "in-sample"])
def test_what_the_plan_network_is_told(world, monkeypatch, paths):
    train, val = world
    told = {}

    def look(*_, walks, val_walks, **__):
        told.update(walks=walks, val_walks=val_walks)
        return None, None

    monkeypatch.setattr(PlanModel, "fit", look)
    result = fit(world, **{"kepp.paths": paths})
    source = result.planner.source
    np.testing.assert_array_equal(told["val_walks"], source.walks(Queries.from_windows(val)))
    if paths == "in-sample":
        np.testing.assert_array_equal(told["walks"], source.walks(Queries.from_windows(train)))
        assert list(result.trainings) == [STEP, PLAN]
        return
    assert list(result.trainings) == [STEP, *(STEP + fold for fold in FOLDS), PLAN]
    folds, queries = video_folds(train.video, 2), Queries.from_windows(train)
    config = tiny().kepp
    for fold, name in enumerate(FOLDS):
        inside, held = (
            train.subset(np.flatnonzero(part)) for part in (folds != fold, folds == fold)
        )
        model, _ = StepModel.fit(
            inside, val, config=config.step, seed=0, context=TrainingContext(), fold=name
        )
        ends = model.ends(Queries.from_windows(held))
        np.testing.assert_array_equal(
            told["walks"][folds == fold], walk_graph(inside, config).between(ends)
        )
    assert (told["walks"] != source.walks(queries)).any()


def test_the_graph_counts_each_transition_of_a_video_once(world):
    train, _ = world
    size = len(train.taxonomy.actions)
    steps = {}
    for video, start, actions in zip(train.video, train.start, train.actions, strict=True):
        steps.setdefault(int(video), {}).update(enumerate(actions.tolist(), start=int(start)))
    expected = np.zeros((size, size), np.int64)
    for video in steps.values():
        for one, other in pairwise(video[step] for step in sorted(video)):
            expected[one, other] += 1
    np.testing.assert_array_equal(walk_graph(train, KeppConfig()).counts, expected)
    assert not walk_graph(train, KeppConfig(knowledge="ends")).counts.any()


# plans


def test_plans_are_those_of_the_parts(world, training, planner):
    _, val = world
    queries = Queries.from_windows(val)
    ends = planner.source.step.scores(queries).argmax(axis=2)[:, [0, 2]]
    walks = planner.source.graph.between(ends)
    assert (walks[:, :, [0, 2]] == ends[:, None]).all()
    scores = planner.model.scores(queries, walks, walks)
    plans = planner.plan(queries, 3)
    for plan, table in zip(plans, scores, strict=True):
        np.testing.assert_array_equal(plan.actions[0], table.argmax(axis=1))
        np.testing.assert_allclose(
            plan.energies, -table[np.arange(3), plan.actions].astype(float).sum(axis=1)
        )
        assert plan.evaluated == SearchCost(token_forwards=3 * 8, leaves=0)
        assert not plan.exact
    right = [
        (plan.actions[0] == actions).all() for plan, actions in zip(plans, val.actions, strict=True)
    ]
    assert 100 * np.mean(right) == pytest.approx(training.trainings[PLAN].scores[0])
    pairs = (ends == val.actions[:, [0, 2]]).all(axis=1)
    assert 100 * pairs.mean() == pytest.approx(training.trainings[STEP].scores[0])


def test_blocks_of_queries_are_put_together(world, planner, monkeypatch):
    queries = Queries.from_windows(world[1])
    whole = planner.plan(queries, 2)
    for module in ("planner", "networks"):
        monkeypatch.setattr(f"cefito.planners.kepp.{module}.BLOCK", 7)
    for one, other in zip(planner.plan(queries, 2), whole, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_allclose(one.energies, other.energies, rtol=1e-4, atol=1e-5)


def test_without_graph_and_ends(world, graphless):
    queries = Queries.from_windows(world[1])
    assert graphless.source is None
    assert set(graphless.parameters) == {PLAN}
    given = graphless.model.network.projection(
        *[torch.zeros(2, 0, 3, dtype=torch.int64)] * 2, torch.zeros(2, 8), torch.zeros(2, 8)
    ).given
    size = graphless.model.network.action_count
    assert not given[..., : 2 * size].any()
    (plan,) = graphless.plan(queries.subset([0]), 2)
    assert plan.evaluated == SearchCost(token_forwards=3 * 4, leaves=0)


def test_names_say_what_is_not_as_it_is_by_default(planner, graphless):
    assert planner.name == "KEPP"
    assert graphless.name == "KEPP (no graph, no ends)"
    changed = {"in-sample paths": {"paths": "in-sample"}, "ends alone": {"knowledge": "ends"}}
    for said, change in changed.items():
        assert replace(planner, config=KeppConfig(**change)).name == f"KEPP ({said})"
    both = KeppConfig(knowledge="ends", paths="in-sample")
    assert replace(planner, config=both).name == "KEPP (ends alone, in-sample paths)"
    nothing = KeppConfig(knowledge="none", paths="in-sample")
    assert replace(graphless, config=nothing).name == graphless.name


# trainings


def test_a_killed_training_goes_on_to_the_same_weights(world, planner, tmp_path):
    """In the second fold, and in the plan network."""

    class KilledError(Exception):
        pass

    context = TrainingContext(folder=tmp_path, key="a")
    validate, names = DiffusionLoss.validate, ["kepp_plan", "kepp_step"]
    names += [f"kepp_step{fold}" for fold in FOLDS]
    for killed in (6, 3):  # of two validations a training
        calls = []

        def die(self, group, calls=calls, killed=killed):
            calls.append(None)
            if len(calls) == killed:
                raise KilledError
            return validate(self, group)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DiffusionLoss, "validate", die)
            with pytest.raises(KilledError):
                fit(world, context=context)
    resumed = fit(world, context=context)
    assert all(result.resumed for result in resumed.trainings.values())
    assert same_weights(resumed.planner, planner)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with pytest.raises(RunError, match="other settings"):
        fit(world, context=context, **{"kepp.plan.ends": 3.0})


def test_equal_step_networks_are_trained_once(world, planner, tmp_path):
    context = TrainingContext(folder=tmp_path, shared=True, key="a")
    assert same_weights(fit(world, context=context).planner, planner)
    trained = len(list(tmp_path.iterdir()))
    other = fit(world, context=context, **{"kepp.paths": "in-sample"})
    assert other.trainings[STEP].resumed
    assert not other.trainings[PLAN].resumed
    assert len(list(tmp_path.iterdir())) == trained + 1
    assert same_weights(fit(world, context=context).planner, planner)


def test_another_seed_is_another_planner(world, planner):
    assert not same_weights(fit(world, seed=1).planner, planner)


def test_horizons_are_checked_before_anything_is_trained(world, monkeypatch):
    monkeypatch.setattr(StepModel, "fit", lambda *_, **__: pytest.fail("was trained"))
    with pytest.raises(ConfigError, match="horizon 3: KEPP with 4 levels"):
        fit(world, **{"kepp.plan.widths": [8, 8, 8, 8]})


# files


def load(folder: Path, **overrides: object) -> KeppPlanner:
    return KeppPlanner.load(folder, settings=tiny(**overrides))


def test_what_is_saved_gives_the_same_plans(world, planner, graphless, tmp_path):
    queries = Queries.from_windows(world[1])
    for made, overrides, files in (
        (planner, {}, ["kepp-graph", "kepp-plan", "kepp-step"]),
        (graphless, {"kepp.knowledge": "none"}, ["kepp-plan"]),
    ):
        folder = tmp_path / made.name
        folder.mkdir()
        made.save(folder)
        assert sorted(path.stem for path in folder.iterdir()) == files
        loaded = load(folder, **overrides)
        for one, other in zip(loaded.plan(queries, 2), made.plan(queries, 2), strict=True):
            np.testing.assert_array_equal(one.actions, other.actions)
            np.testing.assert_array_equal(one.energies, other.energies)
        assert loaded.describe() == made.describe()
        assert (loaded.horizon, loaded.observation_dim) == (3, 8)
        assert loaded.vocabulary == made.vocabulary


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("kepp-graph", {"counts": None}),
        ("kepp-graph", {"counts": np.zeros((3, 3), np.int64)}),
        ("kepp-graph", {"counts": np.zeros((3, 3), np.float32)}),
        ("kepp-step", {"noise": None}),
        ("kepp-step", {"mean": np.zeros(5, np.float32)}),
        ("kepp-plan", {"noise": np.zeros(4, np.float32)}),
        ("kepp-plan", {"mean": np.zeros((), np.float32)}),
    ],
)
def test_files_of_something_else(file, change, planner, tmp_path):
    planner.save(tmp_path)
    path = tmp_path / f"{file}.safetensors"
    tensors, _ = load_tensors(path, "np", "")
    tensors |= change
    write_tensors(path, {name: tensor for name, tensor in tensors.items() if tensor is not None})
    with pytest.raises(RunError, match=rf"{file}\.safetensors"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(RunError, match=rf"{file}\.safetensors"):
        load(tmp_path)


def test_parts_that_do_not_belong_together(world, planner, tmp_path):
    planner.save(tmp_path)
    ends = tuple(replace(part, actions=part.actions[:, [0, 2]]) for part in world)
    other, _ = StepModel.fit(*ends, config=tiny().kepp.step, seed=0, context=TrainingContext())
    other.save(tmp_path)
    with pytest.raises(RunError, match=r"kepp-step\.safetensors: .* not those of kepp-plan"):
        load(tmp_path)
