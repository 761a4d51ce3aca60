"""Settings of the search, how they are changed for one call, and what differs between two."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from cefito.errors import ConfigError
from cefito.settings import Settings, validated

__all__ = ["SearchConfig", "changed_settings", "search_settings"]


class SearchConfig(Settings):
    """How plans are searched.

    Attributes:
        actions: A(c) from the "training" windows (paper) or from the "taxonomy" (released code).
        memory_mib: Memory bound of the search, MiB.
        method: "exhaustive" (paper), "guided", "beam", "naive", or "auto": exhaustive
            while it fits the budget, else guided; see `cefito.search.registry`.
        screening: In which precision sequences are looked through, of "exhaustive", "guided" and
            "auto". "off": in float32. "on": in bfloat16, after which those that may be the best are
            evaluated in float32, which decides. "auto": on where the processor multiplies bfloat16
            natively and the field is large enough for that to be quicker.
        budget_gflop: Of "auto": most operations that an exhaustive search may take, 10⁹.
        proposals: Of "guided": likeliest sequences that are re-scored.
        starts: Of "guided": best sequences whose neighbours are evaluated.
        refinements: Of "guided": combinations of changes evaluated a round.
        width: Of "beam": prefixes kept.
        diversity: Of "beam": what each better sibling adds to a prefix's score.
        objective: "energy" alone (paper), "prior" for the energy with the prior over sequences,
            "fitted" for the chain with those of both that improve it, or "likelihood" for the same
            without the energy, to see what it adds. Weights, also of the task's probability, are
            fitted on the validation split.
        task_model: What says how likely tasks are: the task "classifier" (paper), or the "chain",
            summed over all sequences of a task; a classifier is trained only where it is asked for.
        tasks: Likeliest tasks to search (paper: 1); 0 for as many as did best on the validation
            split.
        pruning: Allow only transitions seen in training windows of the task and so many likely
            others; -1 allows all (paper).
        prior_weight: Weight of the prior instead of the fitted or the paper's one; -1 keeps that.
        fitting_windows: Validation windows that weights are fitted on; 0 for all.
    """

    actions: Literal["training", "taxonomy"] = "training"
    memory_mib: float = Field(1024, gt=0)
    method: str = "exhaustive"
    screening: Literal["auto", "on", "off"] = "auto"
    budget_gflop: float = Field(500, ge=0)
    proposals: int = Field(512, ge=1)
    starts: int = Field(12, ge=1)
    refinements: int = Field(256, ge=0)
    width: int = Field(32, ge=1)
    diversity: float = Field(0.0, ge=0)
    objective: Literal["energy", "prior", "fitted", "likelihood"] = "energy"
    task_model: Literal["classifier", "chain"] = "classifier"
    tasks: int = Field(1, ge=0)
    pruning: int = Field(-1, ge=-1)
    prior_weight: float = Field(-1, ge=-1)
    fitting_windows: int = Field(200, ge=0)


def search_settings(config: SearchConfig, **overrides: Any) -> SearchConfig:
    """Settings with some of them replaced.

    Args:
        config: Settings to begin with, such as those of a run.
        overrides: Values by the name of the setting; None keeps what there is.

    Raises:
        ConfigError: An unknown setting, a value that it cannot have, or a setting that the chosen
            search does not read; `setting` is its name.
    """
    from cefito.search.registry import SEARCHES, find_search

    given = {name: value for name, value in overrides.items() if value is not None}
    settings = validated(SearchConfig, {**config.model_dump(), **given}, place="search")
    chosen = find_search(settings.method)
    for name in given:
        readers = [method for method, entry in SEARCHES.items() if name in entry.reads]
        if readers and name not in chosen.reads:
            raise ConfigError(
                f"search '{settings.method}' makes no use of the setting '{name}'; of use it is "
                f"to {', '.join(readers)}.",
                setting=name,
            )
    return settings


def changed_settings(config: SearchConfig, usual: SearchConfig) -> dict[str, Any]:
    """The settings in use that differ from the usual ones, in the order of the fields.

    Args:
        config: The settings in use.
        usual: The usual ones, such as those that a run was trained with.
    """
    before = usual.model_dump()
    return {name: value for name, value in config.model_dump().items() if value != before[name]}
