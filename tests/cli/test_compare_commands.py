import json
import re
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from authors_repository import write_repository
from cefito.data import open_dataset
from cefito.data.windows import cut_windows
from cefito.evaluation.metrics import METRICS, Metric
from cefito.planners.simple.planners import NearestPlanner
from cefito.runs.settings_export import settings_values
from cefito.study.reproduce import EXPERIMENTS
from cefito.study.results import Results
from cefito.study.trials import ROWS
from cefito.testing import quick
from tiny_runs import NARROW, as_arguments, snapshot

SETTINGS = {"classifier.hidden": [8, 16, 8], "classifier_training.optimiser.epochs": 2}
PAPER = ["--preset", "paper", "--device", "cpu"]
TINY = [*as_arguments(SETTINGS), *PAPER]
CHEAP = ["--planners", "nearest,frequent", "--horizons", "2,3", "--seeds", "2", *TINY]


# compare


def test_compare(world, tmp_path, ran, refused):
    out = tmp_path / "out"
    told = ran("compare", world.folder, "--out", out, *CHEAP, "--estimate")
    assert (told.out, [path.name for path in out.iterdir()]) == ("", ["costs"])
    assert told.err.count("estimate for 8 scores: ") == 1
    captured = ran("compare", world.folder, "--out", out, *CHEAP)
    results = Results.read(out / "results.json")
    found = [(cell.horizon, cell.seed, cell.row) for cell in results.trials]
    assert found == list(product((2, 3), (0, 1), ("nearest", "frequent")))
    assert results.settings == {key: str(value) for key, value in SETTINGS.items()}
    count = len(cut_windows(world, horizon=3, split="test"))
    assert f"{world.name}, T = 3, {count} test windows, preset paper\n" in captured.out
    assert captured.out.count("success rate less that of nearest window") == 2
    rates = [cell.success_rate for cell in results.trials if cell.row == "nearest"]
    score = results.intervals[2]["nearest"]["success_rate"]
    assert f"{rates[0]:.2f} ({score['low']:.1f}–{score['high']:.1f}) ¹" in captured.out
    assert "Per cent unless said, 90 % intervals (" in captured.err
    assert "¹ the best of a column, ² the second best" in captured.err
    assert captured.err.count("Warning: fewer than three seeds (all rows)") == 1
    assert "--set classifier_training.optimiser.epochs does not reach nearest\n" in captured.err
    assert (
        "estimate for 8 scores: under a minute. It is of one epoch of each network" in captured.err
    )
    assert re.findall(r"(\d) scores? to go, under a minute", captured.err) == [*"7654321"]
    names = "T2 T3 costs results.json scores.csv tables.md tables.tex"
    assert sorted(path.name for path in out.iterdir()) == names.split()
    text = (out / "tables.md").read_text()
    assert text.count("| --- |") == 4
    assert (out / "tables.tex").read_text().count(r"\begin{table}") == 4
    heads, *lines = (out / "scores.csv").read_text().splitlines()
    assert heads.startswith("row,steps,seed,windows,success_rate,")
    assert [line.count(",") for line in lines] == [heads.count(",")] * 8
    before = snapshot(out / "T2")
    # nothing is missing
    again = ran("compare", world.folder, "--out", out, *CHEAP, "--workers", "3")
    assert again.out == captured.out
    assert "estimate" not in again.err
    assert snapshot(out / "T2") == before
    assert (out / "tables.md").read_text() == text
    assert f"Give a run below it: {out}/T2/seed0/runs/frequent-" in refused("evaluate", out)


