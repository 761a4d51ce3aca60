"""Reports of comparisons: read, not computed."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from browsing import parsed
from cefito.cli import main
from cefito.errors import RunError
from cefito.evaluation.statistics import paired_difference
from cefito.files import value_sealed
from cefito.report import rendered, report_comparison
from cefito.study.results import Results

CHEAP = ("classifier.hidden=[8,16,8]", "classifier_training.optimiser.epochs=2")


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison") / "study"
    argv = ["compare", world.folder, "--planners", "frequent,nearest", "--horizons", "2,3"]
    argv += ["--seeds", "2", "--out", out, "--preset", "paper", "--device", "cpu"]
    argv += [part for setting in CHEAP for part in ("--set", setting)]
    assert main([str(part) for part in argv]) == 0
    return out


@pytest.fixture(scope="module")
def made(folder):
    return report_comparison(folder)


@pytest.fixture(scope="module")
def page(made):
    return rendered(made)


def test_the_command_of_a_page_works_in_any_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    command = report_comparison(folder.name).commands[-1]
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    assert (tmp_path / "report.html").exists()


def test_a_comparison_of_recognisers_has_tables_alone(tmp_path, capsys):
    (tmp_path / "recognition.json").write_text("{}")
    assert main(["report", str(tmp_path), "--json"]) == 2
    assert "whose tables are recognition.md and .tex." in capsys.readouterr().err


def test_a_comparison_whose_jobs_have_not_ended_says_how_to_end_it(tmp_path, capsys):
    (tmp_path / "T3/seed0/trials").mkdir(parents=True)
    assert main(["report", str(tmp_path), "--json"]) == 2
    assert "without results.json. Repeat its cefito compare without" in capsys.readouterr().err


def test_numbers_are_those_of_the_results(folder, made):
    results = Results.read(folder / "results.json")
    assert list(made.rows) == [2, 3]
    for horizon, rows in made.rows.items():
        trials = {row.title: results.scored(horizon, row.name) for row in results.rows}
        rates = [np.mean([one.success_rate for one in trials[found.name]]) for found in rows]
        assert rates == sorted(rates, reverse=True)
        for found in rows:
            means = np.mean([one.position_accuracy for one in trials[found.name]], axis=0)
            assert found.position_accuracy == pytest.approx(means)
        (table,) = (t for t in made.tables if f"T = {horizon}" in t.title and t.heads[1] == "SR")
        titles = [line[0].text for line in table.lines]
        assert titles == [found.name for found in rows]  # the best first
    assert made.simulated
    assert "--planners frequent,nearest --horizons 2,3 --seeds 2 " in made.commands[0]
    assert made.settings == dict(setting.split("=") for setting in CHEAP)


def test_the_lead_is_the_paired_difference_of_the_two_best(folder, made, page):
    results = Results.read(folder / "results.json")
    for lead in made.leads:
        video = np.array(results.windows_of(lead.horizon).video)
        first, second = (
            [
                [int(digit) for digit in trial.success]
                for trial in results.scored(lead.horizon, row.name)
            ]
            for title in (lead.ahead, lead.behind)
            for row in results.rows
            if row.title == title
        )
        wanted = paired_difference(first, second, video)
        assert (lead.difference, lead.low, lead.high) == (wanted.mean, wanted.low, wanted.high)
        assert lead.certain == (wanted.low > 0)
        assert (lead.windows, lead.videos) == (len(video), len(set(video.tolist())))
    assert [lead.horizon for lead in made.leads] == [2, 3]
    assert page.index("is ahead of") < page.index("<table")


def test_the_lead_of_grouped_videos_resamples_groups(folder, tmp_path):
    results = Results.read(folder / "results.json")
    groups = tuple(number % 2 for number in results.windows_of(2).video)
    listed = results.windows_of(2).model_copy(update={"group": groups})
    copy = shutil.copytree(folder, tmp_path / "copy")
    grouped = results.model_copy(update={"windows": results.windows | {2: listed}})
    grouped.write(copy / "results.json")
    lead = report_comparison(copy).leads[0]
    assert (lead.videos, lead.kind) == (2, "group")


def test_curves_of_all_trainings(folder, made):
    files = list(folder.glob("T*/seed*/trainings/*/metrics.jsonl"))
    assert len(made.curves) == len(files) > 0
    seeds = [(steps, seed) for steps in (2, 3) for seed in (0, 1)]
    assert [curve.name for curve in made.curves] == [
        f"frequent: classifier, T = {steps}, seed {seed}" for steps, seed in seeds
    ]


def test_the_page(made, page):
    parsed(page)
    for rows in made.rows.values():
        assert all(f"{row.position_accuracy[0]:.2f}" in page for row in rows)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    assert "simulated observations" in page
    assert not re.search(r"https?:|url\(|<img|<link|\bsrc=", page)


def test_rows_without_probabilities(made, page):
    bare = {
        horizon: [row.model_copy(update={"calibration": None}) for row in rows]
        for horizon, rows in made.rows.items()
    }
    changed = made.model_copy(update={"rows": bare, "curves": []})
    assert "No row has probabilities." in rendered(changed)
    assert "No row has probabilities." not in page
    chart = "Success rate among the windows answered against the share of windows answered"
    assert [f"{chart} T = {steps}" in page for steps in made.rows] == [True, True]


def test_a_study_with_failed_trials(folder, tmp_path):
    value = json.loads((folder / "results.json").read_text())
    for number, trial in enumerate(value["trials"]):
        if trial["horizon"] == 3:
            place = {name: trial[name] for name in ("row", "horizon", "seed")}
            value["trials"][number] = place | {"error": "no <memory>. Wait."}
    (tmp_path / "results.json").write_text(json.dumps(value_sealed(value)))
    report = report_comparison(tmp_path)
    assert len(report.rows[2]) == 2
    assert report.rows[3] == []
    page = rendered(report)
    parsed(page)
    assert "no &lt;memory&gt;. Wait." in page
    assert "no metrics of trainings" in page


def test_damaged_and_changed_results(folder, tmp_path):
    text = (folder / "results.json").read_text()
    other = re.sub(r'"success_rate": [\d.]+', '"success_rate": 99.5', text, count=1)
    for changed in (text[:200], other):
        (tmp_path / "results.json").write_text(changed)
        with pytest.raises(RunError, match=r"results\.json"):
            report_comparison(tmp_path)


def test_lost_epochs_are_noted(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    metrics = next(copy.glob("T2/seed0/trainings/classifier*/metrics.jsonl"))
    metrics.write_text("")
    (note,) = (note for note in report_comparison(copy).notes if "incomplete" in note)
    assert re.search(r"metrics.jsonl of classifier, T = 2, seed 0 has 0 of [1-9]\d* epochs", note)


def test_reports_of_its_runs_show_plans(folder, tmp_path):
    run = next((folder / "T3" / "seed0" / "runs").glob("nearest-*"))
    out = tmp_path / "run.html"
    assert main(["report", str(run), "--out", str(out), "--queries", "2"]) == 0
    text = out.read_text()
    assert "nearest window on" in text
    assert len(re.findall(r"annotated", text)) >= 2
