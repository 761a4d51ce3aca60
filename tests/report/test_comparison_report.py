"""Reports of comparisons: read, not computed."""

import json
import re

import html5lib
import numpy as np
import pytest

from browsing import check_file
from cefito.cli import main
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.errors import RunError
from cefito.report import ComparisonReport, rendered, report_comparison, save_report
from cefito.study.results import read_results

CHEAP = ("classifier.hidden=[8,16,8]", "classifier_training.optimiser.epochs=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("comparison")
    write_world(place / "world", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    argv = ["compare", place / "world", "--planners", "nearest,frequent", "--horizons", "2,3"]
    argv += ["--seeds", "2", "--out", place / "study", "--preset", "paper", "--device", "cpu"]
    argv += [part for setting in CHEAP for part in ("--set", setting)]
    assert main([str(part) for part in argv]) == 0
    return place / "study"


@pytest.fixture(scope="module")
def made(folder):
    return report_comparison(folder)


def test_numbers_are_those_of_the_results(folder, made):
    results = read_results(folder / "results.json")
    assert [part.horizon for part in made.horizons] == [2, 3]
    for part in made.horizons:
        for row, group in zip(results.rows, part.success, strict=True):
            cells = results.scored(part.horizon, row.name)
            assert group.success_rate == pytest.approx(
                np.mean([cell.success_rate for cell in cells])
            )
            assert group.low <= group.success_rate <= group.high
            assert group.listed == pytest.approx(
                np.mean([cell.metrics["top_5_success_rate"] for cell in cells])
            )
        for row, line in zip(results.rows, part.positions, strict=True):
            cells = results.scored(part.horizon, row.name)
            assert line.accuracy == pytest.approx(
                np.mean([cell.position_accuracy for cell in cells], axis=0)
            )
    for row, cost in zip(results.rows, made.costs, strict=True):
        assert cost.horizons == [2, 3]
        assert cost.seconds[1] == pytest.approx(
            np.mean([cell.seconds_per_query for cell in results.scored(3, row.name)])
        )
    assert made.simulated
    assert made.settings == dict(setting.split("=") for setting in CHEAP)


def test_the_command_says_how_many_seeds_a_row_has(folder, made, tmp_path):
    assert "--planners nearest,frequent --horizons 2,3 --seeds 2 " in made.commands[0]
    results = json.loads((folder / "results.json").read_text())
    results["cells"] = [
        cell for cell in results["cells"] if (cell["row"], cell["seed"]) != ("frequent", 1)
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    fewer = report_comparison(tmp_path).commands[0]
    assert "--planners nearest,frequent:1 --horizons 2,3 --seeds 2 " in fewer


def test_curves_of_all_trainings(folder, made):
    files = list(folder.glob("T*/seed*/trainings/*/metrics.jsonl"))
    assert len(made.curves) == len(files) > 0
    assert made.curves[0].name.startswith("T2, seed0, classifier")


def test_the_page(made):
    page = rendered(made)
    html5lib.HTMLParser(strict=True).parse(page)
    for part in made.horizons:
        assert all(f"{group.success_rate:.2f}" in page for group in part.success)
    assert "simulated observations" in page
    assert not re.search(r"https?:|url\(|<img|<link|\bsrc=", page)


def test_rows_without_probabilities(made):
    bare = [part.model_copy(update={"calibrations": []}) for part in made.horizons]
    page = rendered(made.model_copy(update={"horizons": bare}))
    assert "No row has probabilities." in page
    assert "No row has probabilities." not in rendered(made)


def test_a_study_with_failed_cells(folder, tmp_path):
    value = json.loads((folder / "results.json").read_text())
    value["cells"] = [
        {"row": cell["row"], "horizon": 3, "seed": cell["seed"], "error": "no <memory>. Wait."}
        if cell["horizon"] == 3
        else cell
        for cell in value["cells"]
    ]
    (tmp_path / "results.json").write_text(json.dumps(value))
    report = report_comparison(tmp_path)
    assert report.horizons[1].success == []
    assert all(cost.horizons == [2] for cost in report.costs)
    page = rendered(report)
    html5lib.HTMLParser(strict=True).parse(page)
    assert "no &lt;memory&gt;. Wait." in page
    assert "no metrics of trainings" in page


def test_equal_input_equal_bytes(folder, made, tmp_path):
    assert rendered(report_comparison(folder)) == rendered(made)
    assert ComparisonReport.parse(json.loads(json.dumps(made.to_dict())), tmp_path) == made


def test_damaged_results(folder, tmp_path):
    (tmp_path / "results.json").write_text((folder / "results.json").read_text()[:200])
    with pytest.raises(RunError, match=r"results\.json"):
        report_comparison(tmp_path)


def test_nothing_serious_for_axe_in_a_browser(made, tmp_path):
    save_report(made, tmp_path / "report.html")
    check_file(tmp_path / "report.html")
