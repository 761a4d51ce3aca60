"""What energy fields add to a sequence model, each way of training them, judged on folds of videos.

For each fold a sequence model is trained on the other videos of the training and validation splits
(the test split is not read), and lists the 64 likeliest sequences of the fold's windows. Fields are
trained on the other folds and order these candidates anew, p(i) ∝ q_i exp(−β E_i), with β ≥ 0
fitted on the other folds (for several lengths, a factor and an offset of each length). Fields:

- small, released: by the training of that preset, the released one at the size of `small`.
- chain: by the softmax of log q − s E over the sequence model's 32 likeliest candidates of each
  training window, q from a model that was trained on other videos, s learned from zero.
- orders: like chain; other orders of the same steps that every training video of the task allows
  count as right.
- spread: like chain, with a penalty that keeps the variance of predicted goals and decorrelates
  their dimensions.
- lengths: like chain over windows of 1 to 6 steps at once; the sequence model likewise.

Differences of success rates and of log-likelihoods have 90 % intervals with videos resampled. The
spread of predicted goals is their mean standard deviation over dimensions and their effective rank
(exponential of the entropy of the covariance's eigenvalues), each over that of the observed goals.

    python benchmarks/energy.py DATA --out FILE [--fields small,chain] [--horizon 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional as F

import common
from cefito.cli.console import talk
from cefito.data import PreparedDataset, Windows, open_dataset
from cefito.data.windows import action_space
from cefito.evaluation.orders import Orders, keeps_orders, training_orders
from cefito.evaluation.statistics import calibration
from cefito.field.fields import make_field, named_components
from cefito.files import write_json
from cefito.planners.base import Planner, Queries
from cefito.planners.cefito.fit import fit_field
from cefito.planners.methods import METHODS, RunConfig, load_config
from cefito.runtime import count_parameters
from cefito.training.augmentation import ActionMeans, Observations
from cefito.training.trainer import TrainingContext

FIELDS = ("small", "released", "chain", "orders", "spread", "lengths")
LENGTHS = (1, 6)
LISTED, COMPARED = 64, 32  # candidates of held-out and of training windows
UNIT = 10.0  # energies per unit of the scale, so that its steps suit its size
LEFT_OUT = 0.3  # share of the videos left out of actions' mean observations at each step
Ids = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """The likeliest sequences of N windows under a model that was trained on other videos."""

    windows: Windows
    actions: Ids  # [N, k, T], −1 after the last action of a shorter one
    log_q: Reals  # log-probabilities, −∞ where there are fewer, [N, k]
    right: NDArray[np.bool_]  # which are right [N, k]; at most one but in training by orders

    @classmethod
    def of(cls, planner: Planner, windows: Windows, count: int) -> Candidates:
        """Those that a planner lists."""
        actions = np.full((len(windows), count, windows.horizon), -1)
        log_q = np.full((len(windows), count), -np.inf)
        for row, plans in enumerate(planner.plan(Queries.from_windows(windows), count)):
            assert plans.probabilities is not None
            actions[row, : len(plans.actions)] = plans.actions
            log_q[row, : len(plans.actions)] = np.log(plans.probabilities)
        right = (actions == windows.actions[:, None]).all(axis=2) & np.isfinite(log_q)
        return cls(windows, actions, log_q, right)

    @property
    def truth(self) -> Ids:
        """Place of the truth, −1 where it is not listed, [N]."""
        return np.where(self.right.any(axis=1), self.right.argmax(axis=1), -1)

    def with_truth(self, planner: Any) -> Candidates:
        """The truth in the last place where it was missing; impossible windows are left out."""
        log_truth = planner.log_probabilities(
            Queries.from_windows(self.windows), self.windows.actions
        )
        insert = (self.truth < 0) & np.isfinite(log_truth)
        for array, value in (
            (self.actions, self.windows.actions),
            (self.log_q, log_truth),
            (self.right, np.ones(len(insert), bool)),
        ):
            array[insert, -1] = value[insert]
        return self.subset(self.right.any(axis=1))

    def with_orders(self, kept: Orders, planner: Any) -> Candidates:
        """Other orders of the right steps that no training video forbids count as right, too."""
        queries = Queries.from_windows(self.windows)
        for row, task in enumerate(self.windows.tasks.tolist()):
            steps, free = self.windows.actions[row], self.actions.shape[1] - 1
            for other in sorted(set(permutations(steps.tolist())) - {tuple(steps.tolist())}):
                if not keeps_orders(other, kept.get(task, ())):
                    continue
                place = np.flatnonzero((self.actions[row] == other).all(axis=1))
                if not len(place):
                    while self.right[row, free]:
                        free -= 1
                    own = queries.subset(np.array([row]))
                    value = planner.log_probabilities(own, np.array([other]))[0]
                    if not np.isfinite(value):
                        continue
                    self.actions[row, free], self.log_q[row, free], place = other, value, free
                self.right[row, place] = True
        return self

    def subset(self, rows: NDArray[np.bool_]) -> Candidates:
        """The candidates of some windows."""
        windows = self.windows.subset(np.flatnonzero(rows))
        return Candidates(windows, self.actions[rows], self.log_q[rows], self.right[rows])

    @classmethod
    def joined(cls, parts: list[Candidates]) -> Candidates:
        """All windows of several, in their order."""
        names = ("initial", "goal", "actions", "tasks", "video", "start")
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part.windows, name) for part in parts]) for name in names
        }
        first = replace(parts[0].windows, before=None, remaining=None, elapsed=None)
        rest = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("actions", "log_q", "right")
        )
        return cls(replace(first, **arrays), *rest)


def energies(field: nn.Module, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
    """Energies [B, k] of candidates [B, k, T] of any lengths."""
    count = actions.shape[1]
    flat, sizes = actions.flatten(0, 1), (actions >= 0).sum(dim=2).flatten()
    found = initial.new_zeros(len(flat))
    for length in sizes.unique().tolist():
        if length:  # missing candidates have none
            rows = (sizes == length).nonzero()[:, 0]
            ends = (part[rows // count] for part in (initial, goal))
            found = found.index_put((rows,), field.energy(*ends, flat[rows, :length]))
    return found.unflatten(0, (-1, count))


def listed_energies(field: nn.Module, found: Candidates) -> Reals:
    """Energies of all candidates [N, k]."""
    ends = [torch.from_numpy(part) for part in (found.windows.initial, found.windows.goal)]
    actions = torch.from_numpy(found.actions)
    with torch.inference_mode():
        parts = [
            energies(field, ends[0][rows], ends[1][rows], actions[rows])
            for rows in torch.arange(len(actions)).split(64)
        ]
    return torch.cat(parts).double().numpy()


def predicted_goals(
    field: nn.Module, initial: Tensor, goal: Tensor, actions: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Predictions and targets [B, E] of each component, of sequences [B, T] of any lengths."""
    sizes = (actions >= 0).sum(dim=1)
    for name, part in named_components(field).items():
        first, last = (goal, initial) if name else (initial, goal)
        found = []
        for length in sizes.unique().tolist():
            rows = (sizes == length).nonzero()[:, 0]
            own = actions[rows, :length]
            found.append(
                part.predictor.goal(part.centred(first[rows]), own.flip(1) if name else own)
            )
        yield torch.cat(found), part.target(last)


