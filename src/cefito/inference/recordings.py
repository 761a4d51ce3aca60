"""Rows of whole videos, whose steps are recognised: files of features, films, data sets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cefito.data.readers.feature_files import is_features
from cefito.data.robots import Film, all_episodes, find_episode, is_robot
from cefito.data.timeline import RATES
from cefito.data.vocabulary import nfc
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.files import check_regular, no_such_file
from cefito.inference.query import features_of, find_video, run_rate
from cefito.markup import film_percent, listed
from cefito.parts.matching import DatasetMatch, match_dataset
from cefito.parts.opened import OpenedRun
from cefito.progress import Progress, silent
from cefito.recognition.recogniser import Recognition
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import shortest_ends
from cefito.tracks.track import named

if TYPE_CHECKING:
    import torch

    from cefito.inference.observer import Observer

logger = logging.getLogger(__name__)

_CLEAR = 0.9  # probability of another task from which on it is said

Failed = Callable[[CefitoError], object]
"""Takes the error of a video that cannot be read or recognised."""


def raised(problem: CefitoError) -> None:
    """Raise the error of a video."""
    raise problem


@dataclass(frozen=True)
class Recording:
    """The rows of a whole video."""

    name: str
    place: str  # for messages; empty if there is none
    rows: NDArray[Any]  # [n, D]
    rate: float  # rows a second
    file: str | None = None  # the video file, if it is one
    annotated: tuple[TimedStep, ...] | None = None  # None if its steps are not known

    def recognised(self, run: OpenedRun, *, least: float = 0.0, **how: Any) -> Track:
        """Recognise the steps, but those below a probability; `how` is as of `recognition`."""
        return self.track(self.recognition(run, **how), least)

    def recognition(
        self,
        run: OpenedRun,
        *,
        task: int | None = None,
        plan: Sequence[int] | None = None,
        doubt: bool = False,
    ) -> Recognition:
        """Return what is recognised in the rows; arguments as of `Recogniser.recognise`.

        With `doubt`, the usual order is doubted, and the track of it holds sequences of steps that
        are drawn, as far as the recogniser can.

        Raises:
            DataError: Rows of another width than the run's, or with NaN or infinity.
        """
        try:
            return run.recognise(self.rows, rate=self.rate, task=task, plan=plan, doubt=doubt)
        except (ConfigError, DataError) as problem:
            place = f"{self.place}: " * bool(self.place)
            raise type(problem)(f"{place}{problem}", setting=problem.setting) from problem

    def check_task(self, run: OpenedRun, task: int | None) -> None:
        """Warn if a task is given and rows show clearly another one; errors of `recognition`."""
        if task is None:
            return
        tasks = self.recognition(run).tasks
        best = int(tasks.argmax())
        if best != task and tasks[best] >= _CLEAR:
            shown, given = (run.taxonomy.tasks[one].name for one in (best, task))
            logger.warning(
                "%s: shows the task '%s' (%s), not '%s', which was given",
                self.place or self.name,
                shown,
                film_percent(tasks[best]),
                given,
            )

    def track(self, recognition: Recognition, least: float = 0.0) -> Track:
        """Return the steps that were recognised in the rows, but those below a probability."""
        best = int(recognition.tasks.argmax())
        return Track(
            video=self.name,
            task_id=best,
            task=recognition.taxonomy.tasks[best].name,
            task_probability=float(recognition.tasks[best]),
            seconds=len(self.rows) / self.rate,
            steps=tuple(recognition.steps(least)),
            drawn=recognition.drawn_steps,
            annotated=self.annotated,
            file=self.file,
        )


def _unknown(source: str, problem: CefitoError, *, may_be_file: bool) -> CefitoError:
    """Return the error of an input that is no video of a data set, and no file if it may be one."""
    if may_be_file and Path(source).is_dir():
        expected = f"Give its films, as in {source}/*.mp4, or a table of steps"
        return ConfigError(f"{source}: is a folder. {expected}.")
    missing = f"{source}: {no_such_file(Path(source))}, and "
    return type(problem)(f"{missing * may_be_file}{problem}")


def open_recordings(
    run: OpenedRun,
    inputs: Iterable[str],
    *,
    dataset: Path | str | None = None,
    rate: float | None = None,
    encoder: str | None = None,
    weights: Path | None = None,
    device: torch.device | str | None = None,
    camera: str | None = None,
    failed: Failed = raised,
    progress: Progress = silent,
) -> Iterator[Recording]:
    """Yield the rows of videos, one after another; all are named before the first is encoded.

    A file is named without folders and ending, or by the last folders that tell it apart.

    Args:
        run: A run with a recogniser.
        inputs: Files of features, video files, or ids of videos of the run's data set; of a run of
            sensors, tables, or folders of tables, instead of video files; LeRobot data sets, or
            paths of their episodes.
        dataset: Data set of all inputs, which are then ids; may be one of LeRobot.
        rate: Rows of features a second; as in the run's data set by default.
        encoder: Encoder of video files; that of the run's features by default.
        weights: File of its weights, for s3d.
        device: Where it works; the CPU by default, "auto" takes CUDA if available.
        camera: Camera of episodes; by default that of the run's features.
        failed: Takes the error of a video that is not there or cannot be read, which is left out;
            by default it is raised.
        progress: Shows the progress of each video file.

    Raises:
        ConfigError: No such video, two of one name, or a rate out of range.
        DataError: A file that cannot be read, or a data set without rows of whole videos.
    """
    rate = row_rate(run, rate)
    observer = cache(partial(_observer, run, encoder, weights=weights, device=device))
    sources = [*all_episodes(inputs, dataset)]
    dataset = None if dataset is None or is_robot(Path(dataset)) else dataset
    recipe = run.info.dataset.recipe
    films = {} if recipe is not None else _films(run, sources, camera)
    tables = [source for source in sources if recipe is not None and recipe.reads(Path(source))]
    files = [
        path
        for source, path in zip(sources, map(Path, sources), strict=True)
        if dataset is None
        and (source in tables or source in films or is_features(path) or path.is_file())
    ]
    ends, _ = shortest_ends(map(_address, files))
    checked = {one: Path(one) in files for one in sources if one not in (*tables, *films)}
    stored = _there(run, checked, dataset, failed)
    names = dict[str, str]()
    for source in [one for one in sources if one in stored or one not in checked]:
        video = stored.get(source)
        name = ends[_address(Path(source))] if video is None else video.name
        if name in names.values():
            taken = f"another video is called '{name.rpartition('/')[2]}', too"
            raise ConfigError(f"{source}: {taken}. Leave one out, or rename the file.")
        names[source] = name

    def opened(source: str) -> Recording:
        path, video = Path(source), stored.get(source)
        if video is not None:
            return video
        if recipe is not None and source in tables:
            return Recording(names[source], source, recipe.rows(path), recipe.rate)
        if is_features(path):
            features = features_of(run, path, rate)
            return Recording(names[source], source, features.values, features.rate)
        if recipe is not None:
            wanted = f"expected tables with the channels {listed(recipe.channels, most=5)}"
            raise ConfigError(f"{source}: {wanted}, of which the run's rows are made.")
        film = films.get(source, Film(path))
        rows = observer().rows(film.path, part=film.part, progress=progress)
        file = None if film.part else source
        return Recording(names[source], source, rows, 1.0, file=file)

    for source in names:
        try:
            recording = opened(source)
        except DataError as problem:
            failed(problem)
        else:
            yield recording


def _observer(run: OpenedRun, encoder: str | None, **where: Any) -> Observer:
    from cefito.inference.observer import ObservationRecipe

    return ObservationRecipe.of(run).open(encoder, **where)


def _there(
    run: OpenedRun, sources: Mapping[str, bool], dataset: Path | str | None, failed: Failed
) -> dict[str, Recording | None]:
    """Return the sources that are there: None for each file, else the video of a data set."""
    match = cache(lambda: match_dataset(run, run.dataset(dataset)))
    if dataset is not None:
        match()  # of all of them
    there = dict[str, Recording | None]()
    for source, is_file in sources.items():
        try:
            if is_file:
                check_regular(Path(source))
            there[source] = None if is_file else recording_of(match(), source)
        except DataError as problem:
            failed(problem)
        except (ConfigError, RunError) as problem:
            failed(_unknown(source, problem, may_be_file=dataset is None))
    return there


def _films(run: OpenedRun, sources: Iterable[str], camera: str | None) -> dict[str, Film]:
    """Return the film of each source that is an episode, by default of the camera of the run."""
    made_with = (run.info.dataset.observed or {}).get("features") or {}
    episodes = {source: find_episode(Path(source)) for source in sources}
    return {
        source: episode[0].film(episode[1], camera or made_with.get("camera"))
        for source, episode in episodes.items()
        if episode is not None
    }


def row_rate(run: OpenedRun, feature_rate: float | None) -> float:
    """Return the rows a second of features: those given, or as in the run's data set (ConfigError).

    A rate is from 0.01 to 1000.
    """
    if feature_rate is None:
        return run_rate(run) or run.own_recogniser.rate
    if not RATES[0] <= feature_rate <= RATES[1]:
        problem = f"{feature_rate:g}: expected {RATES[0]:g} to {RATES[1]:g} rows a second"
        raise ConfigError(f"{problem}.", setting="feature_rate")
    return feature_rate


def _address(path: Path) -> str:
    """Return the whole path of a file without its ending, with slashes."""
    return nfc(Path(normpath(path.absolute())).with_suffix("").as_posix())


def recording_of(match: DatasetMatch, video_id: str) -> Recording:
    """Return a video of a data set, with its annotated steps (DataError without rows)."""
    opened = match.dataset
    index, timeline = find_video(opened, video_id), opened.timeline
    if timeline is None:
        problem = "holds no rows of whole videos. Prepare it with features and --timeline"
        raise DataError(f"{opened.folder}: {problem}.")
    video, rows = opened.videos[index], timeline.videos[index]
    place = f"{opened.folder}, video '{video.video_id}'"
    annotated = named(video.steps, opened.taxonomy)
    return Recording(video.video_id, place, rows, timeline.rate, annotated=annotated)
