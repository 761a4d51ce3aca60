"""Planning on a procedural knowledge graph: the likeliest path between two predicted actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    BasePlanner,
    Fitted,
    Queries,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.pkg.settings import PkgConfig, PkgSettings
from cefito.planners.shared.graph import cheapest_paths, transition_costs, transition_counts
from cefito.planners.shared.proposal_model import ProposalModel
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost

__all__ = ["PkgBeamPlanner", "PkgPlanner"]

_FILE = "graph.safetensors"
_REMEDY = "Fit the planner again."
_STEP_MODEL = "step model"


@dataclass(frozen=True, eq=False, repr=False)
class PkgPlanner(BasePlanner):
    """Plans paths on the graph of transitions seen in training windows: the likeliest of all.

    This is PKG of arXiv 2603.04265, which searches by beam (`PkgBeamPlanner`). A step model, a
    `ProposalModel` for two steps, predicts the first and the last action of each query among all
    actions; its epoch is the one of the best likelihood of both on the validation windows. Plans
    are paths of T actions between the two, ordered by the product of their transitions'
    probabilities. A path with transitions that were never seen comes after every path with fewer of
    them, each counting as the share of all transitions that lead to the same action; so there is a
    plan also where the graph does not connect the two actions. Ties are ordered by action ids. The
    energy of a plan is its cost in `transition_costs`: minus the logarithm of its probability
    wherever that is positive.

    The published step model, beam width and tie-breaking are not known. Tasks play no part.

    Attributes:
        step_model: Predicts the first and the last action.
        counts: How often training windows show one action after another, [K, K].
        costs: What each transition costs a path, [K, K].
        horizon: T.
        width: Prefixes that a beam search keeps.
    """

    abilities: ClassVar[Abilities] = Abilities(true_task=False, true_ends=True)
    exact: ClassVar[bool] = True
    step_model: ProposalModel
    counts: NDArray[np.int64]
    costs: NDArray[np.float64]
    horizon: int
    width: int
    name = "PKG (exact)"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: PkgSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Count transitions and train the step model.

        Raises:
            ConfigError: Windows of a single action, between which there are no transitions.
        """
        if train.horizon < 2:
            raise ConfigError(
                "horizon 1: PKG plans from a first to a last action. Choose a horizon of 2 or "
                "more.",
                setting="horizon",
            )
        # the step model sees two actions whatever the horizon: the key tells its checkpoints apart
        key = f"{context.key} horizon {train.horizon}"
        step_model, result = ProposalModel.fit(
            _ends(train),
            _ends(val),
            config=settings.pkg.network,
            training=settings.pkg.training,
            actions={},
            seed=seed,
            context=replace(context.part("step_model"), key=key),
        )
        counts = transition_counts(train, len(train.taxonomy.actions))
        planner = cls._built(step_model, counts, train.horizon, settings.pkg)
        return Fitted(planner, {_STEP_MODEL: result})

    @classmethod
    def _built(
        cls,
        step_model: ProposalModel,
        counts: NDArray[np.int64],
        horizon: int,
        config: PkgConfig,
    ) -> Self:
        costs = transition_costs(counts, horizon=horizon, smoothing=config.smoothing)
        return cls(step_model, counts, costs, horizon, config.width)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: PkgSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or a graph of other actions than the step model's.
        """
        folder = Path(folder)
        step_model = ProposalModel.load(folder, config=settings.pkg.network, device=context.device)
        network = step_model.network
        if network.horizon != 2:
            raise RunError(
                f"{folder / step_model.file}: predicts {network.horizon} actions; expected 2. "
                f"{_REMEDY}"
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
        return cls._built(step_model, counts, int(horizon), settings.pkg)

    def save(self, folder: Path | str) -> None:
        """Write the counts and the step model."""
        folder = Path(folder)
        write_tensors(folder / _FILE, {"counts": self.counts}, {"horizon": str(self.horizon)})
        self.step_model.save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the step model; the graph is counted, not learned."""
        return {_STEP_MODEL: self.step_model.parameters}

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.step_model.network.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(None, len(self.counts))

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The given tasks, which it does not use; None where none are given."""
        return queries.tasks

    def predict_ends(self, queries: Queries) -> NDArray[np.int64]:
        """The likeliest first and last action of each query, each by itself, [N, 2].

        Where the true ones are given, these.

        Raises:
            DataError: Given ones that it does not know.
            RunError: Observations of another dimension.
        """
        queries.check_ends(len(self.counts))
        if queries.ends is not None:
            return queries.ends
        return np.asarray(self.step_model.logits(queries).argmax(axis=2), dtype=np.int64)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The likeliest paths between each query's predicted first and last action.

        At T = 2 there is a single one.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension.
        """
        check_queries(self, queries, top_k, constraints)
        ends = [(first, last) for first, last in self.predict_ends(queries).tolist()]
        plans = {pair: self._paths(*pair, top_k) for pair in sorted(set(ends))}
        return [plans[pair] for pair in ends]

    def _paths(self, first: int, last: int, top_k: int) -> Plans:
        paths, costs = cheapest_paths(
            self.costs,
            first=first,
            last=last,
            horizon=self.horizon,
            count=top_k,
            width=None if self.exact else self.width,
        )
        return Plans(
            actions=paths,
            energies=costs,
            scores=costs,
            evaluated=SearchCost(0, len(paths)),
            exact=self.exact,
        )


class PkgBeamPlanner(PkgPlanner):
    """Plans such paths by a beam search from the first action.

    It keeps `width` prefixes of each length; those of T - 1 actions are ended by the last one.
    """

    exact: ClassVar[bool] = False
    name = "PKG (beam)"


def _ends(windows: Windows) -> Windows:
    """The windows with their first and last actions alone."""
    return replace(windows, actions=windows.actions[:, [0, -1]])
