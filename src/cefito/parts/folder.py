"""What a run folder holds beside its planner: `run.json`, `videos.json`, and the manifest.

The manifest has the hash of every file for planning, checked on opening. A folder may also hold one
run for each of several horizons, in T3, T4, ….
"""

from __future__ import annotations

import hashlib
import platform
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field

from cefito.data.prepared import PreparedDataset
from cefito.data.sensors import SensorRecipe, recipe_of
from cefito.data.windows import Errors, Selection, Windows
from cefito.errors import CefitoError, RunError, explained
from cefito.files import FileRecord, file_digest, read_json, value_digest, write_json
from cefito.markup import listed
from cefito.settings import Record, read_record
from cefito.training.settings import TrainingResult

if TYPE_CHECKING:
    from cefito.planners.base import Planner

RUN_FILE = "run.json"
_REMEDY = "Remove the folder and train it again."


class DatasetReference(Record):
    """The data set of a run."""

    name: str
    path: str  # empty for imported weights
    fingerprint: str  # empty for imported weights
    observed: dict[str, Any] | None = None  # how its observations were made, if known
    simulation: dict[str, Any] | None = None  # how they were simulated, if they were
    rows: str | None = None  # `PreparedDataset.rows_digest`, if a recogniser was trained on them

    @classmethod
    def of(cls, dataset: PreparedDataset) -> DatasetReference:
        """Describe an opened data set."""
        provenance, simulated = dataset.provenance, dict[str, Any]()
        if provenance.get("observations") == "simulated":
            knobs = provenance.get("knobs") or {}
            knobs = knobs.get("observations", knobs) if isinstance(knobs, dict) else knobs
            simulated["simulation"] = {"seed": provenance.get("seed"), "knobs": knobs}
        return cls(
            name=dataset.name,
            path=str(dataset.folder.resolve()),
            fingerprint=dataset.fingerprint,
            observed=provenance.get("observed"),
            **simulated,
        )

    @property
    def recipe(self) -> SensorRecipe | None:
        """How rows were made of tables of sensors (DataError if damaged); None if they were not."""
        features = (self.observed or {}).get("features") or {}
        return recipe_of(features["sensors"]) if "sensors" in features else None

    def made(self) -> dict[str, Any]:
        """Return how its observations were made; empty if unknown.

        `seconds` and `features` if made from videos, `simulation` if simulated: all that decides
        how an action looks, apart from the choice of videos.
        """
        simulated = {} if self.simulation is None else {"simulation": self.simulation}
        return {**(self.observed or {}), **simulated}


class StartReference(Record):
    """The run that a finetuned one began with."""

    folder: str
    dataset: DatasetReference  # data set that it was trained on
    seed: int | None  # None for imported weights
    weights: str  # SHA-256 over the files of its planner
    new_tasks: int = 0  # added to its vocabulary
    new_actions: int = 0


class RunInfo(Record):
    """Content of `run.json`; entries that were never set are left out."""

    format_version: Literal[1] = 1
    method: str = "cefito"
    package: str | None = None  # that has the method, if it is another one than cefito
    code: str = ""  # digest of the code of that package; empty for earlier runs
    dataset: DatasetReference  # data set that it was trained on
    horizon: int  # the longest plan, if there are several lengths
    shortest: int | None = None  # the shortest plan of a run of several lengths
    seed: int | None  # None for imported weights, as the selection
    selection: Selection | None = "held-out"
    errors: Errors = "keep"  # what was left out of training
    options: dict[str, Any] = Field(default_factory=dict)  # others of its training, if not usual
    preset: str
    config: dict[str, Any]  # sections of settings that its method reads
    versions: dict[str, str] = Field(default_factory=dict)
    finished: bool = False
    windows: dict[str, int] = Field(default_factory=dict)  # by split
    parameters: dict[str, int] = Field(default_factory=dict)  # by network
    training: dict[str, TrainingResult] = Field(default_factory=dict)  # by network
    tasks_without_training: tuple[int, ...] = ()  # if plans keep to the actions of a task
    imported: dict[str, Any] | None = None  # files that weights were imported from
    started_from: StartReference | None = None  # if it was finetuned

    @classmethod
    def read(cls, folder: Path) -> RunInfo:
        """Read it from a run folder."""
        path = folder / RUN_FILE
        remedy = "Expected a run folder as cefito train makes it."
        inside = ("*/run", "*/*/runs/*")  # of quickstarts, comparisons
        if not path.exists() and (
            below := sorted(one for place in inside for one in folder.glob(f"{place}/{RUN_FILE}"))
        ):
            remedy = f"Give a run below it: {listed([str(one.parent) for one in below], most=3)}."
        value = read_json(path, remedy, RunError)
        newer = value.get("format_version") if isinstance(value, dict) else None
        if type(newer) is int and newer > 1:
            said = f"format_version {newer} was written by a newer cefito; this one reads 1"
            raise RunError(f"{path}: {said}. Update cefito.")
        return read_record(cls, value, f"{path}: not a run of this version", _REMEDY)

    def write(self, folder: Path) -> None:
        """Write it into a run folder."""
        write_json(folder / RUN_FILE, self.model_dump(mode="json", exclude_unset=True))


