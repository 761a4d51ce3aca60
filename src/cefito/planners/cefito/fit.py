"""Training of all parts of a CEFITO planner.

Each component of the energy field is trained separately, with the same loss, and validated by plans
for validation windows, at a bounded cost. The weight of the energy beside the chain is
fitted on validation windows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import ActionSpace, Windows, reversed_windows
from cefito.errors import ConfigError
from cefito.field.energy import EnergyField
from cefito.field.fields import (
    BACKWARD,
    CompositeField,
    IncrementalField,
    incremental_field,
    make_field,
    named_components,
)
from cefito.field.predictor import normalise_observation
from cefito.field.settings import FieldConfig
from cefito.planners.base import Queries, Shape
from cefito.planners.cefito.hypotheses import CHAIN, Weights
from cefito.planners.cefito.method import CefitoSettings
from cefito.planners.chain.model import ChainModel
from cefito.planners.network import copy_learned
from cefito.planners.shared.task_model import TaskModel, confident_temperature
from cefito.progress import Advance, Progress, silent
from cefito.runtime import count_parameters, derived_seed, generator_for
from cefito.search.base import Field, values_of
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch, searched_apart
from cefito.search.prior import NGramPrior
from cefito.search.problem import Problem
from cefito.search.screening import ScreeningSettings
from cefito.training.augmentation import ActionMeans
from cefito.training.field_loss import FieldLoss
from cefito.training.negatives import check_negatives
from cefito.training.settings import TrainingResult
from cefito.training.trainer import TrainingContext

CANDIDATES = 64
"""Number of candidates of a window: its likeliest sequences under the chain, over all tasks."""
_NO_ENERGY = 1e6  # replaces the infinite energies of a diverged field
BATCH = 1024  # sequences whose energies are computed at once, within the caches of a CPU
_RIDGE = 1.0  # of the weight per standard deviation of the energies

Reals = NDArray[np.float64]


def fit_weights(
    chain: ChainModel, field: Field, val: Windows, *, windows: int, progress: Progress = silent
) -> Weights:
    """Fit the weight of the energy beside the chain's.

    The candidates of a window are its likeliest sequences under the chain over all tasks. The
    weight w maximises the likelihood of the truth among them (`energy_weight`). The score
    w · E − log q is then divided by a temperature that calibrates the best candidate's probability.

    Args:
        chain: Trained chain.
        field: Trained field.
        val: Validation windows.
        windows: Size of the sample of validation windows; 0 for all.
        progress: Shows progress.
    """
    if not len(val):
        return CHAIN
    sample = val.sample(windows or None, seed=0)
    with progress("fitting the objective", total=len(sample)) as advance:
        joint, actions, right = _candidates(chain, sample)
        energies = _energies(field, sample, actions, advance)
    weight = energy_weight(joint, energies, right)
    if weight == 0:
        return CHAIN
    temperature = _temperature(joint, joint - weight * energies, right, sample.video)
    return Weights(energy=weight / temperature, chain=1 / temperature)


def energy_weight(joint: Reals, energies: Reals, right: NDArray[np.bool_]) -> float:
    """Return the weight w ≥ 0 of the energy under which the truth is likeliest.

    It maximises Σ_windows log p(truth) − (w σ)² / 2, p(i) = q_i exp(−w E_i) / Σ_j q_j exp(−w E_j),
    σ the standard deviation of the energies of a window's candidates. Windows without the truth
    among their candidates do not count. The sum is concave in w.

    Args:
        joint: log q(c, a) of each window's candidates, −∞ if there are fewer, [N, n].
        energies: Their energies E [N, n].
        right: Whether a candidate is the truth, at most one of a window, [N, n].
    """
    from scipy.optimize import brentq

    used = right.any(axis=1)
    joint, energies, right = joint[used], energies[used], right[used]
    possible = np.isfinite(joint)
    if not len(joint):
        return 0.0
    # E_j − E_truth, in units of σ, [N, n]
    excess = np.where(possible, energies - energies[right][:, None], 0.0)
    means = excess.sum(axis=1, keepdims=True) / possible.sum(axis=1, keepdims=True)
    deviation = float(np.sqrt(np.square(excess - means)[possible].mean()))
    if deviation < 1e-12:
        return 0.0
    excess /= deviation

    def slope(weight: float) -> float:
        # d/dw = Σ_windows Σ_j p_j (E_j − E_truth) − w, which decreases in w
        logits = joint - weight * excess
        shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        return float((shares * excess).sum()) - _RIDGE * weight

    steepest = slope(0.0)
    if steepest <= 0:
        return 0.0
    return float(brentq(slope, 0.0, steepest / _RIDGE)) / deviation


def _temperature(
    joint: Reals, scores: Reals, right: NDArray[np.bool_], videos: NDArray[np.int64]
) -> float:
    """Return the temperature τ that calibrates the probabilities of the best candidates.

    p(best) = M · exp(s_best / τ) / Σ_j exp(s_j / τ), M = Σ_j q_j, of scores s [N, n].
    """
    some = np.isfinite(scores).any(axis=1)
    joint, scores, right = joint[some], scores[some], right[some]
    log_mass = np.minimum(np.logaddexp.reduce(joint, axis=1), 0.0)
    best = scores.argmax(axis=1)[:, None]

    def sure(temperature: float) -> Reals:
        heated = scores / temperature
        top = np.take_along_axis(heated, best, axis=1)[:, 0]
        return np.asarray(np.exp(log_mass + top - np.logaddexp.reduce(heated, axis=1)))

    correct = np.take_along_axis(right, best, axis=1)[:, 0]
    return confident_temperature(sure, correct, videos=len(np.unique(videos[some])))


def _candidates(
    chain: ChainModel, sample: Windows
) -> tuple[Reals, NDArray[np.int64], NDArray[np.bool_]]:
    """Return log q [N, n] of candidates, their actions [N, n, T], and which is right [N, n]."""
    scores = chain.scores(Queries.from_windows(sample))
    states = scores.states
    best, values = scores.best(CANDIDATES)
    joint = (values - scores.log_partition()[:, None]).double().cpu().numpy()
    actions = states.actions[best].cpu().numpy()
    tasks = states.tasks[best[:, :, 0]].cpu().numpy()
    right = (actions == sample.actions[:, None]).all(axis=2) & (tasks == sample.tasks[:, None])
    return joint, actions, right & np.isfinite(joint)


def _energies(field: Field, sample: Windows, actions: NDArray[np.int64], advance: Advance) -> Reals:
    """Return the energies [N, n] of the candidates [N, n, T] of windows."""
    count = actions.shape[1]
    together = max(1, BATCH // max(count, 1))  # windows
    energies = np.empty(actions.shape[:2])
    with torch.inference_mode():
        for first in range(0, len(sample), together):
            rows = slice(first, first + together)
            sequences = actions[rows].reshape(-1, actions.shape[2])
            ends = (
                np.repeat(observations[rows], count, axis=0)
                for observations in (sample.initial, sample.goal)
            )
            tensors = (torch.from_numpy(array).to(field.device) for array in (*ends, sequences))
            block_energies = field.energy(*tensors).double().cpu().numpy()
            energies[rows] = block_energies.reshape(-1, count)
            advance(len(block_energies) / max(count, 1))
    return np.where(np.isfinite(energies), energies, _NO_ENERGY)


logger = logging.getLogger(__name__)


def validation_problems(
    val: Windows, space: ActionSpace, *, windows: int, candidates: int
) -> tuple[list[Problem], NDArray[np.int64]]:
    """Return a fixed sample of validation windows as problems, and their true sequences [N, T].

    If A(c)^T exceeds `candidates`, the problem is thinned: it keeps the actions of the true
    sequence and a fixed random choice of the task's others. At long horizons the true actions alone
    may make more sequences; then the problem keeps all of the task's actions, for guided search.
    The true task is used, so that the score is the field's alone.

    Args:
        val: Validation windows.
        space: Actions that each task allows.
        windows: Size of the sample.
        candidates: Largest number of sequences that are all evaluated.
    """
    sample = val.sample(windows or None, seed=0)
    generator = np.random.default_rng(0)
    widest = max(1, int(candidates ** (1 / val.horizon) + 1e-9))
    problems = []
    for row, task in enumerate(sample.tasks):
        allowed = space.actions[task]
        if len(allowed) > widest:
            true = sorted(set(sample.actions[row].tolist()) & set(allowed))
            others = [action for action in allowed if action not in true]
            size = max(0, widest - len(true))
            extra = generator.choice(others, size=size, replace=False).tolist()
            if len(true) <= widest:
                allowed = tuple(sorted({*true, *extra}))
        problems.append(Problem(sample.initial[row], sample.goal[row], allowed))
    return problems, sample.actions


def validation_searches(
    field: EnergyField, *, candidates: int, **search: Any
) -> tuple[ExhaustiveSearch, GuidedSearch]:
    """Return the searches of thinned validation problems and of all others."""
    incremental = IncrementalField(field)
    tokens = 3 * candidates  # two for each leaf, and the prefixes'
    guided = GuidedSearch(
        proposals=max(1, candidates // 4),
        budget_gflop=tokens * incremental.flops_per_token / 1e9,
        **search,
    )
    both = "on" if guided.screens(incremental) else "off"
    return ExhaustiveSearch(**{**search, "screening": both}), guided


def warn_guided(problems: Sequence[Problem], *, horizon: int, candidates: int) -> None:
    """Warn of validation windows that are planned by guided search.

    Args:
        problems: Validation problems.
        horizon: T.
        candidates: Largest number of sequences that are all evaluated.
    """
    guided = sum(not _bounded(problem, horizon, candidates) for problem in problems)
    if guided:
        logger.warning(
            "validation: %d of %d windows have more than %s sequences even of their true actions "
            "alone; they are planned by guided search among all actions of their task, which need "
            "not find the sequence of lowest energy",
            guided,
            len(problems),
            f"{candidates:,}",
        )


def plan_scores(
    field: EnergyField,
    *,
    problems: Sequence[Problem],
    actual: NDArray[np.int64],
    candidates: int,
    **search: Any,
) -> Mapping[str, float]:
    """Return success rate and mean accuracy, in per cent, of plans for validation problems.

    Args:
        field: Field in training.
        problems: Validation problems.
        actual: Their true sequences [N, T].
        candidates: Largest number of sequences that are all evaluated.
        search: Values of `ScreeningSettings`.
    """
    searches = validation_searches(field, candidates=candidates, **search)
    fits = [_bounded(problem, field.horizon, candidates) for problem in problems]
    plans = searched_apart(searches, fits, IncrementalField(field), problems, 1)
    right = np.array([best.actions[0] for best in plans]) == actual
    success, accuracy = right.all(axis=1).sum(), right.mean(axis=1).sum()
    return {
        "success_rate": float(100 * success / len(problems)),
        "mean_accuracy": float(100 * accuracy / len(problems)),
    }


def _bounded(problem: Problem, horizon: int, candidates: int) -> bool:
    return bool(len(problem.actions) ** horizon <= candidates)


FIELD = "energy field"
_STREAM, _COMPONENTS = 3, 10  # streams of the seed: weights, and the seed of the backward component


def fit_field(
    train: Windows,
    val: Windows,
    *,
    space: ActionSpace,
    settings: CefitoSettings,
    seed: int,
    context: TrainingContext,
    start: EnergyField | CompositeField | None = None,
) -> tuple[EnergyField | CompositeField, dict[str, TrainingResult]]:
    """Train all components of the field, one after the other.

    Each keeps the epoch whose plans for validation windows are best by its own energy.

    Args:
        train: Training windows.
        val: Validation windows.
        space: Actions that each task allows.
        settings: Settings of the method.
        seed: Seed of all that is drawn.
        context: Device, folder and progress.
        start: Field to begin with.
    """
    observed = torch.from_numpy(np.concatenate([train.initial, train.goal]).mean(axis=0))
    vectors = (
        _action_vectors(train, settings, observed)
        if start is None
        else further_vectors(train, start)
    )
    field = make_field(
        config=settings.field,
        observation_dim=train.initial.shape[1],
        action_count=len(train.taxonomy.actions),
        horizon=train.horizon,
        action_vectors=vectors,
    )
    learned = {} if start is None else named_components(start)
    results = {}
    for name, component in named_components(field).items():
        own_seed = component_seed(seed, name)
        component.reset(generator_for("cpu", own_seed, _STREAM), mean=observed)
        if learned:
            apart = () if component.predictor.learned_actions else ("predictor.action_vectors",)
            copy_learned(component, learned[name], apart=apart)
        component.to(context.device)
        results[_suffixed(FIELD, name)] = _fit_component(
            component,
            name,
            reversed_windows(train) if name == BACKWARD else train,
            reversed_windows(val) if name == BACKWARD else val,
            space=space,
            settings=settings,
            seed=own_seed,
            context=context.part(_suffixed("field", name)),
            known_vectors=learned[name].predictor.action_vectors if learned else None,
        )
    return field.eval(), results


def field_size(config: FieldConfig, shape: Shape) -> int:
    """Return the number of parameters of a field for data of a shape."""
    widths = {"observed": shape.observation_dim, "text": shape.text_dim, "auto": shape.text_dim}
    width = widths.get(config.action_encoding, 0)
    field = make_field(
        config=config,
        observation_dim=shape.observation_dim,
        action_count=shape.actions,
        horizon=shape.horizon,
        action_vectors=torch.empty(shape.actions, width) if width else None,
    )
    return count_parameters(field)


def component_seed(seed: int, name: str) -> int:
    """Return the seed of a component; the forward one has the run's."""
    return derived_seed(seed, _COMPONENTS, 0, 1) if name == BACKWARD else seed


