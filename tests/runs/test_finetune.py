"""Runs that go on learning from another data set."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cefito.data import Annotations, cut_windows
from cefito.data.simulation.observations import ObservationKnobs
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import fitting_windows, split_videos
from cefito.errors import ConfigError, DataError, RunError
from cefito.field.fields import named_components
from cefito.parts.folder import trained_videos, window_sizes
from cefito.planners.any_length.usual import whole_videos
from cefito.planners.base import Queries
from cefito.planners.methods import load_config
from cefito.runs.finetune import _config, finetune
from cefito.runs.run import open_run
from cefito.runs.start import Start
from cefito.runs.train import train_run
from cefito.training.trainer import TrainingContext
from part_worlds import part_of
from tiny_runs import TINY_LENGTHS, contents, small_run, stopping_after

OLD, NEW = [0, 1, 2, 3], [4, 3, 1]
ADDED = 4  # the task of NEW that OLD lacks
QUICK = {
    "chain.hidden": 32,
    "chain.width": 16,
    "chain.emission": 32,
    "chain.members": 2,
    "chain.input_dropout": 0.1,
    "chain_training.optimiser.epochs": 8,
    "chain_training.optimiser.batch_size": 16,
    "chain_training.optimiser.learning_rate": 4e-3,
    "chain_training.all_videos": 0.0,
    "field.width": 16,
    "field.depth": 1,
    "field.heads": 2,
    "training.optimiser.epochs": 2,
    "training.negatives.count": 4,
    "training.stopping.windows": 5,
    "training.stopping.every": 1,
    "search.fitting_windows": 20,
}
BRIEFLY = QUICK | {"chain_training.optimiser.epochs": 4}
SMALL = load_config("small", method="cefito+chain", overrides=BRIEFLY)
CHAIN = load_config("small", method="chain", overrides=QUICK, shared=True)
LENGTHS = load_config("small", method="any-length", overrides=TINY_LENGTHS)
PAPER = load_config(
    "paper",
    overrides=QUICK
    | {
        "chain.members": 1,
        "chain_training.optimiser.epochs": 2,
        "classifier.hidden": [8, 16, 8],
        "classifier_training.optimiser.epochs": 2,
        "field.action_dim": 8,
    },
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(
            train=48,
            val=24,
            test=24,
            dim=32,
            observations=ObservationKnobs(task=5, step=9, progress=0.5, noise=0.4, style=0.4),
        ),
    )


@pytest.fixture(scope="module")
def old(world, tmp_path_factory):
    return part_of(world, tmp_path_factory.mktemp("data") / "old", tasks=OLD)


@pytest.fixture(scope="module")
def new(world, tmp_path_factory):
    return part_of(world, tmp_path_factory.mktemp("data") / "new", tasks=NEW)


@pytest.fixture(scope="module")
def chain(old, tmp_path_factory):
    """A trained chain, not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "chain"
    return train_run(old, folder, config=CHAIN, horizon=3, seed=0)


@pytest.fixture(scope="module")
def whole(old, tmp_path_factory):
    """A trained run of the whole method, with a field of both directions and observed actions."""
    return train_run(
        old, tmp_path_factory.mktemp("runs") / "whole", config=SMALL, horizon=3, seed=0
    )


@pytest.fixture(scope="module")
def further(chain, new, tmp_path_factory):
    """The chain finetuned, not to be changed."""
    before = contents(chain.folder)
    made = finetune(chain, new, tmp_path_factory.mktemp("runs") / "further")
    assert contents(chain.folder) == before
    return made


def test_new_tasks_and_actions_stand_behind_the_old_ones(chain, further, world):
    before, after = chain.taxonomy, further.taxonomy
    assert after.actions[: len(before.actions)] == before.actions
    assert after.tasks[: len(before.tasks)] == before.tasks
    added = world.taxonomy.tasks[ADDED]
    assert [task.name for task in after.tasks[len(before.tasks) :]] == [added.name]
    assert after.names(list(after.tasks[-1].actions)) == world.taxonomy.names(list(added.actions))


def test_what_the_new_run_says_of_its_beginning(chain, further, new, old):
    info = open_run(further.folder).info
    begun = info.started_from
    assert (begun.dataset.fingerprint, begun.seed) == (old.fingerprint, chain.info.seed)
    assert begun.folder == str(chain.folder.resolve())
    assert re.fullmatch("[0-9a-f]{64}", begun.weights)
    assert (begun.new_tasks, begun.new_actions) == (1, len(further.taxonomy.actions[29:]))
    assert info.dataset.fingerprint == new.fingerprint
    assert info.windows["train"] == len(cut_windows(new, horizon=3, split="train"))
    assert [result.epochs for result in info.training.values()] == [2, 2]
    assert _config(further, None, {}).sections == further.config.sections  # few epochs already
    assert "started_from" not in json.loads((chain.folder / "run.json").read_text())
    seen = trained_videos(further.folder)
    assert {*trained_videos(chain.folder).train} < {*seen.train}


