"""How far predicted goals lie from observed ones, in the coordinates that predictions can reach."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.predictor import Predictor

__all__ = ["ReducedDistance"]


class ReducedDistance:
    """The squared distance to a goal, taken in R = min(D, E) dimensions instead of E.

    A predicted goal is W h + b + s, with the last token h, weight W and bias b of the state head
    and the skip s of the last action (zero where there is none). Let W = Q R be a QR decomposition,
    g the observed goal, and c = g − b − s. Then

        ‖W h − c‖² = ‖R h − Qᵀc‖² + ‖c − Q Qᵀc‖².

    The second term, the part of c that no prediction can reach, depends on query and last action
    alone and is computed once; only the first is left for every sequence.

    Args:
        predictor: The predictor, whose weights are taken as they are now.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._action_count = predictor.action_count
        weight, self._bias = predictor.state_head.weight, predictor.state_head.bias
        # Only a head that widens has directions out of reach; otherwise Q is the identity.
        if weight.shape[0] > weight.shape[1]:
            basis, triangle = torch.linalg.qr(weight.double())
            self._basis: Tensor | None = basis
            self._head = triangle.float()
        else:
            self._basis, self._head = None, weight
        skip = predictor.skip()
        self._skip = None if skip is None else skip.double()
        # of every action, where leaves look it up
        self._skip_inside = None if self._skip is None else self._inside(self._skip).float()

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device(self._head.device)

    def of_goals(self, goals: Tensor) -> tuple[Tensor, Tensor]:
        """Where goals lie.

        Args:
            goals: What predictions are compared with [Q, E].

        Returns:
            Coordinates Qᵀ(g − b) [Q, R], and for each last action the squared distance out of reach
            [Q, K].
        """
        # Differences of large squares: in double precision, since little may be left of them.
        wanted = (goals - self._bias).double()
        outside = self._outside(wanted)[:, None].expand(-1, self._action_count)
        if self._skip is not None:  # ‖c − s‖² by parts, so that no [Q, K, E] is made
            shared = wanted @ self._skip.T - self._inside(wanted) @ self._inside(self._skip).T
            outside = (outside + self._outside(self._skip) - 2 * shared).clamp_min(0)
        return self._inside(wanted).float(), outside.float()

    def squared(self, tokens: Tensor, goals: Tensor, actions: Tensor) -> Tensor:
        """Squared distances within reach.

        Args:
            tokens: Normalised last tokens h […, D].
            goals: Coordinates of the goals […, R], of as many axes.
            actions: Last actions; their axes are the last ones of the result.

        Returns:
            Squared distances […].
        """
        if self._skip_inside is not None:
            goals = goals - self._skip_inside[actions]
        return (F.linear(tokens, self._head) - goals).square().sum(dim=-1)

    def _inside(self, vectors: Tensor) -> Tensor:
        """Coordinates of vectors […, E] within reach […, R]."""
        return vectors if self._basis is None else vectors @ self._basis

    def _outside(self, vectors: Tensor) -> Tensor:
        """Squared distance of vectors […, E] from what is within reach […]."""
        inside = self._inside(vectors).square().sum(dim=-1)
        return (vectors.square().sum(dim=-1) - inside).clamp_min(0)
