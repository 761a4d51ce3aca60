"""Uploaded pictures and videos into observations, in a process of their own.

Whoever decodes what strangers send may be brought to crash, hang or swallow memory by it. So that
is done by a process that holds nothing but the encoder: where it ends or takes too long, the upload
is refused and another process takes its place. What is uploaded lies in a temporary folder under
names of ours and is removed with it; only formats whose first bytes are known are decoded at all,
none of which can name other files.
"""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any

import numpy as np

from cefito.errors import CefitoError, DataError
from cefito.executors.base import Done
from cefito.executors.worker import work
from cefito.inference.observer import Observer, Recipe
from cefito.planners.queries import Queries
from cefito.serve.problems import ProblemError

__all__ = ["Decoder", "EncodingProcess", "PicturePair", "Span", "as_queries", "kept"]

_START_SECONDS = 180.0  # for a process to load torch and the encoder's packages
_HEAD = 16
_NOT_STARTED = ProblemError(
    503,
    "not-ready",
    "the encoder could not be started. Try again later.",
    headers={"retry-after": "30"},
)
_PICTURES = "JPEG, PNG, WebP or BMP"
_VIDEOS = "MP4, MOV, MKV, WebM or AVI"


@dataclass(frozen=True)
class PicturePair:
    """Two pictures.

    Attributes:
        initial: File of the scene before the first step.
        goal: File of the scene after the last step.
    """

    initial: Path
    goal: Path


@dataclass(frozen=True)
class Span:
    """Two moments of a video.

    Attributes:
        video: The file.
        start: Second at which the first step begins.
        end: Second at which the last step ends.
    """

    video: Path
    start: float
    end: float


@dataclass
class Decoder:
    """What the process does; its encoders stay open from one upload to the next.

    Attributes:
        recipes: How observations are made, for each run by its key.
        encoder: Name of the encoder; None for that of each run's features.
        weights: File of the weights of the encoder s3d.
        pixels: Most pixels of a picture.
    """

    recipes: Mapping[str, Recipe]
    encoder: str | None
    weights: Path | None
    pixels: int
    opened: dict[str, Observer] = field(default_factory=dict)

    def __call__(self, asked: tuple[str, PicturePair | Span] | None) -> Queries | str:
        """The observations of an upload for a run, or why there are none.

        Asked for nothing, it opens the encoders.
        """
        if asked is None:
            for key in self.recipes:
                self._open(key)
            return ""
        key, upload = asked
        try:
            self._open(key)
            if isinstance(upload, PicturePair):
                self._bound_pictures()
                return self.opened[key].of_pictures(upload.initial, upload.goal)
            self._check_frames(upload.video)
            return self.opened[key].of_video(upload.video, upload.start, upload.end)
        except CefitoError as problem:
            return str(problem)
        except MemoryError:
            return "the upload takes more memory to decode than there is. Send a smaller one."

    def _open(self, key: str) -> None:
        if key not in self.opened:
            self.opened[key] = self.recipes[key].open(self.encoder, weights=self.weights)

    def _bound_pictures(self) -> None:
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = self.pixels  # which `load_image` takes for an error

    def _check_frames(self, video: Path) -> None:
        import av
        from av.error import FFmpegError

        try:
            with av.open(str(video.absolute()), metadata_errors="replace") as container:
                sizes = [stream.width * stream.height for stream in container.streams.video]
        except FFmpegError as problem:
            raise DataError(
                f"{video}: cannot be opened as a video ({problem.strerror}). Send another file."
            ) from problem
        if sizes and max(sizes) > self.pixels:
            raise DataError(
                f"{video}: has pictures of {max(sizes) / 1e6:.1f} megapixels; at most "
                f"{self.pixels / 1e6:g} are taken. Scale it down."
            )


