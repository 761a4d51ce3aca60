"""The segmental recogniser: which step each row of a video shows, by all rows or those up to now.

A row x_t says p(x_t | label) ∝ (p(label | x_t) / p(label)^γ)^λ + ε, by networks that see either the
whole video or the past alone; `StepChain` joins the rows. The probabilities of labels are then
raised to a power 1 / T. λ is chosen by training videos that are held out in turn, for the best
steps (edit score and F1@50) or the best present label, and T by the Brier score of their labels.
A label is that of chain and networks, p ∝ p(label | chain)^(1 − w) p(label | networks)^w, and w is
chosen like λ. A further network of the past, its mean and the time says which step comes next,
beside the chain.

Of whole videos, log p(label | x) is (1 − a) that of these networks + a that of an attention network
(`attention`), and a is chosen first.

With few videos, networks learn the usual order more than the steps. Networks of changes (`changes`)
do not know it: log p(label | x) is (1 − s) that of the usual ones + s theirs, and s is chosen as λ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from cefito.data.folds import FEW_VIDEOS, folds_of
from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import RATES
from cefito.data.vocabulary import Taxonomy, find_action, find_task
from cefito.errors import ConfigError, RunError
from cefito.files import (
    Expected,
    check_tensors,
    load_tensors,
    load_weights,
    read_json,
    write_json,
    write_tensors,
)
from cefito.progress import Advance
from cefito.recognition.asformer import ASFormer
from cefito.recognition.attention import attended, attention_steps, fit_attention
from cefito.recognition.chain import Floats, Smoothed, StepChain, likelihoods, softened
from cefito.recognition.changes import Changes, change_features, left_behind
from cefito.recognition.classifier import (
    RowClassifier,
    Standard,
    ahead_features,
    fit_classifier,
    past_features,
    whole_features,
)
from cefito.recognition.held_out import (
    HeldVideo,
    attention_harms,
    chosen_attention,
    chosen_doubt,
    chosen_rows,
    joined,
    mixed,
)
from cefito.recognition.plan_chain import PlanChain
from cefito.recognition.recogniser import (
    RECOGNISER_FILE,
    SETTINGS_FILE,
    AnnotatedRows,
    BaseRecogniser,
    HeldFilm,
    Recognition,
)
from cefito.recognition.scores import HeldOutScores, segments
from cefito.recognition.settings import RecogniserConfig, RecogniserSettings, settings_of
from cefito.recognition.stream import StepStream
from cefito.recognition.temporal import Past, Rows, row_steps, temporal_steps
from cefito.recognition.trials import AlteredVideo, SeenMistakes, made_up
from cefito.recognition.yardsticks import unchained
from cefito.settings import Record, read_record, validated
from cefito.training.trainer import TrainingContext

_REMEDY = "Train the run again."
_MOST_TRIED = 30  # videos in which mistakes are made up

_Power = Annotated[float, Field(ge=1e-3, le=1e3)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Header(Record):
    config: dict[str, Any]  # of `RecogniserConfig`
    rate: float = Field(ge=RATES[0], le=RATES[1])
    width: int = Field(ge=1, le=1 << 20)
    trusts: tuple[_Power, _Power]  # λ of whole videos, and of the past alone
    temperatures: tuple[_Power, _Power]  # T
    shares: tuple[_Share, _Share] = (0.0, 0.0)  # s
    weights: tuple[_Share, _Share] = (0.0, 0.0)  # w
    attention: _Share = 0.0  # a
    chained: tuple[_Power, _Power] | None = None  # T where w = 0; None in runs of before
    # s, λ, and the share of steps in any order, when videos are verified; None in runs of before
    doubt: tuple[_Share, _Power, _Share] | None = None
    seen: tuple[SeenMistakes, ...] | None = None  # of each task
    held_out: HeldOutScores | None = None


@dataclass(frozen=True, eq=False)
class SegmentalRecogniser(BaseRecogniser):
    """Networks of rows and the chain of steps, of one taxonomy."""

    config: RecogniserConfig
    chain: StepChain
    standard: Standard
    whole: RowClassifier
    past: RowClassifier
    ahead: RowClassifier | None  # of the next step to begin, by the past; None in folds
    changes: Changes | None  # None if its settings have none, or the run is of before
    attention: ASFormer | None  # of whole videos; None if it has no share
    log_prior: Floats  # log p(label) [K + 1]
    trusts: tuple[float, float]  # λ of whole videos, and of the past alone
    temperatures: tuple[float, float]  # T of both
    shares: tuple[float, float]  # s of both
    weights: tuple[float, float]  # w of both
    attention_share: float  # a
    chained: tuple[float, float]  # T of both by the chain alone, w = 0
    # s, λ, and the share of steps in any order, when videos are verified
    doubt: tuple[float, float, float]
    rate: float  # rows a second
    taxonomy: Taxonomy
    # by task, in videos held out; None if none was
    seen: tuple[SeenMistakes, ...] | None = None
    held_out: HeldOutScores | None = None
    films: Mapping[int, HeldFilm] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        dataset: PreparedDataset,
        videos: Sequence[int],
        *,
        config: RecogniserSettings | None = None,
        seed: int = 0,
        context: TrainingContext | None = None,
    ) -> Self:
        """Train on some videos of a data set with a timeline, or go on where a call was killed.

        Raises:
            DataError: The data set has no rows of whole videos, or no such video.
            RunError: The training diverged, or what the context's folder keeps is of another one.
        """
        context, known = context or TrainingContext(), AnnotatedRows.of(dataset, videos)
        config = settings_of(config, RecogniserConfig).at_rate(known.rate)
        chosen = [dataset.videos[video] for video in videos]
        order = folds_of(chosen, config.folds, seed, by_task=True)
        parts = int(order.max()) + 1 if len(videos) > 1 else 0
        lengths = np.array([len(rows) for rows in known.rows])
        sizes = [int(lengths[order != fold].sum()) for fold in range(parts)] + [int(lengths.sum())]
        # with few videos, half of those of other folds than the first show what more would bring
        few = parts > 0 and len(videos) < FEW_VIDEOS
        half = _half(np.flatnonzero(order != 0), known.tasks) if few else np.zeros(0, dtype=int)
        sizes = [int(lengths[half].sum())] * few + sizes
        steps = [config.members * row_steps(n, config) + temporal_steps(n, config) for n in sizes]
        changing = 2 * config.members * config.training_steps * config.sees_changes
        counts = [*(int((order != fold).sum()) for fold in range(parts)), len(videos)]
        attending = [attention_steps(count, config) for count in counts] if parts else [0]
        total = 2 * sum(steps) + steps[-1] + len(sizes) * changing + sum(attending)
        held: list[HeldVideo] = []
        by_half: list[HeldVideo] = []
        places: list[int] = []  # of them
        trials: list[tuple[AlteredVideo, HeldVideo]] = []
        tried, helps = max(1, len(videos) // _MOST_TRIED), True
        with context.progress("recogniser", total=total) as advance:
            given = config, dataset.taxonomy, seed, context, advance
            if few:
                fitted = cls._fitted(known.part(half), *given, name="half-")
                by_half += (
                    fitted._held(known.rows[place], known.labels[place], known.tasks[place])
                    for place in np.flatnonzero(order == 0).tolist()
                )
            for fold in range(parts):
                rest = known.part(np.flatnonzero(order != fold))
                fitted = cls._fitted(rest, *given, name=f"fold-{fold + 1}-", attending=helps)
                if not helps:
                    advance(attending[fold])
                changes = left_behind(rest.rows, rest.labels, fitted.chain.background)
                for place in np.flatnonzero(order == fold).tolist():
                    truth, task = known.labels[place], known.tasks[place]
                    held.append(fitted._held(known.rows[place], truth, task))
                    places.append(videos[place])
                    if place % tried:
                        continue
                    others = [
                        labels
                        for labels, other in zip(rest.labels, rest.tasks, strict=True)
                        if other == task
                    ]
                    generator = np.random.default_rng([seed, place])
                    copies = made_up(known.rows[place], truth, others, changes, generator)
                    trials += (
                        (altered, fitted._held(altered.rows, truth, task)) for altered in copies
                    )
                # the largest part of the training ends where the first folds say that it harms
                helps = helps and (few or not attention_harms(held, config))
            share = chosen_attention(held, config) if held and helps else 0.0
            fitted = cls._fitted(known, *given, ahead=True, attending=share > 0)
            if not share:
                advance(attending[-1])
        if not held:
            return fitted
        whole = chosen_rows([video.attending(share) for video in held], config, past=False)
        past = chosen_rows(held, config, past=True)
        doubt, seen = chosen_doubt(trials, config, seed, trust=whole.trust)
        fitted = replace(
            fitted,
            trusts=(whole.trust, past.trust),
            temperatures=(whole.temperature, past.temperature),
            shares=(whole.share, past.share),
            weights=(whole.weight, past.weight),
            attention_share=share,
            chained=(whole.chained, past.chained),
            doubt=doubt,
            seen=seen,
            held_out=HeldOutScores(
                videos=len(held),
                present=past.scores["frame"],
                learned=int((order != 0).sum()),
                half=len(half) or None,
                gain=whole.gain(held[: len(by_half)], by_half) if few else None,
                **{name: whole.scores[name] for name in ("frame", "edit", "f1_50")},
            ),
        )
        films = {
            place: HeldFilm.of(fitted._doubted(video.logs[False], video.chain))
            for place, video in zip(places, held, strict=True)
        }
        return replace(fitted, films=films)

    @classmethod
    def _fitted(
        cls,
        known: AnnotatedRows,
        config: RecogniserConfig,
        taxonomy: Taxonomy,
        seed: int,
        context: TrainingContext,
        advance: Advance,
        *,
        name: str = "",
        ahead: bool = False,
        attending: bool = False,
    ) -> Self:
        count, rate = len(taxonomy.actions), known.rate
        standard = Standard.of(known.rows, config.directions)
        scaled = [standard.scaled(rows) for rows in known.rows]
        width = scaled[0].shape[1]
        tasks = [
            ("whole", whole_features, known.labels, width),
            ("past", past_features, known.labels, width),
        ]
        if ahead:
            coming = [next_labels(own, count) for own in known.labels]
            tasks.append(("ahead", ahead_features, coming, 2 * width + 1))
        networks = {
            part: fit_classifier(
                [features(rows, config, rate) for rows in scaled],
                labels,
                count + 1,
                config,
                seed=2 * seed + place,
                name=name + part,
                context=context,
                advance=advance,
                steps=row_steps(sum(map(len, scaled)), config),
                temporal=config,
                rows=own,
                causal=place > 0,
            )
            for place, (part, features, labels, own) in enumerate(tasks)
        }
        changes = None
        if config.sees_changes:
            changes = Changes.fit(
                scaled,
                known.labels,
                count,
                known.rate,
                config,
                seed=seed,
                name=name,
                context=context,
                advance=advance,
            )
        attention = None
        if attending:
            attention = fit_attention(
                scaled,
                known.labels,
                count + 1,
                config,
                seed=seed,
                name=f"{name}attention",
                context=context,
                advance=advance,
            )
        chain = StepChain.fit(
            known.labels,
            known.tasks,
            [task.actions for task in taxonomy.tasks],
            count,
            phases=config.phases,
            smoothing=config.smoothing,
        )
        counts = np.bincount(np.concatenate(known.labels), minlength=count + 1) + 1.0
        return cls(
            config=config,
            chain=chain,
            standard=standard,
            whole=networks["whole"],
            past=networks["past"],
            ahead=networks.get("ahead"),
            changes=changes,
            attention=attention,
            log_prior=np.log(counts / counts.sum()),
            trusts=(config.trusts[0], config.trusts[0]),
            temperatures=(1.0, 1.0),
            shares=(config.shares[0],) * 2 if changes else (0.0, 0.0),
            weights=(0.0, config.weights[0]),
            attention_share=0.0,
            chained=(1.0, 1.0),
            doubt=(0.0, config.trusts[0], config.doubts[0]),
            rate=rate,
            taxonomy=taxonomy,
        )

    def given_orders(self, orders: Mapping[int, Iterable[tuple[int, int]]]) -> Self:
        """Return a recogniser to which steps against the orders of their task are unlikely.

        Of each pair (a, b) of a task, b right before a becomes less probable.
        """
        if not self.config.chain:
            return super().given_orders(orders)
        return replace(self, chain=self.chain.with_orders(orders))

    @property
    def width(self) -> int:
        """Numbers of a row, D."""
        return len(self.standard.mean)

    @property
    def follows(self) -> bool:
        """Whether it recognises row by row, too."""
        return self.config.chain

    def stream(self, task: int | None = None) -> StepStream:
        """Return a stream of rows of a video."""
        return StepStream(self, task) if self.follows else super().stream(task)

    def recognise(
        self,
        rows: NDArray[np.floating[Any]],
        *,
        rate: float | None = None,
        task: int | None = None,
        plan: Sequence[int] | None = None,
        doubt: bool = False,
    ) -> Recognition:
        """Recognise the steps of a video; see `Recogniser.recognise`.

        A plan is refused without its task, with actions of another one, or for a video that is too
        short for it (ConfigError).
        """
        rows = self.checked_rows(rows, rate)
        known = None if task is None else find_task(self.taxonomy, task)
        if plan is not None:
            plan = [find_action(self.taxonomy, one, setting="steps_known") for one in plan]
        if plan is None:
            chain = self.chain if known is None else self.chain.given([known])
        elif not self.config.chain:
            raise self._refused("align steps that are known")
        elif known is None or not plan or not {*plan} <= {*self.taxonomy.tasks[known].actions}:
            problem = "the steps known are not steps of one task. Give the task, too"
            raise ConfigError(f"{problem}.", setting="steps_known")
        elif len(rows) < (line := PlanChain.of(self.chain, plan, known)).fewest:
            problem = f"a video of {len(rows)} rows is too short for the steps known, which need"
            raise ConfigError(
                f"{problem} {line.fewest}, at {self.rate:g} rows a second.", setting="steps_known"
            )
        if not self.config.chain:
            logs = self.whole.log_probabilities(self._features(rows, past=False))
            return unchained(np.exp(logs), self.taxonomy, self.rate, known)
        if doubt and plan is None:
            return self._doubted(self.both_logs(rows, past=False), chain)
        logs = self.log_seen(rows, past=False)
        seen = self.likelihoods(logs, past=False)
        if plan is None:
            smoothed = chain.smoothed(seen)
            return self._recognition(smoothed, smoothed.tasks, logs)
        alone = np.eye(len(self.taxonomy.tasks))[known]
        return self._recognition(line.smoothed(seen), alone, plan=tuple(plan))

    def doubted_so_far(self, scaled: Rows) -> Floats:
        """Return p(x | label) of rows so far with doubt, as if they were a whole video [n, K + 1].

        Args:
            scaled: Rows as `Standard.scaled` returns them [n, P].
        """
        features = whole_features(scaled, self.config, self.rate)
        return self._doubtful(self._logs(features, past=False, both=True))

    def _doubtful(self, both: tuple[Floats, Floats]) -> Floats:
        share, trust, _ = self.doubt
        return likelihoods(mixed(both, share), trust, self.config.unexpected)

    def _doubted(self, both: tuple[Floats, Floats], chain: StepChain) -> Recognition:
        """Recognise steps with doubt in the usual order, by which the task is recognised first.

        Args:
            both: `both_logs` of a whole video.
            chain: The chain of steps.
        """
        usual = self.likelihoods(mixed(both, self.shares[False]), past=False)
        tasks: Floats = chain.filtered(usual).tasks[-1]
        task = int(tasks.argmax())
        loose, seen = chain.given([task]).loosened(self.doubt[2]), self._doubtful(both)
        filtered, generator = loose.filtered(seen), np.random.default_rng(0)
        drawn = loose.drawn(filtered.of_task(task), task, self.config.drawn, generator)
        return self._recognition(loose.smoothed(seen, filtered), tasks, drawn=drawn)

    def _recognition(
        self, smoothed: Smoothed, tasks: Floats, logs: Floats | None = None, **more: Any
    ) -> Recognition:
        """Return what rows say, by `log_seen`, too, if it is given."""
        rows = softened(smoothed.rows, self.chained[0])
        if logs is not None:
            rows = softened(
                self.with_networks(smoothed.rows, logs, past=False), self.temperatures[0]
            )
        return Recognition(
            rows=rows,
            begin=smoothed.begin,
            tasks=tasks,
            rate=self.rate,
            taxonomy=self.taxonomy,
            **more,
        )

    def log_seen(self, rows: Rows, *, past: bool) -> Floats:
        """Return log p(label | row) − γ log p(label) [n, K + 1] of all rows [n, D] of a video."""
        usual, changes = self._logs(self._features(rows, past=past), past=past)
        if not past:
            usual = mixed((usual, self._attended(rows, usual)), self.attention_share)
        return mixed((usual, changes), self.shares[past])

    def _attended(self, rows: Rows, usual: Floats) -> Floats:
        """Return `log_seen` by the attention network alone; the usual one without it."""
        if self.attention is None:
            return usual
        logs = attended(self.attention, self.standard.scaled(rows))
        return logs - self.config.prior_power * self.log_prior

    def of_features(self, features: Rows, *, past: bool, seen: Past | None = None) -> Floats:
        """Return the same of features of rows.

        Args:
            features: Features of n rows [n, F].
            past: Whether they are of the rows so far, else of the whole video.
            seen: What the network keeps of the rows before; then of the next row alone.
        """
        return mixed(self._logs(features, past=past, seen=seen), self.shares[past])

    def both_logs(self, rows: Rows, *, past: bool) -> tuple[Floats, Floats]:
        """Return `log_seen` by the usual networks, and by those of changes."""
        return self._logs(self._features(rows, past=past), past=past, both=True)

    def _held(self, rows: Rows, labels: NDArray[np.int64], task: int) -> HeldVideo:
        """Return what it says of a video that it was not trained on."""
        whole, past = (self.both_logs(rows, past=past) for past in (False, True))
        prior, unexpected = self.config.prior_power * self.log_prior, self.config.unexpected
        seen = self._attended(rows, whole[0])
        return HeldVideo(self.chain, (whole, past), prior, labels, task, unexpected, seen)

    def _logs(
        self, features: Rows, *, past: bool, seen: Past | None = None, both: bool = False
    ) -> tuple[Floats, Floats]:
        """Return the same of features [n, F]; of networks without a share, that of the others."""
        share, logs = self.shares[past], list[Floats]()

        def told(network: RowClassifier, features: Rows) -> Floats:
            if seen is None:
                return network.log_probabilities(features)
            return network.ahead(features[0], seen)[None]

        if both or share < 1:
            logs.append(told(self.past if past else self.whole, features))
        if self.changes is not None and (both or share):
            network = self.changes.past if past else self.changes.whole
            logs.append(told(network, change_features(features, self.changes.directions)))
        prior = self.config.prior_power * self.log_prior
        return logs[0] - prior, logs[-1] - prior

    def with_networks(self, rows: Floats, logs: Floats, *, past: bool) -> Floats:
        """Return p(label) [..., K + 1] by the chain and by networks.

        Args:
            rows: p(label) by the chain [..., K + 1].
            logs: `log_seen` of the rows [..., K + 1].
            past: Whether they are seen by the rows up to each.
        """
        return joined(rows, logs + self.config.prior_power * self.log_prior, self.weights[past])

    def likelihoods(self, logs: Floats, *, past: bool) -> Floats:
        """Return p(x | label) of rows [n, K + 1] by `log_seen`, up to a factor of each row."""
        return likelihoods(logs, self.trusts[past], self.config.unexpected)

    def _features(self, rows: Rows, *, past: bool) -> Rows:
        features = past_features if past else whole_features
        return features(self.standard.scaled(rows), self.config, self.rate)

    def save(self, folder: Path) -> None:
        """Write the weights and settings into a run folder."""
        arrays = {f"chain.{name}": one for name, one in self.chain.arrays().items()}
        arrays |= {"log_prior": self.log_prior}
        arrays |= {f"standard.{name}": one for name, one in vars(self.standard).items()}
        networks = {part: getattr(self, part) for part in ("whole", "past", "ahead")}
        if self.changes is not None:
            arrays["changes.directions"] = self.changes.directions
            networks |= {
                f"{part}-changes": getattr(self.changes, part) for part in ("whole", "past")
            }
        tensors = {name: torch.from_numpy(np.asarray(one)) for name, one in arrays.items()}
        networks["attention"] = self.attention
        for part, network in networks.items():
            if network is not None:
                own = network.state_dict()
                tensors |= {f"{part}.{name}": tensor for name, tensor in own.items()}
        write_tensors(folder / RECOGNISER_FILE, tensors)
        header = _Header(
            config=self.config.model_dump(mode="json"),
            rate=self.rate,
            width=self.width,
            trusts=self.trusts,
            temperatures=self.temperatures,
            shares=self.shares,
            weights=self.weights,
            attention=self.attention_share,
            chained=self.chained,
            doubt=self.doubt,
            seen=self.seen,
            held_out=self.held_out,
        )
        write_json(folder / SETTINGS_FILE, header.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path, taxonomy: Taxonomy) -> Self:
        """Read what `save` wrote into a run folder (RunError)."""
        place, file = str(folder / SETTINGS_FILE), str(folder / RECOGNISER_FILE)
        header = read_record(
            _Header, read_json(folder / SETTINGS_FILE, _REMEDY), place, _REMEDY, RunError
        )
        tensors, _ = load_tensors(folder / RECOGNISER_FILE, "pt", _REMEDY, RunError)
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            part, dot, rest = name.partition(".")
            parts.setdefault(part if dot else "", {})[rest if dot else name] = tensor
        networks: dict[str, Any] = {}
        count, width = len(taxonomy.actions) + 1, header.width
        arrays = {
            part: {name: one.numpy() for name, one in parts.pop(part, {}).items()}
            for part in ("", "chain", "standard", "changes")
        }
        try:
            config = validated(RecogniserConfig, header.config, place=place)
            shape = arrays["standard"].get("directions", np.zeros(())).shape
            times, reduced = len(config.memories), min((*shape[1:], width, config.directions))
            standard = {
                "mean": Expected((width,), -1e9, 1e9),
                "deviation": Expected((width,), 1e-9, 1e9),
                "directions": Expected((width, reduced), -1e9, 1e9),
            }
            check_tensors(arrays[""], {"log_prior": Expected((count,), -1e3, 1e-9)}, file)
            check_tensors(arrays["standard"], standard, file)
            rows = {part: _single(arrays[part]) for part in ("standard", "changes")}
            own_actions = [task.actions for task in taxonomy.tasks]
            chain = StepChain.of_arrays(arrays["chain"], own_actions, count - 1, place=file)
            changing = len(arrays["changes"]) > 0
            shapes = [
                (part, own + averages * reduced, own, part != "whole")
                for part, own, averages in (
                    ("whole", reduced, 2 * times),
                    ("past", reduced, times),
                    ("ahead", 2 * reduced + 1, times),
                )
            ]
            if changing:
                shape = arrays["changes"].get("directions", np.zeros(())).shape
                seen = min(shape[-1] if shape else 0, reduced, config.changes)
                directions = {"directions": Expected((reduced, seen), -1e9, 1e9)}
                check_tensors(arrays["changes"], directions, file)
                shapes += [("whole-changes", 2 * times * seen, 0, False)]
                shapes += [("past-changes", times * seen, 0, True)]
            for part, size, own, causal in shapes:
                temporal = config if own else None
                with torch.device("meta"):  # no memory is taken before the shapes are compared
                    network = RowClassifier(
                        size, count, config, temporal=temporal, rows=own, causal=causal
                    ).eval()
                load_weights(network, parts.pop(part, {}), file, copy=False)
                networks[part] = network
            networks["attention"] = None
            if header.attention and config.attention is not None:
                with torch.device("meta"):
                    attention = ASFormer(reduced, count, config.attention).eval()
                load_weights(attention, parts.pop("attention", {}), file, copy=False)
                networks["attention"] = attention
            if parts:
                raise RunError(f"{file}: tensors '{min(parts)}' are unknown.")
        except (ConfigError, RunError) as problem:
            raise RunError(f"{problem} {_REMEDY}") from problem
        seeing = [networks.pop(f"{part}-changes") for part in ("whole", "past") if changing]
        return cls(
            config=config,
            chain=chain,
            changes=Changes(rows["changes"]["directions"], *seeing) if changing else None,
            shares=header.shares,
            weights=header.weights,
            attention_share=header.attention,
            chained=header.chained or header.temperatures,
            doubt=header.doubt or (0.0, header.trusts[0], config.doubts[0]),
            seen=header.seen,
            held_out=header.held_out,
            standard=Standard(**rows["standard"]),
            log_prior=arrays[""]["log_prior"],
            trusts=header.trusts,
            temperatures=header.temperatures,
            rate=header.rate,
            taxonomy=taxonomy,
            **networks,
        )


def _single(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Rows]:
    """Return arrays in the precision of rows."""
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _half(places: NDArray[np.int64], tasks: Sequence[int]) -> NDArray[np.int64]:
    """Return half of the places of videos of each task, rounded up."""
    chosen = np.array([tasks[place] for place in places])
    return np.concatenate([places[chosen == task][::2] for task in np.unique(chosen)])


def next_labels(labels: NDArray[np.integer], background: int) -> NDArray[np.int64]:
    """Return the action of the next step to begin after each row [n]; else the background."""
    found = np.full(len(labels), background, dtype=np.int64)
    for one in reversed(segments(labels, background)):
        found[: one.start] = one.action
    return found
