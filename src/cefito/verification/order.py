"""The order of a task's steps, counted in videos, but for the errors in them.

Let n(a, b) be the number of videos in which the first a came rightly before the first b. A pair was
seen n(a, b) + n(b, a) times, and comes in this order with the probability

    p(a before b) = (n(a, b) + 1/2) / (n(a, b) + n(b, a) + 1).

The graph of a task is a partial order of actions, by the likelihood of its right videos. After some
steps, each action whose predecessors were done is as likely to come next, so that a video has the
probability Π 1 / (number of such actions) over its first steps, and a step before one of its
predecessors, which is a mistake or a rarity, has ε over the number of actions left. From the orders
that all videos keep, that order is added or dropped, one after another, which makes the likelihood
grow most. The prior of an edge is exp(−1/2) if the names of both steps share a word, such as the
thing that both handle, and exp(−3/2) if not; it is exp(−1) from the start, to the end, and where
words do not tell pairs apart. So few videos that happen to agree make no order, and one video that
breaks an order does not end it. Orders that follow from others are left out (the transitive
reduction).

An action that no right video of the task has undoes one done before if their names differ in
opposite words alone, as in "detach base" after "attach base".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy, words
from cefito.errors import ConfigError, RunError
from cefito.files import Expected, Stored, check_tensors

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Places = NDArray[np.int64]
Edges = tuple[tuple[int, int], ...]
"""Pairs of actions (a, b), a before b."""
MOST = 60
"""Actions of a task, of which more are left to counts."""
VIDEOS = 100
"""Videos of a task that are looked at for its graph."""
_RARE = 0.02  # ε
_GROWTH = 1e-9  # of the logarithm of the likelihood, at least
_USUAL = 0.8  # share of the videos that keep an order which is tried
_EDGE, _RELATED, _UNRELATED = 1.0, 0.5, 1.5  # −log prior of an edge
_STEM = 6  # letters that a word is known by, so that "tomatoes" is "tomato"
_MOST_NAMES = 2 / 3  # share of a task's names that have a word which tells something
_COMMON = """a about add after all an and any are as at be before both by contents cup cups done
down each for from g get gram grams high hour hours if in inch inches into is it kg l large let low
make medium min minute minutes ml mm more not of off on one or ounce ounces out over place put sec
second seconds side small some sure tablespoon tablespoons take tbsp teaspoon teaspoons than that
the then there this to tsp two until up use using well when while with"""  # of no thing
_OPTIONAL = 0.4  # p(an action occurs) of which a person says that it may be left out, at most
_KEPT = 0.9  # least share of the videos that keep an order, of a run that stored counts alone
_CERTAIN = 50.0  # videos that an order given by a person counts as
_SECONDS = 0.5  # shortest step
_SHRINK = 0.3, 0.5  # sum of squares and number that each variance of log-lengths is shrunk by
UNUSUAL = 2.0
"""Standard deviations of a length from which on it is unusual."""
_EITHER = 0.125  # α; of orders in right videos of IKEA ASM 0.136 is likeliest, of 8 recipes 0.111
SURPRISING = 0.1
"""m of an order or a length that is unusual, or of what right videos held out show, too."""
_OTHER_NUMBER = 0.2  # m of a step that is missing or repeated
_OPPOSITES = """
add remove, assemble disassemble, attach detach, close open, connect disconnect, cover uncover,
down up, drop lift, fasten unfasten, fold unfold, hook unhook, in out, insert remove, install
uninstall, load unload, lock unlock, loosen tighten, lower raise, mount dismount, mount unmount,
off on, pack unpack, place remove, plug unplug, put take, roll unroll, screw unscrew, tie untie,
wrap unwrap
"""


@dataclass(frozen=True, eq=False)
class TaskOrder(Stored):
    """What videos of one task show of its steps, apart from errors."""

    actions: NDArray[np.int64]  # ids [A], ascending
    videos: int
    before: Floats  # n(a, b) [A, A]
    follows: Floats  # times that b came next after a [A + 1, A + 1]; the start or end is the last
    occurs: Floats  # number of videos with each action [A]
    length: Floats  # mean of log seconds [A]
    spread: Floats  # deviation of log seconds [A]
    place: Floats  # mean place in the video, 0 to 1 [A]; NaN if it never occurred
    places: Places  # place of the first step of each action among those of a video, or −1 [n, A]
    edge_costs: Floats  # −log prior of an edge from a to b [A, A]
    given: bool = False  # whether a person gave the order

    @classmethod
    def of(cls, videos: Sequence[Video], actions: Sequence[int], names: Sequence[str] = ()) -> Self:
        """Count the steps of videos.

        A step with an error of order has no place, nor has one with any error if no step names one
        of order. One with another error has no usual length. An action that was never done rightly
        does not count.

        Args:
            videos: Videos of the task.
            actions: Ids of the task's actions [A].
            names: Names of all actions, by id, whose words decide the prior of the graph.
        """
        ids = np.array(sorted(actions), dtype=np.int64)
        size, index = len(ids), {action: place for place, action in enumerate(sorted(actions))}
        before, follows = np.zeros((size, size)), np.zeros((size + 1, size + 1))
        occurs, lengths = np.zeros(size), [list[float]() for _ in range(size)]
        places = [list[float]() for _ in range(size)]
        videos = [video for video in videos if video.steps]
        right = {step.action for video in videos for step in video.steps if not step.errors}
        videos = videos if right else []
        named = any(step.misplaced for video in videos for step in video.steps)
        firsts = np.full((len(videos), size), -1, dtype=np.int64)
        for row_of, video in zip(firsts, videos, strict=True):
            steps = [step for step in video.steps if step.action in right]
            misplaced = [step.misplaced if named else bool(step.errors) for step in steps]
            row = [index[s.action] for s, wrong in zip(steps, misplaced, strict=True) if not wrong]
            first = list(dict.fromkeys(row))
            row_of[first] = range(len(first))
            done = {*(step.action for step in steps), *video.missing} & right & index.keys()
            occurs[[index[action] for action in done]] += 1
            for number, action in enumerate(first):
                before[action, first[number + 1 :]] += 1
            np.add.at(follows, ([size, *row], [*row, size]), 1)
            for number, action in enumerate(row):
                places[action].append((number + 0.5) / len(row))
            for step in steps:
                if not step.errors:
                    lengths[index[step.action]].append(log_length(step.start, step.end))
        all_lengths = [length for values in lengths for length in values]
        usual = float(np.mean(all_lengths)) if all_lengths else np.log(30.0)
        squares, count = _SHRINK
        return cls(
            actions=ids,
            videos=len(videos),
            before=before,
            follows=follows,
            occurs=occurs,
            length=np.array([(sum(values) + usual) / (len(values) + 1) for values in lengths]),
            spread=np.array(
                [
                    np.sqrt(
                        (len(values) * np.var(values or [0.0]) + squares) / (len(values) + count)
                    )
                    for values in lengths
                ]
            ),
            place=np.array([np.mean(values) if values else np.nan for values in places]),
            places=firsts,
            edge_costs=edge_costs([names[action] for action in ids] if names else [""] * size),
        )

    @property
    def size(self) -> int:
        """Number of actions, A."""
        return len(self.actions)

    @cached_property
    def index(self) -> dict[int, int]:
        """Place of each action."""
        return {int(action): place for place, action in enumerate(self.actions)}

    @cached_property
    def probability(self) -> Floats:
        """p(a before b) [A, A]."""
        return (self.before + 0.5) / (self.before + self.before.T + 1)

    @cached_property
    def costs(self) -> Floats:
        """−log p(a before b) [A, A]."""
        return -np.log(self.probability)

    @cached_property
    def next_costs(self) -> Floats:
        """−log p(b comes next after a) [A + 1, A + 1]; the start or end is the last."""
        sums = self.follows.sum(1, keepdims=True) + 0.1 * max(self.size, 1)
        costs: Floats = -np.log((self.follows + 0.1) / sums)
        return costs

    @cached_property
    def never(self) -> NDArray[np.bool_]:
        """Whether no video has a before b, of at least two with both [A, A]."""
        pairs: NDArray[np.bool_] = (self.before == 0) & (self.before + self.before.T >= 2)
        return pairs

    @cached_property
    def usual(self) -> Floats:
        """p(the action occurs in a video) [A]."""
        return (self.occurs + 0.5) / (self.videos + 1)

    @cached_property
    def omission(self) -> Floats:
        """p(mistake) of an action that is not done in a whole video [A]."""
        if not self.videos:  # a text alone
            return self.usual
        wrong: Floats = mistaken(self.videos - self.occurs, self.videos, _OTHER_NUMBER)
        return wrong

    @cached_property
    def lead(self) -> Floats:
        """How much a is needed before b, max(0, 2 p(a before b) − 1) p(a occurs) [A, A]."""
        shares: Floats = np.maximum(0, 2 * self.probability - 1) * self.usual[:, None]
        np.fill_diagonal(shares, 0)
        return shares

    def first_steps(self, steps: Sequence[Step]) -> dict[int, int]:
        """Map the place of each step that is the first of its action to the action's place in A."""
        first: dict[int, int] = {}
        for place, step in enumerate(steps):
            if step.action in self.index:
                first.setdefault(self.index[step.action], place)
        return {place: action for action, place in first.items()}

    def done_costs(self, actions: Sequence[int]) -> Floats:
        """Return −log p(a before b) of first steps [n, n], a before b; 0 elsewhere.

        `actions` are the places of their actions in A [n], in the order of the steps.
        """
        return np.triu(self.costs[np.ix_(actions, actions)], 1)

    def needs(self, first: dict[int, int], place: int) -> Floats:
        """Return how much each action not done is needed before the first step at a place [A].

        `first` is of the steps that were done, as `first_steps` returns it.
        """
        if place not in first:
            return np.zeros(self.size)
        needs: Floats = self.lead[:, first[place]].copy()
        needs[[*first.values()]] = 0
        return needs

    @cached_property
    def repeated(self) -> Floats:
        """Mean number of repetitions of an action in a video, smoothed by half a video [A]."""
        return (self._again + 0.5) / (self.videos + 1)

    @property
    def _again(self) -> Floats:
        """Number of repetitions of an action in all videos [A]."""
        again: Floats = np.maximum(self.follows.sum(axis=0)[: self.size] - self.occurs, 0)
        return again

    @cached_property
    def repetition(self) -> Floats:
        """p(mistake) of a step that repeats one of its action [A]."""
        wrong: Floats = mistaken(self._again, self.videos, _OTHER_NUMBER)
        return wrong

    @cached_property
    def kept(self) -> Bools:
        """Whether videos keep a before b, or that follows from what they keep [A, A]."""
        seen = self.before + self.before.T
        share = self.before / np.maximum(seen, 1)
        least = 1.0 if len(self.places) else _KEPT
        pairs = np.argwhere((share >= least) & (seen > 0))
        # the surest first; none that contradicts those before it
        order = np.lexsort((-seen[tuple(pairs.T)], -share[tuple(pairs.T)]))
        precedes, itself = np.zeros(self.before.shape, dtype=bool), np.eye(self.size, dtype=bool)
        for a, b in pairs[order]:
            if not precedes[b, a]:
                precedes |= np.outer(precedes[:, a] | itself[a], precedes[b] | itself[b])
        return precedes

    @cached_property
    def earlier(self) -> Bools:
        """Whether a is to come before b, by the graph [A, A]."""
        return likeliest_order(self.kept, self.places, self.edge_costs)

    @property
    def edges(self) -> Edges:
        """The graph: orders that do not follow from others, as pairs of ids."""
        pairs = self.actions[np.argwhere(reduced(self.earlier))]
        return tuple((int(a), int(b)) for a, b in pairs)

    @property
    def optional(self) -> tuple[int, ...]:
        """Ids of the actions that some right videos have, but fewer than half of them."""
        some = (self.usual < 0.5) & ((self.occurs > 0) | (self.videos == 0))
        return tuple(self.actions[some].tolist())

    def with_edges(self, edges: Iterable[tuple[int, int]], optional: Iterable[int] = ()) -> Self:
        """Return the order that a person gives: these edges, what follows from them, no others.

        Args:
            edges: Pairs of ids (a, b): a comes before b.
            optional: Ids of actions that may be left out, beside those that videos leave out.

        Raises:
            ConfigError: Edges in a circle.
        """
        precedes = np.zeros((self.size, self.size), dtype=bool)
        for a, b in reached(edges):
            precedes[self.index[a], self.index[b]] = True
        even = np.where(precedes | precedes.T, 0.0, 1.0) * (1 - np.eye(self.size))
        before = even + _CERTAIN * precedes
        occurs, free = self.occurs.copy(), [self.index[action] for action in optional]
        occurs[free] = np.minimum(occurs[free], _OPTIONAL * (self.videos + 1) - 0.5)
        return replace(self, before=before, places=self.places[:0], occurs=occurs, given=True)

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]], actions: Sequence[int], place: str) -> Self:
        """Build from what `arrays` returned, for a task of these actions.

        Args:
            arrays: The arrays, by name.
            actions: Ids of the task's actions [A].
            place: File of the arrays; begins messages.

        Raises:
            RunError: Other arrays; `place`, their file, begins the message.
        """
        size, many = len(actions), 1e9
        of_before = {
            "places": np.zeros((0, size), dtype=np.int64),
            "edge_costs": np.full((size, size), _EDGE),
        }
        arrays = of_before | arrays
        count = arrays["places"].shape[0] if arrays["places"].ndim else 0
        expected = {
            "actions": Expected((size,), 0, many, "i"),
            "videos": Expected((), 0, many, "i"),
            "before": Expected((size, size), 0, many),
            "follows": Expected((size + 1, size + 1), 0, many),
            "occurs": Expected((size,), 0, many),
            "length": Expected((size,), -many, many),
            "spread": Expected((size,), 1e-9, np.inf),
            "place": Expected((size,), 0, 1, nan=True),
            "places": Expected((count, size), -1, many, "i"),
            "edge_costs": Expected((size, size), 0, many),
            "given": Expected((), 0, 1, "b"),
        }
        check_tensors(arrays, expected, place)
        if arrays["actions"].tolist() != sorted(actions):
            raise RunError(f"{place}: tensor 'actions' has other actions than the task.")
        whole: dict[str, Any] = {"videos": int(arrays["videos"]), "given": bool(arrays["given"])}
        return cls(**{**arrays, **whole})


