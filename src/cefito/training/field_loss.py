"""Loss of the energy field: contrastive loss and auxiliary reconstruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.energy import EnergyField
from cefito.field.predictor import Dropout
from cefito.runtime import Processes
from cefito.training.augmentation import ActionMeans, Observations
from cefito.training.losses import adaptive_margins, softmax_contrastive, triplet
from cefito.training.negatives import ActionSets, NegativeSampler
from cefito.training.settings import FieldTrainingConfig
from cefito.training.trainer import Term

__all__ = ["FieldLoss", "FieldScore"]

_LEFT_OUT = 0.3  # share of the videos left out of the actions' mean observations at each step

FieldScore = Callable[[EnergyField, Processes], Mapping[str, float]]


class FieldLoss:
    """The contrastive loss and the auxiliary reconstruction (paper, Sec. 3.2)."""

    def __init__(
        self,
        *,
        field: EnergyField,
        train: Windows,
        actions: Mapping[int, tuple[int, ...]],
        config: FieldTrainingConfig,
        score: FieldScore,
        known: Tensor | None = None,
    ) -> None:
        self.module, self.config, self.score = field, config, score
        device = next(field.parameters()).device
        self.observations = Observations(train, config.augmentation, device)
        self.means = (
            ActionMeans(train, field.mean, field.predictor.normalised, known)
            if field.config.action_encoding == "observed"
            else None
        )
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.sampler = NegativeSampler(
            config=config.negatives,
            actions=ActionSets.build(actions, device),
            action_count=len(train.taxonomy.actions),
            horizon=train.horizon,
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Return the losses of a batch: all is drawn for the whole batch, then shared out."""
        initial, goal = self.observations.draw(rows, generator)
        negatives = self.sampler.sample(self.actions[rows], self.tasks[rows], generator)
        vectors = self.means.without(rows, _LEFT_OUT, generator) if self.means else None
        initial, goal, positives, negatives = (
            group.share(part) for part in (initial, goal, self.actions[rows], negatives)
        )
        dropout = (
            Dropout(self.module.config.dropout, generator) if self.module.config.dropout else None
        )
        with self.module.predictor.using(vectors):
            return self._terms(initial, goal, positives, negatives, dropout)

    def _terms(
        self,
        initial: Tensor,
        goal: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dropout: Dropout | None,
    ) -> Mapping[str, Term]:
        candidates = torch.cat([positives[:, None], negatives], dim=1)  # [B, 1 + N, T]
        weight = self.config.auxiliary.weight
        terms: dict[str, Term] = {}
        if weight and self.config.auxiliary.negatives:
            # all states of every candidate are needed: latents [B, 1 + N, T, D]
            latents = self._latents(initial, candidates, dropout)
            goals = self.module.predictor.head(latents[:, :, -1], candidates[:, :, -1])
            energies = self.module.distance(goals, self.module.target(goal)[:, None])
            terms["auxiliary"] = self._auxiliary(
                initial, goal, latents[:, :1], candidates[:, :1], weight / 2, dropout
            )
            terms["auxiliary_negatives"] = self._auxiliary(
                initial, goal, latents[:, 1:], negatives, weight / 2, dropout
            )
        else:
            energies = self.module.candidate_energies(
                initial, goal, candidates, dropout=dropout, recompute=self.config.recompute
            )
            if weight:
                latents = self._latents(initial, candidates[:, :1], dropout)
                terms["auxiliary"] = self._auxiliary(
                    initial, goal, latents, candidates[:, :1], weight, dropout
                )
        return {"contrastive": self._contrastive(energies, positives, negatives), **terms}

    def validate(self, group: Processes) -> Mapping[str, float]:
        """Return success rate and mean accuracy of plans."""
        return self.score(self.module, group)

    def _contrastive(self, energies: Tensor, positives: Tensor, negatives: Tensor) -> Term:
        loss, positive, negative = self.config.loss, energies[:, 0], energies[:, 1:]
        if loss.kind == "softmax":  # energies [B, 1 + N], the positive first
            return Term(1.0, *softmax_contrastive(positive, negative, loss.temperature))
        if loss.kind == "regression":
            count = torch.tensor(float(len(energies)), device=energies.device)
            return Term(1.0, positive.sum(), count)
        margins = adaptive_margins(positives, negatives, loss.margin)
        return Term(1.0, *triplet(positive, negative, margins, loss.reduction))

    def _latents(self, initial: Tensor, candidates: Tensor, dropout: Dropout | None) -> Tensor:
        """Return the latents of pass 1, [B, E] and [B, M, T] → [B, M, T, D]."""
        count = candidates.shape[1]
        centred = self.module.centred(initial).repeat_interleave(count, dim=0)
        latents = self.module.predictor.latents(centred, candidates.flatten(0, 1), dropout=dropout)
        return latents.unflatten(0, (-1, count))  # type: ignore[no-any-return]

    def _auxiliary(
        self,
        initial: Tensor,
        goal: Tensor,
        latents: Tensor,
        actions: Tensor,
        weight: float,
        dropout: Dropout | None,
    ) -> Term:
        """Return the cross-entropy of the actions [B, M, T] given the latents (pass 2)."""
        count, predictor = latents.shape[1], self.module.predictor  # latents [B, M, T, D]
        centred = self.module.centred(initial).repeat_interleave(count, dim=0)
        if self.config.auxiliary.states == "latents":
            logits = predictor.reconstruct_latents(centred, latents.flatten(0, 1), dropout=dropout)
        else:
            states = predictor.head(latents, actions)
            if self.config.auxiliary.goal == "true":
                true = predictor.normalised(self.module.centred(goal))[:, None, None]
                states = torch.cat([states[:, :, :-1], true.expand(-1, count, -1, -1)], dim=2)
            logits = predictor.reconstruct(centred, states.flatten(0, 1), dropout=dropout)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), actions.flatten(), reduction="sum")
        return Term(weight, loss, torch.tensor(actions.numel(), device=loss.device))
