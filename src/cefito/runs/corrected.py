"""Corrected films beside a run, and runs that learn from them, in one folder.

- corrected/PROJECT-TASK.json: a corrected film, a task of Label Studio
- labels.xml: a labelling configuration with the steps of the run
- films.json: SHA-256 of the films by their addresses; features/SHA-256.npy: their rows
- versions/N/data and run: the run's videos with the corrected films, and the run finetuned on them

A version is made of the run that the folder began with, so that versions do not drift. Each file
appears when it is whole; a training that was killed goes on from its checkpoint.
"""

from __future__ import annotations

import io
import logging
import shutil
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import load_npy
from cefito.data.annotations import Annotations
from cefito.data.prepared import PreparedDataset, open_dataset, write_dataset
from cefito.data.readers.assemble import prepare
from cefito.data.readers.step_source import source_of
from cefito.data.timeline import Timeline
from cefito.errors import DataError, RunError
from cefito.files import file_names, read_json, sha256, write_bytes, write_json
from cefito.inference.recordings import Recording
from cefito.parts.folder import RUN_FILE, RunInfo
from cefito.parts.matching import check_observed, extended_taxonomy, match_vocabulary
from cefito.runs.finetune import finetune
from cefito.runs.run import Run, open_run
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.formats.label_studio import Tags, configuration
from cefito.tracks.reading import Tracks, read

logger = logging.getLogger(__name__)

_REMEDY = "Choose another folder of corrected films, or restore this file."
_LEARNED = "corrected"  # in the provenance of a data set: films by key, as digests of their files


