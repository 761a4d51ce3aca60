"""The energy of an action sequence: how far the goal it leads to lies from the observed one.

Paper, Eqs. 1 and 4.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from cefito.field.attention import prepared_mask
from cefito.field.distances import DISTANCES
from cefito.field.predictor import Dropout, Predictor
from cefito.field.prefixes import PrefixTree, prefix_counts
from cefito.field.recomputing import recomputed
from cefito.field.settings import FieldConfig

__all__ = ["EnergyField", "GoalProjection"]

_TOGETHER = 32  # queries that are packed together; `small` trains on batches of so many


class GoalProjection(nn.Module):
    """A residual MLP on the normalised goal, the identity when new.

    With it the field can give less weight to what it cannot predict.
    """

    def __init__(self, observation_dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(observation_dim, hidden)
        self.fc2 = nn.Linear(hidden, observation_dim)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights anew; the second layer starts at zero."""
        nn.init.kaiming_uniform_(self.fc1.weight, a=5**0.5, generator=generator)
        for tensor in (self.fc1.bias, self.fc2.weight, self.fc2.bias):
            nn.init.zeros_(tensor)

    def forward(self, goal: Tensor) -> Tensor:
        """[B, E] → [B, E]."""
        return goal + self.fc2(nn.functional.gelu(self.fc1(goal), approximate="tanh"))  # type: ignore[no-any-return]


class EnergyField(nn.Module):
    """A predictor and a distance. Observations are given raw; they are normalised here.

    Args:
        config: Sizes and options.
        observation_dim: E.
        action_count: K.
        horizon: T.
        action_vectors: Frozen vectors of the actions [K, W], or None to learn them.
    """

    mean: Tensor

    def __init__(
        self,
        *,
        config: FieldConfig,
        observation_dim: int,
        action_count: int,
        horizon: int,
        action_vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.predictor = Predictor(
            config=config,
            observation_dim=observation_dim,
            action_count=action_count,
            horizon=horizon,
            action_vectors=action_vectors,
        )
        self.goal_projection = (
            GoalProjection(observation_dim, config.goal_projection)
            if config.goal_projection
            else None
        )
        self.register_buffer("mean", torch.zeros(observation_dim))

    @property
    def horizon(self) -> int:
        """T, the number of actions of a sequence."""
        return self.predictor.horizon

    def reset(self, generator: torch.Generator, *, mean: Tensor | None = None) -> None:
        """Draw all weights anew.

        Args:
            generator: Source of all randomness, on the CPU.
            mean: Mean observation of the training windows [E]; used only where the configuration
                says `centre`.
        """
        self.predictor.reset(generator)
        if self.goal_projection is not None:
            self.goal_projection.reset(generator)
        if self.config.centre and mean is not None:
            self.mean.copy_(mean)

    def centred(self, observation: Tensor) -> Tensor:
        """Observations less the stored mean, which is zero unless configured, […, E]."""
        return observation.float() - self.mean

    def target(self, goal: Tensor) -> Tensor:
        """What a prediction is compared with, […, E]: the goal, normalised, perhaps projected."""
        normed = self.predictor.normalised(self.centred(goal))
        return normed if self.goal_projection is None else self.goal_projection(normed).float()

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Distance of predicted goals and targets over the last dimension, in float32."""
        return self.from_squared((predicted.float() - target).square().sum(dim=-1))

    def from_squared(self, squared: Tensor) -> Tensor:
        """The configured distance, from the sum over E of the squared differences."""
        return DISTANCES[self.config.distance](squared, self.predictor.observation_dim)

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Energy of full sequences, each evaluated by itself; the reference of every faster path.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            actions: Action ids [B, T].

        Returns:
            Energies [B], float32.
        """
        return self.distance(self.predictor.goal(self.centred(initial), actions), self.target(goal))

    def candidate_energies(
        self,
        initial: Tensor,
        goal: Tensor,
        actions: Tensor,
        *,
        dropout: Dropout | None = None,
        recompute: bool = False,
    ) -> Tensor:
        """Energies of M distinct candidates a query, differentiable, shared prefixes computed once.

        Each query's candidates form one packed token sequence, the tree of their prefixes, in which
        a token sees its ancestors only. The last block computes the goal tokens alone. Queries of
        trees of about one size are computed together, since all are padded to the widest.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            actions: Action ids [B, M, T].
            dropout: Dropout of the residual branches.
            recompute: Compute activations again in the backward pass instead of keeping them.

        Returns:
            Energies [B, M], float32.
        """
        target = self.target(goal)
        root = self.predictor.state_token(self.centred(initial))
        table = self.predictor.action_tokens()
        vectors = self.predictor.other_vectors

        def packed(*parts: Tensor, dropout: Dropout | None) -> Tensor:
            with self.predictor.using(vectors):  # when it is called again, too
                return self._packed(*parts, dropout=dropout)

        evaluate = partial(recomputed, packed) if recompute else self._packed
        if len(actions) <= _TOGETHER:
            return evaluate(root, table, target, actions, dropout=dropout)
        size = prefix_counts(actions, action_count=self.predictor.action_count)
        order = size.argsort(stable=True)
        energies = torch.cat(
            [
                evaluate(root[rows], table, target[rows], actions[rows], dropout=dropout)
                for rows in order.split(_TOGETHER)
            ]
        )
        return energies[order.argsort()]

    def _packed(
        self,
        root: Tensor,
        table: Tensor,
        target: Tensor,
        actions: Tensor,
        *,
        dropout: Dropout | None,
    ) -> Tensor:
        """Energies [B, M] of candidates [B, M, T], from tokens [B, D], [K, D] and targets."""
        predictor = self.predictor
        tree = PrefixTree.build(actions, action_count=predictor.action_count)
        x = tree.pack(root, table, predictor.state_mask_token, predictor.pos_embed)
        mask = prepared_mask(tree.mask())
        for block in predictor.blocks[:-1]:
            x = block(x, mask=mask, dropout=dropout)
        x = predictor.blocks[-1](x, mask=mask, last=actions.shape[1], dropout=dropout)
        goals = predictor.head(x, tree.actions[-1])
        return tree.unsort(self.distance(goals, target[:, None]))