def windows_of(run, dataset, selection="held-out"):
    """Windows to train and to choose on, in the ids of the new run."""
    start = Start.make(run, dataset)
    sizes = window_sizes(run.planner, run.horizon, run.shortest)
    return start.roles(*fitting_windows(start.dataset, **sizes, selection=selection))


def untrained(run, dataset, config, monkeypatch):
    """A planner before the first step of its finetuning."""
    monkeypatch.setattr("cefito.training.trainer.Training.step", lambda *_: {"loss": 0.0})
    windows = windows_of(run, dataset)
    given = {"settings": config.settings, "seed": 5, "context": TrainingContext()}
    return run.planner.refit(*windows, **given).planner


def test_training_begins_with_the_learned_chain(chain, old, new, monkeypatch):
    begun = untrained(chain, new, CHAIN, monkeypatch)
    ours, theirs = begun.model, chain.planner.model
    assert ours.states.task_count == theirs.states.task_count + 1
    windows = cut_windows(old, horizon=3, split="test")
    asked = Queries.from_windows(windows)
    tasks, actions = torch.from_numpy(windows.tasks), torch.from_numpy(windows.actions)

    def scores(model):
        found = replace(model, temperature=1.0, task_power=1.0).scores(asked)
        return found.scores(found.states.find(tasks, actions))

    torch.testing.assert_close(scores(ours), scores(theirs))
    # what is new is drawn as in a fresh training
    added = ours.states.tasks == theirs.states.task_count
    assert 0 < int(added.sum()) < len(ours.states)
    for network in ours.networks:
        network.requires_grad_(requires_grad=False)
        assert 0.8 < float(network.ends[:, added].std()) < 1.2
        emission = network.emission.weight.unflatten(0, (3, -1))[:, added]
        assert 0 < float(emission.abs().max()) <= SMALL.settings.chain.emission**-0.5
        assert not network.emission.bias.unflatten(0, (3, -1))[:, added].any()
        assert not network.change[-1].any()


def test_training_begins_with_the_learned_field(whole, new, monkeypatch):
    begun = untrained(whole, new, SMALL, monkeypatch)
    count = len(whole.taxonomy.actions)
    known_parts = named_components(whole.planner.field)
    for name, part in named_components(begun.field).items():
        ours, theirs = part.state_dict(), known_parts[name].state_dict()
        for key, tensor in theirs.items():
            if key != "predictor.action_vectors":
                rows = ours[key][: len(tensor)] if tensor.ndim else ours[key]
                torch.testing.assert_close(rows, tensor, rtol=0, atol=0)
        vectors, known = (part["predictor.action_vectors"] for part in (ours, theirs))
        met = {*begun_actions(whole, new)[:, [0, -1]].flatten().tolist()}
        absent = sorted({*range(count)} - met)
        torch.testing.assert_close(vectors[absent], known[absent])
        assert (vectors[count:].abs().sum(dim=1) > 0).any()
    assert all(
        {*before} <= {*after}
        for before, after in zip(whole.planner.space.actions, begun.space.actions, strict=False)
    )
    # the prior goes on counting
    before, after = (planner.prior.to_arrays() for planner in (whole.planner, begun))
    counted = dict(zip(map(tuple, after["events"].tolist()), after["counts"], strict=True))
    assert all(
        counted[tuple(event)] >= number
        for event, number in zip(before["events"].tolist(), before["counts"], strict=True)
    )
    assert after["counts"].sum() == before["counts"].sum() + begun_actions(whole, new).size


def begun_actions(run, dataset):
    train, _ = windows_of(run, dataset)
    return train.actions


