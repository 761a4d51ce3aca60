import numpy as np
import pytest
import torch

from cefito.data.taxonomy import Action, Task, Taxonomy
from cefito.data.windows import Windows
from cefito.field.proposal import ProposalNetwork
from cefito.field.settings import ProposalConfig
from cefito.training.distributed import Processes
from cefito.training.proposal_loss import ProposalLoss
from cefito.training.settings import AugmentationConfig, TrainingConfig

E, T, K = 8, 3, 7
ACTIONS = {0: (0, 1, 2, 3), 1: (3, 4, 5, 6)}
TAXONOMY = Taxonomy(
    dataset="made",
    tasks=tuple(Task(task, f"task {task}", actions) for task, actions in ACTIONS.items()),
    actions=tuple(Action(index, f"action {index}") for index in range(K)),
)
ROWS = torch.tensor([5, 0, 3])
ONE = Processes()


def windows(count: int = 6, seed: int = 0) -> Windows:
    generator = np.random.default_rng(seed)
    tasks = np.arange(count) % 2
    return Windows(
        initial=generator.standard_normal((count, E), np.float32),
        goal=generator.standard_normal((count, E), np.float32),
        actions=np.stack([generator.choice(ACTIONS[int(task)], size=T) for task in tasks]),
        tasks=tasks,
        video=np.arange(count),
        start=np.zeros(count, np.int64),
        taxonomy=TAXONOMY,
        action_text=None,
        dataset="made",
        split="train",
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def proposal_loss(
    *,
    actions: dict[int, tuple[int, ...]] | None = None,
    dropout: float = 0.0,
    noise: float = 0.0,
    swap: float = 0.0,
) -> ProposalLoss:
    config = ProposalConfig(hidden=(6, 5), action_dim=4, dropout=dropout)
    network = ProposalNetwork(config=config, observation_dim=E, action_count=K, horizon=T)
    network.reset(generator(1))
    with torch.no_grad():
        network.bias.copy_(torch.randn(network.bias.shape, generator=generator(2)))
    training = TrainingConfig(augmentation=AugmentationConfig(noise=noise, swap=swap))
    return ProposalLoss(
        proposal=network,
        train=windows(),
        val=windows(4, seed=1),
        actions=ACTIONS if actions is None else actions,
        config=training,
    )


@torch.no_grad()
def slow_steps(
    made: ProposalLoss, data: Windows, rows: list[int], actions: dict[int, tuple[int, ...]]
) -> tuple[list[float], list[bool]]:
    """Log-likelihoods of steps whose action is allowed; whether each step's likeliest is right."""
    likelihoods, right = [], []
    for row in rows:
        logits = made.module(
            torch.from_numpy(data.initial[[row]]), torch.from_numpy(data.goal[[row]])
        )[0].double()
        allowed = actions.get(int(data.tasks[row]), tuple(range(K)))
        for step, true in enumerate(data.actions[row].tolist()):
            weights = {action: np.exp(float(logits[step, action])) for action in allowed}
            right.append(max(weights, key=weights.__getitem__) == true)
            if true in weights:
                likelihoods.append(float(np.log(weights[true] / sum(weights.values()))))
    return likelihoods, right


SOME = {0: (0, 1), 1: (3, 4, 5, 6)}  # training windows of task 0 have actions besides


@pytest.mark.parametrize("actions", [ACTIONS, SOME, {1: ACTIONS[1]}, {}])
def test_cross_entropy_of_the_tasks_actions(actions):
    made = proposal_loss(actions=actions)
    assert len(made) == 6
    term = made.terms(torch.arange(6), generator(), ONE)["cross_entropy"]
    likelihoods, _ = slow_steps(made, windows(), list(range(6)), actions)
    assert int(term.count) == len(likelihoods)
    assert float(term.sum.detach()) == pytest.approx(-sum(likelihoods), rel=1e-5)
    assert term.weight == 1
    assert (len(likelihoods) < 18) == (actions is SOME)


@pytest.mark.parametrize("actions", [ACTIONS, SOME])
def test_gradients_are_finite_and_spare_other_tasks_actions(actions):
    made = proposal_loss(actions=actions)
    both_of_task_0 = torch.tensor([0, 2])
    made.terms(both_of_task_0, generator(), ONE)["cross_entropy"].sum.backward()
    gradients = {name: parameter.grad for name, parameter in made.module.named_parameters()}
    assert all(bool(gradient.isfinite().all()) for gradient in gradients.values())
    others = [action for action in range(K) if action not in actions[0]]
    assert not gradients["action_vectors"][others].any()
    assert gradients["action_vectors"][list(actions[0])].any()


@pytest.mark.parametrize("actions", [ACTIONS, SOME])
@torch.no_grad()
def test_scores(actions):
    made = proposal_loss(actions=actions)
    scores = made.validate(ONE)
    assert list(scores) == ["step_log_likelihood", "step_accuracy"]
    likelihoods, right = slow_steps(made, windows(4, seed=1), list(range(4)), actions)
    assert scores["step_log_likelihood"] == pytest.approx(np.mean(likelihoods), rel=1e-5)
    assert scores["step_accuracy"] == pytest.approx(100 * np.mean(right))


def test_observations_are_changed_and_units_dropped():
    plain = float(proposal_loss().terms(ROWS, generator(), ONE)["cross_entropy"].sum.detach())
    for settings in ({"noise": 0.3}, {"dropout": 0.3}):
        sums = [
            float(
                proposal_loss(**settings)
                .terms(ROWS, generator(), ONE)["cross_entropy"]
                .sum.detach()
            )
            for _ in range(2)
        ]
        assert sums[0] == sums[1] != pytest.approx(plain)


def test_shares_of_processes_add_up():
    made = proposal_loss(noise=0.3, swap=0.5)
    whole = made.terms(ROWS, generator(), ONE)["cross_entropy"]
    parts = [
        made.terms(ROWS, generator(), Processes(rank=rank, world=4))["cross_entropy"]
        for rank in range(4)
    ]
    torch.testing.assert_close(whole.sum, sum(part.sum for part in parts))
    assert [int(part.count) for part in parts] == [T, T, T, 0]
