"""HTTP connections of uvicorn, with the limit of time that it lacks."""

from __future__ import annotations

import asyncio
import ipaddress
from functools import lru_cache
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


@lru_cache(4096)
def client_of(host: str) -> str:
    """The address of a client; of IPv6, the first 64 bits, since one client has all the others."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and not address.ipv4_mapped:
        return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
    return str(getattr(address, "ipv4_mapped", None) or address)


class Connection(H11Protocol):
    """A connection that ends if the headers of a request, or reading, take more than `seconds`.

    uvicorn limits only the silence after an answer. Nor does its shutdown end requests whose body
    has not arrived, and streams, which would go on.
    """

    def __init__(self, *given: Any, seconds: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._seconds = seconds
        self._late: asyncio.TimerHandle | None = None

    @property
    def _waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time until the headers are whole."""
        super().connection_made(transport)
        self._late = self.loop.call_later(self._seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Limit the time again after an answer, and end it with the headers."""
        if self._waiting and self._late is None:
            self._late = self.loop.call_later(self._seconds, self.transport.abort)
        super().data_received(data)
        if not (self._waiting or self.flow.write_paused):
            self._end_timer()

    def pause_writing(self) -> None:
        """Limit the time for the client to read its answer."""
        super().pause_writing()
        self._late = self._late or self.loop.call_later(self._seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """End it, for the client reads."""
        super().resume_writing()
        self._end_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer."""
        self._end_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish a request that has arrived whole, and end others."""
        super().shutdown()
        if not self._waiting and (self.cycle.more_body or self.scope["state"].get("stream")):
            self.transport.close()

    def _end_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