def test_a_run_of_lengths_begins_with_what_it_learned(old, new, tmp_path, monkeypatch):
    run = train_run(old, tmp_path / "run", config=LENGTHS, horizon=4, shortest=1, seed=0)
    planner: Any = run.planner
    learned = planner.model
    windows = cut_windows(old, horizon=4, shortest=1, split="test").of_length(3)
    asked = Queries.from_windows(windows, after_done=True)
    tasks, actions = torch.from_numpy(windows.tasks), torch.from_numpy(windows.actions)

    def read(model):
        (network,), (known,) = model.networks, model.known(asked)
        scores = network.outputs(3, known).scores
        return *network.length_logits(known), scores.scores(scores.states.find(tasks, actions))

    with monkeypatch.context() as patch:
        begun = untrained(run, new, LENGTHS, patch).model
    assert begun.states.task_count == learned.states.task_count + 1
    torch.testing.assert_close(read(begun), read(learned))
    # n-grams go on counting
    before, after = learned.usual.left_at, begun.usual.left_at
    steps = (whole_videos(windows_of(run, new)[0])[0] >= 0).sum()
    assert after.sum() == before.sum() + steps
    assert (after[: len(before), : before.shape[1]] >= before).all()

    made = open_run(finetune(run, new, tmp_path / "further", epochs=1).folder)
    assert (made.steps, len(made.taxonomy.tasks)) == ("1-4", len(OLD) + 1)
    names = [task.name for task in made.taxonomy.tasks]
    orders = dict(zip(names, made.verifier.orders, strict=True))
    assert all(order.follows.any() for order in orders.values())
    gone = {task.name for task in run.taxonomy.tasks} - {task.name for task in new.taxonomy.tasks}
    edges = {task.name: run.verifier.orders[task.id].edges for task in run.taxonomy.tasks}
    assert {name: orders[name].edges for name in gone} == {name: edges[name] for name in gone}
    (plan,) = made.planner.plan(Queries.from_windows(windows_of(made, new)[1].subset([0])), 1)
    assert np.isfinite(plan.energies).all()
    with pytest.raises(ConfigError, match="all numbers of steps"):
        finetune(open_run(run.folder, horizon=3), new, tmp_path / "one")


@pytest.mark.nightly
def test_a_killed_finetuning_goes_on_to_the_same_weights(whole, new, tmp_path):
    settings = {"training.optimiser.epochs": 2, "chain_training.optimiser.epochs": 2}
    made = finetune(whole, new, tmp_path / "at-once", settings=settings)
    for steps in (3, 12, 6):
        with pytest.raises(KeyboardInterrupt):
            finetune(
                whole, new, tmp_path / "killed", settings=settings, progress=stopping_after(steps)
            )
    again = finetune(whole, new, tmp_path / "killed", settings=settings)
    assert any(result.resumed for result in again.info.training.values())
    at_once, killed = contents(tmp_path / "at-once"), contents(tmp_path / "killed")
    assert at_once.keys() == killed.keys()
    weights = [*(path.name for path in made.folder.glob("*.safetensors")), "planner.json"]
    assert [name for name in weights if at_once[name] != killed[name]] == []
    assert open_run(tmp_path / "killed").info == again.info


def test_a_folder_of_another_beginning(chain, further, new, old, tmp_path):
    folder = tmp_path / "run"
    finetune(chain, new, folder, epochs=1)
    for call in (
        lambda: train_run(new, folder, config=CHAIN, horizon=3, seed=0),
        lambda: finetune(further, new, folder, epochs=1),
    ):
        with pytest.raises(RunError, match="holds a run with another start"):
            call()


def test_nothing_is_chosen_on_videos_that_the_run_was_trained_on_in_the_end(old, new, tmp_path):
    settings = load_config(
        "small", method="chain", overrides=BRIEFLY | {"chain_training.all_videos": 0.5}, shared=True
    )
    run = train_run(old, tmp_path / "run", config=settings, horizon=3, seed=0)
    seen = trained_videos(run.folder)
    assert not seen.val
    _, val = windows_of(run, new)
    chosen = {new.videos[video].video_id for video in val.video}
    assert chosen
    assert not chosen & set(seen.train)
    made = finetune(run, new, tmp_path / "further", epochs=1)
    assert set(trained_videos(made.folder).train) >= chosen | set(seen.train)


def test_text_vectors_of_old_actions_stay_and_new_ones_come_from_the_data_set(world, tmp_path):
    """Of the preset `paper`, which also has a classifier."""

    def text(dataset, seed, width=6):
        generator = np.random.default_rng(seed)
        return generator.standard_normal((len(dataset.taxonomy.actions), width)).astype(np.float32)

    def with_text(name, tasks, seed, width=6):
        plain = part_of(world, tmp_path / f"{name}-plain", tasks=tasks)
        return part_of(world, tmp_path / name, tasks=tasks, action_text=text(plain, seed, width))

    old, new = with_text("old", [0, 1], 0), with_text("new", [2, 1], 1)
    run = train_run(old, tmp_path / "run", config=PAPER, horizon=3, seed=0)
    made = finetune(run, new, tmp_path / "further", epochs=1, settings={"search.tasks": 2})
    searched: Any = open_run(made.folder).planner
    assert searched.settings.search.tasks == 2  # of 1
    assert made.info.training.keys() == {"task classifier", "chain", "energy field"}
    opened: Any = open_run(made.folder).planner
    assert opened.task_model.network.fc4.out_features == 3
    vectors = opened.field.predictor.action_vectors.numpy()
    np.testing.assert_array_equal(vectors[: len(old.action_text)], old.action_text)
    added = {new.taxonomy.actions[action].name: action for action in new.taxonomy.tasks[0].actions}
    assert made.taxonomy.tasks[2].name == new.taxonomy.tasks[0].name
    fresh = [action for action in made.taxonomy.tasks[2].actions if action >= len(old.action_text)]
    assert fresh
    for action in fresh:
        own = added[made.taxonomy.actions[action].name]
        np.testing.assert_array_equal(vectors[action], new.action_text[own])
    for bare, found in (
        (part_of(world, tmp_path / "bare", tasks=[2]), "has none"),
        (with_text("wide", [2], 1, 7), "has embeddings of 7 numbers"),
    ):
        with pytest.raises(ConfigError, match=rf"of 6 numbers, .* {found}.*cefito embed"):
            finetune(run, bare, tmp_path / f"no-{bare.folder.name}", epochs=1)


