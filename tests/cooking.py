"""CaptainCook4D's published files, made of any data set, and a server that gives them."""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data import Annotations, Taxonomy
from cefito.data.annotations import SPLITS, Step, Video
from cefito.data.downloads import find_places, places
from http_servers import serving

FILES = {
    place.name.removeprefix("captaincook4d-"): place.file for place in find_places("captaincook4d")
}
WRONG = ("Order Error", "Timing Error")

KITCHEN = Annotations(
    Taxonomy.from_names(
        "captaincook4d",
        [("Soup", range(8)), ("Tea", range(7, 14))],
        [f"stir {number} times" for number in range(14)],
    ),
    (
        Video("1_7", "train", 0, tuple(Step(2.0 * at, 2.0 * at + 1.5, at) for at in range(8))),
        Video("1_10", "test", 0, (Step(0.0, 3.25, 4), Step(5.0, 9.0, 2), Step(5.0, 9.0, 0))),
        Video("3_1", "val", 1, (Step(1.0, 4.0, 9), Step(2.5, 3.0, 9, WRONG), Step(2.5, 6.0, 8))),
        Video("3_2", "train", 1, tuple(Step(2.0 * at, 2.0 * at + 1.5, at) for at in range(7, 14))),
        Video(
            *("3_4", "test", 1, tuple(Step(2.0 * at, 2.0 * at + 1.5, at) for at in range(9, 13))),
            missing=(7, 8),
        ),
    ),
)
ROWS = np.random.default_rng(4).standard_normal((25, 256)).astype(np.float16)


def cook_values(annotations: Annotations, rows: NDArray[np.float16]) -> dict[str, Any]:
    """The content of the published files: annotations, errors, names, split, features.

    Published ids have gaps, names begin with a verb, times have more digits, and steps are not
    sorted. Some were not performed; a last recording has no features.

    Args:
        annotations: Videos whose names begin with the number of their activity.
        rows: Features of all steps [S, 256].
    """
    taxonomy = annotations.taxonomy
    ids = [action.id + 1 + (action.id >= 12) for action in taxonomy.actions]
    names = {str(ids[one.id]): f"Verb -{one.name}" for one in taxonomy.actions}
    entries, wrong, data, first = {}, [], {}, 0
    for number, video in enumerate(annotations.videos):
        steps = [
            {
                "step_id": ids[step.action],
                "start_time": step.start + 1e-5 * (number % 3),
                "end_time": step.end + 2e-5,
                "description": names[str(ids[step.action])],
                "has_errors": False,
            }
            for step in video.steps
        ]
        told = [
            step | {"errors": [{"tag": kind, "description": "said"} for kind in one.errors]}
            for step, one in zip(steps, video.steps, strict=True)
        ]
        missing = [{"step_id": ids[one], "start_time": -1.0} for one in video.missing]
        every = [*missing, *reversed(told)]
        wrong.append({"recording_id": video.video_id, "step_annotations": every})
        features = rows[first : first + len(steps)]
        first += len(steps)
        data[video.video_id] = {
            "step_embeddings": features.copy(),
            "step_info": [dict(step) for step in steps],
            "recipe_id": video.video_id.partition("_")[0],
        }
        missed: dict[str, Any] = {"step_id": ids[0], "start_time": -1.0, "end_time": -1.0}
        missed |= {"description": "Another-wrong description"}
        entries[video.video_id] = {
            "activity_id": int(video.video_id.partition("_")[0]),
            "activity_name": taxonomy.tasks[video.task].name,
            "steps": [missed, *steps[1:], *steps[:1]],
        }
    split = {
        split: [video.video_id for video in annotations.videos if video.split == split]
        for split in SPLITS
    }
    entries["1_999"] = dict(next(iter(entries.values())))
    split["train"].insert(0, "1_999")
    return {
        "annotations": dict(reversed(entries.items())),
        "errors": wrong,
        "names": names,
        "split": split,
        "features": {"data": data, "splits": {"train": []}, "config": {"backbone": "egovlp"}},
    }


def write_cook_files(folder: Path, values: dict[str, Any]) -> Path:
    """Write the content of the published files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, file in FILES.items():
        if part == "features":
            (folder / file).write_bytes(pickle.dumps(values[part], protocol=4))
        else:
            (folder / file).write_text(json.dumps(values[part]))
    return folder


def accept_features(patch: Any, path: Path, **known: Any) -> None:
    """Let a file be the documented one of the features of steps."""
    (place,) = find_places("captaincook4d-features")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known |= {"bytes": path.stat().st_size, "sha256": digest}
    patch.setitem(places(), place.name, place.model_copy(update=known))


@contextmanager
def serve_cook_files(patch: Any, folder: Path) -> Iterator[Callable[[], None]]:
    """Let downloads of CaptainCook4D come from a folder; the function stops the server."""

    class Handler(SimpleHTTPRequestHandler):
        __init__ = functools.partialmethod(SimpleHTTPRequestHandler.__init__, directory=str(folder))

    patch.setenv("no_proxy", "*")
    with serving(Handler) as server:
        for place in find_places("captaincook4d"):
            address = f"http://127.0.0.1:{server.server_port}/{place.file}"
            if place.sha256 is None:
                patch.setitem(places(), place.name, place.model_copy(update={"address": address}))
            else:
                accept_features(patch, folder / place.file, address=address)

        def stop() -> None:
            server.shutdown()
            server.server_close()

        yield stop
