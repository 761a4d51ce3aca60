"""The paper's tables and figures, each on whichever prepared data set is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.evaluation.figures import Curve, Line, PlanPanel, draw_curves, draw_plans
from cefito.evaluation.results import Results
from cefito.evaluation.rows import ROWS, Row
from cefito.evaluation.score import evaluate_planner
from cefito.evaluation.study import Cell, Study, scored_windows
from cefito.planners.run import open_run
from cefito.runtime import pick_device
from cefito.search.settings import search_settings

__all__ = ["EXPERIMENTS", "Experiment", "draw_experiment", "experiment_study", "find_experiment"]

_ENERGY = ROWS["cefito-energy"]
_MAIN = ("cefito-energy", "cefito-guided", "viterbi", "pdpp", "pkg-beam", "nearest", "frequent")
_TRIPLET = {"training.loss.kind": "triplet", "training.auxiliary.weight": 0.0}
_FIXED = {**_TRIPLET, "training.loss.margin.low": 0.1, "training.loss.margin.high": 0.1}
_ADAPTIVE = {**_TRIPLET, "training.loss.margin.low": 0.01, "training.loss.margin.high": 0.1}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        title: What it shows.
        rows: Its rows, for a data set.
        horizons: Its horizons.
        dataset: What the name of the paper's data set begins with; empty where any will do.
        against: The row that others are compared with; empty for the first.
        published: The published table whose rows are shown, as in `published_rows`; empty for none.
        needs: What else it needs.
        draw: Draws its figure into a folder and says what was written; None where the paper has
            none.
    """

    title: str
    rows: Callable[[PreparedDataset], tuple[Row, ...]]
    horizons: tuple[int, ...] = (3, 4)
    dataset: str = ""
    against: str = ""
    published: str = ""
    needs: str = "a prepared data set"
    draw: Callable[[Study, Results, Path], list[Path]] | None = None


def _main(_: PreparedDataset) -> tuple[Row, ...]:
    return tuple(ROWS[name] for name in _MAIN)


def _trained(name: str, title: str, settings: Mapping[str, Any]) -> Row:
    """CEFITO trained with other settings, planning as the paper does."""
    return replace(_ENERGY, name=name, title=title, settings=settings)


def _ablation(_: PreparedDataset) -> tuple[Row, ...]:
    return (
        _trained(
            "baseline",
            "baseline: regression of the goal",
            {**_TRIPLET, "training.loss.kind": "regression", "training.negatives.count": 1},
        ),
        _trained("triplet", "+ triplet contrastive loss", _FIXED),
        _trained("adaptive", "+ adaptive margin", _ADAPTIVE),
        _trained(
            "auxiliary",
            "+ auxiliary reconstruction (CEFITO)",
            {**_ADAPTIVE, "training.auxiliary.weight": 1.0},
        ),
        _trained("as-preset", "as the preset trains", {}),
    )


def _text_encoder(dataset: PreparedDataset) -> tuple[Row, ...]:
    kinds = {
        "learned": "learned embedding, random at first",
        "observed": "mean observations of each action (not in the paper)",
    }
    if dataset.action_text is not None:
        kinds["text"] = "text embeddings of the data set"
    skip = {"field.goal_skip": False}  # which needs observed actions
    return tuple(
        _trained(f"actions-{kind}", title, {"field.action_encoding": kind, **skip})
        for kind, title in kinds.items()
    )


_COUNTS = (10, 25, 50, 100, 250)
_SHARES = (0.0, 0.25, 0.5, 0.8, 1.0)


def _negatives(_: PreparedDataset) -> tuple[Row, ...]:
    def row(name: str, count: int, share: float) -> Row:
        return _trained(
            name,
            f"N = {count}, r = {share}",
            {
                "training.negatives.count": count,
                "training.negatives.hard": share,
                "training.negatives.edited": 0.0,
            },
        )

    return (
        *(row(f"N-{count}", count, 0.8) for count in _COUNTS),
        *(row(f"r-{share}", 50, share) for share in _SHARES if share != 0.8),
    )