class CorrectedFilms:
    """The folder.

    Args:
        folder: Made if absent; one process at a time uses it.
        start: Run that versions are finetuned from.
        videos: Its data set.

    Raises:
        RunError: The folder holds rows of another encoder than the run's, or cannot be written.
    """

    def __init__(self, folder: Path, start: Run, videos: PreparedDataset) -> None:
        self.folder, self.start, self.videos = folder, start, videos
        self._lock = threading.Lock()
        self._records, self._rows = folder / "corrected", folder / "features"
        self._addresses = folder / "films.json"
        for place in (self._records, self._rows):
            place.mkdir(parents=True, exist_ok=True)
        made, record = (start.info.dataset.observed or {}).get("features"), "extract.json"
        path = self._rows / record
        if path.exists() and read_json(path, _REMEDY) != made:
            other = "holds rows of another encoder than the run's"
            raise RunError(f"{folder}: {other}. Choose another folder of corrected films.")
        if made is not None:
            write_json(path, made)
        self.labels = folder / "labels.xml"
        names = (action.name for action in start.taxonomy.actions)
        write_bytes(self.labels, configuration(names).encode())
        self._films: dict[str, str] = {}
        if self._addresses.exists():
            self._films = dict(read_json(self._addresses, _REMEDY))

    def film(self, address: str) -> str | None:
        """Return the SHA-256 of the film at an address, if its rows are kept."""
        digest = self._films.get(address)
        return digest if digest and self._path(digest).exists() else None

    def rows(self, digest: str) -> NDArray[np.float32] | None:
        """Return the rows [n, D] of a film; None if they are not kept, or damaged."""
        with suppress(DataError):
            return load_npy(self._path(digest)).astype(np.float32)
        return None

    def keep_rows(self, address: str, digest: str, rows: NDArray[np.float32] | None) -> None:
        """Keep the rows of a film, unless they are None, and its digest (RunError).

        Args:
            address: Address of the film.
            digest: SHA-256 of its file.
            rows: Its rows [n, D].
        """
        if rows is not None:
            buffer = io.BytesIO()
            np.save(buffer, rows)
            write_bytes(self._path(digest), buffer.getvalue())
        with self._lock:
            if self._films.get(address) != digest:
                films = {**self._films, address: digest}
                write_json(self._addresses, films)
                self._films = films

    def _path(self, digest: str) -> Path:
        return self._rows / f"{digest}.npy"

    def keep(
        self, project: str, task: Mapping[str, Any], annotation: Mapping[str, Any], tags: Tags
    ) -> None:
        """Write an annotation of a film down; one that was cancelled, or is empty, goes.

        Args:
            project: Id of the project.
            task: The task, with its data.
            annotation: The annotation, of an id.
            tags: Tags of its labelling configuration.

        Raises:
            RunError: The file cannot be written; its content is as before.
            ValueError: Values that JSON cannot hold.
        """
        key = f"{project}-{task['id']}"
        path = self._records / f"{file_names([key])[key]}.json"
        with self._lock:
            before = self._record(path)["annotations"] if path.exists() else []
            kept = [entry for entry in before if entry.get("id") != annotation.get("id")]
            if annotation.get("result") and not annotation.get("was_cancelled"):
                kept.append(dict(annotation))
            data = {**task["data"]}
            data.setdefault("frameRate", tags.rate(data))
            film = {"address": data.get(tags.entry), "control": tags.control, "project": project}
            self._write(path, {"id": task["id"], "data": data, **film, "annotations": kept})

    def remove(self, annotations: Collection[int], tasks: Collection[int] = ()) -> None:
        """Remove annotations, and those of tasks, by their ids."""
        with self._lock:
            for path in self._records.glob("*.json"):
                record = self._record(path)
                left = [] if record["id"] in tasks else record["annotations"]
                kept = [entry for entry in left if entry.get("id") not in annotations]
                if len(kept) < len(record["annotations"]):
                    self._write(path, {**record, "annotations": kept})

    def _record(self, path: Path) -> dict[str, Any]:
        value: dict[str, Any] = read_json(path, _REMEDY)
        return value

    def _write(self, path: Path, record: Mapping[str, Any]) -> None:
        if record["annotations"]:
            write_json(path, record)
        else:
            path.unlink(missing_ok=True)

    @property
    def corrected(self) -> dict[str, str]:
        """Digest of each corrected film's file, by its key."""
        with self._lock:
            return {path.stem: sha256(path) for path in sorted(self._records.glob("*.json"))}

    @property
    def learned(self) -> dict[str, str]:
        """The corrected films of the newest data set, likewise."""
        numbers = self._versions()
        if not numbers:
            return {}
        header = read_json(self._data(numbers[-1]) / "dataset.json", _REMEDY)
        learned: dict[str, str] = header["provenance"][_LEARNED]
        return learned

    @property
    def new(self) -> int:
        """Number of films that were corrected since the newest data set was made."""
        return len(self.corrected.items() - self.learned.items())

    @property
    def unread(self) -> dict[str, str]:
        """Project of each address of a corrected film whose rows are not kept."""
        with self._lock:
            records = [self._record(path) for path in self._records.glob("*.json")]
        places = {str(record["address"]): str(record["project"]) for record in records}
        return {place: project for place, project in places.items() if not self.film(place)}

    def _versions(self) -> list[int]:
        """Numbers of the versions with a data set, ascending."""
        places = (self.folder / "versions").glob("[0-9]*/data/dataset.json")
        return sorted(int(path.parts[-3]) for path in places)

    def _data(self, number: int) -> Path:
        return self.folder / "versions" / str(number) / "data"

    def run(self, number: int) -> Path:
        """Return the folder of the run of a version."""
        return self.folder / "versions" / str(number) / "run"

    def _is_finished(self, number: int) -> bool:
        folder = self.run(number)
        return (folder / RUN_FILE).exists() and RunInfo.read(folder).finished

    @property
    def version(self) -> int:
        """The newest version whose run is finished; 0 for the run that it began with."""
        return max(filter(self._is_finished, self._versions()), default=0)

    @property
    def unfinished(self) -> int | None:
        """The newest version, if its run is not finished."""
        numbers = self._versions()
        return numbers[-1] if numbers and not self._is_finished(numbers[-1]) else None

    def clear(self) -> None:
        """Remove the versions but the newest, and the newest finished one."""
        *older, _ = self._versions() or [0]
        for number in older:
            if number != self.version:
                shutil.rmtree(self.folder / "versions" / str(number), ignore_errors=True)

    def prepare(self, problems: Mapping[str, str] | None = None) -> int:
        """Make the data set of a new version, also in place of one that failed; return its number.

        Args:
            problems: Why films could not be read, by their addresses.

        Raises:
            DataError: No corrected film is new and can be used.
        """
        tracks, films = list[Track](), dict[str, tuple[str, ...]]()
        learned, left_out = dict[str, str](), list[str]()
        for key, digest in self.corrected.items():
            try:
                film, track = self._track(self._records / f"{key}.json", problems or {})
            except DataError as problem:
                left_out.append(f"{key}: {problem}")
                continue
            if track.video not in films:  # else the film is also of another task
                tracks.append(track)
            films[track.video], learned[key] = (film,), digest
        for reason in left_out:
            logger.warning("a corrected film is left out: %s", reason)
        if not learned.items() - self.learned.items():
            first = f": {left_out[0]}" if left_out else "."
            raise DataError(f"{self.folder}: no corrected film is new and can be used{first}")
        names = tuple(dict.fromkeys(step.name for track in tracks for step in track.steps))
        made = Tracks(tuple(tracks), names, "corrected films", "Label Studio", ())
        source = replace(source_of(made, [self._records]), names=films)
        observed, number = self.videos.provenance.get("observed") or {}, 1
        options = {key: observed[key] for key in ("seconds", "precision") if key in observed}
        options["beyond"] = "rewrite" if observed.get("border") == "last" else "drop"
        options["row_rate"] = self.videos.timeline.rate if self.videos.timeline else None
        with TemporaryDirectory() as place:
            more = prepare(source, self._rows, Path(place) / "data", timeline=True, **options)
            check_observed(self.start, more)
            number += max(self._versions(), default=0)
            self._data(number).parent.mkdir(parents=True, exist_ok=True)
            _write_joined(self.start, (self.videos, more), self._data(number), learned)
        self.clear()
        return number

    def _track(self, path: Path, problems: Mapping[str, str]) -> tuple[str, Track]:
        """Return the SHA-256 of a corrected film, and its steps; its task is recognised if need be.

        Raises:
            DataError: The film was not encoded, or its annotation holds no steps.
        """
        record = self._record(path)
        film = self.film(str(record["address"]))
        rows = None if film is None else self.rows(film)
        if film is None or rows is None:
            problem = problems.get(str(record["address"]))  # none if it was corrected meanwhile
            fault = f"could not be read: {problem}" if problem else "is not encoded yet."
            raise DataError(f"the film {record['address']} {fault}")
        choices = Choices(tier=record["control"])
        try:
            (track,) = read([path], choices).tracks
        except DataError as problem:
            if "task" not in problem.setting.split(", "):
                raise
            task = Recording(path.stem, str(path), rows, 1.0).recognised(self.start).task
            (track,) = read([path], choices.model_copy(update={"task": task})).tracks
        return film, track.model_copy(
            update={"video": f"{track.video}-{film[:8]}", "split": "train"}
        )


