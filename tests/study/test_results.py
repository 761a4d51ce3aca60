import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cefito.data.windows import cut_windows
from cefito.errors import RunError
from cefito.evaluation.score import ScoredWindows, evaluate_planner, planned_tasks
from cefito.files import unsealed, value_sealed
from cefito.planners.base import Queries
from cefito.runs.run import open_run
from cefito.study.results import Results, gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.tables import result_tables
from cefito.study.trials import FailureFile, TrialFile, find_rows, read_trial

NEAREST = find_rows(["nearest"])[0]
COSTLY = NEAREST.model_copy(update={"name": "costly", "title": "costly", "exhaustive": True})
COMPARED = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("compare-*.json"))


@pytest.fixture(scope="module")
def study(world, tmp_path_factory):
    """A study of cheap rows, some scored on a sample."""
    how: dict[str, Any] = {"preset": "paper", "settings": {"field.width": 12}, "device": "cpu"}
    how |= {"rows": (COSTLY, NEAREST), "horizons": (2, 3), "seeds": (1, 0)}
    out = tmp_path_factory.mktemp("study") / "out"
    ours = Study(dataset=world, out=out, costly=100, costly_sample=9, **how)
    assert run_study(ours) == []
    return ours


def windows_of(results, entry):
    """Video and start of each window that a cell was scored on."""
    windows = results.windows_of(entry.horizon)
    everything = list(zip(windows.video, windows.start, strict=True))
    return everything if entry.scored is None else [everything[place] for place in entry.scored]


def test_content_of_results(study, world):
    results = gather(study)
    assert results.dataset.model_dump() == {"name": world.name, "fingerprint": world.fingerprint}
    assert (results.selection, results.preset, results.sample) == ("held-out", "paper", None)
    assert results.settings == {}  # that of the field reaches no row
    assert (results.horizons, results.seeds) == ([2, 3], [1, 0])
    assert results.rows == list(study.rows)
    assert len(results.trials) == 8
    assert {windows.kind for windows in results.windows.values()} == {"video"}  # without groups
    for cell, entry in zip(study.trials, results.trials, strict=True):
        kept = read_trial(cell)
        place = (cell.row.name, cell.horizon, cell.seed)
        assert (entry.row, entry.horizon, entry.seed) == place
        assert "key" not in entry.to_dict()
        assert entry.metrics == kept.metrics
        assert windows_of(results, entry) == list(zip(kept.videos, kept.starts, strict=True))
        assert len(entry.success) == entry.windows == len(windows_of(results, entry))
        sampled = cell.row is COSTLY and cell.horizon == 3
        count = len(cut_windows(world, horizon=cell.horizon, split="test"))
        assert entry.windows == (9 if sampled else count)
        assert (entry.scored is None) is not sampled
    assert [entry.seed for entry in results.scored(2, "nearest")] == [0, 1]
    assert len(results.scored(3)) == 4
    assert results.failed(3, "nearest") == []
    videos = (replace(video, group=f"{n % 3}") for n, video in enumerate(world.videos))
    groups = replace(world, annotations=replace(world.annotations, videos=tuple(videos)))
    grouped = gather(replace(study, dataset=groups))
    assert {windows.kind for windows in grouped.windows.values()} == {"group"}
    assert grouped.intervals != results.intervals


def test_intervals_resample_videos(study, world):
    results = gather(study)
    for horizon in (2, 3):
        windows = cut_windows(world, horizon=horizon, split="test")
        trial = next(one for one in study.trials if (one.row, one.horizon) == (NEAREST, horizon))
        planner = open_run(trial.run_folder).planner
        _, plans = evaluate_planner(planner, windows)
        tasks = planned_tasks(planner, Queries.from_windows(windows), plans)
        expected = ScoredWindows(plans, windows, tasks=tasks, orders=study.orders).intervals()
        ours = results.intervals[horizon]["nearest"]  # both seeds are alike
        assert {*ours} == {name for name, low in expected.low.items() if isinstance(low, float)}
        for name in ours:
            ends = (ours[name]["low"], ours[name]["high"])
            assert ends == pytest.approx(expected.ends(name), abs=0.006)
            assert ours[name]["mean"] == pytest.approx(
                results.scored(horizon, "nearest")[0].percent(name), abs=0.006
            )
    table = result_tables(results)[0]
    score = results.intervals[2]["nearest"]["success_rate"]
    assert f" ({score['low']:.1f}–{score['high']:.1f})" in table.lines[0][1].text
    assert table.legend == "Per cent unless said, 90 % intervals (videos resampled)."


