"""Declaration of ViterbiPlanNet: emissions decoded over the transitions of training windows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, rows
from cefito.planners.shared.settings import stepped
from cefito.settings import Layers, Settings, Size
from cefito.training.settings import PlannerTrainingConfig

Alignment = Literal["file", "names", "none"]


class ViterbiConfig(Settings):
    """ViterbiPlanNet (arXiv 2603.04265): emissions decoded by a differentiable Viterbi layer.

    Transitions are always counted in the training windows of the run's own horizon. Not published:
    precision, clipping.
    """

    hidden: Size = 3072  # of the observation encoder's first layer
    width: Size = 128  # of tokens
    heads: PositiveInt = 1  # of the emission network
    feedforward: Size = 256
    input_dropout: float = Field(0.4, ge=0, lt=1)  # of observations and descriptions
    dropout: float = Field(0.2, ge=0, lt=1)  # inside the emission network
    normalise: bool = False  # layer-normalise the observations first (published: raw)
    centre: bool = False  # subtract the mean training observation first (published: no)
    # A .npy file of embeddings [K, 6, W] (three before, three after each action), as published; or
    # "names": vectors hashed from the names; "none".
    descriptions: str = Field("names", min_length=1)
    name_width: Size = 768  # W of hashed vectors
    alignment: float = Field(1.0, ge=0)  # weight of its loss; 0 for no alignment
    task: float = Field(1.0, ge=0)  # weight of its loss; 0 for no task head
    members: Layers = 1  # networks whose emissions are averaged (published: one)
    training: PlannerTrainingConfig = PlannerTrainingConfig(
        **stepped(epochs=500, batch_size=256, learning_rate=9e-4, weight_decay=0.01, interval=0.08)
    )

    @model_validator(mode="after")
    def _usable(self) -> ViterbiConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        return self

    @property
    def aligned_with(self) -> Alignment:
        """Kind of the alignment's target; "none" if the alignment has no weight."""
        if not self.alignment:
            return "none"
        match self.descriptions:
            case "names" | "none" as kind:
                return kind
        return "file"


class ViterbiSettings(Settings):
    """The sections that ViterbiPlanNet reads."""

    viterbi: ViterbiConfig = ViterbiConfig()


ABILITIES = Abilities(true_task=False)

VITERBI = Method(
    name="viterbi",
    planner="cefito.planners.viterbi.planner:ViterbiPlanner",
    settings=ViterbiSettings,
    title="ViterbiPlanNet",
    line="emissions of a network, decoded through a differentiable Viterbi layer",
    paper=Paper("ViterbiPlanNet", "CVPR 2026", "2603.04265"),
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=ABILITIES,
    parameters={"ViterbiPlanNet": 5_549_602},
    variants=rows(
        "viterbi",
        "ViterbiPlanNet",
        {"unaligned": ("no alignment", {"viterbi.descriptions": "none"})},
        own_name=True,
    ),
)
