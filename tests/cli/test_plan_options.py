"""Constraints, ways to search and interruption, through the command line."""

import dataclasses
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from cefito.cli import main
from cefito.cli.plan_options import SearchOptions
from cefito.field.fields import IncrementalField
from cefito.planners.shared.settings import PlanningConfig
from cefito.runs.run import open_run
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.settings import search_settings

VIDEO = "world-0036"  # the first test video


@pytest.fixture(scope="module")
def space(trained):
    planner: Any = open_run(trained).planner
    return planner.space.actions


@pytest.fixture
def plans(ran, trained):
    """The JSON of `cefito plan` for one video."""

    def plans(*argv):
        out, err = ran("plan", trained, "--video", VIDEO, "--json", *argv)
        assert err == ""
        return json.loads(out)

    return plans


def test_actions_and_tasks_by_name(plans, space, world, trained, ran, refused):
    a, b, c, *_ = space[11]
    first, second, third = world.taxonomy.names([a, b, c])
    by_id = ("--pin", f"1={a}", "--require", b, "--forbid", c, "--before", f"{b},{c}")
    by_name = ("--pin", f"1={first.upper()}", "--require", second)
    by_name += ("--forbid", third, "--before", f"{second}, {third}")
    ours = plans("--task", "repot plant", *by_name)
    assert ours == plans("--task", 11, *by_id)
    assert ours["plans"]
    out, err = ran("plan", trained, "--video", VIDEO, "--task", 11, "--ids", *by_name)
    assert f"{first} ({a}) → " in out
    assert re.search(r"^annotated: .* \(\d+\) → .* \(\d+\)$", err, re.MULTILINE)
    line = refused("plan", trained, "--video", VIDEO, "--task", "Repot Plan", *by_name)
    assert line == "error: unknown task 'Repot Plan'; similar names: 'Repot Plant'. (--task)\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [  # one of each kind; tests/inference and tests/search have the others
        ("--pin x", " (--pin)\n"),
        ("--pin 4=80", "pinned to step 4, which does not exist; steps are counted from 1 to 3"),
        ("--pin 1=80 --pin 1=81", "step 1 is pinned to two actions"),
        ("--pin 1=0", "is pinned but is not an action of this task; choose among 80 ('fill with"),
        ("--require=-1", "unknown action -1; there are 0 to"),
        ("--before 80,80", "action 80 ('fill with soil') cannot precede itself"),
        ("--forbid Xyz", " (--forbid)\n"),
        ("--search gided", " (--search)\n"),
        ("--search auto --budget -1", "expected at least 0 (got -1.0). (--budget)"),
        ("--search auto --budget nan", "--budget: 'nan' is not a number"),
        ("--objective score", 'Invalid value "score" for --objective. Choose from: "energy"'),
        (
            "--starts 3",
            "'exhaustive' does not use the setting 'starts'; only auto, guided do. (--starts)",
        ),
        ("--gradient 3", "--gradient"),
    ],
)
def test_refusals_are_one_line_before_any_search(argv, message, trained, refused, monkeypatch):
    monkeypatch.setattr(ExhaustiveSearch, "search", None)
    query = ("--video", VIDEO, "--task", 11)
    assert message in refused("plan", trained, *query, *argv.split(), "--json")


def test_constraints_that_no_likely_task_can_satisfy(trained, refused):
    pins = ("--pin", "1=0", "--pin", "2=80")
    err = refused("plan", trained, "--video", VIDEO, "--tasks", 2, *pins)
    assert re.search(r"task \d+ .* is pinned", err)


def tokens(value):
    return f"{value['evaluated']['token_forwards']:,} token forwards"


SCREENED = ("--screening", "on")


def test_a_search_that_is_not_exact_says_so(trained, ran, plans):
    how = ("--search", "guided", "--proposals", 5)
    value = plans(*how)
    assert value["exact"] is False
    said = "not exact: there may be better plans; --search exhaustive finds out; " + tokens(value)
    assert ran("plan", trained, "--video", VIDEO, *how).err.splitlines()[1] == said
    exact, screened = plans("--search", "exhaustive"), plans("--search", "exhaustive", *SCREENED)
    assert (exact["exact"], "margin" in exact) == (True, False)
    assert screened["exact"] is False
    assert screened["margin"] > 0
    assert screened["plans"][0]["actions"] == exact["plans"][0]["actions"]
    said = f"not exact: screened in bfloat16, by a margin of {screened['margin']:.2g}; "
    how = ("--search", "exhaustive", *SCREENED)
    lines = ran("plan", trained, "--video", VIDEO, *how).err.splitlines()
    assert lines[1] == said + tokens(screened)


def test_every_setting_of_the_search_is_an_option(trained):
    decided_in_training = {"actions", "fitting_windows"}
    options: Any = SearchOptions
    fields = {entry.name for entry in dataclasses.fields(options)}
    assert fields == set(PlanningConfig.model_fields) - decided_in_training
    given = {"method": "guided", "tasks": 4, "objective": "fitted", "proposals": 9, "starts": 3}
    run: Any = open_run(trained)
    assert SearchOptions(**given).applied(run).planner.describe().search == search_settings(
        run.trained_search, **given
    )


@pytest.mark.usefixtures("default_handler")
def test_an_interrupted_evaluation_keeps_nothing(trained, call, tmp_path, monkeypatch):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    monkeypatch.setattr(
        ExhaustiveSearch, "search", lambda *_args: signal.raise_signal(signal.SIGINT)
    )
    code, out, err = call("evaluate", run)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "error: interrupted"
    assert not list(run.glob("evaluation*"))


@pytest.mark.usefixtures("default_handler")
def test_interrupted_before_any_plan(trained, call, monkeypatch):
    search = ExhaustiveSearch.search

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return search(*args)

    monkeypatch.setattr(ExhaustiveSearch, "search", interrupted)
    code, out, err = call("plan", trained, "--video", VIDEO)
    assert (code, out) == (130, "")
    assert "interrupted before any plan was found; 1 token forwards" in err
    code, out, _ = call("plan", trained, "--video", VIDEO, "--json")
    assert code == 130
    value = json.loads(out)
    assert (value["plans"], value["exact"], value["search"]["interrupted"]) == ([], False, True)


@pytest.mark.usefixtures("default_handler")
@pytest.mark.parametrize("times", [1, 2])
def test_interrupts_of_a_search(times, trained, capfd, monkeypatch):
    """The first asks for the best plans so far, the second ends at once."""
    energy = IncrementalField.leaf_energy

    def interrupted(*args):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return energy(*args)

    monkeypatch.setattr(IncrementalField, "leaf_energy", interrupted)
    options = ["--search", "exhaustive", "--memory-mib", "1e-9"]
    code = main(["plan", str(trained), "--video", VIDEO, *options])
    out, err = capfd.readouterr()
    assert "stopping with the best plans so far; press Ctrl-C again to end at once\n" in err
    if times == 1:
        assert code == 0
        assert out.startswith("energy (lower is better)  plan\n")
        assert "interrupted, not exact: the best plans so far; " in err
    else:
        assert (code, out) == (130, "")
        assert err.endswith("error: interrupted\n")