def spread(field: nn.Module, windows: Windows) -> dict[str, float]:
    """Spread of predicted goals over that of observed ones, mean of the components."""
    parts = [torch.from_numpy(getattr(windows, name)) for name in ("initial", "goal", "actions")]
    ratios = []
    with torch.inference_mode():
        for predicted, target in predicted_goals(field, *parts):
            values = [(one.std(dim=0).mean(), effective_rank(one)) for one in (predicted, target)]
            ratios.append([float(ours / theirs) for ours, theirs in zip(*values, strict=True)])
    deviation, rank = np.mean(ratios, axis=0)
    return {"deviation": float(deviation), "effective_rank": float(rank)}


def effective_rank(rows: Tensor) -> Tensor:
    shares = torch.linalg.eigvalsh(rows.T.cov()).clamp_min(0)
    shares = shares / shares.sum()
    return torch.special.entr(shares).sum().exp()


def spread_penalty(predicted: Tensor, target: Tensor) -> Tensor:
    """Hinge of each dimension's deviation, and the mean square of the correlations."""
    wanted = target.std(dim=0)
    missing = F.relu(1 - predicted.std(dim=0) / wanted.clamp_min(1e-6)).mean()
    correlation = predicted.T.corrcoef().nan_to_num()
    return missing + (correlation - torch.diag(correlation.diag())).square().mean()