def _classifier(_: PreparedDataset) -> tuple[Row, ...]:
    return (ROWS["frequent"],)


def _oracle(_: PreparedDataset) -> tuple[Row, ...]:
    return (
        _ENERGY,
        _ENERGY.with_true_task(),
        ROWS["cefito-guided"],
        ROWS["cefito-guided"].with_true_task(),
    )


def _runtime(_: PreparedDataset) -> tuple[Row, ...]:
    return tuple(ROWS[name] for name in ("cefito-energy", "cefito-guided", "viterbi", "pdpp"))


def _guided(_: PreparedDataset) -> tuple[Row, ...]:
    return (ROWS["cefito-guided"],)


def _draw_negatives(study: Study, results: Results, out: Path) -> list[Path]:
    """Success rate against the number of negatives and the share of hard ones (paper.

    Figure of the negatives).
    """
    rates = _success_rates(results, study.horizons[0])
    rates |= {"r-0.8": rates["N-50"]} if "N-50" in rates else {}
    panels = []
    for letter, places, label in (("N", _COUNTS, "r = 0.8"), ("r", _SHARES, "N = 50")):
        points = [
            (float(place), rates[f"{letter}-{place}"])
            for place in places
            if f"{letter}-{place}" in rates
        ]
        panels.append([Curve(label=label, points=points)] if points else [])
    target = out / "negatives.png"
    draw_curves(
        panels,
        target,
        titles=("negatives N", "share of hard negatives r"),
        labels=("N", "r"),
        values=(f"success rate, T = {study.horizons[0]} (%)",) * 2,
        logarithmic=(True, False),
        title=_title(results),
    )
    return [target]


def _draw_runtime(study: Study, results: Results, out: Path) -> list[Path]:  # noqa: ARG001
    """Seconds and token forwards a query against the horizon (paper, figure of inference time)."""
    panels: list[list[Curve]] = []
    for measure in ("seconds_per_query", "token_forwards_per_query"):
        curves = []
        for row in results["rows"]:
            cells = [
                cell
                for cell in results["cells"]
                if cell["row"] == row["name"] and "error" not in cell
            ]
            values = {
                horizon: [cell[measure] for cell in cells if cell["horizon"] == horizon]
                for horizon in results["horizons"]
            }
            points = [
                (float(horizon), part) for horizon, part in values.items() if part and max(part) > 0
            ]
            if points:
                curves.append(Curve(label=row["title"], points=points))
        panels.append(curves)
    target = out / "runtime.png"
    draw_curves(
        panels,
        target,
        titles=("runtime", "token forwards"),
        labels=("horizon T", "horizon T"),
        values=("seconds a query", "token forwards a query"),
        logarithmic=(False, False),
        log_values=True,
        title=_title(results),
    )
    return [target]


