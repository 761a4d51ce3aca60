"""Small fields whose every parameter is random and matters, biases and norms too."""

import torch
from torch import nn

from cefito.field.energy import EnergyField
from cefito.field.settings import FieldConfig

SMALL = {"width": 16, "depth": 2, "heads": 2, "mlp_ratio": 2, "action_dim": 6}


def randomise(module: nn.Module, generator: torch.Generator) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn * max(parameter.shape, default=1) ** -0.5)


def encoded(skip: bool) -> dict[str, object]:
    return {"goal_skip": skip, "action_encoding": "observed" if skip else "auto"}


def random_field(
    seed: int = 0,
    *,
    horizon: int = 3,
    actions: int = 6,
    observation_dim: int = 24,
    skip: bool = False,
    centred: bool = True,
    **settings: object,
) -> EnergyField:
    generator = torch.Generator().manual_seed(seed)
    field = EnergyField(
        config=FieldConfig(**{**SMALL, **encoded(skip), **settings}),
        observation_dim=observation_dim,
        action_count=actions,
        horizon=horizon,
        action_vectors=torch.randn(actions, observation_dim, generator=generator) if skip else None,
    )
    mean = torch.randn(observation_dim, generator=generator) if centred else None
    field.reset(generator, mean=mean)
    randomise(field, generator)
    return field
