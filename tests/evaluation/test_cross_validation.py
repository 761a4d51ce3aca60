"""Cross-validation: every window is planned once, by a run that never saw its video."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.folds import known_videos
from cefito.data.prepared import write_dataset
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation import evaluate_planner, read_plans, training_orders
from cefito.evaluation.records import RunEvaluation
from cefito.evaluation.runs import FOLD_SCORES, cross_validate
from cefito.parts.folder import trained_videos
from cefito.planners.methods import load_config
from cefito.progress import silent
from cefito.runs.options import TrainOptions
from cefito.runs.run import open_run
from row_films import prepared_films
from tiny_runs import TINY_LENGTHS, TINY_RUN

CHAIN = load_config("paper", method="chain", overrides=TINY_RUN, shared=True)
NEAREST = load_config("small", method="nearest")


@pytest.fixture(scope="module")
def kept(world, tmp_path_factory):
    """The folder of a cross-validation of the chain, and its scores."""
    folder = tmp_path_factory.mktemp("folds") / "out"
    plans = folder.parent / "plans.jsonl"
    scores = cross_validate(
        world,
        config=CHAIN,
        horizon=3,
        folds=3,
        out=folder,
        plans_file=plans,
        options=TrainOptions(seed=1),
    )
    return folder, scores, plans


def test_every_window_is_scored_once(kept, world):
    folder, scores, plans = kept
    names = {world.videos[video].video_id for video in known_videos(world)}
    assert sorted(name for fold in scores.folds for name in fold.videos) == sorted(names)
    windows = sum(len(world.videos[video].steps) - 2 for video in known_videos(world))
    assert scores.windows == sum(fold.windows for fold in scores.folds) == windows
    assert {window.video for window in read_plans(plans)} <= names
    assert scores.intervals.videos <= len(names)
    assert scores.split == "3 folds"
    assert RunEvaluation.read(folder / FOLD_SCORES) == scores


def test_no_run_saw_the_videos_that_it_is_scored_on(kept, world):
    folder, scores, _ = kept
    test = {video.video_id for video in world.videos if video.split == "test"}
    for number, fold in enumerate(scores.folds, 1):
        seen = trained_videos(folder / f"fold-{number}-of-3")
        assert not (set(seen.train) | set(seen.val)) & (set(fold.videos) | test)


def test_scores_are_those_of_the_runs_on_their_windows(kept, world):
    folder, scores, plans = kept
    listed = {(window.video, window.from_step): window for window in read_plans(plans)}
    right = 0
    for number, fold in enumerate(scores.folds, 1):
        videos = tuple(
            replace(video, split="test" if video.video_id in fold.videos else "train")
            for video in world.videos
        )
        view = replace(world, annotations=replace(world.annotations, videos=videos))
        windows = cut_windows(view, horizon=3, split="test")
        planner = open_run(folder / f"fold-{number}-of-3").planner
        evaluation, found = evaluate_planner(planner, windows)
        assert evaluation.success_rate == pytest.approx(fold.metrics["success_rate"])
        right += evaluation.success_rate * len(windows) / 100
        for row, best in enumerate(found):
            place = (world.videos[windows.video[row]].video_id, windows.start[row] + 1)
            assert listed[place].plans[0].actions == best.sequences[0].tolist()
    assert scores.success_rate == pytest.approx(100 * right / scores.windows)


def test_test_videos_are_never_read(world):
    """Observations that are no numbers would spoil any training or plan."""
    test = [video.split == "test" for video in world.videos for _ in video.steps]
    start, end = world.start.copy(), world.end.copy()
    start[test] = end[test] = np.nan
    spoiled = replace(world, start=start, end=end)
    found = cross_validate(spoiled, config=NEAREST, horizon=3, folds=2)
    whole = cross_validate(world, config=NEAREST, horizon=3, folds=2)
    assert found.metrics == whole.metrics
    orders = training_orders(world, videos=known_videos(world))
    assert orders != training_orders(world)


def test_an_interrupted_cross_validation_continues(world, kept, tmp_path):
    place = tmp_path / "out"
    arguments = {
        "config": CHAIN,
        "horizon": 3,
        "folds": 3,
        "out": place,
        "options": TrainOptions(seed=1),
    }

    def interrupted(description, *, total=None):
        if description.startswith("fold 2 of 3"):
            raise KeyboardInterrupt
        return silent(description, total=total)

    with pytest.raises(KeyboardInterrupt):
        cross_validate(world, **arguments | {"options": TrainOptions(seed=1, progress=interrupted)})
    assert not (place / FOLD_SCORES).exists()
    weights = place / "fold-1-of-3" / "chain.safetensors"
    written = weights.stat().st_mtime_ns
    scores = cross_validate(world, **arguments)
    assert weights.stat().st_mtime_ns == written
    assert (scores.metrics, scores.folds) == (kept[1].metrics, kept[1].folds)
    other = load_config("small", method="chain")
    with pytest.raises(RunError, match="another config"):
        cross_validate(world, **arguments | {"config": other})


def test_several_lengths(world):
    config = load_config("small", method="any-length", overrides=TINY_LENGTHS)
    scores = cross_validate(
        world, config=config, horizon=3, shortest=1, folds=2, without_goal=True, after_done=True
    )
    assert (scores.steps, scores.without_goal, scores.after_done) == ("1-3", True, True)


def test_folds_train_no_recogniser_which_nobody_would_use(tmp_path):
    films = prepared_films(tmp_path)
    config = load_config("small", method="any-length", overrides=TINY_LENGTHS)
    out = tmp_path / "folds"
    cross_validate(films, config=config, horizon=2, shortest=1, folds=2, out=out)
    assert films.timeline is not None
    for fold in ("fold-1-of-2", "fold-2-of-2"):
        assert open_run(out / fold).recogniser is None


def test_command(world, tmp_path, capsys):
    command = ["cross-validate", str(world.folder), "--folds", "2", "--method", "nearest"]
    command += ["--steps", "3"]
    assert main([*command, "--per-task", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("synthetic world (simulated), 2 folds, T = 3, ")
    assert "36 videos, each held out once; SR of the folds: " in said.err
    assert f"kept in {tmp_path / 'out' / FOLD_SCORES}" in said.err
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["folds"]) == 2
    assert main([*command, "--all-videos"]) == 0
    assert "48 videos, each" in capsys.readouterr().err


def test_one_group_is_left_out_at_a_time(world, tmp_path, capsys):
    videos = tuple(
        replace(video, group="abc"[number % 3]) for number, video in enumerate(world.videos)
    )
    data = write_dataset(
        tmp_path / "data",
        name="groups",
        annotations=replace(world.annotations, videos=videos),
        start=world.start,
        end=world.end,
        provenance=world.provenance,
    )
    scores = cross_validate(data, config=NEAREST, horizon=3, by="group")
    groups = {video.video_id: video.group for video in data.videos}
    held = [sorted({groups[name] for name in fold.videos}) for fold in scores.folds]
    assert sorted(held) == [["a"], ["b"], ["c"]]
    assert [list(fold.groups or ()) for fold in scores.folds] == held
    assert scores.intervals is not None
    assert scores.intervals.groups == 3
    command = ["cross-validate", str(data.folder), "--method", "nearest", "--steps", "3"]
    assert main([*command, "--by", "video"]) == 0
    said = capsys.readouterr()
    assert "5 folds" in said.out
    assert re.search(r"SR of the folds: \d", said.err)
    assert main([*command, "--by", "group", "--folds", "2"]) == 0
    said = capsys.readouterr()
    assert "2 folds" in said.out
    assert "3 groups resampled" in said.out
    assert re.search(
        r"SR of the folds: [abc]( \+ [abc])? \d+\.\d\d, [abc]( \+ [abc])? \d", said.err
    )
    assert main(["cross-validate", str(world.folder), *command[2:], "--by", "group"]) == 2
    assert "not of several groups" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--folds", "3"], "expected --horizon 3"),
        (["--folds", "3", "--steps", "3", "--horizon", "3"], "expected --horizon 3"),
        (["--folds", "99", "--steps", "3"], "folds 99: expected from 2 to"),
    ],
)
def test_refused(world, more, message, capsys):
    assert main(["cross-validate", str(world.folder), *more]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(ConfigError, match="sample of 0"):
        cross_validate(world, config=NEAREST, horizon=3, sample=0)
