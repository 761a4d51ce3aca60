from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field import energy as energy_module
from cefito.field.energy import EnergyField
from cefito.field.settings import FieldConfig
from cefito.training.field_loss import FieldLoss
from cefito.training.negatives import ActionSets, NegativeSampler
from cefito.training.settings import (
    AuxiliaryConfig,
    FieldTrainingConfig,
    LossConfig,
    MarginConfig,
    NegativesConfig,
)

from .made import ACTIONS, ROWS, E, K, T, generator, windows
from .reference import PlainFieldLoss, margin, reconstruct


def field_loss(
    *,
    field: dict | None = None,
    score: Any = None,
    vectors: torch.Tensor | None = None,
    horizon: int = T,
    kind: type[FieldLoss] = FieldLoss,
    data: Windows | None = None,
    **training: object,
) -> FieldLoss:
    config = FieldConfig(
        **{"width": 16, "depth": 2, "heads": 2, "mlp_ratio": 2, "action_dim": 6, **(field or {})}
    )
    module = EnergyField(
        config=config, observation_dim=E, action_count=K, horizon=horizon, action_vectors=vectors
    )
    module.reset(generator(1), mean=torch.arange(E) / 10)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator(2)))
    training = {"negatives": NegativesConfig(count=6, hard=0.5), **training}
    return kind(
        field=module,
        train=data or windows(horizon=horizon),
        actions=ACTIONS,
        config=FieldTrainingConfig(**training),
        score=score,
    )


def drawn_negatives(made: FieldLoss) -> torch.Tensor:
    """The negatives that a batch of ROWS draws first from a fresh generator."""
    sampler = NegativeSampler(
        config=made.config.negatives, actions=ActionSets.build(ACTIONS), action_count=K, horizon=T
    )
    return sampler.sample(made.actions[ROWS], made.tasks[ROWS], generator())


@torch.no_grad()
def slow_terms(made: FieldLoss) -> dict[str, tuple[float, int]]:
    """Sums and counts of all losses over ROWS, one sequence at a time."""
    field, config, data, negatives = made.module, made.config, windows(), drawn_negatives(made)
    contrastive, reconstruction = [], {"auxiliary": [], "auxiliary_negatives": []}
    for row, row_negatives in zip(ROWS.tolist(), negatives, strict=True):
        initial, goal = torch.from_numpy(data.initial[[row]]), torch.from_numpy(data.goal[[row]])
        truth = torch.from_numpy(data.actions[[row]])
        energies = []
        for index, sequence in enumerate([truth, *row_negatives[:, None]]):
            energies.append(float(field.energy(initial, goal, sequence)))
            states = field.predictor.states(field.centred(initial), sequence)
            if config.auxiliary.goal == "true":
                states = torch.cat([states[:, :-1], field.centred(goal)[:, None]], dim=1)
            logits = reconstruct(field.predictor, field.centred(initial), states)[0]
            losses = [
                float(F.cross_entropy(logits[place], sequence[0, place])) for place in range(T)
            ]
            reconstruction["auxiliary" if index == 0 else "auxiliary_negatives"] += losses
        if config.loss.kind == "softmax":
            logits = -torch.tensor(energies) / config.loss.temperature
            contrastive.append(float(logits.logsumexp(dim=0) - logits[0]))
            continue
        bounds = config.loss.margin
        for energy, sequence in zip(energies[1:], row_negatives.tolist(), strict=True):
            bound = margin(
                truth[0].tolist(), sequence, low=bounds.low, high=bounds.high, order=bounds.order
            )
            loss = max(energies[0] - energy + bound, 0)
            if loss > 0 or config.loss.reduction == "mean":
                contrastive.append(loss)
    return {
        name: (sum(losses), len(losses))
        for name, losses in {"contrastive": contrastive, **reconstruction}.items()
    }


LOSSES = [
    LossConfig(margin=MarginConfig(low=0.5, high=2, order=0.3)),
    LossConfig(reduction="violating", margin=MarginConfig(low=0.05, high=0.15)),
    LossConfig(kind="softmax", temperature=0.2),
]
FIELDS = [{"distance": "l2", "centre": True}, {"distance": "mean_square"}]


@pytest.mark.parametrize("goal", ["true", "predicted"])
@pytest.mark.parametrize("negatives", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}-{loss.reduction}")
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field["distance"])
def test_losses_are_those_of_explicit_loops(field, loss, negatives, goal):
    made = field_loss(
        field=field,
        loss=loss,
        auxiliary=AuxiliaryConfig(weight=0.6, goal=goal, negatives=negatives),
    )
    terms, expected = made.terms(ROWS, generator()), slow_terms(made)
    assert set(terms) == {"contrastive", "auxiliary"} | (
        {"auxiliary_negatives"} if negatives else set()
    )
    for name, term in terms.items():
        total, count = expected[name]
        assert float(term.sum.detach()) == pytest.approx(total, rel=1e-4)
        assert int(term.count) == count
    weights = {name: term.weight for name, term in terms.items()}
    assert weights == (
        {"contrastive": 1, "auxiliary": 0.3, "auxiliary_negatives": 0.3}
        if negatives
        else {"contrastive": 1, "auxiliary": 0.6}
    )


