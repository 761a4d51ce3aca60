"""Methods of several kinds are trained, planned with and scored by the same commands.

What a method refuses is tested for each of them where planners keep their contract.
"""

import json
from functools import cache

import pytest

from cefito.cli import main
from cefito.planners.methods import METHODS
from tiny_runs import TINY_RUN, as_arguments

SETTINGS = TINY_RUN | {
    "pkg.training.optimiser.epochs": 1,
    "pkg.network.hidden": [16, 16],
}
VIDEO = "world-0036"  # the first test video


FEW = ("cefito", "chain", "nearest", "pkg")  # ranked by energies, by scores alone, without weights


@pytest.fixture(scope="module")
def run_of(world, tmp_path_factory):
    """A run of each method by its name, made once and not to be changed."""

    @cache
    def trained(method):
        out = tmp_path_factory.mktemp("runs") / method
        start = ["train", str(world.folder), "--horizon", "3", "--out", str(out)]
        start += ["--preset", "paper", "--method", method]
        sections = METHODS[method].settings.model_fields
        own = {key: value for key, value in SETTINGS.items() if key.partition(".")[0] in sections}
        assert main([*start, *as_arguments(own)]) == 0
        return out

    return trained


@pytest.mark.parametrize("method", FEW)
def test_plan(method, run_of, call, world):
    run = run_of(method)
    code, out, err = call("plan", run, "--video", VIDEO, "--top-k", 2, "--json")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert 1 <= len(value["plans"]) <= 2
    for entry in value["plans"]:
        assert entry["names"] == world.taxonomy.names(entry["actions"])
        assert len(entry["names"]) == 3
    assert len(value["truth"]["actions"]) == 3
    code, out, err = call("plan", run, "--video", VIDEO, "--top-k", 2)
    assert code == 0
    heads, *lines = out.splitlines()
    counts = (value["weights"] or {}).get("energy")  # else the energy is not shown
    assert heads.split()[0] == ("energy" if counts else "score")
    for line, entry in zip(lines, value["plans"], strict=True):
        assert line.endswith(" → ".join(entry["names"]))
    assert err.splitlines()[-1].startswith("annotated: ")


@pytest.mark.parametrize("command", ["plan", "evaluate", "plan-batch"])
def test_the_true_task_is_used_or_refused(command, run_of, call, refused, world, tmp_path):
    *given, option = {
        "plan": ("--video", VIDEO, "--task", 0, "--task"),
        "evaluate": ("--sample", 4, "--oracle-task", "--oracle-task"),
        "plan-batch": (world.folder, "--out", tmp_path / "plans.jsonl", "--task", 0, "--task"),
    }[command]
    err = refused(command, run_of("pkg"), *given)
    assert "makes no use of a given task" in err
    assert err.endswith(f"Leave it out. ({option})\n")
    if command == "plan":  # tests of the commands themselves have the others
        assert call(command, run_of("nearest"), *given)[0] == 0
