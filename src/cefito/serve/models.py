"""Runs and data sets that a service has opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from cefito.data.prepared import open_dataset
from cefito.data.vocabulary import find_task, nfc
from cefito.encoders.video import INSTALLED
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.files import value_digest
from cefito.inference.observer import ObservationRecipe
from cefito.inference.question import steps_range
from cefito.parts.folder import horizons_in, versions
from cefito.parts.matching import DatasetMatch, match_dataset
from cefito.runs.run import Run, open_run
from cefito.runtime import pick_device
from cefito.search.settings import SEARCHES
from cefito.serve.problems import ProblemError
from cefito.serve.schemas import (
    ModelAnswer,
    Named,
    RunOut,
    StepOut,
    VideoOut,
    VideosAnswer,
    VideosRequest,
)
from cefito.serve.settings import Limits, ServiceSettings

logger = logging.getLogger(__name__)

_LISTED = 8  # runs named in a message
_SEARCHED = ("test", "val", "train")  # order of the splits in a search: new to the run first


@dataclass(frozen=True)
class Served:
    """A run of a service."""

    name: str  # in requests
    run: Run
    given: Path = Path()  # as in the settings
    place: Path = Path()  # where that led, through links, when it was opened
    matches: tuple[DatasetMatch, ...] = ()  # data sets whose videos it can plan
    pictures: bool = False  # whether uploaded pictures can be encoded for it
    video: bool = False
    text: bool = False  # whether goals in words can be encoded for it

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the run's files, which tells its versions apart."""
        return value_digest(dict(self.run.files))

    @property
    def title(self) -> str:
        """Name and horizon, or numbers of steps."""
        several = self.run.shortest is not None
        return f"'{self.name}' ({'steps' if several else 'horizon'} {self.run.steps})"

    def plans(self, steps: int | str | None) -> bool:
        """Whether its run plans one of these numbers of steps."""
        shortest, longest = (1, 9999) if steps is None else steps_range(steps)
        return shortest <= self.run.horizon and longest >= (self.run.shortest or self.run.horizon)

    @cached_property
    def videos(self) -> dict[str, list[tuple[DatasetMatch, int]]]:
        """Data sets and indices of the videos of each id."""
        by_id: dict[str, list[tuple[DatasetMatch, int]]] = {}
        for match in self.matches:
            for index, video in enumerate(match.dataset.videos):
                by_id.setdefault(nfc(video.video_id), []).append((match, index))
        return by_id

    def describe(self) -> RunOut:
        """The run as clients see it."""
        run, info = self.run, self.run.info
        planner, taxonomy = run.planner, run.taxonomy
        description, abilities = planner.describe(), planner.abilities
        uploads: list[tuple[Literal["pictures", "video", "text"], bool]]
        uploads = [("pictures", self.pictures), ("video", self.video), ("text", self.text)]
        return RunOut(
            name=self.name,
            horizon=run.horizon,
            method=run.method,
            planner=planner.name,
            observation_dim=planner.observation_dim,
            dataset=info.dataset.name,
            fingerprint=info.dataset.fingerprint,
            digest=self.digest,
            simulated=info.dataset.simulation is not None,
            seed=info.seed,
            search=description.search and description.search.model_dump(mode="json"),
            probabilities=description.probabilities,
            constraints=abilities.constraints,
            true_task=abilities.true_task,
            any_length=abilities.any_length,
            recogniser=run.recogniser is not None,
            false_alarms=run.verifier is not None and bool(run.verifier.online.hours.size),
            graph=run.verifier is not None,
            elapsed=planner.reads_elapsed,
            shortest=run.shortest or run.horizon,
            uploads=[kind for kind, possible in uploads if possible],
            datasets=[match.dataset.name for match in self.matches],
            versions=info.versions,
            tasks=[*taxonomy.tasks],
            actions=[*taxonomy.actions],
        )

    @cached_property
    def _texts(self) -> list[tuple[DatasetMatch, int, int, str]]:
        """Data set, index, task and words of each video whose task the run knows."""
        texts = []
        for match in self.matches:
            names = match.dataset.taxonomy.names
            for index, video in enumerate(match.dataset.videos):
                if (task := int(match.vocabulary.tasks[video.task])) >= 0:
                    steps = names(list(dict.fromkeys(step.action for step in video.steps)))
                    words = (video.video_id, self.run.taxonomy.tasks[task].name, *steps)
                    texts.append((match, index, task, nfc("\n".join(words)).casefold()))
        return texts

    def list_videos(self, wanted: VideosRequest) -> VideosAnswer:
        """Videos whose task the run knows."""
        task = None if wanted.task is None else find_task(self.run.taxonomy, wanted.task)
        least = (self.run.shortest or self.run.horizon) if wanted.windows else 0
        search = nfc(wanted.search or "")
        words = search.casefold().split()
        ranked: list[tuple[tuple[bool, int], tuple[DatasetMatch, int, int]]] = []
        for match, index, known_task, text in self._texts:
            video = match.dataset.videos[index]
            if (
                task in (None, known_task)
                and wanted.split in (None, video.split)
                and len(video.steps) >= least
                and all(word in text for word in words)
            ):
                order = nfc(video.video_id) != search, _SEARCHED.index(video.split)
                ranked.append((order, (match, index, known_task)))
        if wanted.search is not None:
            ranked.sort(key=lambda entry: entry[0])
        return VideosAnswer(
            run=self.name,
            horizon=self.run.horizon,
            total=len(ranked),
            videos=[self._video(*entry) for _, entry in ranked[wanted.offset :][: wanted.limit]],
        )

    def _video(self, match: DatasetMatch, index: int, task: int) -> VideoOut:
        dataset, video = match.dataset, match.dataset.videos[index]
        ids = [int(match.vocabulary.actions[video.task, step.action]) for step in video.steps]
        return VideoOut(
            id=video.video_id,
            dataset=dataset.name,
            split=video.split,
            task=Named.model_validate(self.run.taxonomy.tasks[task]),
            steps=[
                StepOut(
                    id=None if id_ < 0 else id_,
                    name=dataset.taxonomy.actions[step.action].name,
                    start=step.start,
                    end=step.end,
                )
                for id_, step in zip(ids, video.steps, strict=True)
            ],
            first_steps=list(range(1, len(ids) - (self.run.shortest or self.run.horizon) + 2)),
        )