def right_share(shown: Any, videos: Any) -> Any:
    """Return the probability that a right video shows what k of n of them do: (k + α) / (n + 2 α).

    Most orders are fixed, and the others free: Beta(α, α) with a small α is their prior.
    """
    return (shown + _EITHER) / (videos + 2 * _EITHER)


def by_bayes(right: Any, prior: float) -> Any:
    """Return p(mistake) of what right videos show with probability q: m / (m + (1 − m) q).

    Args:
        right: q.
        prior: m, p(mistake) of it in any video.
    """
    return prior / (prior + (1 - prior) * right)


def mistaken(shown: Any, videos: Any, prior: float) -> Any:
    """Return `by_bayes` of what k of n right videos show, too, whose q is their `right_share`.

    Args:
        shown: k.
        videos: n.
        prior: m.
    """
    return by_bayes(right_share(shown, videos), prior)


def edge_costs(names: Sequence[str]) -> Floats:
    """Return −log of the prior of an edge from a to b, by the names of A actions [A, A]."""
    size, common = len(names), {*_COMMON.split()}
    stems = [
        {word[:_STEM] for word in {*words(name)} - common if not word.isdecimal()} for name in names
    ]
    number = Counter(chain.from_iterable(stems))
    stems = [{stem for stem in row if number[stem] <= _MOST_NAMES * size} for row in stems]
    shared = np.array([[not a.isdisjoint(b) for b in stems] for a in stems]).reshape(size, size)
    tells = len({*shared[~np.eye(size, dtype=bool)].tolist()}) == 2  # some pairs, but not all
    return np.where(shared, _RELATED, _UNRELATED) if tells else np.full((size, size), _EDGE)


