"""Trained chains: members whose scores are averaged and calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import ActionSpace, Windows
from cefito.errors import RunError
from cefito.files import load_tensors, load_weights, write_tensors
from cefito.planners.base import Marginals, Queries
from cefito.planners.crf.inference import (
    SequenceScores,
    TaskStates,
    average,
    fit_confidence,
    fit_task_power,
    smoothed_transitions,
)
from cefito.planners.crf.network import ChainLoss, ChainNetwork
from cefito.planners.crf.settings import ChainConfig, ChainSettings, ChainTrainingConfig
from cefito.planners.network import train_network
from cefito.planners.queries import finite_outputs
from cefito.runtime import count_parameters, derived_seed
from cefito.search.step_costs import StepCosts
from cefito.training.trainer import TrainingContext, TrainingResult

__all__ = ["ChainEvidence", "ChainModel", "task_costs"]

_STREAM = 9  # of the seed, for weights

_BLOCK = 512  # queries scored at once


@dataclass(frozen=True)
class ChainModel:
    """Chains over the actions of all tasks, trained as whole sequences."""

    title: ClassVar[str] = "chain"
    file: ClassVar[str] = "chain.safetensors"
    networks: tuple[ChainNetwork, ...]
    # divides their mean scores; calibrates the best sequence's probability on validation windows
    temperature: float
    task_power: float = 1.0  # of the tasks' probabilities, likewise

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        space: ActionSpace,
        settings: ChainSettings,
        seed: int,
        context: TrainingContext,
        start: Self | None = None,
    ) -> tuple[Self, dict[str, TrainingResult]]:
        """Train all members, one after the other, and calibrate their mean."""
        config, training = settings.chain, settings.chain_training
        states = TaskStates.make(space.actions, len(train.taxonomy.actions))
        counted = smoothed_transitions(states, train.actions, train.tasks, config.smoothing)
        networks, results = [], {}
        for member in range(config.members):
            suffix = f"-{member}" if member else ""
            network = ChainNetwork(
                config=config,
                states=states,
                observation_dim=train.initial.shape[1],
                horizon=train.horizon,
                transitions=counted,
            )
            results[cls.title + suffix] = train_network(
                network,
                partial(_loss, train=train, val=val, training=training),
                name=cls.title + suffix,
                training=training,
                stream=_STREAM,
                seed=derived_seed(seed, _STREAM, member) if member else seed,
                settings=[
                    train.horizon,
                    config.model_dump(exclude={"members"}),
                    training.model_dump(),
                    space.actions,
                ],
                context=context.part(f"chain{suffix}"),
                centre=config.centre,
                begin=None if start is None else partial(_begin, learned=start.networks[member]),
            )
            networks.append(network)
        return cls._calibrated(tuple(networks), val), results

    @classmethod
    def _calibrated(cls, networks: tuple[ChainNetwork, ...], val: Windows) -> Self:
        """Return the members with the temperature that calibrates validation windows."""
        model = cls(networks, 1.0)
        scores = model.scores(Queries.from_windows(val))
        tasks, actions = (
            torch.from_numpy(part).to(model.device) for part in (val.tasks, val.actions)
        )
        states, videos = scores.states.find(tasks, actions), len(set(val.video.tolist()))
        power = fit_task_power(scores, states, tasks, videos=videos)
        temperature = fit_confidence(scores, states, actions, videos=videos, task_power=power)
        return cls(networks, temperature, power)

    @classmethod
    def load(cls, folder: Path, *, config: ChainConfig, device: torch.device | str = "cpu") -> Self:
        """Load the members that were saved in a folder."""
        path = folder / cls.file
        tensors, metadata = load_tensors(path, "pt", "Train the run again.", RunError)
        networks = []
        # runs of earlier versions have a temperature alone
        found = metadata.get("calibration", metadata.get("temperature", ""))
        temperature, power = map(float, [*found.split(), "1.0"][:2])
        for member in range(config.members):
            prefix = f"{member}."
            own = {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            networks.append(_build(config, own))
            load_weights(networks[-1], own, str(path), copy=False)
        return cls(tuple(network.to(device).eval() for network in networks), temperature, power)

    def save(self, folder: Path) -> None:
        """Write all members into one file."""
        tensors = {
            f"{member}.{name}": tensor
            for member, network in enumerate(self.networks)
            for name, tensor in network.state_dict().items()
        }
        # a single entry: the order of several entries would differ from file to file
        calibration = f"{self.temperature!r} {self.task_power!r}"
        write_tensors(folder / self.file, tensors, {"calibration": calibration})

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return self.networks[0].mean.device

    @property
    def parameters(self) -> int:
        """Number of parameters of all members."""
        return sum(count_parameters(network) for network in self.networks)

    @property
    def horizon(self) -> int:
        """T."""
        return self.networks[0].horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.networks[0].observation_dim

    @property
    def states(self) -> TaskStates:
        """The states, alike for all members."""
        return self.networks[0].states

    @torch.inference_mode()
    def scores(self, queries: Queries) -> SequenceScores:
        """Return calibrated scores of all sequences of all tasks for each query."""
        blocks = []  # block by block, to bound the memory of the members' scores
        for block in queries.blocks(_BLOCK) or [queries]:
            initial, goal = (
                torch.from_numpy(part).to(self.device) for part in (block.initial, block.goal)
            )
            blocks.append(average([network(initial, goal).scores for network in self.networks]))
        emissions = torch.cat([scores.emissions for scores in blocks])
        finite_outputs(emissions, self.title)
        scores = SequenceScores(blocks[0].states, emissions, blocks[0].transitions)
        return scores.heated(self.temperature).weighing_tasks(self.task_power)

    @torch.inference_mode()
    def evidence(self, queries: Queries) -> ChainEvidence:
        """Return the scores of queries, with the sums of their tasks."""
        return ChainEvidence.of(self.scores(queries))

    def log_tasks(self, queries: Queries) -> NDArray[np.float64]:
        """Return log p(task | observations), summed over sequences, [N, C]."""
        return self.evidence(queries).log_tasks()


def task_costs(scores: SequenceScores, row: int, task: int) -> StepCosts:
    """Return −score of one task's sequences for one query, over the task's actions ascending."""
    states = scores.states
    members = states.grid[task][states.grid[task] < len(states)]
    count = len(members)
    emissions = scores.emissions[row][:, members].double().cpu().numpy()
    transitions = scores.transitions[task, :count, :count].double().cpu().numpy()
    return StepCosts(
        # c_1(a) = −e_1(a), then c_t(a, b) = −(e_t(b) + w(a, b))
        costs=tuple(
            -emissions[step] if step == 0 else -(emissions[step][None] + transitions)
            for step in range(scores.horizon)
        )
    )


def _loss(
    network: ChainNetwork, *, train: Windows, val: Windows, training: ChainTrainingConfig
) -> ChainLoss:
    return ChainLoss(network=network, train=train, val=val, config=training)


def _begin(network: ChainNetwork, *, learned: ChainNetwork) -> None:
    network.take_over(learned)


def _build(config: ChainConfig, tensors: Mapping[str, Tensor]) -> ChainNetwork:
    """Return a chain without memory for weights of these sizes."""
    states = TaskStates.of(tensors["states_lookup"])
    with torch.device("meta"):
        return ChainNetwork(
            config=config,
            states=states,
            observation_dim=tensors["encoder.weight"].shape[1],
            horizon=len(tensors["emission.bias"]) // len(states),
        )


@dataclass(frozen=True)
class ChainEvidence:
    """Scores of some queries under a chain."""

    scores: SequenceScores
    sums: NDArray[np.float64]  # log Σ exp(score) over the sequences of each task [N, C]

    @classmethod
    def of(cls, scores: SequenceScores) -> Self:
        """Return the scores of queries, with the sums of their tasks."""
        return cls(scores, scores.log_task_sums().double().cpu().numpy())

    def log_tasks(self) -> NDArray[np.float64]:
        """Return log p(task | observations), summed over sequences, [N, C]."""
        return np.asarray(self.sums - np.logaddexp.reduce(self.sums, axis=1, keepdims=True))

    def steps(self, tasks: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Return p(action at step | observations) [N, T, K], within given tasks [N]."""
        states, logs = self.scores.states, self.scores.log_marginals().double()  # [N, T, S]
        if tasks is not None:
            others = states.tasks != torch.from_numpy(tasks).to(logs.device)[:, None]  # [N, S]
            # log p(a_t = a | task) = log p(task, a_t = a) − log p(task)
            logs = logs.masked_fill(others[:, None], -torch.inf).log_softmax(dim=2)
        # an action may be a state of several tasks: p(a_t = a) = Σ_task p(task, a_t = a), [N, T, K]
        steps = logs.new_zeros(*logs.shape[:2], states.lookup.shape[1])
        steps.index_add_(2, states.actions, logs.exp())
        return np.asarray(steps.cpu().numpy())

    def marginals(self, tasks: NDArray[np.int64] | None = None) -> Marginals:
        """Return the probabilities of tasks, and of actions by step within given tasks [N]."""
        return Marginals(tasks=np.exp(self.log_tasks()), steps=self.steps(tasks))

    def weighed(self, power: float, added: NDArray[np.float64]) -> SequenceScores:
        """Return scores power · log q(sequence | task, observations) + added [N, C]."""
        known = np.isfinite(self.sums) & np.isfinite(added)
        offset = np.where(known, added - power * np.where(known, self.sums, 0.0), -np.inf)
        scores = self.scores if power == 1 else self.scores.heated(1 / power)
        emissions, states = scores.emissions.clone(), scores.states
        offsets = torch.from_numpy(offset).to(emissions)
        emissions[:, 0] += offsets[:, states.tasks]
        return replace(scores, emissions=emissions)

    def log_power_sums(self, power: float) -> NDArray[np.float64]:
        """Return log Σ q(sequence | task, observations)^power [N, C]; −∞ without sequences."""
        known = np.isfinite(self.sums)
        if power == 1:
            return np.where(known, 0.0, -np.inf)
        sums = self.scores.heated(1 / power).log_task_sums().double().cpu().numpy()
        return np.where(known, sums - power * np.where(known, self.sums, 0.0), -np.inf)

    def log_sequences(
        self, query: int, tasks: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return log q(sequence | task, observations) [n] of sequences [n, T] of tasks [n]."""
        states = self.scores.states.find(
            *(
                torch.from_numpy(part).to(self.scores.emissions.device)
                for part in (tasks, sequences)
            )
        )
        (found,) = self.scores.rows(slice(query, query + 1)).scores(states[None])
        return np.asarray(found.double().cpu().numpy() - self.sums[query, tasks])

    def costs(self, query: int, task: int) -> StepCosts:
        """Return −log q(sequence | task, observations), over the places of the task's actions."""
        chain = task_costs(self.scores, query, task)
        first, *rest = chain.costs
        return StepCosts(costs=(first + self.sums[query, task], *rest))
