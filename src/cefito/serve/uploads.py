"""Uploaded pictures and videos, encoded in a process of their own, as decoders may crash or hang.

Only formats known by their first bytes are decoded; none of them can refer to other files. What the
process answers is read as JSON, so that one that was taken over cannot go further.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.errors import CefitoError, DataError, explained, is_out_of_memory
from cefito.executors.base import attempt
from cefito.executors.processes import CalledFunction, WorkerProcess
from cefito.inference.observer import ObservationRecipe, Observer
from cefito.planners.queries import Queries
from cefito.serve.problems import ProblemError

logger = logging.getLogger(__name__)

_START_SECONDS = 180.0  # for a process to load torch and the encoder
_ANSWER = 1 << 24  # most bytes that the process answers with
_HEAD = 16  # bytes that tell formats apart
_PICTURE = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|BM|RIFF.{4}WEBP", re.DOTALL)
_FEATURES = re.compile(rb"\x93NUMPY")
_VIDEO = re.compile(rb".{4}(ftyp|moov|mdat|wide|free|skip)|\x1aE\xdf\xa3|RIFF.{4}AVI", re.DOTALL)
_FORMATS = {
    "video": (_VIDEO, "MP4, MOV, MKV, WebM or AVI"),
    "features": (_FEATURES, "an array of NumPy (.npy)"),
}
Encoded = Queries | NDArray[np.float32]
"""Observations of an upload, or the rows [n, D] of a whole video."""


@dataclass(frozen=True)
class Upload:
    """What is to be encoded: pictures, one as a row, a video or moments of it, a goal in words."""

    recipe: ObservationRecipe  # of the run
    paths: Mapping[str, Path]  # files by their names in the form
    start: float | None = None  # seconds of a video
    end: float | None = None
    text: str | None = None
    whole: bool = False  # whether all of a video is


@dataclass
class Decoder:
    """The function of the encoding process; it keeps its encoders open between uploads."""

    recipes: Mapping[str, ObservationRecipe]  # whose encoders are loaded at the start, by name
    encoder: str | None  # None for the encoder of each run's features
    weights: Path | None
    pixels: int  # maximum of a picture
    memory: int  # bytes that an upload may take, beside the encoders
    texts: frozenset[str] = frozenset()  # names of those that take goals in words
    opened: dict[str, Observer] = field(default_factory=dict)  # by the digests of recipes

    def __call__(self, upload: Upload | None) -> Encoded | str:
        """Return an upload's observations, or why it has none; None prepares for uploads."""
        try:
            if upload is None:
                self._start()
                return ""
            return self._observe(upload)
        except Exception as problem:
            if is_out_of_memory(problem):
                return "the upload takes too much memory to encode. Send a smaller one."
            if isinstance(problem, CefitoError):
                return str(problem)
            raise

    def _start(self) -> None:
        """Load all encoders and their weights, then limit the memory of what comes."""
        try:
            for name, recipe in self.recipes.items():
                encoder = self._open(recipe).encoder
                side = encoder.sampling.size or 64
                encoder.encode(torch.zeros(1, 3, encoder.sampling.frames, side, side))
                if name in self.texts:
                    self._open(recipe).of_text("a goal")
        finally:
            limit_memory(self.memory)

    def _observe(self, upload: Upload) -> Encoded:
        observer, paths = self._open(upload.recipe), upload.paths
        if upload.text is not None:
            goal = observer.of_text(upload.text)
            return Queries.partial(size=len(goal), goal=goal)
        if "video" not in paths:
            from PIL import Image

            Image.MAX_IMAGE_PIXELS = self.pixels  # `load_image` refuses larger ones
            if "picture" in paths:
                row = observer.of_picture(paths["picture"])
                return Queries.partial(size=len(row), initial=row)
            return observer.of_pictures(paths.get("initial"), paths.get("goal"))
        self._check_video(paths["video"])
        if upload.whole:
            rows = observer.rows(paths["video"])
            if rows.nbytes > _ANSWER // 2:
                raise DataError(f"{paths['video']}: is too long. Send it in parts.")
            return rows
        return observer.of_video(paths["video"], upload.start, upload.end)

    def _open(self, recipe: ObservationRecipe) -> Observer:
        """Open the encoder of a recipe, or take that of another which has the same."""
        if (digest := recipe.digest) not in self.opened:
            others = [of for of in self.opened.values() if of.recipe.made_with == recipe.made_with]
            opened = [replace(other, recipe=recipe) for other in others[:1]]
            opened = opened or [recipe.open(self.encoder, weights=self.weights)]
            self.opened[digest] = opened[0]
        return self.opened[digest]

    def _check_video(self, video: Path) -> None:
        import av
        from av.error import FFmpegError

        remedy = "Send another file."
        with (
            explained(video, "cannot be opened as a video", remedy, FFmpegError),
            av.open(str(video.absolute()), metadata_errors="replace") as container,
        ):
            sizes = [stream.width * stream.height for stream in container.streams.video]
        if sizes and max(sizes) > self.pixels:
            excess = f"{max(sizes) / 1e6:.1f} megapixels, more than {self.pixels / 1e6:g}"
            raise DataError(f"{video}: has pictures of {excess}. Scale it down.")


def limit_memory(more: int) -> None:
    """Let this process's address space grow by at most `more` bytes (Linux)."""
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