def test_the_small_data_set_of_the_page_is_compared_as_it_says(tmp_path, ran, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    start = page.index("cefito data world DATA\n")
    make, compare = page[start : page.index("\n```", start)].splitlines()
    monkeypatch.chdir(tmp_path)
    assert ran(*make.split()[1:]).err.startswith("wrote DATA: synthetic world (simulated)")
    shown = ran(*compare.split()[1:]).out.splitlines()
    assert shown[0].startswith("synthetic world (simulated), T = 3, 580 test windows")
    assert [line.split("  ")[0] for line in shown[2:4]] == [
        "nearest window",
        "most frequent window",
    ]
    files = {"T3", "costs", "results.json", "scores.csv", "tables.md", "tables.tex"}
    assert {path.name for path in (tmp_path / "CMP").iterdir()} == files


def test_scores_of_other_settings_are_named_and_stay(world, tmp_path, ran):
    given = ["compare", world.folder, "--out", tmp_path, *CHEAP]
    said = f"{tmp_path} has scores of other settings, data or code, which stay there: "
    assert said not in ran(*given, "--seed", 0).err
    before = snapshot(tmp_path / "T2" / "seed0" / "trials")
    other = ["--set", "classifier_training.optimiser.epochs=1"]
    assert f"{said}frequent, T = 2, seed 0; frequent, T = 3, seed 0\n" in ran(*given, *other).err
    assert before.items() < snapshot(tmp_path / "T2" / "seed0" / "trials").items()
    error = ran(*given).err
    assert "estimate for 2 scores" in error  # of the other seed alone
    key = "settings.classifier_training.optimiser.epochs"
    assert f"it differs in {key} ('1' there, '2' here)\n" in error
    for settings in ([], other):
        assert "estimate" not in ran(*given, *settings).err


def test_a_metric_that_is_newer_than_the_scores_is_named(world, tmp_path, ran, monkeypatch):
    """With the way to get it, where all scores or those of some seeds lack it."""
    given = [
        "compare",
        world.folder,
        "--out",
        tmp_path,
        "--planners",
        "nearest",
        *CHEAP[2:6],
        *PAPER,
    ]
    assert "estimate" not in ran(*given, "--no-estimate").err
    assert not (tmp_path / "costs").exists()
    given += ["--columns", "SR,new"]
    metric = Metric(lambda scored: (1.0, len(scored.best)), head="new", meaning="all are new")
    monkeypatch.setitem(METRICS, "new", metric)
    said = "no score has new: it does not apply, or is newer than the scores. To score the runs "
    assert f"{said}again, remove {tmp_path}/T*/seed*/trials" in ran(*given).err
    for path in tmp_path.glob("T*/seed1/trials/nearest.json"):
        path.unlink()
    captured = ran(*given)
    assert "nearest: new is missing of seeds 0, scored without it. Remove" in captured.err
    assert "no score has" not in captured.err


def test_an_interrupted_comparison_shows_what_is_scored(world, tmp_path, call, ran, monkeypatch):
    ran("compare", world.folder, "--out", tmp_path, *CHEAP[:4], "--seeds", 1, *TINY)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cefito.study.running.run_study", interrupted)
    code, out, err = call("compare", world.folder, "--out", tmp_path, *CHEAP)
    assert code == 130
    assert out.count("test windows, preset paper\n") == 2
    assert "nearest, seed 1: not scored yet. Repeat the command." in err
    assert err.splitlines()[-1] == "error: interrupted; repeat the command to go on"


# reproduce


@pytest.fixture
def cheap_experiments(monkeypatch):
    """Experiments with cheap rows."""
    rows = (ROWS["frequent"], ROWS["nearest"])
    for name in ("crosstask", "classifier"):
        changes: dict[str, Any] = {"rows": lambda _: rows, "draw": lambda *_: ["plans.svg"]}
        monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], **changes))


def test_reproduce(world, tmp_path, ran, cheap_experiments):
    command = ["reproduce", "classifier", world.folder, "--out", tmp_path, "--seeds", 1, *TINY]
    told = ran(*command, "--estimate")
    assert (told.out, [path.name for path in tmp_path.iterdir()]) == ("", ["costs"])
    assert "estimate for 4 scores: under a minute" in told.err
    captured = ran(*command)
    first, *_, last, drew = captured.err.splitlines()
    assert drew == "drew plans.svg"
    assert first.startswith("classifier: accuracy of the task classifier; 2 rows, T = 3, 4, 1 seed")
    before, _, _ = captured.err.partition("3 scores to go")
    assert "4 of 4 scores are missing." in before
    assert "estimate for 4 scores: " in before
    assert "--set classifier_training.optimiser.epochs does not reach nearest\n" in before
    files = f"results.json, scores.csv, tables.md and tables.tex into {tmp_path}"
    assert last == f"wrote {files}; the tables explain their columns"
    assert captured.out.count("test windows, preset paper") == 4
    again = ran(*command, "--planners", "pkg", "--estimate", "--set", "coverage.windows=3")
    assert "--set coverage.windows does not reach any row\n" in again.err
    again = ran(*command)
    assert "0 of 4 scores are missing." in again.err
    assert again.out == captured.out


