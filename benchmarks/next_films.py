"""How many films must be labelled if `cefito annotate` says which one is next.

Some films are drawn and labelled, a recogniser learns from them, orders the other training and
validation videos of a folder with taxonomy.json, videos.jsonl and timeline.npz, and the first are
labelled, up to the next number of films; against films in the order of the draw. Repeat the command
to add draws to --out.

    python benchmarks/next_films.py --data FOLDER --out FILE [--films 5 10 20 40] [--draws 0 1 2]
        [--orders random unsure next] [--set members=1] [--plans quickstart]

The scores are of the test videos, or, with --fold, of a third of the others, which are then not
labelled. Edits of a film are counted as in `labelling.py`. `steps` is the number of labelled steps.
`--plans` names a preset: a chain of it learns from the same films, a fifth of which choose its
epochs, and `success` is its success rate in the windows of three steps, in per cent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data import PreparedDataset
from cefito.data.annotations import SPLITS
from cefito.data.folds import folds_of
from cefito.data.timeline import row_labels
from cefito.data.windows import Windows, cut_windows, joined_windows
from cefito.evaluation.score import evaluate_planner
from cefito.files import write_json
from cefito.inference.next_films import FilmToLabel, LabelledFilms, ordered
from cefito.inference.proposals import compare
from cefito.inference.recordings import Recording
from cefito.planners.methods import find_method, load_config
from cefito.recognition.recogniser import Recognition
from cefito.recognition.scores import VideoScores, summary
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.tracks.track import named
from cefito.training.trainer import TrainingContext

ORDERS = ("random", "unsure", "next")
Learned = tuple[SegmentalRecogniser, dict[str, Any]]
"""A recogniser, and `videos`, its scores of each video that judges; perhaps `success` of plans."""


class Films:
    """The films of a data set: those that can be labelled, and those that judge.

    Args:
        data: The data set.
        fold: The third of the training and validation videos that judges; None for the test videos.
    """

    def __init__(self, data: PreparedDataset, fold: int | None) -> None:
        assert data.timeline is not None
        self.data, self.rows, self.rate = data, data.timeline.videos, data.timeline.rate
        split = [video.split == "test" for video in data.videos]
        self.free = [place for place, test in enumerate(split) if not test]
        self.judges = [place for place, test in enumerate(split) if test]
        if fold is not None:
            folds = folds_of([data.videos[place] for place in self.free], 3, by_task=True)
            self.judges = [self.free[n] for n in np.flatnonzero(folds == fold)]
            self.free = [self.free[n] for n in np.flatnonzero(folds != fold)]

    def recognition(self, recogniser: SegmentalRecogniser, place: int) -> Recognition:
        """What is recognised in a video."""
        return recogniser.recognise(self.rows[place], rate=self.rate)

    def following(
        self, order: str, recogniser: SegmentalRecogniser, labelled: list[int], drawn: list[int]
    ) -> list[int]:
        """The films to label next, the first one first.

        Args:
            order: One of `ORDERS`.
            recogniser: It has learned from the labelled films.
            labelled: Places of these.
            drawn: Places of all films in the order of the draw.
        """
        left = [place for place in drawn if place not in labelled]
        if order == "random":
            return left
        known = LabelledFilms.of(self.data, labelled) if order == "next" else None
        films = []
        for place in left:
            whole = Recording(str(place), "", self.rows[place], self.rate)
            films.append(FilmToLabel.of(whole, self.recognition(recogniser, place), known))
        return [int(film.track.video) for film, _ in ordered(films, known)]

    @cached_property
    def windows(self) -> Windows:
        """The windows of three steps of all films."""
        splits = [cut_windows(self.data, horizon=3, split=name) for name in SPLITS]
        return reduce(joined_windows, splits)

    def success(self, places: Sequence[int], preset: str, seed: int) -> float:
        """Success rate, in per cent, of a chain that learned from the films at places."""
        held, judges = places[::5], self.judges
        train, val, test = (
            self.windows.subset(np.flatnonzero(np.isin(self.windows.video, part)))
            for part in ([place for place in places if place not in held], held, judges)
        )
        settings = load_config(preset, method="chain", shared=True).settings
        method, context = find_method("chain").planner, TrainingContext()
        fitted = method.fit(train, val, settings=settings, seed=seed, context=context)
        return evaluate_planner(fitted.planner, test)[0].success_rate

    def judged(self, recogniser: SegmentalRecogniser) -> list[dict[str, float]]:
        """Edits, edit score and counts of segments of each video that judges."""
        scores, background = [], len(self.data.taxonomy.actions)
        for place in self.judges:
            seen, video = self.recognition(recogniser, place), self.data.videos[place]
            truth = row_labels(video.steps, len(self.rows[place]), self.rate, background)
            shown = VideoScores.of(seen.rows.argmax(axis=1), truth, background)
            pair = seen.steps(), named(video.steps, self.data.taxonomy)
            scores.append({"edits": compare([pair]).edits, **shown._asdict()})
        return scores


def curve(
    films: Films,
    order: str,
    sizes: Sequence[int],
    draw: int,
    learned: Callable[[tuple[int, ...]], Learned],
) -> dict[str, Any]:
    """Scores after each number of labelled films.

    Args:
        films: The films.
        order: One of `ORDERS`.
        sizes: Numbers of labelled films, ascending.
        draw: Seed of the draw.
        learned: Trains a recogniser on the films at places, and scores it.
    """
    drawn = [films.free[n] for n in np.random.default_rng(draw).permutation(len(films.free))]
    labelled, scores = drawn[: sizes[0]], dict[str, Any]()
    recogniser, judged = learned(tuple(sorted(labelled)))
    for size in sizes:
        if size > len(labelled):
            more = films.following(order, recogniser, labelled, drawn)
            labelled = labelled + more[: size - len(labelled)]
            recogniser, judged = learned(tuple(sorted(labelled)))
        own = [films.data.videos[place] for place in labelled]
        steps, tasks = sum(len(video.steps) for video in own), len({video.task for video in own})
        scores[str(size)] = {"steps": steps, "tasks": tasks, **judged}
    return scores


def figures(curves: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Scores of each order and number of films, over the draws that all orders have.

    `edits_less` is by how much edits of a film are fewer than in the order of the draw, with its
    95 % interval, videos resampled; `films_for_edit` the number of films, interpolated, at which
    the edit score is that of so many films in the order of the draw.
    """
    draws = sorted(set.intersection(*(set(made) for made in curves.values())))
    shown: dict[str, Any] = {"draws": len(draws)}
    usual: dict[str, dict[str, float]] = {}
    for order in [name for name in ORDERS if name in curves]:
        sizes = curves[order][draws[0]]
        rows = {size: _scores([curves[order][draw][size] for draw in draws]) for size in sizes}
        usual = usual or rows
        edits = [row["edit"] for row in rows.values()]
        for size, row in rows.items() if order != "random" else ():
            pairs = [[curves[name][draw][size] for draw in draws] for name in ("random", order)]
            before, after = (
                np.array([[film["edits"] for film in one["videos"]] for one in side]).mean(axis=0)
                for side in pairs
            )
            weights = np.random.default_rng(0).multinomial(
                len(after), np.full(len(after), 1 / len(after)), 1000
            )
            less = np.percentile(weights @ (before - after) / len(after), (2.5, 97.5))
            row["edits_less"] = [round(float(v), 1) for v in ((before - after).mean(), *less)]
            reached = np.maximum.accumulate(edits)
            numbers = [int(n) for n in rows]
            row["films_for_edit"] = round(
                float(np.interp(usual[size]["edit"], reached, numbers)), 1
            )
        shown[order] = rows
    return shown


