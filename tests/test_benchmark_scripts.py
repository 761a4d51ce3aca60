"""The scripts that measure, at toy size on a CPU: they run to their end and go on where they were.

Their processes are replaced by calls in this one.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

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
