"""The pictures of queries for vision-language models, as JPEG files in base64."""

from __future__ import annotations

import base64
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from cefito.data.prepared import Scene
from cefito.data.readers.feature_files import FileFolder
from cefito.encoders.extraction import SUFFIXES
from cefito.encoders.frames import thumbnail, thumbnails
from cefito.encoders.images import load_image
from cefito.errors import ConfigError
from cefito.planners.language_model.method import NO_PICTURES
from cefito.planners.queries import Queries

_SIDE, _MOST = 512, 100_000  # pixels of the longer side, and bytes


def read_pictures(queries: Queries) -> list[tuple[str, str]]:
    """Return the pictures of the initial observation and the goal of each query.

    Raises:
        ConfigError: A query has no pictures.
        DataError: A picture or a film is missing or cannot be read.
    """
    if queries.scenes is None:
        raise ConfigError(NO_PICTURES)
    scenes: list[Scene] = [*queries.scenes.flat]
    folders = {
        folder: FileFolder(folder, endings=SUFFIXES, kind="video file")
        for folder in {scene.path for scene in scenes if scene.video}
    }
    scenes = [
        replace(scene, path=folders[scene.path].find((scene.video,))[0]) if scene.video else scene
        for scene in scenes
    ]
    moments: dict[Path, set[float]] = defaultdict(set)
    files: dict[tuple[Path, float | None], bytes] = {}
    for scene in scenes:
        if scene.second is not None:
            moments[scene.path].add(max(0.0, scene.second))
        else:
            picture = load_image(scene.path).mul(255).round().byte()
            files[scene.path, None] = thumbnail(picture, most=_MOST, side=_SIDE)
    for path, times in moments.items():
        for time, file in thumbnails(path, sorted(times), most=_MOST, side=_SIDE):
            files[path, time] = file
    keys = [(scene.path, scene.second and max(0.0, scene.second)) for scene in scenes]
    shown = [base64.b64encode(files[key]).decode() for key in keys]
    return list(zip(shown[::2], shown[1::2], strict=True))
