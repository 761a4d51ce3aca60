"""The segmental recogniser as graphs of ONNX: of whole videos, and of one row after another.

All of `SegmentalRecogniser` is inside: the scaling and averages of rows, all networks, and the
chain's dynamic programme, forwards and backwards, in double precision. Outside are the search for
segments in the labels, steps that are known, and doubt in the usual order. The follower tells the
present step, the task and the next one; what later rows say of earlier ones is outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cefito.export.graph import Graph
from cefito.recognition.asformer import UNSEEN, ASFormer
from cefito.recognition.chain import StepChain
from cefito.recognition.classifier import RowClassifier
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.temporal import TemporalNetwork

_CLIPPED = 5.0  # standard deviations, as of `Standard`
_NOTHING = -1e30  # logarithm of 0
_LEAST = 1e-300
_VARIANCE = 1e-5  # least one, as of `torch.nn.functional.layer_norm`
_FEW = 1e-30  # least probability of a label beside networks
_DOUBLE = np.float64


def _float(values: Any) -> NDArray[np.float32]:
    return np.asarray(values, dtype=np.float32)


def _ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _array(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().numpy()
    return array


class _Networks:
    """Nodes of the networks of a recogniser, for rows [n, …]."""

    def __init__(self, graph: Graph, model: SegmentalRecogniser) -> None:
        self.graph, self.model = graph, model
        self.times = len(model.config.memories)
        self.shares = _float(1 - np.exp(-1 / (_float(model.config.memories) * model.rate)))

    def scaled(self, rows: str) -> str:
        """Rows [n, P] as `Standard.scaled` gives them."""
        graph, standard = self.graph, self.model.standard
        centred = graph("Sub", rows, standard.mean)
        clipped = graph("Clip", graph("Div", centred, standard.deviation), *_limits())
        return graph("MatMul", clipped, standard.directions)

    def logs(self, network: RowClassifier, features: str, seen: str | None) -> str:
        """Log p(label) [n, K + 1] by features [n, F], and by the temporal network's logits."""
        graph = self.graph
        shifted = graph("Sub", features, _array(network.mean))
        scaled = graph("Div", shifted, _array(network.deviation))
        members = []
        for member in network.members:
            assert isinstance(member, nn.Sequential)
            hidden = graph("Relu", self.linear(scaled, member[1]))
            logits = graph("LogSoftmax", self.linear(hidden, member[4]), axis=-1)
            members.append(graph("Unsqueeze", logits, _ints(0)))
        together = graph("Concat", *members, axis=0)
        logs = graph("ReduceLogSumExp", together, _ints(0), keepdims=0)
        logs = graph("Sub", logs, _float(np.log(len(members))))
        if seen is None:
            return logs
        temporal = graph("LogSoftmax", seen, axis=-1)
        return graph("Div", graph("Add", logs, temporal), _float(2.0))

    def linear(self, values: str, layer: Any) -> str:
        """Values [n, …] through a linear layer."""
        product = self.graph("MatMul", values, np.ascontiguousarray(_array(layer.weight).T))
        return self.graph("Add", product, _array(layer.bias))

    def mixed(
        self,
        features: str,
        network: RowClassifier,
        seen: str | None,
        *,
        past: bool,
        attended: str | None = None,
    ) -> str:
        """`log_seen` [n, K + 1], double, by features [n, F], and as `logs` and `_attended` give."""
        graph, model, share = self.graph, self.model, self.model.shares[past]
        logs = self.logs(network, features, seen)
        if attended is not None:
            halves = _float(1 - model.attention_share), _float(model.attention_share)
            logs = graph("Add", graph("Mul", logs, halves[0]), graph("Mul", attended, halves[1]))
        if model.changes is not None and share:
            changing = model.changes.past if past else model.changes.whole
            directions = model.changes.directions
            shape = _ints(0, -1, len(directions))
            blocks = graph("MatMul", graph("Reshape", features, shape), directions)
            count = 1 + (1 if past else 2) * self.times
            first, others = (
                graph("Slice", blocks, _ints(a), _ints(b), _ints(1))
                for a, b in ((0, 1), (1, count))
            )
            flat = graph("Reshape", graph("Sub", first, others), _ints(0, -1))
            other = self.logs(changing, flat, None)
            shares = _float(1 - share), _float(share)
            logs = graph("Add", graph("Mul", logs, shares[0]), graph("Mul", other, shares[1]))
        prior = model.config.prior_power * model.log_prior
        return graph("Sub", graph("Cast", logs, to=_kind(_DOUBLE)), prior)

    def likelihoods(self, logs: str, *, past: bool) -> str:
        """p(x | label) [n, K + 1] up to a factor of each row."""
        graph, model = self.graph, self.model
        most = graph("ReduceMax", logs, _ints(1), keepdims=1)
        scaled = graph("Exp", graph("Mul", graph("Sub", logs, most), _double(model.trusts[past])))
        return graph("Add", scaled, _double(model.config.unexpected))

    def with_networks(self, rows: str, logs: str, *, past: bool) -> str:
        """p(label) [n, K + 1] by the chain, and by networks."""
        graph, model, weight = self.graph, self.model, self.model.weights[past]
        if weight == 0:
            return rows
        alone = graph("Add", logs, model.config.prior_power * model.log_prior)
        known = graph("Log", graph("Max", rows, _double(_FEW)))
        both = graph("Mul", known, _double(1 - weight)), graph("Mul", alone, _double(weight))
        return graph("Softmax", graph("Add", *both), axis=-1)

    def softened(self, rows: str, temperature: float) -> str:
        """Rows [n, K + 1] to the power 1 / T."""
        powers = self.graph("Pow", rows, _double(1 / temperature))
        return self.shared(powers, 1)

    def shared(self, values: str, *axes: int) -> str:
        """Values divided by their sums over some axes."""
        sums = self.graph("ReduceSum", values, _ints(*axes), keepdims=1)
        return self.graph("Div", values, self.graph("Max", sums, _double(_LEAST)))


