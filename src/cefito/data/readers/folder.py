"""Folders of files, found by the names under which annotations know their videos."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from cefito.data.readers.archives import FeatureError
from cefito.data.text import nfc
from cefito.errors import DataError

__all__ = ["FeatureFolder", "FileFolder", "feature_name"]

_ENDINGS = (".npy", ".npz")
_MOST = 200_000  # entries of a folder with those below it; COIN has 11,827 videos


def feature_name(entry: str) -> str:
    """The bare name of a feature file: of "a/b/23521_X.npy" it is "23521_X".

    Folders in it are never followed.
    """
    return bare_name(entry, _ENDINGS)


def bare_name(entry: str, endings: Sequence[str]) -> str:
    """The name of a file without folders and without one of these endings."""
    name = PurePosixPath(entry.replace("\\", "/")).name
    return name.removesuffix(next((ending for ending in endings if name.endswith(ending)), ""))


class FileFolder:
    """The files of some endings in a folder and in the folders in it, one a video.

    A file is found by its bare name, by the end of it after an underscore ("X" finds
    "23521_X.npy"), or by its beginning before an underscore or a dot ("1_7" finds
    "1_7_360p.mp4.npz"), however its accents are written. Names are only compared with those of
    files that are there, so none leads out of the folder.

    Args:
        folder: The folder.
        endings: Endings of the files, such as ".npy".
        kind: What a file is called in messages.

    Raises:
        DataError: No such folder, or no such file in it.
    """

    def __init__(self, folder: Path, *, endings: Sequence[str], kind: str) -> None:
        self.folder = Path(folder)
        self._endings, self._kind = tuple(endings), kind
        if not self.folder.is_dir():
            raise DataError(
                f"{folder}: no such folder. Give the one that holds one {kind} a video."
            )
        self._exact: dict[str, list[Path]] = defaultdict(list)
        self._ends: dict[str, list[Path]] = defaultdict(list)
        self._beginnings: dict[str, list[Path]] = defaultdict(list)
        for path in sorted(_all_below(self.folder, kind)):
            if path.suffix not in self._endings or path.name.startswith(".") or not path.is_file():
                continue
            stem = nfc(path.stem)
            self._exact[stem].append(path)
            for place, letter in enumerate(stem):
                if letter == "_":
                    self._ends[stem[place + 1 :]].append(path)
                if letter in "_.":
                    self._beginnings[stem[:place]].append(path)
        if not self._exact:
            raise DataError(
                f"{folder}: holds no {_either(self._endings)} files. Give the folder with one "
                f"{kind} a video."
            )

    def find(self, names: Sequence[str]) -> tuple[Path, str]:
        """The file of a video, and the name by which it was found.

        Args:
            names: Names it may have, the likeliest first, with or without folders and ending.

        Raises:
            FeatureError: There is none, or several.
        """
        bare = [nfc(bare_name(name, self._endings)) for name in names if name]
        for table in (self._exact, self._ends, self._beginnings):
            for name in bare:
                found = table.get(name, [])
                if len(found) == 1:
                    return found[0], name
                if found:
                    listed = ", ".join(
                        path.relative_to(self.folder).as_posix() for path in found[:3]
                    )
                    raise FeatureError(
                        "several files",
                        f"{self.folder}: several files may be those of video '{bare[-1]}': "
                        f"{listed}. Keep one.",
                    )
        raise FeatureError(
            "no features",
            f"{self.folder}: no file for video '{names[-1]}' (looked for "
            f"{', '.join(dict.fromkeys(bare))}, as {_either(self._endings)}).",
        )


class FeatureFolder(FileFolder):
    """The `.npy` and `.npz` files of a folder and of the folders in it, found as `FileFolder` says.

    Raises:
        DataError: No such folder, or no such file in it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, endings=_ENDINGS, kind="feature file")


def _either(endings: Sequence[str]) -> str:
    listed = [ending for ending in endings if ending == ending.lower()]
    return " or ".join([", ".join(listed[:-1]), listed[-1]])


def _all_below(folder: Path, kind: str) -> list[Path]:
    """All entries of a folder and of those in it.

    Raises:
        DataError: There are so many that it cannot be the folder that is meant.
    """
    found = list(islice(folder.rglob("*"), _MOST + 1))
    if len(found) > _MOST:
        raise DataError(
            f"{folder}: holds more than {_MOST:,} files and folders. Give the folder with one "
            f"{kind} a video."
        )
    return found
