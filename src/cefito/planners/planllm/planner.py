"""PlanLLM: learned queries beside SCHEMA's decoders, read by a frozen language model (AAAI 2025).

Reimplemented from the description of Yang et al. The published encoder also attends to the true
states between the steps; this one sees both observations alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Queries, Shape
from cefito.planners.network import named_departures
from cefito.planners.planllm.language_model import WIDTH, language_model, token_ids
from cefito.planners.planllm.method import PlanLlmConfig
from cefito.planners.schema.planner import (
    KINDS,
    SchemaLoss,
    SchemaNetwork,
    SchemaOutputs,
    SchemaPlanner,
    SharedMemoryDecoder,
)
from cefito.planners.shared.layers import Drop, PostNormLayer, dropping, keep
from cefito.search.problem import Plans, SearchCost
from cefito.training.losses import mean_term
from cefito.training.trainer import Term

_TOKEN_DEVIATION = 0.02  # of the learned queries at first
_NAME_TOKENS = 24  # most of a name in a caption
_CAPTION_TOKENS = 64  # most of a caption
_ENCODERS = ("encoder", "description", "scale", "exchange", "asking", "queries", "prompts")


class PlanLlmNetwork(SchemaNetwork):
    """SCHEMA's network, in which the two states attend to each other, and queries to both.

    Encoded states pass an encoder, after which they are aligned, and a second one, after which they
    are decoded from. The outputs of the learned queries are added to the first input of the decoder
    of states. Without layers of either kind it is SCHEMA's network.
    """

    config: PlanLlmConfig
    task_words: Tensor  # token ids of "Task: NAME. Actions:" [C, L], −1 after the last
    action_words: Tensor  # token ids of " NAME," [K, L]

    def __init__(self, config: PlanLlmConfig, shape: Shape) -> None:
        super().__init__(config, shape)
        width = config.width
        # of the states that are aligned, and of those that are decoded from
        self.exchanges = nn.ModuleList(
            nn.ModuleList(
                PostNormLayer(width, config.exchange_heads, width, F.relu)
                for _ in range(config.exchange)
            )
            for _ in range(2)
        )
        self.asking: SharedMemoryDecoder | None = None
        if config.query_layers:
            self.queries = nn.Parameter(torch.zeros(shape.horizon + 1, width))
            self.asking = SharedMemoryDecoder(
                width=width,
                heads=config.query_heads,
                hidden=config.query_feedforward or 4 * width,
                layers=config.query_layers,
            )
        if config.language_model != "none":
            self.prompts = nn.Linear(width, WIDTH)
            for name, count in (("task", shape.tasks), ("action", shape.actions)):
                self.register_buffer(
                    f"{name}_words", torch.full((count, _NAME_TOKENS), -1, dtype=torch.int64)
                )

    @override
    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        if self.asking is not None:
            nn.init.trunc_normal_(self.queries, std=_TOKEN_DEVIATION, generator=generator)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Decoders, and encoders at a share of the learning rate; vectors do not decay."""
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            vector = parameter.ndim < 2 or name == "queries"
            groups.setdefault((name.startswith(_ENCODERS), vector), []).append(parameter)
        return [
            {
                "params": parameters,
                "rate": self.config.encoder_rate if encodes else 1.0,
                **({"weight_decay": 0.0} if vector else {}),
            }
            for (encodes, vector), parameters in groups.items()
        ]

    @override
    def encode(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        states = super().encode(initial, goal, generator=generator)
        return self._exchange(0, states, dropping(self.config.input_dropout, generator))

    @override
    def exchanged(self, states: Tensor, drop: Drop = keep) -> Tensor:
        return self._exchange(1, states, drop)

    def _exchange(self, place: int, states: Tensor, drop: Drop) -> Tensor:
        """[B, 2, D] → [B, 2, D]."""
        layers: Any = self.exchanges[place]
        for layer in layers:
            states = layer(states, drop)
        return states

    @override
    def asked(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if self.asking is None:
            return super().asked(states, generator)
        drop = dropping(self.config.query_dropout, generator)
        tokens = drop(self.queries.expand(len(states), -1, -1))
        return self.asking(tokens, self.asking.keys(states), drop)  # type: ignore[no-any-return]

    def observe_names(self, windows: Windows) -> None:
        """Store the token ids of the names of tasks and actions, if a language model reads them."""
        if self.config.language_model != "none":
            tasks = [f"Task: {task.name}. Actions:" for task in windows.taxonomy.tasks]
            actions = [f" {action.name}," for action in windows.taxonomy.actions]
            ids = torch.from_numpy(token_ids([*tasks, *actions], _NAME_TOKENS))
            self.task_words.copy_(ids[: len(tasks)])
            self.action_words.copy_(ids[len(tasks) :])

    def captions(self, tasks: Tensor, actions: Tensor) -> Tensor:
        """Token ids of the captions of tasks [B] and actions [B, T]: [B, L], −1 after the last."""
        ids = torch.cat([self.task_words[tasks], self.action_words[actions].flatten(1)], dim=1)
        ids = ids.gather(1, (ids < 0).long().argsort(dim=1, stable=True))
        return ids[:, : min(_CAPTION_TOKENS, int((ids >= 0).sum(dim=1).max()))]


class PlanLlmLoss(SchemaLoss):
    """SCHEMA's errors with a focal one of the actions, and the error of captions.

    The focal error is cross-entropy times (1 − p)^γ, where p is the probability of the true action;
    no gradient flows through that factor. The error of captions is that of the frozen language
    model, after the queries' outputs as soft prompts. The published contrastive and matching losses
    on text are left out: they need a trained text encoder.
    """

    def __init__(self, network: PlanLlmNetwork, *windows: Any) -> None:
        super().__init__(network, *windows)
        self.language = None
        if self.config.language_model != "none" and self.config.caption:
            self.language = language_model(str(self.device))

    @override
    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        errors = super().action_errors(logits, actions)
        gamma = self.config.focus
        return errors * (1 - torch.exp(-errors.detach())).clamp_min(0) ** gamma if gamma else errors

    @override
    def language_terms(
        self, outputs: SchemaOutputs, rows: Tensor, generator: torch.Generator
    ) -> dict[str, Term]:
        if self.language is None:
            return {}
        chance = torch.rand(len(rows), generator=generator, device=rows.device)
        read, errors = chance < self.config.captions, outputs.asked.new_zeros(0)
        if bool(read.any()):
            ids = self.module.captions(self.tasks[rows[read]], self.actions[rows[read]])
            prompts = self.module.prompts(outputs.asked[read])
            errors = -self.language.log_likelihoods(prompts, ids)
        return {"caption": mean_term(self.config.caption, errors)}


@dataclass(frozen=True, eq=False, repr=False)
class PlanLlmPlanner(SchemaPlanner):
    """Plans as SCHEMA does, by a network with additions; a language model may score plans too.

    With `rescored` plans, these are sorted anew: −factor · log p(caption | soft prompts) is added
    to their energies, and the most of a query's additions to the energies of its other plans. The
    list is then not exact.
    """

    title = "PlanLLM network"
    part = "planllm"
    section = "planllm"
    stream = 12
    ignored = SchemaPlanner.ignored | {"rescored", "rescoring"}
    build = PlanLlmNetwork
    loss: ClassVar[Any] = PlanLlmLoss
    config: PlanLlmConfig

    @override
    @classmethod
    def observe(cls, network: Any, train: Windows, *arrays: NDArray[np.float32]) -> None:
        super().observe(network, train, *arrays)
        network.observe_names(train)

    @override
    @classmethod
    def load(cls, folder: Any, *, settings: Any, **options: Any) -> Self:
        planner = super().load(folder, settings=settings, **options)
        if planner.config.rescored:
            language_model(str(planner.device))  # refused here if a package is missing
        return planner

    @property
    @override
    def name(self) -> str:
        branch = "step decoder, no language model"
        if self.config.language_model != "none":
            branch = "SmolLM2 in the place of Vicuna" + ", scoring plans too" * bool(
                self.config.rescored
            )
        return named_departures("PlanLLM", [branch, KINDS[self.config.described]])

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        plans = super().decode(queries, max(top_k, self.config.rescored))
        if not self.config.rescored:
            return plans
        network: Any = self.network
        states = network.exchanged(network.encode(*self.observations(queries)))
        prompts = network.prompts(network.asked(states))
        tasks = self.on_device(np.asarray(self.predict_tasks(queries)))[0]
        return [
            self._rescored(query_plans, prompts[row], tasks[row], top_k)
            for row, query_plans in enumerate(plans)
        ]

    def _rescored(self, plans: Plans, prompts: Tensor, task: Tensor, top_k: int) -> Plans:
        """The plans of a query in the order of decoder and language model."""
        network: Any = self.network
        (actions,) = self.on_device(plans.actions[: self.config.rescored])
        ids = network.captions(task.expand(len(actions)), actions)
        tokens = language_model(str(self.device)).log_likelihoods(
            prompts.expand(len(actions), -1, -1), ids
        )
        sums = tokens.new_zeros(len(ids)).index_add(0, (ids >= 0).nonzero()[:, 0], tokens)
        added = -self.config.rescoring * sums.double().cpu().numpy()
        energies = plans.energies + added.max()
        energies[: len(added)] += added - added.max()
        order = energies.argsort(kind="stable")[:top_k]
        cost = SearchCost(
            token_forwards=plans.evaluated.token_forwards + len(tokens), leaves=len(added)
        )
        return Plans(plans.actions[order], energies[order], energies[order], cost, exact=False)