def test_scores_without_sums_by_video_keep_intervals_over_seeds(study, tmp_path):
    ours = replace(study, out=tmp_path / "out", horizons=(2,))
    assert run_study(ours) == []
    first = ours.trials[0]
    kept = first.result

    def mean(sums):
        kept.model_copy(update={"video_sums": sums}).write(first.path)
        return gather(ours).intervals[2][first.row.name]["success_rate"]["mean"]

    nothing = {name: [0.0 for _ in own] for name, own in kept.video_sums.items()}
    assert mean(nothing) == pytest.approx(mean(kept.video_sums) / 2, abs=0.01)  # of both seeds
    kept.model_copy(update={"video_sums": None, "video_counts": None}).write(first.path)
    results = gather(ours)
    assert results.intervals is None
    assert "intervals" not in results.to_dict()
    table = result_tables(results)[0]
    assert "SR over seeds" not in table.heads
    assert " ± 0.00" in table.lines[0][1].text
    assert "since these scores were stored without sums by video" in table.legend


def test_titles_are_the_planners_own_names_where_a_row_asks_for_it(study, tmp_path):
    """A planner that was trained otherwise calls itself otherwise; files keep what it said."""
    named = NEAREST.model_copy(update={"name": "named", "title": "generic", "own_name": True})
    ours = replace(
        study, out=tmp_path / "out", rows=(named, NEAREST), horizons=(2,), seeds=(0,), settings={}
    )
    assert [row.title for row in gather(ours).rows] == ["generic", NEAREST.title]
    assert run_study(ours) == []
    results = gather(ours)
    (name,) = {entry.planner for entry in results.trials}
    assert [row.title for row in results.rows] == [name, NEAREST.title]
    results.write(tmp_path / "results.json")
    assert "own_name" not in (tmp_path / "results.json").read_text()
    assert Results.read(tmp_path / "results.json") == results


def test_trials_without_scores_say_why(study, world, tmp_path):
    ours = replace(study, out=tmp_path / "out", horizons=(2,), seeds=(0,))
    assert all("not scored yet." in entry.error for entry in gather(ours).trials)
    assert run_study(ours) == []
    (broken, _) = (cell.path for cell in ours.trials)
    broken.write_text("{")
    results = gather(ours)
    assert f"{broken}: not valid JSON" in results.trials[0].error
    assert results.trials[0].error.endswith("Remove it to score the trial again.")
    assert results.trials[1].success_rate >= 0
    json.dumps(results.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ('{"format_version": 1}', "has changed since it was written"),
        (
            json.dumps(value_sealed({"format_version": 1, "x": 1})),
            r"not a results file of this version \(dataset: is missing",
        ),
    ],
)
def test_files_that_are_no_results(content, message, tmp_path):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RunError, match=rf"results\.json: {message}.*Make it again"):
        Results.read(path)


@pytest.mark.parametrize("path", COMPARED, ids=lambda path: path.stem)
def test_published_comparisons_can_be_read(path):
    results = Results.read(path)
    kept, _ = unsealed(json.loads(path.read_text()))
    for cell in kept["trials"]:
        cell.setdefault("shared_metrics", None)  # absent in these files
        for training in cell["training"].values():
            for name, value in (("metrics", []), ("precision", "float32"), ("processor", "none")):
                training.setdefault(name, value)
    assert results.to_dict() == kept
    assert len(result_tables(results)) == 2 * len(results.horizons)


def test_damaged_trials_are_refused_with_their_file(study, tmp_path):
    ours = replace(study, out=tmp_path / "out", rows=(NEAREST,), horizons=(2,), seeds=(0,))
    assert run_study(ours) == []
    (cell,) = ours.trials
    path = cell.path
    value = json.loads(path.read_text())
    assert TrialFile.read(path) == read_trial(cell)
    remedy = "Remove it to score the trial again"
    path.write_text(json.dumps(value | {"without_plan": value["without_plan"] + 1}))
    with pytest.raises(RunError, match=rf"nearest\.json: has changed since.*{remedy}"):
        read_trial(cell)
    failure = {name: value[name] for name in ("key", "row", "horizon", "seed")} | {"error": "why"}
    path.write_text(json.dumps(failure))  # without a seal
    with pytest.raises(RunError, match=r"nearest\.json: has changed since"):
        read_trial(cell)
    path.write_text(json.dumps(value_sealed(failure)))
    assert read_trial(cell) == FailureFile(**failure)
    assert read_trial(cell).to_dict() == failure
    path.write_text(json.dumps(value_sealed(failure | {"colour": "red"})))
    with pytest.raises(RunError, match=r"nearest\.json: .*colour"):
        read_trial(cell)
    assert run_study(ours) == []  # and are scored anew
