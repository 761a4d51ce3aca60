"""Live sessions of a service: kept in memory, changed by one request at a time, ended when idle.

A store keeps how each was opened, then a line for each event, which is written before the event is
answered. What others have written since, or what was written before a restart, is applied once a
client asks for the session. An event that is refused, or not answered in time, changes nothing.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import anyio.to_thread
import numpy as np
from fastapi import FastAPI, Path, Query
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import StreamingResponse

from cefito.errors import CefitoError, ConfigError, reason
from cefito.files import NOT_JSON
from cefito.inference.following import FINDING
from cefito.inference.outlook import check_sessions
from cefito.inference.query import observation_of_step
from cefito.inference.session import Session
from cefito.serve.logs import SESSION
from cefito.serve.models import Served, versions_of
from cefito.serve.problems import ProblemError
from cefito.serve.requests import find_video, of_field, read_numbers, read_row
from cefito.serve.schemas import (
    Brief,
    EventRequest,
    OpenRequest,
    PlaceRequest,
    RowRequest,
    RowsRequest,
    SavedSession,
    SessionAnswer,
    SessionRequest,
)
from cefito.serve.service import Service, Watch, release
from cefito.serve.stores import BehindError, GoneError, SessionStore, open_store

logger = logging.getLogger(__name__)

_UNREADABLE = (*NOT_JSON, CefitoError, ProblemError)
_LOOK = 1.0  # seconds between looks of a stream into a store that other services write to
_MINUTE = 60.0  # seconds between lines of the log on a store that cannot be used
RELEASED = 5.0
"""Seconds in which all that used an ended session has let it go."""
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PICTURE: dict[str, Any] = {"requestBody": {"required": True, "content": {"image/jpeg": _BINARY}}}
MANY = 30
"""Rows, seen or lost, from which on a request leaves a worker to others."""
LISTED = 5
"""Number of tasks, next steps and plans in a state unless a request asks for another."""

At = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False, description="Time in seconds.")]
SessionId = Annotated[str, Path(max_length=100, description="Of an open session.")]


@dataclass(eq=False)
class LiveSession:
    """An open session: `session` and `number` change in its calls, the rest in the event loop."""

    served: Served
    client: str
    used: float  # time of its last request
    id: str = field(default_factory=lambda: _new_id())
    session: Session | None = None  # None until it is made, and until its lines are read
    store: SessionStore | None = None  # of its lines, if they are kept
    place: int = 0  # up to which they were read
    goal: bool = False
    least: float = FINDING  # probability from which what was wrong is told
    number: int = 0  # of events, undo included
    shown: tuple[int, str] = (-1, "")  # number and JSON of its latest state with plans
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # a new one after each change
    streams: int = 0  # that are open; a session with one is in use
    timer: asyncio.TimerHandle | None = None
    ended: str = ""  # the reason, once it has

    def show(self, state: SessionAnswer) -> None:
        """Give its streams a state, unless they have seen a later one."""
        if state.number > self.shown[0]:
            self.shown = state.number, state.model_dump_json()
        self.wake()

    def wake(self) -> None:
        """Let its streams go on."""
        self.changed.set()
        self.changed = asyncio.Event()


class Sessions:
    """The open sessions of a service."""

    def __init__(self, service: Service) -> None:
        self.service, self._limits, self._metrics = service, service.limits, service.metrics
        self._open: dict[str, LiveSession] = {}
        self._metrics.sessions.set_function(lambda: len(self._open))
        self._metrics.older.set_function(self._count_older)
        self._store = open_store(service.settings)

    def resume(self) -> None:
        """Find the sessions of the service before this one; their events are not read yet."""
        for id in self._store.left() if self._store is not None else ():
            if self._owns(id):
                try:
                    self._add(self._kept(id))
                except OSError as problem:
                    _cannot_go_on(id, problem)
                except GoneError:
                    pass

    def _kept(self, id: str) -> LiveSession:
        """A session that the store keeps (GoneError, OSError); it blocks."""
        assert self._store is not None
        try:
            line, _ = next(self._store.read(id, 0), (b"", 0))
            saved = SavedSession.model_validate_json(line)
            served = self.service.version(saved)
            if saved.digest not in ("", served.digest):
                gone, now = f"'{saved.run}', digest {saved.digest[:12]}", versions_of([served])
                logger.warning("%s: its run %s, is gone; it follows %s", id, gone, now)
            if saved.fingerprint != served.run.info.dataset.fingerprint:
                raise ValueError(f"{served.title} is of another data set")
        except _UNREADABLE as problem:
            _cannot_go_on(id, problem)
            raise GoneError from problem
        return LiveSession(served, saved.client, 0.0, id, store=self._store)

    def _add(self, live: LiveSession) -> LiveSession:
        """Keep a session in memory, unless it is there."""
        if self._open.setdefault(live.id, live) is live:
            live.used = _now()
            self._watch(live)
        return self._open[live.id]

    def add_to(self, app: FastAPI) -> None:
        """Add the routes of sessions to an application."""
        add, session = partial(app.add_api_route, tags=["sessions"]), "/v1/sessions/{id}"
        add("/v1/sessions", self.open, methods=["POST"], status_code=201)
        add(session, self.state)
        add(session, self.close, methods=["DELETE"], status_code=204)
        add(f"{session}/events", self.change, methods=["POST"])
        add(f"{session}/rows", self.rows, methods=["POST"])
        add(f"{session}/pictures", self.picture, methods=["POST"], openapi_extra=_PICTURE)
        events = {"description": "Server-sent events.", "content": {"text/event-stream": {}}}
        add(
            f"{session}/events",
            self.follow,
            response_class=StreamingResponse,
            responses={200: events},
        )

    async def open(self, request: Request, body: OpenRequest) -> SessionAnswer:
        """Open a session, which follows a procedure from its begin."""
        served = self.service.models.find(body.run, body.horizon)
        check_sessions(served.run)
        live = LiveSession(served, request.state.client, _now())
        while not self._owns(live.id):
            live.id = _new_id()
        self._check_room(live.client)
        self._open[live.id] = live
        try:
            words = await self.service.observed_text(served, body.goal_text)
            if words is not None:
                body = body.model_copy(update={"goal": words.tolist(), "goal_text": None})

            def begin(_: Watch) -> SessionAnswer:
                live.session = _begun(live, body)
                answer = _state(live, live.session)
                if self._store is not None:
                    saved = SavedSession(
                        run=served.name,
                        horizon=served.run.horizon,
                        fingerprint=served.run.info.dataset.fingerprint,
                        digest=served.digest,
                        place=str(served.place),
                        client=live.client,
                        open=body,
                    )
                    live.store = self._store
                    _keep(live, saved.model_dump_json(exclude_unset=True))
                return answer

            answer = await self.service.call(request, served, begin, alone=live.id)
        except BaseException:
            self._end(live, "it was not answered.")
            raise
        self._watch(live)
        return answer

    async def find(self, request: Request, id: str) -> LiveSession:
        """The session of an id that the station of a request reaches; it is in use from now."""
        live, station = self._open.get(id), getattr(request.state, "station", None)
        if live is not None and live.ended:
            self._end(live, live.ended)
            raise _gone()
        if live is None and not self._owns(id):
            detail = "another process has the session. Send the request on a connection of its own."
            raise ProblemError(detail, headers={"connection": "close"}, kind="not-ready")
        if live is None and self._store is not None and self._store.shared:
            try:
                live = self._add(await anyio.to_thread.run_sync(self._kept, id))
            except GoneError as problem:
                raise _gone() from problem
            except OSError as problem:
                raise _unreachable(self._store, problem) from problem
        if live is None or not (live.session or live.store):
            raise _gone()
        if station is not None and not station.reaches(live.client):
            raise _gone()
        live.used = _now()
        return live

    def _owns(self, id: str) -> bool:
        """Whether a session is of this process."""
        return self.service.peers is None or self.service.peers.owns(id)

    async def close(self, request: Request, id: SessionId) -> None:
        """End a session."""
        live = await self.find(request, id)
        if live.store is not None and live.store.shared:
            with _kept_at(live):
                await anyio.to_thread.run_sync(live.store.delete, id)
        self._end(live, "the session was closed.")

    async def state(
        self,
        request: Request,
        id: SessionId,
        top_k: Annotated[
            int, Query(ge=1, description="Number of tasks, next steps and plans.")
        ] = LISTED,
        steps: Annotated[
            int | None, Query(ge=1, le=9999, description="Length of the plans; any without it.")
        ] = None,
    ) -> SessionAnswer:
        """The present state of a session, with its best plans."""
        if top_k > (most := self._limits.top_k):
            detail = f"top_k {top_k}: at most {most} plans are returned. Ask for fewer."
            raise ProblemError(detail, "top_k", limit=most)
        live = await self.find(request, id)

        def state(watch: Watch) -> SessionAnswer:
            return _state(live, _restored(live, watch), top_k, steps)

        return await self.service.call(request, live.served, state, alone=live.id)

    async def change(self, request: Request, id: SessionId, event: EventRequest) -> SessionAnswer:
        """Add an observation or a step done, or undo the last of them; the state afterwards."""
        live, most = await self.find(request, id), self._limits.session_events
        loop = asyncio.get_running_loop()

        def change(watch: Watch) -> SessionAnswer:
            before = _restored(live, watch)
            if before.events >= most and not event.undo:
                detail = f"the session has {most} events, the most. Undo some, or open another."
                raise ProblemError(detail, limit=most)
            session, whole = before.copy(), not event.brief or live.streams > 0
            if not apply_event(live.served, event, session, watch):
                answer = _state(live, before, plans=not event.brief)
                late = f"ignored: no row is later than the last, at {before.seconds:.10g} s"
                return answer.model_copy(update={"notes": [*answer.notes, late]})
            answer = _state(live, session, plans=whole)
            answer = answer.model_copy(update={"number": live.number + 1})
            watch()
            line = event.model_dump_json(exclude_unset=True, exclude={"id", "brief"})
            try:
                _keep(live, line)
            except BehindError:  # of another service, which was first
                return change(watch)
            live.session, live.number = session, answer.number
            if whole:
                loop.call_soon_threadsafe(live.show, answer)
            return answer.model_copy(update=_left_out()) if event.brief else answer

        large = live.session is None or _rows_between(live.session, event) > MANY
        work = live.served, change
        return await self.service.call(request, *work, alone=live.id, expensive=large)

    async def rows(self, request: Request, id: SessionId, body: RowsRequest) -> SessionAnswer:
        """Add rows of a video, whose steps need no boundaries; the state afterwards."""
        return await self.change(request, id, EventRequest(rows=body.rows, brief=body.brief))

    async def picture(
        self, request: Request, id: SessionId, at: At, brief: Brief = False
    ) -> SessionAnswer:
        """Add a picture of a camera or a video as the row of its second; the state afterwards."""
        served = (await self.find(request, id)).served
        row = await self.service.observed_picture(served, await request.body())
        rows = [RowRequest(at=at, row=row.tolist())]
        return await self.change(request, id, EventRequest(rows=rows, brief=brief))

    async def follow(self, id: SessionId, request: Request) -> StreamingResponse:
        """Follow a session: an event `state` with its state now and after each event, then `end`.

        A comment comes when there is nothing to say for long.
        """
        states = self._stream(request, await self.find(request, id))
        await anext(states)  # from here on it is open
        request.state.stream = True
        headers = {"x-accel-buffering": "no"}  # nginx passes each event on at once
        return StreamingResponse(states, media_type="text/event-stream", headers=headers)

    async def _stream(self, request: Request, live: LiveSession) -> AsyncIterator[str]:
        last = -1
        live.streams += 1
        try:
            shared = live.store is not None and live.store.shared
            if shared or live.shown[0] != live.number:  # nobody has seen its state
                await self._look(request, live)
            yield ""
            seconds = _LOOK if shared else self._limits.heartbeat_seconds
            while True:
                changed, (number, state_json) = live.changed, live.shown
                state = request.state
                removed = not state.access.admits(state.station) and "the token was removed."
                if number != last and not removed:
                    yield f"id: {number}\nevent: state\ndata: {state_json}\n\n"
                    last = number
                if detail := live.ended or removed:
                    yield f"event: end\ndata: {json.dumps({'detail': detail})}\n\n"
                    return
                try:
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                except TimeoutError:
                    if shared:
                        with suppress(ProblemError):  # it has ended, or nothing can be seen now
                            await self._look(request, live)
                    yield ": alive\n\n"
        finally:
            live.streams -= 1
            live.used = _now()

    async def _look(self, request: Request, live: LiveSession) -> None:
        """Show the streams of a session its state, unless they have seen it."""

        def state(watch: Watch) -> SessionAnswer | None:
            session = _restored(live, watch)
            return None if live.shown[0] == live.number else _state(live, session)

        answer = await self.service.call(request, live.served, state, alone=live.id)
        if answer is not None:
            live.show(answer)

    def _check_room(self, client: str) -> None:
        """Refuse a further session of a client if there are too many."""
        mine = [live for live in self._open.values() if live.client == client]
        for sessions, most, whose in (
            (mine, self._limits.client_sessions, "of this client "),
            ([*self._open.values()], self._limits.sessions, ""),
        ):
            if len(sessions) >= most:
                oldest = min(live.used for live in sessions)
                left = math.ceil(oldest + self._limits.session_seconds - _now())
                detail = f"{len(sessions)} sessions {whose}are open, the most. Close one, or wait."
                after = {"retry-after": str(min(max(1, left), 60))}  # one may be closed sooner
                raise ProblemError(detail, headers=after, limit=most, kind="busy")

    def _count_older(self) -> int:
        """Number of sessions whose run another has replaced since."""
        present = {served.digest for served in self.service.models.runs}
        return sum(live.served.digest not in present for live in [*self._open.values()])

    def _watch(self, live: LiveSession) -> None:
        """End a session once it is idle."""
        if live.streams:
            live.used = _now()
        left = live.used + self._limits.session_seconds - _now()
        if left > 0:
            live.timer = asyncio.get_running_loop().call_later(left, self._watch, live)
        else:
            if live.store is None or not live.store.shared:
                self._metrics.expired.inc()
            self._end(live, "the session has expired; nobody used it for too long.")

    def _end(self, live: LiveSession, reason: str) -> None:
        """Forget a session; so does its store, if no other service uses it."""
        if self._open.pop(live.id, None) is None:
            return
        if live.timer is not None:
            live.timer.cancel()
        live.ended = reason
        used = (*self.service.models.runs, *(other.served for other in self._open.values()))
        if not any(live.served is served for served in used):  # the last of a replaced version
            loop = asyncio.get_running_loop()
            loop.call_later(RELEASED, loop.run_in_executor, None, release)
        if live.store is not None and not live.store.shared:
            live.store.delete(live.id)
        live.wake()


def _new_id() -> str:
    return SESSION + secrets.token_urlsafe(16)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _gone() -> ProblemError:
    detail = "no such session is open; it may have expired. POST /v1/sessions opens one."
    return ProblemError(detail, kind="not-found")


def _left_out() -> dict[str, Any]:
    """Fields of a brief state, which are empty."""
    nothing: dict[str, Any] = {"tasks": [], "done": [], "unseen": [], "remaining": {}, "plans": []}
    return nothing | {"finished": 0.0}


def _state(
    live: LiveSession,
    session: Session,
    top_k: int = LISTED,
    steps: int | None = None,
    *,
    plans: bool = True,
) -> SessionAnswer:
    """The state of a session, a brief one without `plans`; in a worker thread."""
    planned = _left_out()
    if plans:
        belief = session.belief()
        planned = {**dict(belief), "tasks": belief.tasks[:top_k]}
        planned["plans"] = session.plans_by_next(top_k, steps)
    return SessionAnswer(
        **planned,
        id=live.id,
        run=live.served.name,
        horizon=live.served.run.horizon,
        digest=live.served.digest,
        number=live.number,
        events=session.events,
        goal=live.goal,
        followed=session.followed(top_k, least=live.least) if session.follows_rows else None,
        next_steps=session.likely_next(top_k),
        notes=list(session.notes),
    )


def _rows_between(session: Session, event: EventRequest) -> float:
    """Number of rows of an event, and of those that are lost before them."""
    if event.rows is None:
        return 0
    seconds = max(row.at for row in event.rows) - session.seconds
    return max(len(event.rows), seconds * session.run.own_recogniser.rate)


@contextmanager
def _kept_at(live: LiveSession) -> Iterator[None]:
    """Turn errors of the store of a session into problems, unless it is only behind."""
    try:
        yield
    except GoneError as problem:
        live.ended = live.ended or "the session was closed, or has expired."
        raise _gone() from problem
    except OSError as problem:
        raise _unreachable(live.store, problem) from problem


def _keep(live: LiveSession, line: str) -> None:
    """Add a line to the store of a session, if it has one; the log is told once it can again."""
    if live.store is None:
        return
    with _kept_at(live):
        live.place = live.store.append(live.id, live.place, line)
    if live.store.away:
        live.store.away = False
        logger.warning("%s: sessions can be kept again", live.store.name)


def _cannot_go_on(id: str, problem: Exception) -> None:
    logger.warning("%s: the session cannot go on (%s)", id, reason(problem))


def _unreachable(store: SessionStore | None, problem: OSError) -> ProblemError:
    """Return what a client is told of a store that cannot be used; so is the log, each minute."""
    if store is not None and (now := time.monotonic()) - store.told >= _MINUTE:
        store.told, store.away = now, True
        logger.warning("%s: sessions cannot be kept now (%s)", store.name, problem)
    detail = "what is kept of sessions cannot be used now. Send the request again later."
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        full = "the disk of the service is full, so that nothing was kept or changed"
        detail = f"{full}. Ask who runs the service to free some space, then send it again."
    return ProblemError(detail, headers={"retry-after": "10"}, kind="not-ready")


def _restored(live: LiveSession, watch: Watch) -> Session:
    """Return the session with all that its store has of it; in a worker thread.

    If its request ends before all events are applied, the next one goes on from there.
    """
    if live.ended:
        raise _gone()
    if live.store is not None:
        with _kept_at(live):
            try:
                _apply_kept(live, live.store, watch)
            except BehindError:
                logger.warning("%s: the store has lost events; it goes on without them", live.id)
                live.session, live.number, live.place, live.shown = None, 0, 0, (-1, "")
                return _restored(live, watch)
            except _UNREADABLE as problem:
                _cannot_go_on(live.id, problem)
                detail = "what was kept of the session cannot be read. End it, and open another."
                raise ProblemError(detail, kind="not-found") from problem
    assert live.session is not None
    return live.session


def _apply_kept(live: LiveSession, store: SessionStore, watch: Watch) -> None:
    """Apply the lines that were kept since the session was last used here."""
    for line, place in store.read(live.id, live.place):
        if live.session is None:
            live.session = _begun(live, SavedSession.model_validate_json(line).open)
        else:
            event = EventRequest.model_validate_json(line)
            live.number += apply_event(live.served, event, live.session)
        live.place = place
        watch()


def _begun(live: LiveSession, body: OpenRequest) -> Session:
    """A session at its begin."""
    run, goal = live.served.run, session_goal(live.served, body)
    live.goal = goal is not None
    if body.false_alarms is not None:
        live.least = run.own_verifier.promise(body.false_alarms, online=True).least
    with of_field("goal"):
        return Session(run, goal=goal, task=body.task, done=body.done)


def session_goal(served: Served, body: SessionRequest) -> NDArray[np.floating[Any]] | None:
    """The goal [E] that a request holds; None without one."""
    if body.goal is not None:
        return read_numbers(body.goal, "goal")
    if body.goal_video is not None:
        return _observation(served, body.goal_video, "goal_video", "end")
    return None


def apply_event(
    served: Served, event: EventRequest, session: Session, watch: Watch = lambda: None
) -> bool:
    """Change a session by an event; whether anything was new.

    Args:
        served: Run with its data sets.
        event: Observation, step done, end of a film, or undoing.
        session: Session to change.
        watch: Called now and then; it raises if the request has ended.
    """
    if event.undo:
        session.undo()
    elif event.done is not None:
        session.done(event.done)
    elif event.over:
        session.finish()
    elif event.rows is not None:
        new, width = False, served.run.own_recogniser.width
        rows = [
            (sent.at, None if sent.row is None else read_row(sent.row, f"rows.{place}.row", width))
            for place, sent in enumerate(event.rows)
        ]
        for at, row in rows:
            watch()
            new |= session.observe(row, at=at)
        return new
    elif event.video is not None:
        session.observe(_observation(served, event.video, "video", "start"))
    elif event.observation is not None:
        with of_field("observation"):
            session.observe(read_numbers(event.observation, "observation"))
    return True


def _observation(
    served: Served, place: PlaceRequest, field: str, moment: Literal["start", "end"]
) -> NDArray[np.float32]:
    """The observation [E] at a step of a video."""
    match = find_video(served, place, field)
    try:
        return observation_of_step(match.dataset, place.id, place.step, moment)
    except ConfigError as problem:
        raise ProblemError(str(problem), f"{field}.step") from problem
