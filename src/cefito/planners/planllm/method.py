"""Declaration of PlanLLM-style planning: SCHEMA with exchanging states and learned queries."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, rows
from cefito.planners.schema.method import SchemaConfig
from cefito.settings import Settings, Size
from cefito.training.settings import OptimiserConfig, StoppingConfig, TrainingConfig


class PlanLlmConfig(SchemaConfig):
    """PlanLLM without its language models: SCHEMA with two additions and a focal loss.

    The published query transformer is BERT-base; here it is a small one, of learned weights. The
    losses on text of the published training are left out.
    """

    width: Size = 512
    state_task: bool = False
    # layers of each of the two encoders; 0 leaves them out
    exchange: int = Field(2, ge=0, le=1000)
    exchange_heads: PositiveInt = 8
    # layers of the query transformer (published: 12); 0 for none
    query_layers: int = Field(4, ge=0, le=1000)
    query_heads: PositiveInt = 8
    query_feedforward: NonNegativeInt = 0  # 0 for four times the tokens' width
    query_dropout: float = Field(0.1, ge=0, lt=1)
    focus: float = Field(1.0, ge=0)  # exponent γ of the focal loss; 0 is cross-entropy
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=500, batch_size=256, learning_rate=1e-3, weight_decay=0.02, clip=0.01
        ),
        stopping=StoppingConfig(every=1, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _additions_fit(self) -> PlanLlmConfig:
        for layers, heads in (
            (self.exchange, self.exchange_heads),
            (self.query_layers, self.query_heads),
        ):
            if layers and self.width % heads:
                raise ValueError(f"width {self.width} must be divisible by the {heads} heads")
        return self


class PlanLlmSettings(Settings):
    """The sections that PlanLLM-style planning reads."""

    planllm: PlanLlmConfig = PlanLlmConfig()


PLANLLM = Method(
    name="planllm",
    planner="cefito.planners.planllm.planner:PlanLlmPlanner",
    settings=PlanLlmSettings,
    title="PlanLLM-style",
    line="SCHEMA with a query transformer; start and goal are all that it sees",
    paper=Paper(
        "PlanLLM: Video Procedure Planning with Refinable Large Language Models",
        "AAAI 2025",
        "2412.19139",
    ),
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=Abilities(),
    parameters={"PlanLLM network": 42_003_608},
    variants=rows("planllm", "PlanLLM-style (no BERT)", own_name=True),
)
