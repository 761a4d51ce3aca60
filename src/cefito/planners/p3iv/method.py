"""Declaration of P3IV: a decoder with learned memory and noise, taught by names of actions."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import GRAPH, TEXT, Method, Paper, rows
from cefito.planners.shared.settings import stepped
from cefito.settings import Layers, Settings, Size
from cefito.training.settings import TrainingConfig


class P3ivConfig(Settings):
    """P3IV (Zhao et al., CVPR 2022): weakly supervised planning with a probabilistic decoder."""

    # of equal length in an observation, encoded one by one and averaged (published: of 3 seconds)
    rows: PositiveInt = 3
    hidden: Size = 256  # of the observation encoder and of all heads
    width: Size = 128  # of tokens, noise included
    noise: NonNegativeInt = 32  # numbers of a token that are noise; 0: deterministic
    layers: Layers = 2
    heads: PositiveInt = 8
    feedforward: Size = 128
    slots: Size = 106  # of memory; as released for CrossTask
    token_dropout: float = Field(0.1, ge=0, lt=1)  # of the tokens' features
    dropout: float = Field(0.3, ge=0, lt=1)  # of hidden units and attention weights
    test_dropout: bool = False  # both stay on in planning (released code), by a saved seed
    whiten: bool = True  # by the mean and deviation of all features: two numbers
    normalise: bool = False  # layer-normalise the feature rows (published: no)
    centre: bool = False  # subtract each feature's own mean (published: no)
    # draws decoded states to the text vectors of the action names (published), or, without any, to
    # vectors hashed from the names; 0 for none
    contrastive: float = Field(0.5, ge=0)
    name_width: Size = 512  # of hashed vectors
    adversarial: float = Field(0.1, ge=0)  # weight of a critic's judgement; 0 for no critic
    diversity: float = Field(0.1, ge=0)  # keeps two noises apart; 0 for none
    critic_rate: float = Field(1 / 70, gt=0)  # step size, in the generator's (1e-5 in 7e-4)
    samples: Size = 1500  # noises that a plan is decoded from, drawn once
    validation_samples: PositiveInt = 200  # choose the epoch; as the released call of planning
    training: TrainingConfig = TrainingConfig(
        # in every second epoch the critic alone learns
        **stepped(
            epochs=200, batch_size=32, learning_rate=7e-4, weight_decay=0.0, interval=0.1, every=2
        )
    )

    @model_validator(mode="after")
    def _usable(self) -> P3ivConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        if self.noise >= self.width:
            raise ValueError(
                f"noise {self.noise} leaves nothing of the tokens, which are {self.width} wide"
            )
        if self.token_width % 2:
            raise ValueError(
                f"width {self.width} without noise {self.noise} leaves {self.token_width} numbers "
                "of a token, and positions need an even number"
            )
        if self.diversity and not self.noise:
            raise ValueError("diversity compares two noises, and noise is 0: set diversity to 0")
        return self

    @property
    def token_width(self) -> int:
        """Width of tokens without noise, and of encoded observations and states."""
        return self.width - self.noise

    @property
    def passes(self) -> int:
        """Passes of the decoder for one query."""
        return self.samples if self.noise or self.test_dropout else 1


class P3ivSettings(Settings):
    """The sections that P3IV reads."""

    p3iv: P3ivConfig = P3ivConfig()


ABILITIES = Abilities(true_task=False)

P3IV = Method(
    name="p3iv",
    planner="cefito.planners.p3iv.planner:P3ivPlanner",
    settings=P3ivSettings,
    title="P3IV",
    line="a transformer with noise that decodes all steps at once, then Viterbi",
    paper=Paper(
        "P3IV: Probabilistic Procedure Planning from Instructional Videos with Weak Supervision",
        "CVPR 2022",
        "2205.02300",
    ),
    needs=(GRAPH,),
    uses=(TEXT,),
    abilities=ABILITIES,
    parameters={"P3IV": 800_773},
    variants=rows(
        "p3iv",
        "P3IV",
        {"noiseless": ("no noise", {"p3iv.noise": 0, "p3iv.diversity": 0.0})},
        own_name=True,
    ),
)
