import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.planners.method import Method
from cefito.planners.registry import METHODS
from cefito.planners.simple.nearest import NearestPlanner
from cefito.study import estimate
from cefito.study.estimate import estimate_seconds
from cefito.study.study import Study, run_study
from cefito.study.variants import ROWS, PlannerVariant, find_rows
from cefito.training import trainer
from tiny_runs import TINY_RUN

SETTINGS = TINY_RUN | {
    "training.optimiser.epochs": 40,
    "training.stopping.windows": 5,
    "training.optimiser.batch_size": 8,
    "classifier_training.optimiser.epochs": 50,
    "classifier_training.optimiser.batch_size": 8,
    "chain.width": 8,
    "search.fitting_windows": 10,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(train=24, val=12, test=12, dim=8),
    )


def study(world, out, names=("frequent",), **changes):
    return Study(
        **{
            "dataset": world,
            "out": out,
            "rows": find_rows(names),
            "horizons": (2,),
            "seeds": (0,),
            "preset": "paper",
            "settings": SETTINGS,
            "device": "cpu",
            **changes,
        }
    )


def test_an_estimate_trains_little_and_leaves_nothing(world, tmp_path, monkeypatch):
    steps, step = [], trainer._Training._step
    monkeypatch.setattr(
        trainer._Training, "_step", lambda self, *rest: (steps.append(self), step(self, *rest))[1]
    )
    assert (
        estimate_seconds(
            study(
                world, tmp_path / "out", ("nearest", "frequent", "cefito-guided", "cefito-energy")
            )
        )
        > 0
    )
    assert list(tmp_path.iterdir()) == []
    # classifier twice, chain, field; rows of one run share it
    assert len({id(step) for step in steps}) == 4
    assert len(steps) <= 4 * estimate._STEPS


def test_nothing_is_missing(world, tmp_path):
    ours = study(world, tmp_path / "out", ("nearest",))
    assert run_study(ours) == []
    assert estimate_seconds(ours) == 0


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only in training (10 s a step), validation (100 s), planning (1 s)."""
    now, step, validate = [0.0], trainer._Training._step, estimate._Few.validate

    def passing(seconds, call):
        def slow(*rest, **more):
            now[0] += seconds
            return call(*rest, **more)

        return slow

    def plan(self, queries, top_k, **_):
        now[0] += len(queries)
        return []

    def validating(self, group):
        before = now[0]
        validate(self, group)
        now[0], self.validating = before + 100, 100.0
        return {"score": 0.0}

    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(trainer._Training, "_step", passing(10, step))
    monkeypatch.setattr(estimate._Few, "validate", validating)
    monkeypatch.setattr("cefito.planners.simple.frequent.FrequentPlanner.plan", plan)
    monkeypatch.setattr("cefito.planners.cefito.planner.CefitoPlanner.plan", plan)
    return now


def count(world, split):
    return len(cut_windows(world, horizon=2, split=split))


def test_steps_validations_and_queries_add_up(clock, world, tmp_path):
    training = 10 * 50 * -(-count(world, "train") // 8) + 100 * 50
    planning = count(world, "test")
    assert estimate_seconds(study(world, tmp_path)) == pytest.approx(training + planning)
    slower = {
        **SETTINGS,
        "classifier_training.optimiser.epochs": 100,
        "classifier_training.stopping.every": 30,
    }
    assert estimate_seconds(study(world, tmp_path, settings=slower)) == pytest.approx(
        10 * 100 * -(-count(world, "train") // 8) + 100 * 4 + planning
    )
    assert estimate_seconds(study(world, tmp_path, seeds=(0, 1, 2))) == pytest.approx(
        3 * (training + planning)
    )
    assert estimate_seconds(study(world, tmp_path, sample=7)) == pytest.approx(training + 7)
    both = estimate_seconds(study(world, tmp_path, ("frequent", "frequent-true-task")))
    assert both == pytest.approx(training + 2 * planning)


def test_equal_trainings_are_counted_once(clock, world, tmp_path):
    frequent, field = (
        estimate_seconds(study(world, tmp_path, (name,))) for name in ("frequent", "cefito-guided")
    )
    both = estimate_seconds(study(world, tmp_path, ("cefito-guided", "frequent")))
    assert both == pytest.approx(field + count(world, "test"))
    assert both < frequent + field
    assert estimate_seconds(
        study(world, tmp_path, ("cefito-guided", "cefito-no-energy"))
    ) == pytest.approx(both)


def test_trained_runs_and_scores_are_not_counted(clock, world, tmp_path):
    few = {**SETTINGS, "classifier_training.optimiser.epochs": 1}
    ours = study(world, tmp_path / "out", settings=few)
    (cell,), folder = ours.cells(), tmp_path / "out"
    whole = estimate_seconds(ours)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "cefito.planners.simple.frequent.FrequentPlanner.plan", lambda *_, **__: 1 / 0
        )
        assert "ZeroDivisionError" in run_study(ours)[0]  # trained, but not scored
    assert estimate_seconds(ours) == pytest.approx(count(world, "test"))
    run = cell.run_folder(ours) / "run.json"
    run.write_text(run.read_text().replace('"finished": true', '"finished": false'))
    assert estimate_seconds(ours) == pytest.approx(whole)
    run.write_text("[")
    assert estimate_seconds(ours) == pytest.approx(whole)
    assert sorted(path.name for path in folder.iterdir()) == ["T2"]


def test_more_epochs_take_longer(world, tmp_path):
    """By the real clock, which other processes disturb."""
    longer = {**SETTINGS, "classifier_training.optimiser.epochs": 1000}
    assert (
        estimate_seconds(study(world, tmp_path, settings=longer))
        > 2 * estimate_seconds(study(world, tmp_path))
        > 0
    )


def test_planners_that_fail_take_no_time(world, tmp_path, monkeypatch):
    class Fails(NearestPlanner):
        @classmethod
        def fit(cls, *_, **__):
            raise ZeroDivisionError

    class FailsLater(NearestPlanner):
        def plan(self, *_, **__):
            raise ZeroDivisionError

    monkeypatch.setitem(METHODS, "fails", Method(name="fails", planner=Fails))
    monkeypatch.setitem(METHODS, "fails-later", Method(name="fails-later", planner=FailsLater))
    rows = tuple(
        PlannerVariant(name=name, title=name, method=name) for name in ("fails", "fails-later")
    )
    assert estimate_seconds(study(world, tmp_path, rows=rows[:1])) == 0
    assert 0 < estimate_seconds(study(world, tmp_path, rows=(*rows, ROWS["nearest"]))) < 60


def test_what_cannot_be(world, tmp_path):
    with pytest.raises(ConfigError, match="no preset 'huge'"):
        estimate_seconds(study(world, tmp_path, preset="huge"))
