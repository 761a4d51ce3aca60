import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cefito.errors import RunError
from cefito.training import trainer as trainer_module
from cefito.training.checkpoint import MetricsLog, read_metrics
from cefito.training.settings import EmaConfig, StoppingConfig, TrainingConfig, TrainingResult
from cefito.training.trainer import Term, Training, TrainingContext
from learned import same_tensors, same_weights

Weights = dict[str, Tensor]


class Regression:
    """Least squares on ten points, with noise from the given generator."""

    def __init__(self, scores: list[tuple[float, ...]] | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(10, 3, generator=generator)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3
        self.module: Any = nn.Linear(3, 1)
        self.module.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.scores = scores
        self.seen: list[Weights] = []
        self.validated: list[Weights] = []
        self.batches: list[list[int]] = []
        self.noises: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.x)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        assert self.module.training
        self.seen.append(copy(self.module))
        self.batches.append(rows.tolist())
        self.module.calls += 1
        noise = 0.1 * torch.randn(len(rows), 3, generator=generator)
        self.noises.append(noise)
        errors = self.module(self.x[rows] + noise)[:, 0] - self.y[rows]
        return {
            "squares": Term(1.0, errors.square().sum(), torch.tensor(len(rows))),
            "size": Term(0.01, self.module.weight.square().sum(), torch.tensor(1)),
        }

    def validate(self) -> Mapping[str, float]:
        assert not self.module.training
        self.validated.append(copy(self.module))
        if self.scores is not None:
            scores = self.scores[len(self.validated) - 1]
            return dict(zip(("first", "second"), scores, strict=False))
        return {"negative_loss": -float((self.module(self.x)[:, 0] - self.y).square().mean())}


def copy(module: nn.Module) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def run(
    loss: Regression,
    *,
    ema: EmaConfig | None = None,
    stopping: StoppingConfig | None = None,
    given: Mapping[str, Any] | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
    folder: Path | None = None,
    seed: int = 5,
    **optimiser: object,
) -> TrainingResult:
    settings = {"epochs": 6, "batch_size": 4, "learning_rate": 0.05, "weight_decay": 0.0}
    config = TrainingConfig(
        optimiser=settings | optimiser,
        ema=ema or EmaConfig(),
        stopping=stopping or StoppingConfig(patience=0),
    )
    training = Training(
        loss, training=config, seed=seed, key="k", folder=folder, precision=precision
    )
    return training.run(**(given or {}))


@contextmanager
def watched_steps() -> Iterator[list[tuple[float, float]]]:
    """(learning rate, norm of the gradient) of every optimisation step."""
    steps: list[tuple[float, float]] = []

    def look(optimiser: torch.optim.Optimizer, *_: object) -> None:
        (group,) = optimiser.param_groups
        norm = torch.cat([parameter.grad.flatten() for parameter in group["params"]]).norm()
        steps.append((group["lr"], float(norm)))

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield steps
    finally:
        handle.remove()


def test_every_epoch_has_each_example_once_in_another_order_with_other_noise():
    loss = Regression()
    result = run(loss, epochs=3)
    assert [len(batch) for batch in loss.batches] == [4, 4, 2] * 3
    epochs = [
        [row for batch in loss.batches[first : first + 3] for row in batch] for first in (0, 3, 6)
    ]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert len({tuple(noise[0].tolist()) for noise in loss.noises}) == 9
    assert (result.epochs, result.resumed) == (3, False)
    assert len(result.metrics) == len(result.scores)


@pytest.mark.parametrize(("batch", "sizes"), [(4, [4, 4]), (5, [5, 5]), (16, [10])])
def test_an_incomplete_batch_can_be_left_out(batch, sizes):
    loss = Regression()
    run(loss, epochs=3, batch_size=batch, drop_last=True)
    assert [len(rows) for rows in loss.batches] == 3 * sizes
    whole = Regression()
    run(whole, epochs=3, batch_size=batch)
    kept = [rows for rows in whole.batches if len(rows) == sizes[0]]
    assert loss.batches == kept