def test_videos_keep_the_part_that_they_had(world, tmp_path):
    """The old videos with some more, where validation videos are held out."""

    def training(video):
        return replace(video, split="train") if video.split == "val" else video

    splits = {video.video_id: video.split for video in world.videos}
    old = part_of(
        world,
        tmp_path / "old",
        tasks=[0, 1],
        rename=training,
        keep=lambda video: video.split != "val",
    )
    more = part_of(world, tmp_path / "more", tasks=[1, 0], rename=training)
    run = small_run(old, tmp_path / "run")
    before = trained_videos(run.folder)
    held_out = {more.videos[number].video_id for number in split_videos(more.videos)["val"]}
    assert held_out & {*before.train}
    train, val = windows_of(run, more)
    ids = [
        {more.videos[video].video_id for video in windows.video.tolist()}
        for windows in (train, val)
    ]
    assert {*before.train} < ids[0]
    assert {*before.val} <= ids[1]
    assert not ids[0] & ids[1]
    added = {name for name in ids[0] | ids[1] if name not in {*before.train, *before.val}}
    assert {splits[name] for name in added} == {"val"}
    assert len(added) >= 2
    assert (train.split, val.split) == ("train", "val")
    _, test = windows_of(run, more, "published")
    assert test.split == "test"


def test_annotated_validation_videos_that_were_trained_on_are_left_out(world, tmp_path, caplog):
    old = part_of(world, tmp_path / "old", tasks=[0])
    learned = [video.video_id for video in old.videos if video.split == "train"]
    run = small_run(old, tmp_path / "run")

    def part(name, taken, keep=bool):
        def held_out(video):
            return replace(video, split="val") if video.video_id in taken else video

        return part_of(world, tmp_path / name, tasks=[0], keep=keep, rename=held_out)

    some = part("some", learned[:1])
    _, val = windows_of(run, some)
    assert learned[0] not in {some.videos[video].video_id for video in val.video}
    assert len(val)
    assert caplog.records == []
    only = part("only", learned[:2], keep=lambda video: video.split == "train")
    _, val = windows_of(run, only)
    assert len({*val.video.tolist()}) == 2
    assert "are too optimistic" in caplog.records[-1].getMessage()


def test_what_cannot_be_finetuned(chain, old, new, world, tmp_path):
    nearest = small_run(old, tmp_path / "nearest")
    with pytest.raises(ConfigError, match=r"^nearest window cannot be finetuned"):
        finetune(nearest, new, tmp_path / "out")
    networks = r"setting 'chain\.hidden': a finetuned run has the networks that it begins with"
    for given, message in (
        ({"settings": {"chain.hidden": 64}}, networks),
        ({"settings": {"chain_training.nonsense": 1}}, "nonsense"),
        ({"epochs": 0}, "0 epochs: expected at least 1"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            finetune(chain, new, tmp_path / "out", **given)
    assert caught.value.setting == "epochs"
    narrow = part_of(world, tmp_path / "narrow", tasks=NEW, dim=7)
    with pytest.raises(RunError, match=r"7 features; .* on 32"):
        finetune(chain, narrow, tmp_path / "out")
    none = part_of(world, tmp_path / "none", tasks=NEW, keep=lambda video: video.split == "test")
    with pytest.raises(DataError, match="split 'train' gives no windows"):
        finetune(chain, none, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tasks_of_one_name_that_cannot_be_told_apart(world, tmp_path):
    def named_tea(dataset, *tasks):
        taxonomy = dataset.taxonomy
        renamed = [
            replace(task, name="tea") if task.id in tasks else task for task in taxonomy.tasks
        ]
        taxonomy = replace(taxonomy, tasks=tuple(renamed))
        return {"annotations": Annotations(taxonomy=taxonomy, videos=dataset.videos)}

    def part(name, tasks, *tea):
        plain = part_of(world, tmp_path / f"{name}-plain", tasks=tasks)
        return part_of(world, tmp_path / name, tasks=tasks, **named_tea(plain, *tea))

    run = small_run(part("old", [0, 1], 0, 1), tmp_path / "run")
    new = part("new", [2, 3, 0], 2)
    with pytest.raises(DataError, match=r"new: \d+ videos .* names are ambiguous"):
        windows_of(run, new)
