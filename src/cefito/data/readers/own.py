"""Your own annotated videos in one call, as `cefito data prepare custom` takes them."""

from __future__ import annotations

from pathlib import Path

from cefito.data.prepared import PreparedDataset
from cefito.data.readers.assemble import prepare as assembled
from cefito.data.readers.custom import prepare_custom
from cefito.data.readers.observing import Beyond
from cefito.data.readers.source import read_common
from cefito.data.readers.table import read_table
from cefito.errors import ConfigError
from cefito.progress import Progress, silent

__all__ = ["prepare"]


def prepare(
    source: Path | str,
    target: Path | str,
    *,
    features: Path | str | None = None,
    name: str | None = None,
    beyond: Beyond = "drop",
    seconds: int = 3,
    precision: str = "float16",
    workers: int = 4,
    progress: Progress = silent,
) -> PreparedDataset:
    """Make a prepared data set of your own annotations and features.

    Args:
        source: CSV or Parquet with the columns video, task, step, start, end (seconds), and split
            if you like; or a folder with taxonomy.json and videos.jsonl. Without `features` the
            folder also holds features.npz, observations of the steps that are made already, and
            perhaps action_text_features.npy; they are kept as they are, and only `name` is of use.
        target: Folder to write, which must not hold anything yet. A preparation that was killed
            goes on when it is repeated.
        features: Folder with one file of features a video, .npy or .npz, [seconds, D], one row a
            second, as `cefito.encoders.extraction` and `cefito extract` make them of videos.
        name: Name shown in tables; by default that of the annotations.
        beyond: What becomes of steps that end beyond the features: "drop", "rewrite" or "error".
        seconds: Rows of features around a step's start and end that make one observation, odd.
        precision: Type in which observations are stored, float16 or float32.
        workers: Threads.
        progress: Shows progress.

    Returns:
        The data set; of features `provenance["preparation"]` says what was left out.

    Raises:
        ConfigError: A setting that cannot be, or a table without features.
        DataError: Something in the source is missing, malformed or inconsistent, no video can be
            used, or the target is taken or cannot be written.
    """
    source, target = Path(source), Path(target)
    if features is None and source.is_file():
        raise ConfigError(
            f"{source}: a table holds no observations. Give the folder with one file of features a "
            "video.",
            setting="features",
        )
    if features is None:
        return prepare_custom(source, target, name=name)
    return assembled(
        read_common(source) if source.is_dir() else read_table(source),
        Path(features),
        target,
        name=name,
        beyond=beyond,
        seconds=seconds,
        precision=precision,
        workers=workers,
        progress=progress,
    )
