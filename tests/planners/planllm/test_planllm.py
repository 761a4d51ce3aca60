"""PlanLLM-style planning: its additions by slow loops, and SCHEMA without them."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.methods import load_config
from cefito.planners.planllm.method import PlanLlmConfig
from cefito.planners.planllm.planner import (
    Exchange,
    PlanLlmLoss,
    PlanLlmNetwork,
    QueryTransformer,
)
from cefito.planners.schema.method import SchemaConfig
from cefito.planners.schema.network import SchemaNetwork
from cefito.planners.schema.planner import SchemaLoss
from cefito.planners.shared.layers import keep
from cefito.runtime import count_parameters, generator_for
from drawn import drawn, stirred

KNOBS = {"train": 24, "val": 8, "test": 8, "dim": 12}
PARTS = {"hidden": 12, "width": 8, "heads": 2, "feedforward": 10, "descriptions": "file.npy"}
ADDED = {"exchange": 2, "exchange_heads": 2, "query_layers": 3, "query_heads": 4}
SHAPE = Shape(observation_dim=12, tasks=12, actions=87, horizon=3, text_dim=4)
QUIET = {"input_dropout": 0.0, "dropout": 0.0, "query_dropout": 0.0}


def network_of(**settings):
    network = PlanLlmNetwork(PlanLlmConfig(**{**PARTS, **ADDED, **settings}), SHAPE)
    network.reset(generator_for("cpu", 0))
    return stirred(network).eval()


@torch.no_grad()
def test_the_exchange_is_that_of_torch_layers():
    exchange = stirred(Exchange(width=8, heads=2, layers=2))
    layer = nn.TransformerEncoderLayer(8, 2, 8, activation="relu", batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    for ours, layer in zip(exchange.layers, theirs.layers, strict=True):
        among = ours.among
        parts = [among.query, among.key, among.value]
        layer.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        for target, source in (
            (layer.self_attn.out_proj, among.out),
            (layer.linear1, ours.fc1),
            (layer.linear2, ours.fc2),
            (layer.norm1, ours.norm_among),
            (layer.norm2, ours.norm),
        ):
            target.load_state_dict(source.state_dict())
    states = drawn(5, 2, 8)
    torch.testing.assert_close(exchange(states), theirs(states), rtol=1e-4, atol=1e-5)
    assert torch.equal(Exchange(width=8, heads=2, layers=0)(states), states)


@torch.no_grad()
def test_queries_look_at_the_states_in_every_second_layer():
    asking = QueryTransformer(width=8, heads=4, hidden=6, layers=3, queries=4)
    asking.reset(generator_for("cpu", 0))
    stirred(asking)
    assert [layer.crossing is not None for layer in asking.layers] == [True, False, True]
    states = drawn(3, 2, 8)
    found = asking(states)
    assert found.shape == (3, 4, 8)
    for row in range(3):
        others, tokens = asking.norm(states[row]), asking.queries
        for place, layer in enumerate(asking.layers):
            assert layer.among.heads == 4
            tokens = layer.norm_among(tokens + layer.among(tokens, tokens, keep))
            if place in (0, 2):
                tokens = layer.norm_crossing(tokens + layer.crossing(tokens, others, keep))
            tokens = layer.norm(tokens + layer.fc2(F.gelu(layer.fc1(tokens))))
        torch.testing.assert_close(found[row], asking.out(tokens), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_is_aligned_and_what_is_decoded_from():
    network = network_of()
    given = drawn(3, 12), drawn(3, 12, seed=3)
    raw = network.encoded(torch.stack(given, dim=1), None)
    torch.testing.assert_close(raw[:, 1], network.encoder(given[1]))
    encoded = network.encode(*given)
    torch.testing.assert_close(encoded.aligned, network.first_exchange(raw))
    torch.testing.assert_close(encoded.states, network.second_exchange(encoded.aligned))
    outputs = network.decode(network.encode(*given), None, network.memory(), None)
    torch.testing.assert_close(outputs.aligned, encoded.aligned)
    torch.testing.assert_close(outputs.tasks, network.task_logits(encoded.states))
    # one state that changes changes both
    other = network.encode(given[0], given[1] + 1).states
    assert not torch.allclose(other[:, 0], encoded.states[:, 0])


def test_without_the_additions_it_is_schema(world):
    """Outputs, losses and gradients of a network without layers of either kind."""
    train, val = world
    off = {"exchange": 0, "exchange_heads": 3, "query_layers": 0, "focus": 0.0}
    plain = network_of(**off, **QUIET)
    config = SchemaConfig(**PARTS, input_dropout=0.0, dropout=0.0, state_task=False)
    schema = SchemaNetwork(config, SHAPE)
    schema.load_state_dict(plain.state_dict())  # the very same tensors
    losses = []
    for kind, network in ((PlanLlmLoss, plain), (SchemaLoss, schema)):
        network.zero_grad()
        loss = kind(network, train, val)
        terms = loss.terms(torch.arange(8), generator_for("cpu", 0))
        sum(term.weight * term.sum / term.count for term in terms.values()).backward()
        losses.append({name: float(term.sum.detach()) for name, term in terms.items()})
    assert losses[0] == losses[1]
    gradients = dict(schema.named_parameters())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("focus", [0.0, 1.0, 2.5])
def test_focal_errors_by_hand(world, focus):
    loss = PlanLlmLoss(network_of(focus=focus), *world)
    logits, actions = drawn(4, 5), torch.tensor([0, 3, 3, 1])
    chances = logits.softmax(dim=1)[range(4), actions].tolist()
    expected = [-((1 - p) ** focus) * math.log(p) for p in chances]
    np.testing.assert_allclose(loss.action_errors(logits, actions), expected, rtol=1e-5)
    certain = loss.action_errors(torch.tensor([[200.0, 0.0]]), torch.tensor([0]))
    assert torch.isfinite(certain).all()


def test_no_gradient_flows_through_the_focus(world):
    loss = PlanLlmLoss(network_of(), *world)
    logits, actions = drawn(1, 5).requires_grad_(), torch.tensor([2])
    (focal,) = torch.autograd.grad(loss.action_errors(logits, actions).sum(), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, actions), logits)
    factor = 1 - logits.softmax(dim=1)[0, 2].detach()
    torch.testing.assert_close(focal, factor * plain)


def settings(**overrides):
    values = {f"planllm.{name}": value for name, value in overrides.items()}
    return load_config("small", method="planllm", overrides=values).settings


def built(dataset, actions, tasks, **changes):
    """The network of published sizes, but for some."""
    config = load_config("paper", method="planllm", dataset=dataset).settings.planllm
    config = config.model_copy(update={"descriptions": "file.npy", **changes})
    sizes = {"tasks": tasks, "actions": actions, "horizon": 3, "text_dim": 768}
    with torch.device("meta"):
        return PlanLlmNetwork(config, Shape(observation_dim=config.width, **sizes))


def test_published_sizes():
    """Of what is published: all but the language models, and the exchange where D = E = 1536."""
    crosstask, coin, niv = (
        count_parameters(built(*of, width=1536)) / 1e6
        for of in (("crosstask", 133, 18), ("coin", 778, 180), ("niv", 48, 5))
    )
    assert coin - crosstask == pytest.approx(386.4 - 384.9, abs=0.1)
    assert crosstask - niv == pytest.approx(384.9 - 384.8, abs=0.1)
    with torch.device("meta"):
        exchange = Exchange(width=1536, heads=8, layers=2)
    # 384.9 million with the exchange over all states, 356.6 without it
    assert count_parameters(exchange) / 1e6 == pytest.approx(384.9 - 356.6, abs=0.05)
    # 200.9 million, of which 178 are the query transformer's and 0.8 project its queries and texts
    unread = 512 * 512 + 512 + 1
    projections = 2 * (768 * 512 + 512)
    found = count_parameters(built("crosstask", 133, 18, query_layers=0)) + unread + projections
    assert found / 1e6 == pytest.approx(200.9 - 178, abs=0.5)
