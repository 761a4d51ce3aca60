"""Steps that were cut out of test videos with rows, or exchanged: found, at how many false alarms.

Trains a recogniser (one member) and orders on the training and validation videos of a folder with
taxonomy.json, videos.jsonl and timeline.npz. From each test video it cuts, one at a time, up to
`--cuts` steps that are usual (70 % of videos) and done once, with half of the pauses around them;
and it exchanges as many pairs of neighbours, done once, that nearly all videos have in one order.

    python benchmarks/mistakes_in_films.py --data FOLDER --out FILE [--cuts 2] [--seeds 1]
        [--videos N]

A cut step is found if it is named as missing, an exchange if one of both steps is named as missing
or out of order. Each is found at a number of false alarms an hour: findings of these kinds in the
videos as they are. `said` counts, at the default probability of 50 %, what is found, what is found
or unsure, and both in the videos as they are. `seen` is what the recogniser saw in training of
mistakes made up in videos held out. `promised` has the false alarms an hour in right test videos at
each number that is promised by films held out, None if it is refused. With `--videos N`, N are
learned from of each task. `live` is what a live session, which knows the task, ever tells: row by
row, and once the film is over; `delay` is the median number of seconds from the start of the step
that came instead to the first finding that names the mistake, of those found before the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.data.annotations import Step, Video
from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import row_labels
from cefito.errors import ConfigError
from cefito.inference.following import FINDING, FilmSession
from cefito.inference.outlook import Begin
from cefito.recognition.changes import rearranged
from cefito.recognition.scores import segments
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.verification.findings import Verification
from cefito.verification.order import TaskOrder
from cefito.verification.verifier import Verifier

_USUAL = 0.7  # share of videos with a step that is cut
_KEPT = 0.8  # p(a before b) of neighbours that are exchanged
_SAID = 0.5  # probability from which on a finding is said
RATES = (1, 3, 10)  # false alarms an hour
Rows = NDArray[Any]
KINDS = {"cut": {"missing"}, "exchanged": {"missing", "order"}}


def judged(
    recogniser: Any, verifier: Verifier, rows: Rows, rate: float, task: int
) -> Verification | None:
    """Return what is wrong in a film, however improbable; None if no step is recognised."""
    seen = recogniser.recognise(rows, rate=rate, task=task, doubt=True)
    steps = [Step(step.start, step.end, step.action) for step in seen.steps()]
    if not steps:
        return None
    return verifier.verify(steps, task, drawn=seen.drawn_steps, least=0.0)


def told(run: Any, rows: Rows, rate: float, task: int) -> dict[int, float]:
    """Return the second at which a live session first names each action that was missing or late.

    Those that it names only once the film is over have a second after the last.
    """
    session, seconds = FilmSession(Begin(run, task, None, None, None)), dict[int, float]()
    for place in range(len(rows) + 1):
        if place < len(rows):
            session.observe(rows[place], at=place / rate)
        else:
            session.finish()
        for finding in session.followed([], FINDING, 0.0).findings:
            if finding.kind in KINDS["exchanged"] and finding.action is not None:
                seconds.setdefault(finding.action, (place + 1) / rate)
    return seconds


def told_in_all(live: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Return how many mistakes are told, and how late.

    Args:
        live: Of each mistake, the second of the first finding that names it (infinity without one),
            that of the start of the step that came instead, and that of the end of the film.
    """
    late = [at - instead for at, instead, end in live if at <= end]
    return {
        "told": share([at < np.inf for at, _, _ in live]),
        "before_the_end": share([at <= end for at, _, end in live]),
        "delay": round(float(np.median(late)), 1) if late else None,
    }


def chances(verification: Verification | None, kinds: set[str]) -> dict[int, float]:
    """Return the probability of each action that a finding of these kinds names."""
    found = verification.deviations if verification is not None else ()
    return {one.action: one.probability for one in found if one.kind in kinds}  # type: ignore[misc]