@pytest.mark.parametrize(("every", "warmup"), [(1, 0), (1, 4), (3, 2), (2, 5), (3, 6)])
def test_average_is_that_of_a_slow_loop(every, warmup):
    """At every n-th step, and only there: a copy before the start, then a step to the weights."""
    loss = Regression()
    run(loss, ema=EmaConfig(decay=0.9, every=every, warmup=warmup))
    weights = loss.seen  # at the beginning of step n + 1, that is, after step n
    average = weights[0]
    for step in range(1, len(weights)):
        if step % every == 0 and step < warmup:
            average = weights[step]
        elif step % every == 0:
            average = {
                name: tensor if name == "calls" else 0.9 * average[name] + 0.1 * tensor
                for name, tensor in weights[step].items()
            }
        if step % 3 == 0:
            for name, tensor in loss.validated[step // 3 - 1].items():
                if name != "calls":
                    torch.testing.assert_close(tensor, average[name])


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(1,), (3,), (2,), (3,)], 2),
        ([(1,), (2,), (3,), (4,)], 4),
        ([(4,), (3,), (2,), (1,)], 1),
        ([(1, 5), (2, 1), (2, 4), (2, 3)], 3),
        ([(0, -9.0), (0, -8.0), (0, -8.0), (-1, 0)], 2),
    ],
)
def test_the_best_epoch_is_kept(scores, best):
    loss = Regression([tuple(map(float, score)) for score in scores])
    result = run(loss, epochs=4, ema=EmaConfig(decay=0.5, every=1, warmup=0))
    assert result.best_epoch == best
    assert result.scores == tuple(scores[best - 1])
    assert same_tensors(loss.module.state_dict(), loss.validated[best - 1])
    assert not loss.module.training


@pytest.mark.parametrize(
    ("patience", "every", "epochs", "validations"),
    [(1, 1, 3, 3), (2, 1, 6, 6), (0, 1, 9, 9), (1, 2, 6, 3), (2, 3, 9, 3), (0, 4, 9, 3)],
)
def test_early_stopping(patience, every, epochs, validations):
    """Scores get better at the 1st, 2nd and 4th validation; the last epoch is always validated."""
    loss = Regression([(1.0,), (2.0,), (0.0,), (3.0,), (0.0,), (0.0,), (0.0,), (0.0,), (0.0,)])
    result = run(loss, epochs=9, stopping=StoppingConfig(patience=patience, every=every))
    assert result.epochs == epochs
    assert len(loss.validated) == validations


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({"epochs": 2}, [1] * 6),
        (
            {"epochs": 2, "schedule": "cosine"},
            [(1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)],
        ),
        (  # 12 steps, 3 to rise, then halved every 3
            {"epochs": 4, "schedule": "step", "warmup": 0.25, "factor": 0.5, "interval": 0.25},
            [1 / 4, 2 / 4, 3 / 4, 1, 1, 1, 1 / 2, 1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 4],
        ),
        ({"epochs": 2, "warmup": 0.5}, [1 / 4, 2 / 4, 3 / 4, 1, 1, 1]),
    ],
    ids=["constant", "cosine", "step", "warmup"],
)
def test_learning_rates(settings, shares):
    with watched_steps() as steps:
        run(Regression(), **settings)
    assert [rate for rate, _ in steps] == pytest.approx([0.05 * share for share in shares])


def test_clipping():
    with watched_steps() as steps:
        run(Regression(), epochs=2)
    free = [norm for _, norm in steps]
    assert max(free) > 0.5
    with watched_steps() as steps:
        run(Regression(), epochs=2, clip=0.5)
    assert [norm <= 0.5 + 1e-5 for _, norm in steps] == [True] * 6
    assert steps[0][1] == pytest.approx(min(free[0], 0.5), rel=1e-4)


def test_weight_decay_is_decoupled():
    plain, decayed = Regression(), Regression()
    run(plain, epochs=1, batch_size=10)
    run(decayed, epochs=1, batch_size=10, weight_decay=0.5)
    start = plain.seen[0]["weight"]
    torch.testing.assert_close(
        plain.validated[0]["weight"] - decayed.validated[0]["weight"], 0.05 * 0.5 * start
    )


def test_the_loss_is_weighted_sums_over_counts(tmp_path):
    loss = Regression()
    run(loss, folder=tmp_path, epochs=1, batch_size=10)
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert line["size"] == pytest.approx(float(loss.seen[0]["weight"].square().sum()))
    assert line["loss"] == pytest.approx(line["squares"] + 0.01 * line["size"])
    assert (line["epoch"], line["step"], line["learning_rate"]) == (1, 1, 0.05)
    after = loss.validated[0]
    errors = loss.x @ after["weight"][0] + after["bias"] - loss.y
    assert line["val_negative_loss"] == pytest.approx(-float(errors.square().mean()))


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_losses_are_computed_in_the_precision_of_the_training(precision, parts):
    reduced = set()

    class Noting(Regression):
        def terms(self, *given):
            reduced.add(torch.is_autocast_enabled("cpu"))
            return super().terms(*given)

    class InParts(Noting):
        def parts(self, *given):
            yield self.terms(*given)

    loss = InParts() if parts else Noting()
    run(loss, precision=precision, epochs=1)
    assert reduced == {precision == "bfloat16"}
    assert {weights.dtype for weights in loss.module.parameters()} == {torch.float32}


