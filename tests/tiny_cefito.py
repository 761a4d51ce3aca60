"""CEFITO fitted in a second."""

from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.methods import load_config
from cefito.training.trainer import TrainingContext
from tiny_runs import TINY_RUN

TINY = TINY_RUN | {
    "training.optimiser.epochs": 2,
    "training.stopping.windows": 15,
    "chain.width": 8,
    "classifier_training.optimiser.epochs": 3,
    "search.fitting_windows": 20,
}


def tiny_settings(preset="paper", **more):
    method = "cefito+chain" if preset == "small" else "cefito"
    return load_config(preset, method=method, overrides={**TINY, **more}).settings


def fit(splits, preset="paper", *, train=None, context=TrainingContext(), **more):
    windows = (splits["train"] if train is None else train, splits["val"])
    settings = tiny_settings(preset, **more)
    return CefitoPlanner.fit(*windows, settings=settings, seed=0, context=context)


def load(folder):
    return CefitoPlanner.load(folder, settings=tiny_settings())
