"""The page of findings: which films were wrong and where, with pictures, and how long steps took.

Pictures are of the middle of a step that was wrong, and of the same step in a right video.
"""

from __future__ import annotations

import base64
import logging
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from cefito.errors import CefitoError, ConfigError, DataError
from cefito.files import check_target, write_text
from cefito.inference.verification import CAUTION, Right, VerifiedVideo, steps_file
from cefito.markup import film_percent
from cefito.parts.opened import OpenedRun
from cefito.report.frames import EACH, TOTAL, films_in, find_video_files
from cefito.report.page import UNFIT, environment
from cefito.report.picture import clock, verified_picture
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cefito.tracks.track import named
from cefito.verification.findings import Deviation
from cefito.verification.verifier import Verifier

logger = logging.getLogger(__name__)

Moment = tuple[Path, float]
"""A video file and a second of it."""


@dataclass(frozen=True)
class Films:
    """Video files that findings are shown in."""

    paths: Mapping[str, Path] = field(default_factory=dict)  # by video
    usual: Mapping[tuple[str, str], Moment] = field(default_factory=dict)  # by task and step

    def of(self, video: VerifiedVideo) -> Path | None:
        """Return the file of a video; None if it is not known."""
        path = self.paths.get(video.video) if video.file is None else Path(video.file)
        return path if path is not None and path.is_file() else None


NO_FILMS = Films()


def find_films(
    right: Right,
    opened: OpenedRun | None,
    videos: Sequence[VerifiedVideo],
    folder: Path | None = None,
    choices: Choices | None = None,
) -> Films:
    """Find the files of videos that were verified, and of the right videos learned from.

    Args:
        right: What the verifier was learned from.
        opened: The run, if it is one.
        videos: Videos that were verified.
        folder: Of video files, which have the names of videos; by default the one of the data set
            of the run.
        choices: What a file of steps leaves open.

    Raises:
        ConfigError: A folder without video files.
    """
    names, tracks, paths = [video.video for video in videos], list[Track](), dict[str, Path]()
    if opened is not None:
        try:
            dataset = opened.dataset(None)
            paths = find_video_files(dataset, folder).paths
        except CefitoError:
            pass  # it is not here any more
        else:
            tracks = [
                Track(
                    video=video.video_id,
                    task=dataset.taxonomy.tasks[video.task].name,
                    seconds=video.steps[-1].end,
                    steps=named(video.steps, dataset.taxonomy),
                )
                for video in dataset.videos
                if video.split == "train" and video.steps
            ]
    elif (path := steps_file(right)) is not None and folder is not None:
        tracks = [one for one in read([path], choices or Choices()).tracks if one.split != "test"]
    if folder is not None:
        paths = {**paths, **films_in(folder, [*names, *(track.video for track in tracks)])}
    usual: dict[tuple[str, str], Moment] = {}
    readable = cache(_readable)
    for track in tracks:
        for step in track.steps if track.video in paths else ():
            key, film = (track.task, step.name), paths[track.video]
            if not step.wrong and key not in usual and readable(film):
                usual[key] = film, (step.start + step.end) / 2
    return Films(paths, usual)


@dataclass(frozen=True)
class Duration:
    """How long a step took, in seconds."""

    task: str
    step: str
    usual: float | None  # None if no right video has it
    means: Mapping[str, tuple[float, int]]  # by worker: mean and number of steps

    def change(self, worker: str) -> float | None:
        """Return how much longer a worker took than usual, as a share; None if it is unknown."""
        if worker not in self.means or not self.usual:
            return None
        return self.means[worker][0] / self.usual - 1


def durations(videos: Iterable[VerifiedVideo], verifier: Verifier) -> list[Duration]:
    """Return the durations of all steps, by task in their usual order; groups are workers."""
    seconds: dict[tuple[int, str, str], dict[str, list[float]]] = {}
    actions: dict[tuple[int, str, str], int | None] = {}
    for video in videos:
        if video.task_probability <= 0.5:  # it may show another task
            continue
        for step in video.steps:
            key = video.task_id or 0, video.task, step.name
            seconds.setdefault(key, defaultdict(list))[video.group].append(step.end - step.start)
            actions[key] = step.action
    tasks, rows = list(dict.fromkeys(key[0] for key in seconds)), []
    for key, by_worker in seconds.items():
        order = verifier.orders[key[0]]
        action = actions[key]
        place = None if action is None else order.index.get(action)
        has_length = place is not None and order.occurs[place] > 0 and order.videos > 0
        usual = float(np.exp(order.length[place])) if has_length else None
        means = {worker: (float(np.mean(all_)), len(all_)) for worker, all_ in by_worker.items()}
        usually = math.inf if place is None else float(np.nan_to_num(order.place)[place])
        duration = Duration(key[1], key[2], usual, dict(sorted(means.items())))
        rows.append((tasks.index(key[0]), usually, duration))
    return [duration for *_, duration in sorted(rows, key=lambda row: row[:2])]  # stable