def _draw_qualitative(study: Study, results: Results, out: Path) -> list[Path]:
    """The five best plans of some test windows.

    Four successes and four failures, of different tasks where possible.
    """
    dataset, written = open_dataset(study.dataset), []
    for horizon in study.horizons:
        row = study.rows[0]
        place = Cell(row=row, horizon=horizon, seed=study.seeds[0]).run(study, dataset)
        run = open_run(place, device=pick_device(study.device))
        run.planner.use(search_settings(run.planner.config.search, **row.search))
        train, test = (
            cut_windows(dataset, horizon=horizon, split=split) for split in ("train", "test")
        )
        windows = scored_windows(study, row, test, train).sample(400, seed=0)
        _, plans = evaluate_planner(run.planner, windows)
        right = np.array(
            [
                len(plan) > 0 and bool((plan.actions[0] == actual).all())
                for plan, actual in zip(plans, windows.actions, strict=True)
            ]
        )
        for name, rows in (
            ("successes", np.flatnonzero(right)),
            ("failures", np.flatnonzero(~right)),
        ):
            _, first = np.unique(
                windows.tasks[rows], return_index=True
            )  # of each task one, before others
            chosen = [*rows[np.sort(first)], *np.delete(rows, first)][:4]
            panels = [
                PlanPanel(
                    title=(
                        f"{dataset.taxonomy.tasks[windows.tasks[index]].name} "
                        f"({dataset.videos[windows.video[index]].video_id})"
                    ),
                    truth=dataset.taxonomy.names(windows.actions[index]),
                    plans=[
                        Line(
                            score=float(score),
                            actions=dataset.taxonomy.names(actions),
                            right=(actions == windows.actions[index]).tolist(),
                        )
                        for score, actions in zip(
                            plans[index].scores, plans[index].actions, strict=True
                        )
                    ],
                )
                for index in chosen
            ]
            if panels:
                target = out / f"qualitative-T{horizon}-{name}.png"
                draw_plans(panels, target, title=f"{_title(results)}, T = {horizon}: {name}")
                written.append(target)
    return written


def _title(results: Results) -> str:
    return str(results["dataset"]["name"]) + (
        "" if results["selection"] == "held-out" else ", chosen on TEST"
    )


def _success_rates(results: Results, horizon: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    for cell in results["cells"]:
        if cell["horizon"] == horizon and "error" not in cell:
            rates.setdefault(cell["row"], []).append(cell["metrics"]["success_rate"])
    return rates


EXPERIMENTS: dict[str, Experiment] = {
    "crosstask": Experiment("results on CrossTask", _main, dataset="crosstask", published="main"),
    "coin": Experiment("results on COIN", _main, dataset="coin", published="main"),
    "niv": Experiment("results on NIV", _main, dataset="niv", published="main"),
    "ablation": Experiment(
        "training analysis: loss, margin, auxiliary reconstruction",
        _ablation,
        against="baseline",
        published="ablation",
    ),
    "text-encoder": Experiment(
        "text encoder analysis",
        _text_encoder,
        against="actions-learned",
        published="text-encoder",
        needs="a prepared data set, with text embeddings of its actions for that row",
    ),
    "negatives": Experiment(
        "negative sampling: their number N, the share r of hard ones",
        _negatives,
        horizons=(3,),
        against="N-50",
        draw=_draw_negatives,
    ),
    "classifier": Experiment(
        "accuracy of the task classifier", _classifier, published="task-classifier"
    ),
    "oracle": Experiment("predicted against true task", _oracle, published="oracle"),
    "runtime": Experiment(
        "runtime and token forwards against the horizon",
        _runtime,
        horizons=(3, 4, 5, 6),
        draw=_draw_runtime,
    ),
    "qualitative": Experiment(
        "the five best plans, successes and failures", _guided, draw=_draw_qualitative
    ),
}
"""The paper's tables and figures by name."""


def find_experiment(name: str) -> Experiment:
    """An experiment by its name.

    Raises:
        ConfigError: There is none.
    """
    if name not in EXPERIMENTS:
        raise ConfigError(f"no table '{name}'; there are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def experiment_study(name: str, study: Study, *, horizons: tuple[int, ...] | None = None) -> Study:
    """A study with the rows and horizons of an experiment.

    Args:
        name: Name of the experiment.
        study: Everything else.
        horizons: Other horizons than the paper's.

    Raises:
        ConfigError: No such experiment.
        DataError: The data set cannot be opened.
    """
    found = find_experiment(name)
    return replace(
        study, rows=found.rows(open_dataset(study.dataset)), horizons=horizons or found.horizons
    )


def draw_experiment(name: str, study: Study, results: Results) -> list[Path]:
    """Draw the figure of an experiment into the study's folder.

    Returns:
        The pictures written; none where the paper has no figure.

    Raises:
        RunError: A run that is drawn from has not finished.
    """
    draw = find_experiment(name).draw
    return draw(study, results, study.out) if draw else []
