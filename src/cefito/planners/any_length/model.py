"""Trained chains of any length: members whose scores are averaged and calibrated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.data.windows import ActionSpace, Windows
from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.any_length.method import AnyLengthConfig, AnyLengthSettings
from cefito.planners.any_length.network import AnyLengthLoss, AnyLengthNetwork, History, Known
from cefito.planners.any_length.usual import (
    CENTRES,
    LENGTH,
    LENGTH_CENTRE,
    NETWORK,
    Usual,
    Weights,
    first_pool,
    fitted_pool,
    pooled,
)
from cefito.planners.base import Queries
from cefito.planners.chain.calibration import fit_confidence, known_states
from cefito.planners.chain.ensemble import ChainEnsemble
from cefito.planners.chain.inference import SequenceScores, average
from cefito.planners.chain.states import TaskStates, smoothed_transitions
from cefito.planners.queries import finite_outputs
from cefito.runtime import weights_to_come
from cefito.search.prior import START
from cefito.training.settings import TrainingResult
from cefito.training.trainer import TrainingContext

_BLOCK = 512  # queries scored at once
_USUAL = "usual.safetensors"  # file of the n-grams
_SPREAD = 0.5  # deviation of the priors of the lengths' factor, as a logarithm, and offsets


@dataclass(frozen=True)
class AnyLengthModel(ChainEnsemble[AnyLengthNetwork]):
    """Chains of all lengths from the shortest to the longest, and the length's distribution."""

    title: ClassVar[str] = "chain of any length"
    part: ClassVar[str] = "any-length"
    section: ClassVar[str] = "any_length"
    trained: ClassVar[str] = "any_length_training"
    loss: ClassVar[Any] = AnyLengthLoss
    networks: tuple[AnyLengthNetwork, ...]
    temperatures: Mapping[int, float]  # divide the mean scores of each length
    # factor and offsets of the mean logits of the lengths [1 + L]: without a goal, with it, and,
    # if training windows have times, with the time to it
    length_scales: tuple[tuple[float, ...], ...]
    # n-grams of whole videos, and their weights beside the networks in the next step, by what is
    # known; None if training windows do not tell what was before them
    usual: Usual | None = None
    pools: Mapping[str, Weights] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        space: ActionSpace,
        settings: AnyLengthSettings,
        start: Self | None = None,
        **options: Any,
    ) -> tuple[Self, dict[str, TrainingResult]]:
        """Train all members, one after the other, and calibrate their mean.

        See `on_all_videos` for what may follow.

        Args:
            train: Windows of all lengths.
            val: Validation windows of all lengths.
            space: Actions that each task allows.
            settings: Settings of the method.
            start: Model whose members are begun with, and whose n-gram counts are added to.
            options: Seed and context, as in `train_networks`.
        """
        config = settings.any_length
        states = TaskStates.make(space.actions, len(train.taxonomy.actions))
        counted = smoothed_transitions(states, *_neighbours(train), config.smoothing)
        lengths = range(int(train.lengths.min()), train.horizon + 1)
        timed = train.elapsed is not None and bool(np.isfinite(train.elapsed).any())
        if start is not None:
            lengths = range(start.lengths[0], start.lengths[-1] + 1)
            timed = timed or start.reads_elapsed
        networks = tuple(
            AnyLengthNetwork(
                config=config,
                states=states,
                observation_dim=train.initial.shape[1],
                lengths=lengths,
                timed=timed,
                transitions=counted,
            )
            for _ in range(config.members)
        )
        results = cls.train_all(networks, train, val, settings=settings, start=start, **options)
        plain = (1.0, *[0.0] * len(lengths))
        model = cls(networks, dict.fromkeys(lengths, 1.0), (plain,) * (3 if timed else 2))
        model = model._calibrated(train, val)
        if train.before is not None:
            usual_before = None if start is None else start.usual
            model = replace(model, usual=Usual.fit(states, train, val, lengths, usual_before))
            model = replace(model, pools=model._fitted_pools(val, train))
        return model, results

    def on_all_videos(self, train: Windows, val: Windows, **options: Any) -> Self:
        """Return the members trained further with validation windows, if the settings ask for it.

        The calibration stays. Settings, seed and context are as of `fit`.
        """
        networks = self.trained_on_all(train, val, **options)
        if networks is None:
            return self
        usual = None if self.usual is None else self.usual.with_more(val)
        return replace(self, networks=networks, usual=usual)

    def _calibrated(self, train: Windows, val: Windows) -> Self:
        """Return the members with the temperatures that calibrate validation windows."""
        temperatures = {}
        for length in self.lengths:
            windows = val.of_length(length)
            if not len(windows):
                temperatures[length] = 1.0
                continue
            scores = self.scores(length, Queries.from_windows(windows))
            true_states = known_states(scores.states, windows, train.of_length(length))
            actions = torch.from_numpy(windows.actions).to(self.device)
            videos = len(set(windows.video.tolist()))
            temperatures[length] = fit_confidence(scores, true_states, actions, videos=videos)
        remaining = val.lengths if val.remaining is None else val.remaining
        scales, parts = list(self.length_scales), [(False, val, False), (True, val, False)]
        if self.reads_elapsed and val.elapsed is not None:
            parts.append((True, val.subset(np.flatnonzero(np.isfinite(val.elapsed))), True))
        for place, (goal, val_windows, elapsed) in enumerate(parts):
            queries = Queries.from_windows(val_windows, without_goal=not goal, with_elapsed=elapsed)
            target = val_windows.lengths if goal else np.minimum(remaining, self.lengths[-1])
            with torch.inference_mode():
                blocks = [self.known(block) for block in queries.blocks(_BLOCK) or [queries]]
                logs = [self.log_lengths_of(inputs, self.lengths) for inputs in blocks]
            logits = np.asarray(torch.cat(logs).double().cpu().numpy())
            videos = len(set(val_windows.video.tolist()))
            scales[place] = _fitted_scale(logits, target - self.lengths[0], videos=videos)
        return replace(self, temperatures=temperatures, length_scales=tuple(scales))

    @torch.inference_mode()
    def _fitted_pools(self, val: Windows, train: Windows) -> dict[str, Weights]:
        """Return the weights that make the first states of validation windows likeliest."""
        pools, videos = {}, len(set(val.video.tolist()))
        for kind in CENTRES:
            seen = np.array([False, kind == "goal"])
            rows = []  # log p_n, log p_u, steps done and the true state of each window
            for length in self.lengths if seen[1] else self.lengths[:1]:
                windows = val.of_length(length)
                if kind in ("begin", "nothing") and windows.before is not None:
                    begun = (windows.before >= 0).any(axis=1)
                    windows = windows.subset(np.flatnonzero(begun == (kind == "nothing")))
                queries = Queries.from_windows(windows, after_done=kind != "unknown")
                queries = replace(queries, seen=np.tile(seen, (len(queries), 1)))
                target = known_states(self.states, windows, train.of_length(length))[:, 0]
                for block, true in zip(queries.blocks(_BLOCK), target.split(_BLOCK), strict=True):
                    inputs = self.known(block)
                    logs = self._plain_scores(length, inputs).log_marginals()[:, 0]
                    parts = (logs, inputs[0].usual, self._was_done(inputs), true)
                    rows.append([tensor[true >= 0] for tensor in parts if tensor is not None])
            if not rows:
                pools[kind] = CENTRES[kind]
                continue
            *logs_of, target = (torch.cat(column) for column in zip(*rows, strict=True))
            if kind == "begin":
                pools[kind] = first_pool(logs_of, target, centre=CENTRES[kind])
                continue
            pools[kind] = fitted_pool(logs_of, target, videos=videos, centre=CENTRES[kind])
        pools[LENGTH] = self._fitted_length_pool(val, videos)
        return pools

    def _fitted_length_pool(self, val: Windows, videos: int) -> Weights:
        """Return the weights that make the steps left of validation videos likeliest."""
        windows, rows = val.of_length(self.lengths[0]), []
        queries = Queries.from_windows(windows, after_done=True)
        queries = replace(queries, seen=np.zeros((len(queries), 2), np.bool_))
        left = windows.lengths if windows.remaining is None else windows.remaining
        target = torch.from_numpy(left.clip(max=self.lengths[-1]) - self.lengths[0])
        tasks = torch.from_numpy(windows.tasks)
        for block, true, task in zip(
            queries.blocks(_BLOCK), target.split(_BLOCK), tasks.split(_BLOCK), strict=True
        ):
            inputs = self.known(block)
            logs = self.log_lengths_of(inputs, self.lengths)
            usual = self._usual_lengths(inputs[0].history, self.lengths)[range(len(true)), task]
            rows.append((logs, usual, torch.zeros_like(logs), true))
        if not rows:
            return LENGTH_CENTRE
        *parts, target = (torch.cat(column) for column in zip(*rows, strict=True))
        return fitted_pool(parts, target, videos=videos, centre=LENGTH_CENTRE)

    @override
    @classmethod
    def rebuild(
        cls, config: AnyLengthConfig, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
    ) -> AnyLengthNetwork:
        states = TaskStates.of(tensors["states_lookup"])
        with weights_to_come():
            return AnyLengthNetwork(
                config=config,
                states=states,
                observation_dim=tensors["encoder.weight"].shape[1],
                lengths=[*map(int, json.loads(metadata["calibration"])["temperatures"])],
                timed=any(name.startswith("elapsed.") for name in tensors),
            )

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: AnyLengthSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """Load the members that were saved in a folder."""
        networks, metadata = cls.read(folder, settings, context.device)
        calibration = json.loads(metadata["calibration"])
        temperatures = {int(key): value for key, value in calibration["temperatures"].items()}
        scales = tuple(tuple(scale) for scale in calibration["length_scales"])
        pools = {kind: tuple(weights) for kind, weights in calibration["pools"].items()}
        usual = None
        if pools:
            path = Path(folder) / _USUAL
            arrays, _ = load_tensors(path, "np", "Train the run again.", RunError)
            usual = Usual.from_arrays(arrays, networks[0].states)
        return cls(networks, temperatures, scales, usual, pools)

    @property
    def metadata(self) -> dict[str, str]:
        """The calibration."""
        calibration = {
            "temperatures": dict(self.temperatures),
            "length_scales": self.length_scales,
            "pools": dict(self.pools),
        }
        return {"calibration": json.dumps(calibration)}

    @override
    def save(self, folder: Path | str) -> None:
        super().save(folder)
        if self.usual is not None:
            write_tensors(Path(folder) / _USUAL, self.usual.to_arrays())

    @property
    def lengths(self) -> tuple[int, ...]:
        """All lengths, ascending."""
        return self.networks[0].lengths

    @property
    def reads_elapsed(self) -> bool:
        """Whether its training windows had times."""
        return self.networks[0].elapsed is not None

    def known(self, queries: Queries) -> tuple[Known, ...]:
        """Encode what is known of queries, by each member."""
        device, (initial, goal) = self.device, self.observations(queries)
        seen = torch.from_numpy(queries.known).to(device)
        count = self.states.lookup.shape[1]
        done_ids = np.zeros((len(queries), 0), np.int64) if queries.done is None else queries.done
        is_known = torch.full((len(queries),), queries.done is not None, device=device)
        done = torch.from_numpy(done_ids).to(device)
        elapsed = None if queries.elapsed is None else torch.from_numpy(queries.elapsed).to(device)
        usual, (unseen, free) = None, ~queries.known.T
        pools = unseen if queries.done is not None else unseen & free
        if self.usual is not None and pools.any():
            usual = self.usual.log_states(queries.done, len(queries))
        return tuple(
            replace(
                network.known(
                    initial,
                    goal,
                    seen,
                    History.of_actions(done, is_known, count, network.config.recency),
                    elapsed,
                ),
                usual=usual,
            )
            for network in self.networks
        )

    def parts(
        self, inputs: tuple[Known, ...], lengths: Sequence[int] | None = None
    ) -> tuple[Tensor, list[SequenceScores]]:
        """Return log p(length) [B, L'] and calibrated scores of all sequences of each length.

        Without an initial observation, where the steps done are known or nothing is, the first
        state follows the pool of the networks and the n-grams; all else follows the networks. The
        length does so where nothing but the steps done is known.

        Args:
            inputs: What is known of B queries, for each member.
            lengths: Some neighbouring lengths; None for all.
        """
        lengths = self.lengths if lengths is None else lengths
        logs = self.log_lengths_of(inputs, lengths)
        by_length = [self._plain_scores(length, inputs) for length in lengths]
        if self.usual is None or inputs[0].usual is None:
            return logs, by_length
        history, (initial, goal) = inputs[0].history, inputs[0].seen.long().T
        # places of kinds in `CENTRES`, the last one for the network alone
        told = torch.where(goal.bool(), 2, (history.facts[:, 1] > 0).long())
        kind = torch.where(history.facts[:, 0] > 0, told, 3 + goal).masked_fill(initial.bool(), -1)
        pools = [self.pools[name] for name in CENTRES]
        weights = torch.tensor([*pools, NETWORK], device=self.device)[kind]
        pool, moved = (inputs[0].usual, self._was_done(inputs), weights), weights[:, 1:2] != 0
        # log p_n(s) of each length; without a goal that of the shortest length, for all
        log_first = [scores.log_marginals()[:, 0] for scores in by_length]
        shortest = log_first[0]
        if lengths[0] != self.lengths[0]:
            shortest = self._plain_scores(self.lengths[0], inputs).log_marginals()[:, 0]
        # log p(T | t, h) [B, C, L'], so that p(T, s) = p(s) p(T | t(s), h)
        usual = self._usual_lengths(history, lengths)
        a, b, _ = self.pools[LENGTH]
        of_tasks = (a * logs[:, None] + b * usual).log_softmax(dim=-1)
        alone = (kind == 0) | (kind == 1)
        joint = torch.where(alone[:, None, None], of_tasks[:, self.states.tasks], 0.0)
        for place, scores in enumerate(by_length):
            logs_next = torch.where(goal[:, None] > 0, log_first[place], shortest)
            first = pooled(logs_next, *pool) + joint[:, :, place]
            total = first.logsumexp(dim=1)
            logs[:, place] = torch.where(alone, total, logs[:, place])
            # Σ over what follows stays: e_1(s) + log p(s | T) − log p_T(s)
            change = first - total[:, None] - log_first[place]
            change = torch.where(moved, change, 0.0)
            emissions = [scores.emissions[:, :1] + change[:, None], scores.emissions[:, 1:]]
            by_length[place] = replace(scores, emissions=torch.cat(emissions, dim=1))
        return logs, by_length

    def _usual_lengths(self, history: History, lengths: Sequence[int]) -> Tensor:
        """Return log p_u(length | task, steps done) of some lengths [B, C, L']."""
        assert self.usual is not None
        last, number = history.last, history.facts[:, 1].expm1().round().long()
        ids = last.argmax(dim=1).masked_fill(number == 0, START)
        first = self.lengths.index(lengths[0])
        usual = self.usual.log_lengths(ids.cpu().numpy(), number.cpu().numpy())
        return usual[:, :, first : first + len(lengths)]

    def _plain_scores(self, length: int, inputs: tuple[Known, ...]) -> SequenceScores:
        """Return calibrated scores of all sequences of a length by the networks alone."""
        members = zip(self.networks, inputs, strict=True)
        scores = average(
            [network.outputs(length, member_inputs).scores for network, member_inputs in members]
        )
        finite_outputs(scores.emissions, self.title)
        return scores.heated(self.temperatures[length])

    def _was_done(self, inputs: tuple[Known, ...]) -> Tensor:
        """Return whether the action of each state was done [B, S]."""
        return inputs[0].history.done[:, self.states.actions]

    def log_lengths_of(self, inputs: tuple[Known, ...], lengths: Sequence[int]) -> Tensor:
        """Return log p_n(length | what is known) of queries [B, L'], by the networks alone."""
        members = zip(self.networks, inputs, strict=True)
        logits = torch.stack(
            [network.length_logits(member_inputs)[1] for network, member_inputs in members]
        ).mean(dim=0)
        kind, elapsed = inputs[0].seen[:, 1].long(), inputs[0].elapsed
        if elapsed is not None:
            kind = kind + elapsed.isfinite()
        scales = torch.tensor(self.length_scales, device=logits.device)[kind]
        logs = (scales[:, :1] * logits + scales[:, 1:]).log_softmax(dim=1)
        first = self.lengths.index(lengths[0])
        return logs[:, first : first + len(lengths)].log_softmax(dim=1)

    @torch.inference_mode()
    def scores(self, length: int, queries: Queries) -> SequenceScores:
        """Return calibrated scores of all sequences of a length for each query."""
        blocks = [
            self.parts(self.known(block), (length,))[1][0]
            for block in queries.blocks(_BLOCK) or [queries]
        ]
        emissions = torch.cat([scores.emissions for scores in blocks])
        return SequenceScores(blocks[0].states, emissions, blocks[0].transitions)


