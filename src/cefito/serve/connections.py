"""HTTP connections with limits of number and time.

A connection whose request has not arrived whole makes room for a new one, the oldest first; so
neither silent nor slow clients shut others out. So does a stream of events, whose client connects
again. A connection that waits for its answer stays.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from cefito.serve.problems import MEDIA_TYPE, ProblemError
from cefito.serve.settings import Limits

__all__ = ["Connection", "client_of"]


@lru_cache(4096)
def client_of(host: str) -> str:
    """The address of a client; of IPv6, the first 64 bits, since one client has all the others."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
    return str(address)


class Connection(H11Protocol):
    """A connection of uvicorn's, within `limits`."""

    def __init__(self, *given: Any, limits: Limits, **named: Any) -> None:
        super().__init__(*given, **named)
        self.limits = limits
        self.app = self._run
        self.address = ""
        self.since = 0.0  # time of its last answer, or else of its start
        self._task: asyncio.Task[None] | None = None  # of the request
        self._head: asyncio.TimerHandle | None = None  # ends the time for a request's headers
        self._stall: asyncio.TimerHandle | None = None  # ends the time for the client to read

    @property
    def waiting(self) -> bool:
        """Whether it waits for the headers of a request."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def sending(self) -> bool:
        """Whether the body of its request has not arrived whole."""
        return not self.waiting and self.cycle.more_body

    @property
    def streaming(self) -> bool:
        """Whether its answer goes on until somebody ends it."""
        return not self.waiting and bool(self.cycle.scope["state"].get("stream"))

    @property
    def can_end(self) -> bool:
        """Whether it makes room for a new connection."""
        return self.waiting or self.sending or self.streaming

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._task = asyncio.current_task()
        await self.config.loaded_app(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, or refuse it."""
        super().connection_made(transport)
        # asyncio does so only for sockets that name their protocol; otherwise answers wait 40 ms
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = client_of(self.client[0] if self.client else "")
        self.since = self.loop.time()
        self._head = self.loop.call_later(self.limits.receive_seconds, self._slow)
        for address, most in (
            (self.address, self.limits.client_connections),
            (None, self.limits.connections),
        ):
            if not self._make_room(address, most):
                detail = f"{most} connections wait for answers. Try again in a moment."
                self._refuse(ProblemError(detail, headers={"retry-after": "5"}, kind="busy"))
                return

    def _make_room(self, address: str | None, most: int) -> bool:
        """Whether there are at most so many connections, perhaps after another has ended."""
        connections = cast("set[Connection]", self.connections)
        group = [one for one in connections if address in (None, one.address)]
        if len(group) <= most:
            return True
        found = [one for one in group if one is not self and one.can_end]
        if found:
            min(found, key=lambda one: (one.sending, one.streaming, one.since)).drop()
        return bool(found)

    def data_received(self, data: bytes) -> None:
        """Limit the time until the headers are whole."""
        if self.waiting and self._head is None:
            self._head = self.loop.call_later(self.limits.receive_seconds, self._slow)
        super().data_received(data)
        if not self.waiting:
            self._end_timers()

    def on_response_complete(self) -> None:
        """Note the time, for the order in which connections make room."""
        self.since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all timers."""
        self._end_timers()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Limit the time for a client to read its answer."""
        super().pause_writing()
        self._stall = self.loop.call_later(self.limits.receive_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._end_timers()

    def shutdown(self) -> None:
        """Answer a request that has arrived whole, and end others."""
        super().shutdown()
        if self.sending or self.streaming:
            self.drop()

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP."""
        if not self.waiting:  # the application shall neither read nor answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refuse(ProblemError(f"{msg} Send HTTP/1.1.", kind="invalid", status=400))

    def drop(self) -> None:
        """End it; a request whose body is being sent is answered with 503."""
        self.connections.discard(self)
        if self.sending and self._task is not None:
            self._task.cancel()
        else:
            self.transport.close()

    def _end_timers(self) -> None:
        for timer in (self._head, self._stall):
            if timer is not None:
                timer.cancel()
        self._head = self._stall = None

    def _slow(self) -> None:
        self._head = None
        if self.conn.trailing_data[0]:
            seconds = self.limits.receive_seconds
            detail = f"the headers did not arrive within {seconds:g} seconds. Send them faster."
            self._refuse(ProblemError(detail, kind="slow"))
        else:
            self.transport.abort()

    def _refuse(self, problem: ProblemError) -> None:
        """Answer with a problem if no answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body, status = problem.encoded(), problem.status_code
            headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body))}
            headers |= {"connection": "close", **(problem.headers or {})}
            for event in (
                h11.Response(
                    status_code=status, headers=[*headers.items()], reason=HTTPStatus(status).phrase
                ),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.connections.discard(self)
        self.transport.close()
