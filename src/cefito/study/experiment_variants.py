"""The rows of the paper's tables and figures, for a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cefito.data.prepared import PreparedDataset
from cefito.study.variants import ROWS, PlannerVariant

__all__ = [
    "COUNTS",
    "SHARES",
    "ablation_rows",
    "main_rows",
    "negative_rows",
    "text_encoder_rows",
    "true_task_rows",
]

COUNTS = (10, 25, 50, 100, 250)
"""Numbers N of negatives that are compared."""
SHARES = (0.0, 0.25, 0.5, 0.8, 1.0)
"""Shares r of hard negatives that are compared."""
_ENERGY = ROWS["cefito-energy"]
_MAIN = ("cefito-energy", "cefito-guided", "viterbi", "pdpp", "pkg-beam", "nearest", "frequent")
_TRIPLET = {"training.loss.kind": "triplet", "training.auxiliary.weight": 0.0}
_FIXED = {**_TRIPLET, "training.loss.margin.low": 0.1, "training.loss.margin.high": 0.1}
_ADAPTIVE = {**_TRIPLET, "training.loss.margin.low": 0.01, "training.loss.margin.high": 0.1}


def main_rows(_: PreparedDataset) -> tuple[PlannerVariant, ...]:
    """CEFITO beside all other methods."""
    return tuple(ROWS[name] for name in _MAIN)


def ablation_rows(_: PreparedDataset) -> tuple[PlannerVariant, ...]:
    """Loss, margin and auxiliary reconstruction, one added after the other."""
    baseline = {**_TRIPLET, "training.loss.kind": "regression", "training.negatives.count": 1}
    whole = {**_ADAPTIVE, "training.auxiliary.weight": 1.0}
    return (
        _trained("baseline", "baseline: regression of the goal", baseline),
        _trained("triplet", "+ triplet contrastive loss", _FIXED),
        _trained("adaptive", "+ adaptive margin", _ADAPTIVE),
        _trained("auxiliary", "+ auxiliary reconstruction (CEFITO)", whole),
        _trained("as-preset", "as the preset trains", {}),
    )


def text_encoder_rows(dataset: PreparedDataset) -> tuple[PlannerVariant, ...]:
    """What actions are encoded by."""
    kinds = {
        "learned": "learned embedding, random at first",
        "observed": "mean observations of each action (not in the paper)",
    }
    if dataset.action_text is not None:
        kinds["text"] = "text embeddings of the data set"
    no_skip = {"field.goal_skip": False}  # the skip connection needs observed actions
    return tuple(
        _trained(f"actions-{kind}", title, {"field.action_encoding": kind, **no_skip})
        for kind, title in kinds.items()
    )


def negative_rows(_: PreparedDataset) -> tuple[PlannerVariant, ...]:
    """The number of negatives, and the share of hard ones."""
    return (
        *(_negatives(f"N-{count}", count, 0.8) for count in COUNTS),
        *(_negatives(f"r-{share}", 50, share) for share in SHARES if share != 0.8),
    )


def true_task_rows(_: PreparedDataset) -> tuple[PlannerVariant, ...]:
    """CEFITO with predicted and with true tasks."""
    guided = ROWS["cefito-guided"]
    return (_ENERGY, _ENERGY.with_true_task(), guided, guided.with_true_task())


def _negatives(name: str, count: int, share: float) -> PlannerVariant:
    return _trained(
        name,
        f"N = {count}, r = {share}",
        {
            "training.negatives.count": count,
            "training.negatives.hard": share,
            "training.negatives.edited": 0.0,
        },
    )


def _trained(name: str, title: str, settings: Mapping[str, Any]) -> PlannerVariant:
    """CEFITO trained with other settings, planning as the paper does."""
    return _ENERGY.model_copy(update={"name": name, "title": title, "settings": settings})
