"""The published benchmarks CrossTask, COIN and NIV, in any public form of their annotations.

The form (`_FORMS`) is recognised by content.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cefito.data.annotations import Taxonomy
from cefito.data.readers.coin import is_coin, read_coin
from cefito.data.readers.crosstask import find_release, read_release
from cefito.data.readers.source import Source, read_common
from cefito.data.readers.windows_json import WINDOWS, is_windows, of_vocabulary, read_windows
from cefito.errors import ConfigError, DataError
from cefito.files import MAX_BYTES, read_json

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

    The text embeddings of the actions are those of `action_embeddings….npy` beside window files.

    Args:
        benchmark: crosstask, coin or niv.
        annotations: File or folder in one of the public forms, or the folder of a repository that
            has them in `dataset/NAME`, as that of the paper's authors.
        taxonomy: A taxonomy for window files, a taxonomy.json or as the authors write it; by
            default the one beside them is used.
    """
    place = Path(annotations)
    if benchmark not in BENCHMARKS:
        raise ConfigError(f"benchmark {benchmark!r}: expected one of {', '.join(BENCHMARKS)}.")
    inside = [each for each in place.glob("dataset/*/") if each.name.lower() == benchmark]
    place = inside[0] if len(inside) == 1 else place
    source = _read(benchmark, place, None if taxonomy is None else Path(taxonomy))
    if source.form != WINDOWS:
        return source
    folder = place if place.is_dir() else place.parent
    found = sorted(folder.glob("action_embeddings*.npy"))
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise DataError(f"{folder}: has {listed}. Leave the one of these files there.")
    if not found:
        return source
    note = f"Text embeddings of the actions are those of {found[0].name}."
    return replace(source, action_text=found[0], notes=(*source.notes, note))


def _read(benchmark: str, place: Path, taxonomy: Path | None) -> Source:
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
    folder = place if place.is_dir() else place.parent
    beside = [folder / "taxonomy.json", *folder.glob("*_taxonomy*.json")]
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    files = [
        (path, read_json(path, _FORMS, most=MAX_BYTES)) for path in paths if path not in beside
    ]
    windows = [(path, content) for path, content in files if is_windows(content)]
    database = [(path, content) for path, content in files if is_coin(content)]
    vocabulary = _taxonomy(taxonomy, [path for path in beside if path.is_file()])
    if windows and not database:
        notes = []
        if vocabulary is not None:
            windows, note = of_vocabulary(windows, vocabulary)
            notes += [note] * bool(note)
        if others := [path.name for path, value in files if value != [] and not is_windows(value)]:
            notes.append(f"Not read, since of no known form: {', '.join(others)}.")
        source = read_windows(windows, dataset=benchmark, taxonomy=vocabulary)
        return replace(source, notes=(*source.notes, *notes))
    if len(database) == 1 and not windows:
        _check_benchmark("coin", benchmark, database[0][0])
        if taxonomy is not None:
            raise DataError(f"{place}: has its own taxonomy. Give no other.", setting="taxonomy")
        return read_coin(*database[0])
    found = "several forms" if database else "no known form"
    raise DataError(f"{place}: the annotations have {found}. {_FORMS}")


def _taxonomy(given: Path | None, beside: list[Path]) -> Taxonomy | None:
    if given is not None:
        return Taxonomy.read(given / "taxonomy.json" if given.is_dir() else given)
    if len(beside) > 1:
        listed = ", ".join(path.name for path in sorted(beside))
        raise DataError(f"{beside[0].parent}: has {listed}. Name one.", setting="taxonomy")
    return Taxonomy.read(beside[0]) if beside else None


def _check_benchmark(found: str, benchmark: str, place: Path) -> None:
    if found != benchmark:
        raise DataError(f"{place}: is of {found}. Use cefito data prepare {found}.")