def _write_joined(
    start: Run, datasets: tuple[PreparedDataset, ...], folder: Path, learned: Mapping[str, str]
) -> None:
    """Write the videos of data sets as one, with the tasks and actions of all and of the run."""
    taxonomy = start.taxonomy
    for dataset in datasets:
        taxonomy = extended_taxonomy(taxonomy, dataset.taxonomy)
    parts = [
        match_vocabulary(taxonomy, dataset.taxonomy).translated_dataset(dataset)
        for dataset in datasets
    ]
    lines = [dataset.timeline for dataset in datasets]
    first = lines[0]
    if first is None:
        problem = "has no rows of whole videos"
        raise DataError(f"{datasets[0].folder}: {problem}. Prepare it with --timeline.")
    videos = [video for part in parts for video in part.videos]
    write_dataset(
        folder,
        name=datasets[0].name,
        annotations=Annotations(taxonomy, tuple(videos)),
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        action_text=parts[0].action_text,
        timeline=Timeline(
            tuple(rows for line in lines if line for rows in line.videos), first.rate
        ),
        provenance={**datasets[0].provenance, _LEARNED: dict(learned)},
    )


@dataclass(frozen=True)
class Retraining:
    """The training of a version, which another process can do."""

    folder: Path  # of the corrected films
    start: Path  # run that it is finetuned from

    def __call__(self, number: int) -> None:
        """Train a version, or go on with it; errors as of `finetune`."""
        place = self.folder / "versions" / str(number)
        data = open_dataset(place / "data")
        finetune(open_run(self.start), data, place / "run", reuse=True)