class EncodingProcess:
    """The process that encodes, one upload at a time, in at most `seconds`, and as many to wait.

    The function is pickled; it is called with each upload, and with None at the start.

    Args:
        function: Encodes an upload.
        threads: Number of threads of the process.
        seconds: Time limit of an upload.
    """

    def __init__(self, function: Any, *, threads: int, seconds: float) -> None:
        self._function = bytes(ForkingPickler.dumps(function))
        self._threads, self._seconds = threads, seconds
        # One thread that lives as long as the process, since Linux ends the process with the thread
        # that started it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="uploads")
        self._worker: WorkerProcess | None = None
        self.loading = False  # whether the process starts and loads its encoders
        self._closed = self._retired = False

    def __call__(self, upload: Any, paths: Mapping[str, Path]) -> Encoded:
        """Encode an upload with these files."""
        until = time.monotonic() + self._seconds

        def encoded() -> Encoded | str:
            if time.monotonic() >= until:
                detail = "too many uploads came before. Try again in a moment."
                raise ProblemError(detail, headers={"retry-after": "5"}, kind="busy")
            return self._encode(upload)

        future = self._thread.submit(encoded)
        if self._retired:  # by the time it came here
            self.retire()
        outcome = future.result()
        if isinstance(outcome, str):  # the reason
            for name, path in paths.items():
                outcome = outcome.replace(str(path), f"'{name}'")
            raise ProblemError(outcome, kind="upload")
        return outcome

    def start(self) -> Future[Any]:
        """Start the process before it is needed."""
        self.loading = True
        started = self._thread.submit(self._running)
        started.add_done_callback(self._warn)
        return started

    def _warn(self, started: Future[Any]) -> None:
        """Log why the process did not start, unless it was closed."""
        if not (self._closed or started.cancelled()) and (problem := started.exception()):
            defect = None if isinstance(problem, CefitoError) else problem
            logger.warning("the encoder of uploads: %s", problem, exc_info=defect)

    def retire(self) -> None:
        """End the process after the uploads that wait, since another one takes those to come."""
        self._retired = True
        self._thread.submit(self._end)

    def close(self) -> None:
        """Kill the process."""
        self._closed = True
        if self._worker is not None:
            self._worker.process.kill()
        self._thread.submit(self._end)
        self._thread.shutdown()

    def _encode(self, upload: Any) -> Encoded | str:
        worker = self._running()
        try:
            outcome: Encoded | str = self._ask(worker, upload, self._seconds)
            return outcome
        except (EOFError, OSError) as problem:
            fault = "crashed the decoder; it is damaged. Convert it and send it again."
            if isinstance(problem, TimeoutError):
                fault = f"was not encoded within {self._seconds:g} seconds. Send a smaller one."
            raise ProblemError(f"the upload {fault}", kind="upload") from problem

    def _running(self) -> WorkerProcess:
        """The process with its encoders loaded; it is started if it does not run."""
        if self._worker is not None and self._worker.process.is_alive():
            return self._worker
        self.loading = True
        self._end()
        self._worker = worker = WorkerProcess(self._threads, _outcome)
        try:
            if self._closed:
                raise EOFError
            _received(worker, _START_SECONDS)  # that it is ready
            worker.connection.send_bytes(self._function)
            self._ask(worker, None, _START_SECONDS)
        except (EOFError, OSError) as problem:
            self._end()
            detail, after = "the encoder could not be started. Try later.", {"retry-after": "30"}
            raise ProblemError(detail, headers=after, kind="not-ready") from problem
        finally:
            self.loading = False
        return worker

    def _ask(self, worker: WorkerProcess, argument: Any, seconds: float) -> Any:
        """The process's value for an argument; the process ends if it gives none in time."""
        try:
            worker.connection.send_bytes(ForkingPickler.dumps(argument))
            outcome = json.loads(_received(worker, seconds))
            if "error" in outcome:
                detail = f"{outcome['error']}\n{outcome['traceback']}"
                raise RuntimeError(f"encoding an upload: {detail}")
            value = outcome["value"]
            if not isinstance(value, dict):
                return value
            if "rows" in value:
                row_bytes = base64.b64decode(value["rows"], validate=True)
                return np.frombuffer(row_bytes, "<f4").reshape(-1, int(value["width"])).copy()
            rows: dict[str, Any] = {name: np.array(row, np.float32) for name, row in value.items()}
            return Queries.partial(size=max(map(len, rows.values())), **rows)
        except (EOFError, OSError, LookupError, TypeError, ValueError) as problem:
            self._end()
            raise problem if isinstance(problem, OSError) else EOFError from problem

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end(patience=0)
        self._worker = None


def _outcome(function: CalledFunction, argument: bytes) -> bytes:
    """Call a function in the process; the outcome in JSON, of observations those that are known."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            numbers = base64.b64encode(value.astype("<f4").tobytes()).decode()
            return {"rows": numbers, "width": value.shape[1]}
        ends = zip(("initial", "goal"), value.known[0], strict=True)
        return {name: getattr(value, name)[0].tolist() for name, there in ends if there}

    return json.dumps(vars(attempt(function, argument)), default=plain).encode()


def _received(worker: WorkerProcess, seconds: float) -> bytes:
    if not worker.connection.poll(seconds):
        raise TimeoutError
    return worker.connection.recv_bytes(_ANSWER)


@contextmanager
def kept(files: Mapping[str, BinaryIO]) -> Iterator[dict[str, Path]]:
    """Keep the files of an upload, by their names, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="cefito-") as folder:
        paths = {}
        for name, file in files.items():
            head = file.read(_HEAD)
            pattern, formats = _FORMATS.get(name, (_PICTURE, "JPEG, PNG, WebP or BMP"))
            if not pattern.match(head):
                raise ProblemError(f"'{name}' is not {formats}.", name, kind="upload")
            paths[name] = Path(folder) / name
            file.seek(0)
            with paths[name].open("wb") as target:
                shutil.copyfileobj(file, target, 1 << 20)
        yield paths