def likeliest_order(precedes: Bools, places: Places, costs: Floats) -> Bools:
    """Return the partial order of the highest likelihood near another one [A, A].

    Tasks of more than `MOST` actions keep the other one, and `VIDEOS` videos are enough.

    Args:
        precedes: Whether a comes before b: orders that all videos keep, and what follows from them.
        places: Place of the first step of each action among those of a video, or −1 [n, A].
        costs: Minus the log prior of each edge [A, A].
    """
    precedes, places = precedes.copy(), places[:VIDEOS]
    if not 0 < len(precedes) <= MOST or not len(places):
        return precedes
    both = (places[:, :, None] >= 0) & (places[:, None] >= 0)
    kept = (both & (places[:, :, None] < places[:, None])).sum(axis=0)
    usual = kept > _USUAL * both.sum(axis=0)  # pairs that may be ordered
    current = log_likelihood(precedes, places) - cost_of(precedes, costs)
    while True:
        best = None
        for a, b in np.argwhere(reduced(precedes) | (_free(precedes) & usual)):
            precedes[a, b] ^= True  # no other order follows from an edge, or from a free pair
            value = log_likelihood(precedes, places) - cost_of(precedes, costs)
            precedes[a, b] ^= True
            if value > current + _GROWTH:
                current, best = value, (a, b)
        if best is None:
            return precedes
        precedes[best] ^= True


