"""Frames of the videos that a service's data sets name, where their files are at hand."""

from __future__ import annotations

from functools import lru_cache

import anyio
import anyio.to_thread

from cefito.data.text import nfc
from cefito.errors import CefitoError
from cefito.report.frames import EACH, VideoFiles, find_video_files
from cefito.runs.matching import DatasetMatch
from cefito.serve.models import Models
from cefito.serve.problems import ProblemError

__all__ = ["Frames"]

_KEPT = 512  # frames kept in memory, of at most `_MOST` bytes
_MOST = 2 * EACH
_SIDE = 256  # pixels of a frame's longer side


class Frames:
    """Frames of videos; one is decoded at a time, and the last ones are kept.

    Files are found once, by the ids of the data set; what a client says is only compared with ids,
    and never a path.

    Args:
        models: The runs and data sets of the service.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._files: dict[str, VideoFiles] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        self._made = lru_cache(_KEPT)(self._make)

    async def picture(
        self, run: str, horizon: int, dataset: str, video: str, step: int, *, goal: bool
    ) -> bytes | None:
        """A frame where a window begins or ends, as JPEG; None where there is none.

        Args:
            run: Name of the run.
            horizon: Its horizon.
            dataset: Name of the data set.
            video: Id of the video.
            step: Index of the window's first step.
            goal: Where it ends.
        """
        if self._limiter is None:  # limiters belong to an event loop
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(
            self._made, run, horizon, dataset, video, step, goal, limiter=self._limiter
        )

    def _make(
        self, run: str, horizon: int, dataset: str, video: str, step: int, goal: bool
    ) -> bytes | None:
        try:
            served = self._models.find(run, horizon)
        except ProblemError:
            return None
        for match, index in served.videos.get(nfc(video), ()):
            if match.dataset.name == dataset:
                return self._frame(match, index, horizon, step, goal=goal)
        return None

    def _frame(
        self, match: DatasetMatch, index: int, horizon: int, step: int, *, goal: bool
    ) -> bytes | None:
        from cefito.encoders.thumbnails import thumbnails

        opened = match.dataset
        video = opened.videos[index]
        if opened.fingerprint not in self._files:
            self._files[opened.fingerprint] = find_video_files(opened)
        path = self._files[opened.fingerprint].paths.get(video.video_id)
        if path is None or not 0 <= step <= len(video.steps) - horizon:
            return None
        time = video.steps[step + horizon - 1].end if goal else video.steps[step].start
        try:
            ((_, picture),) = thumbnails(path, [max(0.0, time)], most=_MOST, side=_SIDE)
        except CefitoError:  # it cannot be read: the page says its second alone
            return None
        return picture
