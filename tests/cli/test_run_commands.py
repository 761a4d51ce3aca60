import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cefito.data.windows import cut_windows
from cefito.evaluation.metrics import metric_heads, training_orders
from cefito.evaluation.score import evaluate_planner
from cefito.runs.run import open_run
from tiny_runs import TINY_LENGTHS, TINY_RUN, as_arguments, snapshot

TINY = as_arguments(TINY_RUN)
VIDEO = "world-0036"  # the first test video


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the finished run, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def training(dataset, out, *more, horizon=3):
    """The command that trains a small run."""
    folder = ("train", dataset.folder, "--horizon", horizon, "--out", out)
    return (*folder, "--method", "cefito", "--preset", "paper", *TINY, *more)


def test_train(world, tmp_path, ran):
    folder = tmp_path / "run"
    command = training(world, folder, "--seed", 5, "--device", "cpu", horizon=2)
    captured = ran(*command)
    assert captured.out == ""
    *_, classifier, chain, field, wrote = captured.err.splitlines()
    rate, likely = r"validation \D+\d+\.\d\d", r"log likelihood -\d+\.\d\d"
    assert re.fullmatch(rf"task classifier: best epoch [12] of 2, {rate}, {likely}", classifier)
    assert re.fullmatch(rf"chain: best epoch \d+ of \d+, {rate}, {likely}", chain)
    assert re.fullmatch(rf"energy field: best epoch 1 of 1, {rate}, mean accuracy .*", field)
    assert wrote == f"wrote {folder}; score it with: cefito evaluate {folder}"
    opened = open_run(folder)
    assert (opened.info.seed, opened.planner.horizon, opened.info.preset) == (5, 2, "paper")
    planner: Any = opened.planner
    assert planner.settings.classifier.hidden == (8, 16, 8)
    again = ran(*command, "--json")
    (result,) = json.loads(again.out)["runs"]
    assert (result["run"], result["trained"]) == (str(folder), False)
    assert result["training"]["energy field"]["best_epoch"] == 1
    assert again.err == f"{folder} is finished already and nothing was done\n"


@pytest.mark.parametrize(
    ("method", "entry", "message"),
    [
        ("chain", "chain.training.optimiser.epochs=2", "mean 'chain_training.optimiser.epochs'?"),
        ("viterbi", "viterbi.training.optimizer.epochs=2", "'viterbi.training.optimiser.epochs'?"),
        ("cefito", "training.optimiser.epochs=x", "expected a whole number (got 'x')"),
    ],
)
def test_settings_are_checked_before_anything_is_loaded(
    method, entry, message, world, tmp_path, refused, monkeypatch
):
    monkeypatch.setitem(sys.modules, "cefito.runs.train", None)  # its import would fail
    argv = ("train", world.folder, "--horizon", 3, "--out", tmp_path / "run", "--method", method)
    assert message in refused(*argv, "--set", entry)


def test_evaluate_prints_a_table(run, world, ran):
    count = len(cut_windows(world, horizon=3, split="test"))
    captured = ran("evaluate", run)
    title, *lines = captured.out.splitlines()
    assert title.endswith(f", test, T = 3, {count} windows, predicted task")
    heads, *rows = (re.split(r"  +", line) for line in lines)
    assert heads == ["per cent", "CEFITO", "90 % interval, 12 videos resampled"]
    kept = json.loads((run / "evaluation-test.json").read_text())
    low, high = kept["intervals"]["low"], kept["intervals"]["high"]
    metrics, heads = kept["metrics"], metric_heads()
    shown = [(heads[name], metrics[name], low[name], high[name]) for name in heads if name in low]
    steps = zip(*(part["position_accuracy"] for part in (metrics, low, high)), strict=True)
    shown += [(f"right action at step {step}", *three) for step, three in enumerate(steps, 1)]
    expected = [[head, f"{x:.2f}", f"{y:.2f} to {z:.2f}"] for head, x, y, z in shown]
    assert rows == expected
    assert [row[0] for row in rows[:6]] == ["SR", "mAcc", "mIoU", "edit", "next", "order SR"]
    assert f"kept in {run / 'evaluation-test.json'}" in captured.err
    captured = ran("evaluate", run, "--oracle-task", "--sample", 5, "--memory-mib", 64.5)
    assert f"5 of {count} windows, true task, memory-mib 64.5\n" in captured.out
    (task,) = (line for line in captured.out.splitlines() if line.startswith("task "))
    assert task.split()[1] == "100.00"


