from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.planners.base import Queries, Shape
from cefito.planners.context import TrainingContext
from cefito.planners.settings import load_config
from cefito.planners.shared.graph import transition_counts
from cefito.planners.shared.transitions import k_best
from cefito.planners.viterbi.layer import log_marginals, transition_probabilities
from cefito.planners.viterbi.loss import ViterbiLoss
from cefito.planners.viterbi.network import ViterbiNetwork, ViterbiOutputs
from cefito.planners.viterbi.planner import ViterbiPlanner
from cefito.planners.viterbi.settings import ViterbiConfig, ViterbiSettings
from cefito.runtime import generator_for
from cefito.training.distributed import Processes
from learned import check_best_epoch, metrics

KNOBS = {"train": 72, "val": 24, "test": 12}
SMALL = {
    "hidden": 24,
    "width": 16,
    "heads": 2,
    "feedforward": 20,
    "input_dropout": 0.1,
    "dropout": 0.1,
}


@pytest.fixture(scope="module")
def planner(world) -> ViterbiPlanner:
    """A fitted planner."""
    return fitted(world)


@pytest.fixture(scope="module")
def unaligned(world) -> ViterbiPlanner:
    """A planner fitted without alignment."""
    return fitted(world, descriptions="none")


def small(**settings: object) -> ViterbiSettings:
    overrides = {
        "training.optimiser.epochs": 2,
        "training.optimiser.batch_size": 64,
        "training.stopping.every": 1,
        **SMALL,
        **settings,
    }
    config = load_config(
        "paper",
        method="viterbi",
        overrides={f"viterbi.{name}": value for name, value in overrides.items()},
    )
    return config.settings


def fit(world, *, seed=0, context=TrainingContext(), **settings):
    return ViterbiPlanner.fit(*world, settings=small(**settings), seed=seed, context=context)


def fitted(world: tuple[Windows, Windows], **options: object) -> ViterbiPlanner:
    return fit(world, **options).planner


def load(folder: Path, **settings: object) -> ViterbiPlanner:
    return ViterbiPlanner.load(folder, settings=small(**settings))


def write_descriptions(path: Path, world: tuple[Windows, Windows]) -> Path:
    shape = (len(world[0].taxonomy.actions), 6, 5)
    np.save(path, np.random.default_rng(0).standard_normal(shape).astype(np.float16))
    return path


def weights(planner: ViterbiPlanner) -> dict[str, torch.Tensor]:
    return planner.network.state_dict()


def mean_outputs(planner: ViterbiPlanner, queries: Queries) -> ViterbiOutputs:
    """The outputs of a planner of one member."""
    with torch.inference_mode():
        (outputs,) = planner.outputs(queries)
    return outputs


def same_weights(one: ViterbiPlanner, other: ViterbiPlanner) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(
        torch.equal(tensor, theirs[name]) for name, tensor in ours.items()
    )


def same_plans(one: ViterbiPlanner, other: ViterbiPlanner, queries: Queries) -> bool:
    return all(
        np.array_equal(ours.actions, theirs.actions)
        and np.array_equal(ours.energies, theirs.energies)
        for ours, theirs in zip(one.plan(queries, 4), other.plan(queries, 4), strict=True)
    )


@pytest.mark.parametrize(
    ("actions", "tasks", "horizon", "expected"),
    [
        (133, 18, 3, 5_549_602),
        (778, 180, 3, 6_067_795),
        (778, 180, 6, 6_667_633),
        (48, 5, 3, 5_482_390),
    ],
)
def test_published_size(actions, tasks, horizon, expected):
    """5.55, 6.07, 6.67 and 5.48 million."""
    shape = Shape(observation_dim=1536, tasks=tasks, actions=actions, horizon=horizon)
    assert ViterbiPlanner.sizes(ViterbiSettings(), shape) == {"ViterbiPlanNet": expected}


def network_of(*, text_dim: int = 0, **settings: object) -> ViterbiNetwork:
    shape = Shape(observation_dim=7, tasks=4, actions=5, horizon=3, text_dim=text_dim)
    network = ViterbiNetwork(ViterbiConfig(**{**SMALL, **settings}), shape)
    network.reset(generator_for("cpu", 0))
    network.counts.copy_(torch.arange(25).reshape(5, 5) % 4)
    return network


def observations(count: int = 6, width: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randn(2, count, width, generator=torch.Generator().manual_seed(1)))