class EncodingProcess:
    """The process that encodes, one upload at a time.

    Args:
        function: What it does; pickled. It is called with None first, to load what it needs.
        threads: Threads that it computes with.
        seconds: Most seconds for one upload.
    """

    def __init__(self, function: Any, *, threads: int, seconds: float) -> None:
        self._function = bytes(ForkingPickler.dumps(function))
        self._threads, self._seconds = threads, seconds
        # One thread that lives as long as the process: the kernel ends the process with the thread
        # that has started it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="uploads")
        self._process: SpawnProcess | None = None
        self._connection: Connection[Any, Any] | None = None

    def __call__(self, asked: Any) -> Any:
        """What the function gives.

        Raises:
            ProblemError: It took too long, or its process ended.
        """
        return self._thread.submit(self._asked, asked).result()

    def start(self) -> Future[Any]:
        """Start the process before it is needed; what comes of it is told later."""
        return self._thread.submit(self._running)

    def close(self) -> None:
        """End the process, whatever it is at."""
        process = self._process
        if process is not None:
            process.kill()
        self._thread.submit(self._end)
        self._thread.shutdown()

    def _asked(self, asked: Any) -> Any:
        connection = self._running()
        try:
            connection.send_bytes(ForkingPickler.dumps(asked))
            if not connection.poll(self._seconds):
                raise ProblemError(
                    422,
                    "upload",
                    f"the upload could not be encoded within {self._seconds:g} seconds. Send a "
                    "smaller one, or a shorter span.",
                )
            outcome = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as problem:
            self._end()
            raise ProblemError(
                422,
                "upload",
                "the upload brought the decoder to its end; it is damaged. Convert it and send it "
                "again.",
            ) from problem
        except ProblemError:
            self._end()
            raise
        if isinstance(outcome, Done):
            return outcome.value
        raise RuntimeError(f"encoding an upload: {outcome.error}\n{outcome.traceback}")

    def _running(self) -> Connection[Any, Any]:
        """The pipe of the process, which is started where there is none."""
        if self._connection is not None and self._process is not None and self._process.is_alive():
            return self._connection
        self._end()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, self._threads), daemon=True)
        self._process.start()
        theirs.close()
        self._connection = ours
        try:
            self._received(ours)  # that it is there
            ours.send_bytes(self._function)
            ours.send_bytes(ForkingPickler.dumps(None))
            outcome = pickle.loads(self._received(ours))
        except (EOFError, OSError, TimeoutError) as problem:
            self._end()
            raise _NOT_STARTED from problem
        if not isinstance(outcome, Done):
            self._end()
            raise RuntimeError(f"starting the encoder: {outcome.error}\n{outcome.traceback}")
        return ours

    @staticmethod
    def _received(connection: Connection[Any, Any]) -> bytes:
        if not connection.poll(_START_SECONDS):
            raise TimeoutError
        return connection.recv_bytes()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._connection = self._process = None


@contextmanager
def kept(files: Mapping[str, IO[bytes]]) -> Iterator[dict[str, Path]]:
    """The uploaded files in a folder that is removed at the end, by names of ours.

    Args:
        files: What was uploaded: "initial" and "goal", which are pictures, or "video".

    Raises:
        ProblemError: A file of another format than those that are decoded.
    """
    with tempfile.TemporaryDirectory(prefix="cefito-") as folder:
        paths = {}
        for name, file in files.items():
            file.seek(0)
            head = file.read(_HEAD)
            fits, formats = (
                (_is_video(head), _VIDEOS) if name == "video" else (_is_picture(head), _PICTURES)
            )
            if not fits:
                what = "empty" if not head else "of another format"
                raise ProblemError(
                    422, "upload", f"'{name}' is {what}; expected {formats}.", field=name
                )
            paths[name] = Path(folder) / name
            file.seek(0)
            with paths[name].open("wb") as target:
                shutil.copyfileobj(file, target, 1 << 20)
        yield paths


def _is_picture(head: bytes) -> bool:
    return (
        head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM"))
        or (head.startswith(b"RIFF") and head[8:12] == b"WEBP")
    )  # fmt: skip


def _is_video(head: bytes) -> bool:
    return (
        head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
        or head.startswith(b"\x1aE\xdf\xa3")
        or (head.startswith(b"RIFF") and head[8:11] == b"AVI")
    )


def as_queries(found: Queries | str, paths: Mapping[str, Path]) -> Queries:
    """What the process gave, checked.

    Raises:
        ProblemError: It gave a reason instead.
    """
    if isinstance(found, Queries):
        return Queries(initial=np.asarray(found.initial), goal=np.asarray(found.goal))
    for name, path in paths.items():
        found = found.replace(str(path), f"'{name}'")
    raise ProblemError(422, "upload", found)