RECONSTRUCTIONS = [("latents", "predicted"), ("states", "predicted"), ("states", "true")]


def reconstructed(candidates: torch.Tensor, *, reduced: bool = False, **more: Any):
    """Energies and cross-entropies of candidates [B, M, T], and the gradients of a sum of them."""
    made = field_loss(horizon=candidates.shape[2], **more)
    draws = generator(3)
    initial, goal = torch.randn(2, len(candidates), E, generator=draws)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=reduced):
        energies, losses = made._reconstructed(initial, goal, candidates)
    assert energies.dtype == losses.dtype == torch.float32
    weights = (torch.randn(part.shape, generator=draws) for part in (energies, losses))
    sum(
        (part * weight).sum() for part, weight in zip((energies, losses), weights, strict=True)
    ).backward()
    slopes = {name: p.grad for name, p in made.module.named_parameters() if p.grad is not None}
    return energies.detach(), losses.detach(), slopes


@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(1, 4),
    actions=st.integers(1, K),
    count=st.integers(1, 12),
    batch=st.integers(1, 3),
    skip=st.booleans(),
    kind=st.sampled_from(RECONSTRUCTIONS),
)
def test_all_candidates_are_reconstructed_as_by_themselves(
    seed, horizon, actions, count, batch, skip, kind
):
    """Of few actions many candidates share prefixes, and some are equal."""
    candidates = torch.randint(actions, (batch, count, horizon), generator=generator(seed))
    made: dict[str, Any] = {
        "auxiliary": AuxiliaryConfig(states=kind[0], goal=kind[1], negatives=True),
        "field": {"goal_skip": skip, "action_encoding": "observed"},
        "vectors": torch.randn(K, E, generator=generator(seed)),
    }
    fast, slow = (
        reconstructed(candidates, kind=cls, **made) for cls in (FieldLoss, PlainFieldLoss)
    )
    assert fast[2].keys() == slow[2].keys()
    expected = (*slow[:2], *slow[2].values())
    # relative to the largest value of all: float32 sums in another order, in which terms may cancel
    largest = max(float(values.abs().max()) for values in expected)
    for ours, theirs in zip((*fast[:2], *fast[2].values()), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("negatives", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind}-{loss.reduction}")
def test_parts_of_a_batch_have_the_losses_and_gradients_of_the_whole(monkeypatch, loss, negatives):
    found = []
    for together, expected in ((2, 2 if loss.reduction == "mean" else 1), (16, 1)):
        monkeypatch.setattr(energy_module, "TOGETHER", together)
        made = field_loss(loss=loss, auxiliary=AuxiliaryConfig(weight=0.6, negatives=negatives))
        parts, sums = list(made.parts(ROWS, generator())), {}
        assert len(parts) == expected
        for part in parts:
            for name, term in part.items():
                assert int(term.count) == int(parts[0][name].count)
                sums[name] = sums.get(name, 0) + term.sum.detach()
            sum(term.weight * term.sum / term.count for term in part.values()).backward()
        slopes = [one.grad for one in made.module.parameters() if one.grad is not None]
        counts = [term.count for term in parts[0].values()]
        found.append([*sums.values(), *counts, *slopes])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_mean_observations_stand_for_actions_while_a_loss_is_computed():
    made = field_loss(
        field={"action_encoding": "observed"}, vectors=torch.randn(K, E, generator=generator())
    )
    kept = made.module.predictor.action_vectors.clone()
    first = made.terms(ROWS, generator())["contrastive"].sum
    assert torch.equal(made.module.predictor.vectors, kept)
    made.module.predictor.action_vectors.zero_()  # what is stored plays no part in training
    torch.testing.assert_close(made.terms(ROWS, generator())["contrastive"].sum, first)


@pytest.mark.parametrize("weight", [0, 0.6])
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field["distance"])
def test_regression_is_the_distance_of_the_annotated_sequence(field, weight):
    made = field_loss(
        field=field, loss=LossConfig(kind="regression"), auxiliary=AuxiliaryConfig(weight=weight)
    )
    terms, data = made.terms(ROWS, generator()), windows()
    parts = [torch.from_numpy(part) for part in (data.initial, data.goal, data.actions)]
    distances = [
        float(made.module.energy(*(part[[row]] for part in parts)).detach())
        for row in ROWS.tolist()
    ]
    assert float(terms["contrastive"].sum.detach()) == pytest.approx(sum(distances), rel=1e-5)
    assert (float(terms["contrastive"].count), terms["contrastive"].weight) == (3, 1)
    assert set(terms) == {"contrastive"} | ({"auxiliary"} if weight else set())
