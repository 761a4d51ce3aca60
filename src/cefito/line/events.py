"""Events of a film that is followed: what is new after each row, as other programs are told it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cefito.inference.following import Followed
from cefito.settings import Record
from cefito.tracks import TimedStep
from cefito.verification.findings import Deviation


class Event(Record):
    """What happened in a film, in the form of the payloads of Standard Webhooks."""

    id: str
    type: str
    timestamp: str  # ISO 8601, UTC
    data: dict[str, Any]

    @classmethod
    def of(cls, kind: str, data: dict[str, Any]) -> Event:
        """Make an event that happens now, with an id of its own."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return cls(id=f"msg_{uuid.uuid4().hex}", type=kind, timestamp=now, data=data)


class News(NamedTuple):
    """What is new after a row."""

    withdrawn: list[TimedStep]  # steps that were told as done, and are no longer believed done
    done: list[TimedStep]
    withdrawn_findings: list[Deviation]  # findings that were told, and are no longer found
    findings: list[Deviation]  # that are new; each kind of an action once

    def facts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the type and the facts of the event of each."""
        for kind, steps in (("step.withdrawn", self.withdrawn), ("step.done", self.done)):
            yield from ((kind, {"step": step.model_dump(mode="json")}) for step in steps)
        told = [("finding.withdrawn", finding) for finding in self.withdrawn_findings]
        for finding in self.findings:
            told.append(("step.missed" if finding.omitted else "finding", finding))
        yield from ((kind, {"finding": _dumped(finding)}) for kind, finding in told)


def _dumped(finding: Deviation) -> dict[str, Any]:
    """Return a finding as events hold it."""
    return finding.model_dump(mode="json", exclude_none=True)


class Telling:
    """What was told of a film so far."""

    def __init__(self) -> None:
        self.done: list[TimedStep] = []
        self._findings: dict[tuple[str, int | None], Deviation] = {}

    def news(self, followed: Followed) -> News:
        """Return what is new in a record, which counts as told from now on."""
        done = beyond(followed.done, (step.action for step in self.done))
        withdrawn = beyond(self.done, (step.action for step in followed.done))
        findings: dict[tuple[str, int | None], Deviation] = {}
        for finding in followed.findings:
            findings.setdefault((finding.kind, finding.action), finding)
        withdrawn_findings = [self._findings[key] for key in self._findings if key not in findings]
        new = [findings[key] for key in findings if key not in self._findings]
        self.done = followed.done
        self._findings = findings
        return News(withdrawn, done, withdrawn_findings, new)

    def end(self) -> dict[str, Any]:
        """Return the facts of the end of the film: what was told and not withdrawn."""
        findings = [_dumped(finding) for finding in self._findings.values()]
        return {"done": [step.name for step in self.done], "findings": findings}


def beyond(steps: Sequence[TimedStep], actions: Iterable[int | None]) -> list[TimedStep]:
    """Return steps without the first ones of each action, as many as actions has of it."""
    counts = Counter(actions)
    others = []
    for step in steps:
        counts[step.action] -= 1
        if counts[step.action] < 0:
            others.append(step)
    return others
