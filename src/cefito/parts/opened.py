"""A run folder: a trained planner with all that is needed to repeat it.

run.json                  `RunInfo`: method, data set, settings, versions, results of trainings
taxonomy.json             tasks and actions
videos.json               ids of the videos that it was trained on, and that epochs were chosen on
*.safetensors, *.json     files of the planner
recogniser.*              recogniser of steps in whole videos, if the data set has their rows
verifier.safetensors      orders of steps, and networks of errors, of a run of several lengths
coverage.json             thresholds of sets of plans, if `cefito calibrate` made them
manifest.json             SHA-256 of all these, compared on opening
classifier/, field/, …    metrics.jsonl and checkpoint of each training
evaluation-*.json         scores, as `cefito evaluate` writes them
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import steps_text
from cefito.errors import ConfigError, DataError, RunError, is_out_of_memory
from cefito.files import write_json
from cefito.parts.bundle import unpacked
from cefito.parts.coverage import COVERAGE_FILE, Coverage, weights_digest
from cefito.parts.folder import (
    MANIFEST,
    RUN_FILE,
    VIDEOS_FILE,
    Manifest,
    RunInfo,
    TrainedVideos,
    checked_contents,
    chosen_run,
    recorded,
    trained_videos,
    unfolded,
    video_ids,
)
from cefito.planners.base import Planner
from cefito.planners.base_planner import plans_lengths
from cefito.planners.methods import METHODS, RunConfig, find_method, method_settings, run_config
from cefito.planners.shared.settings import PlanningConfig
from cefito.recognition.methods import RECOGNISERS
from cefito.runtime import pick_device
from cefito.search.settings import search_settings
from cefito.settings import Settings, validated
from cefito.training.trainer import TrainingContext
from cefito.verification.settings import VerifierConfig

if TYPE_CHECKING:
    from cefito.recognition.recogniser import Recogniser, Recognition
    from cefito.verification.verifier import Verifier

_TAXONOMY = "taxonomy.json"
_ALWAYS = (RUN_FILE, _TAXONOMY, VIDEOS_FILE)  # read on opening
_BESIDE = ("recogniser", "verifier", "coverage")  # parts beside the planner
_REMEDY = "Train it again."

# raised on files that were edited by hand
_MALFORMED = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)

logger = logging.getLogger(__name__)

Opened = TypeVar("Opened")


class Opening(Generic[Opened]):
    """Opens a part once, in whichever thread uses it first; a failure is raised by each use."""

    def __init__(self, read: Callable[[], Opened]) -> None:
        self._read: Callable[[], Opened] | None = read
        self._lock = Lock()
        self._part: Opened

    def __call__(self) -> Opened:
        """Return the part."""
        with self._lock:
            if self._read is not None:
                self._part = self._read()
                self._read = None  # what it was read from is no longer kept
        return self._part


class Part(Generic[Opened]):
    """A field of a dataclass that holds a part, or its `Opening` until it is used.

    `vars` of an object give the field as it is held.

    Args:
        default: Its default, of which there may be one at most.
    """

    def __init__(self, *default: Opened) -> None:
        self._default = default

    def __set_name__(self, kind: type, name: str) -> None:
        """Keep the name of the field."""
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Opened:
        """Return the part, opened."""
        if owner is None:
            if not self._default:
                raise AttributeError(self._name)
            return self._default[0]
        held: Opened | Opening[Opened] = vars(owner)[self._name]
        return held() if isinstance(held, Opening) else held

    def __set__(self, owner: Any, part: Opened | Opening[Opened]) -> None:
        """Hold a part."""
        vars(owner)[self._name] = part


@dataclass(frozen=True, kw_only=True)
class OpenedRun:
    """All files of a finished run as they were on opening, whatever becomes of its folder.

    `cefito.runs.run.Run` answers questions beside. Planner, settings, recogniser, verifier and
    coverage are opened when they are first used: only then a file that is whole but not of this
    version is refused (RunError).
    """

    folder: Path
    planner: Part[Planner] = Part()
    info: RunInfo  # content of `run.json`
    config: Part[RunConfig] = Part()
    taxonomy: Taxonomy  # tasks and actions that it knows
    # shortest and longest plan, if they are fewer than it was trained for; see `with_steps`
    chosen_steps: tuple[int, int] | None = None
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each; empty if unknown
    videos: TrainedVideos | None = None  # that it has seen; None if unknown
    # thresholds of its sets; None if it is not calibrated
    coverage: Part[Coverage | None] = Part(None)
    # of steps in whole videos, and of errors in them; None without one
    recogniser: Part[Recogniser | None] = Part(None)
    verifier: Part[Verifier | None] = Part(None)
    copy_of: str = ""  # the archive that its folder is a copy of

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        horizon: int | None = None,
        device: torch.device | str | None = None,
        plans: bool = True,
    ) -> Self:
        """Open a finished run; arguments and errors as of `cefito.open_run`."""
        place = Path(folder)
        chosen = chosen_run(unpacked(place) if place.is_file() else place, horizon)
        copy_of = "" if chosen.is_relative_to(folder) else str(folder)
        named = copy_of or str(chosen)
        contents, manifest = checked_contents(chosen, (RUN_FILE, _TAXONOMY), named)
        always = {name: contents[name] for name in _ALWAYS if name in contents}
        with unfolded(always, named) as copies:
            info, videos = RunInfo.read(copies), trained_videos(copies)
            several = info.shortest is not None and horizon is not None
            if horizon not in (None, info.horizon) and not several:
                raise RunError(
                    f"{copies}: plans {info.horizon} actions, not {horizon}. Leave the horizon "
                    "out, or train a run of this one.",
                    setting="horizon",
                )
            with _of_this_version(named):
                taxonomy = Taxonomy.read(copies / _TAXONOMY)
        # a device that is not given is not looked for
        context = TrainingContext(device="cpu" if device is None else pick_device(str(device)))
        run = cls(
            folder=chosen,
            info=info,
            taxonomy=taxonomy,
            videos=videos,
            copy_of=copy_of,
            files=manifest.files,
            **_parts(info, taxonomy, context, contents, named),
        )
        if plans:
            _ = run.config
        return run if horizon is None or not several else run.with_steps(horizon, horizon)

    def written(self) -> Self:
        """Write all files into the run's folder, which exists, and their manifest."""
        self.check_own()
        with recorded(self.folder):
            if self.videos is not None:
                self.videos.write(self.folder / VIDEOS_FILE)
            if self.coverage is not None:
                self.coverage.save(self.folder)
            self.planner.save(self.folder)
            if self.recogniser is not None:
                self.recogniser.save(self.folder)
            if self.verifier is not None:
                self.verifier.save(self.folder)
            write_json(self.folder / _TAXONOMY, self.taxonomy.to_dict())
            self.info.write(self.folder)
        return self.changed(files=Manifest.read(self.folder / MANIFEST).files)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.method!r}, T = {self.steps}, data set "
            f"{self.info.dataset.name!r}, in "
            f"{self.place!r})"
        )

    def changed(self, **changes: Any) -> Self:
        """Return the run with other fields; its parts stay closed until they are used."""
        held = {field.name: vars(self)[field.name] for field in fields(self)}
        return type(self)(**{**held, **changes})

    def opened(self) -> Self:
        """Return the run with all its parts opened, for a service that must not fail later."""
        _ = self.planner, self.recogniser, self.verifier, self.coverage
        return self

    @property
    def place(self) -> str:
        """What was opened, for messages: the archive, else the folder."""
        return self.copy_of or str(self.folder)

    @property
    def method(self) -> str:
        """Name of the planner's method."""
        return self.info.method

    @property
    def horizon(self) -> int:
        """T that it was trained for."""
        return self.info.horizon

    @property
    def shortest(self) -> int | None:
        """Number of steps of the shortest plan; None if all plans have T."""
        return self.info.shortest

    @property
    def steps(self) -> str:
        """Number of steps of its plans, such as "3" or "1-6"."""
        return steps_text(self.horizon, self.shortest)

    def with_steps(self, shortest: int, longest: int) -> Self:
        """Return the run with plans of fewer lengths.

        Raises:
            ConfigError: It was not trained for them.
        """
        planner = self.planner
        if not plans_lengths(planner):
            if shortest == longest == self.horizon:
                return self
            raise ConfigError(
                f"{self.place}: plans {self.horizon} steps. Train a run of several "
                "lengths for this (method any-length).",
                setting="steps",
            )
        several = {} if shortest == longest else {"shortest": shortest}
        kept = self.info.model_dump(exclude_unset=True, exclude={"shortest"})
        info = RunInfo.model_validate({**kept, "horizon": longest, **several})
        planner = planner.with_lengths(shortest, longest)
        return self.changed(planner=planner, info=info, chosen_steps=(shortest, longest))

    def trained_on(self, dataset: PreparedDataset, videos: ArrayLike) -> bool | None:
        """Return whether it was trained on any of these videos [n]; None if that is unknown."""
        if self.videos is None:
            return None
        return bool(self.videos.learned(video_ids(dataset, videos)).any())

    def check_own(self) -> None:
        """Refuse a run whose folder is a copy in a cache, before anything is written there."""
        if self.copy_of:
            raise RunError(
                f"{self.copy_of}: is a shared run, which stays as it is. Unpack it into a folder "
                "first, as by unzip."
            )

    def recognise(
        self,
        rows: NDArray[np.floating[Any]],
        *,
        rate: float | None = None,
        task: int | None = None,
        plan: Sequence[int] | None = None,
        doubt: bool = False,
    ) -> Recognition:
        """Recognise the steps of a whole video by its rows [n, D]; see `Recogniser.recognise`.

        Raises:
            RunError: The run has no recogniser.
        """
        recogniser = self.own_recogniser
        return recogniser.recognise(rows, rate=rate, task=task, plan=plan, doubt=doubt)

    @property
    def own_recogniser(self) -> Recogniser:
        """The recogniser; a run without one is refused (RunError)."""
        if self.recogniser is None:
            problem = "cannot recognise steps: its data set held no rows of whole videos"
            remedy = "Prepare it with features, and train again, without --no-recogniser"
            raise RunError(f"{self.place}: {problem}, or it was trained without them. {remedy}.")
        return self.recogniser

    @property
    def own_verifier(self) -> Verifier:
        """The verifier; a run without one is refused (RunError)."""
        if self.verifier is None:
            problem = "knows no orders of steps, since it plans one number of steps"
            raise RunError(f"{self.place}: {problem}. Train one of several (--steps 1-6).")
        return self.verifier

    def energy(self, start: torch.Tensor, goal: torch.Tensor, plans: torch.Tensor) -> torch.Tensor:
        """Return the energies of plans [B], differentiable in the observations; low ones are good.

        Args:
            start: Observations before the first step [B, E].
            goal: Observations after the last step [B, E].
            plans: Ids of the actions [B, T].

        Raises:
            RunError: The run has no energy field.
            ConfigError: Other shapes, or ids that the run does not know.
        """
        field = getattr(self.planner, "field", None)
        if field is None:
            raise RunError(f"{self.place}: has no energy field. Train one by --method cefito.")
        start, goal, plans = map(torch.as_tensor, (start, goal, plans))
        wide, long = (len(plans), self.planner.observation_dim), (len(plans), self.horizon)
        if (start.shape, goal.shape, plans.shape) != (wide, wide, long):
            raise ConfigError(f"expected observations {list(wide)} and plans {list(long)}.")
        actions = torch.arange(len(self.taxonomy.actions))
        if plans.dtype != torch.int64 or not torch.isin(plans.cpu(), actions).all():
            raise ConfigError("expected ids of actions that the run knows, int64.")
        energies: torch.Tensor = field.energy(start, goal, plans)
        return energies

    def calibrated(self) -> Coverage:
        """Return the thresholds of its sets.

        Raises:
            RunError: It has none, or those of other weights.
        """
        table, path = self.coverage, self.folder / COVERAGE_FILE
        if table is None and path.exists():  # calibrated since it was opened
            table = Coverage.load(self.folder)
        if table is None:
            raise RunError(
                f"{self.place}: has no calibrated sets of plans. Make them with cefito calibrate "
                f"{self.place}.",
                setting="coverage",
            )
        if table.weights != weights_digest(self.files):
            raise RunError(
                f"{self.place}: {path.name} was made for other weights than the run has. "
                f"{Coverage.remedy}",
                setting="coverage",
            )
        return table

    @property
    def settings(self) -> Settings:
        """The settings of its planner."""
        return cast("Settings", self.config.settings)

    @property
    def trained_search(self) -> PlanningConfig | None:
        """Settings of the search that it was trained with; None if its method has no search."""
        if not self.planner.abilities.search:
            return None
        search = getattr(self.settings, "search", None)
        return search if isinstance(search, PlanningConfig) else PlanningConfig()

    def with_search(self, settings: PlanningConfig | None = None, /, **changes: Any) -> Self:
        """Return the run with a planner that searches in another way.

        Args:
            settings: Settings of the search; by default those that it was trained with.
            changes: Settings to replace among these; None keeps one.

        Raises:
            ConfigError: Its planner has no search to choose, or settings that do not fit.
        """
        settings = search_settings(settings or self.trained_search or PlanningConfig(), **changes)
        return self.changed(planner=self.planner.with_search(settings))

    def dataset(self, path: Path | str | None = None) -> PreparedDataset:
        """Open the data set that the run was trained on, or any other at `path`.

        `cefito.parts.matching.match_dataset` checks whether the run can be used on it.

        Raises:
            RunError: No path is given, and the data set has moved or changed; or the weights are
                imported and have none.
            DataError: It cannot be opened.
        """
        trained = self.info.dataset
        if path is not None:
            return open_dataset(path)
        place, problem = Path(trained.path), ""
        if not trained.fingerprint:
            problem = "was imported and has no data set of its own. Name one of the same tasks"
        elif not (trained.path and place.exists()):
            problem = f"its data set is no longer at {trained.path or 'hand'}. Give its folder"
        elif (present := open_dataset(place)).fingerprint != trained.fingerprint:
            problem = (
                f"was trained on another data set than the one that is at {place} now "
                f"('{present.name}', fingerprint {present.fingerprint[:12]}…; the run has "
                f"{trained.fingerprint[:12]}…). Give its folder"
            )
        else:
            return present
        raise RunError(f"{self.place}: {problem}.", setting="dataset")


