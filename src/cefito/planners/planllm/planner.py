"""PlanLLM-style planning (after Yang et al., AAAI 2025), without its language models.

Learned anew from its published facts: SCHEMA's parts, an exchange between the two encoded states,
and a transformer of learned queries in BERT's place. The published encoder also sees the true
states between the steps, in planning too; here initial and goal observation are all that is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cefito.planners.planllm.loss import PlanLlmLoss
from cefito.planners.planllm.network import PlanLlmNetwork
from cefito.planners.schema.loss import SchemaLoss
from cefito.planners.schema.model import SchemaModel
from cefito.planners.schema.network import SchemaNetwork
from cefito.planners.schema.planner import SchemaPlanner
from cefito.runtime import Stream

__all__ = ["PlanLlmModel", "PlanLlmPlanner"]


@dataclass(frozen=True)
class PlanLlmModel(SchemaModel):
    """A trained network of PlanLLM-style planning."""

    title: ClassVar[str] = "PlanLLM network"
    file: ClassVar[str] = "planllm.safetensors"
    part: ClassVar[str] = "planllm"
    section: ClassVar[str] = "planllm"
    stream: ClassVar[Stream] = Stream.PLANLLM
    network_class: ClassVar[type[SchemaNetwork]] = PlanLlmNetwork
    loss_class: ClassVar[type[SchemaLoss]] = PlanLlmLoss


@dataclass(frozen=True, eq=False, repr=False)
class PlanLlmPlanner(SchemaPlanner):
    """Plans as SCHEMA does, by a network with additions."""

    model_class: ClassVar[type[SchemaModel]] = PlanLlmModel
    title: ClassVar[str] = "PlanLLM-style"
    departures: ClassVar[tuple[str, ...]] = ("no BERT",)