def new_field(config: Any, windows: Windows, horizon: int, seed: int) -> Any:
    """A field and the actions' mean observations of its components."""
    mean = torch.from_numpy(np.concatenate([windows.initial, windows.goal]).mean(axis=0))
    zero = mean if config.centre else torch.zeros_like(mean)
    ends = replace(windows, actions=windows.ends)
    sizes = {
        "observation_dim": windows.initial.shape[1],
        "action_count": len(windows.taxonomy.actions),
        "horizon": horizon,
    }
    empty = torch.empty(sizes["action_count"], sizes["observation_dim"])
    field = make_field(config=config, action_vectors=empty, **sizes)
    normalised = named_components(field)[""].predictor.normalised
    means = ActionMeans(ends, zero, normalised)
    for number, (_, part) in enumerate(named_components(field).items()):
        part.predictor.action_vectors.copy_(means.all())
        part.reset(torch.Generator().manual_seed(seed + 1000 * number), mean=mean)
    return field, means


def fit_on_candidates(
    found: Candidates, config: RunConfig, given: argparse.Namespace, *, seed: int, weight: float
) -> nn.Module:
    """Train a field by the softmax of log q − s E; `weight` is that of the spread's penalty."""
    settings: Any = config.settings
    windows = found.windows
    field, means = new_field(settings.field, windows, windows.horizon, seed)
    scale = nn.Parameter(torch.zeros(()))
    groups = [
        {"params": list(field.parameters()), "lr": 1e-3, "weight_decay": 0.3},
        {"params": [scale], "lr": 2e-3, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups)
    count, batch = len(windows), 32
    epochs = max(given.epochs, -(-given.least_steps * batch // count))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-count // batch))
    noise = settings.training.augmentation.model_copy(update={"swap": 0.0})
    observations = Observations(windows, noise, torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    actions, correct = torch.from_numpy(found.actions), torch.from_numpy(found.right)
    log_q = torch.from_numpy(np.where(np.isfinite(found.log_q), found.log_q, -1e4)).float()
    true = torch.from_numpy(windows.actions)
    for _ in range(epochs):
        for rows in torch.randperm(count, generator=generator).split(batch):
            initial, goal = observations.draw(rows, generator)
            vectors = means.without(rows, LEFT_OUT, generator)
            with ExitStack() as stack:
                for part in named_components(field).values():
                    stack.enter_context(part.predictor.using(vectors))
                energy = energies(field, initial, goal, actions[rows])
                log_p = (log_q[rows] - UNIT * scale * energy).log_softmax(dim=1)
                # −log Σ_right p
                loss = -log_p.masked_fill(~correct[rows], -torch.inf).logsumexp(dim=1).mean()
                if weight:
                    for pair in predicted_goals(field, initial, goal, true[rows]):
                        loss = loss + weight * spread_penalty(*pair)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return field.eval()


def preset_field(name: str, data: PreparedDataset, horizon: int, epochs: int) -> RunConfig:
    """Settings of a preset's training for a field of the size of `small`."""
    changes: dict[str, Any] = {}
    if name == "released":
        small: Any = load_config("small", dataset=data.name).settings
        changes = {f"field.{key}": getattr(small.field, key) for key in ("width", "depth", "heads")}
        changes |= {"training.optimiser.epochs": epochs, "training.precision": "float32"}
        changes |= {
            "training.stopping.every": max(1, epochs // 4),
            "training.stopping.windows": 100,
        }
    return load_config(name, dataset=data.name, horizon=horizon, overrides=changes)


def features(energy: Reals, sizes: Ids) -> Reals:
    """What the logistic model weighs: −E, and for several lengths −E and one of each, [N, k, F]."""
    several = np.unique(sizes[sizes > 0])
    if len(several) == 1:
        return -energy[:, :, None]
    of = sizes[:, :, None] == several  # [N, k, L]
    # an offset may have either sign: one more than another is one less than the rest
    return np.concatenate([-energy[:, :, None] * of, of, -1.0 * of], axis=2)


def fit_weights(columns: list[Reals], offsets: list[Reals], truth: list[int]) -> Reals:
    """Weights w ≥ 0 [F] of the greatest Σ log p(truth) − |w σ|² / 2, p ∝ exp(offset + w · x).

    x are the candidates' features less their mean in a window, σ the features' deviations.
    """
    centred = [part - part.mean(axis=0) for part in columns]
    scale = np.sqrt(np.square(np.concatenate(centred)).mean(axis=0))
    scale[scale < 1e-12] = 1.0

    def loss(weights: Reals) -> tuple[float, Reals]:
        value, slope = weights @ weights / 2, weights.copy()
        for part, offset, true in zip(centred, offsets, truth, strict=True):
            x = part / scale
            logs = offset + x @ weights
            logs -= np.logaddexp.reduce(logs)
            value -= logs[true]
            slope += np.exp(logs) @ x - x[true]
        return float(value), slope

    bounds = [(0, None)] * len(scale)
    found = minimize(loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x / scale)


def judged(found: Candidates, energy: Reals, folds: Ids) -> dict[str, Any]:
    """What the energies add to the sequence model on held-out videos."""
    possible = np.isfinite(found.log_q)
    shown = features(np.where(possible, energy, 0.0), (found.actions >= 0).sum(axis=2))
    columns = [row[some] for row, some in zip(shown, possible, strict=True)]
    offsets = [row[some] for row, some in zip(found.log_q, possible, strict=True)]
    place = np.take_along_axis(possible.cumsum(axis=1) - 1, found.truth[:, None], axis=1)[:, 0]
    truth = np.where(found.truth >= 0, place, -1)  # among the possible ones
    score, weights = found.log_q.copy(), []
    for fold in np.unique(folds):
        others = np.flatnonzero(folds != fold)
        used = [row for row in others if truth[row] >= 0]
        fitted = fit_weights(*([part[row] for row in used] for part in (columns, offsets, truth)))
        inside = folds == fold
        score[inside] += shown[inside] @ fitted
        weights.append(fitted.tolist())
    every, hit = np.arange(len(score)), found.truth >= 0
    rows = {"without": found.log_q, "with": score}
    mass = np.exp(found.log_q).sum(axis=1).clip(max=1)  # that the candidates hold
    value: dict[str, Any] = {"weights": weights}
    right, log = {}, {}
    for name, values in rows.items():
        total = np.logaddexp.reduce(values, axis=1)  # −∞ of a window without candidates
        logs = values - np.where(np.isfinite(total), total, 0.0)[:, None]
        best = values.argmax(axis=1)
        right[name] = best == found.truth
        log[name] = logs[every, found.truth]
        value[name] = {
            "success_rate": 100 * float(right[name].mean()),
            "log_likelihood": float(log[name][hit].mean()),
            "expected_calibration_error": calibration(
                np.exp(logs[every, best]) * mass, right[name]
            ).expected_calibration_error,
        }
    success = 100.0 * (right["with"].astype(float) - right["without"])
    likelihood = log["with"] - log["without"]
    for name, gain, rows_of in (
        ("success_rate", success, hit | ~hit),
        ("log_likelihood", likelihood, hit),
    ):
        value[f"gain of {name}"] = common.interval(gain[rows_of], found.windows.video[rows_of])
    return value


def given_length(found: Candidates, energy: Reals, length: int) -> tuple[Candidates, Reals]:
    """Windows of one length, and their candidates of this length."""
    rows = found.windows.lengths == length
    part = found.subset(rows)
    own = ((part.actions >= 0).sum(axis=2) == length) & np.isfinite(part.log_q)
    log_q = np.where(own, part.log_q, -np.inf)
    log_q = log_q - np.logaddexp.reduce(log_q, axis=1, initial=-1e3)[:, None]
    return replace(part, log_q=log_q, actions=np.where(own[:, :, None], part.actions, -1)), energy[
        rows
    ]


@dataclass(frozen=True)
class Folds(common.Folds):
    """Windows in folds of videos, and sequence models that were trained without each fold."""

    planners: list[Any]
    listed: list[Candidates]  # of each fold's windows, under the model that was trained without it

    @classmethod
    def fit(cls, data: PreparedDataset, given: argparse.Namespace, *, several: bool) -> Folds:
        """Train the sequence models."""
        method, shortest = ("any-length", LENGTHS[0]) if several else ("chain", None)
        horizon = LENGTHS[1] if several else given.horizon
        members = {f"{method.replace('-', '_')}.members": given.members} if given.members else {}
        settings = load_config(
            "small", method=method, dataset=data.name, horizon=horizon, overrides=members
        ).settings
        cut = common.Folds.cut(data, horizon=horizon, folds=given.folds, shortest=shortest)
        found = cls(**vars(cut), planners=[], listed=[])
        for fold in range(given.folds):
            train, val, held = found.parts(fold)
            fitted = METHODS[method].planner.fit(train, val, settings=settings, seed=fold)
            found.planners.append(fitted.planner)
            found.listed.append(Candidates.of(fitted.planner, held, LISTED))
            talk(
                f"fold {fold}: {np.mean(found.listed[-1].truth >= 0):.3f} of the truths are listed"
            )
        return found

    def candidates(self, fold: int, *, orders: bool) -> Candidates:
        """Candidates of the windows of the other folds."""
        videos = np.unique(self.windows.video[self.of != fold])
        kept = training_orders(
            SimpleNamespace(  # type: ignore[arg-type]
                videos=[replace(self.data.videos[video], split="train") for video in videos]
            )
        )
        parts = []
        for other, (planner, listed) in enumerate(zip(self.planners, self.listed, strict=True)):
            if other == fold:
                continue
            arrays = (listed.actions, listed.log_q, listed.right)
            few = Candidates(listed.windows, *(array[:, :COMPARED].copy() for array in arrays))
            few = few.with_truth(planner)
            parts.append(few.with_orders(kept, planner) if orders else few)
        return Candidates.joined(parts)


def fit_named(
    name: str, folds: Folds, fold: int, fields: dict[str, RunConfig], given: argparse.Namespace
) -> Any:
    """The field of a name, trained without one fold."""
    if name in fields:
        train, val, _ = folds.parts(fold)
        settings: Any = fields[name].settings
        space = action_space(train, "training")
        return fit_field(
            train, val, space=space, settings=settings, seed=fold, context=TrainingContext()
        )[0]
    found = folds.candidates(fold, orders=name == "orders")
    weight = 1.0 if name == "spread" else 0.0
    return fit_on_candidates(found, fields["small"], given, seed=fold, weight=weight)


def study(data: PreparedDataset, given: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Scores of some fields, all over candidates of one sequence model."""
    several = names == ["lengths"]
    began = time.process_time()
    folds = Folds.fit(data, given, several=several)
    fields = {
        name: preset_field(name, data, given.horizon, given.released_epochs)
        for name in ("small", "released")
    }
    together = Candidates.joined(folds.listed)
    of = np.repeat(np.arange(given.folds), [len(part.right) for part in folds.listed])
    result: dict[str, Any] = {"seconds of sequence models": time.process_time() - began}
    for name in names:
        parts, spreads, began = [], [], time.process_time()
        for fold, listed in enumerate(folds.listed):
            field = fit_named(name, folds, fold, fields, given)
            parts.append(listed_energies(field, listed))
            spreads.append(spread(field, listed.windows))
            talk(f"{name}, fold {fold}: {time.process_time() - began:.0f} s")
        energy = np.concatenate(parts)
        value = judged(together, energy, of)
        if several:
            for length in (3, 4):
                part = given_length(together, energy, length)
                own = of[together.windows.lengths == length]
                value[f"given {length} steps"] = judged(*part, own)
        value["spread"] = {key: float(np.mean([one[key] for one in spreads])) for key in spreads[0]}
        value["seconds"] = time.process_time() - began
        value["parameters"] = count_parameters(field)
        talk(f"{name}: {value['gain of log_likelihood']}, {value['gain of success_rate']}")
        result[name] = value
    return result


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("--fields", default=",".join(FIELDS), help="separated by commas")
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--members", type=int, help="of sequence models; the preset's if not given")
    parser.add_argument("--epochs", type=int, default=4, help="over candidates, at least")
    parser.add_argument("--least-steps", type=int, default=300, help="over candidates")
    parser.add_argument("--released-epochs", type=int, default=60)
    given = parser.parse_args()
    names = given.fields.split(",")
    data = open_dataset(given.data)
    value = common.about("energy", given, data)
    for group in ([name for name in names if name != "lengths"], ["lengths"]):
        asked = [name for name in group if name in names]
        if asked:
            value["lengths" if asked == ["lengths"] else f"T = {given.horizon}"] = study(
                data, given, asked
            )
            if given.out:
                write_json(given.out, value)


if __name__ == "__main__":
    main()
