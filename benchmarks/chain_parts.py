"""What changes of the chain are worth, above all parts of ViterbiPlanNet, by folds of videos.

Each change is trained on the other folds of the training and validation videos (the test split is
not read), one network each, and planned on the fold's windows. Differences from the preset `small`
are paired by window, and have 90 % intervals with videos resampled. The last two changes order the
preset's 64 likeliest sequences anew, with a weight that is fitted on the other folds.

    python benchmarks/chain_parts.py DATA --out FILE [--changes NAME,NAME] [--seeds 2]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.cli.console import talk
from cefito.data import PreparedDataset, Windows, open_dataset
from cefito.data.windows import fitting_windows, joined_windows, video_folds
from cefito.evaluation.statistics import video_interval
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.chain import model
from cefito.planners.chain.inference import SequenceScores, average
from cefito.planners.chain.network import ChainLoss, ChainNetwork, CrfOutputs, dropped
from cefito.planners.methods import METHODS, load_config
from cefito.planners.shared.layers import PostNormLayer
from cefito.training.trainer import Term
from energy import LISTED, Candidates, judged

LEAST = float(np.log(1e-4))  # log-probability that less likely truths count as
BACKED_OFF = 2.0  # observations that the first order counts as in the second
Reals = NDArray[np.float64]


class SharedTransitions(ChainNetwork):
    """Learned scores of transitions that all tasks share, beside each task's own."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        actions = self.states.lookup.shape[1]
        self.between = nn.Parameter(torch.zeros(actions, actions))

    @property
    def transitions(self) -> Tensor:
        """Return the sum of both."""
        ids = self.states.actions[self.states.grid.clamp_max(len(self.states) - 1)]  # [C, A]
        return super().transitions + self.between[ids[:, :, None], ids[:, None]]


class TransformerLayer(ChainNetwork):
    """Emissions by ViterbiPlanNet's network: a transformer layer, a sigmoid, log σ."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        width = self.config.width
        self.layer, self.norm = PostNormLayer(width, 1, 256, F.gelu), nn.LayerNorm(width)

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> CrfOutputs:
        """Compute as the chain does, with other emissions."""
        outputs = super().forward(initial, goal, generator=generator)

        def drop(values: Tensor) -> Tensor:
            return dropped(values, self.config.dropout, generator)

        encoded = self.encoded(torch.stack([initial, goal], dim=1).float(), generator)
        tokens = self.norm(self.layer(encoded, drop))
        between = drop(torch.sigmoid(self.hidden(tokens.flatten(1))))
        emissions = F.linear(between, self.state_weights()[0], self.emission.bias)
        emissions = F.logsigmoid(emissions.unflatten(1, (self.horizon, -1)).float())
        emissions[:, 0] = emissions[:, 0] + self.end_factors[0] * outputs.first
        emissions[:, -1] = emissions[:, -1] + self.end_factors[1] * outputs.last
        return replace(outputs, scores=replace(outputs.scores, emissions=emissions))


class SummedEmissions(ChainNetwork):
    """Emissions of actions and of tasks, added to those of their pairs."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        tasks, actions = self.states.lookup.shape
        self.of_actions = nn.Linear(self.config.emission, self.horizon * actions)
        self.of_tasks = nn.Linear(self.config.emission, tasks)
        self.hidden.register_forward_hook(lambda *given: setattr(self, "kept", F.gelu(given[-1])))

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> CrfOutputs:
        """Compute as the chain does, with other emissions."""
        outputs = super().forward(initial, goal, generator=generator)
        hidden = dropped(self.kept, self.config.dropout, generator)
        actions = self.of_actions(hidden).unflatten(1, (self.horizon, -1)).float()
        more = actions[:, :, self.states.actions]  # [B, T, S]
        more = more + self.of_tasks(hidden).float()[:, None, self.states.tasks] / self.horizon
        emissions = outputs.scores.emissions + more
        return replace(outputs, scores=replace(outputs.scores, emissions=emissions))


class MoreLoss(ChainLoss):
    """The chain's loss, and a further term."""

    def more(self, scores: SequenceScores, states: Tensor) -> Tensor:
        """The further term, summed over a batch, of true states [B, T]."""
        raise NotImplementedError

    def terms(self, rows: Tensor, generator: torch.Generator, group: Any) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        kept: list[CrfOutputs] = []
        hook = self.module.register_forward_hook(lambda *given: kept.append(given[-1]))
        terms = dict(super().terms(rows, generator, group))
        hook.remove()
        value = self.more(kept[0].scores, self.sequences[rows])
        return terms | {"more": Term(1.0, value, torch.tensor(len(rows)))}


