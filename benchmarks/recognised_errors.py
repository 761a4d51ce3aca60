"""Errors of steps that are recognised in rows, told from right steps.

Splits the training and validation videos of a folder with taxonomy.json, videos.jsonl, errors.jsonl
and timeline.npz into folds. The recogniser and the verifier learn from all but one, and each
annotated step of that one has the probability of a mistake of the recognised step of its action
that overlaps it most, or, if none does, the mean of its video. `films` is what `cefito
verify` says of the rows, `given` of the annotated steps, and `alone` what the verifier's networks
say of the recognised steps, as if they were sure.

    python benchmarks/recognised_errors.py --data FOLDER --out FILE [--folds 4] [--seeds 2]
        [--run RUN]

AUC is in per cent, of steps with an error of a kind against steps without this kind; its interval
resamples videos. `found` are errors of order, and steps that were left out, whose probability in
films exceeds that of so many false alarms an hour: of steps without an error of order, and of
steps called missing that were not left out. With `--run`, a run judges the test videos instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.data.annotations import Step, Video
from cefito.data.prepared import PreparedDataset
from cefito.recognition.recogniser import Recogniser, Recognition
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.runs.run import open_run
from cefito.tracks.track import stored
from cefito.verification.findings import Verification
from cefito.verification.verifier import Verifier
from mistakes_in_films import RATES, share, threshold
from verification import auc

_DRAWS = 1000
Floats = NDArray[np.float64]
Judges = tuple[Recogniser, Verifier, Sequence[int]]
"""A recogniser, a verifier, and the places of videos that neither has seen."""


def judged(verification: Verification) -> Floats:
    """Return p(mistake of order, any mistake) of each step [n, 2]."""
    rows = [(step.kinds.get("order", 0.0), step.mistake or 0.0) for step in verification.steps]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def of_film(verifier: Verifier, seen: Recognition, video: Video) -> Verification:
    """Return what is wrong with the steps that are recognised with doubt."""
    steps = seen.steps()
    return verifier.verify(
        stored(steps),
        video.task,
        sure=[step.probability for step in steps],
        drawn=seen.drawn_steps,
        least=0.0,
    )


def matched(chances: Floats, steps: Sequence[Step], video: Video) -> Floats:
    """Return the chances of each annotated step, of those of recognised steps [n, 2]."""
    found = np.full((len(video.steps), 2), np.nan)
    for place, step in enumerate(video.steps):
        overlaps = [
            min(step.end, other.end) - max(step.start, other.start)
            if other.action == step.action
            else 0.0
            for other in steps
        ]
        best = int(np.argmax(overlaps)) if overlaps else 0
        if overlaps and overlaps[best] > 0:
            found[place] = chances[best]
    left = ~np.isnan(found)
    mean = np.where(left, found, 0).sum(axis=0) / np.maximum(left.sum(axis=0), 1)
    return np.where(left, found, mean)


def left_out(folder: Path, dataset: PreparedDataset) -> dict[str, set[int]]:
    """Return the actions that people left out, by video."""
    actions = {
        action.name.casefold(): place for place, action in enumerate(dataset.taxonomy.actions)
    }
    videos = map(json.loads, (folder / "errors.jsonl").read_text().splitlines())
    return {
        video["video_id"]: {actions[one.split("-", 1)[1].casefold()] for one in video["missing"]}
        for video in videos
    }


def found(chances: Sequence[float], alarms: Sequence[float], hours: float) -> dict[str, Any]:
    """Return the share of mistakes found at each number of false alarms an hour."""
    worst, values = sorted(alarms, reverse=True), np.array(chances)
    shares = {
        f"found_at_{rate}_an_hour": share(values > threshold(worst, rate * hours)) for rate in RATES
    }
    return {"mistakes": len(values)} | shares


def trained(dataset: PreparedDataset, count: int, seed: int) -> Iterator[Judges]:
    """Train on all but each of some folds."""
    learned = [place for place, video in enumerate(dataset.videos) if video.split != "test"]
    folds = np.random.default_rng(seed).permutation(len(learned)) % count
    for fold in range(count):
        train = [place for place, of in zip(learned, folds, strict=True) if of != fold]
        recogniser = SegmentalRecogniser.fit(dataset, train, seed=seed)
        taxonomy = dataset.taxonomy
        verifier = Verifier.fit([dataset.videos[place] for place in train], taxonomy, seed=seed)
        yield recogniser, verifier, [place for place in learned if place not in train]


def measured(
    dataset: PreparedDataset, judges: Iterable[Judges], skipped: dict[str, set[int]]
) -> dict[str, Any]:
    """Score the steps of videos."""
    timeline = dataset.timeline
    assert timeline is not None, "the data set needs rows of whole videos"
    scores: dict[str, list[Floats]] = {"films": [], "alone": [], "given": []}
    videos: list[Video] = []
    hours, missed, alarms = 0.0, list[float](), list[float]()
    for recogniser, verifier, places in judges:
        for place in places:
            video, rows = dataset.videos[place], timeline.videos[place].astype(np.float32)
            videos.append(video)
            best, seen = recogniser.recognise(rows), recogniser.recognise(rows, doubt=True)
            steps = stored(best.steps())
            shares = verifier.probabilities(steps, video.task)
            alone = np.stack([shares[:, 1], 1 - shares[:, 0]], axis=1)
            film = of_film(verifier, seen, video)
            scores["films"].append(matched(judged(film), stored(seen.steps()), video))
            chances = {
                one.action: one.probability for one in film.deviations if one.kind == "missing"
            }
            missed += [chances.pop(action, 0.0) for action in skipped[video.video_id]]
            alarms += chances.values()
            hours += len(rows) / timeline.rate / 3600
            scores["alone"].append(matched(alone, steps, video))
            given = verifier.verify(video.steps, video.task, least=0.0)
            scores["given"].append(judged(given))
    owner = np.repeat(np.arange(len(videos)), [len(video.steps) for video in videos])
    tags = [" ".join(step.errors).casefold() for video in videos for step in video.steps]
    wrong = {"order": np.array(["order" in tag for tag in tags]), "any": np.array(tags) != ""}
    by_video = [np.flatnonzero(owner == video) for video in range(len(videos))]
    draws = np.random.default_rng(0).integers(len(videos), size=(_DRAWS, len(videos)))
    order = np.concatenate(scores["films"])[:, 0]
    result: dict[str, Any] = {"steps": len(tags), "videos": len(videos), "hours": round(hours, 2)}
    result["order"] = found(order[wrong["order"]], order[~wrong["order"]], hours)
    result["missing"] = found(missed, alarms, hours)
    for name, rows_of in scores.items():
        values = np.concatenate(rows_of)
        for column, (kind, marked) in enumerate(wrong.items()):
            chosen = (np.concatenate([by_video[video] for video in draw]) for draw in draws)
            resampled = [auc(values[kept, column], marked[kept]) for kept in chosen]
            low, high = np.nanquantile(resampled, [0.05, 0.95])
            result[f"{name}_{kind}"] = {
                "auc": round(auc(values[:, column], marked), 1),
                "low": round(float(low), 1),
                "high": round(float(high), 1),
            }
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--run", type=Path)
    given = parser.parse_args(arguments)
    how = f"--folds {given.folds} --seeds {given.seeds}"
    with common.prepared(given.data, "errors.jsonl") as dataset:
        skipped = left_out(given.data, dataset)
        if given.run is None:
            seeds = range(given.seeds)
            runs = [
                {"seed": seed, **measured(dataset, trained(dataset, given.folds, seed), skipped)}
                for seed in seeds
            ]
        else:
            how, run = "--run RUN", open_run(given.run)
            assert run.verifier is not None, "the run has no verifier"
            test = [place for place, video in enumerate(dataset.videos) if video.split == "test"]
            runs = [measured(dataset, [(run.own_recogniser, run.verifier, test)], skipped)]
    report = {
        "command": f"python benchmarks/recognised_errors.py --data {given.data.name} {how}",
        "machine": common.machine(),
        "runs": runs,
    }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
