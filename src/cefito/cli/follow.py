"""`cefito follow`: what goes on and comes next, row by row; events for programs, and a gate."""

from __future__ import annotations

import json
import math
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import numpy as np
from cyclopts import Group, Parameter
from numpy.typing import NDArray

from cefito.cli.console import log_warnings, passing_progress, print_json, talk
from cefito.cli.options import OUTPUT, Several
from cefito.cli.values import Flag
from cefito.data.vocabulary import find_actions
from cefito.errors import ConfigError, DataError
from cefito.files import user_cache, value_digest
from cefito.markup import as_seconds, counted, film_percent, percent

if TYPE_CHECKING:
    from cefito.inference.following import Followed
    from cefito.inference.session import Session
    from cefito.line.delivery import Delivery
    from cefito.line.events import Telling
    from cefito.line.gate import Confirmed, Gate, Lines
    from cefito.parts.opened import OpenedRun

UNDELIVERED = 5
"""Exit code if events still wait for their delivery."""
UNCONFIRMED = 6
"""Exit code if a step of `--gate` still waits for a person."""
_SHOWN = 3  # next steps
_ENDED = 0.5  # probability of the end from which on it is told
_LATEST = 3600.0  # seconds; a first row that is later has a time of day
_FARTHEST = 10.0  # seconds between the first two rows; times further apart are milliseconds

Rows = Iterator[tuple[float, Any] | str]
"""Times and rows, and lines of a person between them."""


@Parameter(name="*", group=Group("Events"))
@dataclass(frozen=True, kw_only=True)
class EventOptions:
    """Events for other programs.

    Attributes:
        on_event: URL that gets each event by POST, or command that reads it from its input.
        event_spool: File in which events wait for their delivery, those of an earlier call first;
            by default one of this run and source, in the folder of caches.
        event_limit: Number of events that may wait; then the film waits, too.
        event_secret: File of secrets of signatures, whsec_…, a line each; by default the
            environment variable CEFITO_EVENT_SECRET.
        event_wait: Seconds to wait for the delivery at the end.
    """

    on_event: str | None = None
    event_spool: Path | None = None
    event_limit: int = 10_000
    event_secret: Path | None = None
    event_wait: float = 30.0

    def open(self, run: Path, source: str) -> Delivery | None:
        """Begin to deliver the events of a source; None if nothing receives them."""
        if self.on_event is None:
            return None
        if self.event_limit < 1 or self.event_wait < 0:
            raise ConfigError("--event-limit is at least 1, and --event-wait at least 0.")
        from cefito.line.delivery import Delivery, Spool, open_receiver, read_secrets

        deliver = open_receiver(self.on_event, read_secrets(self.event_secret))
        key = value_digest([str(run.resolve()), source])[:32]
        path = self.event_spool or user_cache("events") / f"{key}.sqlite"
        spool = Spool(path, self.event_limit)
        if len(spool):
            talk(f"events: {path} holds {len(spool):,} of an earlier call, which are sent first")
        return Delivery(spool, deliver, lambda words: talk(f"events: {words}", urgent=True))


NO_EVENTS = EventOptions()
"""Nothing receives events."""


