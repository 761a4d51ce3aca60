"""Which film, and which parts of it, to label next.

The labels of a film are expected to help by new · (1 − p · sure):

- p · sure: the probability of its task · the mean probability of its steps (1 − `doubt`); 0 if no
  film of its task is labelled;
- new: 1 − cos(m, m'), cut to 0 to 1. m is the mean of its rows, m' that of the labelled film that
  is most like it; rows are scaled to mean 0 over the labelled films. So films that resemble
  labelled ones come last.

Films are chosen one after another, and each chosen one counts as labelled for those after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset
from cefito.data.vocabulary import find_task
from cefito.errors import DataError, RunError
from cefito.inference.constraints import Name
from cefito.inference.proposals import doubt
from cefito.inference.recordings import Recording, open_recordings
from cefito.inference.verification import verified_film
from cefito.inference.whole_videos import Reading
from cefito.markup import counted
from cefito.parts.opened import OpenedRun
from cefito.recognition.classifier import Standard
from cefito.recognition.recogniser import AnnotatedRows, Recognition
from cefito.recognition.temporal import Rows
from cefito.settings import Record
from cefito.tracks import Track
from cefito.verification.findings import Deviation, UnsureStep

logger = logging.getLogger(__name__)

_TINY = 1e-9
_CONSTANT = 0.1  # of `mean_of`, in deviations of each feature
_STRETCH, _SHARE, _STRETCHES = 30.0, 6, 3  # seconds at most; films have six of them or more
_LITTLE = 0.05  # mean probability of other labels from which on a stretch is worth a look


class Stretch(Record):
    """A stretch of a film that is worth a look first."""

    start: float  # seconds
    end: float  # seconds
    unsure: float  # mean over its rows of 1 − the probability of the likeliest label

    @property
    def words(self) -> str:
        """Its start and end, as in 1:05-1:35."""
        times = (divmod(round(seconds), 60) for seconds in (self.start, self.end))
        return "-".join(f"{minutes}:{seconds:02}" for minutes, seconds in times)


class NextFilm(Record):
    """How much the labels of a film are expected to help, and why."""

    film: str
    task: str
    steps: int  # number of recognised steps
    help: float  # 0 to 1
    unsure: float  # 0 to 1
    new: float | None  # 0 to 1; None if the labelled films are not at hand
    labelled: int | None  # labelled films of its task; None likewise
    why: str
    parts: tuple[Stretch, ...]  # the most unsure ones, in the order of their times
    doubtful: tuple[str, ...] = ()  # steps that the verifier finds wrong, or is unsure of


@dataclass(frozen=True, eq=False)
class LabelledFilms:
    """The films that a recogniser was trained on, which films without labels are compared with."""

    standard: Standard
    means: Rows  # of the rows of each film, as of `mean_of` [n, D + 1]
    tasks: NDArray[np.int64]  # number of films of each task [C]

    @classmethod
    def of(cls, data: PreparedDataset, places: Sequence[int]) -> Self:
        """Read some videos of a data set (DataError if it holds no rows of whole videos)."""
        known = AnnotatedRows.of(data, places)
        standard = Standard.of(known.rows, known.rows[0].shape[1])
        means = np.stack([mean_of(rows, standard) for rows in known.rows])
        return cls(standard, means, np.bincount(known.tasks, minlength=len(data.taxonomy.tasks)))

    @classmethod
    def of_run(cls, run: OpenedRun) -> Self | None:
        """Return the films that a run's recogniser was trained on; None if they are not there."""
        try:
            data = run.dataset()
            learned = [n for n, video in enumerate(data.videos) if video.split != "test"]
            return cls.of(data, learned)
        except (DataError, RunError) as problem:
            logger.warning("films are ordered by how unsure they are alone: %s", problem)
            return None


def mean_of(rows: NDArray[np.floating[Any]], standard: Standard) -> Rows:
    """Return the mean of scaled rows [n, D] and a constant, at length 1 [D + 1].

    By the constant, films whose means are 0 are alike, as one labelled film is with itself.
    """
    mean = standard.scaled(rows.astype(np.float32)).mean(axis=0)
    longer: Rows = np.append(mean, np.float32(_CONSTANT * np.sqrt(len(mean))))
    return longer / np.linalg.norm(longer)


@dataclass(frozen=True, eq=False)
class FilmToLabel:
    """A film without labels, as its recogniser sees it."""

    track: Track
    mean: Rows  # as of `mean_of` [D + 1]; [0] without labelled films
    stretches: tuple[Stretch, ...]
    doubtful: tuple[str, ...] = ()  # as of `NextFilm`

    @classmethod
    def of(
        cls, recording: Recording, recognition: Recognition, labelled: LabelledFilms | None
    ) -> Self:
        """Keep what is needed of a film.

        Args:
            recording: The rows of the film.
            recognition: What was recognised in them.
            labelled: The films that the recogniser was trained on; None if they are not at hand.
        """
        mean = mean_of(recording.rows, labelled.standard) if labelled else np.zeros(0, np.float32)
        return cls(recording.track(recognition), mean, stretches_of(recognition))