def _neighbours(train: Windows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each pair of neighbouring steps of training windows once [P, 2], and their tasks."""
    rows = [np.zeros((0, 5), dtype=np.int64)]
    for step in range(train.horizon - 1):
        place = (train.tasks, train.video, train.start + step)
        rows.append(np.stack([*place, *train.actions[:, step : step + 2].T], axis=1))
    pairs = np.concatenate(rows)
    pairs = np.unique(pairs[pairs[:, 4] >= 0], axis=0)
    return pairs[:, 3:], pairs[:, 0]


def _fitted_scale(
    logits: NDArray[np.float64], target: NDArray[np.int64], *, videos: int
) -> tuple[float, ...]:
    """Return the factor f and offsets b [1 + L] that calibrate the lengths of validation windows.

    Maximises Σ log softmax(f · logits + b) at the targets [N], with a video as one observation, f
    shrunk towards 1 and b towards 0 by normal priors of log f and b.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    count = logits.shape[1]
    if not len(target):
        return (1.0, *[0.0] * count)

    def loss(values: NDArray[np.float64]) -> float:
        scaled = np.exp(values[0]) * logits + values[1:]
        misfit = -log_softmax(scaled, axis=1)[np.arange(len(target)), target].mean()
        return float(videos * misfit + (values**2).sum() / (2 * _SPREAD**2))

    optimum = minimize(loss, np.zeros(1 + count), method="L-BFGS-B").x
    return (float(np.exp(optimum[0])), *(float(value) for value in optimum[1:]))
