import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cefito.cli import main
from cefito.data import open_dataset
from cefito.data.downloads import find_places
from cefito.data.simulation.films import write_films
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import DataError, RunError
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.study import quickstart
from cefito.study.quickstart import EXAMPLES, HORIZON, run_quickstart
from cooking import FILES, KITCHEN, ROWS, cook_values, serve_cook_files, write_cook_files
from tiny_runs import TINY_LENGTHS, TINY_ROWS, TINY_RUN, as_arguments

CONFIG = load_config("paper", overrides=TINY_RUN)


def small_world(folder, *, seed):
    return write_world(folder, seed=seed, knobs=WorldKnobs(train=24, val=12, test=12, dim=8))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quickstart, "write_world", small_world)
        return run_quickstart(
            tmp_path_factory.mktemp("quick") / "below" / "start", seed=3, config=CONFIG
        )


def test_evaluations(made):
    assert [(evaluation.planner, evaluation.oracle_task) for evaluation in made.evaluations] == [
        ("CEFITO", False),
        ("CEFITO", True),
        ("nearest window", False),
        ("most frequent window", False),
    ]
    test = cut_windows(open_dataset(made.folder / "world"), horizon=HORIZON, split="test")
    for evaluation in made.evaluations:
        assert "simulated" in evaluation.dataset
        assert (evaluation.split, evaluation.windows, evaluation.exact) == ("test", len(test), True)
    accuracies = [evaluation.metrics["task_accuracy"] for evaluation in made.evaluations]
    assert accuracies[1] == 100
    assert accuracies[0] == accuracies[3]


def test_examples(made):
    dataset = open_dataset(made.folder / "world")
    names = {task.name: task for task in dataset.taxonomy.tasks}
    assert len(made.examples) == EXAMPLES
    for example in made.examples:
        video = next(video for video in dataset.videos if video.video_id == example.video)
        assert video.split == "test"
        assert dataset.taxonomy.tasks[video.task].name == example.true_task_name
        steps = video.steps[example.from_step - 1 :][:HORIZON]
        assert example.true_names == dataset.taxonomy.names([step.action for step in steps])
        assert len(example.plans) == 5
        scores = [plan.score for plan in example.plans]
        assert scores == sorted(scores)
        allowed = set(names[example.predicted_task_name].actions)
        assert all(set(plan.actions) <= allowed for plan in example.plans)


