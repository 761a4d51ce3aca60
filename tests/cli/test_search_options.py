"""Constraints, ways to search and interruption, through the command line."""

import dataclasses
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cefito.cli import main
from cefito.cli.search_options import SearchOptions
from cefito.errors import ConfigError
from cefito.runs.run import Run, open_run
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.registry import SEARCHES
from cefito.search.settings import SearchConfig
from tiny_runs import TINY_RUN, as_arguments

TINY = as_arguments(TINY_RUN)
VIDEO = "world-0036"  # the first test video


@pytest.fixture(scope="module")
def space(trained):
    return open_run(trained).planner.space.actions


@pytest.fixture
def call(capsys):
    """Call the command line, as (exit code, stdout, stderr)."""

    def call(*argv):
        capsys.readouterr()
        code = main([str(part) for part in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def plans(call, trained):
    """The JSON of `cefito plan` for one video."""

    def plans(*argv):
        code, out, err = call("plan", trained, "--video", VIDEO, "--json", *argv)
        assert (code, err) == (0, "")
        return json.loads(out)

    return plans


@pytest.mark.parametrize("method", SEARCHES)
def test_every_search_honours_every_constraint(method, plans, space):
    a, b, c, d, *_ = space[11]

    def sequences(*argv):
        value = plans("--task", 11, "--search", method, "--top-k", 40, *argv)
        assert value["search"] == {"method": method, "tasks": 1, "interrupted": False}
        found = [entry["actions"] for entry in value["plans"]]
        assert found
        assert len({tuple(plan) for plan in found}) == len(found)
        return found

    assert all(
        plan[0] == a and plan[2] == c for plan in sequences("--pin", f"1={a}", "--pin", f"3={c}")
    )
    assert all({b, d} <= set(plan) for plan in sequences("--require", b, "--require", d))
    assert not any({a, c} & set(plan) for plan in sequences("--forbid", a, "--forbid", c))
    assert all(len(set(plan)) == 3 for plan in sequences("--no-repeats"))
    assert all(
        plan.index(d) < plan.index(a)
        for plan in sequences("--require", a, "--require", d, "--before", f"{d},{a}")
    )
    for plan in sequences(
        "--pin", f"2={c}", "--require", b, "--forbid", a, "--before", f"{b},{c}", "--no-repeats"
    ):
        assert plan[:2] == [b, c]
        assert plan[2] not in (a, b, c)


def test_actions_and_tasks_by_name(plans, space, world, trained, call):
    a, b, c, *_ = space[11]
    first, second, third = world.taxonomy.names([a, b, c])
    by_id = ("--pin", f"1={a}", "--require", b, "--forbid", c, "--before", f"{b},{c}")
    by_name = ("--pin", f"1={first.upper()}", "--require", second)
    by_name += ("--forbid", third, "--before", f"{second}, {third}")
    ours = plans("--task", "repot plant", *by_name)
    assert ours == plans("--task", 11, *by_id)
    assert ours["plans"]
    code, out, err = call("plan", trained, "--video", VIDEO, "--task", 11, "--ids", *by_name)
    assert code == 0
    assert f"{first} ({a}) → " in out
    assert re.search(r"^annotated: .* \(\d+\) → .* \(\d+\)$", err, re.MULTILINE)
    code, out, err = call("plan", trained, "--video", VIDEO, "--task", "Repot Plan", *by_name)
    assert (code, out) == (2, "")
    assert err == "error: unknown task 'Repot Plan'; similar names: 'Repot Plant'. (--task)\n"
    err = call("plan", trained, "--video", VIDEO, "--forbid", first + "x")[2]
    assert err.startswith(f"error: unknown action '{first}x'; similar names: '{first}'")
    assert err.endswith(" (--forbid)\n")


def test_a_list_of_queries_with_tasks_and_constraints(space, world, trained, call, tmp_path):
    np.save(tmp_path / "a.npy", world.start[0])
    np.save(tmp_path / "b.npy", world.end[2])
    a, b, c, *_ = space[11]
    first, second, _ = world.taxonomy.names([a, b, c])
    files = {"initial": "a.npy", "goal": "b.npy"}
    lines = [
        {**files, "id": "one", "task": "Repot Plant", "constraints": {"pinned": [[1, first]]}},
        {**files, "id": "two", "task": 11, "constraints": {"required": [second, c]}},
        {**files, "id": "three"},
    ]
    path = tmp_path / "list.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    argv = ("plan", trained, "--queries", path, "--no-repeats", "--task", 10)
    code, out, _ = call(*argv, "--json", "--top-k", 30)
    assert code == 0
    one, two, three = map(json.loads, out.splitlines())
    assert [entry["task"]["id"] for entry in (one, two, three)] == [11, 11, 10]
    assert {plan["actions"][0] for plan in one["plans"]} == {a}
    assert all({b, c} <= set(plan["actions"]) for plan in two["plans"])
    for entry in (one, two, three):
        assert all(len(set(plan["actions"])) == 3 for plan in entry["plans"])
    code, out, _ = call(*argv, "--ids")
    assert code == 0
    assert f"{first} ({a}) → " in out.splitlines()[1]
    (tmp_path / "list.csv").write_text("initial,goal,task\na.npy,b.npy,repot plant\n")
    code, out, _ = call("plan", trained, "--queries", tmp_path / "list.csv", "--json")
    assert json.loads(out)["task"]["id"] == 11
    path.write_text(json.dumps(lines[0] | {"task": "Repot Plan"}))
    code, out, err = call("plan", trained, "--queries", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "line 1: unknown task 'Repot Plan'; similar names: 'Repot Plant'." in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [  # one of each kind; tests/inference and tests/search have the others
        ("--pin x", " (--pin)\n"),
        ("--pin 4=80", "pinned to step 4, which does not exist; steps are counted from 1 to 3"),
        ("--pin 1=80 --pin 1=81", "step 1 is pinned to two actions"),
        (
            "--pin 1=0",
            "task 11 ('Repot Plant'): action 0 ('measure oats') is pinned but is not an action of "
            "this task; choose among 80 ('fill with soil'),",
        ),
        ("--require=-1", "unknown action -1; there are 0 to"),
        ("--require 80 --forbid 80", "action 80 ('fill with soil') is both required and"),
        ("--before 80,80", "action 80 ('fill with soil') cannot precede itself"),
        ("--require 80 --require 81 --before 80,81 --before 81,80", "ordered in a circle"),
        ("--pin 1=80 --pin 2=80 --no-repeats", "is pinned to steps 1, 2 although no action may"),
        ("--search gided", " (--search)\n"),
        ("--search auto --budget -1", "greater than or equal to 0 (got -1.0). (--budget)"),
        ("--search auto --budget nan", "--budget: 'nan' is not a number"),
        ("--objective score", 'Invalid value "score" for --objective. Choose from: "energy"'),
        ("--width 3", "'exhaustive' does not use the setting 'width'; only beam does. (--width)"),
        ("--gradient 3", "--gradient"),
    ],
)
def test_refusals_are_one_line_before_any_search(argv, message, trained, call, monkeypatch):
    def never(*_args, **_more):
        raise AssertionError

    monkeypatch.setattr(ExhaustiveSearch, "search", never)
    query = ("--video", VIDEO, "--task", 11)
    code, out, err = call("plan", trained, *query, *argv.split(), "--json")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_constraints_that_no_likely_task_can_satisfy(trained, call):
    code, out, err = call(
        "plan", trained, "--video", VIDEO, "--tasks", 2, "--pin", "1=0", "--pin", "2=80"
    )
    assert (code, out) == (2, "")
    assert re.fullmatch(
        r"error: task \d+ \('.*'\): action \d+ \('.*'\) is pinned .* The next likely task cannot "
        r"satisfy it either\.\n",
        err,
    )


@pytest.mark.parametrize("objective", ["energy", "fitted"])
def test_plans_of_several_tasks(objective, plans, space, trained, call, world):
    value = plans("--tasks", 3, "--objective", objective, "--top-k", 3000)
    assert value["search"] == {"method": "exhaustive", "tasks": 3, "interrupted": False}
    tasks = {entry["task"] for entry in value["plans"]}
    assert len(tasks) == 3
    assert len(value["plans"]) == sum(len(space[task]) ** 3 for task in tasks)
    assert value["task"]["id"] == value["plans"][0]["task"]
    assert value["task"]["name"] == world.taxonomy.tasks[value["task"]["id"]].name
    assert value["task"]["source"] == "predicted"
    for entry in value["plans"]:
        assert set(entry["actions"]) <= set(space[entry["task"]])
        assert entry["names"] == world.taxonomy.names(entry["actions"])
    scores = [entry["score"] for entry in value["plans"]]
    assert scores == sorted(scores)
    assert set(value["weights"]) == {"energy", "prior", "chain", "task"}
    how = ("--tasks", 3, "--objective", objective, "--top-k", 3000)
    code, out, err = call("plan", trained, "--video", VIDEO, *how)
    heads, *lines = out.splitlines()
    assert code == 0
    same = all(entry["score"] == entry["energy"] for entry in value["plans"])
    ordered = "energy (lower is better)" if same else "energy score (lower is better)"
    known = ["probability"] if value["plans"][0]["probability"] is not None else []
    assert heads.split() == [*ordered.split(), *known, "task", "plan"]
    assert bool(known) == (objective == "fitted")
    assert objective == "energy" or not same
    assert len(lines) == len(value["plans"])
    assert f"{value['plans'][0]['task']}: {value['task']['name']}" in lines[0]
    assert (
        err.splitlines()[0] == f"task {value['task']['id']}: {value['task']['name']} (predicted, "
        f"{100 * value['task']['probability']:.1f} %; 3 tasks searched)"
    )
    assert err.splitlines()[1] == (
        f"exact: no other allowed sequence is better; {value['evaluated']['token_forwards']:,} "
        "token forwards"
    )


def test_a_search_that_is_not_exact_says_so(trained, call, plans):
    value = plans("--search", "guided", "--proposals", 5)
    assert value["exact"] is False
    code, _, err = call("plan", trained, "--video", VIDEO, "--search", "guided", "--proposals", 5)
    assert code == 0
    assert err.splitlines()[1] == (
        "not exact: there may be better plans; "
        f"{value['evaluated']['token_forwards']:,} token forwards"
    )


OPTIONS = {
    "search": ("method", "beam"),
    "budget": ("budget_gflop", 2.5),
    "tasks": ("tasks", 4),
    "prior-weight": ("prior_weight", 0.5),
    "pruning": ("pruning", 3),
    "objective": ("objective", "fitted"),
    "task-model": ("task_model", "chain"),
    "proposals": ("proposals", 9),
    "memory-mib": ("memory_mib", 3.0),
    "screening": ("screening", "on"),
    "starts": ("starts", 3),
    "refinements": ("refinements", 0),
    "width": ("width", 7),
    "diversity": ("diversity", 0.5),
}


def test_every_setting_of_the_search_is_an_option():
    decided_in_training = {"actions", "fitting_windows"}
    settings = set(SearchConfig.model_fields) - decided_in_training
    fields = {entry.name for entry in dataclasses.fields(SearchOptions)}
    assert {name for name, _ in OPTIONS.values()} == settings == fields


def test_each_option_changes_its_setting(trained, call, monkeypatch):
    used = []

    def noted(self, settings):
        used.append(settings)
        raise ConfigError("enough")

    monkeypatch.setattr(Run, "with_search", noted)
    as_trained = open_run(trained).trained_search
    for command in (("plan", trained, "--video", VIDEO), ("evaluate", trained)):
        for option, (name, value) in OPTIONS.items():
            read_by = next((key for key, entry in SEARCHES.items() if name in entry.reads), None)
            more = () if read_by is None else ("--search", read_by)
            assert call(*command, f"--{option}", value, *more)[0] == 2
            expected = as_trained.model_copy(update={name: value})
            if read_by is not None:
                expected = expected.model_copy(update={"method": read_by})
            assert used.pop() == expected


def test_without_options_a_run_searches_as_it_was_trained(trained, plans, monkeypatch):
    monkeypatch.setattr(Run, "with_search", None)
    assert plans()["search"]["method"] == open_run(trained).trained_search.method


@pytest.mark.parametrize("command", ["plan", "evaluate"])
def test_every_option_is_in_help(command, call):
    out = call(command, "--help")[1]
    for option in OPTIONS:
        assert f" --{option} " in out


def test_help_does_not_load_torch():
    code = """
import sys
from cefito.cli import COMMANDS, main
for name in COMMANDS:
    assert main([name, "--help"]) == 0
    assert "torch" not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_evaluations_of_other_searches_do_not_overwrite_each_other(trained, call, tmp_path):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    several = "--split val --oracle-task --prior-weight 0.5"
    names = {
        (): "evaluation-test",
        ("--search", "guided", "--tasks", "2"): "evaluation-test-search-guided-tasks-2",
        ("--search", "exhaustive"): "evaluation-test",
        tuple(several.split()): "evaluation-val-oracle-task-prior-weight-0.5",
    }
    for argv, name in names.items():
        code, out, _ = call("evaluate", run, "--json", *argv)
        assert code == 0
        value = json.loads(out)
        assert json.loads((run / f"{name}.json").read_text()) == value
        assert set(value["search"]) == set(SearchConfig.model_fields)
        assert value["weights"]["prior"] == (0.5 if "0.5" in argv else 0)
    assert {path.stem for path in run.glob("evaluation*")} == set(names.values())
    code, out, err = call("evaluate", run, "--search", "guided", "--proposals", 2)
    assert "predicted task, search guided, proposals 2; per cent" in out
    assert "not every search was exact; kept in" in err
    assert "; every search was exact; kept in" in call("evaluate", run)[2]


@pytest.mark.parametrize(
    "argv", [["--search", "gided"], ["--tasks", "-1"], ["--pin", "1=2"], ["--no-repeats"]]
)
def test_evaluate_refuses(argv, trained, call):
    code, out, err = call("evaluate", trained, *argv)
    assert (code, out) == (2, "")
    assert argv[0] in err
    assert err.count("\n") == 1


@pytest.fixture
def default_handler():
    """A test run in the background may ignore interrupts."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, old)


@pytest.mark.usefixtures("default_handler")
def test_an_interrupted_evaluation_keeps_nothing(trained, call, tmp_path, monkeypatch):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    monkeypatch.setattr(
        ExhaustiveSearch, "search", lambda *_args: signal.raise_signal(signal.SIGINT)
    )
    code, out, err = call("evaluate", run)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "error: interrupted; no scores were kept"
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


CHILD = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from cefito.cli import main
from cefito.field.incremental import IncrementalField
from cefito.search.naive import NaiveSearch
from cefito.search.registry import SEARCHES, SearchEntry
from functools import partial
SEARCHES["naive"] = SearchEntry(partial(NaiveSearch, batch=1), exact=True)
energy, seconds = IncrementalField.energy, float(sys.argv[1])
def slow(*args):
    print("searching", file=sys.stderr, flush=True)
    time.sleep(seconds)
    return energy(*args)
IncrementalField.energy = slow
sys.exit(main(["plan", *sys.argv[2:], "--search", "naive"]))
"""


def interrupted(run, *argv, seconds, times):
    """Start a slow search and interrupt it as often, as (exit code, stdout, stderr)."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(seconds), str(run), "--video", VIDEO, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        told = ""
        for expected in (
            "searching\n",
            "stopping with the best plans so far; press Ctrl-C again to end at once\n",
        )[:times]:
            while not told.endswith(expected):
                line = child.stderr.readline()
                assert line, told
                told += line
            child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=100)
        return child.returncode, out, told + err


def test_an_interrupted_plan_is_the_best_so_far(trained):
    code, out, err = interrupted(trained, seconds=0.3, times=1)
    assert code == 0, err
    heads, *lines = out.splitlines()
    assert heads.split() == ["energy", "(lower", "is", "better)", "plan"]
    assert 1 <= len(lines) <= 5
    assert "stopping with the best plans so far" in err
    assert "interrupted, not exact: the best plans so far; " in err


def test_a_second_interrupt_ends_at_once(trained):
    code, out, err = interrupted(trained, seconds=300, times=2)
    assert (code, out) == (130, "")
    assert err.endswith("error: interrupted\n")
