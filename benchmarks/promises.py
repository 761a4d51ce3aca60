"""False alarms that are promised by training videos, and what right test videos had.

Steps are known. A table is verified online: each test video up to its first mistake; and training
videos that a verifier of the others (five folds) has not seen, with its own promise. Of a folder
with taxonomy.json, videos.jsonl and perhaps errors.jsonl, the right test videos are verified as
wholes and online, by one verifier of the training and validation videos.

    python benchmarks/promises.py --table steps.csv --out FILE
    python benchmarks/promises.py --data FOLDER --out FILE

False alarms are counted an hour and in 100 steps; intervals (90 %) resample test videos. `missed`
is the share of labelled mistakes that are missed at the promised probability.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data.annotations import Video
from cefito.data.source import read_common
from cefito.errors import ConfigError
from cefito.evaluation.statistics import video_interval
from cefito.files import write_json
from cefito.inference.verification import open_verifier
from cefito.study.promises import HOURLY, kept_promises
from cefito.study.verifiers import compare_verifiers, right_parts
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cefito.verification.promise import HeldOutFindings, RightFindings
from cefito.verification.verifier import Verifier

_FOLDS = 5


def of_table(table: Path) -> dict[str, Any]:
    """Promises of a table, kept on parts of test videos and on training videos left out."""
    _, report = compare_verifiers(table, None, ["ours"])
    tracks = [track for track in read([table], Choices()).tracks if track.split == "train"]
    return {"test videos up to the first mistake": report["promises"]} | {
        "training videos left out": left_out(tracks)
    }


def left_out(tracks: Sequence[Track]) -> list[dict[str, Any]]:
    """What verifiers promise and keep on videos that they did not learn from, in five folds."""
    folds = np.random.default_rng(0).permutation(len(tracks)) % _FOLDS
    counts: dict[tuple[int, int | None], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for fold in range(_FOLDS):
            table = Path(folder) / f"{fold}.csv"
            chosen = [t for t, other in zip(tracks, folds.tolist(), strict=True) if other != fold]
            with table.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["video", "task", "step", "start", "end"])
                for track in chosen:
                    steps = ([s.name, s.start, s.end] for s in track.steps)
                    writer.writerows([track.video, track.task, *step] for step in steps)
            verifier = open_verifier(table, online=True)[1]
            known = {task.name for task in verifier.taxonomy.tasks}
            left = [t for t, other in zip(tracks, folds.tolist(), strict=True) if other == fold]
            parts = HeldOutFindings.of(
                [*right_parts(verifier, [track for track in left if track.task in known])]
            )
            for per_steps in (None, 100):
                for alarms in HOURLY:
                    try:
                        least = verifier.promise(alarms, per_steps=per_steps, online=True).least
                    except ConfigError:
                        continue
                    rows = zip(parts.alarms(least), parts.sizes(per_steps), strict=True)
                    counts.setdefault((alarms, per_steps), []).extend(rows)
    return [
        {"promised": alarms, "per_steps": per_steps, "videos": len(rows)} | _kept(rows)
        for (alarms, per_steps), rows in counts.items()
    ]


def _kept(rows: Sequence[tuple[float, float]]) -> dict[str, float]:
    alarms, sizes = np.array(rows).T
    low, high = video_interval(alarms, sizes)
    return {"kept": float(alarms.sum() / sizes.sum()), "low": low, "high": high}


def of_folder(folder: Path) -> dict[str, Any]:
    """Promises of a folder, kept on the right test videos, whole and online."""
    annotations = read_common(folder).annotations
    known = [video for video in annotations.videos if video.split != "test"]
    test = [video for video in annotations.videos if video.split == "test" and video.steps]
    verifier = Verifier.fit(known, annotations.taxonomy)
    report = {}
    for mode in ("whole", "online"):
        online, training = mode == "online", getattr(verifier, mode)
        right = HeldOutFindings.of([*_right(verifier, test, online=online)])
        report[mode] = [
            promise.model_dump() | _missed(verifier, test, promise.least, online=online)
            for per_steps in (None, 100)
            for promise in kept_promises(training, right, per_steps)
        ]
    return report


def _right(verifier: Verifier, videos: Sequence[Video], *, online: bool) -> Iterator[RightFindings]:
    for video in videos:
        if video.clean:
            verification = verifier.verify(video.steps, video.task, online=online, least=0.0)
            hours = max(step.end for step in video.steps) / 3600
            yield video.task, hours, len(video.steps), verification.chances


def _missed(
    verifier: Verifier, videos: Sequence[Video], least: float | None, *, online: bool
) -> dict[str, float]:
    """Share of labelled mistakes of steps below a probability; nothing without any."""
    if least is None:
        return {}
    said = list[bool]()
    for video in videos:
        if any(step.errors for step in video.steps):
            verification = verifier.verify(video.steps, video.task, online=online, least=least)
            named = {finding.step for finding in verification.deviations}
            said += [n in named for n, step in enumerate(video.steps, 1) if step.errors]
    return {"missed": round(100 * (1 - float(np.mean(said))), 1)} if said else {}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--table", type=Path)
    source.add_argument("--data", type=Path)
    given = parser.parse_args(arguments)
    path: Path = given.table or given.data
    option = "--table" if given.table else "--data"
    report: dict[str, Any] = {
        "command": f"python benchmarks/promises.py {option} {path.name}",
        "machine": common.machine(),
        "promises": of_table(path) if given.table else of_folder(path),
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
