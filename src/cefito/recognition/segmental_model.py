"""A trained segmental recogniser: which step each row of a video shows.

A row x_t says p(x_t | label) ∝ (p(label | x_t) / p(label)^γ)^λ + ε, by networks that see either the
whole video or the past alone; `StepChain` joins the rows. The probabilities of labels are then
raised to a power 1 / T. A label is that of chain and networks,
p ∝ p(label | chain)^(1 − w) p(label | networks)^w. A further network of the past, its mean and the
time says which step comes next, beside the chain.

Of whole videos, log p(label | x) is (1 − a) that of these networks + a that of an attention network
(`attention`); with networks of changes (`changes`), (1 − s) that of the usual ones + s theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.data.vocabulary import Taxonomy, find_action, find_task
from cefito.errors import ConfigError, RunError
from cefito.files import Expected, check_tensors, load_weights
from cefito.recognition.asformer import ASFormer
from cefito.recognition.attention import attended
from cefito.recognition.chain import Floats, Smoothed, StepChain, likelihoods, softened
from cefito.recognition.changes import Changes, change_features
from cefito.recognition.classifier import RowClassifier, Standard, past_features, whole_features
from cefito.recognition.held_out import joined, mixed
from cefito.recognition.plan_chain import PlanChain, either_order
from cefito.recognition.recogniser import (
    RECOGNISER_FILE,
    REMEDY,
    SETTINGS_FILE,
    BaseRecogniser,
    HeldFilm,
    RecogniserHeader,
    Recognition,
    read_parts,
    unchained,
    write_parts,
)
from cefito.recognition.scores import HeldOutScores
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.temporal import Past, Rows
from cefito.recognition.trials import SeenMistakes
from cefito.runtime import weights_to_come
from cefito.settings import validated

# in both
_KEPT = (
    *("rate", "trusts", "temperatures", "shares", "weights"),
    *("doubt_attends", "least_ratios", "seen", "held_out", "again"),
)

_Power = Annotated[float, Field(ge=1e-3, le=1e3)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Ratio = Annotated[float, Field(ge=0, le=1e4)]


class _Header(RecogniserHeader):
    trusts: tuple[_Power, _Power]  # λ of whole videos, and of the past alone
    temperatures: tuple[_Power, _Power]  # T
    shares: tuple[_Share, _Share] = (0.0, 0.0)  # s
    weights: tuple[_Share, _Share] = (0.0, 0.0)  # w
    attention: _Share = 0.0  # a
    chained: tuple[_Power, _Power] | None = None  # T where w = 0; None in runs of before
    # s, λ, and the share of steps in any order, when videos are verified; None in runs of before
    doubt: tuple[_Share, _Power, _Share] | None = None
    doubt_attends: bool = False  # False in runs of before
    least_ratios: tuple[_Ratio, _Ratio] = (0.0, 0.0)
    seen: tuple[SeenMistakes, ...] | None = None  # of each task
    held_out: HeldOutScores | None = None
    again: tuple[tuple[_Share, ...], ...] = ()  # of each action; () in runs of before


@dataclass(frozen=True, eq=False)
class SegmentalModel(BaseRecogniser):
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
    # whether a is the share of the attention network then, too, else 0
    doubt_attends: bool = False
    # log L / L' of orders below which that of two neighbours, and a film by its median, is in doubt
    least_ratios: tuple[float, float] = (0.0, 0.0)
    # by task, in videos held out; None if none was
    seen: tuple[SeenMistakes, ...] | None = None
    held_out: HeldOutScores | None = None
    # by action, share of the videos with 1, 2, … of its steps that have one more; () for none
    again: tuple[tuple[float, ...], ...] = ()
    films: Mapping[int, HeldFilm] = field(default_factory=dict)

    def given_orders(self, orders: Mapping[int, Iterable[tuple[int, int]]]) -> Self:
        """Return a recogniser that makes steps against the orders of their task less probable.

        For each pair (a, b) of actions of a task, it is less probable that a directly follows b.
        """
        if not self.config.chain:
            return super().given_orders(orders)
        return replace(self, chain=self.chain.with_orders(orders))

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
        both, scaled = self.both_logs(rows, past=False), self.standard.scaled(rows)
        if doubt and plan is None:
            both = self._attending(scaled, both) if self.doubt_attends else both
            return self._doubted(both, chain, asked=known is None)
        whole = self._attending(scaled, both)
        both = whole if self.doubt_attends else both
        logs = mixed(whole, self.shares[False])
        seen = self.likelihoods(logs, past=False)
        if plan is None:
            smoothed = chain.smoothed(seen)
            tasks = smoothed.tasks
            if known is None and self._is_strange(both, int(tasks.argmax())):
                tasks = tasks / 2
            return self._recognition(smoothed, tasks, logs)
        alone = np.eye(len(self.taxonomy.tasks))[known]
        return self._recognition(line.smoothed(seen), alone, plan=tuple(plan))

    def doubted_so_far(self, scaled: Rows) -> Floats:
        """Return p(x | label) of rows so far with doubt, as if of a whole video [n, K + 1]."""
        both = self._logs(whole_features(scaled, self.config, self.rate), past=False, both=True)
        return self._doubtful(self._attending(scaled, both) if self.doubt_attends else both)

    def _doubtful(self, both: tuple[Floats, Floats]) -> Floats:
        share, trust, _ = self.doubt
        return likelihoods(mixed(both, share), trust, self.config.unexpected)

    def _doubted(
        self, both: tuple[Floats, Floats], chain: StepChain, *, asked: bool = True
    ) -> Recognition:
        """Recognise steps with doubt in the usual order, by which the task is recognised first.

        Args:
            both: `both_logs` of a whole video, with the attention network if `doubt_attends`.
            chain: The chain of steps.
            asked: Whether a film that shows its order less than right ones loses half of p(task).
        """
        usual = self.likelihoods(mixed(both, self.shares[False]), past=False)
        tasks: Floats = chain.filtered(usual).tasks[-1]
        task = int(tasks.argmax())
        loose, seen = chain.given([task]).loosened(self.doubt[2]), self._doubtful(both)
        filtered, generator = loose.filtered(seen), np.random.default_rng(0)
        drawn = loose.drawn(filtered.of_task(task), task, self.config.drawn, generator)
        drawn, strange = either_order(drawn, loose, task, seen, generator, leasts=self.least_ratios)
        tasks = tasks / 2 if strange and asked else tasks
        return self._recognition(loose.smoothed(seen, filtered), tasks, drawn=drawn)

    def _is_strange(self, both: tuple[Floats, Floats], task: int) -> bool:
        """Whether a film seems to show none of the tasks, by its likeliest labels with doubt."""
        if not self.least_ratios[1]:
            return False
        loose, seen = self.chain.given([task]).loosened(self.doubt[2]), self._doubtful(both)
        labels, generator = loose.smoothed(seen).rows.argmax(axis=1), np.random.default_rng(0)
        drawn = labels[None], loose, task, seen, generator
        return either_order(*drawn, leasts=self.least_ratios)[1]

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
        both = self._logs(self._features(rows, past=past), past=past)
        if not past:
            both = self._attending(self.standard.scaled(rows), both)
        return mixed(both, self.shares[past])

    def _attending(self, scaled: Rows, both: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Return `both_logs` of a whole video with the attention network's share."""
        seen = self._attended(scaled, both[0])
        return mixed((both[0], seen), self.attention_share), both[1]

    def _attended(self, scaled: Rows, usual: Floats) -> Floats:
        """Return `log_seen` by the attention network alone; the usual one without it."""
        if self.attention is None:
            return usual
        return attended(self.attention, scaled) - self.config.prior_power * self.log_prior

    def of_features(self, features: Rows, *, past: bool, seen: Past | None = None) -> Floats:
        """Return `log_seen` of the features of rows, without the attention network.

        Args:
            features: Features of n rows [n, F].
            past: Whether they are of the rows so far, else of the whole video.
            seen: What the network keeps of the rows before; then of the next row alone.
        """
        return mixed(self._logs(features, past=past, seen=seen), self.shares[past])

    def both_logs(self, rows: Rows, *, past: bool) -> tuple[Floats, Floats]:
        """Return `log_seen` by the usual networks and by the networks of changes."""
        return self._logs(self._features(rows, past=past), past=past, both=True)

    def _logs(
        self, features: Rows, *, past: bool, seen: Past | None = None, both: bool = False
    ) -> tuple[Floats, Floats]:
        """Return `log_seen` by both kinds of networks; a kind of share 0 returns the other's."""
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

    def with_networks(
        self, rows: Floats, logs: Floats, *, past: bool, share: float = 1.0
    ) -> Floats:
        """Return p(label) [..., K + 1] by the chain and by networks.

        Args:
            rows: p(label) by the chain [..., K + 1].
            logs: `log_seen` of the rows [..., K + 1].
            past: Whether they are seen by the rows up to each.
            share: Of the weight of networks, which falls where the chain knows later rows.
        """
        alone = logs + self.config.prior_power * self.log_prior
        return joined(rows, alone, share * self.weights[past])

    def likelihoods(self, logs: Floats, *, past: bool) -> Floats:
        """Return p(x | label) of rows [n, K + 1] by `log_seen`, up to a factor of each row."""
        return likelihoods(logs, self.trusts[past], self.config.unexpected)

    def _features(self, rows: Rows, *, past: bool) -> Rows:
        features = past_features if past else whole_features
        return features(self.standard.scaled(rows), self.config, self.rate)

    def save(self, folder: Path) -> None:
        """Write the weights and settings into a run folder."""
        parts = {"": {"log_prior": self.log_prior}, "chain": self.chain.arrays()}
        parts |= {"standard": vars(self.standard)}
        networks = {part: getattr(self, part) for part in ("whole", "past", "ahead", "attention")}
        if self.changes is not None:
            parts["changes"] = {"directions": self.changes.directions}
            networks |= {
                f"{part}-changes": getattr(self.changes, part) for part in ("whole", "past")
            }
        for part, network in networks.items():
            if network is not None:
                parts[part] = network.state_dict()
        header = _Header(
            config=self.config.model_dump(mode="json"),
            width=self.width,
            attention=self.attention_share,
            chained=self.chained,
            doubt=self.doubt,
            **{name: getattr(self, name) for name in _KEPT},
        )
        write_parts(folder, header, parts)

    @classmethod
    def load(cls, folder: Path, taxonomy: Taxonomy) -> Self:
        """Read what `save` wrote into a run folder (RunError)."""
        place, file = str(folder / SETTINGS_FILE), str(folder / RECOGNISER_FILE)
        header, parts = read_parts(folder, _Header)
        networks: dict[str, Any] = {}
        count = len(taxonomy.actions) + 1
        arrays = {
            part: {name: one.numpy() for name, one in parts.pop(part, {}).items()}
            for part in ("", "chain", "standard", "changes")
        }
        try:
            config = validated(RecogniserConfig, header.config, place=place)
            actions = {
                action for one in header.seen or () for pair in one.unseen for action in pair
            }
            if not actions <= {*range(count - 1)}:
                raise RunError(f"{place}: actions that were not seen are none of the taxonomy.")
            if len(header.again) not in (0, count - 1):
                raise RunError(f"{place}: again has {len(header.again)} actions, not {count - 1}.")
            standard = Standard.of_arrays(arrays["standard"], header.width, config.directions, file)
            times, reduced = len(config.memories), standard.directions.shape[1]
            check_tensors(arrays[""], {"log_prior": Expected((count,), -1e3, 1e-9)}, file)
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
                expected = {"directions": Expected((reduced, seen), -1e9, 1e9)}
                check_tensors(arrays["changes"], expected, file)
                directions = arrays["changes"]["directions"].astype(np.float32)
                shapes += [("whole-changes", 2 * times * seen, 0, False)]
                shapes += [("past-changes", times * seen, 0, True)]
            for part, size, own, causal in shapes:
                temporal = config if own else None
                with weights_to_come():
                    network = RowClassifier(
                        size, count, config, temporal=temporal, rows=own, causal=causal
                    ).eval()
                load_weights(network, parts.pop(part, {}), file, copy=False)
                networks[part] = network
            networks["attention"] = None
            if header.attention and config.attention is not None:
                with weights_to_come():
                    attention = ASFormer(reduced, count, config.attention).eval()
                load_weights(attention, parts.pop("attention", {}), file, copy=False)
                networks["attention"] = attention
            if parts:
                raise RunError(f"{file}: tensors '{min(parts)}' are unknown.")
        except (ConfigError, RunError) as problem:
            raise RunError(f"{problem} {REMEDY}") from problem
        seeing = [networks.pop(f"{part}-changes") for part in ("whole", "past") if changing]
        return cls(
            config=config,
            chain=chain,
            changes=Changes(directions, *seeing) if changing else None,
            attention_share=header.attention,
            chained=header.chained or header.temperatures,
            doubt=header.doubt or (0.0, header.trusts[0], config.doubts[0]),
            standard=standard,
            log_prior=arrays[""]["log_prior"],
            taxonomy=taxonomy,
            **networks,
            **{name: getattr(header, name) for name in _KEPT},
        )