def test_an_existing_folder_is_refused_unless_it_was_made_here(made, tmp_path):
    (tmp_path / "file").write_text("keep")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(RunError, match=r"exists already"):
            run_quickstart(folder, config=CONFIG)
    with pytest.raises(RunError, match="holds a run with another seed"):
        run_quickstart(made.folder, seed=4, config=CONFIG)
    again = run_quickstart(made.folder, seed=3, config=CONFIG)
    assert again.examples == made.examples


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quickstart, "write_world", small_world)
    asked = []
    monkeypatch.setattr(
        quickstart, "load_config", lambda preset, **_: asked.append(preset) or CONFIG
    )
    out = tmp_path / "runs" / "quickstart"
    assert main(["quickstart", "--out", str(out), "--seed", "1"]) == 0
    assert asked == ["quickstart"]
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert "simulated" in lines[0]
    assert lines[1].split()[:2] == ["planner", "SR"]
    names = ["CEFITO", "CEFITO, true task", "nearest window", "most frequent window"]
    assert [line.split("  ")[0] for line in lines[2:6]] == names
    assert captured.out.count("annotated: ") == EXAMPLES
    assert captured.out.count(" → ") == EXAMPLES * 6 * (HORIZON - 1)
    assert captured.out.count("probability  plan") == EXAMPLES
    assert "score" not in captured.out
    assert f"look at {out}/report.html." in captured.err
    assert "planned right" in (out / "report.html").read_text()
    assert f"cefito plan {out}/run --video world-" in captured.err
    said = captured.err.partition("What next:")[2]
    assert "  your own films    cefito quickstart --films FOLDER, some of them labelled\n" in said
    assert "Traceback" not in captured.err
    assert open_run(out / "run").info.seed == 1

    other = tmp_path / "json"
    assert main(["quickstart", "--out", str(other), "--seed", "1", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["report"] == str(other / "report.html")
    assert [score["planner"] for score in value["scores"]][-1] == "most frequent window"
    assert len(value["examples"]) == EXAMPLES

    line = next(line for line in captured.err.splitlines() if "cefito plan" in line)
    assert main(line.split("cefito ")[1].split()) == 0  # what it suggests works
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart"]) == 2  # into its folder by default
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "holds a run with another seed" in captured.err
    assert main(["quickstart", "--out", str(out), "--seed", "1"]) == 0


@pytest.mark.nightly
def test_pixels(tmp_path, capsys, monkeypatch):
    pytest.importorskip("av")
    few = WorldKnobs(train=8, val=4, test=4, pace=0.1)
    monkeypatch.setattr(quickstart, "write_films", partial(write_films, knobs=few))
    monkeypatch.chdir(tmp_path)
    out = Path("runs/quickstart-pixels")
    assert main(["quickstart", "--pixels"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("drawn films: ")
    rows = ["--recognisers", "nearest", "--seeds", "1"]  # as docs/compare.md says
    assert main(["compare", str(out / "data"), *rows, "--out", str(tmp_path / "compared")]) == 0
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    (tmp_path / "demo").symlink_to(out)
    given = as_arguments(TINY_LENGTHS | TINY_ROWS)
    for line in page.partition("--out demo\n")[2].partition("\n```")[0].splitlines():
        assert main([*line.split()[1:], *(given if " train " in line else ())]) == 0
    assert main(["follow", "runs/2026-11", "--camera", str(next(out.rglob("*.mp4")))]) == 0
    capsys.readouterr()
    title = f"between the pictures {out}/before.jpg and {out}/after.jpg"
    assert captured.out.count(title) == 1
    line = next(line for line in captured.err.splitlines() if "cefito plan" in line)
    assert main([*line.split("cefito ")[1].split(), "--json"]) == 0  # what it suggests works
    best = json.loads(capsys.readouterr().out)["plans"][0]["names"]
    assert " → ".join(best) in captured.out.split(title)[1]
    assert "data:image/jpeg" in (out / "report.html").read_text()
    assert main(["quickstart", "--pixels", "--real", "--out", str(out)]) == 2


def real_quickstart(values, tmp_path, capsys, monkeypatch):
    """Call the command on served files, with hardly any training; stdout and stderr."""
    monkeypatch.setattr(quickstart, "load_config", lambda *_, **__: CONFIG)
    monkeypatch.setattr("cefito.files.user_cache", lambda name: tmp_path / "cache" / name)
    out = tmp_path / "start"
    served = write_cook_files(tmp_path / "served", values)
    with serve_cook_files(monkeypatch, served):
        assert main(["quickstart", "--real", "--out", str(out)]) == 0
    names = {path.name for path in (tmp_path / "cache" / "captaincook4d").iterdir()}
    assert names == set(FILES.values())
    assert {path.name for path in out.iterdir()} == {"data", "run", "simple", "report.html"}
    captured = capsys.readouterr()
    assert captured.out.startswith("captaincook4d: ")
    names = [line.split("  ")[0] for line in captured.out.splitlines()[2:6]]
    assert names == ["chain", "chain, true task", "nearest window", "most frequent window"]
    assert "probability  plan" in captured.out
    assert f"look at {out}/report.html." in captured.err
    assert "cefito compare" in captured.err
    line = next(line for line in captured.err.splitlines() if "cefito plan" in line)
    assert main(line.split("cefito ")[1].split()) == 0  # what it suggests works
    return out, captured.out.splitlines()


def test_real_videos_of_a_made_up_kitchen(tmp_path, capsys, monkeypatch):
    out, _ = real_quickstart(cook_values(KITCHEN, ROWS), tmp_path, capsys, monkeypatch)
    dataset, run = open_dataset(out / "data"), open_run(out / "run")
    assert dataset.annotations == KITCHEN
    assert (run.info.method, run.info.dataset.fingerprint) == ("chain", dataset.fingerprint)
    assert "chain on captaincook4d, T = 3" in (out / "report.html").read_text()


@pytest.mark.slow
def test_real_videos(shared_data, real_annotations, tmp_path, capsys, monkeypatch):
    with np.load(shared_data / "captaincook4d" / "features.npz") as arrays:
        values = cook_values(real_annotations("captaincook4d"), arrays["start"])
    _, said = real_quickstart(values, tmp_path, capsys, monkeypatch)
    assert "1324 test windows" in said[0]
    assert said[4].split()[2:3] == ["16.01"]  # nearest window


def test_without_a_network_the_message_lists_the_files(tmp_path, monkeypatch):
    served = write_cook_files(tmp_path / "served", cook_values(KITCHEN, ROWS))
    with serve_cook_files(monkeypatch, served) as stop:
        stop()
        with pytest.raises(DataError) as caught:
            run_quickstart(tmp_path / "start", kind="real", downloads=tmp_path / "files")
        message = str(caught.value)
        for place in find_places("captaincook4d"):
            assert f"{place.file} from {place.address}" in message
    assert "cannot be reached (" in message
    assert f"Without a network, save these files in {tmp_path / 'files'} and repeat" in message
    assert not (tmp_path / "start").exists()


def test_damaged_files_are_named(tmp_path, monkeypatch):
    folder = write_cook_files(tmp_path / "files", cook_values(KITCHEN, ROWS))
    with pytest.raises(DataError, match=r"pkl: .* expected 3,269,792\."):
        run_quickstart(tmp_path / "start", kind="real", downloads=folder)
