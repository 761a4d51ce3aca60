"""Planning on a procedural knowledge graph.

A first and a last action from the observations, the likeliest path between.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Queries
from cefito.planners.graph import cheapest_paths, transition_costs, transition_counts
from cefito.planners.networks import TrainingContext
from cefito.planners.proposal_model import ProposalModel
from cefito.planners.settings import RunConfig
from cefito.search.problem import Effort, Plans
from cefito.training.trainer import TrainingResult

__all__ = ["PkgPlanner"]

_FILE = "graph.safetensors"
_REMEDY = "Fit the planner again."


class PkgPlanner:
    """Plans paths on the graph of transitions seen in training windows (PKG in arXiv 2603.04265.

    There by beam search).

    A step model, a `ProposalModel` for two steps, predicts the first and the last action of each
    query among all actions; its epoch is the one of the best likelihood of both on the validation
    windows. Plans are paths of T actions between the two, ordered by the product of their
    transitions' probabilities. A path with transitions that were never seen comes after every path
    with fewer of them, each counting as the share of all transitions that lead to the same action;
    so there is a plan also where the graph does not connect the two actions. Ties are ordered by
    action ids. The energy of a plan is its cost in
    `transition_costs`: minus the logarithm of its probability wherever that is positive.

    The published step model, beam width and tie-breaking are not known. Tasks play no part.

    Args:
        config: All settings; `config.pkg` is used.
        context: Where the step model is trained.
        method: "exact" for the likeliest of all paths; "beam" for a beam search of
            `config.pkg.width` from the first action, whose prefixes of T - 1 actions are ended by
            the last one.
    """

    def __init__(
        self,
        *,
        config: RunConfig,
        context: TrainingContext = TrainingContext(),
        method: Literal["exact", "beam"] = "exact",
    ) -> None:
        if method not in ("exact", "beam"):
            raise ConfigError(f"PKG method '{method}': expected 'exact' or 'beam'.")
        self.config, self.context, self.method = config.pkg, context.part("step_model"), method
        self.step_model = ProposalModel(
            config=self.config.network, training=self.config.training, context=self.context
        )
        self._counts: NDArray[np.int64] | None = None
        self._horizon = 0

    @property
    def name(self) -> str:
        """Which of the two searches it is."""
        return f"PKG ({self.method})"

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the step model; the graph is counted, not learned."""
        return {"step model": self.step_model.parameters}

    @property
    def results(self) -> dict[str, TrainingResult]:
        """How the training of the step model went, where it was fitted here."""
        return {} if self.step_model.result is None else {"step model": self.step_model.result}

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:
        """Count transitions and train the step model.

        Raises:
            ConfigError: Windows of a single action, between which there are no transitions.
        """
        if train.horizon < 2:
            raise ConfigError(
                "horizon 1: PKG plans from a first to a last action. Choose a horizon of 2 or more."
            )
        # the step model sees two actions whatever the horizon, so its checkpoints must be told
        # apart
        self.step_model.context = replace(
            self.context, key=f"{self.context.key} horizon {train.horizon}"
        )
        self.step_model.fit(_ends(train), _ends(val), actions={}, seed=seed)
        self._keep(transition_counts(train, len(train.taxonomy.actions)), train.horizon)

    def _keep(self, counts: NDArray[np.int64], horizon: int) -> None:
        self._counts, self._horizon = counts, horizon
        self._costs = transition_costs(counts, horizon=horizon, smoothing=self.config.smoothing)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The given tasks, which it does not use; None where none are given."""
        return queries.tasks

    def predict_ends(self, queries: Queries) -> NDArray[np.int64]:
        """The likeliest first and last action of each query, each by itself, [N, 2].

        Raises:
            RunError: Not fitted, or observations of another dimension.
        """
        return np.asarray(self.step_model.logits(queries).argmax(axis=2), dtype=np.int64)

    def plan(self, queries: Queries, top_k: int) -> list[Plans]:
        """The likeliest paths between each query's predicted first and last action.

        A single one at T = 2.

        Raises:
            ConfigError: `top_k` is below 1.
            RunError: Not fitted, or observations of another dimension.
        """
        if top_k < 1:
            raise ConfigError(f"{top_k} plans a query: expected 1 or more.")
        if self._counts is None:
            raise RunError("this planner has not been fitted; call fit or load first.")
        ends = [(first, last) for first, last in self.predict_ends(queries).tolist()]
        found = {pair: self._paths(*pair, top_k) for pair in sorted(set(ends))}
        return [found[pair] for pair in ends]

    def _paths(self, first: int, last: int, top_k: int) -> Plans:
        beam = self.method == "beam"
        paths, costs = cheapest_paths(
            self._costs,
            first=first,
            last=last,
            horizon=self._horizon,
            count=top_k,
            width=self.config.width if beam else None,
        )
        return Plans(
            actions=paths,
            energies=costs,
            scores=costs,
            evaluated=Effort(0, len(paths)),
            exact=not beam,
        )

    def save(self, folder: Path) -> None:
        """Write the counts and the step model."""
        if self._counts is None:
            raise RunError("this planner has not been fitted; there is nothing to save.")
        write_tensors(folder / _FILE, {"counts": self._counts}, {"horizon": str(self._horizon)})
        self.step_model.save(folder)

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            RunError: Missing or damaged files, or a graph of other actions than the step model's.
        """
        self.step_model.load(folder)
        network = self.step_model.ready()
        if network.horizon != 2:
            raise RunError(
                f"{folder / self.step_model.file}: predicts {network.horizon} actions; expected "
                f"2. {_REMEDY}"
            )
        tensors, metadata = load_tensors(folder / _FILE, "np", _REMEDY, RunError)
        counts, horizon = tensors.get("counts"), metadata.get("horizon", "")
        size = len(network.action_vectors)
        if (
            counts is None
            or counts.dtype != np.int64
            or counts.shape != (size, size)
            or counts.min() < 0
            or not horizon.isdecimal()
            or int(horizon) < 2
        ):
            raise RunError(
                f"{folder / _FILE}: holds no transition counts of {size} actions with their "
                f"horizon. {_REMEDY}"
            )
        self._keep(counts, int(horizon))


def _ends(windows: Windows) -> Windows:
    """The windows with their first and last actions alone."""
    return replace(windows, actions=windows.actions[:, [0, -1]])