def test_evaluate_saves_plans_and_shows_tasks(run, tmp_path, ran):
    path = tmp_path / "plans.jsonl"
    captured = ran("evaluate", run, "--save-plans", path, "--per-task")
    kept = json.loads((run / "evaluation-test.json").read_text())
    heads, *lines = captured.out.splitlines()[-1 - len(kept["per_task"]) :]
    columns = ["task", "id", "windows", "videos", "SR", "mAcc", "mIoU", "edit", "next"]
    assert re.split(r"  +", heads) == [*columns, "task right"]
    for line, part in zip(lines, kept["per_task"], strict=True):
        assert re.split(r"  +", line)[:2] == [part["name"], str(part["task"])]
        assert f"{part['metrics']['success_rate']:.2f}" in line
    assert f"wrote the plans of {kept['windows']} windows into {path}" in captured.err
    saved = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(saved) == kept["windows"]
    rate = 100 * np.mean([window["success"] for window in saved])
    assert rate == pytest.approx(kept["metrics"]["success_rate"])
    err = ran("evaluate", run, "--sample", 9).err
    assert re.search(r"SR of \d+ tasks: \d+\.\d\d \(.+\) to \d+\.\d\d .*; --per-task shows", err)


def test_evaluate_with_orders_given(run, world, tmp_path, ran, monkeypatch):
    asked = []

    def scored(*given, orders, **more):
        asked.append(orders)
        return evaluate_planner(*given, orders=orders, **more)

    monkeypatch.setattr("cefito.evaluation.runs.evaluate_planner", scored)
    task, other, *_ = world.taxonomy.tasks
    a, b, c = task.actions[:3]
    path = tmp_path / "orders.json"
    edges = [["start", a], [a, b], [b, c], [c, "end"]]
    path.write_text(json.dumps({str(task.id): {"edges": edges}}))
    ran("evaluate", run, "--sample", 9, "--order", path)
    assert asked[0][task.id] == {(a, b), (b, c), (a, c)}
    assert asked[0][other.id] == training_orders(world)[other.id]
    assert len([*run.glob("evaluation-test-sample-9-order-*.json")]) == 1


def test_finetune(run, world, tmp_path, ran):
    settings = ["--set", "chain_training.optimiser.epochs=1"]
    out = tmp_path / "further"
    given = [run, world.folder, "--out", out, "--epochs", 2, "--seed", 3, *settings]
    captured = ran("finetune", *given, "--json")
    value = json.loads(captured.out)
    assert (value["run"], value["trained"]) == (str(out), True)
    assert value["new"] == {"tasks": 0, "actions": 0}
    assert value["training"]["energy field"]["epochs"] == 2
    lines = captured.err.splitlines()
    assert any(f"'{world.name}'; new are 0 tasks and 0 actions" in line for line in lines)
    assert any(re.match(r"energy field: best epoch [12] of 2, validation", line) for line in lines)
    assert any(re.match(r"chain: best epoch 1 of 1, validation", line) for line in lines)
    assert lines[-1] == f"wrote {out}; score it with: cefito evaluate {out}"
    made = open_run(out)
    assert made.info.seed == 3
    assert made.info.started_from.dataset.fingerprint == world.fingerprint


