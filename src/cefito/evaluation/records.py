"""Records of scores and of the plans of every scored window, as JSON files hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from cefito.data.windows import Selection, steps_text
from cefito.errors import RunError, explained
from cefito.evaluation.metrics import metric_heads
from cefito.files import NOT_JSON, FileRecord, read_text, write_text
from cefito.inference.answer import PlannedSequence
from cefito.markup import counted
from cefito.parts.coverage import weights_digest
from cefito.parts.matching import OtherDataset
from cefito.planners.given import Given
from cefito.planners.shared.settings import PlanningConfig
from cefito.search.problem import Plans

ABSENT: Any = Field(default=None, exclude_if=lambda value: value is None)
"""Default of fields that files omit if they are None."""
CALIBRATION_HEADS = {
    "expected_calibration_error": "ECE",
    "chance_calibration_error": "ECE by chance",
    "success_at_half_coverage": "SR at 50 %",
}
"""Heads of the columns of tables for numbers of a `Calibration`, by the names of its fields."""


class Reliability(FileRecord):
    """Windows by ascending probability, in bins of equal counts; per cent."""

    windows: list[int]
    probability: list[float]  # mean of each bin
    success: list[float]


class RiskCoverage(FileRecord):
    """Success if only the most probable windows are answered; shares in per cent."""

    coverage: list[float]  # share of windows answered; 0 for the most probable one alone
    success: list[float]
    min_probability: list[float]


class Calibration(FileRecord):
    """Calibration of the probabilities of best plans, per cent unless said otherwise."""

    # Naeini et al., 2015, but bins of equal counts: mean distance of success rate and probability
    expected_calibration_error: float
    # its mean if these probabilities are right, and the probability that it is then as large;
    # windows of a video may be right or wrong together
    chance_calibration_error: float | None = ABSENT
    calibration_p_value: float | None = ABSENT  # from 0 to 1
    success_at_half_coverage: float  # among the more probable half of the windows
    # Geifman et al., 2019: mean over n of the share of wrong plans among the n most probable
    risk_coverage_area: float
    mean_probability: float  # above the success rate if the planner is overconfident
    searched_mass: float | None  # None if it is not known for every window
    reliability: Reliability
    risk_coverage: RiskCoverage


class PartScores(FileRecord):
    """The metrics on a part of the windows."""

    windows: int
    metrics: dict[str, float | list[float]]  # as in `Evaluation`


class Replies(FileRecord):
    """What a language model replied to queries; equal requests were made once."""

    model: str
    server: str
    served: tuple[str, ...]  # models that replied, as the server calls them
    days: str  # UTC, of the first and the last reply
    queries: int
    repaired: int  # queries whose first answer was invalid and could be repaired
    replaced: int  # queries without a valid answer, planned by PKG
    requests: int  # different ones, with repairs
    prompt_tokens: int
    completion_tokens: int
    seconds: float  # that all requests took, kept answers as when they were made

    @classmethod
    def of(cls, plans: Sequence[Plans]) -> Self | None:
        """Summarise the replies of planned queries; None if no language model was asked."""
        replies = [plan.reply for plan in plans if plan.reply is not None]
        if not replies:
            return None
        distinct = {reply.key: reply.responses for reply in replies}.values()
        responses = [response for several in distinct for response in several]
        outcomes = [reply.outcome for reply in replies]
        days = sorted({response.asked[:10] for response in responses})
        return cls(
            model=replies[0].model,
            server=replies[0].server,
            served=tuple(sorted({response.served for response in responses})),
            days=" to ".join(dict.fromkeys([*days[:1], *days[-1:]])) or "not asked",
            queries=len(replies),
            repaired=outcomes.count("repaired"),
            replaced=outcomes.count("replaced"),
            requests=len(responses),
            prompt_tokens=sum(response.prompt_tokens for response in responses),
            completion_tokens=sum(response.completion_tokens for response in responses),
            seconds=round(sum(response.seconds for response in responses), 1),
        )

    def in_words(self) -> str:
        """All of it in one line."""
        return (
            f"{self.model} at {self.server}, {self.days}: {self.repaired:,} of {self.queries:,} "
            f"answers repaired, {self.replaced:,} replaced by PKG's plans; {self.requests:,} "
            f"requests, {self.prompt_tokens:,} tokens read, {self.completion_tokens:,} written, "
            f"{self.seconds:,.1f} s"
        )


class Evaluation(FileRecord, Given):
    """Scores of a planner on some windows."""

    what: ClassVar[str] = "evaluation"

    planner: str
    dataset: str  # contains "simulated" if observations are simulated
    split: str
    horizon: int  # T, the number of actions of each window, or of the longest
    shortest: int | None = ABSENT  # number of actions of the shortest window, if they differ
    windows: int
    sampled_from: int  # number of all windows
    metrics: dict[str, float | list[float]]  # per cent; `position_accuracy` is a list
    # the same in the taxonomy's shared vocabulary (CrossTask: 105 ids for 133), if it has one
    shared_metrics: dict[str, float | list[float]] | None = None
    without_plan: int  # windows without any plan, counted as wrong
    exact: bool  # whether every search was exact
    seconds_per_query: float  # wall time of planning over windows
    token_forwards_per_query: float  # tokens through the network
    leaves_per_query: float  # sequences whose energy was computed
    calibration: Calibration | None = ABSENT
    task_calibration: Calibration | None = ABSENT  # of the probability of the best plan's task
    replies: Replies | None = ABSENT  # of a language model
    # windows apart by whether a step was done wrongly, if the data set names errors
    clean: PartScores | None = ABSENT
    wrong: PartScores | None = ABSENT

    def percent(self, metric: str) -> float | None:
        """A metric or calibration number that is a single value; None if there is none."""
        if self.calibration is not None and metric in CALIBRATION_HEADS:
            number: float | None = getattr(self.calibration, metric)
            return number
        value = self.metrics.get(metric)
        return None if isinstance(value, list) else value

    @property
    def steps(self) -> str:
        """Number of actions of the windows, such as "3" or "1-6"."""
        return steps_text(self.horizon, self.shortest)

    @property
    def conditions(self) -> str:
        """What the planner was given, such as "predicted task, no goal"."""
        return ", ".join(["predicted task"] * (not self.task) + [*self.parts.values()])

    @property
    def success_rate(self) -> float:
        """Share of windows whose whole sequence is right, per cent."""
        rate = self.percent("success_rate")
        assert rate is not None
        return rate

    @property
    def position_accuracy(self) -> list[float]:
        """Share of windows whose action is right at each position, per cent [T]."""
        values = self.metrics["position_accuracy"]
        assert isinstance(values, list)
        return values


class VideoIntervals(FileRecord):
    """Confidence intervals of metrics by a percentile bootstrap of whole videos, or groups.

    They cover the choice of videos, not the randomness of training.
    """

    level: float  # 0.9 for 90 %
    videos: int
    groups: int | None = ABSENT  # of these videos, if groups are resampled
    draws: int
    low: dict[str, float | list[float]]  # by metric, per cent; `position_accuracy` is a list
    high: dict[str, float | list[float]]

    @property
    def units(self) -> tuple[int, str]:
        """How many videos or groups are resampled, and which of both."""
        return (self.videos, "video") if self.groups is None else (self.groups, "group")

    @property
    def resampled(self) -> str:
        """What is resampled, such as "3 groups"."""
        return counted(*self.units)

    def ends(self, metric: str) -> tuple[float, float] | None:
        """Both ends of the interval of a metric; None if it has no interval."""
        low, high = self.low.get(metric), self.high.get(metric)
        return (low, high) if isinstance(low, float) and isinstance(high, float) else None


def unsure_intervals(count: int, kind: str) -> str:
    """Return what is said of intervals that resample few videos or groups; else nothing."""
    return f" So few {kind}s make the intervals themselves uncertain." * (count < 10)


class TaskScores(FileRecord):
    """The metrics on the windows of one task."""

    task: int  # id of the true task
    name: str
    windows: int
    videos: int
    metrics: dict[str, float | list[float]]  # as in `Evaluation`

    @property
    def success_rate(self) -> float:
        """Share of windows whose whole sequence is right, per cent."""
        rate = self.metrics["success_rate"]
        assert isinstance(rate, float)
        return rate


class TasksWithoutTraining(FileRecord):
    """Tasks without any training window."""

    tasks: tuple[int, ...]
    windows: int  # number of scored windows of these tasks


class FoldScores(FileRecord):
    """One fold of a cross-validation: a run without its videos, scored on them."""

    videos: tuple[str, ...]  # ids of the videos held out
    groups: tuple[str, ...] | None = ABSENT  # of these, if folds keep groups together
    windows: int  # of these, that were scored
    training: int  # number of windows that the run was trained on
    metrics: dict[str, float | list[float]]  # as in `Evaluation`


class RunEvaluation(Evaluation):
    """Scores of a run on a split of a data set: content of an evaluation-*.json."""

    remedy: ClassVar[str] = "Make it again with cefito evaluate."
    sealed: ClassVar[bool] = True

    fingerprint: str  # of the data set
    method: str
    seed: int | None  # of its training; None for imported weights
    run: str | None = ABSENT  # `weights_digest` of its files
    preset: str
    selection: Selection | None  # windows that epochs and weights were chosen on
    actions_from: str | None = ABSENT  # source of each task's actions
    search: PlanningConfig | None = ABSENT
    weights: dict[str, float] | None = ABSENT  # of the objective's terms
    tasks_without_training: TasksWithoutTraining | None = ABSENT
    parameters: dict[str, int] | None = ABSENT  # by network
    intervals: VideoIntervals | None = ABSENT  # None for a single video
    per_task: list[TaskScores]
    other_dataset: OtherDataset | None = ABSENT  # if not scored on the run's own
    plans_sha256: str | None = ABSENT  # of the file of the plans, if they were saved
    folds: list[FoldScores] | None = ABSENT  # of a cross-validation; other entries are pooled

    def is_of(self, files: Mapping[str, str]) -> bool:
        """Return whether it is of the run of these files; True for one that does not say."""
        return self.run in (None, weights_digest(files))

    def headline(self) -> list[tuple[str, float, float | None, float | None]]:
        """Every metric that is a single number: head, value, and both ends of its interval."""
        lines = []
        for name, head in (metric_heads() | CALIBRATION_HEADS).items():
            if (value := self.percent(name)) is not None:
                ends = None if self.intervals is None else self.intervals.ends(name)
                lines.append((head, value, *(ends or (None, None))))
        return lines


class WindowPlans(FileRecord):
    """Plans of one window and the true sequence."""

    what: ClassVar[str] = "plan of a window"
    remedy: ClassVar[str] = "Save the plans again with cefito evaluate."

    video: str  # its id
    from_step: int = Field(ge=1)  # number of the window's first step, from 1
    start: float  # seconds
    end: float
    true_task: int
    true_task_name: str
    predicted_task: int | None  # of the best plan; None if the planner has no notion of tasks
    predicted_task_name: str | None
    true_actions: list[int]
    true_names: list[str]
    plans: list[PlannedSequence]  # best first
    rank: int | None  # of the annotated sequence among the plans, from 1; None if not there
    success: bool  # whether the whole best plan is right
    exact: bool  # whether no other allowed sequence is better than the plans


def save_plans(windows: Sequence[WindowPlans], path: Path | str) -> None:
    """Write the plans of windows into a file, a line of JSON each; an existing one is replaced."""
    rows = (window.to_dict() for window in windows)
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    write_text(Path(path), "".join(f"{line}\n" for line in lines))


def read_plans(path: Path | str) -> list[WindowPlans]:
    """Read a file from `save_plans`."""
    path = Path(path)
    # not splitlines(), which would also split at U+2028 inside a name
    lines = read_text(path, WindowPlans.remedy, RunError).split("\n")
    with explained(path, "cannot be read", WindowPlans.remedy, *NOT_JSON, error=RunError):
        return [
            WindowPlans.parse(json.loads(line), Path(f"{path}, line {number}"))
            for number, line in enumerate(lines, 1)
            if line
        ]
