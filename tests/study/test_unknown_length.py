"""Studies of windows of all lengths of a range, which planners are not told."""

import json

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.evaluation import evaluate_planner
from cefito.planners.any_length.planner import AnyLengthPlanner
from cefito.planners.any_length.predicted import PredictedLengthPlanner
from cefito.planners.base import Planner
from cefito.runs.run import open_run
from cefito.study.results import RESULTS, Results, gather
from cefito.study.running import missing_trials, run_study
from cefito.study.study import Study, check_study
from cefito.study.tables import result_tables
from cefito.study.trials import ROWS, find_rows, read_trial
from tiny_runs import TINY_LENGTHS, TINY_RUN, as_arguments, snapshot

SIMPLE = {key: value for key, value in TINY_RUN.items() if key.startswith("chain")}
SIMPLE |= {"chain.members": 1, "pkg.training.optimiser.epochs": 1}
SETTINGS = TINY_RUN | TINY_LENGTHS | SIMPLE
COSTLY = ROWS["nearest"].model_copy(
    update={"name": "nearest-costly", "title": "nearest, on a sample", "exhaustive": True}
)


def made(world, out, names=("any-length", "chain", "nearest", "pkg"), **changes):
    given = {"rows": (*find_rows(names), COSTLY), "horizons": (3,), "shortest": 1, "seeds": (0,)}
    given |= {"settings": SETTINGS, "preset": "small", "device": "cpu"}
    given |= {"costly": 1, "costly_sample": 20}
    return Study(dataset=world, out=out, **{**given, **changes})


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    """A finished study, not to be changed."""
    ours = made(world, tmp_path_factory.mktemp("study") / "out")
    assert run_study(ours) == []
    gather(ours).write(ours.out / RESULTS)
    return ours


def trial(study, name):
    return next(each for each in study.trials if each.row.name == name)


@pytest.mark.nightly
def test_rows_plan_the_length_that_the_any_length_run_predicts(finished, world):
    windows = cut_windows(world, horizon=3, shortest=1, split="test")
    predictor = open_run(trial(finished, "any-length").run_folder)
    assert isinstance(predictor.planner, AnyLengthPlanner)
    assert predictor.steps == "1-3"
    for name in ("any-length", "chain", "nearest", "pkg"):
        parts = trial(finished, name).of_lengths
        planner: Planner = predictor.planner
        if name != "any-length":
            assert trial(finished, name).run_folder == predictor.folder
            alone = [open_run(part.run_folder).planner for part in parts]
            planner = PredictedLengthPlanner(predictor.planner, tuple(alone))
        expected, plans = evaluate_planner(planner, windows, orders=finished.orders)
        found = read_trial(trial(finished, name))
        assert found.metrics == expected.metrics
        assert found.parameters.keys() == found.training.keys() or name == "nearest"
        assert found.lengths == windows.lengths.tolist()
        assert (found.horizon, found.shortest, found.steps) == (3, 1, "1-3")
        lengths = np.array([len(plan.sequences[0]) for plan in plans])
        accuracy = 100 * (lengths == windows.lengths).mean()
        assert found.percent("length_accuracy") == pytest.approx(accuracy)
    rows = ("chain", "nearest", "pkg")
    (share,) = {read_trial(trial(finished, name)).percent("length_accuracy") for name in rows}
    assert share > 0


def test_trainings_are_those_of_studies_of_one_length(finished, world, monkeypatch):
    plain = made(world, finished.out, horizons=(2,), shortest=None)
    assert trial(plain, "any-length").shortest is None
    for name in ("chain", "pkg"):
        second = trial(finished, name).of_lengths[1]
        assert second.run_folder == trial(plain, name).run_folder
        assert (second.run_folder / "manifest.json").exists()
        other = trial(made(world, finished.out, seeds=(1,)), name)
        assert {part.run_folder.parts[-3] for part in (other, *other.of_lengths)} == {"seed1"}
    monkeypatch.setattr("cefito.study.running.evaluate_planner", pytest.fail)
    before = snapshot(finished.out)
    assert run_study(finished) == []
    assert snapshot(finished.out) == before


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"shortest": 2}, ("any-length", "chain", "nearest", "pkg", "nearest-costly")),
        ({"settings": SETTINGS | {"chain.width": 8}}, ("chain",)),
        (
            {"settings": SETTINGS | {"any_length.width": 8}},
            ("any-length", "chain", "nearest", "pkg", "nearest-costly"),
        ),
        ({"costly_sample": 10}, ("nearest-costly",)),
    ],
)
def test_changes_that_need_new_scores(change, names, finished, world):
    missing = missing_trials(made(world, finished.out, **change))
    assert [each.row.name for each in missing] == list(names)