class SquaredError(MoreLoss):
    """ViterbiPlanNet's: squared error of the marginals to the truth."""

    def more(self, scores: SequenceScores, states: Tensor) -> Tensor:
        """Return the sum over the batch."""
        marginals = scores.log_marginals().exp()
        return (marginals - F.one_hot(states, marginals.shape[-1])).square().sum()


class MarginalEntropy(MoreLoss):
    """Cross-entropy of each step's marginals."""

    def more(self, scores: SequenceScores, states: Tensor) -> Tensor:
        """Return the sum over the batch."""
        return -scores.log_marginals().gather(2, states[:, :, None]).mean(dim=1).sum()


class StepAlignment(MoreLoss):
    """Cross-entropy of each step's emissions: every step is aligned with its action."""

    def more(self, scores: SequenceScores, states: Tensor) -> Tensor:
        """Return the sum over the batch."""
        logs = scores.emissions.log_softmax(dim=-1)
        return -logs.gather(2, states[:, :, None]).mean(dim=1).sum()


class KnownTask(ChainLoss):
    """−log p(task, sequence) rather than −log p(sequence)."""

    def terms(self, rows: Tensor, generator: torch.Generator, group: Any) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        states = self.sequences[rows]

        def joint(scores: SequenceScores, actions: Tensor) -> Tensor:  # noqa: ARG001
            return scores.log_probabilities(states)

        with patch.object(SequenceScores, "log_sequence_probabilities", joint):
            return super().terms(rows, generator, group)


@dataclass(frozen=True)
class Change:
    """A change of the preset."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    network: type[ChainNetwork] = ChainNetwork
    loss: type[ChainLoss] = ChainLoss
    posteriors: bool = False  # appended to the observations


CHANGES = {
    "squared error of marginals": Change(loss=SquaredError),
    "cross-entropy of marginals": Change(loss=MarginalEntropy),
    "alignment of every step": Change(loss=StepAlignment),
    "transitions of all tasks": Change(network=SharedTransitions),
    "transformer layer": Change(network=TransformerLayer),
    "noise 1.0": Change({"chain_training.augmentation.noise": 1.0}),
    "noise 0.5": Change({"chain_training.augmentation.noise": 0.5}),
    "emissions of actions and tasks": Change(network=SummedEmissions),
    "class posteriors": Change({"chain.normalise": False}, posteriors=True),
    "task in the loss": Change(loss=KnownTask),
    "hidden 3072": Change({"chain.hidden": 3072}),
    "input dropout 0.4": Change({"chain.input_dropout": 0.4}),
    "without words": Change({"chain.words": False}),
}
ORDERED = ("second order", "blend with ViterbiPlanNet")


def plain_scores(chain: model.ChainModel, queries: Queries) -> SequenceScores:
    """Scores by the networks themselves: those of a change differ from the chain's own."""
    ends = [torch.from_numpy(part) for part in (queries.initial, queries.goal)]
    with torch.inference_mode():
        mean = average([network(*ends).scores for network in chain.networks])
    return mean.heated(chain.temperature).weighing_tasks(chain.task_power)


def with_posteriors(train: Windows, others: Sequence[Windows]) -> list[Windows]:
    """Windows whose observations also have class posteriors: of the first action, or of the last.

    Those of training windows are by classifiers of other videos (five folds).
    """
    from sklearn.linear_model import LogisticRegression

    actions, inner = len(train.taxonomy.actions), video_folds(train.video, 5)
    mean = np.concatenate([train.initial, train.goal]).mean(axis=0)

    def normalised(values: NDArray[Any]) -> NDArray[Any]:
        centred = values - mean - (values - mean).mean(axis=1, keepdims=True)
        return np.asarray(centred / centred.std(axis=1, keepdims=True))

    def posteriors(known: NDArray[Any], labels: NDArray[Any], asked: NDArray[Any]) -> Reals:
        unit = 10 / known.shape[1] ** 0.5
        found = LogisticRegression(C=0.003, max_iter=500).fit(unit * known, labels)
        shares = np.zeros((len(asked), actions))
        shares[:, found.classes_] = found.predict_proba(unit * asked)
        return shares

    ends: dict[str, list[NDArray[Any]]] = {"initial": [], "goal": []}
    for name, place in (("initial", 0), ("goal", -1)):
        known, labels = normalised(getattr(train, name)), train.actions[:, place]
        own = np.zeros((len(known), actions))
        for fold in range(5):
            rest = inner != fold
            own[~rest] = posteriors(known[rest], labels[rest], known[~rest])
        asked = [normalised(getattr(one, name)) for one in others]
        shares = [own, *(posteriors(known, labels, one) for one in asked)]
        for values, share in zip([known, *asked], shares, strict=True):
            scaled = np.sqrt(share * values.shape[1])
            ends[name].append(np.concatenate([values, scaled], axis=1).astype(np.float32))
    return [
        replace(one, initial=ends["initial"][place], goal=ends["goal"][place])
        for place, one in enumerate([train, *others])
    ]


