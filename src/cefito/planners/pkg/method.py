"""Declarations of PKG, by exact search and by the published beam search."""

from cefito.planners.base import Abilities
from cefito.planners.methods import GRAPH, Method, Paper, PlannerVariant
from cefito.planners.pkg.settings import PkgSettings

ABILITIES = Abilities(true_task=False, true_ends=True)

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
    variants=(
        PlannerVariant(name="pkg", title="PKG, exact", method="pkg"),
        PlannerVariant(
            name="pkg-oracle-ends", title="PKG, true ends (oracle)", method="pkg", true_ends=True
        ),
    ),
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
    variants=(PlannerVariant(name="pkg-beam", title="PKG, beam search", method="pkg-beam"),),
)
