"""List of all methods: papers, needs, abilities, sizes and rows of tables."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

from cefito.planners.base import Abilities, Shape
from cefito.planners.methods import METHODS, Method, load_config

PUBLISHED = Shape(observation_dim=1536, tasks=18, actions=133, horizon=3, text_dim=512)
"""CrossTask in the unified protocol at T = 3, with text vectors of CLIP ViT-B/32."""
TOP_K = "top-k"
"""Ability of every planner: several plans of a query, best first."""


@dataclass(frozen=True)
class ListedMethod:
    """A method as it is listed."""

    method: Method
    can: tuple[str, ...]  # abilities of its planners, in words
    parameters: dict[str, int]  # of each network at the published size; empty if there is none
    package: str | None = None  # other package that adds it, with its version

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        method = self.method
        return {
            "name": method.name,
            "title": method.title or method.name,
            "what": method.line,
            "package": self.package,
            "paper": None if method.paper is None else method.paper.to_dict(),
            "needs": list(method.needs),
            "uses": list(method.uses),
            "can": list(self.can),
            "parameters": self.parameters or None,
            "rows": [
                {name: getattr(row, name) for name in ("name", "title", "oracle", "ablation")}
                for row in method.variants
            ],
        }


def listed_methods() -> list[ListedMethod]:
    """Return all registered methods, in the order of their registration.

    Abilities and sizes of this package's methods are kept in `methods.json`, so that a list needs
    no network; those of other methods are computed.
    """
    text = (resources.files("cefito.study") / "methods.json").read_text(encoding="utf-8")
    kept: dict[str, dict[str, Any]] = json.loads(text)
    return [
        ListedMethod(
            method=method,
            can=tuple(kept[name]["can"]) if name in kept else abilities_of(method),
            parameters=kept[name]["parameters"] if name in kept else published_sizes(method),
            package=" ".join(METHODS.package(name) or ()) or None,
        )
        for name, method in METHODS.items()
    ]


def abilities_of(method: Method) -> tuple[str, ...]:
    """Return the abilities of a method's planners, in words."""
    abilities = method.planner.abilities
    able = (entry.name for entry in fields(Abilities) if getattr(abilities, entry.name))
    return (TOP_K, *(name.replace("_", " ") for name in able))


def published_sizes(method: Method) -> dict[str, int]:
    """Return the parameters of each network in the preset `paper`, built without memory."""
    import torch

    config = load_config(
        "paper", method=method.name, dataset="crosstask", horizon=PUBLISHED.horizon
    )
    with torch.device("meta"):
        return method.planner.sizes(config.settings, PUBLISHED)