def test_a_training_is_not_resumed_in_another_precision(tmp_path):
    context, small = TrainingContext(folder=tmp_path), {"epochs": 1, "batch_size": 4}
    for precision, resumed in (("float32", False), ("float32", True), ("bfloat16", None)):
        config = TrainingConfig(optimiser=small | {"learning_rate": 0.05}, precision=precision)
        how: Any = {"training": config, "seed": 0, "settings": {}}
        if resumed is None:
            with pytest.raises(RunError, match="another precision, and cannot be resumed"):
                context.train("loss", Regression(), **how)
        else:
            assert context.train("loss", Regression(), **how).resumed is resumed


def test_a_count_of_zero_is_no_division():
    class Nothing(Regression):
        def terms(self, rows, generator):  # noqa: ARG002
            nothing = 0 * sum(parameter.sum() for parameter in self.module.parameters())
            return {"none": Term(1.0, torch.as_tensor(nothing), torch.tensor(0))}

    loss = Nothing()
    run(loss, epochs=1)
    assert all(tensor.isfinite().all() for tensor in loss.module.state_dict().values())


def test_diverged_training_is_refused(tmp_path):
    class Diverging(Regression):
        def terms(self, rows, generator):
            terms = super().terms(rows, generator)
            if len(self.batches) <= 7:
                return terms
            return {"squares": Term(1.0, terms["squares"].sum * torch.nan, terms["squares"].count)}

    with pytest.raises(RunError, match=r"nan at step 8 \(epoch 3\)"):
        run(Diverging(), folder=tmp_path)
    whole, resumed = Regression(), Regression()
    run(whole)
    run(resumed, folder=tmp_path)
    assert len(resumed.validated) == 4
    assert same_weights(resumed.module, whole.module)


class KilledError(BaseException):
    """Stands for a kill; nothing in the library catches it."""


FULL: dict[str, Any] = {
    "ema": EmaConfig(decay=0.8, every=2, warmup=3),
    "stopping": StoppingConfig(patience=3, every=2),
    "epochs": 8,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "clip": 1.0,
}


def epochs_logged(folder: Path) -> list[int]:
    return [line["epoch"] for line in read_metrics(folder / "metrics.jsonl")]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (MetricsLog, "write"),
        (trainer_module, "save_checkpoint"),
        (Regression, "terms"),
        (Regression, "validate"),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_anywhere_changes_nothing(tmp_path, monkeypatch, owner, name, after):
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    whole = Regression()
    expected = run(whole, folder=tmp_path / "whole", **FULL)
    original, kills = getattr(owner, name), 0
    for allowed in range(1, 100):
        calls = 0

        def dying(*args, allowed=allowed, **kwargs):
            nonlocal calls
            calls += 1
            if calls == allowed and not after:
                raise KilledError
            result = original(*args, **kwargs)
            if calls == allowed:
                raise KilledError
            return result

        monkeypatch.setattr(owner, name, dying)
        (tmp_path / "killed" / ".checkpoint.safetensors.0a1b2c3d.tmp").touch()
        loss = Regression()
        if (tmp_path / "killed" / "checkpoint.safetensors").exists():
            with torch.no_grad():
                loss.module.weight.fill_(9.0)  # the checkpoint must replace all weights
        try:
            result = run(loss, folder=tmp_path / "killed", **FULL)
        except KilledError:
            kills += 1
            continue
        break
    assert kills >= 3
    assert (result.epochs, result.best_epoch, result.scores) == (
        expected.epochs,
        expected.best_epoch,
        expected.scores,
    )
    assert same_weights(loss.module, whole.module)
    assert epochs_logged(tmp_path / "killed") == list(range(1, expected.epochs + 1))
    names = {path.name for path in (tmp_path / "killed").iterdir()}
    assert names == {
        "checkpoint.safetensors",
        "metrics.jsonl",
    }  # nothing of a write that was killed


def test_a_finished_training_is_not_repeated(tmp_path):
    loss, again = Regression(), Regression()
    first = run(loss, folder=tmp_path)
    second = run(again, folder=tmp_path)
    assert again.batches == []
    assert same_weights(loss.module, again.module)
    assert second.resumed
    assert not first.resumed
    assert second.scores == first.scores
    assert second.metrics == first.metrics != ()


def test_lines_cut_short_or_ahead_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 1}\n{"epoch": 2}\n{"epoch": 3}\n{"epo')
    assert [line["epoch"] for line in read_metrics(path)] == [1, 2, 3]
    log = MetricsLog(tmp_path, 2)
    log.write({"epoch": 3, "loss": 0.5})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"epoch": 1},
        {"epoch": 2},
        {"epoch": 3, "loss": 0.5},
    ]
