"""Runs are of one method: adding or removing others does not matter to them."""

import importlib
import json

import pytest

from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.planners.methods import METHODS, load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from tiny_runs import small_run

TOY = """
from cefito.planners.methods import Method, PlannerVariant
from cefito.planners.simple.planners import NearestPlanner
from cefito.settings import Settings

class ToyConfig(Settings):
    width: int = 2

class ToySettings(Settings):
    toy: ToyConfig = ToyConfig()

class ToyPlanner(NearestPlanner):
    @classmethod
    def fit(cls, train, val, *, settings, seed, context):
        assert settings.toy.width == 7
        return super().fit(train, val, settings=settings, seed=seed, context=context)

TOY = Method(
    name="toy",
    planner=ToyPlanner,
    settings=ToySettings,
    variants=(PlannerVariant(name="toy", title="Toy", method="toy"),),
)
"""
TINY = {"classifier.hidden": [8, 8, 8], "classifier_training.optimiser.epochs": 1}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A method in a folder of its own, with presets beside its code."""
    folder = tmp_path_factory.mktemp("methods") / "toy_method"
    (folder / "presets").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "method.py").write_text(TOY)
    (folder / "presets" / "paper.toml").write_text("[toy]\nwidth = 5\n")
    (folder / "presets" / "small.toml").write_text("[toy]\nwidth = 6  # paper: 5\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder.parent)
        yield importlib.import_module("toy_method.method").TOY


def trained(world, folder, method, **overrides):
    return small_run(world, folder / method, method, overrides=overrides, shared=True)


def plans(run, world):
    queries = Queries.from_windows(cut_windows(world, horizon=3, split="test")).subset([0, 1])
    return [plan.actions.tolist() for plan in run.planner.plan(queries, 2)]


def test_a_method_comes_and_goes(toy, world, tmp_path, monkeypatch):
    nearest = trained(world, tmp_path, "nearest")
    before = plans(nearest, world)
    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "toy", toy)
        assert load_config("released", method="toy").settings.toy.width == 5
        assert load_config("quickstart", method="toy").settings.toy.width == 6
        run = trained(world, tmp_path, "toy", **{"toy.width": 7, "kepp.folds": 4})
        assert json.loads((run.folder / "run.json").read_text())["config"] == {"toy": {"width": 7}}
        frequent = trained(world, tmp_path, "frequent", **TINY)
        assert plans(open_run(run.folder), world) == before
    for found, expected in ((nearest, before), (frequent, plans(frequent, world))):
        assert plans(open_run(found.folder), world) == expected
    with pytest.raises(RunError, match=r"run\.json: not a run .*'toy'"):
        open_run(run.folder)
    with pytest.raises(ConfigError, match=r"setting 'toy\.width'"):
        load_config("small", overrides={"toy.width": 7})
