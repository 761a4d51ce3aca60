import math

import numpy as np
import pytest
import torch

from author_checkpoints import shapes
from cefito.errors import ConfigError
from cefito.field.layers import Dropout
from cefito.field.predictor import Predictor, normalise, positions
from cefito.field.settings import FieldConfig
from cefito.planners.methods import load_config
from cefito.runtime import count_parameters
from random_fields import randomise
from slow_predictor import SlowPredictor, norm
from training.reference import reconstruct

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


def test_names_and_size_are_those_of_the_authors_checkpoints():
    sizes = {"observation_dim": 1536, "action_count": 133, "horizon": 3}
    predictor = Predictor(config=FieldConfig(), **sizes, action_vectors=torch.zeros(133, 512))
    expected = shapes(horizon=3, dim=1536, actions=133, text=512)
    assert expected.pop("predictor.pos_embed") == tuple(predictor.pos_embed.shape)
    assert {name: tuple(one.shape) for name, one in predictor.named_parameters()} == {
        name.removeprefix("predictor."): shape for name, shape in expected.items()
    }
    assert count_parameters(predictor) == 8_523_013
    small = load_config("small", dataset="crosstask", horizon=3).settings.field
    own = Predictor(config=small, **sizes, action_vectors=torch.zeros(133, 1536))
    directions = 1 + (small.directions == "both")
    assert round(directions * count_parameters(own), -5) == 1_200_000  # as docs/training.md says


def test_positions_are_sines_then_cosines():
    table = positions(5, 6)
    for place in range(5):
        angles = [place / 10_000 ** (index / 3) for index in range(3)]
        expected = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
        assert table[place].tolist() == pytest.approx(expected, abs=1e-6)


def test_norm_by_hand():
    x = torch.tensor([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])
    expected = [(value - 3) / math.sqrt(14 / 3 + 1e-6) for value in (1, 2, 6)]
    np.testing.assert_allclose(normalise(x).numpy(), [expected, [0.0, 0.0, 0.0]], rtol=1e-6)
    assert normalise(x.bfloat16()).dtype == torch.float32


def test_states_are_those_of_the_slow_transformer():
    predictor = make()
    slow = SlowPredictor(predictor.state_dict(), heads=CONFIG.heads)
    initial, actions = draw()
    states = predictor.states(initial, actions).detach()
    for row in range(len(actions)):
        vectors = slow.tensors["action_vectors"][actions[row]]
        expected = slow.states(norm(initial[row].double()), vectors).detach()
        torch.testing.assert_close(states[row].double(), expected, rtol=1e-4, atol=1e-5)
    goal = predictor.goal(initial, actions)  # float32, other shapes
    torch.testing.assert_close(goal, states[:, -1], rtol=1e-5, atol=1e-6)


def test_reconstruction_is_that_of_the_slow_transformer():
    predictor = make(2)
    slow = SlowPredictor(predictor.state_dict(), heads=CONFIG.heads)
    initial, _ = draw()
    states = torch.randn(3, T, E, generator=torch.Generator().manual_seed(5))
    logits = reconstruct(predictor, initial, states).detach()
    for row in range(3):
        tokens = []
        for state in [initial[row], *states[row]]:
            embedded = slow.linear("state_embed", norm(state.double()))
            tokens += [embedded, slow.tensors["action_mask_token"]]
        expected = slow.linear("action_head", slow.last_norm(slow.blocks(tokens[:-1])[2::2]))
        torch.testing.assert_close(logits[row].double(), expected.detach(), rtol=1e-4, atol=1e-5)


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
    with pytest.raises(ConfigError, match="'text', but no vectors"):
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