def ordered(
    films: Iterable[FilmToLabel], labelled: LabelledFilms | None
) -> list[tuple[FilmToLabel, NextFilm]]:
    """Return films and what their labels are expected to help, those that help most first.

    Films that help alike stay in the order that they are given in. Without labelled films the
    order is that of how unsure they are.
    """
    left, order = list(films), list[tuple[FilmToLabel, NextFilm]]()
    doubts = [doubt(film.track) for film in left]
    if labelled is None or not left:
        first = sorted(range(len(left)), key=lambda place: -doubts[place])
        return [_with_reason(left[place], doubts[place], doubts[place]) for place in first]
    means = np.stack([film.mean for film in left])
    alike = np.max(means @ labelled.means.T, axis=1)  # cosines
    known, places = set(np.flatnonzero(labelled.tasks).tolist()), [*range(len(left))]
    while places:
        helps = dict[int, tuple[float, float]]()  # and how new each film is
        for place in places:
            new = float(np.clip(1 - alike[place], 0, 1))
            unsure = doubts[place] if left[place].track.task_id in known else 1.0
            helps[place] = new * unsure, new
        best = max(places, key=lambda place: helps[place][0])
        film = left[best]
        count = int(labelled.tasks[film.track.task_id])
        order.append(_with_reason(film, doubts[best], *helps[best], count))
        places.remove(best)
        known.add(film.track.task_id)
        alike = np.maximum(alike, means @ means[best])
    return order


def _with_reason(
    film: FilmToLabel, unsure: float, helps: float, new: float | None = None, count: int = 0
) -> tuple[FilmToLabel, NextFilm]:
    track, why = film.track, f"{100 * unsure:.0f} % unsure"
    if new is not None:
        films = counted(count, "labelled film") if count else "no labelled film"
        why += f", {100 * new:.0f} % new, {films} of its task"
    facts = NextFilm(
        film=track.video,
        task=track.task,
        steps=len(track.steps),
        help=helps,
        unsure=unsure,
        new=new,
        labelled=None if new is None else count,
        why=why,
        parts=film.stretches,
        doubtful=film.doubtful,
    )
    return film, facts


def stretches_of(recognition: Recognition) -> tuple[Stretch, ...]:
    """Return at most three stretches that do not overlap, those that are recognised least surely.

    Each is a sixth of the film, at most 30 s. Stretches that are surer than the film, or almost
    certain, are left out.
    """
    rows, rate = 1 - recognition.rows.max(axis=1), recognition.rate
    width = max(min(round(_STRETCH * rate), len(rows) // _SHARE), 1)
    means = np.convolve(rows, np.full(width, 1 / width), mode="valid")  # by their first rows
    least, chosen = max(float(rows.mean()), _LITTLE), list[Stretch]()
    while len(chosen) < _STRETCHES and means.max() >= least - _TINY:
        first = int(means.argmax())
        unsure, end = float(means[first]), (first + width) / rate
        chosen.append(Stretch(start=first / rate, end=end, unsure=unsure))
        means[max(first - width + 1, 0) : first + width] = -1
    return tuple(sorted(chosen, key=lambda stretch: stretch.start))


def next_films(
    run: OpenedRun, inputs: Iterable[str], *, task: Name | None = None, **reading: Unpack[Reading]
) -> list[tuple[FilmToLabel, NextFilm]]:
    """Recognise and verify the steps of films, and return the films as `ordered` does.

    Args:
        run: A run with a recogniser.
        inputs: Films, as of `open_recordings`.
        task: Id or name of the task of all of them; by default each is recognised.
        reading: How films are read.

    Raises:
        ConfigError: An unknown task or film, or a rate out of range.
        DataError: A film that cannot be read, or rows of another width than the run's.
        RunError: The run has no recogniser.
    """
    task_id = None if task is None else find_task(run.taxonomy, task)
    labelled = LabelledFilms.of_run(run)
    films = []
    for recording in open_recordings(run, inputs, **reading):
        film = FilmToLabel.of(recording, recording.recognition(run, task=task_id), labelled)
        video = verified_film(run, recording, task_id)
        if video is not None:
            findings: list[Deviation | UnsureStep] = [*video.deviations, *video.unsure]
            steps = tuple(f"{finding.name}: {finding.words}" for finding in findings)
            film = replace(film, doubtful=steps)
        films.append(film)
    return ordered(films, labelled)
