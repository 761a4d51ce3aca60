"""List of all methods: papers, needs, abilities, sizes and rows of tables."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cefito.planners.base import Abilities, Shape
from cefito.planners.methods import METHODS, Method, load_config

PUBLISHED = Shape(observation_dim=1536, tasks=18, actions=133, horizon=3, text_dim=512)
"""CrossTask in the unified protocol at T = 3, with text vectors of CLIP ViT-B/32."""


def listed_methods() -> list[dict[str, Any]]:
    """Return all registered methods as values for JSON, in the order of their registration.

    A list needs no network of methods that declare their abilities, as all of this package do.
    """
    return [
        {
            "name": name,
            "title": method.title or name,
            "what": method.line,
            "package": " ".join(METHODS.package(name) or ()) or None,
            "paper": None if method.paper is None else method.paper.to_dict(),
            "needs": list(method.needs),
            "uses": list(method.uses),
            "can": list(abilities_of(method)),
            # of each network at the published size
            "parameters": dict(method.parameters if method.abilities else published_sizes(method))
            or None,
            "rows": [
                {key: getattr(row, key) for key in ("name", "title", "oracle", "ablation")}
                for row in method.variants
            ],
        }
        for name, method in METHODS.items()
    ]


def abilities_of(method: Method) -> tuple[str, ...]:
    """Return the abilities of a method's planners, in words."""
    abilities = method.abilities or method.planner.abilities
    able = (entry.name for entry in fields(Abilities) if getattr(abilities, entry.name))
    return tuple(name.replace("_", " ") for name in able)


def published_sizes(method: Method) -> dict[str, int]:
    """Return the parameters of each network in the preset `paper`, built without memory."""
    import torch

    config = load_config(
        "paper", method=method.name, dataset="crosstask", horizon=PUBLISHED.horizon
    )
    with torch.device("meta"):
        return method.planner.sizes(config.settings, PUBLISHED)