def follow(
    run: Path,
    stdin: Annotated[str | None, Parameter(show=False, allow_leading_hyphen=True)] = None,
    /,
    *,
    features: Path | None = None,
    feature_rate: float | None = None,
    video: Path | None = None,
    camera: str | None = None,
    task: str | None = None,
    plan: Flag = False,
    false_alarms: float | None = None,
    lag: float = 0.0,
    gate: Flag = False,
    critical: Several = (),
    encoder: str | None = None,
    weights: Path | None = None,
    events: EventOptions = NO_EVENTS,
    json: Annotated[Flag, Parameter(group=OUTPUT)] = False,
) -> int:
    """Follow a procedure: the present step, steps done and next steps, whenever they change.

    Args:
        run: Run of several lengths with a recogniser, as cefito train DATA --steps 1-6 makes it of
            a data set with the rows of whole videos.
        stdin: "-" to read rows from the standard input.
        features: File of features [n, D] (.npy, .npz, .pt, .h5); of a run of sensors, a table of
            their values, or a folder of tables.
        feature_rate: Rows a second of features, or of bare lines; by default as in training.
        video: Video file, encoded as the run's features were.
        camera: Camera, by its number or device, one picture a second.
        task: Name or id of the task; by default it is inferred.
        plan: Show the likeliest plan of the steps that remain, too.
        false_alarms: Tell what was wrong from the probability on that promises at most so many
            false alarms an hour where steps are given; by default from 60 %.
        lag: Tell which step went on so many seconds ago, which the rows since then make surer.
        gate: Show one step until it is confirmed, by the recogniser or by a person.
        critical: Step that a person confirms, by name or id; may be repeated. Needs --gate.
        encoder: Encoder of pictures; by default the one of the run's features.
        weights: File of its weights, for s3d.
        json: Print one JSON object a change, for programs.
    """
    from cefito.inference.following import FINDING
    from cefito.inference.recordings import open_recordings, row_rate
    from cefito.inference.session import check_lag
    from cefito.inference.whole_videos import limits_of_films
    from cefito.line.events import Telling
    from cefito.runs.run import follow as open_session

    sources = {"--features": features, "--video": video, "--camera": camera, "-": stdin}
    chosen = [str(value) for value in sources.values() if value is not None]
    if len(chosen) != 1 or stdin not in (None, "-"):
        raise ConfigError("give one of --features FILE, --video FILE, --camera NUMBER, or -.")
    if critical and not gate:
        raise ConfigError("--critical is of steps that --gate shows. Give it, too.")
    check_lag(lag)
    with log_warnings():
        session, least = open_session(run, task=task), FINDING
        opened = session.run
        if false_alarms is not None:
            least = opened.own_verifier.promise(false_alarms, online=True).least
        scores = opened.own_recogniser.held_out
        limits = [*limits_of_films(opened), "" if scores is None else scores.limit]
        for limit in filter(None, limits):
            talk(f"note: {limit}")
        rows: Rows
        if stdin is not None:
            width = opened.own_recogniser.width
            rows = _lines(row_rate(opened, feature_rate), width, touches=gate)
        elif camera is not None:
            rows = _camera_rows(opened, camera, encoder, weights)
        else:
            (whole,) = open_recordings(
                opened,
                [str(features or video)],
                rate=feature_rate,
                encoder=encoder,
                weights=weights,
                progress=passing_progress,
            )
            whole.check_task(opened, session.task)
            rows = ((place / whole.rate, row) for place, row in enumerate(whole.rows))
        doors = _gate(session, critical) if gate else None
        by = "rows" if stdin is not None else "terminal" if sys.stdin.isatty() else "input"
        film = _Film(
            session,
            Telling(),
            doors,
            hint=_HINTS[by],
            least=least,
            lag=lag,
            ends=camera is None,
            plan=plan,
            as_json=json,
        )
        if doors is not None and stdin is None:
            from cefito.line.gate import Lines

            rows = _with_lines(rows, film, Lines(sys.stdin), live=camera is not None)
        film.facts = {"film": _named(chosen[0]), "session": uuid.uuid4().hex}
        film.delivery = events.open(run, chosen[0])
        try:
            for entry in rows:
                if isinstance(entry, str):
                    film.touch(entry)
                else:
                    film.observe(*entry)
            film.finish()
        except BaseException:
            film.leave(complete=False, seconds=0.0)
            raise
        return film.leave(complete=True, seconds=events.event_wait)


_HINTS = {
    "terminal": "Enter confirms it, skip and Enter skips it",
    "input": "a line with its name on the input confirms it, skip NAME skips it",
    "rows": 'a line {"confirm": NAME} confirms it, {"skip": NAME} skips it',
}


def _gate(session: Session, critical: tuple[str, ...]) -> Gate:
    from cefito.line.gate import Gate

    taxonomy, ids = session.run.taxonomy, set[int]()
    for name in critical:
        ids |= {*find_actions(taxonomy, name, task=session.task, setting="critical")}
    return Gate(taxonomy, ids)


def _named(source: str) -> str:
    """Return the name of a source: of a file without folders, of an address without secrets."""
    if "://" in source:
        parts = urlsplit(source)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return Path(source).name or source