def window_sizes(
    planner: Planner | type[Planner], horizon: int, shortest: int | None
) -> dict[str, Any]:
    """Arguments of `cut_windows` for a planner: lengths from `shortest` if it plans several."""
    several = planner.abilities.any_length
    return {"horizon": horizon, "shortest": (shortest or horizon) if several else None}


def versions(package: str | None = None) -> dict[str, str]:
    """Return the versions of the software that a run is made with, and of its method's package."""
    more = {} if package is None else {package: version(package)}
    return {
        **more,
        "cefito": version("cefito"),
        "torch": version("torch"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


MANIFEST = "manifest.json"
_INTACT = "Copy the run again from an intact source, or train it again."


def _plain(name: str) -> str:
    if Path(name).name != name or "\\" in name or name.startswith(".") or set(name) & set("*?["):
        raise ValueError("expected the name of a file beside it")
    return name


_Name = Annotated[str, AfterValidator(_plain)]


class Manifest(FileRecord):
    """Content of `manifest.json`."""

    what: ClassVar[str] = "manifest"
    remedy: ClassVar[str] = _INTACT

    format_version: Literal[1] = 1
    files: dict[_Name, str]  # SHA-256 of each file of the run, by its name
    # bytes of each, compared before anything is hashed
    sizes: dict[_Name, int] = Field(default_factory=dict)


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Write the manifest of all files that are written into a folder within the context.

    It is written last. Files of an earlier manifest that are not written again stay in it; if the
    context ends early, that manifest makes opening refuse the folder.
    """
    before = _states(folder)
    kept = Manifest.read(folder / MANIFEST).files if MANIFEST in before else {}
    yield
    now = _states(folder)
    files = {name: digest for name, digest in kept.items() if name in now}
    files |= {name: file_digest(folder / name) for name in now if before.get(name) != now[name]}
    sizes = {name: (folder / name).stat().st_size for name in files}
    manifest = Manifest(files=dict(sorted(files.items())), sizes=dict(sorted(sizes.items())))
    manifest.write(folder / MANIFEST)


def _states(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of each file of a folder by its name, to see which were replaced."""
    files = {path.name: path.stat() for path in folder.iterdir() if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in files.items()}


def check_manifest(folder: Path, needed: tuple[str, ...]) -> Manifest:
    """Check that the files of a finished run are as they were written; return its manifest."""
    return _checked(folder, needed, file_digest)


def checked_contents(
    folder: Path, needed: tuple[str, ...], place: str
) -> tuple[dict[str, bytes], Manifest]:
    """Read the files of a run, so that what is used is what was checked.

    A run that is replaced meanwhile, or later, changes nothing.

    Args:
        folder: The run folder.
        needed: Files that must be there.
        place: What the user opened, which errors name instead of the folder.
    """
    contents: dict[str, bytes] = {}

    def digest(path: Path) -> str:
        contents[path.name] = path.read_bytes()
        return hashlib.sha256(contents[path.name]).hexdigest()

    copied = explained(place, "cannot be copied", "", error=RunError)
    with _naming(place, folder), copied:
        return contents, _checked(folder, needed, digest)


def _checked(folder: Path, needed: tuple[str, ...], digest: Callable[[Path], str]) -> Manifest:
    path = folder / MANIFEST
    if not path.exists():
        if not RunInfo.read(folder).finished:
            remedy = "Continue it by the same cefito train command."
            raise RunError(f"{folder}: its training has not finished. {remedy}")
        raise RunError(f"{path}: no such file. {_INTACT}")
    manifest = Manifest.read(path)
    for name in needed:
        if name not in manifest.files:
            raise RunError(f"{path}: lists no hash of {name}. {_INTACT}")
    for name, expected in manifest.files.items():
        file = folder / name
        if not file.is_file():
            raise RunError(f"{file}: no such file, but {path} lists it. {_INTACT}")
        size = file.stat().st_size
        resized = size != manifest.sizes.get(name, size)
        if resized or digest(file) != expected:
            what = "size" if resized else "SHA-256"
            raise RunError(
                f"{file}: has changed since the run was written (its {what} differs from "
                f"{MANIFEST}). {_INTACT}"
            )
    return manifest


@contextmanager
def unfolded(contents: Mapping[str, bytes], place: str) -> Iterator[Path]:
    """Write files into a temporary folder to read them there; errors name `place` instead of it."""
    with tempfile.TemporaryDirectory(prefix="cefito-run-") as temporary:
        folder = Path(temporary)
        with _naming(place, folder):
            with explained(place, "cannot be copied", "", error=RunError, writes=True):
                for name, data in contents.items():
                    (folder / name).write_bytes(data)
            yield folder


@contextmanager
def _naming(place: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except CefitoError as problem:
        text = str(problem).replace(str(folder), place)
        raise type(problem)(text, setting=problem.setting) from problem


VIDEOS_FILE = "videos.json"


class TrainedVideos(FileRecord):
    """Ids of the videos that a run has seen, or their digests in a run that was shared."""

    what: ClassVar[str] = "list of videos"
    remedy: ClassVar[str] = "Train the run again, or remove the file."

    train: tuple[str, ...]  # videos that it was trained on
    val: tuple[str, ...]  # videos on whose windows epochs and weights were chosen

    @classmethod
    def of(cls, dataset: PreparedDataset, train: Windows, val: Windows) -> TrainedVideos:
        """Collect the videos of windows of a data set."""
        learned = video_ids(dataset, train.video)
        chosen = (name for name in video_ids(dataset, val.video) if name not in set(learned))
        return cls(train=learned, val=tuple(chosen))

    def with_more(self, other: TrainedVideos) -> TrainedVideos:
        """Return the videos of both; one that either was trained on counts as trained on."""
        train = {*self.train, *other.train}
        return TrainedVideos(
            train=tuple(sorted(train)), val=tuple(sorted({*self.val, *other.val} - train))
        )

    def learned(self, ids: Iterable[str]) -> NDArray[np.bool_]:
        """Return which of these ids [n] are of videos that it was trained on."""
        return _among(self.train, ids)

    def known(self, ids: Iterable[str]) -> NDArray[np.bool_]:
        """Return which of these ids [n] are of videos that it has seen in any way."""
        return _among((*self.train, *self.val), ids)

    def shared(self) -> TrainedVideos:
        """Return the digests of the ids, since an id may name a person or a place."""
        return TrainedVideos(
            train=tuple(sorted(map(_digested, self.train))),
            val=tuple(sorted(map(_digested, self.val))),
        )


_DIGEST = "sha256:"


def _digested(video: str) -> str:
    return video if video.startswith(_DIGEST) else _DIGEST + value_digest(video)


def _among(seen: Collection[str], ids: Iterable[str]) -> NDArray[np.bool_]:
    digests = set(map(_digested, seen))
    return np.array([_digested(video) in digests for video in ids], dtype=np.bool_)


def trained_videos(folder: Path) -> TrainedVideos | None:
    """Return the videos that the run in a folder has seen; None if unknown (imported weights)."""
    path = folder / VIDEOS_FILE
    return TrainedVideos.read(path) if path.exists() else None


def video_ids(dataset: PreparedDataset, videos: ArrayLike) -> tuple[str, ...]:
    """Return the ids of videos [n] of a data set, each once."""
    listed = dataset.videos
    return tuple(listed[video].video_id for video in np.unique(videos))


_NAME = re.compile(r"T([1-9][0-9]{0,3})")


def horizons_in(folder: Path) -> dict[int, Path]:
    """Return the runs of several horizons in a folder, by ascending horizons.

    Empty if the folder is a run itself, or has none.
    """
    if not folder.is_dir() or (folder / RUN_FILE).exists():
        return {}
    folders = {
        int(name[1]): path
        for path in folder.iterdir()
        if (name := _NAME.fullmatch(path.name)) and (path / RUN_FILE).is_file()
    }
    return dict(sorted(folders.items()))


def chosen_run(folder: Path, horizon: int | None = None) -> Path:
    """Return the run folder in a folder: itself, or the run of a horizon (or the only one)."""
    folders = horizons_in(folder)
    if not folders:
        return folder
    if horizon is None and len(folders) == 1:
        return next(iter(folders.values()))
    if horizon is None or horizon not in folders:
        listed = ", ".join(map(str, folders))
        lacks = "" if horizon is None else f", not of {horizon}"
        raise RunError(
            f"{folder}: holds runs of the horizons {listed}{lacks}. Give one of them.",
            setting="horizon",
        )
    return folders[horizon]


def folders_for(folder: Path, horizons: Collection[int]) -> dict[int, Path]:
    """Return the folders that runs of these horizons are written to.

    One horizon takes the folder itself, several take T3, T4, … in it; so does one more for a folder
    that has several already.
    """
    if len(horizons) == 1 and not horizons_in(folder):
        return dict.fromkeys(horizons, folder)
    if folder.exists() and (not folder.is_dir() or (folder / RUN_FILE).exists()):
        what = "the run of one horizon" if folder.is_dir() else "not a folder"
        raise RunError(f"{folder}: is {what}. Choose another for several.", setting="folder")
    return {horizon: folder / f"T{horizon}" for horizon in horizons}