def mistaken(
    video: Video, order: TaskOrder, most: int, generator: np.random.Generator
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield the kind of each mistake, the places of its steps in order, and what may be named."""
    actions = [step.action for step in sorted(video.steps, key=lambda step: step.start)]
    places = [*range(len(actions))]
    once = [place for place in places if actions.count(actions[place]) == 1]
    usual = [p for p in once if order.usual[order.index[actions[p]]] > _USUAL]
    for cut in generator.permutation(usual)[:most].tolist():
        yield "cut", [place for place in places if place != cut], [actions[cut]]
    pairs = [
        place
        for place in once
        if place + 1 in once
        and order.probability[order.index[actions[place]], order.index[actions[place + 1]]] > _KEPT
    ]
    for early in generator.permutation(pairs)[:most].tolist():
        swapped = [*places[:early], early + 1, early, *places[early + 2 :]]
        yield "exchanged", swapped, actions[early : early + 2]


def measured(dataset: PreparedDataset, cuts: int, seed: int, most: int | None) -> dict[str, Any]:
    """Train with a seed, and score cut and uncut test videos."""
    timeline, generator = dataset.timeline, np.random.default_rng(seed)
    assert timeline is not None, "the data set needs rows of whole videos"
    learned = [place for place, video in enumerate(dataset.videos) if video.split != "test"]
    if most is not None:
        tasks = {dataset.videos[place].task for place in learned}
        of = {task: [p for p in learned if dataset.videos[p].task == task] for task in tasks}
        learned = sorted(p for ps in of.values() for p in generator.permutation(ps)[:most].tolist())
    recogniser = SegmentalRecogniser.fit(
        dataset, learned, config=RecogniserConfig(members=1), seed=seed
    )
    films = {dataset.videos[place].video_id: film for place, film in recogniser.films.items()}
    verifier = Verifier.fit(
        [dataset.videos[place] for place in learned], dataset.taxonomy, films=films
    )
    still = np.zeros((len(dataset.taxonomy.actions), timeline.videos[0].shape[1]), np.float32)
    alarms: dict[str, list[float]] = {kind: [] for kind in KINDS}
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    unsure: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    live: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    live_alarms: list[bool] = []  # whether each came before the end
    run = SimpleNamespace(own_recogniser=recogniser, verifier=verifier, taxonomy=dataset.taxonomy)
    seconds, unsure_right, least = 0.0, 0, verifier.config.unsure
    of_right: list[float] = []  # findings of any kind in videos without errors
    right_hours = 0.0
    for place, video in enumerate(dataset.videos):
        if video.split != "test":
            continue
        rows, order = timeline.videos[place].astype(np.float32), verifier.orders[video.task]
        right = judged(recogniser, verifier, rows, timeline.rate, video.task)
        for kind, words in KINDS.items():
            alarms[kind] += chances(right, words).values()
        said = chances(right, KINDS["exchanged"])
        unsure_right += sum(least <= one < _SAID for one in said.values())
        end = len(rows) / timeline.rate
        seconds += end
        live_alarms += [at <= end for at in told(run, rows, timeline.rate, video.task).values()]
        if video.clean:
            right_hours += len(rows) / timeline.rate / 3600
            of_right += [one.probability for one in right.deviations] if right is not None else []
        labels = row_labels(video.steps, len(rows), timeline.rate, len(still))
        if len(segments(labels, len(still))) != len(video.steps):  # steps that overlap
            continue
        for kind, places, named in mistaken(video, order, cuts, generator):
            made, shown = rearranged(rows, labels, places, still)
            wrong = judged(recogniser, verifier, made, timeline.rate, video.task)
            own = chances(wrong, KINDS[kind])
            best = max(own.get(action, 0.0) for action in named)
            found[kind].append(best)
            unsure[kind].append(best >= least)
            named_at = told(run, made, timeline.rate, video.task)
            first = next((k for k, place in enumerate(places) if place != k), len(places))
            starts = [one.start for one in segments(shown, len(still))] + [len(made)]
            live[kind].append(
                (
                    min(named_at.get(action, np.inf) for action in named),
                    starts[min(first, len(starts) - 1)] / timeline.rate,
                    len(made) / timeline.rate,
                )
            )
    hours = seconds / 3600
    result: dict[str, Any] = {"seed": seed, "hours": round(hours, 2)}
    result |= {"doubt": recogniser.doubt, "share": recogniser.shares[0]}
    result["seen"] = [own.model_dump() for own in recogniser.seen or ()]
    for kind, values in found.items():
        worst = sorted(alarms[kind], reverse=True)
        result[kind] = {"made": len(values)} | {
            f"found_at_{rate}_an_hour": share(np.array(values) > threshold(worst, rate * hours))
            for rate in RATES
        }
        result[kind]["said"] = {
            "found": share(np.array(values) >= _SAID),
            "found_or_unsure": share(unsure[kind]),
            "alarms_an_hour": round(sum(one >= _SAID for one in worst) / hours, 1),
        }
    result["live"] = {kind: told_in_all(values) for kind, values in live.items()} | {
        "alarms_an_hour": round(len(live_alarms) / hours, 1),
        "alarms_before_the_end_an_hour": round(sum(live_alarms) / hours, 1),
    }
    result["promised"] = dict(_promised(verifier, np.array(of_right), right_hours))
    result["unsure_an_hour"] = round(unsure_right / hours, 1)
    return result


def _promised(
    verifier: Verifier, alarms: NDArray[np.float64], hours: float
) -> Iterator[tuple[str, Any]]:
    """Yield false alarms promised an hour, and those in right test videos; None if refused."""
    for rate in RATES:
        try:
            least = verifier.promise(rate, films=True).least
        except ConfigError:
            yield str(rate), None
        else:
            yield str(rate), round(float((alarms >= least).sum()) / max(hours, 1e-9), 1)


def threshold(alarms: Sequence[float], most: float) -> float:
    return alarms[int(most)] if int(most) < len(alarms) else 0.0


def share(values: Any) -> float:
    """Return the share of true values, in per cent."""
    return round(100 * float(np.mean(values)), 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cuts", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--videos", type=int)
    given = parser.parse_args(arguments)
    with common.prepared(given.data) as dataset:
        runs = [measured(dataset, given.cuts, seed, given.videos) for seed in range(given.seeds)]
    report = {
        "command": f"python benchmarks/mistakes_in_films.py --data {given.data.name}"
        f" --cuts {given.cuts} --seeds {given.seeds}"
        + (f" --videos {given.videos}" if given.videos else ""),
        "machine": common.machine(),
        "runs": runs,
    }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
