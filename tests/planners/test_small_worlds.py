"""Every method copes with data sets as small as can be, or says in one line that it cannot."""

from typing import Any

import numpy as np
import pytest

import cefito
from cefito.errors import CefitoError, ConfigError
from cefito.planners.methods import METHODS
from cefito.runs.settings_export import settings_values
from cefito.testing import quick
from made_windows import taxonomy_of
from tiny_runs import NARROW, often_or_nightly

pytestmark = pytest.mark.usefixtures("asked_server")

QUICK = quick(settings_values("small"), {".optimiser.epochs": 1}) | NARROW
# actions of each task; training, validation and test videos of each
WORLDS: dict[str, Any] = {
    "one task": ([range(8)], (4, 1, 1)),
    "one task of two actions": ([range(2)], (2, 0, 0)),
    "two tasks of one action": ([[0], [1]], (3, 1, 1)),
    "no validation and no test videos": ([range(4), range(3, 7)], (2, 0, 0)),
}


@pytest.fixture
def world(request, make_source, tmp_path):
    """A data set of random videos of five steps."""
    tasks, videos = WORLDS[request.param]
    generator, lines = np.random.default_rng(1), []
    taxonomy = taxonomy_of(len(tasks), 1 + max(map(max, tasks))).to_dict()
    for task, actions in enumerate(tasks):
        taxonomy["tasks"][task]["actions"] = list(actions)
        for split, number in zip(("train", "val", "test"), videos, strict=True):
            for _ in range(number):
                chosen = generator.choice(actions, size=5).tolist()
                steps = [[2 * step, 2 * step + 1, action] for step, action in enumerate(chosen)]
                video = {"video_id": f"v{len(lines)}", "split": split, "task_id": task}
                lines.append({**video, "steps": steps})
    return cefito.prepare(make_source(taxonomy=taxonomy, videos=lines), tmp_path / "data")


@pytest.mark.parametrize(
    ("world", "horizon"),
    [
        ("one task of two actions", 1),
        pytest.param("two tasks of one action", 1, marks=pytest.mark.nightly),
        ("no validation and no test videos", 2),
    ],
    indirect=["world"],
)
@pytest.mark.parametrize("method", [*map(often_or_nightly, METHODS)])
def test_every_method_trains_and_plans(method, world, horizon, tmp_path):
    config = cefito.load_config("small", method=method, overrides=QUICK, shared=True)

    def trained():
        return cefito.train_run(world, tmp_path / "run", config=config, horizon=horizon, seed=0)

    if horizon == 1 and method == "kepp":
        with pytest.raises(ConfigError, match=r"horizon 1: .* first .* last action"):
            trained()
        return
    run = cefito.open_run(trained().folder)
    split = "test" if "test" in {video.split for video in world.videos} else "train"
    if split == "train":
        with pytest.raises(CefitoError, match=r"'test' gives no windows"):
            cefito.cut_windows(world, horizon=horizon, split="test")
    windows = cefito.cut_windows(world, horizon=horizon, split=split)
    evaluation, plans = cefito.evaluate_planner(run.planner, windows)
    assert evaluation.without_plan == 0
    for plan in plans:
        assert plan.actions.shape[1] == horizon
        assert np.isfinite(plan.scores).all()
        assert set(plan.actions.ravel().tolist()) <= set(range(len(world.taxonomy.actions)))
        assert len({tuple(row) for row in plan.actions.tolist()}) == len(plan) > 0


@pytest.mark.parametrize("world", ["one task"], indirect=True)
def test_too_many_negatives_are_refused_before_anything_is_trained(world, tmp_path, monkeypatch):
    monkeypatch.setattr("cefito.training.trainer.Training", lambda *_, **__: pytest.fail("trained"))
    changes = {**QUICK, "training.negatives.count": 512}
    config = cefito.load_config("small", overrides=changes, shared=True)
    with pytest.raises(CefitoError, match=r"512 negatives .* 512 sequences of 3") as caught:
        cefito.train_run(world, tmp_path / "run", config=config, horizon=3, seed=0)
    assert caught.value.setting == "training.negatives.count"
