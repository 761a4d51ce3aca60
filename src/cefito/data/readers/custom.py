"""Your own annotated videos, with features or with observations made by any model.

Without a folder of features, the source folder holds `features.npz` with `start` and `end` [S, E],
one row a step, or `timeline.npz` with the rows of whole videos, [n, D] by video id, from which the
steps are observed; or both. `action_text_features.npy` [K, W], one row an action, is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cefito.arrays import load_npz
from cefito.data.action_text import read_folder_text, single
from cefito.data.prepared import PreparedDataset, check_observations, write_dataset
from cefito.data.readers.assemble import ObservationOptions
from cefito.data.readers.assemble import prepare as prepare_source
from cefito.data.readers.frame_folder import is_frame_folder, read_frame_folder
from cefito.data.readers.step_source import read_steps
from cefito.data.sensors import sensor_features
from cefito.data.source import read_common
from cefito.data.timeline import read_npz
from cefito.errors import ConfigError, DataError
from cefito.files import file_names
from cefito.locks import check_new
from cefito.progress import Progress, silent
from cefito.settings import validated
from cefito.tracks.document import Choices
from cefito.tracks.reading import file_to_read

_FEATURES_FILE = "features.npz"
_TIMELINE_FILE = "timeline.npz"
_FEATURES_REMEDY = (
    "Save `start` and `end` [S, E] with numpy.savez, one row a step, in the order of videos.jsonl "
    "and of its steps, or simulate them: cefito data simulate."
)


def prepare(
    source: Path | str | Sequence[Path | str],
    target: Path | str,
    *,
    features: Path | str | None = None,
    sensors: Path | str | None = None,
    channels: Sequence[str] | None = None,
    like: Path | str | None = None,
    name: str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> PreparedDataset:
    """Make a prepared data set of your own annotations and features.

    Args:
        source: One or several files of annotated steps: exports of annotation tools, or CSV or
            Parquet with the columns video, task, step, start, end (seconds), and optionally split
            and group; or a folder with taxonomy.json and videos.jsonl. Without `features`, the
            folder also holds finished observations, and only `name` applies. Or a folder of labels
            of frames, as of `read_frame_folder`, which has features of its own; or a LeRobot data
            set, also as `sensors`.
        target: New folder.
        features: Folder with one file a video (.npy, .npz, .pt, .h5), [seconds, D], as `cefito
            extract` writes them.
        sensors: Folder with a table of sensors a video instead, as of `sensor_features`; they have
            `feature_rate` rows a second.
        channels: Channels of sensors to keep; by default all.
        like: Data set whose channels, rate and scaling of sensors are taken.
        name: Name shown in tables; by default the one of the annotations.
        progress: Shows progress.
        options: Settings of `Choices` (`columns`, `task`, `tier`, `frame_rate`, …) for files, and
            of `ObservationOptions` (`feature_rate`, `row_rate`, `beyond`, …); `timeline` is true by
            default.

    Returns:
        The data set; with features, `provenance["preparation"]` lists what was left out.

    Raises:
        ConfigError: A setting out of range, or a table without features.
        DataError: A malformed source, features with other axes or another rate, no usable
            video, or a target that cannot be written.
    """
    paths = [Path(path) for path in ([source] if isinstance(source, Path | str) else source)]
    paths = [file_to_read(path) for path in paths]
    if sensors is None and (channels is not None or like is not None):
        setting = "like" if channels is None else "channels"
        raise ConfigError("this is of sensors. Give their folder, too.", setting=setting)
    if sensors is not None and features is not None:
        raise ConfigError("rows are made of features or of sensors. Give one.", setting="sensors")
    frames = len(paths) == 1 and is_frame_folder(paths[0])
    if sensors is features is None and (len(paths) != 1 or paths[0].is_file()):
        problem = "a table holds no observations. Give the folder with one file a video"
        raise ConfigError(f"{', '.join(map(str, paths))}: {problem}.", setting="features")
    options = {"timeline": True, **options}
    timeline = paths[0] / _TIMELINE_FILE
    if sensors is features is None and (
        timeline.exists() and not (paths[0] / _FEATURES_FILE).exists()
    ):
        annotated = read_common(paths[0])
        rows = read_npz(timeline, annotated.annotations)
        files = file_names([video.video_id for video in annotated.annotations.videos])
        annotated = replace(annotated, names={name: (file,) for name, file in files.items()})
        with TemporaryDirectory() as place:
            for file, array in zip(files.values(), rows.videos, strict=True):
                np.save(Path(place) / f"{file}.npy", array)
            options = {"feature_rate": rows.rate, "row_rate": rows.rate, **options}
            return prepare_source(annotated, place, target, name=name, progress=progress, **options)
    if sensors is features is None and not frames:
        return prepare_custom(paths[0], target, name=name, timeline=options["timeline"])
    chosen = {key: options.pop(key) for key in Choices.model_fields if key in options}
    choices = validated(Choices, chosen, place="preparation")
    folder = len(paths) == 1 and paths[0].is_dir()
    if frames:
        own = None if features is None else Path(features)
        read, defaults = read_frame_folder(paths[0], own, choices=choices, options=options)
        features, options = own or read.features, {**defaults, **options}
    else:
        read = read_common(paths[0]) if folder else read_steps(paths, choices=choices)
    if sensors is None:
        return prepare_source(
            read, Path(features or ""), target, name=name, progress=progress, **options
        )
    check_new(Path(target), name)
    recipe = validated(ObservationOptions, options, place="preparation")
    with TemporaryDirectory() as place:
        asked: dict[str, Any] = {"rate": recipe.rate, "channels": channels, "like": like}
        read, rate = sensor_features(read, Path(sensors), Path(place), **asked)
        options = {"row_rate": rate, **options, "feature_rate": rate}
        return prepare_source(read, place, target, name=name, progress=progress, **options)


def prepare_custom(
    source: Path | str, target: Path | str, *, name: str | None = None, timeline: bool = True
) -> PreparedDataset:
    """Turn a folder of annotations and finished observations into a prepared data set.

    Half and single precision are kept; double precision is stored as single. The rows of
    `timeline.npz` are kept in half precision if it is there and `timeline` is true.

    Args:
        source: Folder.
        target: New folder.
        name: Name shown in tables; by default the one of the annotations.
        timeline: Keep the rows of whole videos.

    Returns:
        The data set; `provenance["notes"]`, if present, holds sentences for the user.
    """
    source, target = Path(source), Path(target)
    if not source.is_dir():
        remedy = f"Give a folder with taxonomy.json, videos.jsonl and {_FEATURES_FILE}, or a table."
        raise DataError(f"{source}: no such folder or table. {remedy}")
    check_new(target, name)
    annotated = read_common(source)
    path, rows = source / _FEATURES_FILE, source / _TIMELINE_FILE
    arrays = load_npz(path, ("start", "end"), _FEATURES_REMEDY)
    start, end = single(arrays["start"]), single(arrays["end"])
    place, remedy = str(path), _FEATURES_REMEDY
    check_observations(annotated.annotations, start=start, end=end, place=place, remedy=remedy)
    return write_dataset(
        target,
        name=name or annotated.annotations.taxonomy.dataset,
        annotations=annotated.annotations,
        start=start,
        end=end,
        action_text=read_folder_text(source, annotated.annotations.taxonomy),
        timeline=read_npz(rows, annotated.annotations) if timeline and rows.exists() else None,
        provenance={
            "observations": "as given",
            "source": {"kind": "custom", "folder": source.resolve().name},
            **({"notes": list(annotated.notes)} if annotated.notes else {}),
            "cefito": version("cefito"),
        },
    )