@dataclass
class Scores:
    """Of all windows, with each seed [S, N]."""

    success: Reals
    likelihood: Reals  # log p(true sequence)
    listed: list[Candidates] = field(default_factory=list)  # by seed
    seconds: float = 0.0


@dataclass(frozen=True)
class Folds:
    """Windows of the training and validation videos in folds."""

    data: PreparedDataset
    windows: Windows
    of: NDArray[np.int64]  # fold of each window [N]
    for_val: NDArray[np.bool_]  # windows of validation videos [N]

    @classmethod
    def of_data(
        cls, data: PreparedDataset, given: argparse.Namespace, *, shortest: int | None = None
    ) -> Folds:
        """Those of a data set."""
        train, val = fitting_windows(data, horizon=given.horizon, shortest=shortest)
        windows = joined_windows(train, val)
        of = video_folds(windows.video, given.folds)
        return cls(data, windows, of, np.isin(windows.video, val.video))

    def parts(self, fold: int) -> list[Windows]:
        """Training, validation and held-out windows."""
        out = self.of != fold
        masks = (out & ~self.for_val, out & self.for_val, ~out)
        return [self.windows.subset(np.flatnonzero(mask)) for mask in masks]

    def joined(self, listed: list[Candidates]) -> Candidates:
        """The folds' candidates, in the order of the windows."""
        order = np.argsort(
            np.concatenate([np.flatnonzero(self.of == fold) for fold in range(len(listed))])
        )
        found = Candidates.joined(listed)
        arrays = (part[order] for part in (found.actions, found.log_q, found.right))
        return Candidates(self.windows, *arrays)


def scored(folds: Folds, change: Change, given: argparse.Namespace, *, listed: bool) -> Scores:
    """Train a change on all folds with all seeds."""
    own = {"chain.members": 1, **change.settings}
    settings = load_config(
        "small", method="chain", dataset=folds.data.name, horizon=given.horizon, overrides=own
    ).settings
    count, began = len(folds.windows), time.process_time()
    found = Scores(*(np.zeros((given.seeds, count)) for _ in range(2)))
    for seed in range(given.seeds):
        parts = []
        for fold in range(given.folds):
            train, val, held = folds.parts(fold)
            if change.posteriors:
                train, val, held = with_posteriors(train, [val, held])
            with ExitStack() as stack:
                for name, value in (("ChainNetwork", change.network), ("ChainLoss", change.loss)):
                    stack.enter_context(patch.object(model, name, value))
                stack.enter_context(patch.object(model.ChainModel, "scores", plain_scores))
                planner: Any = (
                    METHODS["chain"].planner.fit(train, val, settings=settings, seed=seed).planner
                )
                inside = folds.of == fold
                parts.append(Candidates.of(planner, held, LISTED if listed else 1))
                logs = planner.model.scores(Queries.from_windows(held)).log_sequence_probabilities(
                    torch.from_numpy(held.actions)
                )
            found.success[seed, inside] = parts[-1].right[:, 0]
            found.likelihood[seed, inside] = logs.double().numpy().clip(min=LEAST)
        found.listed += [folds.joined(parts)] if listed else []
    found.seconds = time.process_time() - began
    return found


def interval(gain: Reals, video: NDArray[np.int64]) -> dict[str, float]:
    """Mean over windows and its interval, of gains with each seed [S, N]."""
    _, place = np.unique(video, return_inverse=True)
    each = gain.mean(axis=0)
    low, high = video_interval(np.bincount(place, weights=each), np.bincount(place))
    return {"mean": float(each.mean()), "low": low, "high": high}


