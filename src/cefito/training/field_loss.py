"""Loss of the energy field: contrastive loss and auxiliary reconstruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.field.energy import EnergyField
from cefito.field.prefixes import reconstruct, reconstruct_latents
from cefito.training.augmentation import ActionMeans
from cefito.training.losses import (
    WindowLoss,
    adaptive_margins,
    mean_term,
    softmax_contrastive,
    triplet,
)
from cefito.training.negatives import ActionSets, NegativeSampler
from cefito.training.settings import FieldTrainingConfig
from cefito.training.trainer import Term

_LEFT_OUT = 0.3  # share of the videos left out of the actions' mean observations at each step

FieldScore = Callable[[EnergyField], Mapping[str, float]]


class FieldLoss(WindowLoss):
    """The contrastive loss and the auxiliary reconstruction (paper, Sec. 3.2).

    Args:
        field: Field that is trained.
        train: Training windows.
        actions: Allowed action ids of each task.
        config: Settings.
        score: Returns the scores of a field on validation windows.
        learned: As of `ActionMeans`.
    """

    def __init__(
        self,
        *,
        field: EnergyField,
        train: Windows,
        actions: Mapping[int, tuple[int, ...]],
        config: FieldTrainingConfig,
        score: FieldScore,
        learned: Tensor | None = None,
    ) -> None:
        super().__init__(field, train, None, config)
        self.score = score
        self.means = (
            ActionMeans(train, field.mean, field.predictor.normalised, learned)
            if field.config.action_encoding == "observed"
            else None
        )
        self.sampler = NegativeSampler(
            config=config.negatives,
            actions=ActionSets.build(actions, self.device),
            action_count=len(train.taxonomy.actions),
            horizon=train.horizon,
        )

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """Return the losses of a batch, the sums of its parts."""
        terms: dict[str, Term] = {}
        for part_terms in self.parts(rows, generator):
            for name, term in part_terms.items():
                before = terms[name].sum if name in terms else 0.0
                terms[name] = replace(term, sum=before + term.sum)
        return terms

    def parts(self, rows: Tensor, generator: torch.Generator) -> Iterator[Mapping[str, Term]]:
        """Yield the losses of parts of a batch, each with the counts of the whole batch.

        The windows of a part have trees of similar size. A part is small enough for its activations
        to be allocated anew from memory that the process keeps, and for its layers' to fit in a
        processor's cache.
        """
        initial, goal = self.observations.draw(rows, generator)
        negatives = self.sampler.sample(self.actions[rows], self.tasks[rows], generator)
        vectors = self.means.without(rows, _LEFT_OUT, generator) if self.means else None
        candidates = torch.cat([self.actions[rows, None], negatives], dim=1)  # [B, 1 + N, T]
        whole = [torch.arange(len(candidates), device=candidates.device)]
        if self.config.loss.kind != "triplet" or self.config.loss.reduction == "mean":
            # each window has as many summands, so that the counts are known before the last part
            parts = self.module.similar(candidates)
        else:
            parts = whole
        with self.module.predictor.using(vectors):
            for members in parts:
                terms = self._terms(initial[members], goal[members], candidates[members])
                yield {
                    name: replace(term, count=term.count * len(candidates) // len(members))
                    for name, term in terms.items()
                }

    def _terms(self, initial: Tensor, goal: Tensor, candidates: Tensor) -> Mapping[str, Term]:
        positives, negatives = candidates[:, 0], candidates[:, 1:]
        weight = self.config.auxiliary.weight
        terms: dict[str, Term] = {}
        if weight and self.config.auxiliary.negatives:
            energies, losses = self._reconstructed(initial, goal, candidates)
            for name, kind_losses in (("", losses[:, :1]), ("_negatives", losses[:, 1:])):
                terms[f"auxiliary{name}"] = mean_term(weight / 2, kind_losses)
        else:
            energies = self.module.candidate_energies(initial, goal, candidates)
            if weight:
                _, losses = self._reconstructed(initial, goal, candidates[:, :1])
                terms["auxiliary"] = mean_term(weight, losses)
        return {"contrastive": self._contrastive(energies, positives, negatives), **terms}

    def validate(self) -> Mapping[str, float]:
        """Return success rate and mean accuracy of plans."""
        return self.score(self.module)

    def _contrastive(self, energies: Tensor, positives: Tensor, negatives: Tensor) -> Term:
        loss, positive, negative = self.config.loss, energies[:, 0], energies[:, 1:]
        if loss.kind == "softmax":  # energies [B, 1 + N], the positive first
            return Term(1.0, *softmax_contrastive(positive, negative, loss.temperature))
        if loss.kind == "regression":
            count = torch.tensor(float(len(energies)), device=energies.device)
            return Term(1.0, positive.sum(), count)
        margins = adaptive_margins(positives, negatives, loss.margin)
        return Term(1.0, *triplet(positive, negative, margins, loss.reduction))

    def _reconstructed(
        self, initial: Tensor, goal: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return energies [B, M] and cross-entropies of the actions [B, M, T] of all candidates.

        Both passes compute every prefix once.
        """
        field, predictor, count = self.module, self.module.predictor, candidates.shape[1]
        kind = self.config.auxiliary
        rebuild = reconstruct_latents if kind.states == "latents" else reconstruct
        centred, target = field.centred(initial), field.target(goal)
        true = predictor.normalised(field.centred(goal))[:, None]  # [B, 1, E]
        rows, energies, losses = [], [], []
        for group, tree, states in field.packed_latents(initial, candidates, every_state=True):
            rows.append(group)
            energies.append(field.leaf_energies(tree, states[:, -count:], target[group]))
            if kind.states == "states":
                states = predictor.head(states, torch.cat(tree.actions, dim=1))
            if kind.goal == "true":
                goals = true[group].expand(-1, count, -1)
                states = torch.cat([states[:, :-count], goals], dim=1)
            token = predictor.state_token(centred[group])
            losses.append(rebuild(predictor, tree, token, states, candidates[group]))
        order = torch.cat(rows).argsort()
        return torch.cat(energies)[order], torch.cat(losses)[order]
