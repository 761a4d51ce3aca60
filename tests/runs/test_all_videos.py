"""Planners that are trained on validation videos in the end, once all is chosen on them."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
import torch

from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.evaluation.conformal import calibrate_run
from cefito.files import load_tensors
from cefito.parts.folder import trained_videos
from cefito.parts.matching import match_dataset
from cefito.planners.chain.calibration import known_states
from cefito.planners.chain.states import TaskStates
from cefito.runs.run import open_run
from tiny_runs import TINY_RUN, small_run

EPOCHS = 4
NETWORKS = {"members": 2, "hidden": 8, "width": 8}
CASES = {  # section of the training and file of the weights, by method
    "chain": ("chain_training", "chain.safetensors"),
    "cefito": ("chain_training", "chain.safetensors"),
    "any-length": ("any_length_training", "any-length.safetensors"),
    "viterbi": ("viterbi.training", "viterbi.safetensors"),
}
METHODS = ["chain", *(pytest.param(one, marks=pytest.mark.nightly) for one in [*CASES][1:])]


def trained(world, folder, method, *, share, **given):
    section, _ = CASES[method]
    sizes = {"chain": "chain", "cefito": "chain", "any-length": "any_length", "viterbi": "viterbi"}
    settings = {
        **(TINY_RUN if method == "cefito" else {}),
        **{f"{sizes[method]}.{name}": value for name, value in NETWORKS.items()},
        f"{section}.optimiser.epochs": EPOCHS,
        f"{section}.all_videos": share,
        "coverage.few_videos": 1,
        "coverage.most_folds": 2,
    }
    return small_run(world, folder, method, overrides=settings, shared=True, horizon=2, **given)


@pytest.fixture(scope="module")
def further(world, tmp_path_factory):
    """Gives a method's run that is trained on all videos in the end, not to be changed."""
    place = tmp_path_factory.mktemp("further")
    return cache(lambda method: trained(world, place / method, method, share=0.5))


@contextmanager
def stopped_at_the_end(description, **given):
    """A progress that interrupts the last training after an epoch."""
    left = iter(range(100))

    def advance(*_, **__):
        if "on all videos" in description and next(left) == 1:
            raise KeyboardInterrupt

    yield advance


def tensors(folder, method):
    return load_tensors(folder / CASES[method][1], "pt", "")


def ids(world, *splits):
    return {video.video_id for video in world.videos if video.split in splits}


@pytest.mark.parametrize("method", METHODS)
def test_trained_on_all_videos(method, world, further, tmp_path, caplog):
    further = further(method)
    without, longer = (
        trained(world, tmp_path / str(share), method, share=share) for share in (0.0, 1.0)
    )
    (first, calibration), (second, same) = (
        tensors(run.folder, method) for run in (further, longer)
    )
    if method in ("chain", "cefito"):  # the power of tasks was chosen before
        calibration, same = (one["calibration"].split()[1:] for one in (calibration, same))
    assert calibration == same
    assert any(not torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert set(trained_videos(without.folder).train) == ids(world, "train")
    assert set(trained_videos(further.folder).train) == ids(world, "train", "val")
    assert not trained_videos(further.folder).val
    (metrics,) = further.folder.glob("*[a-z]-all-videos/metrics.jsonl")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert len(lines) == EPOCHS / 2
    assert not any(name.startswith("val") for name in lines[-1])
    for run, warned in ((without, False), (further, True)):
        caplog.clear()
        match_dataset(run, world).windows("val")
        assert ("too good" in caplog.text) == warned


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_last_training_goes_on_to_the_same_weights(method, world, further, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        trained(world, tmp_path / "run", method, share=0.5, progress=stopped_at_the_end)
    again = trained(world, tmp_path / "run", method, share=0.5)
    (expected, _), (found, _) = (tensors(run.folder, method) for run in (further(method), again))
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_test_videos_are_never_trained_on(world, tmp_path):
    """Published selection chooses on test videos."""
    plain, further = (
        trained(world, tmp_path / str(share), "chain", share=share, selection="published")
        for share in (0.0, 0.5)
    )
    (first, _), (second, _) = (tensors(run.folder, "chain") for run in (plain, further))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert not set(trained_videos(further.folder).train) & ids(world, "test")


def test_such_a_run_is_calibrated_by_folds(world, further, tmp_path):
    whole = open_run(shutil.copytree(further("chain").folder, tmp_path / "all"))
    plain = trained(world, tmp_path / "run", "chain", share=0.0)
    for run, few, folds in ((plain, 12, 0), (plain, 13, 2), (whole, 1, 2)):
        parts = {"coverage": run.config.parts["coverage"].model_copy(update={"few_videos": few})}
        assert calibrate_run(replace(run, config=replace(run.config, parts=parts))).folds == folds
    parts = {"coverage": whole.config.parts["coverage"].model_copy(update={"folds": 99})}
    with pytest.raises(ConfigError, match="folds 99: expected 0, or"):
        calibrate_run(replace(whole, config=replace(whole.config, parts=parts)))


def test_states_without_training_windows_calibrate_nothing(world):
    train, val = (cut_windows(world, horizon=2, split=split) for split in ("train", "val"))
    train = train.subset(range(5))
    rows = [task.actions for task in world.taxonomy.tasks]
    states = TaskStates.make(rows, len(world.taxonomy.actions))
    seen = {
        (task, action)
        for task, actions in zip(train.tasks.tolist(), train.actions.tolist(), strict=True)
        for action in actions
    }
    expected = [
        [int(states.lookup[task, one]) if (task, one) in seen else -1 for one in actions]
        for task, actions in zip(val.tasks.tolist(), val.actions.tolist(), strict=True)
    ]
    assert known_states(states, val, train).tolist() == expected
