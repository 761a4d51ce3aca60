"""Slow, obvious counterparts of fast training paths, for tests and the benchmark."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.errors import SamplingError
from cefito.field.predictor import Predictor
from cefito.training.field_loss import FieldLoss
from cefito.training.settings import NegativesConfig

__all__ = ["PlainFieldLoss", "SlowNegativeSampler", "SlowStreamSampler", "margin", "reconstruct"]


def reconstruct(
    predictor: Predictor, initial: Tensor, states: Tensor, *, latents: bool = False
) -> Tensor:
    """Logits [B, T, K] of the actions between states [B, T, E], or latents; see `prefixes`."""
    slots = predictor.action_mask_token.expand(*states.shape[:2], -1)
    pairs = torch.stack([slots, states if latents else predictor.state_token(states)], dim=2)
    x = torch.cat([predictor.state_token(initial)[:, None], pairs.flatten(1, 2)], dim=1)
    x = x + predictor.pos_embed[: x.shape[1]]
    for block in predictor.blocks:
        x = block(x)
    return predictor.action_head(x[:, 1::2] if latents else predictor.norm(x[:, 2::2]))


class PlainFieldLoss(FieldLoss):
    """Evaluates all candidates of reconstructed negatives as full sequences, in both passes."""

    def _reconstructed(
        self, initial: Tensor, goal: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor]:
        field, predictor, count = self.module, self.module.predictor, candidates.shape[1]
        actions = candidates.flatten(0, 1)  # [B · M, T]
        centred = field.centred(initial).repeat_interleave(count, dim=0)
        latents = predictor.latents(centred, actions)
        goals = predictor.head(latents[:, -1], actions[:, -1]).unflatten(0, (-1, count))
        energies = field.distance(goals, field.target(goal)[:, None])
        if self.config.auxiliary.states == "latents":
            logits = reconstruct(predictor, centred, latents, latents=True)
        else:
            states = predictor.head(latents, actions)
            if self.config.auxiliary.goal == "true":
                true = predictor.normalised(field.centred(goal)).repeat_interleave(count, dim=0)
                states = torch.cat([states[:, :-1], true[:, None]], dim=1)
            logits = reconstruct(predictor, centred, states)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), actions.flatten(), reduction="none")
        return energies, losses.view(candidates.shape)


class SlowNegativeSampler:
    """Draws the negatives of one positive at a time, one by one, in Python."""

    def __init__(
        self, *, config: NegativesConfig, actions: Mapping[int, Sequence[int]], horizon: int
    ) -> None:
        self.config, self.actions, self.horizon = config, actions, horizon

    def counts(self, positive: Sequence[int], task: int) -> tuple[int, int, int, int]:
        """How many permuted, edited, hard and easy negatives this positive gets."""
        permuted, edited, hard, easy = self.config.shares()
        if len(self.actions) < 2:
            hard += easy
        permuted_given = min(permuted, len(set(itertools.permutations(positive))) - 1)
        edited_given = min(edited, self.horizon * (len(self.actions[task]) - 1))
        hard += permuted - permuted_given + edited - edited_given
        room = len(self.actions[task]) ** self.horizon - 1 - permuted_given - edited_given
        hard = min(hard, room)
        return (
            permuted_given,
            edited_given,
            hard,
            self.config.count - permuted_given - edited_given - hard,
        )

    def sample(self, positives: Tensor, tasks: Tensor, generator: torch.Generator) -> Tensor:
        """Negatives [B, N, T]; see `NegativeSampler.sample`."""
        rows = [
            self._negatives(tuple(positive), task, generator)
            for positive, task in zip(positives.tolist(), tasks.tolist(), strict=True)
        ]
        return torch.tensor(rows)

    def _negatives(
        self, positive: tuple[int, ...], task: int, generator: torch.Generator
    ) -> list[tuple[int, ...]]:
        def below(bound: int) -> int:
            return int(torch.randint(bound, (), generator=generator))

        def permuted() -> tuple[int, ...]:
            return tuple(
                positive[int(place)] for place in torch.randperm(self.horizon, generator=generator)
            )

        def edited() -> tuple[int, ...]:
            place, actions = below(self.horizon), self.actions[task]
            return (*positive[:place], actions[below(len(actions))], *positive[place + 1 :])

        def hard() -> tuple[int, ...]:
            actions = self.actions[task]
            return tuple(actions[below(len(actions))] for _ in range(self.horizon))

        def easy() -> tuple[int, ...]:
            others = [actions for index, actions in self.actions.items() if index != task]
            actions = others[below(len(others))]
            return tuple(actions[below(len(actions))] for _ in range(self.horizon))

        chosen: list[tuple[int, ...]] = []
        for draw, wanted in zip(
            (permuted, edited, hard, easy), self.counts(positive, task), strict=True
        ):
            tries, target = 0, len(chosen) + wanted
            while len(chosen) < target:
                candidate = draw()
                if candidate != positive and candidate not in chosen:
                    chosen.append(candidate)
                tries += 1
                if tries > 100_000:
                    raise SamplingError(
                        f"task {task} cannot be given {self.config.count} distinct negatives."
                    )
        return chosen


class SlowStreamSampler(SlowNegativeSampler):
    """Draws kind and actions of one negative after the other (`exact = false`), in Python."""

    def _negatives(
        self, positive: tuple[int, ...], task: int, generator: torch.Generator
    ) -> list[tuple[int, ...]]:
        def chance(share: float) -> bool:
            return float(torch.rand((), generator=generator)) < share

        def below(bound: int) -> int:
            return int(torch.randint(bound, (), generator=generator))

        others = [index for index in self.actions if index != task]
        chosen: list[tuple[int, ...]] = []
        vain, permuting = 0, len(set(positive)) > 1
        while len(chosen) < self.config.count:
            if permuting and chance(self.config.permuted):
                order = torch.randperm(self.horizon, generator=generator).tolist()
                drawn = tuple(positive[place] for place in order)
            else:
                away = others and chance(1 - self.config.hard)
                actions = self.actions[others[below(len(others))] if away else task]
                drawn = tuple(actions[below(len(actions))] for _ in range(self.horizon))
            if drawn == positive or drawn in chosen:
                vain += 1
                permuting = permuting and vain < 200
            else:
                chosen.append(drawn)
                vain = 0
        return chosen


def margin(
    positive: Sequence[int], negative: Sequence[int], *, low: float, high: float, order: float = 0.0
) -> float:
    """Adaptive margin of one triplet (paper, Eq. 3), by sets."""
    ours, theirs = set(positive), set(negative)
    differing = sum(a != b for a, b in zip(positive, negative, strict=True)) / len(positive)
    severity = (1 - order) * len(theirs - ours) / len(theirs) + order * differing
    return low + (high - low) * severity