@dataclass
class Models:
    """All runs of a service; when they are opened anew, both fields are replaced."""

    runs: tuple[Served, ...]  # in the order given, by ascending horizon
    names: dict[str, str]  # that replace folders of the server in messages

    def find(self, name: str | None, horizon: int | None, steps: int | str | None = None) -> Served:
        """The one run of a name and a horizon, both optional; `steps` choose among several.

        Args:
            name: Name of the run.
            horizon: Longest number of steps that it plans.
            steps: Steps asked for, of which one run may plan so many.
        """
        fitting = [
            served
            for served in self.runs
            if name in (None, served.name) and horizon in (None, served.run.horizon)
        ]
        if len(fitting) > 1:
            fitting = [served for served in fitting if served.plans(steps)] or fitting
        if len(fitting) == 1:
            return fitting[0]
        names = {served.name for served in fitting or self.runs}
        listed = ", ".join(served.title for served in self.runs[:_LISTED])
        more = f" and {len(self.runs) - _LISTED} more" if len(self.runs) > _LISTED else ""
        wanted = {"run": name, "horizon": horizon}
        asked = " and ".join(f"{key} {of!r}" for key, of in wanted.items() if of is not None)
        if fitting:
            field = "horizon" if len(names) == 1 else "run"
            fault, remedy = f"{len(fitting)} runs fit {asked}".rstrip(), f"Add the field '{field}'"
        else:
            field = "horizon" if horizon is not None and name in (None, *names) else "run"
            fault, remedy = f"no run fits {asked}", "Name one"
        raise ProblemError(f"{fault}; there are {listed}{more}. {remedy}.", field)

    @property
    def versions(self) -> str:
        """Titles and digests of all runs, for the log."""
        return versions_of(self.runs)

    def describe(self, limits: Limits) -> ModelAnswer:
        """The runs, limits and versions of a service."""
        return ModelAnswer(
            runs=[served.describe() for served in self.runs],
            searches=sorted(SEARCHES),
            limits=limits,
            versions={**versions(), "fastapi": version("fastapi")},
        )


