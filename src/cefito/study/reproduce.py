"""The paper's tables and figures by name, for any prepared data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.prepared import PreparedDataset
from cefito.errors import ConfigError
from cefito.evaluation.score import ScoredWindows, evaluate_planner, successes
from cefito.planners.methods import PlannerVariant
from cefito.runs.run import open_run
from cefito.runtime import pick_device
from cefito.study.figures import Curve, draw_curves, draw_plans
from cefito.study.results import Results
from cefito.study.study import Study
from cefito.study.trials import ROWS, find_rows

_COUNTS = (10, 25, 50, 100, 250)  # numbers N of negatives
_SHARES = (0.0, 0.25, 0.5, 0.8, 1.0)  # shares r of hard negatives
_TRIPLET = {"training.loss.kind": "triplet", "training.auxiliary.weight": 0.0}
_FIXED = {**_TRIPLET, "training.loss.margin.low": 0.1, "training.loss.margin.high": 0.1}
_ADAPTIVE = {**_TRIPLET, "training.loss.margin.low": 0.01, "training.loss.margin.high": 0.1}
_MOST_WINDOWS = 400  # windows searched for successes and failures
_SHOWN = 4  # number of successes and of failures


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    title: str
    rows: Callable[[PreparedDataset], tuple[PlannerVariant, ...]]
    horizons: tuple[int, ...] = (3, 4)
    dataset: str = ""  # name of the paper's data set, as in `is_called`; empty for any
    against: str = ""  # the row that others are compared with; empty for the first
    published: str = ""  # the published table to show, as in `published_rows`; empty for none
    ordered: bool = False  # whether tables leave the rows in their order, not by success rate
    needs: str = "a prepared data set"
    draw: Callable[[Study, Results, Path], list[Path]] | None = None  # returns the files


def find_experiment(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in EXPERIMENTS:
        raise ConfigError(
            f"no table '{name}'; there are {', '.join(EXPERIMENTS)}.", setting="table"
        )
    return EXPERIMENTS[name]


def experiment_study(name: str, study: Study, *, horizons: tuple[int, ...] | None = None) -> Study:
    """A study with the rows and horizons of an experiment; the study's own rows follow.

    Args:
        name: Name of the experiment.
        study: The study, with data set and settings.
        horizons: Horizons that are scored; those of the experiment by default.
    """
    experiment = find_experiment(name)
    rows = {row.name: row for row in (*experiment.rows(study.dataset), *study.rows)}
    return replace(study, rows=tuple(rows.values()), horizons=horizons or experiment.horizons)


# Rows


def _named(*names: str) -> Callable[[PreparedDataset], tuple[PlannerVariant, ...]]:
    return lambda _: find_rows(names)


_OTHERS = ("cefito-guided", "viterbi", "pdpp", "pkg-beam", "nearest", "frequent")
_main = _named("cefito", *_OTHERS)


# these rows plan by classifier and energy alone: the chain of their runs is not asked
_NO_CHAIN = {"chain.members": 1, "chain_training.optimiser.epochs": 1}


def _trained(name: str, title: str, settings: Mapping[str, Any]) -> PlannerVariant:
    """CEFITO trained with other settings, with the paper's planning."""
    by_classifier = {"search.task_model": "classifier", **_NO_CHAIN, **settings}
    changes = {"name": name, "title": title, "settings": by_classifier}
    return ROWS["cefito"].model_copy(update=changes)


def _ablation_rows(_: PreparedDataset) -> tuple[PlannerVariant, ...]:
    """Loss, margin and auxiliary reconstruction, added one after the other."""
    baseline = {**_TRIPLET, "training.loss.kind": "regression", "training.negatives.count": 1}
    whole = {**_ADAPTIVE, "training.auxiliary.weight": 1.0}
    return (
        _trained("baseline", "baseline: regression of the goal", baseline),
        _trained("triplet", "+ triplet contrastive loss", _FIXED),
        _trained("adaptive", "+ adaptive margin", _ADAPTIVE),
        _trained("auxiliary", "+ auxiliary reconstruction (CEFITO)", whole),
        _trained("as-preset", "as the preset trains", {}),
    )


def _text_encoder_rows(dataset: PreparedDataset) -> tuple[PlannerVariant, ...]:
    kinds = {
        "learned": "learned embedding, random at first",
        "observed": "mean observations of each action (not in the paper)",
    }
    if dataset.action_text is not None:
        kinds["text"] = "text embeddings of the data set"
    no_skip = {"field.goal_skip": False}  # the skip connection needs observed actions
    return tuple(
        _trained(f"actions-{kind}", title, {"field.action_encoding": kind, **no_skip})
        for kind, title in kinds.items()
    )


def _negative_rows(_: PreparedDataset) -> tuple[PlannerVariant, ...]:
    negatives = "training.negatives"
    counts = [(f"N-{count}", count, 0.8) for count in _COUNTS]
    shares = [(f"r-{share}", 50, share) for share in _SHARES if share != 0.8]
    return tuple(
        _trained(
            name,
            f"N = {count}, r = {share}",
            {f"{negatives}.count": count, f"{negatives}.hard": share, f"{negatives}.edited": 0.0},
        )
        for name, count, share in counts + shares
    )