def _suffixed(stem: str, name: str) -> str:
    return f"{stem}-{name}" if name else stem


def _fit_component(
    component: EnergyField,
    name: str,
    train: Windows,
    val: Windows,
    *,
    space: ActionSpace,
    settings: CefitoSettings,
    seed: int,
    context: TrainingContext,
    known_vectors: Tensor | None,
) -> TrainingResult:
    training = settings.training
    problems, actual = validation_problems(
        val, space, windows=training.stopping.windows, candidates=training.stopping.candidates
    )
    if not name:  # the same for all components
        warn_guided(problems, horizon=val.horizon, candidates=training.stopping.candidates)
    loss = FieldLoss(
        field=component,
        train=train,
        actions=dict(enumerate(space.actions)),
        config=training,
        score=partial(
            plan_scores,
            problems=problems,
            actual=actual,
            **values_of(settings.search, ScreeningSettings),
            candidates=training.stopping.candidates,
        ),
        learned=known_vectors,
    )
    determining: list[Any] = [
        train.horizon,
        settings.field.model_dump(exclude={"directions"}),
        training.model_dump(),
        settings.search.actions,
    ]
    return context.train(_suffixed(FIELD, name), loss, training, seed=seed, settings=determining)


def _action_vectors(windows: Windows, settings: CefitoSettings, mean: Tensor) -> Tensor | None:
    """Return the frozen vectors of the actions [K, W], as configured; None if they are learned.

    Mean observations include both observations before and after an action, so that they are the
    same for both directions: on real videos the two are similar, and the mean of both works better
    for each direction than the mean of its own kind.
    """
    if settings.field.action_encoding == "observed":
        mean = mean if settings.field.centre else torch.zeros_like(mean)
        normed = partial(normalise_observation, config=settings.field)
        return ActionMeans(windows, mean, normed).all()
    text = windows.action_text
    return None if text is None else torch.tensor(text.astype(np.float32))


