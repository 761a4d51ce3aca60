"""Folders of labels of frames, as MS-TCN, ASFormer and their followers use them.

`groundTruth/VIDEO.txt` holds a label a line, `mapping.txt` numbers and labels,
`splits/train.split1.bundle` the files of a split, and `features/VIDEO.npy` an array [D, T], a
column a label. Breakfast, 50 Salads and GTEA are given away in this form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.readers.feature_files import FeatureError, FileFolder, load_features
from cefito.data.readers.step_source import read_steps
from cefito.data.source import Source
from cefito.data.vocabulary import nfc
from cefito.errors import DataError
from cefito.files import read_bytes
from cefito.markup import counted, listed
from cefito.tracks.document import Choices
from cefito.tracks.formats.frame_labels import TRUTH, bundled, bundles

FEATURES = "features"
"""Folder of the features."""
_SPREAD = 0.05  # share of the labels by which columns may be fewer or more, and
_SLACK = 16  # as many more, of short videos
_SHOWN = 5  # names in a message


def is_frame_folder(folder: Path) -> bool:
    """Whether a folder holds labels of frames."""
    return (folder / TRUTH).is_dir()


def read_frame_folder(
    folder: Path, features: Path | None, *, choices: Choices, options: Mapping[str, Any]
) -> tuple[Source, dict[str, Any]]:
    """Read a folder of labels of frames; also return how its features are to be read.

    Files that no bundle lists are left out, if there are bundles.

    Args:
        folder: The folder.
        features: Folder of other features; by default the one in the folder.
        choices: How the labels are read: frames a second, background, number of the bundles, task.
        options: Settings of `ObservationOptions` that are given.

    Returns:
        The annotations, and by default the rates of labels as those of features and of the rows
        that are kept, and whether features are [D, T].

    Raises:
        DataError: No label, no frame rate, a file of two splits, or features of another length.
    """
    files = sorted((folder / TRUTH).glob("*.txt"))
    lists = {name: bundled(path) for name, path in bundles(folder, choices.bundle).items()}
    if choices.bundle is not None and not lists:
        problem = f"has no splits/train.split{choices.bundle}.bundle. Give the number of one"
        raise DataError(f"{folder}: {problem}.", setting="bundle")
    counts = Counter(name for names in lists.values() for name in {*names})
    if several := [name for name, count in counts.items() if count > 1]:
        said = listed(several, _SHOWN)
        raise DataError(f"{folder}: several splits list {said}. Correct the bundles.")
    used = [file for file in files if file.name in counts or not lists]
    absent = sorted(counts.keys() - {file.name for file in files})
    notes = [
        f"{what}: {counted(len(names), 'file')}, {listed(names, _SHOWN)}."
        for what, names in (
            ("Left out, since no bundle lists them", [f.name for f in files if f not in used]),
            (f"Bundles list files that {TRUTH} lacks", absent),
        )
        if names
    ]
    if not used:
        raise DataError(f"{folder / TRUTH}: holds no files of labels. Give another folder.")
    source = read_steps(used, choices=choices)
    own = folder / FEATURES if features is None else features
    taxonomy = replace(source.annotations.taxonomy, dataset=nfc(folder.resolve().name))
    annotations = replace(source.annotations, taxonomy=taxonomy)
    notes = [*source.notes, *notes]
    source = replace(source, annotations=annotations, notes=tuple(notes), features=own)
    rate = choices.frame_rate
    if rate is None:  # of a table of videos, or of files of another format
        return source, {"transposed": True}
    rates = {"feature_rate": rate, "row_rate": options.get("feature_rate") or rate}
    scale = (options.get("feature_rate") or rate) / rate
    transposed = options.get("transposed")
    if transposed is None:
        transposed = _transposed(used, FileFolder(own), scale)
    return source, {**rates, "transposed": transposed}


def _shape(path: Path) -> tuple[int, ...]:
    """Shape of features, of which large .npy files are not read for it."""
    with suppress(ValueError, OSError, EOFError):
        shape: tuple[int, ...] = np.load(path, mmap_mode="r", allow_pickle=False).shape
        return shape
    return load_features(path).values.shape


def _transposed(files: list[Path], folder: FileFolder, scale: float) -> bool:
    """Whether features are [D, T]; the other axis of some may have as many rows as labels.

    Args:
        files: Labels of the videos.
        folder: The features.
        scale: Columns of features a label.
    """
    fits = Counter[bool]()
    wrong: list[str] = []
    for file in files:
        try:
            path, _ = folder.find((file.stem,))
            shape = _shape(path)
        except FeatureError:
            continue  # which is left out later, with its reason
        labels = read_bytes(file, "Give a file of labels.").strip().count(b"\n") + 1
        frames = labels * scale
        far = [abs(axis - frames) for axis in shape]
        fits[far.index(min(far)) == 1] += 1
        if min(far) > _SPREAD * frames + _SLACK:
            wrong.append(f"{path.name} {list(shape)} of {labels:,} labels")
    if wrong:
        problem = f"have neither [D, T] nor [T, D] with a column a label: {listed(wrong, _SHOWN)}"
        remedy = "Give the rows of features a second, if they differ from the frames"
        raise DataError(f"{folder.folder}: features {problem}. {remedy}.", setting="feature_rate")
    return fits[True] >= fits[False]