def second_order(folds: Folds, found: Candidates) -> Reals:
    """Σ_t log p(c | a, b) − log p(c | b) of candidates [N, k], counted in the other folds."""
    actions, count = folds.windows.actions, len(folds.windows.taxonomy.actions)
    value = np.zeros(found.log_q.shape)
    for fold in np.unique(folds.of):
        rest = actions[folds.of != fold]
        pairs = Counter(pair for row in rest.tolist() for pair in pairwise(row))
        triples = Counter(
            part for row in rest.tolist() for part in zip(row, row[1:], row[2:], strict=False)
        )
        first, second = Counter(rest[:, :-1].flatten().tolist()), Counter[tuple[int, int]]()
        for (one, two, _), number in triples.items():
            second[one, two] += number
        for row in np.flatnonzero(folds.of == fold):
            for place in np.flatnonzero(np.isfinite(found.log_q[row])):
                steps = found.actions[row, place].tolist()
                for one, two, three in zip(steps, steps[1:], steps[2:], strict=False):
                    simple = (pairs[two, three] + 0.2) / (first[two] + 0.2 * count)
                    known = triples[one, two, three] + BACKED_OFF * simple
                    value[row, place] += np.log(known / (second[one, two] + BACKED_OFF) / simple)
    return value


def viterbi_scores(folds: Folds, found: Candidates, seed: int, given: argparse.Namespace) -> Reals:
    """ViterbiPlanNet's log-probabilities of candidates [N, k]; lower where not listed."""
    overrides = {"viterbi.members": 1}
    settings = load_config(
        "small",
        method="viterbi",
        dataset=folds.data.name,
        horizon=given.horizon,
        overrides=overrides,
    ).settings
    value = np.zeros(found.log_q.shape)
    for fold in range(given.folds):
        train, val, held = folds.parts(fold)
        planner = METHODS["viterbi"].planner.fit(train, val, settings=settings, seed=seed).planner
        rows = np.flatnonzero(folds.of == fold)
        for row, plans in zip(rows, planner.plan(Queries.from_windows(held), LISTED), strict=True):
            same = (found.actions[row][:, None] == plans.actions[None]).all(axis=2)
            lowest = -plans.scores[-1] - 2
            value[row] = np.where(same.any(axis=1), -plans.scores[same.argmax(axis=1)], lowest)
    return value


def ordered(name: str, folds: Folds, preset: Scores, given: argparse.Namespace) -> dict[str, Any]:
    """What a further score of the preset's candidates adds, mean over seeds."""
    parts = []
    for seed, found in enumerate(preset.listed):
        if name == "second order":
            value = second_order(folds, found)
        else:
            value = viterbi_scores(folds, found, seed, given)
        parts.append(judged(found, -value, folds.of))
    ends = ("mean", "low", "high")
    gains = ("gain of success_rate", "gain of log_likelihood")
    return {
        gain: {end: float(np.mean([part[gain][end] for part in parts])) for end in ends}
        for gain in gains
    } | {"weights": [part["weights"] for part in parts]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--changes", default=",".join([*CHANGES, *ORDERED]))
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    folds = Folds.of_data(open_dataset(given.data), given)
    names = given.changes.split(",")
    preset = scored(folds, Change(), given, listed=bool({*names} & {*ORDERED}))
    value: dict[str, Any] = {
        "command": "python benchmarks/chain_parts.py DATA",
        "arguments": {
            name: part for name, part in vars(given).items() if name not in ("data", "out")
        },
        "dataset": {"name": folds.data.name, "fingerprint": folds.data.fingerprint},
        "preset": {
            "success_rate": 100 * float(preset.success.mean()),
            "log_likelihood": float(preset.likelihood.mean()),
            "seconds": preset.seconds,
        },
        "changes": {},
    }
    for name in names:
        if name in ORDERED:
            found = ordered(name, folds, preset, given)
        else:
            other = scored(folds, CHANGES[name], given, listed=False)
            video = folds.windows.video
            found = {
                "gain of success_rate": interval(100 * (other.success - preset.success), video),
                "gain of log_likelihood": interval(other.likelihood - preset.likelihood, video),
                "seconds": other.seconds,
            }
        value["changes"][name] = found
        talk(f"{name}: {found}")
        if given.out:
            write_json(given.out, value)


if __name__ == "__main__":
    main()
