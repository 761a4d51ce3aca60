"""ViterbiPlanNet (arXiv 2603.04265): emissions of a network, decoded over known transitions.

What is not published about it is decided here, and said where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.files import write_tensors
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    Fitted,
    Queries,
    Shape,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.network import (
    NetworkPlanner,
    TrainedNetwork,
    finite_outputs,
    learned,
    train_network,
)
from cefito.planners.shared.graph import transition_counts
from cefito.planners.viterbi.descriptions import fixed_descriptions
from cefito.planners.viterbi.layer import Decoding, decode
from cefito.planners.viterbi.loss import ViterbiLoss
from cefito.planners.viterbi.network import Outputs, ViterbiNetwork
from cefito.planners.viterbi.settings import Alignment, ViterbiConfig, ViterbiSettings
from cefito.progress import Progress, silent
from cefito.runtime import Stream, derived_seed
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import TrainingResult

__all__ = ["ViterbiModel", "ViterbiPlanner"]

_KINDS: dict[Alignment, str] = {
    "file": "",  # as published
    "names": "name hashes",
    "free": "free vectors",
    "none": "no alignment",
}


@dataclass(frozen=True)
class ViterbiModel(TrainedNetwork[ViterbiNetwork]):
    """A trained network of ViterbiPlanNet, which holds the counts of transitions.

    Attributes:
        others: Networks trained from seeds of their own beside it, whose emissions and task logits
            are averaged with its own (not in the paper).
    """

    title: ClassVar[str] = "ViterbiPlanNet"
    file: ClassVar[str] = "viterbi.safetensors"
    others: tuple[ViterbiNetwork, ...] = ()

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: ViterbiConfig,
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, dict[str, TrainingResult]]:
        """Train on windows, keep the epoch of the best validation success rate, then mean accuracy.

        Args:
            train: Training windows; transitions are counted in them.
            val: Validation windows.
            config: The network and how it is trained.
            seed: Seed of weights, batches, noise and dropout of the first member, from which those
                of the others follow.
            context: Where it is trained.

        Returns:
            The model, and how the training of each member went.

        Raises:
            DataError: The file of descriptions is missing, damaged, or has another shape.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        action_count = len(train.taxonomy.actions)
        descriptions, digest = fixed_descriptions(config, train.taxonomy)
        counts = torch.from_numpy(transition_counts(train, action_count))
        networks, results = [], {}
        for member in range(config.members):
            suffix = f"-{member}" if member else ""
            network = ViterbiNetwork(
                config=config,
                observation_dim=train.initial.shape[1],
                action_count=action_count,
                horizon=train.horizon,
                task_count=len(train.taxonomy.tasks) if config.task else 0,
                description_dim=0 if descriptions is None else descriptions.shape[2],
                free=config.aligned_with == "free",
            )
            network.counts.copy_(counts)
            results[cls.title + suffix] = train_network(
                network,
                partial(_loss, train=train, val=val, descriptions=descriptions, config=config),
                name=cls.title + suffix,
                training=config.training,
                stream=Stream.VITERBI,
                seed=derived_seed(seed, Stream.VITERBI, member) if member else seed,
                settings=[
                    train.horizon,
                    config.model_dump(exclude={"name_width", "members"}) | {"descriptions": digest},
                ],
                context=context.part(f"viterbi{suffix}"),
                centre=config.centre,
            )
            networks.append(network)
        return cls(networks[0], tuple(networks[1:])), results

    @classmethod
    def load(
        cls, folder: Path, *, config: ViterbiConfig, device: torch.device | str = "cpu"
    ) -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        first, *others = (
            cls.read(folder, partial(_build, config), device=device, file=_file(member))
            for member in range(config.members)
        )
        return cls(first, tuple(others))

    def save(self, folder: Path) -> None:
        """Write each member into a file of its own."""
        for member, network in enumerate((self.network, *self.others)):
            write_tensors(folder / _file(member), network.state_dict())

    @property
    def parameters(self) -> int:
        """Learned numbers of all members."""
        return sum(
            tensor.numel()
            for network in (self.network, *self.others)
            for tensor in network.parameters()
        )

    @torch.inference_mode()
    def outputs(self, queries: Queries) -> Outputs:
        """What the network gives for queries.

        Raises:
            RunError: Observations of another dimension.
        """
        observations = self.observations(queries, self.network.observation_dim)
        own: Outputs = self.network(*observations)
        if not self.others:
            return own
        members = [own, *(network(*observations) for network in self.others)]
        return Outputs(
            emissions=torch.stack([member.emissions for member in members]).mean(dim=0),
            states=own.states,
            tasks=torch.stack([member.tasks for member in members]).mean(dim=0),
        )


