"""Squared distances of predicted goals from observed ones, in the range of the state head."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.predictor import Predictor

__all__ = ["ReducedDistance"]


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
        skip = predictor.skip()
        self._skip = None if skip is None else skip.double()
        # Qᵀ s of every action, [K, R]
        self._skip_inside = None if self._skip is None else self._inside(self._skip).float()

    @property
    def device(self) -> torch.device:
        """Device of its tensors."""
        return torch.device(self._head.device)

    def of_goals(self, goals: Tensor) -> tuple[Tensor, Tensor]:
        """Project goals onto the range of the state head."""
        # goals: targets of predictions [Q, E]; returns coordinates Qᵀ(g − b) [Q, R], and for each
        # last action the squared distance ‖c − QQᵀc‖² outside the range [Q, K]
        # in double precision: differences of large squares lose digits
        wanted = (goals - self._bias).double()
        outside = self._outside(wanted)[:, None].expand(-1, self._action_count)
        if self._skip is not None:  # ‖c − s‖² expanded, which avoids [Q, K, E]
            shared = wanted @ self._skip.T - self._inside(wanted) @ self._inside(self._skip).T
            outside = (outside + self._outside(self._skip) - 2 * shared).clamp_min(0)
        return self._inside(wanted).float(), outside.float()

    def squared(self, tokens: Tensor, goals: Tensor, actions: Tensor) -> Tensor:
        """Return the squared distances within the range."""
        # tokens: normalised last tokens h […, D]; goals: coordinates of the goals […, R], of as
        # many axes; returns squared distances […]
        if self._skip_inside is not None:
            goals = goals - self._skip_inside[actions]
        # ‖R h − Qᵀc‖²
        return (F.linear(tokens, self._head) - goals).square().sum(dim=-1)

    def _inside(self, vectors: Tensor) -> Tensor:
        """Return the coordinates Qᵀv of vectors […, E] as […, R]."""
        return vectors if self._basis is None else vectors @ self._basis

    def _outside(self, vectors: Tensor) -> Tensor:
        """Return the squared distances ‖v − QQᵀv‖² of vectors […, E] from the range, […]."""
        inside = self._inside(vectors).square().sum(dim=-1)
        return (vectors.square().sum(dim=-1) - inside).clamp_min(0)