def _free(precedes: Bools) -> Bools:
    """Return the pairs without an order, from which no other order would follow [A, A]."""
    one = precedes.astype(int)
    # what comes before a, but not before b; what comes after b, but not after a
    lacking = (one.T @ (1 - one) > 0) | ((1 - one) @ one.T > 0)
    pairs: Bools = ~(precedes | precedes.T | lacking | np.eye(len(one), dtype=bool))
    return pairs


def reduced(precedes: Bools) -> Bools:
    """Return the orders that do not follow from others, the transitive reduction [A, A]."""
    edges: Bools = precedes & ~((precedes.astype(int) @ precedes.astype(int)) > 0)
    return edges


def cost_of(precedes: Bools, costs: Floats) -> float:
    """Return −log of the prior of all edges, with those from the start and to the end."""
    ends = (~precedes.any(axis=0)).sum() + (~precedes.any(axis=1)).sum()
    return float(costs[reduced(precedes)].sum() + _EDGE * ends)


def log_likelihood(precedes: Bools, places: Places) -> float:
    """Return the logarithm of the probability of the first steps of videos."""
    # place of the last predecessor of each action in each video, −1 without one [n, A]
    last = np.where(precedes[None], places[:, :, None], -1).max(axis=1, initial=-1)
    done, steps = places >= 0, (places >= 0).sum(axis=1)
    at = np.arange(places.shape[1])  # places [L]
    # an action is free at a place from its last predecessor on, until it is done
    free = ((last[:, :, None] < at) & (places[:, :, None] >= at)).sum(axis=1)  # [n, L]
    broken = done & (last > places)
    video, _ = np.nonzero(done)
    place, wrong = places[done], broken[done]
    chances = np.where(
        wrong, _RARE / np.maximum(steps[video] - place, 1), 1 / np.maximum(free[video, place], 1)
    )
    return float(np.log(chances).sum())


