"""What a planner is given of windows besides the observations at both ends."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from cefito.settings import Record, validated


def _given(title: str, description: str) -> Any:
    return Field(
        default=False,
        title=title,
        description=description,
        exclude_if=lambda is_given: not is_given,
    )


class Given(Record):
    """What a planner is given of windows, or is not; by default both observations alone.

    The titles stand in tables, the descriptions are the texts of options.
    """

    oracle_task: bool = Field(
        default=False, title="true task", description="Give the true task of each window."
    )
    stored_task: bool = _given(
        "stored task",
        "Give the task that the data set stores of each window, as a classifier of others "
        "predicted it (event_class_top1 of the authors' window files).",
    )
    without_goal: bool = _given(
        "no goal", "Plan without the goal observation, by a run of several lengths."
    )
    after_done: bool = _given(
        "after steps done",
        "Give the steps of the video that were done before each window, to a run of several "
        "lengths.",
    )
    with_elapsed: bool = _given(
        "time between observations",
        "Give the seconds between both observations where they are known, to a run of several "
        "lengths.",
    )

    @classmethod
    def of(cls, **flags: bool) -> Self:
        """Validate what is given, by field (ConfigError)."""
        return validated(cls, flags, place="given")

    @property
    def parts(self) -> dict[str, str]:
        """The titles of all that departs from the default, by field."""
        fields = Given.model_fields.items()
        return {name: str(field.title) for name, field in fields if getattr(self, name)}

    @property
    def task(self) -> bool:
        """Whether a task is given."""
        return self.oracle_task or self.stored_task