def _scores(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean scores of draws."""
    films = [film for draw in draws for film in draw["videos"]]
    fields = VideoScores._fields
    found = summary(VideoScores(**{name: film[name] for name in fields}) for film in films)
    means = {
        name: float(np.mean([draw[name] for draw in draws]))
        for name in ("steps", "tasks", "success")
        if all(name in draw for draw in draws)
    }
    means |= {"edits": float(np.mean([film["edits"] for film in films]))}
    means |= {name: found[name] for name in ("edit", "f1_50")}
    return {name: round(value, 1) for name, value in means.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--films", type=int, nargs="+", default=[5, 10, 20, 40])
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--fold", type=int, choices=range(3))
    parser.add_argument("--plans", metavar="PRESET")
    common.add_settings(parser)
    given = parser.parse_args(arguments)
    config = common.recogniser_settings(given.set)
    before = given.out is not None and given.out.exists()
    curves: dict[str, Any] = json.loads(given.out.read_text())["curves"] if before else {}
    with common.prepared(given.data) as data:
        films = Films(data, given.fold)
        for draw in given.draws:

            @lru_cache(maxsize=len(given.films))
            def learned(places: tuple[int, ...], draw: int = draw) -> Learned:
                own = SegmentalRecogniser.fit(data, places, config=config, seed=draw)
                judged: dict[str, Any] = {"videos": films.judged(own)}
                if given.plans is not None:
                    judged["success"] = films.success(places, given.plans, draw)
                return own, judged

            for order in given.orders:
                if str(draw) not in curves.setdefault(order, {}):
                    curves[order][str(draw)] = curve(films, order, given.films, draw, learned)
            report = {
                **common.about("next_films", given, data),
                "judges": len(films.judges),
                "scores": figures(curves),
                "curves": curves,
            }
            if given.out is not None:
                write_json(given.out, report)
            print(draw, json.dumps(report["scores"]), flush=True)


if __name__ == "__main__":
    main()
