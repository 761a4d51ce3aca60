"""The paper's tables, and the numbers of its figures, by name for any prepared data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cefito.data.prepared import PreparedDataset
from cefito.errors import ConfigError
from cefito.planners.methods import PlannerVariant
from cefito.study.study import Study
from cefito.study.trials import ROWS, find_rows

_COUNTS = (10, 25, 50, 100, 250)  # numbers N of negatives
_SHARES = (0.0, 0.25, 0.5, 0.8, 1.0)  # shares r of hard negatives
_TRIPLET = {"training.loss.kind": "triplet", "training.auxiliary.weight": 0.0}
_FIXED = {**_TRIPLET, "training.loss.margin.low": 0.1, "training.loss.margin.high": 0.1}
_ADAPTIVE = {**_TRIPLET, "training.loss.margin.low": 0.01, "training.loss.margin.high": 0.1}


@dataclass(frozen=True)
class Experiment:
    """A table of the paper, or the numbers of a figure."""

    title: str
    rows: Callable[[PreparedDataset], tuple[PlannerVariant, ...]]
    horizons: tuple[int, ...] = (3, 4)
    dataset: str = ""  # beginning of the name of the paper's data set; empty for any
    against: str = ""  # the row that others are compared with; empty for the first
    published: str = ""  # the published table to show, as in `published_rows`; empty for none
    needs: str = "a prepared data set"


def find_experiment(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in EXPERIMENTS:
        raise ConfigError(
            f"no table '{name}'; there are {', '.join(EXPERIMENTS)}.", setting="table"
        )
    return EXPERIMENTS[name]


def experiment_study(name: str, study: Study, *, horizons: tuple[int, ...] | None = None) -> Study:
    """A study with the rows and horizons of an experiment."""
    experiment = find_experiment(name)
    return replace(
        study, rows=experiment.rows(study.dataset), horizons=horizons or experiment.horizons
    )


def _named(*names: str) -> Callable[[PreparedDataset], tuple[PlannerVariant, ...]]:
    return lambda _: find_rows(names)


_OTHERS = ("cefito-guided", "viterbi", "pdpp", "pkg-beam", "nearest", "frequent")
_main = _named("cefito", *_OTHERS)


def _trained(name: str, title: str, settings: Mapping[str, Any]) -> PlannerVariant:
    """CEFITO trained with other settings, with the paper's planning."""
    return ROWS["cefito"].model_copy(update={"name": name, "title": title, "settings": settings})


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
        published="ablation",
    ),
    "text-encoder": Experiment(
        "text encoder analysis",
        _text_encoder_rows,
        against="actions-learned",
        published="text-encoder",
        needs="a prepared data set, with text embeddings of its actions for that row",
    ),
    "negatives": Experiment(
        "negative sampling: their number N, the share r of hard ones",
        _negative_rows,
        horizons=(3,),
        against="N-50",
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
    ),
}
"""The paper's tables, and the numbers of its figures, by name."""