def further_vectors(windows: Windows, start: EnergyField | CompositeField) -> Tensor | None:
    """Return frozen vectors of a field's actions and of new ones, [K, W]; None if learned."""
    first = named_components(start)[""]
    vectors = first.predictor.action_vectors.detach().to("cpu")
    if first.predictor.learned_actions:
        return None
    if first.config.action_encoding == "observed":
        return ActionMeans(windows, first.mean.to("cpu"), first.predictor.normalised, vectors).all()
    count, text = len(windows.taxonomy.actions), windows.action_text
    if len(vectors) == count:
        return vectors
    if text is None or text.shape[1] != vectors.shape[1]:
        available = "none" if text is None else f"embeddings of {text.shape[1]} numbers"
        raise ConfigError(
            f"the run knows actions by text embeddings of {vectors.shape[1]} numbers, and data set "
            f"'{windows.dataset}' has {available}. Give its actions the same by cefito embed."
        )
    return torch.cat([vectors, torch.tensor(text[len(vectors) :].astype(np.float32))])


def fit_parts(
    train: Windows,
    val: Windows,
    space: ActionSpace,
    *,
    start: Mapping[str, Any],
    settings: CefitoSettings,
    seed: int,
    context: TrainingContext = TrainingContext(),
) -> tuple[dict[str, Any], dict[str, TrainingResult]]:
    """Return the parts of a planner by the names of its attributes, and their trainings.

    Arguments are as of `fit_field`, but `start` has parts of the planner to begin with, if any.
    """
    action_count = len(train.taxonomy.actions)
    check_negatives(  # before anything is trained
        settings.training.negatives,
        dict(enumerate(space.actions)),
        action_count=action_count,
        horizon=train.horizon,
    )
    trainings: dict[str, TrainingResult] = {}
    shared: dict[str, Any] = {"settings": settings, "seed": seed, "context": context}
    task_model = None
    if settings.search.task_model == "classifier":
        task_model, trainings = TaskModel.train(train, val, start=start.get("task_model"), **shared)
    chain, chain_results = ChainModel.fit(
        train, val, space=space, start=start.get("chain"), **shared
    )
    learned = start.get("incremental")
    begin = None if learned is None else learned.field
    field, field_results = fit_field(train, val, space=space, start=begin, **shared)
    incremental = incremental_field(field)
    prior = NGramPrior.tuned(
        train.actions,
        train.tasks,
        action_count=action_count,
        actions=space.actions,
        val_sequences=val.actions,
        val_tasks=val.tasks,
        learned=start.get("prior"),
    )
    windows, progress = settings.search.fitting_windows, context.progress
    fitted = fit_weights(chain, incremental, val, windows=windows, progress=progress)
    chain = chain.on_all_videos(train, val, **shared)
    parts = {
        "settings": settings,
        "taxonomy": train.taxonomy,
        "space": space,
        "incremental": incremental,
        "prior": prior,
        "fitted": fitted,
        "chain": chain,
        "task_model": task_model,
    }
    return parts, {**trainings, **chain_results, **field_results}