def save_verification(
    videos: Sequence[VerifiedVideo],
    path: Path | str,
    verifier: Verifier,
    films: Films = NO_FILMS,
    *,
    left_out: Sequence[str] = (),
) -> None:
    """Write what was wrong in videos as an HTML file (ConfigError), which may replace one.

    Args:
        videos: The videos.
        path: The file, .html.
        verifier: Knows the usual lengths of steps.
        films: Video files, which the page links to and shows pictures of.
        left_out: What was not verified, and why.
    """
    path = Path(path)
    check_target(path, (".html",), "out")
    addresses = {video.video: _address(films.of(video), path.parent) for video in videos}
    rows = durations(videos, verifier)
    workers = sorted({worker for row in rows for worker in row.means})
    limits = Counter(note for video in videos for note in video.limits)
    template = environment().get_template("verification.html.j2")
    page = template.render(
        videos=videos,
        wrong=[video for video in videos if video.deviations],
        open=[video for video in videos if video.left_open and not video.deviations],
        fine=[video for video in videos if not (video.left_open or video.deviations)],
        bars=[_bars(video, addresses[video.video]) for video in videos],
        films=addresses,
        pictures=_pictures(videos, films),
        durations=rows,
        workers=workers,
        clock=clock,
        caution=CAUTION,
        left_out=left_out,
        shared=[note for note, count in limits.items() if count > 1],
        film_percent=film_percent,
    )
    write_text(path, UNFIT.sub("\ufffd", page))


def _bars(video: VerifiedVideo, film: str | None) -> str:
    wrong = {
        deviation.step: (f"{deviation.words}; {deviation.evidence}", deviation.probability)
        for deviation in video.deviations
        if deviation.step is not None
    }
    return verified_picture(video.seconds, video.steps, wrong, film)


def _address(film: Path | None, folder: Path) -> str | None:
    """Return the address of a film from a page in a folder."""
    if film is None:
        return None
    try:
        return quote(Path(os.path.relpath(film, folder)).as_posix())
    except ValueError:  # on another drive
        return film.absolute().as_uri()


def _moments(
    video: VerifiedVideo, deviation: Deviation, films: Films
) -> Iterator[tuple[str, Moment]]:
    """Yield what a finding shows: the step as it was, and as it usually is."""
    film, start, end = films.of(video), deviation.start, deviation.end
    if film is not None and start is not None:
        yield "here", (film, (start + (start if end is None else end)) / 2)
    if (usual := films.usual.get((video.task, deviation.name))) is not None:
        yield "usual", usual


def _pictures(videos: Sequence[VerifiedVideo], films: Films) -> dict[tuple[str, int], Any]:
    """Return the pictures of each finding, by video and number, as text of data addresses."""
    shown = {
        (video.video, number): dict(_moments(video, deviation, films))
        for video in videos
        for number, deviation in enumerate(video.deviations)
    }
    wanted: dict[Path, set[float]] = defaultdict(set)
    for moments in shown.values():
        for film, second in moments.values():
            wanted[film].add(second)
    count = sum(map(len, wanted.values()))
    most = min(EACH, TOTAL // max(count, 1) // 4 * 3)
    try:
        made = {
            (film, second): picture
            for film, seconds in wanted.items()
            for second, picture in _thumbnails(film, seconds, most)
        }
    except ConfigError as problem:  # no library that decodes films
        logger.warning("the page of findings has no pictures: %s", problem)
        made = {}
    return {
        key: {name: made[moment] for name, moment in moments.items() if moment in made}
        for key, moments in shown.items()
    }


def _readable(film: Path) -> bool:
    try:
        return bool(_thumbnails(film, [0.0], EACH))
    except ConfigError:  # no library that decodes films, which is said with the page
        return True


def _thumbnails(film: Path, seconds: Iterable[float], most: int) -> list[tuple[float, str]]:
    """Return pictures of a film; none if it cannot be read (ConfigError without PyAV)."""
    from cefito.encoders.frames import thumbnails

    times = sorted(second for second in seconds if math.isfinite(second))
    try:
        return [
            (time, f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}")
            for time, picture in thumbnails(film, times, most=most)
        ]
    except DataError:
        return []
