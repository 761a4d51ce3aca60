"""Settings of a run and the presets shipped with the package.

A preset is a TOML file that names a `base` and lists only where it departs from it, so `paper.toml`
is complete and every other file shows its deviations. `[[variant]]` tables hold departures for one
data set and horizon.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from cefito.errors import ConfigError
from cefito.field.config import ClassifierConfig, FieldConfig, Frozen, ProposalConfig
from cefito.training.baselines import PdppConfig, PkgConfig, ViterbiConfig
from cefito.training.negatives import NegativesConfig
from cefito.training.parts import (
    AugmentationConfig,
    EmaConfig,
    OptimiserConfig,
    StoppingConfig,
    TrainingConfig,
)

__all__ = [
    "AugmentationConfig",
    "AuxiliaryConfig",
    "ClassifierTrainingConfig",
    "EmaConfig",
    "FieldTrainingConfig",
    "LossConfig",
    "MarginConfig",
    "OptimiserConfig",
    "ProposalTrainingConfig",
    "RunConfig",
    "SearchConfig",
    "StoppingConfig",
    "TrainingConfig",
    "load_config",
    "preset_names",
]


class MarginConfig(Frozen):
    """Adaptive margins (paper, Eq.

    3): bounds, and the weight of the fraction of differing positions (paper: 0).
    """

    low: float = Field(0.01, ge=0)
    high: float = Field(0.1, ge=0)
    order: float = Field(0.0, ge=0, le=1)


class LossConfig(Frozen):
    """The contrastive loss.

    Attributes:
        kind: "triplet" (paper), "softmax" over positive and negatives, or "regression": the
            positive's distance alone, the baseline of the paper's training analysis.
        reduction: Triplet only: mean over all triplets (paper) or over the "violating" ones
            (released code).
        temperature: Softmax only.
        margin: Triplet only.
    """

    kind: Literal["triplet", "softmax", "regression"] = "triplet"
    reduction: Literal["mean", "violating"] = "mean"
    temperature: float = Field(1.0, gt=0)
    margin: MarginConfig = MarginConfig()


class AuxiliaryConfig(Frozen):
    """Auxiliary action reconstruction (paper, Sec. 3.2 and Supp. A).

    Attributes:
        weight: λ; 0 is off.
        goal: What stands in the goal's place in the second pass: the "true" goal (paper) or the
            "predicted" one (released code).
        negatives: Reconstruct every negative's own actions too, half the weight on them (released
            code).
    """

    weight: float = Field(1.0, ge=0)
    goal: Literal["true", "predicted"] = "true"
    negatives: bool = False


class FieldTrainingConfig(TrainingConfig):
    """How the field is trained."""

    negatives: NegativesConfig = NegativesConfig()
    loss: LossConfig = LossConfig()
    auxiliary: AuxiliaryConfig = AuxiliaryConfig()


class ClassifierTrainingConfig(TrainingConfig):
    """How the task classifier is trained.

    Attributes:
        pairs: "windows" trains on the windows of the horizon (paper); "all" on every pair of steps
            i < j of a video.
        label_smoothing: Share of the target spread over all tasks.
    """

    optimiser: OptimiserConfig = OptimiserConfig(learning_rate=1e-4, weight_decay=0.0)
    stopping: StoppingConfig = StoppingConfig(windows=0)
    pairs: Literal["windows", "all"] = "windows"
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class ProposalTrainingConfig(TrainingConfig):
    """How the proposal network is trained (not in the paper.

    Chosen on the validation split of captaincook4d).
    """

    optimiser: OptimiserConfig = OptimiserConfig(
        epochs=24, batch_size=64, learning_rate=3e-3, weight_decay=1.0, schedule="cosine"
    )
    ema: EmaConfig = EmaConfig(decay=0.99, every=1, warmup=100)
    stopping: StoppingConfig = StoppingConfig(every=2, patience=0, windows=0)
    augmentation: AugmentationConfig = AugmentationConfig(noise=0.3, swap=0.8)


class SearchConfig(Frozen):
    """How plans are searched.

    Attributes:
        actions: A(c) from the "training" windows (paper) or from the "taxonomy" (released code).
        memory_mib: Memory bound of the search, MiB.
        method: "exhaustive" (paper), "guided", "gradient", "beam", "naive", or "auto": exhaustive
            while it fits the budget, else guided.
        budget_gflop: Of "auto": most operations of an exhaustive search, 10⁹.
        proposals: Of "guided": likeliest sequences that are re-scored.
        starts: Of "guided": best sequences whose neighbours are evaluated.
        refinements: Of "guided" and "gradient": combinations of changes evaluated a round.
        width: Of "beam": prefixes kept.
        diversity: Of "beam": what each better sibling adds to a prefix's score.
        objective: "energy" alone (paper), with the "prior" over sequences, or "fitted": with the
            prior and the proposal network's step probabilities, or these two without the energy
            ("likelihood", to see what the energy adds). Weights, also of the task's probability,
            are those that fit the validation split best.
        tasks: Likeliest tasks to search (paper: 1); 0 for as many as did best on the validation
            split.
        pruning: Allow only transitions seen in training windows of the task and so many likely
            others; -1 allows all (paper).
        prior_weight: Weight of the prior instead of the fitted or the paper's one; -1 keeps that.
        fitting_windows: Validation windows that weights are fitted on; 0 for all.
    """

    actions: Literal["training", "taxonomy"] = "training"
    memory_mib: float = Field(1024, gt=0)
    method: Literal["auto", "exhaustive", "guided", "gradient", "beam", "naive"] = "exhaustive"
    budget_gflop: float = Field(500, ge=0)
    proposals: int = Field(512, ge=1)
    starts: int = Field(12, ge=1)
    refinements: int = Field(256, ge=0)
    width: int = Field(32, ge=1)
    diversity: float = Field(0.0, ge=0)
    objective: Literal["energy", "prior", "fitted", "likelihood"] = "energy"
    tasks: int = Field(1, ge=0)
    pruning: int = Field(-1, ge=-1)
    prior_weight: float = Field(-1, ge=-1, allow_inf_nan=False)
    fitting_windows: int = Field(200, ge=0)


class RunConfig(Frozen):
    """All settings of a run."""

    preset: str
    field: FieldConfig = FieldConfig()
    training: FieldTrainingConfig = FieldTrainingConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    classifier_training: ClassifierTrainingConfig = ClassifierTrainingConfig()
    proposal: ProposalConfig = ProposalConfig()
    proposal_training: ProposalTrainingConfig = ProposalTrainingConfig()
    search: SearchConfig = SearchConfig()
    pkg: PkgConfig = PkgConfig()
    viterbi: ViterbiConfig = ViterbiConfig()
    pdpp: PdppConfig = PdppConfig()


def preset_names() -> list[str]:
    """Names of the presets shipped with the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in resources.files("cefito.training.presets").iterdir()
        if entry.name.endswith(".toml")
    )


