"""Training of the energy field: each component separately, with the same loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cefito.data.action_space import ActionSpace
from cefito.data.windows import Windows, reversed_windows
from cefito.errors import ConfigError
from cefito.field.energy import EnergyField
from cefito.field.fields import (
    ComponentName,
    CompositeField,
    make_field,
    named_components,
    parameter_count,
)
from cefito.field.predictor import normalise_observation
from cefito.field.settings import FieldConfig
from cefito.planners.base import Shape
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.cefito.validation import plan_scores, validation_problems, warn_guided
from cefito.planners.context import TrainingContext
from cefito.planners.network import copy_learned
from cefito.runtime import derived_seed, generator_for
from cefito.training.augmentation import ActionMeans
from cefito.training.field_loss import FieldLoss
from cefito.training.trainer import TrainingResult

__all__ = ["FIELD", "component_seed", "field_size", "fit_field", "further_vectors"]

FIELD = "energy field"
_STREAM, _COMPONENTS = 3, 10  # streams of the seed: weights, and seeds of further components


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
    learned = {} if start is None else dict(named_components(start))
    results = {}
    for name, component in named_components(field):
        own = component_seed(seed, name)
        component.reset(generator_for("cpu", own, _STREAM), mean=observed)
        if learned:
            apart = () if component.predictor.learned_actions else ("predictor.action_vectors",)
            copy_learned(component, learned[name], apart=apart)
        component.to(context.device)
        results[name.suffixed(FIELD)] = _fit_component(
            component,
            name,
            reversed_windows(train) if name.backward else train,
            reversed_windows(val) if name.backward else val,
            space=space,
            settings=settings,
            seed=own,
            context=context.part(name.suffixed("field")),
            known=learned[name].predictor.action_vectors if learned else None,
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
    return parameter_count(field)


def component_seed(seed: int, name: ComponentName) -> int:
    """Return the seed of a component; the first one has the run's."""
    if name == ComponentName():
        return seed
    return derived_seed(seed, _COMPONENTS, name.member, int(name.backward))


def _fit_component(
    component: EnergyField,
    name: ComponentName,
    train: Windows,
    val: Windows,
    *,
    space: ActionSpace,
    settings: CefitoSettings,
    seed: int,
    context: TrainingContext,
    known: Tensor | None,
) -> TrainingResult:
    training = settings.training
    problems, actual = validation_problems(
        val, space, windows=training.stopping.windows, candidates=training.stopping.candidates
    )
    if name == ComponentName():  # the same for all components
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
            memory_mib=settings.search.memory_mib,
            candidates=training.stopping.candidates,
            screening=settings.search.screening,
        ),
        known=known,
    )
    determining: list[Any] = [
        train.horizon,
        settings.field.model_dump(exclude={"directions", "members"}),
        training.model_dump(),
        settings.search.actions,
    ]
    return context.train(name.suffixed(FIELD), loss, training, seed=seed, settings=determining)


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
    first = next(component for _, component in named_components(start))
    known = first.predictor.action_vectors.detach().to("cpu")
    if first.predictor.learned_actions:
        return None
    if first.config.action_encoding == "observed":
        return ActionMeans(windows, first.mean.to("cpu"), first.predictor.normalised, known).all()
    count, text = len(windows.taxonomy.actions), windows.action_text
    if len(known) == count:
        return known
    if text is None or text.shape[1] != known.shape[1]:
        found = "none" if text is None else f"embeddings of {text.shape[1]} numbers"
        raise ConfigError(
            f"the run knows actions by text embeddings of {known.shape[1]} numbers, and data set "
            f"'{windows.dataset}' has {found}. Give its actions the same by cefito embed."
        )
    return torch.cat([known, torch.tensor(text[len(known) :].astype(np.float32))])
