"""What a study will take is what an epoch of each network took, by a clock that ticks when read."""

from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from cefito.data.windows import fitting_windows
from cefito.errors import ConfigError
from cefito.evaluation import score
from cefito.evaluation.score import evaluate_planner
from cefito.planners.methods import CLASSIFIER
from cefito.planners.simple.planners import FrequentPlanner, NearestPlanner
from cefito.study import costs
from cefito.study.costs import StudyCosts, estimated_costs, recogniser_costs
from cefito.study.results import gather
from cefito.study.running import missing_trials, run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows
from cefito.training.steps import Steps, take_steps

EPOCHS = 7
SETTINGS = {"classifier_training.optimiser.epochs": EPOCHS, "classifier.hidden": [8, 16, 8]}
REST = 2  # ticks of a fit beside its one training


def made(world, out, names, **changes):
    facts = {"rows": find_rows(names), "horizons": (2,), "seeds": (0,), "settings": SETTINGS}
    return Study(dataset=world, out=out, device="cpu", **facts | changes)


@pytest.fixture
def estimate(monkeypatch):
    """Estimate a study by the clock."""

    def estimate(study):
        with monkeypatch.context() as patch:
            patch.setattr(costs, "time", SimpleNamespace(monotonic=count().__next__))
            patch.setattr(score, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # of queries
            return estimated_costs(study, missing_trials(study), workers=2)

    return estimate


def test_all_epochs_of_what_is_trained_and_what_rows_share_once(world, tmp_path, estimate):
    names, seeds = ("frequent", "frequent-true-task", "nearest"), (0, 1)
    told = estimate(made(world, tmp_path / "out", names, seeds=seeds, horizons=(2, 3)))
    steps = {
        horizon: horizon * len(fitting_windows(world, horizon=horizon)[0]) for horizon in (2, 3)
    }
    assert len(told.seconds) == 12
    for horizon in (2, 3):
        expected = EPOCHS * steps[horizon] / steps[2] + REST
        for seed in seeds:
            place = f"T = {horizon}, seed {seed}"
            found = told.seconds[f"frequent, {place}"]
            assert found == pytest.approx(expected, abs=0.5)
            assert told.seconds[f"frequent-true-task, {place}"] < 0.5
            assert told.seconds[f"nearest, {place}"] == pytest.approx(1, abs=0.5)
    assert sum(told.rows.values()) == pytest.approx(sum(told.seconds.values()))
    assert sum(told.horizons.values()) == pytest.approx(sum(told.seconds.values()))
    assert (list(told.rows), list(told.horizons)) == ([*names], ["2", "3"])
    assert told.unknown == ()


def test_what_is_done_is_not_counted(world, tmp_path, estimate):
    ours = made(world, tmp_path / "out", ("frequent", "nearest"))
    done = []
    problems = run_study(ours, each=lambda trial, seconds: done.append((trial.label, seconds)))
    assert problems == []
    assert [label for label, _ in done] == ["frequent, T = 2, seed 0", "nearest, T = 2, seed 0"]
    assert all(seconds > 0 for _, seconds in done)
    ours.trials[0].path.unlink()
    told = estimate(made(world, ours.out, ("frequent", "nearest")))
    assert list(told.seconds) == ["frequent, T = 2, seed 0"]
    assert told.seconds["frequent, T = 2, seed 0"] < 0.5


def test_every_length_and_the_run_that_predicts_it(world, tmp_path, estimate):
    ours = made(world, tmp_path / "out", ("frequent",), horizons=(2,), shortest=1)
    (told,) = estimate(ours).seconds.values()
    assert told > EPOCHS * (1 + 1 / 2)


def test_rows_that_ask_a_server_or_fail_are_named(world, tmp_path, estimate, monkeypatch):
    monkeypatch.setattr(costs, "SERVER", CLASSIFIER)  # as if frequent asked one
    told = estimate(made(world, tmp_path / "out", ("frequent", "nearest")))
    assert told.unknown == ("frequent",)
    assert told.seconds["frequent, T = 2, seed 0"] == 0
    assert told.words.endswith("; not estimated: frequent.")

    def broken(*windows, **_):
        tried.append([*map(len, windows)])
        raise ZeroDivisionError

    tried = []
    monkeypatch.setattr(costs, "WINDOWS", 9)
    monkeypatch.setattr(NearestPlanner, "fit", broken)
    assert estimate(made(world, tmp_path / "new", ("nearest",))).unknown == ("nearest",)
    assert tried == [[9, 9]]


def test_jobs_estimate_their_share_by_what_one_has_measured(world, tmp_path, estimate, monkeypatch):
    names, out, fits = ("frequent", "frequent-true-task", "nearest"), tmp_path / "out", []
    for planner in (NearestPlanner, FrequentPlanner):
        fit = planner.fit
        counted = partial(lambda fit, *given, **more: fits.append(fit) or fit(*given, **more), fit)
        monkeypatch.setattr(planner, "fit", counted)
    job = partial(made, world, out, names, seeds=(0, 1))
    evaluated = []
    counting = lambda planner, windows, **more: (  # noqa: E731
        evaluated.append(len(windows)) or evaluate_planner(planner, windows, **more)
    )
    monkeypatch.setattr(costs, "evaluate_planner", counting)
    first = estimate(job(only_seed=1, only_rows=("frequent",)))
    assert (list(first.seconds), first.kept) == (["frequent, T = 2, seed 1"], False)
    assert (len(fits), evaluated) == (1, [16, 16])  # both rows of its run
    others = estimate(job(only_rows=("frequent-true-task",)))  # its run was measured
    assert (len(others.seconds), others.kept, len(fits)) == (2, True, 1)
    assert others.seconds["frequent-true-task, T = 2, seed 1"] == pytest.approx(
        EPOCHS + REST, abs=0.5
    )
    assert "each network measured here, or by an earlier command, and most" in others.words
    whole = estimate(job())
    assert (len(whole.seconds), len(fits)) == (6, 2)
    again = estimate(job())
    assert (again.seconds, len(fits)) == (whole.seconds, 2)
    (kept,) = out.glob("costs/frequent-*-cpu/seconds.json")
    kept.write_text("{")  # damaged: measured again
    assert estimate(job(only_rows=("frequent",))).seconds.keys() == {
        "frequent, T = 2, seed 0",
        "frequent, T = 2, seed 1",
    }
    assert len(fits) == 3


def test_steps_of_recognisers(monkeypatch):
    """Of each network a few are taken; a fifth of all steps speaks for the rest."""
    now, taken = [0.0], []

    def step(name, seconds):
        now[0] += seconds
        taken.append(name)
        return weight.square().sum()

    network = torch.nn.Linear(1, 1)
    weight = network.weight

    def in_folds(context):
        with context.progress("networks", total=10 * (100 + 50)) as advance:
            for _ in range(10):
                for count, seconds in ((100, 1), (50, 4)):
                    steps = Steps(count=count, learning_rate=0.0, setting="")
                    take_steps(network, partial(step, "in_folds", seconds), steps, advance)
                now[0] += 30

    def in_a_loop(context):
        now[0] += 2
        with context.progress("loop", total=1000) as advance:
            for _ in range(1000):
                step("in_a_loop", 3)
                advance(1)

    def without_steps(context):
        now[0] += 7

    def failing(context):
        raise ConfigError("no")

    monkeypatch.setattr(costs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    fits = {fit.__name__: fit for fit in (in_folds, in_a_loop, without_steps, failing)}
    missing = [(name, f"{name} {seed}") for seed in (0, 1) for name in fits]
    told = recogniser_costs(fits, missing, "cpu", folds=2)
    whole = 10 * (100 * 1 + 50 * 4 + 30)
    assert told.seconds["in_folds 1"] == pytest.approx(2 * whole, rel=0.1)
    assert told.seconds["in_a_loop 0"] == 2 * (2 + 3 * 1000)
    assert told.rows["without_steps"] == 2 * 2 * 7
    assert {name: taken.count(name) for name in fits} == {
        "in_folds": 2 * 2 * costs._STEPS,
        "in_a_loop": costs._STEPS,
        "without_steps": 0,
        "failing": 0,
    }
    assert told.words.startswith("estimate for 8 scores: ")
    basis = "It is of a few steps of each network on this machine, without what scoring takes"
    assert told.words.endswith(f". {basis}; not estimated: failing.")


def test_words_and_what_remains():
    told = StudyCosts(
        seconds={"a": 600.0, "b": 1200.0, "c": 1800.0},
        rows={"cefito": 1800.0, "chain": 1800.0},
        horizons={"3": 3000.0, "4": 600.0},
        unknown=("llm-task",),
        workers=2,
    )
    assert told.words == (
        "estimate for 3 scores: 30 min, by 2 workers; of rows cefito 30 min, chain 30 min; of "
        "T = 3 50 min, T = 4 10 min. It is of one epoch of each network on this machine, and most "
        "trainings stop earlier; not estimated: llm-task."
    )
    # 1200 and 360 of trust, where 600 and 360 were expected: 1.625 times 3000 s
    assert told.finished("a", 1200.0) == "2 scores to go, 81 min by those done"
    assert told.finished("b", 0.0).startswith("1 score to go, ")


def test_rows_that_a_setting_does_not_reach(world, tmp_path):
    """Those that lack it, and those that plan by the chain, of the classifier's."""
    settings = {"training.optimiser.epochs": "3", "classifier.hidden": "[8, 8, 8]"}
    names, lost = ("cefito", "cefito+chain", "frequent", "nearest"), {"coverage.windows": "3"}
    for preset, by_chain in (("small", ["cefito", "cefito+chain"]), ("paper", ["cefito+chain"])):
        ours = made(world, tmp_path, names, settings=settings | lost, preset=preset)
        assert ours.unreached == {
            "training.optimiser.epochs": ["frequent", "nearest"],
            "classifier.hidden": [*by_chain, "nearest"],
            "coverage.windows": [*names],
        }
        assert gather(ours).settings == settings
    predicted = {"any_length_training.optimiser.epochs": "3"}  # of the run that tells the length
    ours = made(world, tmp_path, ["chain"], horizons=(3,), shortest=2, settings=predicted)
    assert gather(ours).settings == predicted
