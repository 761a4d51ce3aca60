"""The energy of an action sequence: the distance of its predicted goal from the observed goal.

E(a; x_s, x_g) = d(f(x_s, a), x_g) (paper, Eqs. 1 and 4). `ReducedDistance` computes the distance in
the range of the state head.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from cefito.field import prefixes
from cefito.field.children import FrozenLinear
from cefito.field.predictor import Predictor
from cefito.field.prefixes import PrefixTree
from cefito.field.settings import DISTANCES, FieldConfig

TOGETHER = 16  # queries that are packed together on a CPU; twice as many elsewhere


class ReducedDistance:
    """The squared distance to a goal, computed in R = min(D, E) dimensions instead of E.

    A predicted goal is W h + b + s, with the last token h, weight W and bias b of the state head
    and the skip s of the last action (zero without skips). Let W = Q R be a QR decomposition,
    g the observed goal, and c = g − b − s. Then

        ‖W h − c‖² = ‖R h − Qᵀc‖² + ‖c − Q Qᵀc‖².

    The second term, the part of c outside the range of W, depends only on query and last action and
    is computed once; only the first is computed for every sequence.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._action_count = predictor.action_count
        weight, self._bias = predictor.state_head.weight, predictor.state_head.bias
        # Only a head that widens (E > D) has directions outside its range; otherwise Q = I.
        if weight.shape[0] > weight.shape[1]:
            basis, triangle = torch.linalg.qr(weight.double())
            self._basis: Tensor | None = basis
            self._head = triangle.float()
        else:
            self._basis, self._head = None, weight
        self._product = FrozenLinear(self._head.detach(), None)
        skip = predictor.skip()
        self._skip = None if skip is None else skip.double()
        if self._skip is not None:  # of every action: Qᵀ s [K, R] and ‖s − QQᵀs‖² [K]
            self._skip_inside = self._inside(self._skip)
            self._skip_outside = self._outside(self._skip)

    @property
    def device(self) -> torch.device:
        """Device of its tensors."""
        return torch.device(self._head.device)

    def of_goals(self, goals: Tensor) -> tuple[Tensor, Tensor]:
        """Project goals [Q, E], as predicted, onto the range of the state head.

        Return their coordinates Qᵀ(g − b) [Q, R], and for each last action the squared distance
        ‖c − QQᵀc‖² outside the range [Q, K].
        """
        # in double precision: differences of large squares lose digits
        wanted = (goals - self._bias).double()
        outside = self._outside(wanted)[:, None].expand(-1, self._action_count)
        if self._skip is not None:  # ‖c − s‖² expanded, which avoids [Q, K, E]
            shared = wanted @ self._skip.T - self._inside(wanted) @ self._skip_inside.T
            outside = (outside + self._skip_outside - 2 * shared).clamp_min(0)
        return self._inside(wanted).float(), outside.float()

    def squared(self, tokens: Tensor, goals: Tensor, actions: Tensor) -> Tensor:
        """Return the squared distances ‖R h − Qᵀc‖² within the range, […].

        Of normalised last tokens h […, D], and coordinates of goals […, R] of as many axes.

        Args:
            tokens: Normalised last tokens h […, D].
            goals: Coordinates of the goals […, R].
            actions: Action ids […].
        """
        if self._skip is not None:
            goals = goals - self._skip_inside[actions].float()
        return (self._product(tokens) - goals).square().sum(dim=-1)

    def _inside(self, vectors: Tensor) -> Tensor:
        """Return the coordinates Qᵀv of vectors […, E] as […, R]."""
        return vectors if self._basis is None else vectors @ self._basis

    def _outside(self, vectors: Tensor) -> Tensor:
        """Return the squared distances ‖v − QQᵀv‖² of vectors […, E] from the range, […]."""
        inside = self._inside(vectors).square().sum(dim=-1)
        return (vectors.square().sum(dim=-1) - inside).clamp_min(0)


