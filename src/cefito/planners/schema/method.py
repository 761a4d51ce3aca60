"""Declaration of SCHEMA."""

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, PlannerVariant, ablation
from cefito.planners.schema.settings import SchemaSettings

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
    variants=(
        PlannerVariant(name="schema", title="SCHEMA", own_name=True, method="schema"),
        ablation(
            "schema",
            "undescribed",
            "SCHEMA (no descriptions)",
            {"schema_model.descriptions": "none"},
            own_name=True,
        ),
    ),
)
