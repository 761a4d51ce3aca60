import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.field import FieldConfig, Predictor
from cefito.field.predictor import Dropout, normalise, positions
from random_fields import randomise

CONFIG = FieldConfig(width=16, depth=2, heads=2, mlp_ratio=2, action_dim=6)
E, K, T = 12, 5, 4


def make(
    seed: int = 0, config: FieldConfig = CONFIG, vectors: torch.Tensor | None = None
) -> Predictor:
    """A predictor whose every parameter is random and matters, biases and norms too."""
    predictor = Predictor(
        config=config, observation_dim=E, action_count=K, horizon=T, action_vectors=vectors
    )
    randomise(predictor, torch.Generator().manual_seed(seed))
    return predictor


def draw(seed: int = 1, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, E, generator=generator), torch.randint(
        K, (batch, T), generator=generator
    )


def slow_forward(predictor: Predictor, tokens: np.ndarray) -> np.ndarray:
    """The transformer over the tokens [L, D] of one sequence, up to the final norm."""
    weights = {name: tensor.double().numpy() for name, tensor in predictor.state_dict().items()}
    heads, width = predictor.config.heads, predictor.config.width

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def norm(x: np.ndarray) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-6)

    def gelu(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = list(tokens)
    for block in range(predictor.config.depth):
        normed = [norm(token) for token in x]
        query, key, value = zip(
            *(np.split(linear(f"blocks.{block}.attn.qkv", token), 3) for token in normed),
            strict=True,
        )
        attended = []
        for place in range(len(x)):
            parts = []
            for head in range(heads):
                own = slice(head * width // heads, (head + 1) * width // heads)
                scores = np.array(
                    [query[place][own] @ key[other][own] for other in range(place + 1)]
                )
                share = np.exp(scores / math.sqrt(width // heads))
                parts.append(
                    sum(s * value[other][own] for other, s in enumerate(share / share.sum()))
                )
            attended.append(np.concatenate(parts))
        x = [
            token + linear(f"blocks.{block}.attn.proj", mixed)
            for token, mixed in zip(x, attended, strict=True)
        ]
        hidden = [gelu(linear(f"blocks.{block}.mlp.fc1", norm(token))) for token in x]
        x = [
            token + linear(f"blocks.{block}.mlp.fc2", inner)
            for token, inner in zip(x, hidden, strict=True)
        ]
    return np.stack([norm(token) * weights["norm.weight"] + weights["norm.bias"] for token in x])


def test_size_of_the_papers_predictor():
    predictor = Predictor(
        config=FieldConfig(),
        observation_dim=1536,
        action_count=133,
        horizon=3,
        action_vectors=torch.zeros(133, 512),
    )
    assert predictor.parameter_count() == 8_523_013


def test_parameter_names_are_those_of_the_authors_checkpoints():
    config = FieldConfig(width=24, depth=4, heads=6)
    predictor = Predictor(
        config=config,
        observation_dim=30,
        action_count=7,
        horizon=3,
        action_vectors=torch.zeros(7, 512),
    )
    layers = {
        "state_embed": (24, 30),
        "action_embed": (24, 512),
        "norm": (24,),
        "state_head": (30, 24),
        "action_head": (7, 24),
    }
    for block in range(4):
        layers |= {
            f"blocks.{block}.attn.qkv": (72, 24),
            f"blocks.{block}.attn.proj": (24, 24),
            f"blocks.{block}.mlp.fc1": (96, 24),
            f"blocks.{block}.mlp.fc2": (24, 96),
        }
    expected = {"state_mask_token": (24,), "action_mask_token": (24,)}
    for name, shape in layers.items():
        expected |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    assert {
        name: tuple(parameter.shape) for name, parameter in predictor.named_parameters()
    } == expected
    assert predictor.pos_embed.shape == (7, 24)


def test_positions_are_sines_then_cosines():
    table = positions(5, 6)
    for place in range(5):
        angles = [place / 10_000 ** (index / 3) for index in range(3)]
        expected = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
        assert table[place].tolist() == pytest.approx(expected, abs=1e-6)


def test_norm_by_hand():
    x = torch.tensor([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])
    expected = (np.array([1, 2, 6]) - 3) / math.sqrt(14 / 3 + 1e-6)
    np.testing.assert_allclose(normalise(x).numpy(), [expected, [0, 0, 0]], rtol=1e-6)
    assert normalise(x.bfloat16()).dtype == torch.float32


def test_states_are_those_of_the_slow_transformer():
    predictor = make()
    initial, actions = draw()
    states = predictor.states(initial, actions).detach().numpy()
    weights = {name: tensor.double().numpy() for name, tensor in predictor.state_dict().items()}
    place = predictor.pos_embed.double().numpy()
    for row in range(len(actions)):
        start = normalise(initial[row]).double().numpy()
        tokens = [weights["state_embed.weight"] @ start + weights["state_embed.bias"]]
        for action in actions[row].tolist():
            vector = weights["action_vectors"][action]
            tokens += [
                weights["action_embed.weight"] @ vector + weights["action_embed.bias"],
                weights["state_mask_token"],
            ]
        out = slow_forward(predictor, np.stack(tokens) + place)[2::2]
        expected = out @ weights["state_head.weight"].T + weights["state_head.bias"]
        np.testing.assert_allclose(states[row], expected, rtol=1e-4, atol=1e-5)
    goal = predictor.goal(initial, actions).detach().numpy()
    np.testing.assert_allclose(goal, states[:, -1], rtol=1e-5, atol=1e-6)  # float32, other shapes


def test_reconstruction_is_that_of_the_slow_transformer():
    predictor = make(2)
    initial, _ = draw()
    states = torch.randn(3, T, E, generator=torch.Generator().manual_seed(5))
    logits = predictor.reconstruct(initial, states).detach().numpy()
    weights = {name: tensor.double().numpy() for name, tensor in predictor.state_dict().items()}
    for row in range(3):
        tokens = []
        for state in [initial[row], *states[row]]:
            tokens += [
                weights["state_embed.weight"] @ normalise(state).double().numpy()
                + weights["state_embed.bias"],
                weights["action_mask_token"],
            ]
        out = slow_forward(predictor, np.stack(tokens[:-1]) + predictor.pos_embed.double().numpy())[
            2::2
        ]
        expected = out @ weights["action_head.weight"].T + weights["action_head.bias"]
        np.testing.assert_allclose(logits[row], expected, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), place=st.integers(0, T - 1), shift=st.integers(1, K - 1))
def test_a_later_action_does_not_change_earlier_states(seed, place, shift):
    predictor = make(seed)
    initial, actions = draw(seed)
    other = actions.clone()
    other[:, place] = (other[:, place] + shift) % K
    before, after = predictor.states(initial, actions), predictor.states(initial, other)
    torch.testing.assert_close(before[:, :place], after[:, :place], rtol=0, atol=1e-6)
    assert ((before - after).abs().amax(dim=2)[:, place:] > 1e-4).all()


def test_what_actions_leave_behind_is_added():
    config = CONFIG.model_copy(update={"action_encoding": "observed"})
    vectors = torch.randn(K, E, generator=torch.Generator().manual_seed(6))
    plain, skipping = (
        make(config=config, vectors=vectors),
        make(config=config.model_copy(update={"goal_skip": True}), vectors=vectors),
    )
    skipping.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        skipping.skip_scale.fill_(0.5)
    initial, actions = draw()
    torch.testing.assert_close(
        skipping.states(initial, actions), plain.states(initial, actions) + 0.5 * vectors[actions]
    )


def test_other_vectors_for_a_while():
    predictor, other = make(vectors=torch.randn(K, E)), torch.randn(K, E)
    initial, actions = draw()
    before = predictor.states(initial, actions)
    with predictor.using(other):
        inside = predictor.states(initial, actions)
    assert torch.equal(predictor.states(initial, actions), before)
    predictor.action_vectors.copy_(other)
    assert torch.equal(predictor.states(initial, actions), inside)
    assert not torch.allclose(before, inside)


def test_reconstruction_uses_the_goal_for_the_last_action_only():
    predictor = make()
    initial, _ = draw()
    states = torch.randn(3, T, E, generator=torch.Generator().manual_seed(3))
    other = states.clone()
    other[:, -1] = torch.randn(3, E, generator=torch.Generator().manual_seed(4))
    before, after = predictor.reconstruct(initial, states), predictor.reconstruct(initial, other)
    assert before.shape == (3, T, K)
    torch.testing.assert_close(before[:, :-1], after[:, :-1], rtol=0, atol=1e-6)
    assert ((before - after).abs().amax(dim=2)[:, -1] > 1e-3).all()
    assert (
        (before - predictor.reconstruct(initial + torch.randn(E), states)).abs().amax(dim=2) > 1e-4
    ).all()


def test_frozen_text_is_not_trained_and_learned_actions_are():
    text = torch.randn(K, 7)
    initial, actions = draw()
    frozen, learned = make(vectors=text), make()
    assert not frozen.learned_actions
    assert learned.learned_actions
    for predictor in (frozen, learned):
        before = predictor.action_vectors.detach().clone()
        optimiser = torch.optim.SGD(predictor.parameters(), lr=0.1)
        predictor.states(initial, actions).square().sum().backward()
        optimiser.step()
        assert torch.equal(predictor.action_vectors, before) == (predictor is frozen)
    torch.testing.assert_close(frozen.action_vectors, text)
    assert "action_vectors" in frozen.state_dict()
    assert learned.action_vectors.shape == (K, CONFIG.action_dim)


@pytest.mark.parametrize(
    ("encoding", "given_text", "learned"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("text", True, False),
        ("learned", True, True),
        ("learned", False, True),
    ],
)
def test_choice_of_the_encoding(encoding, given_text, learned):
    config = CONFIG.model_copy(update={"action_encoding": encoding})
    predictor = make(config=config, vectors=torch.zeros(K, 9) if given_text else None)
    assert predictor.learned_actions == learned
    assert predictor.action_vectors.shape[1] == (6 if learned else 9)


def test_text_that_does_not_fit():
    config = CONFIG.model_copy(update={"action_encoding": "text"})
    with pytest.raises(ConfigError, match="'text', but no vectors of the actions are given"):
        make(config=config)


def test_reset_depends_on_the_generator_alone():
    fresh, used = (
        Predictor(config=CONFIG, observation_dim=E, action_count=K, horizon=T) for _ in range(2)
    )
    with torch.no_grad():
        for parameter in used.parameters():
            parameter.fill_(3.0)
    for predictor in (fresh, used):
        predictor.reset(torch.Generator().manual_seed(1))
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, used.state_dict()[name]), name
        assert tensor.isfinite().all()
    used.reset(torch.Generator().manual_seed(2))
    assert not torch.equal(fresh.state_embed.weight, used.state_embed.weight)


def test_dropout():
    x = torch.ones(200, 200)
    assert Dropout(0.0, torch.Generator())(x) is x
    one, other = (Dropout(0.25, torch.Generator().manual_seed(1))(x) for _ in range(2))
    assert torch.equal(one, other)
    assert one.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert (one == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    predictor, (initial, actions) = make(), draw()
    dropped = predictor.states(
        initial, actions, dropout=Dropout(0.5, torch.Generator().manual_seed(1))
    )
    assert not torch.allclose(dropped, predictor.states(initial, actions))
