"""How much labelling recognised steps save, with few labelled videos.

Of the training and validation videos of a folder with taxonomy.json, videos.jsonl and timeline.npz,
or of a prepared data set, some are drawn as labelled. A recogniser learns from them alone and
proposes the steps of the test videos; what a person had to change is counted. Repeat the command to
add draws to --out.

    python benchmarks/labelling.py --data FOLDER --out FILE [--films 10 20 40] [--draws 0 1 2]
        [--set members=1]

A step is touched if its proposal has another action or a border more than 2 s away, or if there is
none; proposals without a step are touched, too. An edit is one label or one border, three a step:
`edits` are those of a film with proposals, `from_nothing` without.

`person` holds seconds of a film by a model of a person (`Person`); nobody was timed. `machine`
holds seconds of one core: of learning, and of the proposal of a film whose rows are there.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.data import PreparedDataset, open_dataset
from cefito.data.readers.custom import prepare
from cefito.files import write_json
from cefito.inference.proposals import TOLERANCE, Corrections, compare, matched
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.tracks import TimedStep

Counts = dict[str, float]
"""Of one film: what was changed, by its name."""


@dataclass(frozen=True)
class Person:
    """A person who labels films, by the keystroke-level model; times in seconds.

    The film is watched once, with proposals as without. Whoever draws or moves a border thinks,
    looks at the film around it again, and drags with the mouse. Each proposed step is thought about
    once.
    """

    speed: float  # at which the film is watched
    key: float  # a key, or a click
    point: float  # move the mouse to a place
    think: float
    look: float  # around a border
    home: float = 0.4  # move the hand from the mouse to the keys

    @property
    def border(self) -> float:
        """Draw or move one border."""
        return self.think + self.look + 2 * self.point + self.key

    @property
    def choose(self) -> float:
        """Choose a label, or a step."""
        return self.think + self.point + self.key

    @property
    def insert(self) -> float:
        """Draw a step."""
        return self.choose + 2 * self.border

    def seconds(self, film: Counts) -> float:
        """Seconds of a film with proposals."""
        delete = self.choose + self.home + self.key
        return (
            film["seconds"] / self.speed
            + film["proposed"] * self.think
            + film["inserted"] * self.insert
            + film["renamed"] * 2 * self.choose
            + film["borders"] * self.border
            + film["deleted"] * delete
        )

    def from_nothing(self, film: Counts) -> float:
        """Seconds of a film without proposals."""
        return film["seconds"] / self.speed + film["steps"] * self.insert


# Times of keys and mouse: Card, Moran and Newell, The keystroke-level model for user performance
# time with interactive systems, CACM 23(7), 1980, and The Psychology of Human-Computer
# Interaction, 1983: a key takes 0.08 s (best typist), 0.2 s (average) or 0.5 s (random letters),
# pointing 0.8 to 1.5 s, on average 1.1 s, homing 0.4 s, thinking 1.35 s. Half and twice the time
# to think, the speeds and the looks are assumptions.
PEOPLE = {
    "fast": Person(speed=2.0, key=0.08, point=0.8, think=0.675, look=1.0),
    "usual": Person(speed=1.5, key=0.2, point=1.1, think=1.35, look=2.0),
    "slow": Person(speed=1.0, key=0.5, point=1.5, think=2.7, look=4.0),
}


def changed(proposed: Sequence[TimedStep], annotated: Sequence[TimedStep]) -> Counts:
    """What a person changes in a film, counted as `compare` does and by what is done.

    A step that has another action's proposal, which it overlaps, is renamed rather than drawn.
    """
    pairs = matched(proposed, annotated)
    left = [
        [step.model_copy(update={"name": ""}) for step in steps]
        for steps in (
            [proposal for proposal, step in pairs if proposal and step is None],
            [step for proposal, step in pairs if step and proposal is None],
        )
    ]
    others = matched(*left)
    off = [
        (abs(proposal.start - step.start) > TOLERANCE) + (abs(proposal.end - step.end) > TOLERANCE)
        for proposal, step in (*pairs, *others)
        if proposal and step
    ]
    return {
        **compare([(proposed, annotated)]).model_dump(),
        "proposed": len(proposed),
        "borders": sum(off),
        "renamed": sum(bool(proposal and step) for proposal, step in others),
        "inserted": sum(proposal is None for proposal, _ in others),
        "deleted": sum(step is None for _, step in others),
    }


def proposals(
    data: PreparedDataset, films: int, draw: int, config: RecogniserConfig
) -> tuple[list[Counts], dict[str, float]]:
    """What is changed in each test video, given a draw of labelled films, and seconds of a core."""
    assert data.timeline is not None
    names = data.taxonomy.actions
    free = [place for place, video in enumerate(data.videos) if video.split != "test"]
    chosen = np.random.default_rng(draw).permutation(free)[:films]
    begun = time.process_time()
    recogniser = SegmentalRecogniser.fit(data, sorted(chosen.tolist()), config=config, seed=draw)
    times = [time.process_time() - begun]
    counts = []
    for place, video in enumerate(data.videos):
        if video.split == "test":
            rows = data.timeline.videos[place]
            begun = time.process_time()
            seen = recogniser.recognise(rows, rate=data.timeline.rate).steps()
            times.append(time.process_time() - begun)
            proposed, annotated = (
                [TimedStep(name=names[s.action].name, start=s.start, end=s.end) for s in steps]
                for steps in (seen, video.steps)
            )
            seconds = len(rows) / data.timeline.rate
            counts.append({**changed(proposed, annotated), "seconds": seconds})
    machine = {"learn_s": round(times[0], 1), "propose_s": round(float(np.mean(times[1:])), 3)}
    return counts, machine


def summary(draws: list[list[Counts]]) -> dict[str, Any]:
    """Means over all draws, shares in per cent, with 95 % intervals, videos resampled."""
    videos = len(draws[0])
    weights = np.random.default_rng(0).multinomial(videos, np.full(videos, 1 / videos), 1000)

    def spread(values: NDArray[np.floating[Any]], of: NDArray[np.floating[Any]]) -> dict[str, Any]:
        """The ratio of two sums over videos, and its interval."""
        low, high = np.percentile((weights @ values) / (weights @ of), (2.5, 97.5))
        numbers = {"mean": values.sum() / of.sum(), "low": low, "high": high}
        return {name: round(float(number), 1) for name, number in numbers.items()}

    def total(value: Callable[[Counts], float]) -> NDArray[np.floating[Any]]:
        """A value of each video, summed over draws."""
        return np.array([[value(film) for film in films] for films in draws], dtype=float).sum(
            axis=0
        )

    def number(name: str) -> Callable[[Counts], float]:
        """A property of the corrections of a film."""
        return lambda film: float(getattr(_corrections(film), name))

    films, steps = total(lambda _: 1), total(lambda film: film["steps"])
    edits = total(number("edits"))
    rows: dict[str, Any] = {
        "draws": len(draws),
        "from_nothing": round(float(3 * steps.sum() / films.sum()), 1),
        "touched": spread(
            100 * total(lambda film: _corrections(film).touched * film["steps"]), steps
        ),
        "saved": spread(100 * (3 * steps - edits), 3 * steps),
        "edits": spread(edits, films),
    }
    people = {}
    for name, person in PEOPLE.items():
        helped, alone = total(person.seconds), total(person.from_nothing)
        people[name] = {
            "from_nothing": spread(alone, films),
            "seconds": spread(helped, films),
            "saved": spread(100 * (alone - helped), alone),
        }
    return {**rows, "person": people}


def _corrections(film: Counts) -> Corrections:
    return Corrections(**{name: int(film[name]) for name in Corrections.model_fields})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--films", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    common.add_settings(parser)
    given = parser.parse_args(arguments)
    config = common.recogniser_settings(given.set)
    before = given.out is not None and given.out.exists()
    kept = json.loads(given.out.read_text()) if before else {"counts": {}, "machine": {}}
    counts: dict[str, dict[str, list[Counts]]] = kept["counts"]
    machine: dict[str, dict[str, Any]] = kept["machine"]
    with tempfile.TemporaryDirectory() as folder:
        prepared = (given.data / "dataset.json").exists()
        data = open_dataset(given.data) if prepared else prepare(given.data, Path(folder) / "data")
        for draw in given.draws:
            for films in given.films:
                changes, seconds = proposals(data, films, draw, config)
                counts.setdefault(str(films), {})[str(draw)] = changes
                machine.setdefault(str(films), {})[str(draw)] = seconds
                rows = {size: summary(list(draws.values())) for size, draws in counts.items()}
                report = {
                    **common.about("labelling", given, data),
                    "test_videos": len(changes),
                    "labelled": rows,
                    "machine": machine,
                    "counts": counts,
                }
                if given.out is not None:
                    write_json(given.out, report)
                print(films, draw, seconds, rows[str(films)], flush=True)


if __name__ == "__main__":
    main()