def _double(value: float) -> NDArray[np.float64]:
    return np.array(value, dtype=_DOUBLE)


def _limits() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _float(-_CLIPPED), _float(_CLIPPED)


def _kind(kind: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def whole_recogniser(model: SegmentalRecogniser) -> Graph:
    """Return rows [n, D] → p(label) of each row [n, K + 1], p(task) [C]; label K is no step."""
    graph = Graph()
    nodes, labels = _Networks(graph, model), len(model.taxonomy.actions) + 1
    rows = graph.input("rows", ("n", model.width))
    scaled, width = nodes.scaled(rows), model.standard.directions.shape[1]
    centred = graph("Sub", scaled, graph("ReduceMean", scaled, _ints(0), keepdims=1))
    averages = [_averages(graph, nodes, centred, width, backwards=back) for back in (False, True)]
    features = graph("Concat", centred, *averages, axis=1)
    seen = None
    if model.whole.temporal is not None:
        seen = _convolved(graph, model.whole.temporal, centred)
    attended = None
    if model.attention is not None:
        attended = _attended(nodes, model.attention, scaled)
    logs = nodes.mixed(features, model.whole, seen, past=False, attended=attended)
    likely = nodes.likelihoods(logs, past=False)
    chain = _Chain(graph, model.chain)
    within, sums = chain.filtered(likely)
    by_chain, tasks = chain.smoothed(within, sums, likely)
    joint = nodes.with_networks(by_chain, logs, past=False)
    shown = nodes.softened(joint, model.temperatures[0])
    single = _kind(np.float32)
    graph.output(graph("Cast", shown, to=single), "labels", ("n", labels))
    graph.output(graph("Cast", tasks, to=single), "tasks", (len(model.taxonomy.tasks),))
    return graph


def _averages(graph: Graph, nodes: _Networks, rows: str, width: int, *, backwards: bool) -> str:
    """Exponential averages of rows [n, P] of each time constant, [n, M P]."""
    times = nodes.times
    first = graph("Slice", rows, _ints(-1 if backwards else 0), _ints(2**40 if backwards else 1))
    begin = graph("Expand", first, _ints(times, width))

    def step(body: Graph, states: Sequence[str], read: Sequence[str]) -> Any:
        off = body("Sub", body("Unsqueeze", read[0], _ints(0)), states[0])
        moved = body("Add", states[0], body("Mul", nodes.shares[:, None], off))
        return [moved], [moved]

    shapes = [(times, width)], [(width,)], [(times, width)]
    _, averages = graph.scan([begin], [rows], step, shapes=shapes, backwards=backwards)
    return graph("Reshape", averages, _ints(0, times * width))


def _convolved(graph: Graph, network: TemporalNetwork, rows: str) -> str:
    """Logits [n, K + 1] of a network that sees all rows [n, P]."""
    hidden = _through(graph, _upright(graph, rows), network.inner)
    for place, (dilated, joined) in enumerate(zip(network.dilated, network.joined, strict=True)):
        made = _through(graph, graph("Relu", _through(graph, hidden, dilated, 2**place)), joined)
        hidden = graph("Add", hidden, made)
    return _flat(graph, _through(graph, graph("Relu", hidden), network.outer))


def _upright(graph: Graph, rows: str) -> str:
    """Rows [n, C] as a batch of one [1, C, n]."""
    return graph("Unsqueeze", graph("Transpose", rows, perm=[1, 0]), _ints(0))


def _flat(graph: Graph, values: str) -> str:
    """A batch of one [1, C, n] as rows [n, C]."""
    return graph("Transpose", graph("Squeeze", values, _ints(0)), perm=[1, 0])


def _through(graph: Graph, values: str, layer: Any, span: int = 0) -> str:
    """Values [1, C, n] through a convolution of dilation `span`."""
    more = {"pads": [span, span], "dilations": [max(span, 1)]}
    return graph("Conv", values, _array(layer.weight), _array(layer.bias), **more)


def _attended(nodes: _Networks, network: ASFormer, rows: str) -> str:
    """Log p(label) [n, K + 1] by the last stage of a network that sees all rows [n, P].

    Each block attends to all rows, of which those out of its reach have no weight: n² numbers.
    """
    graph = nodes.graph
    count = graph("Gather", graph("Shape", rows), np.array(0))
    places = graph("Range", np.array(0), count, np.array(1))
    columns = (graph("Unsqueeze", places, _ints(axis)) for axis in (1, 0))
    away = graph("Abs", graph("Sub", *columns))  # [n, n]

    def stage(values: str, part: Any, encoded: str | None) -> tuple[str, str]:
        hidden = _through(graph, values, part.inner)
        for layer, block in enumerate(part.blocks):
            made = graph("Relu", _through(graph, hidden, block.dilated, 2**layer))
            off = graph("Sub", made, graph("ReduceMean", made, _ints(2), keepdims=1))
            variance = graph("ReduceMean", graph("Mul", off, off), _ints(2), keepdims=1)
            normed = graph("Div", off, graph("Sqrt", graph("Add", variance, _float(_VARIANCE))))
            asked = _flat(graph, normed)
            queries, keys = nodes.linear(asked, block.queries), nodes.linear(asked, block.keys)
            seen = nodes.linear(asked if encoded is None else encoded, block.values)
            scores = graph("MatMul", queries, graph("Transpose", keys, perm=[1, 0]))
            scores = graph("Mul", scores, _float(block.queries.out_features**-0.5))
            far = graph("Greater", away, np.array(block.reach))
            shares = graph("Softmax", graph("Where", far, _float(UNSEEN), scores), axis=-1)
            told = nodes.linear(graph("MatMul", shares, seen), block.attended)
            more = graph("Mul", _upright(graph, told), _float(block.share))
            made = _through(graph, graph("Add", made, more), block.joined)
            hidden = graph("Add", hidden, made)
        logs = graph("LogSoftmax", _through(graph, hidden, part.outer), axis=1)
        return logs, _flat(graph, hidden)

    logs, encoded = stage(_upright(graph, rows), network.encoder, None)
    for decoder in network.decoders:
        logs, _ = stage(graph("Exp", logs), decoder, encoded)
    return _flat(graph, logs)


class _Chain:
    """Nodes of the chain: `within` [C, S] of a row, and logarithms [C, 2], as of `Filtered`."""

    def __init__(self, graph: Graph, chain: StepChain) -> None:
        self._graph, self.chain = graph, chain
        self.count, self.size = chain.labels.shape
        self.labels, self.background = chain.labels.ravel(), chain.background
        inner = np.ones(self.size)
        inner[-1] = 0
        self.inner = inner
        self.start = chain.start.within[0]
        self.logs = np.maximum(chain.start.logs[0], _NOTHING)
        self.matrix = graph.constant(chain.matrix)
        self.sides = graph.constant(np.stack([inner, 1 - inner], axis=1))

    def step(
        self, graph: Graph, within: str, logs: str, likely: str, begun: str
    ) -> tuple[str, str]:
        """Return both after a row of likelihoods [K + 1]; `begun` is 0 before the first row."""
        shape = _ints(self.count, self.size)
        moved = graph("MatMul", graph("Unsqueeze", within, _ints(1)), self.matrix)
        moved = graph("Squeeze", moved, _ints(1))
        states = graph("Where", graph("Greater", begun, _double(0)), moved, within)
        seen = graph("Reshape", graph("Gather", likely, self.labels), shape)
        joint = graph("Mul", states, seen)
        sides = graph("MatMul", joint, self.sides)
        first = graph("Slice", sides, _ints(0), _ints(1), _ints(1))
        inside = graph("Div", graph("Mul", joint, self.inner), graph("Max", first, _double(_LEAST)))
        before, ended = (graph("Slice", logs, _ints(a), _ints(a + 1), _ints(1)) for a in (0, 1))
        after = graph("Add", graph("Log", graph("Max", sides, _double(_LEAST))), before)
        goes_on, ends = (graph("Slice", after, _ints(a), _ints(a + 1), _ints(1)) for a in (0, 1))
        pause = graph("Log", graph("Gather", likely, _ints(self.background)))
        both = graph("Concat", ends, graph("Add", ended, pause), axis=1)
        ends = graph("ReduceLogSumExp", both, _ints(1), keepdims=1)
        return inside, graph("Concat", goes_on, ends, axis=1)

    def filtered(self, likely: str) -> tuple[str, str]:
        """Return `within` [n, C, S] and logarithms [n, C, 2] of all rows."""

        def step(body: Graph, states: Sequence[str], read: Sequence[str]) -> Any:
            inside, after = self.step(body, states[0], states[1], read[0], states[2])
            return [inside, after, body.constant(np.ones(1))], [inside, after]

        both, graph = [(self.count, self.size), (self.count, 2)], self._graph
        starts = [
            graph.constant(self.start),
            graph.constant(self.logs),
            graph.constant(np.zeros(1)),
        ]
        shapes = [*both, (1,)], [(self.background + 1,)], both
        *_, within, logs = graph.scan(starts, [likely], step, shapes=shapes, kind=_DOUBLE)
        return within, logs

    def smoothed(self, within: str, logs: str, likely: str) -> tuple[str, str]:
        """Return p(label) [n, K + 1] and p(task) [C] given all rows."""
        graph, chain, shape = self._graph, (self.count, self.size), _ints(self.count, self.size)
        last = graph("Squeeze", graph("Slice", logs, _ints(-1), _ints(2**40), _ints(0)), _ints(0))
        total = graph("ReduceLogSumExp", last, _ints(0, 1), keepdims=0)
        side = graph.constant(1 - self.inner)

        def step(body: Graph, states: Sequence[str], read: Sequence[str]) -> Any:
            after, scale, begun = states
            inside, sums, seen = read
            # β of the row before, by the likelihoods of this one, which the state holds
            later = body("Mul", after, self.inner)
            steps, ended = (body("Slice", scale, _ints(a), _ints(a + 1), _ints(1)) for a in (0, 1))
            later = body("Add", later, body("Mul", body("Exp", body("Sub", ended, steps)), side))
            later = body(
                "Squeeze", body("MatMul", self.matrix, body("Unsqueeze", later, _ints(2))), _ints(2)
            )
            most = body("ReduceMax", body("Mul", later, self.inner), _ints(1), keepdims=1)
            moved = body("Concat", body("Add", steps, body("Log", most)), ended, axis=1)
            is_later = body("Greater", begun, _double(0))
            after = body("Where", is_later, body("Div", later, most), after)
            scale = body("Where", is_later, moved, scale)
            shares = body("Exp", body("Sub", body("Add", sums, scale), total))
            goes_on, ends = (
                body("Slice", shares, _ints(a), _ints(a + 1), _ints(1)) for a in (0, 1)
            )
            joint = body("Mul", body("Mul", inside, after), self.inner)
            joint = body("Add", body("Mul", joint, goes_on), body("Mul", ends, side))
            shown = self.by_label(body, joint)
            row = body("Reshape", body("Gather", seen, self.labels), shape)
            pause = body("Log", body("Gather", seen, _ints(self.background)))
            both = body("Concat", body.constant(np.zeros(1)), pause, axis=0)
            scale = body("Add", scale, both)
            return [body("Mul", after, row), scale, body.constant(np.ones(1))], [shown]

        starts = [np.ones(chain), np.zeros((self.count, 2)), np.zeros(1)]
        shapes = (
            [chain, (self.count, 2), (1,)],
            [chain, (self.count, 2), (self.background + 1,)],
            [(self.background + 1,)],
        )
        *_, rows = graph.scan(
            [graph.constant(one) for one in starts],
            [within, logs, likely],
            step,
            shapes=shapes,
            kind=_DOUBLE,
            backwards=True,
        )
        return rows, self.tasks(graph, last)

    def by_label(self, graph: Graph, states: str) -> str:
        """Sum probabilities of states [C, S] by their labels [K + 1]."""
        flat, nothing = graph("Reshape", states, _ints(-1)), np.zeros(self.background + 1)
        return graph("ScatterElements", nothing, self.labels, flat, axis=0, reduction="add")

    def shares(self, graph: Graph, logs: str) -> str:
        """p(task, not at its end), p(task, at its end) [C, 2] by logarithms [C, 2]."""
        flat = graph("Softmax", graph("Reshape", logs, _ints(1, -1)), axis=-1)
        return graph("Reshape", flat, _ints(self.count, 2))

    def tasks(self, graph: Graph, logs: str) -> str:
        """p(task) [C]."""
        return graph("ReduceSum", self.shares(graph, logs), _ints(1), keepdims=0)

    def next_actions(self, graph: Graph, within: str, logs: str, ahead: str | None) -> str:
        """p(action of the next step to begin) [K] by the present states [C, S].

        `ahead` has p(next action) [K + 1] of a network, whose mean with the chain's is geometric.
        """
        chain, count, places = self.chain, self.count, self.chain.actions.shape[1]
        active, ends = places * chain.phases, _ints(1)
        steps = graph("Slice", within, _ints(0), _ints(active), ends)
        phases = graph("Reshape", steps, _ints(count, places, chain.phases))
        steps = graph("ReduceSum", phases, _ints(2), keepdims=0)
        padding = graph.constant(np.zeros((count, 1)))
        paused = graph("Slice", within, _ints(active), _ints(self.size - 1), ends)
        latest = graph("Add", paused, graph("Concat", steps, padding, axis=1))
        logs = graph("Slice", logs, _ints(0), _ints(1), ends)
        most = graph("ReduceMax", logs, _ints(0), keepdims=1)
        latest = graph("Mul", latest, graph("Exp", graph("Sub", logs, most)))
        moved = graph("MatMul", graph("Unsqueeze", latest, _ints(1)), chain.transitions)
        moved = graph("Slice", graph("Squeeze", moved, _ints(1)), _ints(0), _ints(places), ends)
        labels, nothing = chain.actions.ravel(), np.zeros(self.background + 1)

        def summed(values: str) -> str:
            flat = graph("Reshape", values, _ints(-1))
            return graph("ScatterElements", nothing, labels, flat, axis=0, reduction="add")

        def shared(values: str) -> str:
            sums = graph("ReduceSum", values, keepdims=1)
            return graph("Div", values, graph("Max", sums, _double(_LEAST)))

        states = shared(moved)
        if ahead is not None:
            sums = graph("Max", summed(states), _double(1e-12))
            known = np.append(np.ones(self.background), 0.0)
            ratio = graph("Mul", graph("Sqrt", graph("Div", ahead, sums)), known)
            shape = _ints(count, places)
            states = graph("Mul", states, graph("Reshape", graph("Gather", ratio, labels), shape))
            states = shared(states)
        return graph("Slice", summed(states), _ints(0), _ints(self.background), _ints(0))


STATE = ("count", "mean", "averages", "past", "ahead", "within", "logs")
"""Names of the arrays that a follower keeps from row to row."""


def follower(model: SegmentalRecogniser) -> tuple[Graph, dict[str, NDArray[Any]]]:
    """Return the step of a follower, and its state before the first row.

    row [D] and the state → p(label of the row) [K + 1], p(task) [C], p(next action) [K], and the
    state after it (`STATE`, with the prefix `next_`).
    """
    graph, start = Graph(), _beginning(model)
    nodes, config, chain = _Networks(graph, model), model.config, _Chain(graph, model.chain)
    width, count = model.standard.directions.shape[1], len(model.taxonomy.actions)
    row = graph.input("row", (model.width,))
    state = {name: graph.input(name, one.shape, one.dtype) for name, one in start.items()}
    scaled = nodes.scaled(graph("Unsqueeze", row, _ints(0)))  # [1, P]
    number = graph("Add", state["count"], _float([1]))
    longest = graph("Min", number, _float([config.longest_mean]))
    off = graph("Sub", scaled, state["mean"])
    mean = graph("Add", state["mean"], graph("Div", off, longest))
    centred = graph("Sub", scaled, mean)
    first = graph("Equal", state["count"], _float([0]))
    before = graph("Where", first, centred, state["averages"])
    moved = graph("Mul", nodes.shares[:, None], graph("Sub", centred, before))
    averages = graph("Add", before, moved)
    features = graph("Concat", centred, graph("Reshape", averages, _ints(1, -1)), axis=1)
    after = {"count": number, "mean": mean, "averages": averages}
    seen, after["past"] = _next_logits(graph, model.past.temporal, centred, state["past"])
    logs = nodes.mixed(features, model.past, seen, past=True)
    likely = graph("Squeeze", nodes.likelihoods(logs, past=True), _ints(0))
    begun = graph("Cast", state["count"], to=_kind(_DOUBLE))
    within, sums = chain.step(graph, state["within"], state["logs"], likely, begun)
    after |= {"within": within, "logs": sums}
    shares = chain.shares(graph, sums)
    goes_on, ends = (graph("Slice", shares, _ints(a), _ints(a + 1), _ints(1)) for a in (0, 1))
    states = graph("Mul", within, goes_on)
    states = graph("Add", states, graph("Mul", ends, 1 - chain.inner))
    by_chain = graph("Unsqueeze", chain.by_label(graph, states), _ints(0))
    joint = nodes.with_networks(by_chain, logs, past=True)
    shown = nodes.softened(joint, model.temperatures[1])
    ratio = graph("Div", joint, graph("Max", by_chain, _double(_FEW)))
    ratio = graph("Gather", graph("Squeeze", ratio, _ints(0)), chain.labels)
    present = graph("Mul", within, graph("Reshape", ratio, _ints(chain.count, chain.size)))
    ahead = None
    after["ahead"] = state["ahead"]
    if model.ahead is not None:
        seconds = graph("Div", state["count"], _float([model.rate]))
        time = graph("Div", graph("Log", graph("Add", seconds, _float([1]))), _float([4]))
        parts = mean, graph("Unsqueeze", time, _ints(0)), features
        known = graph("Concat", *parts, axis=1)
        plain = graph("Slice", known, _ints(0), _ints(2 * width + 1), _ints(1))
        seen, after["ahead"] = _next_logits(graph, model.ahead.temporal, plain, state["ahead"])
        logs_ahead = graph("Cast", nodes.logs(model.ahead, known, seen), to=_kind(_DOUBLE))
        ahead = graph("Exp", graph("Squeeze", logs_ahead, _ints(0)))
    coming = chain.next_actions(graph, present, sums, ahead)
    single = _kind(np.float32)
    for name, value, size in (
        ("label", graph("Squeeze", shown, _ints(0)), count + 1),
        ("task", chain.tasks(graph, sums), chain.count),
        ("next_action", coming, count),
    ):
        graph.output(graph("Cast", value, to=single), name, (size,))
    for name in STATE:
        graph.output(after[name], f"next_{name}", start[name].shape, start[name].dtype)
    return graph, start


def _beginning(model: SegmentalRecogniser) -> dict[str, NDArray[Any]]:
    """The state of a follower before the first row."""
    width, chain = model.standard.directions.shape[1], model.chain
    spans = [2 * 2**layer + 1 for layer in range(model.config.temporal_layers)]
    past = np.zeros((sum(spans), model.config.temporal_channels), np.float32)
    return {
        "count": np.zeros(1, np.float32),
        "mean": np.zeros((1, width), np.float32),
        "averages": np.zeros((len(model.config.memories), width), np.float32),
        "past": past,
        "ahead": past,
        "within": chain.start.within[0],
        "logs": np.maximum(chain.start.logs[0], _NOTHING),
    }


def _next_logits(
    graph: Graph, network: TemporalNetwork | None, row: str, past: str
) -> tuple[str | None, str]:
    """Logits [1, K + 1] of the next row [1, P] of a causal network, and what it then keeps."""
    if network is None:
        return None, past

    def through(values: str, layer: Any) -> str:
        product = graph("MatMul", values, np.ascontiguousarray(_array(layer.weight)[..., 0].T))
        return graph("Add", product, _array(layer.bias))

    hidden, kept, begin = through(row, network.inner), list[str](), 0
    for place, (dilated, joined) in enumerate(zip(network.dilated, network.joined, strict=True)):
        span, length = 2**place, 2 * 2**place + 1
        older = graph("Slice", past, _ints(begin + 1), _ints(begin + length), _ints(0))
        seen = graph("Concat", older, hidden, axis=0)
        taps = graph("Reshape", graph("Gather", seen, _ints(0, span, 2 * span)), _ints(1, -1))
        weight = _array(dilated.weight).transpose(2, 1, 0)  # [3, in, out], as taps lie
        flat = np.ascontiguousarray(weight.reshape(-1, weight.shape[2]))
        made = graph("Add", graph("MatMul", taps, flat), _array(dilated.bias))
        hidden = graph("Add", hidden, through(graph("Relu", made), joined))
        kept.append(seen)
        begin += length
    logits = through(graph("Relu", hidden), network.outer)
    return logits, graph("Concat", *kept, axis=0)
