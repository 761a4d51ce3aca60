"""Verifiers beside each other, on a table of steps: each step is judged from those before it.

They learn from the right videos of the split train, and judge those of the split test. Of mistakes
(positives), F1b has the precision of as many right steps as mistakes, TP / (TP + FP · mistakes /
right steps), and the average F1 is the mean of F1 of mistakes and of right steps. What is missed at
a number of false alarms an hour is read from the test videos, at the best threshold that keeps it.
What `ours` promises of false alarms is counted in each test video up to its first mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError, DataError
from cefito.evaluation.statistics import resampled
from cefito.files import write_json, write_text
from cefito.inference.verification import open_verifier, verified
from cefito.markup import counted
from cefito.study.figures import draw_missed
from cefito.study.promises import HOURLY, KeptPromise, kept_promises, missed_curve, right_part
from cefito.study.rendering import (
    NONE,
    Entry,
    Table,
    check_columns,
    latex,
    markdown,
    resampled_legend,
    resampled_text,
)
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cefito.tracks.track import bound
from cefito.verification.findings import LEAST
from cefito.verification.order import TaskOrder
from cefito.verification.order_files import read_orders
from cefito.verification.promise import HeldOutFindings, RightFindings
from cefito.verification.verifier import Verifier

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Judge = Callable[[Track], Sequence[float]]
"""Returns p(mistake) of each step of a video, from those before it."""


@dataclass(frozen=True, eq=False)
class RightVideos:
    """What a verifier may learn from."""

    right: Sequence[Track]  # videos of the split train without errors
    verifier: Verifier  # learned from the split train


@dataclass(frozen=True)
class VerifierRow:
    """A row of the table of verifiers."""

    line: str
    learn: Callable[[RightVideos], Judge]
    alarms: float | None = None  # false alarms a right video that choose its threshold; else 0.5


def _names(video: Track) -> list[str]:
    return [step.name for step in video.steps]


def _pairs(video: Track) -> list[tuple[str, str]]:
    """Return each name with the one before it, "" before the first."""
    return [*pairwise(["", *_names(video)])]


def _pairs_of_task(video: Track) -> list[tuple[str, tuple[str, str]]]:
    return [(video.task, pair) for pair in _pairs(video)]


def _unseen(of: Callable[[Track], list[Any]], known: RightVideos) -> Judge:
    """Call a step a mistake if no right video has what `of` returns of it."""
    seen = {key for video in known.right for key in of(video)}
    return lambda video: [float(key not in seen) for key in of(video)]


def _late(known: RightVideos) -> Judge:
    """Return p = (steps before + 1) / mean steps of right videos, of all if the task has none."""

    def judged(video: Track) -> list[float]:
        of_task = [one for one in known.right if one.task == video.task] or known.right
        usual = sum(len(one.steps) for one in of_task) / len(of_task)
        return [min(place / usual, 1.0) for place in range(1, len(video.steps) + 1)]

    return judged


def _counted(order: TaskOrder) -> TaskOrder:
    """Return an order whose graph is of counts alone: orders that 9 of 10 videos keep."""
    return replace(order, places=order.places[:0])


GRAPHS: dict[str, Callable[[TaskOrder], TaskOrder]] = {
    "count-graph": _counted,
    "graph": lambda order: order,
}
"""What the graph of each verifier that has one is of, by the name of its row."""


def _by_graph(name: str, known: RightVideos) -> Judge:
    pairs = zip(known.verifier.taxonomy.tasks, known.verifier.orders, strict=True)
    orders = {task.name: GRAPHS[name](order) for task, order in pairs}
    ids = {action.name: action.id for action in known.verifier.taxonomy.actions}

    def judged(video: Track) -> list[float]:
        order, done, judgements = orders[video.task], set[int](), []
        for name in _names(video):
            place = order.index.get(ids.get(name, -1))
            needed = [] if place is None else np.flatnonzero(order.earlier[:, place]).tolist()
            judgements.append(float(place is None or not done.issuperset(needed)))
            if place is not None:
                done.add(place)
        return judgements

    return judged


def _ours(known: RightVideos) -> Judge:
    def judged(video: Track) -> list[float]:
        (ours,) = bound([video], known.verifier.taxonomy, unknown=True)
        steps = verified(known.verifier, ours, least=LEAST, online=True).steps
        return [step.mistake or 0.0 for step in steps]

    return judged


VERIFIERS: dict[str, VerifierRow] = {
    "never": VerifierRow("no step is a mistake", lambda _: lambda video: [0.0] * len(video.steps)),
    "always": VerifierRow(
        "every step is a mistake", lambda _: lambda video: [1.0] * len(video.steps)
    ),
    "after-first": VerifierRow(
        "every step but the first, before which there is none that it could contradict",
        lambda _: lambda video: [float(place > 0) for place, _ in enumerate(video.steps)],
    ),
    "late-step": VerifierRow("from half of the steps on that right videos of its task have", _late),
    "unseen-step": VerifierRow(
        "a name that no right video of any task has", partial(_unseen, _names)
    ),
    "unseen-pair": VerifierRow(
        "a name that follows the one before it in no right video of any task",
        partial(_unseen, _pairs),
    ),
    "one-step-memory": VerifierRow("the same, of its own task", partial(_unseen, _pairs_of_task)),
    "count-graph": VerifierRow(
        "a step before one that 9 of 10 videos of its task have before it, or of no such video",
        partial(_by_graph, "count-graph"),
    ),
    "graph": VerifierRow(
        "a step before what precedes it in the graph of cefito graph, or that it does not hold",
        partial(_by_graph, "graph"),
    ),
    "ours": VerifierRow("cefito verify --online", _ours, alarms=1),
}
"""Verifiers by name."""


def compare_verifiers(
    table: Path,
    out: Path | None,
    names: Sequence[str],
    columns: Sequence[str] | None = None,
    graphs: Path | None = None,
) -> tuple[Table, dict[str, Any]]:
    """Score verifiers on a table; write verification.json, .md, .tex, .svg; the table and scores.

    The picture shows the mistakes missed at each number of false alarms.

    Args:
        table: File of steps with the columns split and error.
        out: Folder to write; None for none.
        names: Names of `VERIFIERS`.
        columns: Heads of the columns of the table; all by default.
        graphs: File of the right graphs of tasks, as `cefito graph --out` writes it, by which those
            of the rows of `GRAPHS` have an F1 of edges, the mean over the tasks in the file.

    Raises:
        ConfigError: An unknown verifier or column, or a file of graphs with an unknown name.
        DataError: No test videos with mistakes and right steps.
    """
    if not names or not {*names} <= VERIFIERS.keys():
        unknown = ", ".join(name for name in names if name not in VERIFIERS) or "none"
        raise ConfigError(f"verifiers {unknown}: expected some of {', '.join(VERIFIERS)}.")
    scored = [*_HEADS] if graphs is not None else [score for score in _HEADS if score != "graph_f1"]
    check_columns(columns, [_HEADS[score] for score in scored])
    tracks = read([table], Choices()).tracks
    test = [video for video in tracks if video.split == "test" and video.steps]
    wrong = np.array([bool(step.wrong) for video in test for step in video.steps], dtype=bool)
    if not wrong.any() or wrong.all():
        problem = "expected videos of the split test with right steps and with mistakes"
        raise DataError(f"{table}: {problem}. Give the columns split and error.")
    right = [video for video in tracks if video.split in ("", "train")]
    right = [one for one in right if not one.missing and not any(s.wrong for s in one.steps)]
    known = RightVideos(right, open_verifier(table, online=True)[1])
    official = {} if graphs is None else read_orders(graphs, known.verifier.taxonomy)
    hours = np.array([max(step.end for step in video.steps) / 3600 for video in test])
    numbers = np.repeat(np.arange(len(test)), [len(video.steps) for video in test])
    training = known.verifier.online
    held_out = np.sort(training.probability[training.done])  # of steps alone, as the scores are
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        row, least = VERIFIERS[name], LEAST
        judge = row.learn(known)
        chances = np.array([chance for video in test for chance in judge(video)])
        if row.alarms is not None and len(held_out):
            kept = held_out[: len(held_out) - int(row.alarms * len(right))]
            least = float(np.nextafter(kept.max(initial=0.0), 1))
        sums, levels = summed(chances, wrong, numbers, hours)
        resampled_scores = resampled(sums, partial(scores, said=int((levels >= least).sum())))
        rows[name] = {"least": round(least, 4)}
        rows[name] |= {score: round(value.mean, 1) for score, value in resampled_scores.items()}
        if len(test) > 1:  # a single video cannot be resampled
            rows[name]["intervals"] = {of: each.rounded() for of, each in resampled_scores.items()}
        if official and name in GRAPHS:
            orders = {task: GRAPHS[name](known.verifier.orders[task]) for task in official}
            pairs = [
                (with_ends(one.edges, one.actions), with_ends(official[task], one.actions))
                for task, one in orders.items()
            ]
            rows[name]["graph_f1"] = agreement(pairs)["f1"]
        rows[name]["missed"] = missed_curve(chances, wrong, float(hours.sum()))
    report = {
        "table": table.name,
        "right_videos": len(right),
        "test_videos": len(test),
        "steps": len(wrong),
        "mistakes": int(wrong.sum()),
        "hours": round(float(hours.sum()), 2),
        "rows": rows,
    }
    if "ours" in names:
        parts = HeldOutFindings.of([*right_parts(known.verifier, test)])
        report["promises"] = [
            promise.model_dump()
            for per_steps in (None, 100)
            for promise in kept_promises(training, parts, per_steps)
        ]
    shown = _table(report, scored).of_columns(columns)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "verification.json", report)
        write_text(out / "verification.md", markdown(shown))
        write_text(out / "verification.tex", latex(shown))
        draw_missed({name: row["missed"] for name, row in rows.items()}, out / "verification.svg")
    return shown, report


def right_parts(verifier: Verifier, test: Iterable[Track]) -> Iterator[RightFindings]:
    """Yield the findings in the steps before the first mistake of each test video, online."""
    for video in test:
        steps = video.steps[: right_part([step.wrong for step in video.steps])]
        if not steps:
            continue
        (ours,) = bound(
            [video.model_copy(update={"steps": steps})], verifier.taxonomy, unknown=True
        )
        findings = verified(verifier, ours, least=0.0, online=True).deviations
        rows = [(finding.probability, finding.step is not None, -1) for finding in findings]
        yield -1, max(step.end for step in steps) / 3600, len(steps), rows


def with_ends(edges: Iterable[tuple[Any, Any]], actions: Iterable[int]) -> set[tuple[Any, Any]]:
    """Return edges with those from "start" and to "end" that actions without others have."""
    pairs, ids = {*edges}, [*map(int, actions)]
    later, earlier = {b for _, b in pairs}, {a for a, _ in pairs}
    starts = {("start", one) for one in ids if one not in later}
    return {*pairs, *starts, *((one, "end") for one in ids if one not in earlier)}


def agreement(pairs: Sequence[tuple[set[Any], set[Any]]]) -> dict[str, float]:
    """Precision, recall and F1 of the first edges by the second ones: means, in per cent."""
    rows = []
    for ours, theirs in pairs:
        right = len(ours & theirs)
        precision, recall = right / max(len(ours), 1), right / max(len(theirs), 1)
        rows.append((precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)))
    means = (100 * np.mean(rows, axis=0)).round(1).tolist()
    return dict(zip(("precision", "recall", "f1"), means, strict=True))


def summed(
    chances: Floats, wrong: Bools, videos: NDArray[np.int64], hours: Floats
) -> tuple[Floats, Floats]:
    """Return counts of mistakes and right steps by video, and K probabilities, which descend.

    Place k of the counts has the steps at least as likely as the k-th probability; the first has
    none, the last all. Hours, which every place has, follow: [V, 3, K + 1].

    Args:
        chances: p(mistake) of each step [n].
        wrong: Whether it is one [n].
        videos: Row of its video in `hours` [n].
        hours: Length of each video [V].
    """
    levels, level = np.unique(-chances, return_inverse=True)
    sums = np.zeros((len(hours), 3, len(levels) + 1))
    np.add.at(sums, (videos, np.where(wrong, 0, 1), level + 1), 1)
    sums = sums.cumsum(axis=2)
    sums[:, 2] = hours[:, None]
    return sums, -levels


def scores(sums: Floats, said: int) -> dict[str, Floats]:
    """Return scores of mistakes, in per cent [D]; NaN without a mistake or a right step.

    Args:
        sums: What `summed` returns, of one or several videos [D, 3, K + 1].
        said: Place of the steps that are called mistakes.
    """
    hits, alarms, hours = np.moveaxis(sums, 1, 0)
    mistakes, right = np.where((hits[:, -1:] > 0) & (alarms[:, -1:] > 0), sums[:, :2, -1], np.nan).T
    called, false = hits[:, said], alarms[:, said]
    recall, f1 = called / mistakes, 2 * called / (called + false + mistakes)
    kept = right - false  # right steps that are not called mistakes
    between = (alarms[:, 1:] + alarms[:, :-1]) / 2  # right steps above each mistake, ties by half
    values = {
        "precision": called / np.maximum(called + false, 1) + 0 * mistakes,
        "recall": recall,
        "f1": f1,
        "average_f1": f1 / 2 + kept / (kept + right + mistakes - called),
        # by recall and the share of right steps that are called mistakes
        "f1b": 2 * recall / (recall + false / right + 1),
        "auc": 1 - (np.diff(hits) * between).sum(axis=1) / (mistakes * right),
    }
    for budget in HOURLY:
        within = np.where(alarms <= np.floor(budget * hours), hits, 0).max(axis=1)
        values[f"missed_{budget}"] = 1 - within / mistakes
    return {name: 100 * value for name, value in values.items()}


_HEADS = {
    **{"precision": "P", "recall": "R", "f1": "F1", "average_f1": "average F1", "f1b": "F1b"},
    **{"auc": "AUC"} | {f"missed_{budget}": f"missed at {budget}" for budget in HOURLY},
    "graph_f1": "graph F1",
}
_MEANINGS = {
    "P": "precision of mistakes",
    "R": "recall of mistakes",
    "F1": "F1 of mistakes",
    "average F1": "mean of F1 of mistakes and of right steps",
    "F1b": "F1 if there were as many right steps as mistakes",
    "AUC": "probability that a mistake is likelier than a right step",
    "graph F1": "F1 of the edges of graphs, start and end among them, mean over tasks",
} | {
    f"missed at {budget}": f"mistakes missed at {counted(budget, 'false alarm')} an hour"
    for budget in HOURLY
}


def _table(report: dict[str, Any], scored: Sequence[str]) -> Table:
    def cells(name: str) -> Iterable[str]:
        yield name
        for score in scored:
            row = report["rows"][name]
            ends = row.get("intervals", {}).get(score, {})
            yield resampled_text({**ends, "mean": row[score]}, 1) if score in row else NONE

    mistakes = f"{counted(report['mistakes'], 'mistake')} in {counted(report['steps'], 'step')}"
    return Table(
        title=f"{report['table']}: {mistakes} of {counted(report['test_videos'], 'test video')}",
        heads=("verifier", *(_HEADS[score] for score in scored)),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in report["rows"]),
        legend=resampled_legend(report["test_videos"], "video"),
        meanings=_MEANINGS,
        notes=(
            *(f"{name}: {VERIFIERS[name].line}." for name in report["rows"]),
            *(f"ours {KeptPromise(**one).words}." for one in report.get("promises", ())),
        ),
    )
