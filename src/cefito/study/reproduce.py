"""The paper's tables and figures by name, each on whichever prepared data set is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cefito.data.prepared import PreparedDataset
from cefito.errors import ConfigError
from cefito.study.experiment_figures import draw_negatives, draw_qualitative, draw_runtime
from cefito.study.experiment_variants import (
    ablation_rows,
    main_rows,
    negative_rows,
    text_encoder_rows,
    true_task_rows,
)
from cefito.study.results import Results
from cefito.study.study import Study
from cefito.study.variants import PlannerVariant, find_rows

__all__ = ["EXPERIMENTS", "Experiment", "draw_experiment", "experiment_study", "find_experiment"]


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
    rows: Callable[[PreparedDataset], tuple[PlannerVariant, ...]]
    horizons: tuple[int, ...] = (3, 4)
    dataset: str = ""
    against: str = ""
    published: str = ""
    needs: str = "a prepared data set"
    draw: Callable[[Study, Results, Path], list[Path]] | None = None


def _named(*names: str) -> Callable[[PreparedDataset], tuple[PlannerVariant, ...]]:
    return lambda _: find_rows(names)


EXPERIMENTS: dict[str, Experiment] = {
    "crosstask": Experiment(
        "results on CrossTask", main_rows, dataset="crosstask", published="main"
    ),
    "coin": Experiment("results on COIN", main_rows, dataset="coin", published="main"),
    "niv": Experiment("results on NIV", main_rows, dataset="niv", published="main"),
    "ablation": Experiment(
        "training analysis: loss, margin, auxiliary reconstruction",
        ablation_rows,
        against="baseline",
        published="ablation",
    ),
    "text-encoder": Experiment(
        "text encoder analysis",
        text_encoder_rows,
        against="actions-learned",
        published="text-encoder",
        needs="a prepared data set, with text embeddings of its actions for that row",
    ),
    "negatives": Experiment(
        "negative sampling: their number N, the share r of hard ones",
        negative_rows,
        horizons=(3,),
        against="N-50",
        draw=draw_negatives,
    ),
    "classifier": Experiment(
        "accuracy of the task classifier", _named("frequent"), published="task-classifier"
    ),
    "oracle": Experiment("predicted against true task", true_task_rows, published="oracle"),
    "runtime": Experiment(
        "runtime and token forwards against the horizon",
        _named("cefito-energy", "cefito-guided", "viterbi", "pdpp"),
        horizons=(3, 4, 5, 6),
        draw=draw_runtime,
    ),
    "qualitative": Experiment(
        "the five best plans, successes and failures",
        _named("cefito-guided"),
        draw=draw_qualitative,
    ),
}
"""The paper's tables and figures by name. New ones are added here only."""


def find_experiment(name: str) -> Experiment:
    """An experiment by its name.

    Raises:
        ConfigError: There is none.
    """
    if name not in EXPERIMENTS:
        raise ConfigError(
            f"no table '{name}'; there are {', '.join(EXPERIMENTS)}.", setting="table"
        )
    return EXPERIMENTS[name]


def experiment_study(name: str, study: Study, *, horizons: tuple[int, ...] | None = None) -> Study:
    """A study with the rows and horizons of an experiment.

    Args:
        name: Name of the experiment.
        study: Everything else.
        horizons: Other horizons than the paper's.

    Raises:
        ConfigError: No such experiment.
    """
    experiment = find_experiment(name)
    return replace(
        study,
        rows=experiment.rows(study.dataset),
        horizons=horizons or experiment.horizons,
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