def test_results_and_tables(finished, world):
    results = Results.read(finished.out / RESULTS)
    windows = cut_windows(world, horizon=3, shortest=1, split="test")
    listed = results.windows_of(3)
    assert listed.video == tuple(windows.video)
    assert listed.start == tuple(windows.start)
    assert listed.length == tuple(windows.lengths)
    titles = {row.name: row.title for row in results.rows}
    assert titles["any-length"] == "any-length chain"
    assert titles["chain"] == "chain, predicted length"
    assert titles["pkg"] == "PKG, exact, predicted length"
    sampled = next(each for each in results.trials if each.row == "nearest-costly")
    whole = next(each for each in results.trials if each.row == "nearest")
    scored = list(sampled.scored or ())
    assert len(scored) == len(set(scored)) == 20
    assert sampled.success == "".join(whole.success[place] for place in sampled.scored)
    scores, differences = result_tables(results, against="chain")
    count = len(windows)
    assert scores.title == f"{world.name}, T = 1-3, {count} test windows, preset small"
    assert {"SR", "edit", "next", "length", "mAcc", "mIoU"} <= {*scores.heads}
    assert any("which planners are not told" in note for note in scores.notes)
    assert "any-length chain" in {line[0].text for line in differences.lines}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shortest": 3}, "steps 3 to 3: expected a range of lengths, such as 1 to 6"),
        ({"shortest": 0}, "steps 0 to 3: expected a range"),
        ({"horizons": (3, 4)}, "steps 1 to 3, 4: expected a range"),
    ],
)
def test_refused(change, message, world, tmp_path):
    with pytest.raises(ConfigError, match=message):
        check_study(made(world, tmp_path, **change))


def test_failures_of_one_length_name_it(world, tmp_path):
    ours = made(world, tmp_path / "out", ("kepp",), rows=find_rows(["kepp"]))
    (problem,) = run_study(ours)
    assert problem.startswith("kepp, T = 1-3, seed 0: horizon 1: KEPP plans between")
    failed = json.loads(trial(ours, "kepp").path.read_text())
    assert (failed["horizon"], failed["shortest"]) == (3, 1)


@pytest.mark.nightly
def test_the_command(world, tmp_path, capsys):
    given = ["compare", str(world.folder), "--out", str(tmp_path), "--device", "cpu"]
    given += ["--planners", "any-length,nearest", "--steps", "1-2", "--seeds", "1"]
    given += as_arguments(TINY_LENGTHS)
    assert main(given) == 0
    shown = capsys.readouterr().out
    assert f"{world.name}, T = 1-2, " in shown
    assert "nearest window, predicted length" in shown
    planners = given.index("--planners")
    assert main([*given[:planners], *given[planners + 2 :], *as_arguments(SIMPLE)]) == 0
    assert {line.split("  ")[0] for line in capsys.readouterr().out.splitlines()} >= {
        "any-length chain",
        "chain, predicted length",
        "PKG, exact, predicted length",
        "nearest window, predicted length",
        "most frequent window, predicted length",
    }
    for more, message in (
        (["--horizons", "3"], "expected --horizons 3,4, lengths that planners are told, or"),
        (["--set", "chain.width=8"], "is not read by any-length or nearest"),
    ):
        assert main([*given, *more]) == 2
        assert message in capsys.readouterr().err


def test_a_diffusion_planner_needs_as_many_steps_as_levels(world, tmp_path):
    levels = {"settings": SETTINGS | {"pdpp.widths": [8, 8]}, "rows": find_rows(["pdpp"])}
    (problem,) = run_study(made(world, tmp_path / "out", **levels))
    assert "horizon 1: PDPP with 2 levels needs a horizon of at least 2" in problem
