"""A gate: each step of a film is confirmed before the next one is shown."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection
from typing import Any, Literal, TextIO

from pydantic import Field

from cefito.data.vocabulary import Taxonomy
from cefito.inference.following import Followed
from cefito.line.events import beyond
from cefito.settings import Record

OVER = 0.5
"""Probability of the end from which on the film counts as finished."""


class Confirmed(Record):
    """A step that was confirmed, or skipped."""

    action: int
    name: str
    by: Literal["person", "recogniser"]
    skipped: bool = False
    seconds: float = Field(description="When, in the time of the film.")


class Shown(Record):
    """What a gate shows."""

    action: int
    name: str
    waits: bool = Field(description="Whether a person must confirm or skip it now.")
    passed_over: bool = Field(description="Whether later steps were seen without it.")
    critical: bool


class Gate:
    """The step to be done, which stays until it is confirmed.

    The recogniser confirms a step that it believes done. A person confirms critical steps, and
    confirms or skips those that were passed over: missed by the verifier, or critical and shown
    while another step was begun. A step that nobody began, and that a person need not confirm,
    gives way to another one that was begun.

    Args:
        taxonomy: Names of the steps.
        critical: Actions that a person confirms.
    """

    def __init__(self, taxonomy: Taxonomy, critical: Collection[int] = ()) -> None:
        self._taxonomy, self._critical = taxonomy, frozenset(critical)
        self.confirmed: list[Confirmed] = []
        self.shown: Shown | None = None  # None before the first row, and at the end
        self._passed = list[int]()  # actions that were passed over and wait for a person
        self._seconds = 0.0

    def update(self, followed: Followed, *, ended: bool = False) -> list[Confirmed]:
        """Take what was recognised, `ended` if no row follows; return what that confirms."""
        before, self._seconds = len(self.confirmed), followed.seconds
        over = ended or (followed.now is None and followed.ended >= OVER)
        seen = [*followed.done, *([] if followed.now is None else [followed.now])]
        while True:
            begun = beyond(seen, [step.action for step in self.confirmed])
            begun_actions = [step.action for step in begun if step.action is not None]
            self._pass_over(followed, begun_actions, over)
            action = self._shown_action(followed, begun_actions, over)
            if action is None:
                self.shown = None
                break
            critical, passed = action in self._critical, action in self._passed
            done = any(step.action == action and step is not followed.now for step in begun)
            self.shown = Shown(
                action=action,
                name=self._taxonomy.actions[action].name,
                waits=passed or (critical and (done or over)),
                passed_over=passed and not done,
                critical=critical,
            )
            if self.shown.waits or not done:
                break
            self._confirm("recogniser")
        return self.confirmed[before:]

    def _pass_over(self, followed: Followed, begun: list[int], over: bool) -> None:
        """Add the actions that were passed over up to a row."""
        task = self._taxonomy.tasks[followed.task.id].actions
        missed = [finding.action for finding in followed.findings if finding.omitted]
        strict = [action for action in task if action in self._critical]
        shown = self.shown
        if not over:  # at the end, all that were never confirmed
            strict = [a for a in strict if shown and begun and a == shown.action]
        settled = {step.action for step in self.confirmed}.union(self._passed, begun)
        new = (action for action in [*missed, *strict] if action not in settled)
        self._passed += dict.fromkeys(action for action in new if action is not None)

    def _shown_action(self, followed: Followed, begun: list[int], over: bool) -> int | None:
        shown = self.shown
        if shown is not None and (
            shown.waits or (not self._passed and (shown.action in begun or not (begun or over)))
        ):
            return shown.action
        if self._passed or begun:
            return [*self._passed, *begun][0]
        return followed.next[0].id if followed.next and not over else None

    def to_dict(self) -> dict[str, Any]:
        """Convert to a value for JSON: the step shown, and those confirmed or skipped."""
        shown = None if self.shown is None else self.shown.model_dump(mode="json")
        return {
            "shown": shown,
            "confirmed": [step.model_dump(mode="json") for step in self.confirmed],
        }

    def touch(self, line: str) -> Confirmed | None:
        """Confirm the step shown, or skip it, as a person's line says; None if it says neither.

        An empty line, the step's name or its id confirms; "skip", or that and the name, skips.
        """
        shown, text = self.shown, line.strip()
        if shown is None:
            return None
        names = {"", shown.name.strip().casefold(), str(shown.action)}
        if text.casefold() in names:
            return self._confirm("person")
        word, _, name = text.partition(" ")
        if word.casefold() in ("s", "skip") and name.strip().casefold() in names:
            return self._confirm("person", skipped=True)
        return None

    def _confirm(self, by: Literal["person", "recogniser"], skipped: bool = False) -> Confirmed:
        shown = self.shown
        assert shown is not None
        self._passed = [action for action in self._passed if action != shown.action]
        self.shown = None
        self.confirmed.append(
            Confirmed(
                action=shown.action, name=shown.name, by=by, skipped=skipped, seconds=self._seconds
            )
        )
        return self.confirmed[-1]


class Lines:
    """Lines of a person in a text file, read by a thread so that rows do not wait for them."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._ended = file, False
        self._lines = queue.Queue[str | None](100)  # None: the end
        threading.Thread(target=self._read, name="lines", daemon=True).start()

    def _read(self) -> None:
        try:
            # a reader of its own: that of sys.stdin is closed when the process ends
            handle, form = self._file.fileno(), self._file.encoding
            with open(handle, encoding=form, errors="replace", closefd=False) as file:
                for line in iter(file.readline, ""):
                    self._lines.put(line)
        except (OSError, ValueError, AttributeError):  # closed, or none
            pass
        self._lines.put(None)

    def take(self, *, wait: bool) -> str | None:
        """Return a line; None if there is none yet, or, after waiting, if they have ended."""
        while not self._ended:
            try:
                line = self._lines.get(timeout=1.0 if wait else 0.0)  # so that Ctrl-C is seen
            except queue.Empty:
                if not wait:
                    return None
                continue
            self._ended = line is None
            return line
        return None
