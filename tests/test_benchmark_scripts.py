"""The scripts that measure, at toy size on a CPU: they run to their end and go on where they were.

Their processes are replaced by calls in this one.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from cefito.data.prepared import open_dataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.planners.registry import METHODS
from cefito.planners.settings import load_config
from tiny_runs import as_arguments

FOLDER = Path(__file__).parents[1] / "benchmarks"
TINY = {
    "field.width": "16",
    "field.depth": "1",
    "field.heads": "2",
    "training.negatives.count": "4",
}


@pytest.fixture
def script(monkeypatch):
    """A script as a module, by its name.

    Scripts find each other by their names, some of which packages of tests have too.
    """
    names = [path.stem for path in FOLDER.glob("*.py")]
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def gpu(script, monkeypatch):
    """The script for a GPU; what it starts runs in this process, and is noted."""
    module, started = script("gpu"), []

    def run(command, *, timeout=None, **_):
        name, arguments = Path(command[1]).stem, command[2:]
        started.append((name, arguments[-1] if name == "gpu" else arguments))
        if timeout is not None and timeout < 1:
            raise subprocess.TimeoutExpired(command, timeout)
        if name == "gpu":
            module.main(arguments)
        else:
            monkeypatch.setattr(sys, "argv", command[1:])
            importlib.reload(script(name)).main()
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(module.subprocess, "run", run)
    return SimpleNamespace(main=module.main, started=started)


def asked(out, *parts, limit=100):
    return [
        *("--limit", str(limit), "--out", str(out), "--toy", "--device", "cpu"),
        *("--planners", "nearest,frequent", "--sample", "20", "--parts", *parts),
    ]


def test_parts_of_the_gpu_script(gpu, tmp_path, capsys):
    """Searches, a whole training and a comparison; started again nothing is repeated."""
    parts = ("search", "train-T3", "compare")
    gpu.main(asked(tmp_path, *parts))
    assert [part for name, part in gpu.started if name == "gpu"] == list(parts)
    value = json.loads((tmp_path / "gpu.json").read_text())
    assert value["missing"] == []
    assert value["parts"].keys() == value["seconds"].keys() == set(parts)
    assert value["bfloat16_by"] in ("AMX", "AVX512-BF16", "none")
    (row,) = value["parts"]["search"]["random"]
    assert row["exact"]["same_plans"]
    assert row["guided, screened"]["argmin"]
    training = value["parts"]["train-T3"]
    assert training["training"]["energy field"]["epochs"] == 1
    assert 0 <= training["metrics"]["success_rate"] <= 100
    assert training["peak_mib"] > 0
    assert not value["parts"]["compare"]["problems"]
    gpu.started.clear()
    gpu.main(asked(tmp_path, *parts))
    assert gpu.started == []
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["missing"] == []


def test_out_of_time(gpu, tmp_path, capsys):
    """A part that did not end is told of, and begun again the next time."""
    gpu.main(asked(tmp_path, "train-T3", limit=0.5))
    gpu.main(asked(tmp_path, "train-T3", limit=0.5))
    assert [part for _, part in gpu.started] == ["train-T3", "train-T3"]
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["missing"] == ["train-T3"]
    assert "train-T3: out of time; the same command goes on" in err


@pytest.mark.parametrize("case", ["reference", "bfloat16"])
def test_a_training_step(script, case):
    measured = script("training").measure(case, 1, 1, "cpu", 2, TINY)
    assert measured["seconds"] > 0
    assert measured["tokens"] > 2 * 7


def test_rates_of_many_queries(script):
    """A row plans what fits into its seconds, in three parts."""
    plan = SimpleNamespace(evaluated=SimpleNamespace(token_forwards=6, leaves=2))
    module, sizes = script("queries"), []

    class Counting:
        def plan(self, queries, _):
            sizes.append(len(queries))
            return [plan] * len(queries)

    queries = type("Q", (), {"subset": lambda _, rows: list(rows), "__len__": lambda _: 50})()
    row = module.measure(Counting(), queries, 1e9)
    assert row["queries"] == sum(sizes[2:]) == 50
    assert (row["token_forwards_per_query"], row["leaves_per_query"]) == (6, 2)
    made = module.annotations(3, 45)
    assert {len(task.actions) for task in made.taxonomy.tasks} == set(module.TASK_SIZES)
    assert sum(len(video.steps) - 2 for video in made.videos if video.split == "test") == 60


def test_precisions_are_paired_by_seed(script):
    rows = [
        {"seed": seed, "precision": precision, "success_rate": rate, "mean_accuracy": 50.0}
        for seed, precision, rate in (
            (0, "float32", 20.0),
            (1, "float32", 30.0),
            (0, "bfloat16", 22.0),
            (1, "bfloat16", 31.0),
            (2, "bfloat16", 90.0),
        )
    ]
    value = script("precision").summary(rows)["success_rate"]
    assert value["bfloat16 less float32"]["values"] == [2.0, 1.0]
    assert value["float32"]["mean"] == 25
    assert value["bfloat16"]["values"] == [22.0, 31.0, 90.0]


def test_work_is_repeated_for_some_seconds(script, monkeypatch):
    module, calls = script("threads"), []
    monkeypatch.setitem(module.CASES, "toy", lambda: lambda: calls.append(1))
    monkeypatch.setattr(module.torch, "set_num_threads", calls.append)
    count, seconds = module.repeat("toy", 2, 0.001)
    assert calls[0] == 2
    assert count == len(calls) - 2 >= 1
    assert seconds >= 0.001
    assert callable(module.exact_search(2, 3, TINY))


QUICK = {
    "pkg.training.optimiser.epochs": "1",
    "pkg.network.hidden": "[8, 8]",
    "pkg.network.action_dim": "4",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(train=24, val=12, test=12, dim=8),
    )


@pytest.fixture
def tune(script, world, tmp_path, monkeypatch):
    """Tunes PKG, which has two settings here; trainings are counted, and may be interrupted."""
    module, trained = script("tune"), []
    train_run = module.train_run

    def counted(dataset, folder, *, config, horizon, **more):
        if len(trained) == tune.most:
            raise KeyboardInterrupt
        trained.append((Path(folder).parent.name, config.settings.pkg.smoothing, horizon))
        return train_run(dataset, folder, config=config, horizon=horizon, **more)

    monkeypatch.setattr(module, "train_run", counted)
    space = module.one(
        pkg__smoothing=module.Log(0.01, 1.0), pkg__network__dropout=module.Pick((0.0, 0.5))
    )
    monkeypatch.setitem(module.SPACES, "pkg", space)

    def tune(*more, work="work", method="pkg"):
        out = tmp_path / f"{work}.json"
        given = ["--method", method, "--work", tmp_path / work, "--out", out, "--device", "cpu"]
        fixed = as_arguments(QUICK)
        argv = ["tune.py", world.folder, *given, "--horizons", "2", *fixed, *more]
        monkeypatch.setattr(sys, "argv", [str(part) for part in argv])
        module.main()
        return json.loads(out.read_text())

    tune.most, tune.trained, tune.module = -1, trained, module
    return tune


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key != "seconds"}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def test_settings_are_tuned_on_validation_windows(tune, world, tmp_path):
    value = tune("--trials", 2, "--horizons", "2,3", "--seeds", 2)
    log = value["log"]
    assert [trial["trial"] for trial in log] == [0, 1]
    assert log[0]["settings"] == {}  # the preset
    assert 0.01 <= log[1]["settings"]["pkg.smoothing"] <= 1
    assert value["space"]["pkg.smoothing"] == "0.01 to 1, log-uniform"
    names = [f"whole-T{horizon}-seed{seed}" for horizon in (2, 3) for seed in (0, 1)]
    for trial in log:
        assert list(trial["scores"]) == names
        scores = [score["success_rate"] for score in trial["scores"].values()]
        assert trial["success_rate"] == pytest.approx(sum(scores) / 4)
    assert len(tune.trained) == 8
    best = max(log, key=lambda trial: (trial["success_rate"], trial["mean_accuracy"]))
    assert value["chosen"]["success_rate"] == best["success_rate"]
    assert value["chosen"]["settings"] in [trial["settings"] for trial in log]
    assert value["scored_on"] == "validation windows"
    # the windows are those of the validation split, and no test video is there to be read
    windows = {name: score["windows"] for name, score in log[0]["scores"].items()}
    for horizon in (2, 3):
        expected = len(cut_windows(world, horizon=horizon, split="val"))
        assert windows[f"whole-T{horizon}-seed0"] == expected
    (copy,) = (tmp_path / "work" / "data").iterdir()
    copied = open_dataset(copy)
    assert Counter(video.split for video in copied.videos) == {"train": 24, "val": 12}
    assert not list((tmp_path / "work" / "pkg").rglob("*.safetensors"))


def test_a_tuning_that_is_killed_goes_on_and_gives_the_same(tune):
    whole = tune("--trials", 3, work="whole")
    tune.trained.clear()
    tune.most = 2
    with pytest.raises(KeyboardInterrupt):
        tune("--trials", 3)
    tune.most = -1
    value = tune("--trials", 3)
    assert [name for name, *_ in tune.trained] == ["trial-000", "trial-001", "trial-002"]
    assert without_times(value) == without_times(whole)
    assert tune("--trials", 3) == value
    assert len(tune("--trials", 4)["log"]) == 4
    assert len(tune.trained) == 4


def test_tunings_are_not_mixed_up(tune, world, tmp_path):
    tune("--trials", 1)
    with pytest.raises(SystemExit, match=r"^error: .*holds trials of another tuning\. Choose an"):
        tune("--trials", 1, "--seed", 1)
    with pytest.raises(SystemExit, match=r"^error: 'nearest' trains nothing of its own to tune"):
        tune("--trials", 1, method="nearest")
    with pytest.raises(SystemExit, match=r"^error: no method 'x'"):
        tune("--trials", 1, method="x")
    with pytest.raises(ConfigError, match="holds test videos, and settings are never chosen on"):
        tune.module.check_without_test(world)


def test_settings_can_be_held_to_draws_of_the_data(tune):
    given = ("--recipes", 4, "--train", 6, "--val", 3, "--split-seed", 4, 5)
    value = tune("--trials", 2, *given)
    names = ["whole", "draw4-4-6-3-1.0", "draw5-4-6-3-1.0"]
    assert list(value["data"]) == names
    assert len(set(value["data"].values())) == 3
    assert list(value["log"][1]["scores"]) == [f"{name}-T2-seed0" for name in names]
    with pytest.raises(SystemExit, match=r"^error: 2 recipes of .* hardly ever have 600 training"):
        tune("--trials", 1, "--train", 600, "--split-seed", 4, "--recipes", 2)


def test_trainings_that_diverge_come_last(tune, monkeypatch):
    train_run = tune.module.train_run

    def diverges(dataset, folder, **more):
        if "trial-000" in str(folder):
            raise RunError("the loss became nan; the training has diverged.")
        return train_run(dataset, folder, **more)

    monkeypatch.setattr(tune.module, "train_run", diverges)
    value = tune("--trials", 2)
    assert value["log"][0]["success_rate"] is None
    assert "diverged" in value["log"][0]["scores"]["whole-T2-seed0"]["error"]
    assert value["chosen"]["trial"] == 1


def test_spaces_of_all_methods(script):
    module = script("tune")
    for method, entry in METHODS.items():
        config = load_config("small", method=method)
        sections = set(entry.settings.model_fields) - set(module.SHARED)
        if not sections or "llm" in sections:
            with pytest.raises(ConfigError, match="trains nothing of its own to tune"):
                module.space_of(method, config)
            continue
        space = module.space_of(method, config)
        keys = [key for group in space for key in group]
        assert len(set(keys)) == len(keys) >= 6
        assert {key.partition(".")[0] for key in keys} <= sections
        for trial in range(1, 20):
            settings = module.drawn(space, method, 0, trial)
            assert settings == module.drawn(space, method, 0, trial)
            assert settings != module.drawn(space, method, 0, trial + 1)
            load_config("small", method=method, overrides=settings)  # every draw can be
        assert module.drawn(space, method, 0, 0) == {}


def test_the_space_of_a_method_without_one_of_its_own(script, monkeypatch):
    module = script("tune")
    optimiser = "viterbi.training.optimiser"
    config = load_config(
        "small",
        method="viterbi",
        overrides={f"{optimiser}.learning_rate": 2e-3, f"{optimiser}.epochs": 80},
    )
    monkeypatch.delitem(module.SPACES, "viterbi")
    space = module.space_of("viterbi", config)
    assert space[f"{optimiser}.learning_rate",] == module.Log(2.5e-4, 1.6e-2)
    assert space[f"{optimiser}.epochs",] == module.Log(40, 320)
    assert space["viterbi.input_dropout",] == module.DROPOUT