def _parts(
    info: RunInfo,
    taxonomy: Taxonomy,
    context: TrainingContext,
    contents: Mapping[str, bytes],
    named: str,
) -> dict[str, Any]:
    """Return the parts of a run with these files, closed; errors name the run as `named`."""
    place = f"{named}/{RUN_FILE}"
    config = Opening(lambda: _config_of(info, place))

    def planner(copies: Path) -> Planner:
        settings = config().settings
        return find_method(info.method).planner.load(copies, settings=settings, context=context)

    def recogniser(copies: Path) -> Recogniser:
        name = info.config.get("recogniser", {}).get("method", "segmental")
        return RECOGNISERS.named(name, "recogniser.method").kind.load(copies, taxonomy)

    def verifier(copies: Path) -> Verifier:
        from cefito.verification.verifier import Verifier  # of few commands

        section = info.config.get("verifier", {})
        settings = validated(VerifierConfig, section, place=place, extra="ignore")
        return Verifier.load(copies, taxonomy, config=settings)

    def coverage(copies: Path) -> Coverage:
        return Coverage.load(copies)

    files: dict[str, dict[str, bytes]] = {"planner": {}}
    for name, data in contents.items():
        if name not in _ALWAYS:
            stem = name.partition(".")[0]
            files.setdefault(stem if stem in _BESIDE else "planner", {})[name] = data
    loads = {
        "planner": planner,
        "recogniser": recogniser,
        "verifier": verifier,
        "coverage": coverage,
    }
    parts = {
        name: Opening(partial(_opened, own, named, loads[name])) for name, own in files.items()
    }
    return {"config": config, **parts}


