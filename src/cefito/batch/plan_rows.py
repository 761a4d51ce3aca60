"""What a batch gives: a row a plan, and a row for each query that could not be planned."""

from __future__ import annotations

import json
from typing import Any, Self

from cefito.data.taxonomy import Taxonomy
from cefito.inference.answer import Answer
from cefito.settings import Record

__all__ = ["BadRow", "PlanRow", "plan_schema"]


class _Written(Record):
    """A row of a file."""

    def to_line(self) -> str:
        """As JSON in one line."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)


class PlanRow(_Written):
    """One plan of one query.

    Attributes:
        query: Name of the query: its id, otherwise the number of its line.
        line: Line of the list that it stands in, or which query it is, counted from 1.
        rank: Which of its plans, from 1, best first.
        actions: Action ids.
        names: Their names.
        energy: Its energy.
        score: What plans are ordered by, lower is better.
        probability: Of plan and task, given the observations; None where the planner has none.
        task: Id of the task that it was found for, where there is one.
        task_name: Its name.
        exact: Whether no other allowed sequence is better than the plans of the query.
        sure: Whether the best plan of the query is as probable as was asked for; None where nothing
            was asked.
        searched_mass: As in `cefito.search.problem.Plans`, of the query.
        token_forwards: Tokens through networks that the query cost.
        leaves: Sequences whose energy was computed for it.
    """

    query: str
    line: int
    rank: int
    actions: list[int]
    names: list[str]
    energy: float
    score: float
    probability: float | None
    task: int | None
    task_name: str | None
    exact: bool
    sure: bool | None
    searched_mass: float | None
    token_forwards: int
    leaves: int

    @classmethod
    def of(cls, answer: Answer, query: str, line: int, taxonomy: Taxonomy) -> list[Self]:
        """The plans of an answer."""
        return [
            cls(
                query=query,
                line=line,
                rank=rank,
                **dict(plan),
                task_name=None if plan.task is None else taxonomy.tasks[plan.task].name,
                exact=answer.exact,
                sure=answer.sure,
                searched_mass=answer.searched_mass,
                token_forwards=answer.evaluated.token_forwards,
                leaves=answer.evaluated.leaves,
            )
            for rank, plan in enumerate(answer.plans, 1)
        ]


class BadRow(_Written):
    """A query that could not be planned.

    Attributes:
        query: Its name, as far as it can be told.
        line: As in `PlanRow`.
        reason: What is wrong with it and what to do, in one line.
    """

    query: str
    line: int
    reason: str


def plan_schema(pyarrow: Any) -> Any:
    """The columns of `PlanRow` in Parquet."""
    whole, real, text, truth = pyarrow.int64(), pyarrow.float64(), pyarrow.string(), pyarrow.bool_()
    kinds = {
        "actions": pyarrow.list_(whole),
        "names": pyarrow.list_(text),
        **dict.fromkeys(("line", "rank", "task", "token_forwards", "leaves"), whole),
        **dict.fromkeys(("energy", "score", "probability", "searched_mass"), real),
        **dict.fromkeys(("query", "task_name"), text),
        **dict.fromkeys(("exact", "sure"), truth),
    }
    return pyarrow.schema([(name, kinds[name]) for name in PlanRow.model_fields])