def test_emissions_are_those_of_torch_layers():
    network = network_of()
    layer = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 20, activation="gelu", batch_first=True),
        1,
        norm=nn.LayerNorm(16),
        enable_nested_tensor=False,
    ).eval()
    names = {
        "self_attn.in_proj_weight": "qkv.weight",
        "self_attn.in_proj_bias": "qkv.bias",
        "self_attn.out_proj.weight": "proj.weight",
        "self_attn.out_proj.bias": "proj.bias",
        "linear1.weight": "fc1.weight",
        "linear1.bias": "fc1.bias",
        "linear2.weight": "fc2.weight",
        "linear2.bias": "fc2.bias",
    }
    weights = network.layer.state_dict()
    layer.layers[0].load_state_dict(
        {name: weights[names.get(name, name)] for name in layer.layers[0].state_dict()}
    )
    initial, goal = observations()
    outputs = network(initial, goal)
    first, second = network.encoder
    states = torch.stack([second(first(initial)), second(first(goal))], dim=1)
    torch.testing.assert_close(outputs.states, states)
    hidden = torch.sigmoid(network.fc(layer(states).flatten(1)))
    expected = torch.log(torch.sigmoid(network.emission(hidden).reshape(6, 3, 5)))
    torch.testing.assert_close(outputs.emissions, expected)
    one, _, two = network.task
    torch.testing.assert_close(outputs.tasks, two(F.gelu(one(states.flatten(1)))))


def test_observations_may_be_centred_and_normalised():
    raw, changed = network_of(), network_of(centre=True, normalise=True)
    changed.mean.copy_(torch.randn(7, generator=torch.Generator().manual_seed(2)))
    initial, goal = observations()
    expected = raw(*(F.layer_norm(x - changed.mean, (7,), eps=1e-6) for x in (initial, goal)))
    torch.testing.assert_close(changed(initial, goal).emissions, expected.emissions)


@torch.no_grad()
def test_alignment():
    network = network_of(text_dim=3)
    initial, goal = observations()
    descriptions = torch.randn(5, 6, 3, generator=torch.Generator().manual_seed(3))
    states = network(initial, goal).states
    logits = network.alignment(states, descriptions)
    assert logits.shape == (6, 2, 5)
    for row in range(6):
        for end in range(2):
            for action in range(5):
                encoded = network.description(descriptions[action, 3 * end : 3 * end + 3])
                cosines = [F.cosine_similarity(states[row, end], one, dim=0) for one in encoded]
                assert float(logits[row, end, action]) == pytest.approx(
                    float(sum(cosines)) / 3 / 0.07, abs=1e-4
                )


