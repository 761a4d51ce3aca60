"""Declarations of PKG: the likeliest path on a graph of transitions, exact and by beam search."""

from __future__ import annotations

from pydantic import Field

from cefito.field.settings import ProposalConfig
from cefito.planners.base import Abilities
from cefito.planners.methods import GRAPH, Method, Paper, rows
from cefito.settings import Settings
from cefito.training.settings import (
    AugmentationConfig,
    EmaConfig,
    OptimiserConfig,
    StoppingConfig,
    TrainingConfig,
)


class PkgConfig(Settings):
    """Procedural knowledge graph: the likeliest path between a predicted first and last action.

    Published are the graph (transitions between neighbours, counted in the training windows, each
    row divided by its sum) and that a step model predicts both actions. The step model, its
    training and the width of the beam are not: those below did best on the validation split of
    captaincook4d.
    """

    network: ProposalConfig = ProposalConfig(hidden=(512, 512), dropout=0.2)
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=24, batch_size=64, learning_rate=3e-3, weight_decay=1.0, schedule="cosine"
        ),
        ema=EmaConfig(decay=0.99, every=1, warmup=101),
        stopping=StoppingConfig(every=2, patience=0, windows=0),
        augmentation=AugmentationConfig(noise=0.3),
    )
    smoothing: float = Field(0.0, ge=0)  # added to the count of every transition
    width: int = Field(10, ge=1)  # paths kept by the beam search


class PkgSettings(Settings):
    """The sections that PKG reads."""

    pkg: PkgConfig = PkgConfig()


ABILITIES = Abilities(true_task=False)

_PAPER = Paper("ViterbiPlanNet", "CVPR 2026", "2603.04265")

PKG = Method(
    name="pkg",
    planner="cefito.planners.pkg.planner:PkgPlanner",
    settings=PkgSettings,
    title="PKG, exact",
    line="the likeliest walk between a recognised first and last action",
    paper=_PAPER,
    needs=(GRAPH,),
    abilities=ABILITIES,
    variants=rows("pkg", "PKG, exact"),
)
PKG_BEAM = Method(
    name="pkg-beam",
    planner="cefito.planners.pkg.planner:PkgBeamPlanner",
    settings=PkgSettings,
    title="PKG, beam search",
    line="the same, searched by beam as in the published baseline",
    paper=_PAPER,
    needs=(GRAPH,),
    abilities=ABILITIES,
    variants=rows("pkg-beam", "PKG, beam search"),
)