def load_config(
    preset: str, *, dataset: str = "", horizon: int = 0, overrides: Mapping[str, Any] | None = None
) -> RunConfig:
    """Load a preset, choose its variant, apply overrides.

    Args:
        preset: Name of a shipped preset, or path of a TOML file of the same form.
        dataset: Name of the data set; a variant applies where this begins with the variant's
            `dataset`.
        horizon: T; a variant applies where this equals the variant's `horizon`, if it names one.
        overrides: Dotted keys to values, such as {"training.optimiser.epochs": 10}; strings are
            read as TOML values.

    Raises:
        ConfigError: Unknown preset, unknown or invalid key; the message names it.
    """
    value, variants = _read_preset(preset)
    for variant in variants:
        rest = {key: part for key, part in variant.items() if key not in ("dataset", "horizon")}
        if (
            dataset.startswith(variant.get("dataset", ""))
            and variant.get("horizon", horizon) == horizon
        ):
            value = _merged(value, rest)
    for key, part in (overrides or {}).items():
        value = _merged(value, _nested(key, _parsed(part)))
    try:
        return RunConfig.model_validate({**value, "preset": Path(preset).stem})
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise ConfigError(
            f"preset '{preset}': setting '{place}': {first['msg']} (got {first.get('input')!r}). "
            f"See the shipped paper.toml for all settings."
        ) from problem


def _read_preset(
    preset: str, above: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings with their bases merged in, and the variants, bases' first.

    `above` are the presets that build on this one.
    """
    if preset in above:
        raise ConfigError(f"preset '{preset}' is its own base, by way of {', '.join(above)}.")
    if preset.endswith(".toml"):
        path: Any = Path(preset)
    else:
        path = resources.files("cefito.training.presets") / f"{preset}.toml"
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise ConfigError(
            f"no preset '{preset}'; shipped are {', '.join(preset_names())}, or give the path of "
            "a .toml "
            "file."
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise ConfigError(f"preset '{preset}': cannot be read ({problem}).") from problem
    base, variants = value.pop("base", None), value.pop("variant", [])
    if not isinstance(variants, list) or not all(
        isinstance(variant, dict) and isinstance(variant.get("dataset", ""), str)
        for variant in variants
    ):
        raise ConfigError(
            f"preset '{preset}': variants must be tables [[variant]], their data set a name."
        )
    if base is None:
        return value, variants
    if not isinstance(base, str):
        raise ConfigError(f"preset '{preset}': base {base!r} must be the name of a preset.")
    under, earlier = _read_preset(base, (*above, preset))
    return _merged(under, value), earlier + variants


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for key, part in over.items():
        old = result.get(key)
        result[key] = (
            _merged(old, part) if isinstance(part, Mapping) and isinstance(old, Mapping) else part
        )
    return result


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
