"""ViterbiPlanNet (arXiv 2603.04265).

A network's emissions, decoded over the transitions of the training windows.

What is not published about it is decided here, and said where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.files import check_array, load_npy, sha256
from cefito.planners.base import Queries
from cefito.planners.graph import transition_counts
from cefito.planners.networks import TrainedNetwork, TrainingContext, parameters_of, results_of
from cefito.planners.settings import RunConfig
from cefito.planners.viterbi.layer import decode, log_marginals, transition_probabilities
from cefito.planners.viterbi.network import Outputs, ViterbiNetwork
from cefito.planners.viterbi.settings import ViterbiConfig
from cefito.runtime import generator_for
from cefito.search.problem import Effort, Plans
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term, TrainingResult

__all__ = ["ViterbiLoss", "ViterbiModel", "ViterbiPlanner"]

_SAMPLE_SEED = 0  # of the fixed sample of validation windows


class ViterbiLoss:
    """Squared error of the marginals, alignment with descriptions.

    Squared error of the task logits.

    Published is mean squared error of the marginals to the one-hot actions, plus cross-entropy of
    the alignment, plus mean squared error of the raw task logits to the one-hot task, all of weight
    1. Here means are over all entries, and the cross-entropies of the initial and of the goal
    observation are added; neither is stated.

    Args:
        network: The network to train, with its counts of transitions.
        train: Training windows.
        val: Validation windows.
        descriptions: Embeddings of descriptions [K, 6, W], where the network has an encoder for
            them.
        config: Weights of the losses, decoding, changes of the observations, which validation
            windows.
    """

    def __init__(
        self,
        *,
        network: ViterbiNetwork,
        train: Windows,
        val: Windows,
        descriptions: NDArray[np.float32] | None,
        config: ViterbiConfig,
    ) -> None:
        self.module, self.config = network, config
        device = network.mean.device
        self.observations = Observations(train, config.training.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.transitions = transition_probabilities(network.counts, clamped=True).float()
        self.descriptions = (
            None if descriptions is None else torch.from_numpy(descriptions).to(device)
        )
        val = val.sample(config.training.stopping.windows or None, _SAMPLE_SEED)
        self.val = tuple(
            torch.from_numpy(part).to(device) for part in (val.initial, val.goal, val.actions)
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        initial, goal, actions, tasks = (
            group.share(part) for part in (initial, goal, self.actions[rows], self.tasks[rows])
        )
        outputs = self.module(initial, goal, generator=generator)
        marginals = log_marginals(outputs.emissions, self.transitions).exp()
        terms = {"marginals": _squared(1.0, marginals, actions)}
        if self.descriptions is not None:
            logits = self.module.alignment(outputs.states, self.descriptions, generator=generator)
            loss = F.cross_entropy(
                logits.flatten(0, 1), actions[:, [0, -1]].flatten(), reduction="sum"
            )
            terms["alignment"] = Term(
                self.config.alignment, loss, torch.tensor(len(actions), device=loss.device)
            )
        if self.config.task:
            terms["task"] = _squared(self.config.task, outputs.tasks, tasks)
        return terms

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Success rate and mean accuracy, in per cent, of the best plan as `plan` gives it.

        Every process computes the same.
        """
        initial, goal, actions = self.val
        emissions = self.module(initial, goal).emissions
        right = (
            decode(emissions, self.module.counts, 1, self.config.decoding).sequences[:, 0]
            == actions
        )
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }


def _squared(weight: float, values: Tensor, chosen: Tensor) -> Term:
    """Mean squared error of values […, n] to one-hot vectors of the chosen places […]."""
    errors = values - F.one_hot(chosen, values.shape[-1])
    return Term(weight, errors.square().sum(), torch.tensor(errors.numel(), device=errors.device))


