"""The first sentences of reports, in plain words: how good, how sure, who is ahead."""

from __future__ import annotations

from cefito.markup import counted
from cefito.report.schema import ComparisonReport, Lead, RunReport

_KINDS = {"test": "new", "val": "validation", "train": "training"}
_FEW = 10  # videos
_LESS = "fewer than 1"
_UNSURE = " So few videos make the intervals themselves uncertain."
_WINDOW = "A window is a stretch of a video; its plan is right if every step is, in order."


def run_lead(report: RunReport) -> list[str]:
    """How many windows are planned right, overall and where the run is sure; number and intervals.

    The first sentence counts the windows themselves if they are fewer than 100.
    """
    scores, sure = report.scores, report.sure
    each = scores.windows >= 100
    windows = "100" if each else f"{scores.windows}"
    given = "" if scores.conditions == "predicted task" else f" ({scores.conditions})"
    first = (
        f"Of {windows} {_KINDS[scores.split]}{' simulated' * report.simulated} windows of "
        f"{_steps(scores.steps)}{given}, "
    )
    done = _count(scores.success_rate, None if each else scores.windows)
    first += f"{done} {'is' if done in ('1', _LESS) else 'are'} planned right"
    second = f"Scored on {counted(scores.windows, 'window')}"
    ends = None if scores.intervals is None else scores.intervals.ends("success_rate")
    if scores.intervals is None or ends is None:
        second += " of one video, which says little of others"
    else:
        level = f"{100 * scores.intervals.level:g} % interval"
        second += f" of {scores.intervals.videos:,} videos: {_interval(*ends, level)}"
    if sure is not None:
        share = sure.windows / scores.windows
        part = "fifth" if sure.windows == -(-scores.windows // 5) else f"{100 * share:.0f} %"
        among = _count(sure.success_rate, None if each else sure.windows)
        first += f"; where the run is sure (the most certain {part}), {among}"
        first += "" if each else f" of {sure.windows}"
        if sure.low is not None and sure.high is not None:
            second += f"; for its most certain {sure.windows:,}, {_interval(sure.low, sure.high)}"
    few = scores.intervals is not None and scores.intervals.videos < _FEW
    return [f"{first}.", f"{second}.{_UNSURE * few} {_WINDOW}"]


def comparison_lead(report: ComparisonReport) -> list[str]:
    """Who is ahead of whom by how much, and whether that may be chance, a sentence a horizon."""
    said = []
    for lead in report.leads:
        windows = f"100 new{' simulated' * report.simulated} windows of "
        windows += _steps(report.steps[lead.horizon])
        if lead.difference is None or lead.low is None or lead.high is None:
            alone = f"Of {windows}, “{lead.ahead}” plans {lead.success_rate:.1f} right"
            said.append(f"{alone}; there is no other planner to compare it with.")
            continue
        span = _interval(lead.low, lead.high, f"the {100 * lead.level:g} % interval,")
        excludes = "excludes 0" if lead.certain else "includes 0, so the order may be chance"
        said.append(
            f"“{lead.ahead}” is ahead of “{lead.behind}” by {lead.difference:.1f} of {windows} "
            f"({lead.success_rate:.1f} planned right); {span}, {excludes}."
        )
    if report.leads:
        said.append(_basis(report.leads))
    return said


def _basis(leads: list[Lead]) -> str:
    windows = " and ".join(f"{lead.windows:,}" for lead in leads)
    videos = min(lead.videos for lead in leads)
    return (
        f"Scored on {windows} windows of {counted(videos, 'video')}, which were resampled for the "
        "intervals; these do not cover the chance of training."
        f"{_UNSURE * (videos < _FEW)} {_WINDOW}"
    )


def _steps(count: str) -> str:
    return f"{count} step{'s' * (count != '1')}"


def _count(rate: float, windows: int | None) -> str:
    """A success rate as a number of windows, of 100 if it is None."""
    count = round(rate if windows is None else rate * windows / 100)
    return _LESS if rate and not count else f"{count:,}"


def _interval(low: float, high: float, lead: str = "") -> str:
    if low == high:
        return f"{lead} {low:.1f} in every video".strip()
    ends = (f"{round(end, 1) + 0.0:.1f}".replace("-", "−") for end in (low, high))
    return f"{lead} {' to '.join(ends)}".strip()
