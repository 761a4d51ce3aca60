"""Every method by its name. Whoever adds one registers it here, and nowhere else."""

from __future__ import annotations

from typing import Any

from cefito.errors import ConfigError
from cefito.planners.base import METHODS, Method
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.crf.planner import ChainPlanner
from cefito.planners.crf.settings import ChainSettings
from cefito.planners.kepp.planner import KeppPlanner
from cefito.planners.kepp.settings import KeppSettings
from cefito.planners.language_model.planner import LlmEndsPlanner, LlmRankedPlanner
from cefito.planners.language_model.settings import LlmSettings
from cefito.planners.mtid.planner import MtidPlanner
from cefito.planners.mtid.settings import MtidSettings
from cefito.planners.p3iv.planner import P3ivPlanner
from cefito.planners.p3iv.settings import P3ivSettings
from cefito.planners.pdpp.planner import PdppPlanner
from cefito.planners.pdpp.settings import PdppSettings
from cefito.planners.pkg.planner import PkgBeamPlanner, PkgPlanner
from cefito.planners.pkg.settings import PkgSettings
from cefito.planners.planllm.leaky import LeakyPlanner
from cefito.planners.planllm.planner import PlanLlmPlanner
from cefito.planners.planllm.settings import PlanLlmSettings
from cefito.planners.schema.planner import SchemaPlanner
from cefito.planners.schema.settings import SchemaSettings
from cefito.planners.shared.task_model import ClassifierSettings
from cefito.planners.simple.frequent import FrequentPlanner
from cefito.planners.simple.nearest import NearestPlanner
from cefito.planners.viterbi.planner import ViterbiPlanner
from cefito.planners.viterbi.settings import ViterbiSettings
from cefito.settings import Settings

__all__ = ["METHODS", "Method", "find_method"]


class NoSettings(Settings):
    """Of methods that have none."""


METHODS |= {
    "cefito": Method(CefitoPlanner, CefitoSettings),
    "chain": Method(ChainPlanner, ChainSettings),
    "viterbi": Method(ViterbiPlanner, ViterbiSettings),
    "pdpp": Method(PdppPlanner, PdppSettings),
    "mtid": Method(MtidPlanner, MtidSettings),
    "p3iv": Method(P3ivPlanner, P3ivSettings),
    "schema": Method(SchemaPlanner, SchemaSettings),
    "planllm": Method(PlanLlmPlanner, PlanLlmSettings),
    "planllm-leaky": Method(LeakyPlanner, PlanLlmSettings),
    "pkg": Method(PkgPlanner, PkgSettings),
    "pkg-beam": Method(PkgBeamPlanner, PkgSettings),
    "kepp": Method(KeppPlanner, KeppSettings),
    "llm-ends": Method(LlmEndsPlanner, LlmSettings),
    "llm-ranked": Method(LlmRankedPlanner, LlmSettings),
    "nearest": Method(NearestPlanner, NoSettings),
    "frequent": Method(FrequentPlanner, ClassifierSettings),
}


def find_method(name: Any) -> Method:
    """A method by its name.

    Raises:
        ConfigError: There is none.
    """
    if name not in METHODS:
        raise ConfigError(f"no method '{name}'; there are {', '.join(METHODS)}.")
    return METHODS[name]