class ViterbiModel(TrainedNetwork[ViterbiNetwork]):
    """The network of ViterbiPlanNet, with its training, saving and loading.

    Args:
        config: The network and how it is trained.
        context: Where it is trained.
    """

    title = "ViterbiPlanNet"
    file = "viterbi.safetensors"

    def __init__(
        self, *, config: ViterbiConfig, context: TrainingContext = TrainingContext()
    ) -> None:
        super().__init__(context=context)
        self.config = config

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:
        """Train on windows, keep the epoch of the best validation success rate, then mean accuracy.

        Args:
            train: Training windows; transitions are counted in them.
            val: Validation windows.
            seed: Seed of weights, batches, noise and dropout.

        Raises:
            DataError: The file of descriptions is missing, damaged, or has another shape.
        """
        config, action_count = self.config, len(train.taxonomy.actions)
        descriptions, digest = self._descriptions(action_count)
        network = ViterbiNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            action_count=action_count,
            horizon=train.horizon,
            task_count=len(train.taxonomy.tasks) if config.task else 0,
            description_dim=0 if descriptions is None else descriptions.shape[2],
        )
        network.reset(generator_for("cpu", seed, 6))
        network.counts.copy_(torch.from_numpy(transition_counts(train, action_count)))
        network.to(self.device)
        objective = ViterbiLoss(
            network=network, train=train, val=val, descriptions=descriptions, config=config
        )
        if config.centre:
            network.mean.copy_(objective.observations.mean)
        settings = config.model_dump() | {"descriptions": digest}
        self.result = self.context.train(
            self.title, objective, config.training, seed=seed, settings=[train.horizon, settings]
        )
        self.network = network

    def _descriptions(self, action_count: int) -> tuple[NDArray[np.float32] | None, str]:
        """Descriptions [K, 6, W] and their file's digest.

        None where there are none or they count for nothing.
        """
        if not self.config.descriptions or not self.config.alignment:
            return None, ""
        path = Path(self.config.descriptions)
        array = load_npy(
            path, "Correct viterbi.descriptions, or leave it empty to train without descriptions."
        )
        check_array(array, shape=(action_count, 6, None), place=str(path), rows="action")
        return array.astype(np.float32), sha256(path)

    @torch.inference_mode()
    def outputs(self, queries: Queries) -> Outputs:
        """What the network gives for queries.

        Raises:
            RunError: Not fitted, or observations of another dimension.
        """
        network = self.ready()
        outputs: Outputs = network(*self.observations(queries, network.observation_dim))
        return outputs

    def build(self, tensors: Mapping[str, Tensor]) -> ViterbiNetwork:
        """A network for weights of its sizes."""
        action_count, _ = tensors["counts"].shape
        (observation_dim,) = tensors["mean"].shape
        horizon, rest = divmod(len(tensors["emission.bias"]), max(action_count, 1))
        if rest or not horizon or not action_count:
            raise ValueError("emissions do not fit the actions")
        return ViterbiNetwork(
            config=self.config,
            observation_dim=observation_dim,
            action_count=action_count,
            horizon=horizon,
            task_count=len(tensors["task.2.weight"]) if self.config.task else 0,
            description_dim=tensors["description.weight"].shape[1]
            if "description.weight" in tensors
            else 0,
        )


class ViterbiPlanner:
    """Plans the likeliest sequences under the layer's marginals and the transitions.

    See `viterbi_layer.decode`.

    Energies and scores are minus the logarithm of the product that is maximised, and the list is
    exact. Tasks are predicted by an auxiliary head; neither predicted nor given ones change the
    plans. Descriptions are needed in training only.

    Only sequences of positive probability are returned. Where there is none, which no graph of
    training windows of the same horizon leads to, the only plan takes the likeliest action of each
    step, with its energy under clamped transitions.

    Args:
        config: All settings, of which it reads `viterbi`.
        context: Where it is trained.
    """

    def __init__(self, *, config: RunConfig, context: TrainingContext = TrainingContext()) -> None:
        self.config = config.viterbi
        self.model = ViterbiModel(config=config.viterbi, context=context.part("viterbi"))

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return (
            "ViterbiPlanNet" if self.config.decoding == "viterbi" else "ViterbiPlanNet (marginals)"
        )

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the network, with its parts that serve in training only, as published."""
        return parameters_of(self.model)

    @property
    def results(self) -> dict[str, TrainingResult]:
        """How its training went, where it was fitted here."""
        return results_of(self.model)

    def fit(self, train: Windows, val: Windows, *, seed: int) -> None:
        """Count transitions and train the network.

        Raises:
            DataError: The file of descriptions is missing, damaged, or has another shape.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        self.model.fit(train, val, seed=seed)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The given tasks, else the likeliest by the task head [N]; None where it was left out."""
        if queries.tasks is not None or not self.config.task:
            return queries.tasks
        return np.asarray(self.model.outputs(queries).tasks.argmax(dim=1).cpu().numpy())

    def plan(self, queries: Queries, top_k: int) -> list[Plans]:
        """The best plans of each query, best first; fewer where there are not so many sequences.

        Raises:
            ConfigError: `top_k` below 1.
            RunError: Not fitted, or observations of another dimension.
        """
        if top_k < 1:
            raise ConfigError(f"top_k {top_k}: expected at least 1.")
        emissions = self.model.outputs(queries).emissions
        best = decode(emissions, self.model.ready().counts, top_k, self.config.decoding)
        plans = []
        for sequences, sums, possible in zip(
            *(part.cpu().numpy() for part in (best.sequences, best.sums, best.possible)),
            strict=True,
        ):
            kept = sums > -np.inf
            plans.append(
                Plans(
                    actions=sequences[kept],
                    energies=-sums[kept],
                    scores=-sums[kept],
                    evaluated=Effort(token_forwards=2, leaves=0),
                    exact=bool(possible),
                )
            )
        return plans

    def save(self, folder: Path) -> None:
        """Write weights and transitions into one file.

        Raises:
            RunError: Not fitted, or the file cannot be written.
        """
        self.model.save(folder)

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        self.model.load(folder)
