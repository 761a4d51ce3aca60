"""Trainings in float32 and in bfloat16, of every method that trains networks."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from cefito.planners.methods import METHODS, find_method, load_config, precisions
from cefito.runtime import generator_for
from cefito.settings import flattened
from cefito.testing import quick
from cefito.training.settings import TrainingResult
from cefito.training.trainer import TrainingContext
from tiny_runs import TINY_RUN, often_or_nightly

pytestmark = pytest.mark.usefixtures("asked_server")
KNOBS = {"train": 32, "val": 12, "test": 4, "dim": 12}
LEARNED = [name for name in METHODS if find_method(name).settings.model_fields]


def config(precision="float32", method="cefito", **more: Any):
    endings = {"training.optimiser.epochs": 2, "training.stopping.windows": 10}
    small = TINY_RUN if method == "cefito" else {}
    overrides = small | quick(load_config("quickstart").sections, endings) | more
    overrides |= precisions(precision, method)
    return load_config("quickstart", method=method, overrides=overrides, shared=True)


@dataclass(frozen=True, kw_only=True)
class Looking(TrainingContext):
    """Computes the losses of one batch in both precisions instead of training."""

    found: list[tuple[str, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def train(self, name, loss, training, *, seed, settings):  # noqa: ARG002
        rows = torch.arange(min(32, len(loss)))
        with torch.no_grad():  # a layer of zeros would hide what is before it
            for weight in loss.module.parameters():
                if not weight.any():
                    weight.normal_(std=0.02, generator=generator_for("cpu", 1))
        sums = []
        for reduced in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=reduced):
                terms = loss.terms(rows, generator_for("cpu", 0))
            sums.append({key: term.sum for key, term in terms.items()})
        self.found.extend((key, sums[0][key], sums[1][key]) for key in sums[0])
        return TrainingResult(epochs=0, best_epoch=0, scores=(), resumed=False)


@pytest.mark.parametrize("name", [*map(often_or_nightly, LEARNED)])
def test_losses_stay_float32(name, world):
    method = find_method(name)
    context = Looking()
    settings = config(method=name, **{"search.task_model": "classifier"}).settings
    method.planner.fit(*world, settings=settings, seed=0, context=context)
    assert context.found
    for key, exact, reduced in context.found:
        assert reduced.dtype == torch.float32, key
        assert float(reduced.detach()) == pytest.approx(float(exact.detach()), rel=0.03), key
    assert any(not torch.equal(exact, reduced) for _, exact, reduced in context.found)


@pytest.mark.parametrize("method", LEARNED)
def test_small_presets_train_in_float32(method):
    for preset, expected in (("paper", "auto"), ("small", "float32"), ("quickstart", "float32")):
        values = flattened(load_config(preset, method=method).sections)
        keys = [key for key in precisions("auto", method) if not key.startswith("recogniser.")]
        assert {values[key] for key in keys} == {expected}