def toy_windows(count: int = 6) -> Windows:
    initial, goal = (part.numpy() for part in observations(count))
    numbers = np.arange(count)
    taxonomy = type("Taxonomy", (), {"actions": range(5), "tasks": range(4)})
    return Windows(
        initial=initial,
        goal=goal,
        actions=np.stack([numbers % 5, numbers % 3, numbers // 2], axis=1),
        tasks=numbers % 4,
        video=numbers,
        start=numbers,
        taxonomy=taxonomy,
        action_text=None,
        dataset="toy",
        split="train",
    )


@torch.no_grad()
def test_losses_by_a_slow_loop():
    network = network_of(text_dim=3, input_dropout=0.0, dropout=0.0, alignment=0.5, task=2.0)
    windows = toy_windows()
    descriptions = np.random.default_rng(0).standard_normal((5, 6, 3)).astype(np.float32)
    loss = ViterbiLoss(network, windows, windows, descriptions)
    rows = torch.tensor([4, 1, 2])
    terms = loss.terms(rows, generator_for("cpu", 0), Processes())
    means = {name: (term.weight, float(term.sum / term.count)) for name, term in terms.items()}
    outputs = network(torch.from_numpy(windows.initial[rows]), torch.from_numpy(windows.goal[rows]))
    marginals = log_marginals(
        outputs.emissions, transition_probabilities(network.counts, clamped=True)
    ).exp()
    logits = network.alignment(outputs.states, torch.from_numpy(descriptions))
    squares, tasks, alignment = [], [], []
    for place, row in enumerate(rows.tolist()):
        for step in range(3):
            squares += [
                (
                    float(marginals[place, step, action])
                    - float(action == windows.actions[row, step])
                )
                ** 2
                for action in range(5)
            ]
        tasks += [
            (float(outputs.tasks[place, task]) - float(task == windows.tasks[row])) ** 2
            for task in range(4)
        ]
        alignment.append(
            sum(
                float(
                    logits[place, end].logsumexp(0) - logits[place, end, windows.actions[row, -end]]
                )
                for end in (0, 1)
            )
        )
    assert means == {
        "marginals": (1.0, pytest.approx(np.mean(squares), rel=1e-4)),
        "alignment": (0.5, pytest.approx(np.mean(alignment), rel=1e-4)),
        "task": (2.0, pytest.approx(np.mean(tasks), rel=1e-4)),
    }


def test_alignment_with_free_vectors_by_hand():
    network, windows = network_of(descriptions="free"), toy_windows()
    assert network.free.shape == (5, 2, network.config.width)
    states = network(torch.from_numpy(windows.initial), torch.from_numpy(windows.goal)).states
    logits = network.alignment(states, None, generator=generator_for("cpu", 0))
    for end in range(2):
        cosines = F.cosine_similarity(states[:, end, None], network.free[None, :, end], dim=-1)
        torch.testing.assert_close(logits[:, end], network.temperature * cosines)
    loss = ViterbiLoss(network, windows, windows)
    assert "alignment" in loss.terms(torch.arange(6), generator_for("cpu", 0), Processes())


def test_losses_that_are_left_out():
    network, windows = network_of(task=0.0), toy_windows()
    loss = ViterbiLoss(network, windows, windows)
    assert set(loss.terms(torch.arange(6), generator_for("cpu", 0), Processes())) == {"marginals"}


def test_training_lowers_the_loss_and_beats_the_frequencies(world, tmp_path):
    train, val = world
    config = load_config(
        "small",
        method="viterbi",
        overrides={
            f"viterbi.{name}": value
            for name, value in {
                "members": 1,
                "hidden": 64,
                "input_dropout": 0.0,
                "dropout": 0.0,
                "training.optimiser.epochs": 10,
                "training.optimiser.batch_size": 16,
                "training.optimiser.learning_rate": 2e-3,
                "training.stopping.every": 2,
                "training.augmentation.noise": 0.0,
                "training.augmentation.swap": 0.0,
            }.items()
        },
    )
    settings, context = config.settings, TrainingContext(folder=tmp_path)
    training = ViterbiPlanner.fit(train, val, settings=settings, seed=0, context=context)
    planner, result = training.planner, training.trainings["ViterbiPlanNet"]
    epochs = metrics(tmp_path / "viterbi")
    assert epochs[-1]["marginals"] < 0.6 * epochs[0]["marginals"]
    check_best_epoch(planner, result, epochs, train, val, margin=20)


@pytest.mark.parametrize("decoding", ["viterbi", "marginals"])
def test_plans(world, decoding):
    train, val = world
    planner = fitted(world, decoding=decoding)
    queries, network = Queries.from_windows(val), planner.network
    assert torch.equal(
        network.counts, torch.from_numpy(transition_counts(train, len(train.taxonomy.actions)))
    )
    plans = planner.plan(queries, 6)
    assert len(plans) == len(val)
    clamped = transition_probabilities(network.counts, clamped=True)
    raw = transition_probabilities(network.counts, clamped=False).numpy()
    marginals = log_marginals(mean_outputs(planner, queries).emissions.double(), clamped)
    if decoding == "marginals":
        marginals = log_marginals(marginals, clamped)
    chances = marginals.exp().numpy()
    for row, plan in enumerate(plans):
        assert plan.actions.shape == (6, 3)
        assert plan.exact
        assert plan.evaluated.token_forwards == 2
        product = chances[row, range(3), plan.actions].prod(axis=1)
        if decoding == "viterbi":
            product = product * raw[plan.actions[:, :-1], plan.actions[:, 1:]].prod(axis=1)
        np.testing.assert_allclose(np.exp(-plan.energies), product, rtol=1e-6)
    marginals = "marginals, " * (decoding == "marginals")
    assert planner.name == f"ViterbiPlanNet ({marginals}name hashes)"


def test_without_task_head(world):
    planner = fitted(world, task=0.0)
    assert planner.predict_tasks(Queries.from_windows(world[1])) is None
    np.testing.assert_array_equal(
        planner.predict_tasks(Queries.from_windows(world[1], oracle_task=True)), world[1].tasks
    )
    assert not any(name.startswith("task") for name in weights(planner))


@pytest.mark.parametrize("horizon", [1, 2])
def test_short_horizons(world, horizon):
    short = tuple(replace(part, actions=part.actions[:, :horizon]) for part in world)
    planner = fitted(short)
    queries = Queries.from_windows(short[1])
    assert planner.horizon == horizon
    assert {plan.actions.shape for plan in planner.plan(queries, 3)} == {(3, horizon)}


@pytest.mark.parametrize("descriptions", ["/nowhere.npy", "free"])
def test_without_alignment(world, unaligned, descriptions):
    """Descriptions of no weight are not read."""
    planner = fitted(world, descriptions=descriptions, alignment=0.0)
    assert same_weights(planner, unaligned)
    assert planner.describe() == unaligned.describe()
    assert planner.name == "ViterbiPlanNet (no alignment)"


@pytest.mark.parametrize(
    ("descriptions", "name", "more"),
    [
        (
            "names",
            "ViterbiPlanNet (name hashes)",
            {"description.weight": (16, 7), "temperature": ()},
        ),
        ("free", "ViterbiPlanNet (free vectors)", {"free": (None, 2, 16), "temperature": ()}),
        ("none", "ViterbiPlanNet (no alignment)", {}),
        ("file", "ViterbiPlanNet", {"description.weight": (16, 5), "temperature": ()}),
    ],
)
def test_kinds_of_descriptions(world, unaligned, descriptions, name, more, tmp_path):
    if descriptions == "file":
        descriptions = str(write_descriptions(tmp_path / "descriptions.npy", world))
    settings = {"descriptions": descriptions, "name_width": 7}
    training = {"training.optimiser.epochs": 5, "training.optimiser.learning_rate": 5e-3}
    planner = fitted(world, context=TrainingContext(folder=tmp_path), **settings, **training)
    assert planner.name == name
    tensors = weights(planner)
    added = {key: tuple(tensors[key].shape) for key in tensors.keys() - weights(unaligned).keys()}
    actions = len(world[0].taxonomy.actions)
    assert added == {
        key: tuple(actions if size is None else size for size in shape)
        for key, shape in more.items()
    }
    epochs = metrics(tmp_path / "viterbi")
    if more:
        assert epochs[-1]["alignment"] < 0.9 * epochs[0]["alignment"]
    else:
        assert "alignment" not in epochs[0]
    planner.save(tmp_path)
    loaded = load(tmp_path, **settings)
    assert same_plans(planner, loaded, Queries.from_windows(world[1]))


def test_settings():
    with pytest.raises(ConfigError, match="divisible by the 3 heads"):
        load_config("paper", method="viterbi", overrides={"viterbi.heads": 3})
    with pytest.raises(ConfigError, match=r"viterbi\.name_width"):
        load_config("paper", method="viterbi", overrides={"viterbi.name_width": 0})
    for value, kind in {"names": "names", "free": "free", "none": "none", "a.npy": "file"}.items():
        assert ViterbiConfig(descriptions=value).aligned_with == kind
        assert ViterbiConfig(descriptions=value, alignment=0).aligned_with == "none"
    assert ViterbiSettings().viterbi == load_config("paper", method="viterbi").settings.viterbi
    for dataset in ("crosstask", "coin", "niv"):
        optimiser = load_config(
            "paper", method="viterbi", dataset=dataset, horizon=3
        ).settings.viterbi.training.optimiser
        assert (optimiser.epochs, optimiser.batch_size, optimiser.learning_rate) == (500, 256, 9e-4)
        assert (optimiser.schedule, optimiser.factor, optimiser.interval * optimiser.epochs) == (
            "step",
            0.65,
            40,
        )


def test_members_are_averaged_saved_and_named(world, planner, tmp_path):
    training = fit(world, members=2)
    both, queries = training.planner, Queries.from_windows(world[1])
    assert set(training.trainings) == {"ViterbiPlanNet", "ViterbiPlanNet-1"}
    first, second = (
        replace(both, network=network, others=()) for network in (both.network, *both.others)
    )
    assert same_weights(first, planner)
    assert not same_weights(first, second)
    apart = [mean_outputs(one, queries) for one in (first, second)]
    tasks = (apart[0].tasks + apart[1].tasks).argmax(dim=1)
    np.testing.assert_array_equal(both.predict_tasks(queries), tasks.numpy())
    transitions = transition_probabilities(both.network.counts, clamped=True)
    marginals = log_marginals((apart[0].emissions + apart[1].emissions).double() / 2, transitions)
    raw = transition_probabilities(both.network.counts, clamped=False).log()
    _, sums = k_best(marginals, raw, 1)
    best = [plan.energies[0] for plan in both.plan(queries, 1)]
    np.testing.assert_allclose(best, -sums[:, 0].numpy(), rtol=1e-6)  # float32 emissions
    assert both.parameters["ViterbiPlanNet"] == 2 * planner.parameters["ViterbiPlanNet"]
    assert "2 members" in both.name
    assert "members" not in planner.name
    both.save(tmp_path)
    assert same_plans(both, load(tmp_path, members=2), queries)
    (tmp_path / "viterbi-1.safetensors").unlink()
    with pytest.raises(RunError, match=r"viterbi-1\.safetensors"):
        load(tmp_path, members=2)