def open_models(settings: ServiceSettings, before: Sequence[Served] = ()) -> Models:
    """Open the runs and data sets of a service.

    A run that cannot be opened stays as it was `before`, with a warning.

    Raises:
        CefitoError: A run or data set cannot be opened, a run is given twice, or no run can use a
            data set or the encoder.
    """
    opened: list[tuple[Path, Path, Run]] = []
    device = pick_device(settings.device)
    for path in settings.runs:
        place = Path(os.path.realpath(path))  # also of a loop of links, which cannot be opened
        try:
            horizons: list[int | None] = [*horizons_in(path)] or [None]
            opened += [
                (path, place, open_run(path, horizon=horizon, device=device).opened())
                for horizon in horizons
            ]
        except (CefitoError, OSError) as problem:
            if isinstance(problem, CefitoError) and place != Path(os.path.abspath(path)):  # noqa: PTH100
                problem.args = (f"{problem} {path} leads to {place}.",)
            old = [model for model in before if model.given == path]
            if not old:
                raise
            logger.warning("the run is kept as it was, %s: %s", versions_of(old), problem)
            opened += [(path, model.place, model.run) for model in old]
    names_of = zip(_names(opened), opened, strict=True)
    served = [Served(name, run, path, place) for name, (path, place, run) in names_of]
    for folder in settings.datasets:
        served = _with_dataset(served, folder)
    if settings.encoder is not None or settings.weights is not None:
        served = _with_encoder(served, settings.encoder, settings.weights)
    names = {
        place: model.name for model in served for place in (model.run.place, str(model.run.folder))
    }
    names |= {str(Path(folder)): Path(folder).name for folder in settings.datasets}
    longest_first = dict(sorted(names.items(), key=lambda entry: -len(entry[0])))
    return Models(tuple(served), longest_first)


def versions_of(runs: Sequence[Served]) -> str:
    """The runs with the begin of their digests, by which versions are told apart."""
    return "; ".join(sorted(f"{served.title}, digest {served.digest[:12]}" for served in runs))


def _names(opened: Sequence[tuple[Path, Path, Run]]) -> list[str]:
    """The shortest ends of the paths that distinguish runs of one horizon; a link has its name."""
    paths = [
        path.with_suffix("") if path.suffix == ".zip" else Path(os.path.abspath(path))  # noqa: PTH100
        for path, _, _ in opened
    ]
    for count in range(1, 1 + max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-count:]) for path in paths]
        keys = {(name, run.horizon) for name, (_, _, run) in zip(names, opened, strict=True)}
        if len(keys) == len(names):
            return names
    raise ConfigError("a run is given twice. Leave one of them out.", setting="runs")


def _with_dataset(served: Sequence[Served], folder: Path) -> list[Served]:
    """The runs, with a data set where a run can use it."""
    dataset, result, reasons = open_dataset(folder), [], []
    for model in served:
        try:
            model = replace(model, matches=(*model.matches, match_dataset(model.run, dataset)))
        except CefitoError as problem:
            reasons.append(str(problem))
        result.append(model)
    if len(reasons) == len(served):
        raise RunError(f"{folder}: no run can be used on it. {reasons[0]}", setting="dataset")
    return result


def _with_encoder(
    served: Sequence[Served], encoder: str | None, weights: Path | None
) -> list[Served]:
    """The runs, with the kinds of uploads that can be encoded for them."""
    result, reasons = [], []
    for model in served:
        recipe = ObservationRecipe.of(model.run)
        try:
            if encoder == "auto" and recipe.made_with.get("model") != INSTALLED:
                result.append(model)
                continue
            observer = recipe.open(None if encoder in ("auto", "own") else encoder, weights=weights)
            model = replace(
                model, pictures=observer.sees_pictures, video=True, text=observer.reads_texts
            )
        except CefitoError as problem:
            reasons.append(problem)
        result.append(model)
    if len(reasons) == len(served) and encoder != "auto":
        raise reasons[0]
    for reason in reasons:
        logger.warning("no uploads for one of the runs: %s", reason)
    return result
