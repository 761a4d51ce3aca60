"""The published benchmarks CrossTask, COIN and NIV, in any public form of their annotations.

Known forms, told apart by content: the window files of the unified protocol, CrossTask's release,
COIN's JSON, and the common form (taxonomy.json and videos.jsonl).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cefito.data.readers.coin import is_coin, read_coin
from cefito.data.readers.crosstask import find_release, read_release
from cefito.data.readers.source import Source, read_common, read_taxonomy
from cefito.data.readers.windows_json import is_windows, read_windows
from cefito.data.taxonomy import Taxonomy
from cefito.errors import ConfigError, DataError
from cefito.files import read_json

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
    """Read a benchmark's annotations, whichever public form they have.

    Args:
        benchmark: crosstask, coin or niv.
        annotations: File or folder in one of the public forms.
        taxonomy: A taxonomy.json, for annotations that have no names of actions; one that lies with
            them is found.

    Raises:
        ConfigError: An unknown benchmark.
        DataError: An unknown form, another benchmark's, or malformed content.
    """
    annotations = Path(annotations)
    taxonomy = None if taxonomy is None else Path(taxonomy)
    if benchmark not in BENCHMARKS:
        raise ConfigError(
            f"benchmark: unknown name {benchmark!r}; expected one of {', '.join(BENCHMARKS)}."
        )
    if annotations.is_dir():
        return _from_folder(benchmark, annotations, taxonomy)
    return _from_files(
        benchmark,
        [(annotations, read_json(annotations, _FORMS))],
        read_taxonomy(taxonomy, annotations.parent),
        annotations,
    )


def _from_folder(benchmark: str, folder: Path, taxonomy: Path | None) -> Source:
    if (folder / "taxonomy.json").is_file() and (folder / "videos.jsonl").is_file():
        if taxonomy is not None:
            raise DataError(
                f"{folder}: has a taxonomy.json of its own; give no other one.", setting="taxonomy"
            )
        return read_common(folder)
    release = find_release(folder)
    if release is not None:
        _only("crosstask", benchmark, release)
        if taxonomy is not None:
            raise DataError(
                f"{release}: CrossTask's release has its own vocabulary; give no other one.",
                setting="taxonomy",
            )
        return read_release(release)
    files = [
        (path, read_json(path, _FORMS))
        for path in sorted(folder.glob("*.json"))
        if path.name != "taxonomy.json"
    ]
    known = [(path, content) for path, content in files if is_windows(content) or is_coin(content)]
    return _from_files(benchmark, known, read_taxonomy(taxonomy, folder), folder)


def _from_files(
    benchmark: str, files: list[tuple[Path, Any]], taxonomy: Taxonomy | None, place: Path
) -> Source:
    if files and all(is_windows(content) for _, content in files):
        return read_windows(files, dataset=benchmark, taxonomy=taxonomy)
    if len(files) == 1 and is_coin(files[0][1]):
        _only("coin", benchmark, files[0][0])
        return read_coin(*files[0], taxonomy=taxonomy)
    raise DataError(
        f"{place}: annotations of no known form{', or of several' if len(files) > 1 else ''}. "
        f"{_FORMS}"
    )


def _only(form: str, benchmark: str, place: Path) -> None:
    if form != benchmark:
        raise DataError(
            f"{place}: these are annotations of {form}, not of {benchmark}. Use cefito data "
            f"prepare {form}."
        )