def _config_of(info: RunInfo, place: str) -> RunConfig:
    """Return the settings in `run.json`, at `place` (RunError if planning cannot use them)."""
    if info.package is not None and info.method not in METHODS:
        package = f"{info.package} {info.versions.get(info.package, '')}".rstrip()
        raise RunError(
            f"{place}: its method '{info.method}' is of the package {package}, which is not "
            "installed. Install it."
        )
    if info.code not in ("", METHODS.code(info.method)):
        logger.warning(
            "%s: the code of the package %s has changed since its training, and plans as it is now",
            *(place, info.package),
        )
    try:
        settings = method_settings(info.method, info.config, place="settings of the run")
        values = {**info.config, **settings.model_dump(mode="json")}
        return run_config(info.method, info.preset, values, place=place, extra="ignore")
    except ConfigError as problem:
        reason = str(problem).removeprefix("settings of the run: ").rstrip(".")
        raise RunError(f"{place}: not a run of this version ({reason}). {_REMEDY}") from problem


def _opened(files: Mapping[str, bytes], named: str, load: Callable[[Path], Any]) -> Any:
    """Load a part of a run from its files."""
    # networks that are built draw from the global generator
    seeded = torch.random.fork_rng(devices=[])
    with unfolded(files, named) as copies, seeded, _of_this_version(str(copies)):
        return load(copies)


@contextmanager
def _of_this_version(place: str) -> Iterator[None]:
    """Turn what malformed files raise into a RunError."""
    try:
        yield
    except (ConfigError, DataError, *_MALFORMED) as problem:
        if is_out_of_memory(problem):
            raise MemoryError(f"the run's planner does not fit: {problem}") from problem
        reason = f"they lack {problem}" if isinstance(problem, KeyError) else repr(problem)
        raise RunError(
            f"{place}: its files are not of this version ({reason}). {_REMEDY}"
        ) from problem
