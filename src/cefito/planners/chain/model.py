"""Trained chains: members whose scores are averaged and calibrated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import ActionSpace, Windows
from cefito.field.predictor import prepared
from cefito.planners.base import Marginals, Queries
from cefito.planners.chain.calibration import (
    Confidence,
    fit_confidence,
    fit_task_confidence,
    fit_task_power,
    kept_confidence,
    known_states,
)
from cefito.planners.chain.ensemble import ChainEnsemble
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.method import ChainConfig, ChainSettings
from cefito.planners.chain.network import ChainLoss, ChainNetwork
from cefito.planners.chain.states import TaskStates, smoothed_transitions
from cefito.planners.queries import finite_outputs
from cefito.runtime import derived_seed, weights_to_come
from cefito.search.step_costs import StepCosts
from cefito.training.settings import TrainingResult
from cefito.training.trainer import TrainingContext

_BLOCK = 512  # queries scored at once
_KNOWN = 1000  # training windows that further training is compared on at most


@dataclass(frozen=True)
class ChainModel(ChainEnsemble[ChainNetwork]):
    """Chains over the actions of all tasks, trained as whole sequences."""

    title: ClassVar[str] = "chain"
    part: ClassVar[str] = "chain"
    trained: ClassVar[str] = "chain_training"
    loss: ClassVar[Any] = ChainLoss
    stream: ClassVar[int] = 9
    networks: tuple[ChainNetwork, ...]
    # divides their mean scores; calibrates the best sequence's probability on validation windows
    temperature: float
    task_power: float = 1.0  # of the tasks' probabilities, likewise

    @override
    @classmethod
    def further_seed(cls, seed: int, member: int) -> int:
        return derived_seed(seed, cls.stream, member)

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        space: ActionSpace,
        settings: ChainSettings,
        **options: Any,
    ) -> tuple[Self, dict[str, TrainingResult]]:
        """Train all members, one after the other, and calibrate their mean.

        See `on_all_videos` for what may follow.

        Args:
            train: Training windows.
            val: Validation windows.
            space: Actions that each task allows.
            settings: Settings of the method.
            options: Seed, context and start, as in `train_networks`.
        """
        config = settings.chain
        states = TaskStates.make(space.actions, len(train.taxonomy.actions))
        counted = smoothed_transitions(states, train.actions, train.tasks, config.smoothing)
        networks = tuple(
            ChainNetwork(
                config=config,
                states=states,
                observation_dim=train.initial.shape[1],
                horizon=train.horizon,
                transitions=counted,
            )
            for _ in range(config.members)
        )
        results = cls.train_all(networks, train, val, settings=settings, **options)
        return cls._calibrated(networks, train, val), results

    @classmethod
    def _calibrated(cls, networks: tuple[ChainNetwork, ...], train: Windows, val: Windows) -> Self:
        """Return the members with the temperature that calibrates validation windows."""
        model = cls(networks, 1.0)
        scores = model.scores(Queries.from_windows(val))
        tasks, actions = (
            torch.from_numpy(ids).to(model.device) for ids in (val.tasks, val.actions)
        )
        states, videos = known_states(scores.states, val, train), len(set(val.video.tolist()))
        power = fit_task_power(scores, states, tasks, videos=videos)
        temperature = fit_confidence(scores, states, actions, videos=videos, task_power=power)
        logs = scores.heated(temperature).log_tasks()
        power = fit_task_confidence(logs, tasks, videos=videos, centre=power)
        return cls(networks, temperature, power)

    def on_all_videos(self, train: Windows, val: Windows, *, seed: int, **options: Any) -> Self:
        """Return the members trained further with validation windows, if the settings ask for it.

        No windows are left to fit the calibration on; see `kept_confidence`. Arguments are as of
        `fit`.
        """
        networks = self.trained_on_all(train, val, seed=seed, **options)
        if networks is None:
            return self
        sample = train.sample(_KNOWN, seed)
        queries, actions = Queries.from_windows(sample), torch.from_numpy(sample.actions)
        actions = actions.to(self.device)
        scores = replace(self, networks=networks, task_power=1.0).scores(queries)

        def after(factor: float) -> Confidence:
            heated = scores.heated(factor).weighing_tasks(self.task_power)
            return Confidence.of(heated, actions)

        factor = kept_confidence(Confidence.of(self.scores(queries), actions), after)
        return replace(self, networks=networks, temperature=factor * self.temperature)

    @override
    @classmethod
    def rebuild(
        cls, config: ChainConfig, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
    ) -> ChainNetwork:
        states = TaskStates.of(tensors["states_lookup"])
        with weights_to_come():
            return ChainNetwork(
                config=config,
                states=states,
                observation_dim=tensors["encoder.weight"].shape[1],
                horizon=len(tensors["emission.bias"]) // len(states),
            )

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: ChainSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """Load the members that were saved in a folder."""
        networks, metadata = cls.read(folder, settings, context.device)
        return cls(networks, *map(float, metadata["calibration"].split()))

    @property
    def metadata(self) -> dict[str, str]:
        """The calibration."""
        return {"calibration": f"{self.temperature!r} {self.task_power!r}"}

    @cached_property
    def _joined(self) -> _JoinedMembers:
        return _JoinedMembers(self.networks, self.temperature)

    @torch.inference_mode()
    def scores(self, queries: Queries) -> SequenceScores:
        """Return calibrated scores of all sequences of all tasks for each query."""
        blocks = []  # block by block, to bound the memory of the members' values
        for block in queries.blocks(_BLOCK) or [queries]:
            blocks.append(self._joined.emissions(*self.observations(block)))
        emissions = torch.cat(blocks)
        finite_outputs(emissions, self.title)
        scores = SequenceScores(self.states, emissions, self._joined.transitions)
        return scores.weighing_tasks(self.task_power)

    @torch.inference_mode()
    def evidence(self, queries: Queries) -> ChainEvidence:
        """Return the scores of queries, with the sums of their tasks."""
        return ChainEvidence.of(self.scores(queries))

    def log_tasks(self, queries: Queries) -> NDArray[np.float64]:
        """Return log p(task | observations), summed over sequences, [N, C]."""
        return self.evidence(queries).log_tasks()


class _JoinedMembers:
    """The mean scores of all members / temperature, computed for all members at once."""

    def __init__(self, networks: Sequence[ChainNetwork], temperature: float) -> None:
        self.config, self.horizon = networks[0].config, networks[0].horizon
        share = 1 / (len(networks) * temperature)

        def stacked(values: Iterable[Tensor]) -> Tensor:
            return torch.stack([*values])

        with torch.inference_mode():
            self.mean = stacked(network.mean[None] for network in networks)  # [M, 1, E]
            # both linear layers of the encoder as one, [M, E, W]
            self.encoder = stacked(
                (network.narrowing.weight @ network.encoder.weight).T for network in networks
            )
            self.encoder_bias = stacked(
                network.narrowing(network.encoder.bias)[None] for network in networks
            )
            self.hidden = stacked(network.hidden.weight.T for network in networks)  # [M, 2·W, H]
            self.hidden_bias = stacked(network.hidden.bias[None] for network in networks)
            # the last layers of all members as one, [M·H, T·S]
            self.emission = share * torch.cat([network.emission.weight.T for network in networks])
            self.emission_bias = share * stacked(network.emission.bias for network in networks).sum(
                dim=0
            )
            ends = [
                network.scale
                * network.end_factors[:, None, None]
                * F.normalize(network.ends, dim=-1)
                for network in networks
            ]
            self.ends = share * torch.cat(ends, dim=2).mT  # [2, M·W, S]
            self.transitions = share * stacked(network.transitions for network in networks).sum(
                dim=0
            )

    def emissions(self, initial: Tensor, goal: Tensor) -> Tensor:
        """Return the emissions [B, T, S] of observations [B, E] (see `ChainNetwork.forward`)."""
        observations = torch.cat([initial, goal]).float()[None]  # [1, 2·B, E]
        observations = prepared(observations, self.config, self.mean)  # [M, 2·B, E]
        observations = observations.expand(len(self.encoder), -1, -1)
        encoded = torch.baddbmm(self.encoder_bias, observations, self.encoder)  # [M, 2·B, W]
        encoded = encoded.unflatten(1, (2, -1)).permute(2, 0, 1, 3)  # [B, M, 2, W]
        between = F.gelu(
            torch.baddbmm(self.hidden_bias, encoded.flatten(2).transpose(0, 1), self.hidden)
        )
        emissions: Tensor = torch.addmm(
            self.emission_bias, between.transpose(0, 1).flatten(1), self.emission
        ).unflatten(1, (self.horizon, -1))
        directions = F.normalize(encoded, dim=-1).permute(2, 0, 1, 3).flatten(2)  # [2, B, M·W]
        read = torch.bmm(directions, self.ends)  # [2, B, S]
        emissions[:, 0] += read[0]
        emissions[:, -1] += read[1]
        return emissions


def task_costs(scores: SequenceScores, row: int, task: int) -> StepCosts:
    """Return −score of one task's sequences for one query, over the task's actions ascending.

    Args:
        scores: Scores of queries.
        row: Number of the query.
        task: Id of the task.
    """
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

    def weighed(self, log_tasks: NDArray[np.float64]) -> SequenceScores:
        """Return scores log q(sequence | task, observations) + log p(task), of p [N, C]."""
        possible = np.isfinite(self.sums) & np.isfinite(log_tasks)
        offset = np.where(possible, log_tasks - np.where(possible, self.sums, 0.0), -np.inf)
        emissions, states = self.scores.emissions.clone(), self.scores.states
        emissions[:, 0] += torch.from_numpy(offset).to(emissions)[:, states.tasks]
        return SequenceScores(states, emissions, self.scores.transitions)

    def log_sequences(
        self, query: int, tasks: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return log q(sequence | task, observations) [n] of sequences [n, T] of tasks [n].

        Args:
            query: Row of the query.
            tasks: Task ids [n].
            sequences: Action ids [n, T].
        """
        states = self.scores.states.find(
            *(torch.from_numpy(ids).to(self.scores.emissions.device) for ids in (tasks, sequences))
        )
        (log_scores,) = self.scores.rows(slice(query, query + 1)).scores(states[None])
        return np.asarray(log_scores.double().cpu().numpy() - self.sums[query, tasks])