# Figures


def _draw_negatives(study: Study, results: Results, out: Path) -> list[Path]:
    """Success rate against the number of negatives and the share of hard ones."""
    rates: dict[str, list[float]] = {}
    for trial in results.scored(study.horizons[0]):
        rates.setdefault(trial.row, []).append(trial.success_rate)
    if "N-50" in rates:  # the same training, in both panels
        rates["r-0.8"] = rates["N-50"]
    panels = {}
    for title, letter, places, label in (
        ("negatives N", "N", _COUNTS, "r = 0.8"),
        ("share of hard negatives r", "r", _SHARES, "N = 50"),
    ):
        named = {float(place): f"{letter}-{place}" for place in places}
        points = [(place, rates[name]) for place, name in named.items() if name in rates]
        panels[title] = [Curve(label=label, points=points)] if points else []
    return draw_curves(
        panels,
        out / "negatives.png",
        labels=("N", "r"),
        values=(f"success rate, T = {study.horizons[0]} (%)",) * 2,
        log_places=(True, False),
        title=_title(results),
    )


def _draw_runtime(_: Study, results: Results, out: Path) -> list[Path]:
    """Seconds and token forwards a query against the horizon."""
    return draw_curves(
        {
            "runtime": _cost_curves(results, "seconds_per_query"),
            "token forwards": _cost_curves(results, "token_forwards_per_query"),
        },
        out / "runtime.png",
        labels=("horizon T",) * 2,
        values=("seconds a query", "token forwards a query"),
        log_values=True,
        title=_title(results),
    )


def _cost_curves(results: Results, cost: str) -> list[Curve]:
    """A curve for each row that has such a cost."""
    curves = []
    for row in results.rows:
        costs = {
            horizon: [getattr(trial, cost) for trial in results.scored(horizon, row.name)]
            for horizon in results.horizons
        }
        if points := [(float(horizon), part) for horizon, part in costs.items() if any(part)]:
            curves.append(Curve(label=row.title, points=points))
    return curves


def _draw_qualitative(study: Study, results: Results, out: Path) -> list[Path]:
    """The five best plans of successes and failures, of different tasks if possible."""
    row, written = study.rows[0], list[Path]()
    for horizon in study.horizons:
        trial = next(trial for trial in study.trials if trial.horizon == horizon)
        planner = row.apply(open_run(trial.run_folder, device=pick_device(study.device)).planner)
        windows = study.scored_windows(row, horizon)[0].sample(_MOST_WINDOWS, seed=0)
        _, plans = evaluate_planner(planner, windows)
        right = successes(plans, windows)
        for name, kept in (("successes", right), ("failures", ~right)):
            rows = np.flatnonzero(kept)
            _, first = np.unique(windows.tasks[rows], return_index=True)
            # the first of each task, then the rest
            by_task = [*rows[np.sort(first)].tolist(), *np.delete(rows, first).tolist()]
            if chosen := by_task[:_SHOWN]:
                best = [plans[index] for index in chosen]
                shown = ScoredWindows(best, windows.subset(chosen)).window_plans(study.dataset)
                target = out / f"qualitative-T{horizon}-{name}.png"
                title = f"{_title(results)}, T = {horizon}: {name}"
                written += draw_plans(shown, target, title=title)
    return written


def _title(results: Results) -> str:
    chosen = "" if results.selection == "held-out" else ", chosen on TEST"
    return results.dataset.name + chosen


EXPERIMENTS: dict[str, Experiment] = {
    "crosstask": Experiment("results on CrossTask", _main, dataset="crosstask", published="main"),
    "coin": Experiment("results on COIN", _main, dataset="coin", published="main"),
    "niv": Experiment(
        "results on NIV",
        # the released configurations plan with the true task
        _named("cefito", "cefito-true-task", *_OTHERS),
        dataset="niv",
        published="main",
    ),
    "ablation": Experiment(
        "training analysis: loss, margin, auxiliary reconstruction",
        _ablation_rows,
        against="baseline",
        ordered=True,
        published="ablation",
    ),
    "text-encoder": Experiment(
        "text encoder analysis",
        _text_encoder_rows,
        against="actions-learned",
        ordered=True,
        published="text-encoder",
        needs="a prepared data set, with text embeddings of its actions for that row",
    ),
    "negatives": Experiment(
        "negative sampling: their number N, the share r of hard ones",
        _negative_rows,
        horizons=(3,),
        against="N-50",
        ordered=True,
        draw=_draw_negatives,
    ),
    "classifier": Experiment(
        "accuracy of the task classifier", _named("frequent"), published="task-classifier"
    ),
    "oracle": Experiment(
        "predicted against true task",
        _named("cefito", "cefito-true-task", "cefito-guided", "cefito-guided-true-task"),
        published="oracle",
    ),
    "runtime": Experiment(
        "runtime and token forwards against the horizon",
        _named("cefito", "cefito-guided", "viterbi", "pdpp"),
        horizons=(3, 4, 5, 6),
        draw=_draw_runtime,
    ),
    "qualitative": Experiment(
        "the five best plans, successes and failures",
        _named("cefito-guided"),
        draw=_draw_qualitative,
    ),
}
"""The paper's tables and figures by name."""
