"""The published benchmarks CrossTask, COIN and NIV, in any public form of their annotations.

The form (`_FORMS`) is recognised by content.
"""

from __future__ import annotations

from pathlib import Path

from cefito.data.annotations import Taxonomy
from cefito.data.readers.coin import is_coin, read_coin
from cefito.data.readers.crosstask import find_release, read_release
from cefito.data.readers.source import Source, read_common
from cefito.data.readers.windows_json import is_windows, read_windows
from cefito.errors import ConfigError, DataError
from cefito.files import MAX_BYTES, read_json

__all__ = ["BENCHMARKS", "read_benchmark"]

BENCHMARKS = ("crosstask", "coin", "niv")
_FORMS = (
    "Known forms: a folder with taxonomy.json and videos.jsonl; window files of the unified "
    "protocol (a JSON list of windows with 'legal_range'); CrossTask's release (tasks_primary.txt "
    "and annotations/); COIN's JSON (with 'database')."
)


def read_benchmark(
    benchmark: str, annotations: Path | str, *, taxonomy: Path | str | None = None
) -> Source:
    """Read a benchmark's annotations in any of their public forms.

    Args:
        benchmark: crosstask, coin or niv.
        annotations: File or folder in one of the public forms.
        taxonomy: A taxonomy.json for window files; by default one beside them is used.
    """
    place = Path(annotations)
    if benchmark not in BENCHMARKS:
        raise ConfigError(f"benchmark {benchmark!r}: expected one of {', '.join(BENCHMARKS)}.")
    folder = place if place.is_dir() else place.parent
    if place.is_dir():
        release = find_release(place)
        common = (place / "taxonomy.json").is_file() and (place / "videos.jsonl").is_file()
        if taxonomy is not None and (common or release is not None):
            raise DataError(f"{place}: has its own taxonomy. Give no other.", setting="taxonomy")
        if common:
            return read_common(place)
        if release is not None:
            _check_benchmark("crosstask", benchmark, release)
            return read_release(release)
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    files = [
        (path, read_json(path, _FORMS, most=MAX_BYTES))
        for path in paths
        if path.name != "taxonomy.json"
    ]
    windows = [(path, content) for path, content in files if is_windows(content)]
    database = [(path, content) for path, content in files if is_coin(content)]
    vocabulary = _taxonomy(None if taxonomy is None else Path(taxonomy), folder)
    if windows and not database:
        return read_windows(windows, dataset=benchmark, taxonomy=vocabulary)
    if len(database) == 1 and not windows:
        _check_benchmark("coin", benchmark, database[0][0])
        return read_coin(*database[0], taxonomy=vocabulary)
    found = "several forms" if database else "no known form"
    raise DataError(f"{place}: the annotations have {found}. {_FORMS}")


def _taxonomy(given: Path | None, folder: Path) -> Taxonomy | None:
    if given is not None:
        return Taxonomy.read(given / "taxonomy.json" if given.is_dir() else given)
    beside = folder / "taxonomy.json"
    return Taxonomy.read(beside) if beside.is_file() else None


def _check_benchmark(found: str, benchmark: str, place: Path) -> None:
    if found != benchmark:
        raise DataError(f"{place}: is of {found}. Use cefito data prepare {found}.")
