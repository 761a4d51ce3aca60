"""Every method by its name: what makes its planner, and which settings it depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cefito.errors import ConfigError
from cefito.planners.base import Planner
from cefito.planners.cefito import CefitoPlanner
from cefito.planners.frequent import FrequentPlanner
from cefito.planners.nearest import NearestPlanner
from cefito.planners.pdpp import PdppPlanner
from cefito.planners.pkg import PkgPlanner
from cefito.planners.task_model import TaskModel
from cefito.planners.trained import TrainingContext
from cefito.planners.viterbi import ViterbiPlanner
from cefito.training.config import RunConfig

__all__ = ["METHODS", "Method", "make_planner"]

_CLASSIFIER = ("classifier", "classifier_training")


@dataclass(frozen=True)
class Method:
    """A way to plan.

    Attributes:
        make: Makes its planner, not fitted.
        sections: The parts of the settings that it depends on.
        uses_task: Whether it plans differently where the true task is given.
    """

    make: Callable[[RunConfig, TrainingContext], Planner]
    sections: tuple[str, ...]
    uses_task: bool = True

    def settings(self, config: RunConfig) -> dict[str, Any]:
        """What a trained planner depends on, for JSON."""
        return config.model_dump(mode="json", include=set(self.sections))


def _frequent(config: RunConfig, context: TrainingContext) -> Planner:
    return FrequentPlanner(
        task_model=TaskModel(
            config=config.classifier,
            training=config.classifier_training,
            context=context.part("classifier"),
        )
    )


METHODS: dict[str, Method] = {
    "cefito": Method(
        lambda config, context: CefitoPlanner(config=config, context=context),
        ("field", "training", *_CLASSIFIER, "proposal", "proposal_training", "search"),
    ),
    "viterbi": Method(
        lambda config, context: ViterbiPlanner(config=config, context=context),
        ("viterbi",),
        uses_task=False,
    ),
    "pdpp": Method(
        lambda config, context: PdppPlanner(config=config, context=context), ("pdpp", *_CLASSIFIER)
    ),
    "pkg": Method(
        lambda config, context: PkgPlanner(config=config, context=context),
        ("pkg",),
        uses_task=False,
    ),
    "pkg-beam": Method(
        lambda config, context: PkgPlanner(config=config, context=context, method="beam"),
        ("pkg",),
        uses_task=False,
    ),
    "nearest": Method(lambda config, context: NearestPlanner(), ()),  # noqa: ARG005
    "frequent": Method(_frequent, _CLASSIFIER),
}
"""All methods. New ones are added here only."""


def make_planner(
    method: str, *, config: RunConfig, context: TrainingContext = TrainingContext()
) -> Planner:
    """A planner that is not fitted yet.

    Args:
        method: Name of a method.
        config: All settings.
        context: Where it is trained.

    Raises:
        ConfigError: No such method.
    """
    return find_method(method).make(config, context)


def find_method(name: str) -> Method:
    """A method by its name.

    Raises:
        ConfigError: There is none.
    """
    if name not in METHODS:
        raise ConfigError(f"no method '{name}'; there are {', '.join(METHODS)}.")
    return METHODS[name]