def signed_log(values: Floats) -> NDArray[np.float32]:
    """Return sign(x) log(1 + |x|) of each number."""
    return (np.sign(values) * np.log1p(np.abs(values))).astype(np.float32)


def log_length(start: float, end: float) -> float:
    """Return the logarithm of a step's seconds."""
    return float(np.log(max(end - start, _SECONDS)))


def reached(edges: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return all orders that edges say, also those that follow (ConfigError for a circle)."""
    pairs = list(edges)
    actions, places = np.unique(np.array(pairs, dtype=np.int64).reshape(-1, 2), return_inverse=True)
    found = np.zeros((len(actions), len(actions)), dtype=bool)
    found[tuple(places.reshape(-1, 2).T)] = True
    for through in range(len(actions)):  # Warshall's closure
        found |= found[:, through, None] & found[through]
    if circle := actions[found.diagonal()].tolist():
        listed = ", ".join(f"action {action}" for action in circle)
        raise ConfigError(f"the order goes in a circle through {listed}.")
    return frozenset((int(actions[a]), int(actions[b])) for a, b in np.argwhere(found))


def present(
    order: TaskOrder, steps: Iterable[int], taxonomy: Taxonomy
) -> tuple[list[int], list[int]]:
    """Return the places in the order of the actions that are done, and of those undone.

    Args:
        order: Order of the task.
        steps: Actions that were done, in order.
        taxonomy: Names of the actions.
    """
    done, undone = list[int](), list[int]()
    for action in steps:
        if _is_right(order, action):
            place = order.index[action]
            done = [*(other for other in done if other != place), place]
            undone = [other for other in undone if other != place]
            continue
        taken = [place for place in done if _opposed(order.actions[place], action, taxonomy)]
        done = [other for other in done if other not in taken]
        undone += taken
    return done, undone


def repetitions(order: TaskOrder, steps: Iterable[int], taxonomy: Taxonomy) -> list[int]:
    """Return how many steps of its action came before each step, since one undid them.

    Arguments are those of `present`.
    """
    totals, counts = dict[int, int](), []
    for action in steps:
        counts.append(totals.get(action, 0))
        if not _is_right(order, action):
            totals = {a: n for a, n in totals.items() if not _opposed(a, action, taxonomy)}
        totals[action] = counts[-1] + 1
    return counts


def _is_right(order: TaskOrder, action: int) -> bool:
    """Return whether right videos of the task have an action, or it has none but the action."""
    place = order.index.get(action)
    return place is not None and bool(order.occurs[place] or not order.videos)


def _opposed(action: int, other: int, taxonomy: Taxonomy) -> bool:
    return _are_opposite(words(taxonomy.actions[action].name), words(taxonomy.actions[other].name))


def _are_opposite(name: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two names differ in opposite words alone."""
    if len(name) != len(other):
        return False
    differing = [frozenset(pair) for pair in zip(name, other, strict=True) if len({*pair}) == 2]
    return bool(differing) and _opposites().issuperset(differing)


@cache
def _opposites() -> frozenset[frozenset[str]]:
    return frozenset(frozenset(pair.split()) for pair in _OPPOSITES.split(","))
