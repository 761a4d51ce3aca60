"""Messages of the Model Context Protocol over stdin and stdout, one a line.

A line is bounded, and every request that arrived is answered before the end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse

from cefito.serve.settings import Limits

_TOO_LONG = "too long"  # stands for such a line; it is no message


async def serve_lines(server: Server[Any], limits: Limits) -> None:
    """Answer the messages on stdin until it ends and all are answered.

    Raises:
        OSError: Of stdout, in a group of exceptions.
    """
    unanswered = anyio.Semaphore(limits.queue)
    to_server, requests = anyio.create_memory_object_stream[SessionMessage | Exception]()
    to_client, answers = anyio.create_memory_object_stream[SessionMessage]()
    detail = f"expected a JSON-RPC message of at most {limits.body_bytes:,} bytes in one line."
    error = ErrorData(code=PARSE_ERROR, message=detail)
    refusal = SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error))

    async def settle() -> None:
        unanswered.release()

    async def read() -> None:
        async with to_server, incoming:
            async for item in incoming:
                if isinstance(item, Exception):
                    await outgoing.send(refusal)
                    continue
                if isinstance(item.message, JSONRPCRequest):
                    await unanswered.acquire()
                    cancelled = ServerMessageMetadata(on_request_unanswered=settle)
                    item = SessionMessage(item.message, cancelled)
                await to_server.send(item)
            for _ in range(limits.queue):  # the server drops requests once its stream ends
                await unanswered.acquire()

    async def write() -> None:
        async with outgoing, answers:
            async for answer in answers:
                await outgoing.send(answer)
                if isinstance(answer.message, JSONRPCResponse | JSONRPCError):
                    unanswered.release()

    lines = cast("anyio.AsyncFile[str]", _lines(limits.body_bytes))
    async with (
        stdio_server(lines) as (incoming, outgoing),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read)
        tasks.start_soon(write)
        await server.run(requests, to_client, server.create_initialization_options())


async def _lines(most: int) -> AsyncIterator[str]:
    """Read the lines of stdin of at most so many bytes, in a thread that nobody awaits."""
    found, lines = anyio.create_memory_object_stream[str]()
    token = current_token()

    def read() -> None:
        # a thread that reads from sys.stdin would hold its lock at the end of the process
        with suppress(OSError, anyio.BrokenResourceError), open(0, "rb", closefd=False) as source:
            while line := source.readline(most + 1):
                text = line.decode("utf-8", "replace") if len(line) <= most else _TOO_LONG
                while line and not line.endswith(b"\n"):
                    line = source.readline(most)
                if text.strip():
                    from_thread.run(found.send, text, token=token)
        from_thread.run(found.aclose, token=token)

    if sys.stdin is not None:  # otherwise another file has its descriptor
        threading.Thread(target=read, daemon=True).start()
        async with found, lines:
            async for text in lines:
                yield text