@dataclass(frozen=True, eq=False, repr=False)
class ViterbiPlanner(NetworkPlanner):
    """Plans the likeliest sequences under the layer's marginals and the transitions.

    Energies and scores are minus the logarithm of the product that is maximised (see
    `layer.decode`), and the list is exact. Tasks are predicted by an auxiliary head; neither
    predicted nor given ones change the plans. Descriptions are needed in training only.

    Only sequences of positive probability are returned. Where there is none, which no graph of
    training windows of the same horizon leads to, the only plan takes the likeliest action of each
    step, with its energy under clamped transitions.

    Attributes:
        model: The network.
        decoding: How sequences are chosen.
        aligned_with: What observations were aligned with in training.
    """

    abilities: ClassVar[Abilities] = Abilities(true_task=False)
    model: ViterbiModel
    decoding: Decoding
    aligned_with: Alignment

    @classmethod
    def sizes(cls, settings: ViterbiSettings, shape: Shape) -> dict[str, int]:
        """Those of all members; vectors of descriptions are as wide as those hashed from names."""
        config = settings.viterbi
        kind = config.aligned_with
        network = ViterbiNetwork(
            config=config,
            observation_dim=shape.observation_dim,
            action_count=shape.actions,
            horizon=shape.horizon,
            task_count=shape.tasks if config.task else 0,
            description_dim=0 if kind in ("free", "none") else config.name_width,
            free=kind == "free",
        )
        return {ViterbiModel.title: config.members * learned(network)}

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: ViterbiSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Count transitions and train the network.

        Raises:
            DataError: The file of descriptions is missing, damaged, or has another shape.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        config = settings.viterbi
        model, results = ViterbiModel.fit(train, val, config=config, seed=seed, context=context)
        return Fitted(cls(model, config.decoding, config.aligned_with), results)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: ViterbiSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        folder = Path(folder)
        config = settings.viterbi
        model = ViterbiModel.load(folder, config=config, device=context.device)
        return cls(model, config.decoding, config.aligned_with)

    def save(self, folder: Path | str) -> None:
        """Write weights and transitions, one file a member."""
        folder = Path(folder)
        self.model.save(folder)

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called in tables; says where it is not as published."""
        members = 1 + len(self.model.others)
        departures = (
            "" if self.decoding == "viterbi" else "marginals",
            _KINDS[self.aligned_with],
            "" if members == 1 else f"{members} members",
        )
        said = ", ".join(departure for departure in departures if departure)
        return f"ViterbiPlanNet ({said})" if said else "ViterbiPlanNet"

    @property
    def parameters(self) -> dict[str, int]:
        """Those of all members, with the parts that serve in training only, as published."""
        return {ViterbiModel.title: self.model.parameters}

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        network = self.model.network
        return Vocabulary(network.task_count or None, len(network.counts))

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The given tasks, else the likeliest by the task head [N]; None where it was left out."""
        if queries.tasks is not None or self.model.network.task is None:
            return queries.tasks
        return np.asarray(self.model.outputs(queries).tasks.argmax(dim=1).cpu().numpy())

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query, best first; fewer where there are not so many sequences.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension.
        """
        check_queries(self, queries, top_k, constraints)
        emissions = finite_outputs(self.model.outputs(queries).emissions, self.model.title)
        best = decode(emissions, self.model.network.counts, top_k, self.decoding)
        return best.plans(SearchCost(token_forwards=2, leaves=0))


def _file(member: int) -> str:
    """The file that a member is saved in."""
    return f"viterbi-{member}.safetensors" if member else ViterbiModel.file


def _loss(network: ViterbiNetwork, **parts: Any) -> ViterbiLoss:
    return ViterbiLoss(network=network, **parts)


def _build(config: ViterbiConfig, tensors: Mapping[str, Tensor]) -> ViterbiNetwork:
    """A network for weights of its sizes."""
    action_count, _ = tensors["counts"].shape
    (observation_dim,) = tensors["mean"].shape
    horizon, rest = divmod(len(tensors["emission.bias"]), max(action_count, 1))
    if rest or not horizon or not action_count:
        raise ValueError("emissions do not fit the actions")
    kind = config.aligned_with
    description_dim = {"names": config.name_width, "free": 0, "none": 0}.get(kind)
    if description_dim is None:
        _, description_dim = tensors["description.weight"].shape
    return ViterbiNetwork(
        config=config,
        observation_dim=observation_dim,
        action_count=action_count,
        horizon=horizon,
        task_count=len(tensors["task.2.weight"]) if config.task else 0,
        description_dim=description_dim,
        free=kind == "free",
    )
