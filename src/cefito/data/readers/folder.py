"""Folders of files, found by the names of the videos in annotations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from cefito.data.annotations import nfc
from cefito.data.readers.archives import FeatureError
from cefito.errors import DataError

_ENDINGS = (".npy", ".npz")
_MOST = 200_000  # entries of a folder and its subfolders; COIN has 11,827 videos


def feature_name(entry: str) -> str:
    """The bare name of a feature file: "23521_X" for "a/b/23521_X.npy"."""
    return PurePosixPath(_without_ending(entry, _ENDINGS)).name


def _without_ending(entry: str, endings: Sequence[str]) -> str:
    """The path of a file, with slashes, without one of these endings."""
    path = entry.replace("\\", "/")
    return path.removesuffix(next((ending for ending in endings if path.endswith(ending)), ""))


class FileFolder:
    """The files with some endings in a folder and its subfolders, one a video.

    A file is found by the longest end of its path ("a/P01/cam.mp4" finds "P01/cam.npy", or else
    "cam.npy"), by the end of its name after an underscore ("X" finds "23521_X.npy"), or by its
    beginning before an underscore or a dot ("1_7" finds "1_7_360p.mp4.npz"), in any Unicode form.
    Names are only compared with the names of existing files, so none leads out of the folder.
    `kind` is the word for a file in messages.
    """

    def __init__(
        self, folder: Path, *, endings: Sequence[str] = _ENDINGS, kind: str = "feature file"
    ) -> None:
        self.folder = Path(folder)
        self._endings, self._kind = tuple(endings), kind
        remedy = f"Give the folder with one {kind} a video."
        if not self.folder.is_dir():
            raise DataError(f"{folder}: no such folder. {remedy}")
        self._exact: dict[str, list[Path]] = defaultdict(list)
        self._ends: dict[str, list[Path]] = defaultdict(list)
        self._beginnings: dict[str, list[Path]] = defaultdict(list)
        entries = list(islice(self.folder.rglob("*"), _MOST + 1))
        if len(entries) > _MOST:
            raise DataError(f"{folder}: holds more than {_MOST:,} files and folders. {remedy}")
        for path in sorted(entries):
            if path.suffix not in self._endings or path.name.startswith(".") or not path.is_file():
                continue
            stem = nfc(path.stem)
            for tail in _tails(nfc(path.relative_to(self.folder).with_suffix("").as_posix())):
                self._exact[tail].append(path)
            for place, letter in enumerate(stem):
                if letter == "_":
                    self._ends[stem[place + 1 :]].append(path)
                if letter in "_.":
                    self._beginnings[stem[:place]].append(path)
        if not self._exact:
            raise DataError(f"{folder}: holds no {_either(self._endings)} files. {remedy}")

    def find(self, names: Sequence[str]) -> tuple[Path, str]:
        """Find the file of a video by its possible names; return it and the name that matched.

        The likeliest name comes first; endings in names are ignored.
        """
        paths = [nfc(_without_ending(name, self._endings)) for name in names if name]
        wanted = [tail for path in paths for tail in _tails(path)]
        for table in (self._exact, self._ends, self._beginnings):
            for name in wanted:
                found = table.get(name, [])
                if len(found) == 1:
                    return found[0], name
                if found:
                    listed = ", ".join(
                        path.relative_to(self.folder).as_posix() for path in found[:3]
                    )
                    problem = f"several files may belong to video '{names[-1]}': {listed}"
                    remedy = "Keep one, or name the video with its folder."
                    raise FeatureError("several files", f"{self.folder}: {problem}. {remedy}")
        looked = f"{', '.join(dict.fromkeys(wanted))}, as {_either(self._endings)}"
        problem = f"no file for video '{names[-1]}' (looked for {looked})"
        raise FeatureError("no features", f"{self.folder}: {problem}.")


def _tails(path: str) -> list[str]:
    """The ends of a path at its slashes, the longest first."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["/".join(parts[place:]) for place in range(len(parts))]


def _either(endings: Sequence[str]) -> str:
    listed = [ending for ending in endings if ending == ending.lower()]
    return " or ".join([", ".join(listed[:-1]), listed[-1]])
