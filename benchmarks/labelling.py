"""How much labelling recognised steps save, with few labelled videos.

Of the training and validation videos of a folder with taxonomy.json, videos.jsonl and timeline.npz,
or of a prepared data set, some are drawn as labelled. A recogniser learns from them alone and
proposes the steps of the test videos; what a person had to change is counted. Repeat the command to
add draws to --out.

    python benchmarks/labelling.py --data FOLDER --out FILE [--films 10 20 40] [--draws 0 1 2]

A step is touched if its proposal has another action or a border more than 2 s away, or if there is
none; proposals without a step are touched, too. An edit is one label or one border, three a step:
`edits` are those of a film with proposals, `from_nothing` without.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data import PreparedDataset, open_dataset
from cefito.data.readers.custom import prepare
from cefito.files import write_json
from cefito.inference.proposals import Corrections, compare
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.tracks import TimedStep


def proposed(data: PreparedDataset, films: int, draw: int) -> list[Corrections]:
    """What is changed in each test video, given a draw of labelled films."""
    assert data.timeline is not None
    names = data.taxonomy.actions
    known = [place for place, video in enumerate(data.videos) if video.split != "test"]
    chosen = np.random.default_rng(draw).permutation(known)[:films]
    own = SegmentalRecogniser.fit(data, sorted(chosen.tolist()), seed=draw)
    found = []
    for place, video in enumerate(data.videos):
        if video.split == "test":
            seen = own.recognise(data.timeline.videos[place], rate=data.timeline.rate).steps()
            seen_steps, annotated = (
                [TimedStep(name=names[s.action].name, start=s.start, end=s.end) for s in steps]
                for steps in (seen, video.steps)
            )
            found.append(compare([(seen_steps, annotated)]))
    return found


def summary(draws: list[list[dict[str, int]]]) -> dict[str, Any]:
    """Shares over all draws, in per cent, with 95 % intervals, videos resampled."""
    names = list(Corrections.model_fields)
    counts = np.array([[[one[name] for name in names] for one in own] for own in draws]).sum(axis=0)
    videos = len(counts)
    weights = np.random.default_rng(0).multinomial(videos, np.full(videos, 1 / videos), 1000)
    every = [np.ones(videos, int) @ counts, *(weights @ counts)]
    sums = [Corrections(**dict(zip(names, one.tolist(), strict=True))) for one in every]
    found: dict[str, Any] = {"draws": len(draws)}
    found["from_nothing"] = round(3 * sums[0].steps / sums[0].videos, 1)
    for name, scale in (("touched", 100), ("saved", 100), ("edits", 1)):
        share = [scale / one.videos if name == "edits" else scale for one in sums]
        values = [
            float(getattr(one, name)) * factor for one, factor in zip(sums, share, strict=True)
        ]
        low, high = np.percentile(values[1:], (2.5, 97.5)).round(1).tolist()
        found[name] = {"mean": round(values[0], 1), "low": low, "high": high}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--films", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args(arguments)
    before = given.out is not None and given.out.exists()
    counts: dict[str, dict[str, Any]] = (
        json.loads(given.out.read_text())["counts"] if before else {}
    )
    with tempfile.TemporaryDirectory() as folder:
        prepared = (given.data / "dataset.json").exists()
        data = open_dataset(given.data) if prepared else prepare(given.data, Path(folder) / "data")
        for draw in given.draws:
            for films in given.films:
                own = [one.model_dump() for one in proposed(data, films, draw)]
                counts.setdefault(str(films), {})[str(draw)] = own
                rows = {name: summary(list(each.values())) for name, each in counts.items()}
                report = {
                    **common.about("labelling", given, data),
                    "test_videos": len(own),
                    "labelled": rows,
                    "counts": counts,
                }
                if given.out is not None:
                    write_json(given.out, report)
                print(films, draw, rows[str(films)], flush=True)


if __name__ == "__main__":
    main()