@dataclass
class _Film:
    """A film that is followed: what is shown of it, and what is told."""

    session: Session
    told: Telling
    gate: Gate | None
    hint: str  # how a person confirms
    least: float  # probability of a finding
    lag: float
    ends: bool  # whether the film is over once no row follows
    plan: bool
    as_json: bool
    facts: dict[str, str] = field(default_factory=dict)  # of all events
    delivery: Delivery | None = None
    followed: Followed | None = None
    ended: bool = False  # whether no row follows
    shown: tuple[Any, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether a step waits for a person."""
        return self.gate is not None and self.gate.shown is not None and self.gate.shown.waits

    @property
    def over(self) -> bool:
        """Whether the film is over, rather than its camera off."""
        return self.ended and self.ends

    def observe(self, at: float, row: NDArray[Any] | None) -> None:
        """Take the row of a time."""
        self.session.observe(row, at=at)
        self.take(self._followed())

    def _followed(self) -> Followed:
        return self.session.followed(_SHOWN, least=self.least, lag=self.lag)

    def take(self, followed: Followed) -> None:
        """Show and tell what is new in a record."""
        if self.followed is None:
            self.tell("film.begun")
        self.followed, news = followed, self.told.news(followed)
        for kind, facts in news.facts():
            self.tell(kind, **facts)
        if self.gate is not None:
            for confirmed in self.gate.update(followed, ended=self.ended):
                self._confirmed(confirmed)
        going = followed.now.action if followed.now else followed.ended >= _ENDED
        gate = self.gate and (self.gate.shown, len(self.gate.confirmed))
        done = [step.action for step in followed.done]
        state = (going, followed.now is None, done, gate, self.over)
        if state != self.shown or news.findings or news.withdrawn_findings:
            self._show(followed)
            if not self.as_json:
                for finding in news.withdrawn_findings:
                    talk(f"           {finding.name}: no longer {finding.words}")
                for finding in news.findings:
                    talk(
                        f"           {finding.name}: {finding.words} "
                        f"({film_percent(finding.probability)}): {finding.evidence}"
                    )
        self.shown = state

    def touch(self, line: str) -> None:
        """Confirm or skip the step shown, as a person's line says."""
        if self.gate is None or self.followed is None:
            return
        confirmed = self.gate.touch(line)
        if confirmed is None:
            name = "none" if self.gate.shown is None else f"'{self.gate.shown.name}'"
            talk(f"           '{line.strip()}' is not the step shown, {name}; {self.hint}")
            return
        self._confirmed(confirmed)
        self.take(self.followed)

    def _confirmed(self, confirmed: Confirmed) -> None:
        done = "skipped" if confirmed.skipped else "confirmed"
        self.tell(f"step.{done}", step=confirmed.model_dump(mode="json"))
        if not self.as_json:
            talk(f"           {confirmed.name}: {done} by the {confirmed.by}")

    def tell(self, kind: str, *, wait: bool = True, **facts: Any) -> None:
        """Tell an event to the program that receives them."""
        if self.delivery is None:
            return
        from cefito.line.events import Event

        if self.followed is not None:
            task = self.followed.task.name
            facts = {"seconds": self.followed.seconds, "task": task, **facts}
        self.delivery.put(Event.of(kind, {**self.facts, **facts}), wait=wait)

    def finish(self) -> None:
        """Take the end of the film; DataError if there was none."""
        if self.followed is None:
            raise DataError("no row was seen: the source is empty or the camera gave no picture.")
        if not self.ended:
            self.ended = True
            if self.over:
                self.session.finish()
            self.take(self._followed())
            if self.over and not self.as_json:
                self._sum_up(self.followed)

    def _sum_up(self, followed: Followed) -> None:
        """Print the steps and mistakes in all rows of a film that is over."""
        from cefito.inference.whole_videos import other_task

        steps = (f"{step.name} ({film_percent(step.probability)})" for step in followed.done)
        talk(f"           seen in the whole film: {', '.join(steps) or 'no step'}")
        findings = (
            f"{f.name}, {f.words} ({film_percent(f.probability)})" for f in followed.findings
        )
        none = f"no mistake of {percent(self.least)} or more"
        talk(f"           found in the whole film: {'; '.join(findings) or none}")
        other = other_task(followed.task.name, followed.task.probability)
        doubts = "; ".join(filter(None, (*(step.text for step in followed.unsure), other)))
        if doubts:
            talk(f"           the whole film leaves open: {doubts}")

    def leave(self, *, complete: bool, seconds: float) -> int:
        """End the delivery of events, after some seconds at most; return the exit code."""
        code = 0
        if self.delivery is not None:
            if self.followed is not None:
                self.tell("film.ended", wait=complete, complete=complete, **self.told.end())
            if remaining := self.delivery.close(seconds):
                kept = f"{counted(remaining, 'event')} still wait in {self.delivery.path}"
                talk(f"events: {kept}; the next call sends them first", urgent=True)
                code = UNDELIVERED
        if self.waits and self.gate is not None and self.gate.shown is not None:
            talk(f"'{self.gate.shown.name}' was not confirmed", urgent=True)
            code = UNCONFIRMED
        return code

    def _show(self, followed: Followed) -> None:
        """Print what goes on; of a gate, the step to be done instead of the next ones."""
        finished = followed.now is None and followed.ended >= _ENDED
        steps = self.session.plans_by_next(1)[0] if self.plan and not finished else None
        names = [] if steps is None else self.session.run.taxonomy.names(list(steps.actions))
        if self.as_json:
            value = followed.model_dump(mode="json") | {"over": self.over}
            if steps is not None:
                value["plan"] = {"actions": names, "probability": steps.probability}
            if self.gate is not None:
                value["gate"] = self.gate.to_dict()
            print_json(value, indent=None)
            return
        now = f"finished ({film_percent(followed.ended)})" if finished else "pause"
        if self.over:
            now = "the film is over"
        elif followed.now is not None:
            now = f"{followed.now.name} ({film_percent(followed.now.probability)})"
        head = f"{followed.seconds:7.1f} s  "
        if self.gate is None:
            ahead = ", ".join(
                f"{step.name} {film_percent(step.probability)}" for step in followed.next
            )
            coming = "" if finished or self.ended else f"; next: {ahead or 'no step is left'}"
            present = now if self.over else f"now: {now}"
            talk(f"{head}{present}; done: {len(followed.done)}{coming}")
        else:
            do, count = self._to_do(), len(self.gate.confirmed)
            talk(f"{head}do: {do}; seen: {now}; confirmed or skipped: {count}")
        if steps is not None and followed.next and not self.over:
            talk("           remaining: " + " → ".join(names))

    def _to_do(self) -> str:
        """Return the step that a gate shows, in words."""
        step = None if self.gate is None else self.gate.shown
        if step is None:
            return "nothing"
        if not step.waits:
            return f"{step.name} (critical)" if step.critical else step.name
        seen = "is critical" if step.critical else "came late"
        why = "was passed over" if step.passed_over else seen
        return f"{step.name}, which {why}: {self.hint}"


def _with_lines(rows: Rows, film: _Film, lines: Lines, *, live: bool) -> Rows:
    """Yield rows and, between them, lines of a person: of a camera as they come, else if asked for.

    On a terminal, an Enter that follows another one at once was not meant for the next step.
    """
    terminal = sys.stdin.isatty()

    def answers() -> Rows:
        while film.waits and not live and (line := lines.take(wait=True)) is not None:
            if terminal or line.strip():
                yield line

    for row in rows:
        written = [*iter(lambda: lines.take(wait=False), None)] if live else []
        for place, line in enumerate(written):
            if line.strip() or (terminal and not place):
                yield line
        yield row
        yield from answers()
    film.finish()
    yield from answers()


def _lines(rate: float, width: int, *, touches: bool) -> Rows:
    """Yield times and rows [D] of the standard input; bare rows come at a rate, the first at 0.

    With touches, a line may also confirm or skip a step, as a person's line says.

    Times of day, such as Unix times, count from the first row.
    """
    lines, rows, first, before = 0, 0, 0.0, 0.0
    try:
        for line in sys.stdin:
            if line.strip():
                value = json.loads(line)
                bare = {"at": rows / rate, "row": value}
                entry = value if isinstance(value, dict) else bare
                if touches and not {"confirm", "skip"}.isdisjoint(entry):
                    lines += 1
                    yield f"skip {entry['skip']}" if "skip" in entry else str(entry["confirm"])
                    continue
                at, row = as_seconds(entry["at"]), entry["row"]
                row = row if row is None else np.asarray(row, dtype=np.float32)
                if not (math.isfinite(at) and (row is None or row.shape == (width,))):
                    raise ValueError("not a time, or not numbers of this width")
                if not rows and at > _LATEST:
                    first = at
                if rows == 1 and at - first - before > _FARTHEST:
                    problem = f"is {at - first - before:g} s after the first row"
                    raise DataError(
                        f"line {lines + 1} of the input: {problem}. Give times in seconds."
                    )
                before, rows = at - first, rows + 1
                yield before, row
            lines += 1
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as problem:
        row = f"[{width} numbers]"
        expected = f'{row} or {{"at": seconds, "row": {row} or null}}'
        expected += ', {"confirm": NAME} or {"skip": NAME}' if touches else ""
        raise DataError(f"line {lines + 1} of the input: expected {expected}.") from problem


def _camera_rows(
    run: OpenedRun, camera: str, encoder: str | None, weights: Path | None
) -> Iterator[tuple[float, NDArray[Any]]]:
    """Yield the time and the vector of each second of a camera."""
    from cefito.encoders.frames import camera_clips
    from cefito.inference.observer import ObservationRecipe

    device = f"/dev/video{camera}" if camera.isdecimal() else camera
    encode = ObservationRecipe.of(run).open(encoder, weights=weights).encoder
    for at, clip in camera_clips(device, encode.sampling):
        yield at, encode.encode(clip[None].float() / 255)[0]