class EnergyField(nn.Module):
    """A predictor and a distance. Observations are given raw; they are normalised here.

    Args:
        config: Settings of predictor and distance.
        observation_dim: E, the features of an observation.
        action_count: K, the actions of the taxonomy.
        horizon: T, the actions of a sequence.
        action_vectors: Frozen vectors of the actions [K, W]; None to learn them.
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
        self.register_buffer("mean", torch.zeros(observation_dim))

    @property
    def horizon(self) -> int:
        """T, the number of actions of a sequence."""
        return self.predictor.horizon

    def reset(self, generator: torch.Generator, *, mean: Tensor | None = None) -> None:
        """Draw all weights anew; `centre` subtracts the mean training observation [E]."""
        self.predictor.reset(generator)
        if self.config.centre and mean is not None:
            self.mean.copy_(mean)

    def centred(self, observation: Tensor) -> Tensor:
        """Return observations […, E] minus the stored mean, which is zero unless configured."""
        return observation.float() - self.mean

    def target(self, goal: Tensor) -> Tensor:
        """Return the target of predictions […, E]: the normalised goal."""
        return self.predictor.normalised(self.centred(goal))

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Return the distance of predicted goals and targets over the last axis, in float32."""
        # d(‖predicted − target‖²), […, E] → […]
        return self.from_squared((predicted.float() - target).square().sum(dim=-1))

    def from_squared(self, squared: Tensor) -> Tensor:
        """Return the configured distance of squared L2 distances."""
        return DISTANCES[self.config.distance](squared, self.predictor.observation_dim)

    def energy(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return the energies [B] of sequences [B, T] between [B, E], each evaluated by itself."""
        return self.distance(self.predictor.goal(self.centred(initial), actions), self.target(goal))

    def candidate_energies(self, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """Return differentiable energies [B, M] of M candidates a query [B, M, T].

        Each query's candidates form one packed token sequence, the tree of their prefixes, in which
        a token sees its ancestors only. The last block computes the goal tokens alone. Queries with
        trees of similar size are computed together, since all are padded to the widest.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            actions: Action ids of the candidates [B, M, T].
        """
        target = self.target(goal)  # [B, E]
        rows, energies = [], []
        for group, tree, latents in self.packed_latents(initial, actions):
            rows.append(group)
            energies.append(self.leaf_energies(tree, latents, target[group]))
        return torch.cat(energies)[torch.cat(rows).argsort()]

    def packed_latents(
        self, initial: Tensor, actions: Tensor, *, every_state: bool = False
    ) -> Iterator[tuple[Tensor, PrefixTree, Tensor]]:
        """Yield the packed latents of pass 1 for groups of queries with trees of similar size.

        Each group has its rows [b] of the batch, their tree, and the latents of the goals
        [b, M, D], in the order of the leaves, or with `every_state` of all nodes, level by level.

        Args:
            initial: Initial observations [B, E].
            actions: Action ids of the candidates [B, M, T].
            every_state: Yield the latents of all nodes, not of the leaves alone.
        """
        predictor = self.predictor
        root = predictor.state_token(self.centred(initial))  # [B, D]
        table = predictor.action_tokens()  # [K, D]
        for rows in self.similar(actions):
            tree = PrefixTree.build(actions[rows], action_count=predictor.action_count)
            goals = slice(tree.length - actions.shape[1], tree.length)
            read = tree.second_tokens() if every_state else goals
            yield rows, tree, prefixes.latents(predictor, tree, root[rows], table, read=read)

    def similar(self, actions: Tensor) -> list[Tensor]:
        """Return the rows of sets of candidates [B, M, T] in groups of trees of similar size."""
        most = TOGETHER if actions.device.type == "cpu" else 2 * TOGETHER
        if len(actions) <= most:
            return [torch.arange(len(actions), device=actions.device)]
        counts = prefixes.prefix_counts(actions, action_count=self.predictor.action_count)
        return list(counts.argsort(stable=True).split(most))

    def leaf_energies(self, tree: PrefixTree, latents: Tensor, target: Tensor) -> Tensor:
        """Return the energies [B, M] of the candidates of a tree.

        Args:
            tree: Tree of the candidates.
            latents: Latents of the goals, in the order of the leaves [B, M, D].
            target: Encoded goals [B, E].
        """
        # latents of the goals, in the order of the leaves, [B, M, D]; targets [B, E]
        goals = self.predictor.head(latents, tree.actions[-1])  # [B, M, E]
        leaves = self.distance(goals, target[:, None])
        return leaves.gather(1, tree.order.argsort(dim=1))  # in the order of the candidates
