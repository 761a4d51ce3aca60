"""Declaration of PlanLLM: SCHEMA with learned queries, which a frozen language model may read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, rows
from cefito.planners.schema.method import SchemaConfig
from cefito.settings import Settings, Size
from cefito.training.settings import OptimiserConfig, StoppingConfig, TrainingConfig


class PlanLlmConfig(SchemaConfig):
    """PlanLLM: SCHEMA with an exchange of states, learned queries, focal loss, language model."""

    width: Size = 512
    state_task: bool = False
    # layers of each of the two encoders in which the states attend to each other; 0 for none
    exchange: int = Field(2, ge=0, le=1000)
    exchange_heads: PositiveInt = 8
    # layers of the query transformer (published: BERT-base, 12); 0 for none
    query_layers: int = Field(4, ge=0, le=1000)
    query_heads: PositiveInt = 8
    query_feedforward: NonNegativeInt = 0  # 0 for four times the tokens' width
    query_dropout: float = Field(0.1, ge=0, lt=1)
    focus: float = Field(1.0, ge=0)  # exponent γ of the focal loss; 0 is cross-entropy
    # share of the learning rate for encoders, queries and prompts; decoders have all of it
    encoder_rate: float = Field(0.1, gt=0, le=1)
    # "smollm2": SmolLM2-135M-Instruct, frozen, reads the queries' outputs as soft prompts
    # (published: Vicuna-7B); "none": the decoder of steps alone
    language_model: Literal["none", "smollm2"] = "none"
    caption: float = Field(0.1, ge=0)  # weight of the language model's loss
    captions: float = Field(1.0, gt=0, le=1)  # share of the windows whose captions it reads, drawn
    rescored: int = Field(0, ge=0, le=1000)  # likeliest plans that it scores too; 0 for none
    rescoring: float = Field(0.1, ge=0)  # factor of its log-probability of these
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
        if self.language_model != "none" and not self.query_layers:
            raise ValueError("a language model reads outputs of queries; query_layers is 0")
        if self.rescored and self.language_model == "none":
            raise ValueError("rescored plans need a language model; language_model is 'none'")
        return self


class PlanLlmSettings(Settings):
    """The sections that PlanLLM reads."""

    planllm: PlanLlmConfig = PlanLlmConfig()


_SMOLLM2 = {"planllm.language_model": "smollm2"}

PLANLLM = Method(
    name="planllm",
    planner="cefito.planners.planllm.planner:PlanLlmPlanner",
    settings=PlanLlmSettings,
    title="PlanLLM",
    line="SCHEMA with learned queries, which a frozen language model may read",
    paper=Paper(
        "PlanLLM: Video Procedure Planning with Refinable Large Language Models",
        "AAAI 2025",
        "2412.19139",
    ),
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=Abilities(),
    parameters={"PlanLLM network": 43_851_416},
    variants=rows(
        "planllm",
        "PlanLLM",
        {
            "smollm2": ("SmolLM2 in the place of Vicuna", _SMOLLM2),
            "smollm2-scored": (
                "SmolLM2 in the place of Vicuna, scoring plans too",
                {**_SMOLLM2, "planllm.rescored": 4},
            ),
        },
        own_name=True,
    ),
)