def test_reproduce_every_system_of_the_paper(world, tmp_path, ran, cheap_experiments):
    """Rows that are named follow those of the table, once each."""
    sections = ("classifier", "classifier_training", "kepp", "schema_model", "mtid", "p3iv")
    values = quick(settings_values("small"), {".optimiser.epochs": 1}) | NARROW
    settings = as_arguments({k: v for k, v in values.items() if k.split(".")[0] in sections})
    names = ("kepp", "schema", "mtid", "p3iv", "nearest")
    command = ["reproduce", "crosstask", world.folder, "--out", tmp_path, "--seeds", 1]
    command += ["--planners", ",".join(names), "--horizons", 3, "--preset", "small", *settings]
    captured = ran(*command, "--json")
    trials = {trial["row"]: trial for trial in json.loads(captured.out)["trials"]}
    assert [*trials] == ["frequent", "nearest", "kepp", "schema", "mtid", "p3iv"]
    assert all(0 <= trial["metrics"]["success_rate"] <= 100 for trial in trials.values())
    assert "6 of 6 scores are missing." in captured.err
    again = ran("reproduce", *command[1:])
    assert "0 of 6 scores are missing." in again.err
    assert all(f"\n{title}" in again.out for title in ("KEPP", "SCHEMA", "MTID", "P3IV"))


def test_reproduce_what_fails(world, tmp_path, call, cheap_experiments, monkeypatch):
    monkeypatch.setattr(NearestPlanner, "fit", None)
    command = ["reproduce", "crosstask", world.folder, "--out", tmp_path, "--seeds", 1, *TINY]
    code, out, err = call(*command, "--horizons", 3)
    assert (code, out.count("| nearest window |")) == (1, 0)
    assert f"The paper's table is of crosstask; this data set is '{world.name}'.\n" in err
    assert "failed: nearest, T = 3, seed 0: TypeError: " in err
    assert err.endswith("error: 1 of 2 trials failed.\n")


def test_reproduce_from_the_repository_of_the_authors(tmp_path, ran, cheap_experiments):
    out = tmp_path / "out"
    repository = write_repository(tmp_path / "theirs")
    command = ["reproduce", "crosstask", repository, "--out", out, "--seeds", 1, *TINY]
    first = ran(*command)
    data = open_dataset(out / "data")
    assert (data.name, data.provenance["preparation"]["beyond"]["policy"]) == (
        "crosstask",
        "rewrite",
    )
    assert "crosstask, T = 4" in first.out
    first_table = (out / "tables.md").read_text().partition("\nBold: ")[0]
    assert first_table.index("| nearest window |") < first_table.index("| CEFITO")
    assert "0 of 4 scores are missing." in ran(*command).err


def test_jobs_of_a_table_of_the_paper(world, tmp_path, ran, cheap_experiments):
    """One seed, or one row, each; the command without both makes the tables."""
    command = ["reproduce", "classifier", world.folder, "--out", tmp_path, "--seeds", 2]
    command += ["--horizons", 3, *TINY]
    first = ran(*command, "--seed", 1)
    assert first.out == ""
    assert "done here: 2 of 2 scores; missing in all: 2 of 4." in first.err
    assert not (tmp_path / "tables.md").exists()
    second = ran(*command, "--only", "nearest")
    assert "1 of 2 scores are missing." in second.err
    assert "done here: 2 of 2 scores; missing in all: 1 of 4." in second.err
    whole = ran(*command)
    assert "1 of 4 scores are missing." in whole.err
    assert "2 seeds" in whole.err
    assert {trial.seed for trial in Results.read(tmp_path / "results.json").trials} == {0, 1}
    assert (tmp_path / "tables.md").exists()


def test_several_workers_show_a_bar_instead_of_what_remains(world, tmp_path, ran):
    given = ["compare", world.folder, "--out", tmp_path, "--planners", "nearest", "--seeds", 2]
    said = ran(*given, "--horizons", 2, "--workers", 2, *PAPER).err
    assert "estimate for 2 scores: under a minute, by 2 workers" in said
    assert "to go" not in said
    assert "comparing: 2/2" in said


def test_a_narrow_terminal_shows_the_first_columns_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    fitting = import_module("cefito.cli.compare")._fitting
    cells = ["nearest", "12.3 (4–5)", "45.6 (7–8)", "9"]
    fitting("t", ["row", "SR", "mAcc", "mIoU"], [cells])
    assert "9" in capsys.readouterr().out  # a file has all
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    fitting("t", ["row", "SR", "mAcc", "mIoU"], [cells])
    out, err = capsys.readouterr()
    assert "12.3 (4–5)" in out
    assert "mIoU" not in out
    assert err.strip() == "in the files, too: mIoU"


def test_one_kind_of_rows_is_compared(refused, tmp_path):
    kinds = ("--recognisers", "nearest", "--planners", "nearest")
    said = refused("compare", tmp_path, *kinds, "--out", tmp_path / "out")
    assert "--recognisers and --planners: give one of them" in said
