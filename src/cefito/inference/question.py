"""What is asked of a run, whoever asks: the command line, a table, Python or a request.

Numbers of steps are one, such as 3, or a range, such as "2-4".

To add a fact, add a field with its description, which is also the text of its option and of the
field of a request, and use it in `Asked.of` of `cefito.inference.answer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

from pydantic import Field, field_validator

from cefito.data.vocabulary import find_done, find_task
from cefito.errors import ConfigError
from cefito.inference.constraints import Name, NamedConstraints
from cefito.search.constraints import Constraints, by_step, declared
from cefito.settings import Settings, validated

if TYPE_CHECKING:
    from cefito.parts.opened import OpenedRun


class Facts(TypedDict, total=False):
    """The fields of a `Question`, and those of constraints beside them, for type checkers."""

    task: Name | None
    done: Sequence[Name] | None
    elapsed: float | None
    steps: Name | None
    constraints: NamedConstraints | Constraints
    pin: Mapping[int, Name] | None
    required: Sequence[Name]
    forbidden: Sequence[Name]
    before: Sequence[tuple[Name, Name]]
    no_repeats: bool
    top_k: int
    min_probability: float | None
    coverage: float | None


class QueryFacts(Settings):
    """What is said of one query besides its observations; None if it is not known."""

    task: Name | None = Field(
        None, description="The task by name or id, instead of the predicted one."
    )
    done: tuple[Name, ...] | None = Field(
        None,
        description="Actions done before by name or id, oldest first, for a run of several "
        "lengths; empty if nothing was done yet, left out if they are not known.",
    )
    elapsed: float | None = Field(
        None,
        gt=0,
        lt=1e9,
        description="Seconds between both observations, for a run of several lengths.",
    )
    steps: Name | None = Field(
        None,
        description="Number of steps of the plans, or a range such as 2-4, for a run of several "
        "lengths; by default every number that it plans.",
        examples=[3, "2-4"],
    )
    constraints: NamedConstraints = Field(
        NamedConstraints(), description="Constraints that every plan satisfies."
    )

    @field_validator("constraints", mode="before")
    @classmethod
    def _of_ids(cls, constraints: Any) -> Any:
        return (
            NamedConstraints(**vars(constraints))
            if isinstance(constraints, Constraints)
            else constraints
        )


class Question(QueryFacts):
    """What is asked of a run about a query."""

    top_k: int = Field(5, ge=1, description="Number of plans.")
    min_probability: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Probability from 0 to 1 that the best plan needs for the answer to be sure.",
    )
    coverage: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of new videos, such as 0.9, for which the sets of plans and of first "
        "steps hold the annotated ones; for runs that cefito calibrate has calibrated.",
    )

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Make a question of fields, those of constraints beside the others (ConfigError)."""
        values, named = dict(facts), {}
        for name, (kind, how) in declared().items():
            for field_name in {name, how.option} & values.keys():
                value = values.pop(field_name)
                if by_step(kind) and (value is None or isinstance(value, Mapping)):
                    value = tuple((value or {}).items())
                named[name] = value
        if named:
            values["constraints"] = validated(NamedConstraints, named, place="constraints")
        return validated(cls, values, place="question")

    def with_facts(self, facts: QueryFacts) -> Self:
        """Return the question with the known facts of a query, and the constraints of both."""
        stated = {
            name: value
            for name in QueryFacts.model_fields
            if (value := getattr(facts, name)) is not None
        }
        return self.model_copy(
            update={**stated, "constraints": self.constraints.with_more(facts.constraints)}
        )

    def resolved(self, run: OpenedRun) -> Self:
        """Return the question with ids in the place of names (ConfigError if one is unknown)."""
        task = None if self.task is None else find_task(run.taxonomy, self.task)
        done = self.done
        if done is not None:
            done = tuple(find_done(run.taxonomy, action, task=task) for action in done)
        named = self.constraints
        if named != NamedConstraints():
            named = NamedConstraints(**vars(named.resolved(run.taxonomy, task=task)))
        return self.model_copy(update={"task": task, "done": done, "constraints": named})


AnyQuestion = TypeVar("AnyQuestion", bound=Question)
Planning = TypeVar("Planning", bound="OpenedRun")


def steps_range(text: int | str) -> tuple[int, int]:
    """Parse a number of steps such as 3 or "3", or a range such as "1-6": shortest and longest."""
    match = re.fullmatch(r"([1-9][0-9]{0,3})(?:-([1-9][0-9]{0,3}))?", str(text).strip())
    shortest, longest = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if shortest > longest:
        raise ConfigError(
            f"steps {str(text)[:40]}: expected a number of steps, or a range, as in 3 or 1-6.",
            setting="steps",
        )
    return shortest, longest


def planning(run: Planning, steps: int | str | None) -> Planning:
    """Return the run with plans of these numbers of steps, of all for None (ConfigError)."""
    if steps is None or (wanted := steps_range(steps)) == run.chosen_steps:
        return run
    return run.with_steps(*wanted)
