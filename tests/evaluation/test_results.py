import json
from dataclasses import replace

import numpy as np
import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import RunError
from cefito.evaluation.results import gather, read_results, write_results
from cefito.evaluation.rows import Row, find_rows
from cefito.evaluation.study import Study, read_cell, run_study
from cefito.evaluation.tables import difference_table, score_table, to_csv

NEAREST = find_rows(["nearest"])[0]
COSTLY = replace(NEAREST, name="costly", title="costly", exhaustive=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(train=24, val=12, test=12, dim=8),
    )


@pytest.fixture(scope="module")
def study(world, tmp_path_factory):
    """A study of cheap rows, some scored on a sample."""
    ours = Study(
        dataset=world.folder,
        out=tmp_path_factory.mktemp("study") / "out",
        rows=(COSTLY, NEAREST),
        horizons=(2, 3),
        seeds=(1, 0),
        preset="paper",
        settings={"field.width": 12},
        costly=100,
        costly_sample=9,
        device="cpu",
    )
    assert run_study(ours) == []
    return ours


def windows_of(results, entry):
    """Video and start of each window that a cell was scored on."""
    everything = list(
        zip(
            *(results["windows"][str(entry["horizon"])][name] for name in ("video", "start")),
            strict=True,
        )
    )
    return (
        everything
        if entry["scored"] is None
        else [everything[number] for number in entry["scored"]]
    )


def test_what_results_hold(study, world):
    results = gather(study)
    assert results["dataset"] == {"name": world.name, "fingerprint": world.fingerprint}
    assert (results["selection"], results["preset"], results["sample"]) == (
        "held-out",
        "paper",
        None,
    )
    assert results["settings"] == {"field.width": 12}
    assert (results["horizons"], results["seeds"]) == ([2, 3], [1, 0])
    assert [Row(**row) for row in results["rows"]] == list(study.rows)
    assert len(results["cells"]) == 8
    for cell, entry in zip(study.cells(), results["cells"], strict=True):
        kept = read_cell(study, cell, world)
        assert (entry["row"], entry["horizon"], entry["seed"]) == (
            cell.row.name,
            cell.horizon,
            cell.seed,
        )
        assert "key" not in entry
        assert entry["metrics"] == kept["metrics"]
        assert windows_of(results, entry) == list(zip(kept["videos"], kept["starts"], strict=True))
        assert len(entry["success"]) == entry["windows"] == len(windows_of(results, entry))
        sampled = cell.row is COSTLY and cell.horizon == 3
        assert entry["windows"] == (
            9 if sampled else len(cut_windows(world, horizon=cell.horizon, split="test"))
        )
        assert (entry["scored"] is None) is not sampled


@pytest.mark.parametrize("rows", [(COSTLY, NEAREST), (NEAREST, COSTLY), (COSTLY,)])
@pytest.mark.parametrize("sample", [20, 9, 5])
def test_samples_of_samples(sample, rows, study, tmp_path):
    ours = replace(study, out=tmp_path / "out", rows=rows, sample=sample, horizons=(3,), seeds=(0,))
    assert run_study(ours) == []
    results = gather(ours)
    found = {entry["row"]: windows_of(results, entry) for entry in results["cells"]}
    assert len(found["costly"]) == min(sample, 9)
    assert set(found["costly"]) <= set(found.get("nearest", found["costly"]))
    whole = results["cells"][0]["sampled_from"]
    assert (
        f"{max(map(len, found.values()))} of {whole} test windows" in score_table(results, 3).title
    )


def test_a_file_and_back(study, tmp_path):
    results = gather(study)
    write_results(results, tmp_path / "results.json")
    assert read_results(tmp_path / "results.json") == results
    again = read_results(tmp_path / "results.json")
    assert to_csv(again) == to_csv(results)
    assert score_table(again, 3) == score_table(results, 3)
    assert difference_table(again, 3) == difference_table(results, 3)
    assert np.isfinite([entry["metrics"]["success_rate"] for entry in again["cells"]]).all()


def test_cells_without_scores_say_why(study, world, tmp_path):
    ours = replace(study, out=tmp_path / "out", horizons=(2,), seeds=(0,))
    assert [entry["error"] for entry in gather(ours)["cells"]] == [
        "not scored yet. Repeat the command."
    ] * 2
    assert run_study(ours) == []
    (broken, _) = (cell.path(ours) for cell in ours.cells())
    broken.write_text("{")
    results = gather(ours)
    assert f"{broken}: not valid JSON" in results["cells"][0]["error"]
    assert results["cells"][0]["error"].endswith("Remove it to have the cell scored again.")
    assert "metrics" in results["cells"][1]
    json.dumps(results, allow_nan=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ("[]", "not a results file of this version"),
        ('{"format_version": 2, "cells": []}', "not a results file"),
        ('{"format_version": 1}', "not a results file"),
    ],
)
def test_files_that_are_no_results(content, message, tmp_path):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(
        RunError, match=rf"results\.json: {message}.*Make it again with cefito compare"
    ):
        read_results(path)