def test_plan_a_video(run, world, ran):
    before = snapshot(run)
    captured = ran("plan", run, "--video", VIDEO, "--from-step", 2, "--top-k", 4)
    head, *lines = captured.out.splitlines()
    assert head.split() == ["energy", "(lower", "is", "better)", "plan"]
    assert [line.count(" → ") for line in lines] == [2] * 4
    energies = [float(line.split()[0]) for line in lines]
    assert energies == sorted(energies)
    video = next(video for video in world.videos if video.video_id == VIDEO)
    truth = world.taxonomy.names([step.action for step in video.steps[1:4]])
    task, quality, annotated = captured.err.splitlines()
    assert re.fullmatch(r"task \d+: .* \(predicted, \d+\.\d %\)", task)
    assert re.fullmatch(r"exact: no other .* is better; [\d,]+ token forwards", quality)
    assert annotated == "annotated: " + " → ".join(truth)
    assert snapshot(run) == before


def test_page_and_json_hold_the_same(nearest_run, ran, tmp_path):
    folder = shutil.copytree(nearest_run.folder, tmp_path / "run")
    said = ran("report", folder, "--out", tmp_path / "report.html", "--json")
    found = json.loads(said.out)
    assert found["kind"] == "run"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{found['scores']['metrics']['success_rate']:.2f}" in page
    assert f"wrote {tmp_path / 'report.html'}" in said.err
    again = ran("report", folder, "--json").out
    assert again == said.out


def test_of_a_run_of_several_lengths(run_of_lengths, ran, refused, tmp_path):
    folder = shutil.copytree(run_of_lengths.folder, tmp_path / "run")
    options = ["--steps", "2-3", "--without-goal", "--after-done", "--queries", "0", "--json"]
    options += ["--split", "val", "--sample", "5"]
    scores = json.loads(ran("report", folder, *options).out)["scores"]
    assert (scores["shortest"], scores["horizon"]) == (2, 3)
    assert (scores["split"], scores["windows"]) == ("val", 5)
    assert str(tmp_path / "no") in refused("report", folder, "--dataset", tmp_path / "no", "--json")
    assert scores["without_goal"]
    assert scores["after_done"]
    report = json.loads(ran("report", folder, "--with-elapsed", "--queries", "0", "--json").out)
    assert report["scores"]["with_elapsed"]
    assert "--with-elapsed" in report["commands"][1]


def test_two_videos_of_one_task_are_enough(ran, tmp_path):
    """Two actions, plans of one step; a warning says that one video chooses the epochs."""
    (tmp_path / "F").mkdir()
    rows = ["video,task,step,start,end"]
    for video in ("one", "two"):
        np.save(tmp_path / "F" / f"{video}.npy", np.random.default_rng(0).normal(size=(9, 4)))
        rows += [f"{video},tea,boil,0,3", f"{video},tea,pour,4,7"]
    (tmp_path / "STEPS.csv").write_text("\n".join(rows) + "\n")
    features = ["--features", tmp_path / "F"]
    ran("data", "prepare", "custom", tmp_path / "STEPS.csv", tmp_path / "DATA", *features)
    quick = ["--set", "chain_training.optimiser.epochs=1", "--set", "chain.hidden=4"]
    given = ["train", tmp_path / "DATA", "--horizon", 1, "--out", tmp_path / "RUN", *quick]
    said = ran(*given).err
    assert "chosen on the 2 windows of one video" in said
    assert "chain plans best by measurement; --method cefito trains the paper's method" in said
    assert open_run(tmp_path / "RUN").info.method == "chain"
    plan = ["plan", tmp_path / "RUN", "--video", "one", "--from-step", 1, "--json"]
    plans = json.loads(ran(*plan).out)["plans"]
    assert {*plans[0]["names"], *plans[1]["names"]} == {"boil", "pour"}


def test_training_says_that_a_data_set_without_rows_makes_no_recogniser(world, tmp_path, ran):
    given = ("--steps", "1-2", "--out", tmp_path / "run", *as_arguments(TINY_LENGTHS))
    said = ran("train", world.folder, *given).err
    assert "no recogniser of steps was trained, since the data set has no rows" in said
    assert "any-length plans best by measurement" in said
    assert re.search(r": best epoch \d of \d, validation success rate of known length \d", said)
