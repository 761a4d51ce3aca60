"""A web server on this machine, in another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler], kind: type[ThreadingHTTPServer] = ThreadingHTTPServer
) -> Iterator[ThreadingHTTPServer]:
    """Answer requests while the context is open, without a log."""
    silent = type("Silent", (handler,), {"log_message": lambda *_: None})
    server = kind(("127.0.0.1", 0), silent)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def camera(pictures: Sequence[bytes]) -> Iterator[str]:
    """The address of a camera that sends JPEG pictures one after another."""

    class Camera(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "multipart/x-mixed-replace; boundary=next")
            self.end_headers()
            for picture in pictures:
                head = b"--next\r\ncontent-type: image/jpeg\r\ncontent-length: %d\r\n\r\n"
                self.wfile.write(head % len(picture) + picture + b"\r\n")

    with serving(Camera) as server:
        yield f"http://127.0.0.1:{server.server_port}/"
