"""Declaration of SCHEMA: states between steps, decoded over descriptions, then the actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, rows
from cefito.planners.shared.settings import stepped
from cefito.settings import Layers, Settings, Size
from cefito.training.settings import TrainingConfig

Described = Literal["file", "observations", "names"]


class SchemaConfig(Settings):
    """SCHEMA: the states between are decoded first, then the actions, over described states."""

    hidden: NonNegativeInt = 0  # of the observation encoder's first layer; 0 for 2 E
    width: Size = 128  # of tokens, even
    heads: PositiveInt = 32  # of the decoders
    layers: Layers = 2  # of each decoder
    feedforward: NonNegativeInt = 0  # of the decoders; 0 for twice the tokens' width
    input_dropout: float = Field(0.4, ge=0, lt=1)  # of observations and descriptions
    dropout: float = Field(0.2, ge=0, lt=1)  # inside decoders and heads
    normalise: bool = False  # layer-normalise the observations first (published: raw)
    centre: bool = False  # subtract the mean training observation first (published: no)
    # A .npy file of embeddings [K, 6, W] (three before, three after each action), as published; or
    # "observations": the mean ones at the start and the end of each action; "names": vectors hashed
    # from the names.
    descriptions: str = Field("names", min_length=1)
    name_width: Size = 768  # W of hashed vectors
    state_task: bool = True  # task logits go to the decoder of states (published: not for NIV)
    alignment: float = Field(1.0, ge=0)  # weight of its loss; 0 for none
    task: float = Field(1.0, gt=0)  # weight of its loss
    states: float = Field(0.1, ge=0)  # weight of the error of the decoded states
    smoothing: float = Field(0.0, ge=0)  # added to every count of a transition
    training: TrainingConfig = TrainingConfig(
        **stepped(epochs=500, batch_size=256, learning_rate=4e-3, weight_decay=0.01, interval=0.08)
    )

    @model_validator(mode="after")
    def _usable(self) -> SchemaConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        if self.width % 2:
            raise ValueError(f"width {self.width} must be even")
        return self

    @property
    def described(self) -> Described:
        """Kind of the descriptions."""
        match self.descriptions:
            case "observations" | "names" as kind:
                return kind
        return "file"


class SchemaSettings(Settings):
    """The sections that SCHEMA reads; pydantic has the name `schema` for itself."""

    schema_model: SchemaConfig = SchemaConfig()


SCHEMA = Method(
    name="schema",
    planner="cefito.planners.schema.planner:SchemaPlanner",
    settings=SchemaSettings,
    title="SCHEMA",
    line="decodes states, then actions, looking at descriptions of states",
    paper=Paper(
        "SCHEMA: State CHangEs MAtter for Procedure Planning in Instructional Videos",
        "ICLR 2024",
        "2403.01599",
    ),
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=Abilities(),
    parameters={"SCHEMA network": 6_117_016},
    variants=rows("schema", "SCHEMA", own_name=True),
)
