"""The embedded world: a small simulated data set that needs no download.

Twelve everyday tasks are step graphs: stages in a fixed order, slots within a stage in any order,
optional and repeated slots, and slots with two alternative actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from cefito.data.annotations import Annotations, Step, Video
from cefito.data.prepared import PreparedDataset, write_dataset
from cefito.data.simulation.observations import ObservationKnobs, observe
from cefito.data.vocabulary import Taxonomy
from cefito.runtime import SimulationStream, check_seed

WORLD_NAME = "synthetic world (simulated)"

# Stages are separated by ">", slots by ","; "a | b" are alternatives, "?" is optional, "*" may
# repeat.
_TASKS = """
Cook Porridge: measure oats, pour water | pour milk, add salt? > stir mixture*
  > slice fruit?, fill bowl, add honey
Bake Scones: sift flour, cut butter, add salt? > pour milk, knead dough* > cut dough
  > bake in oven
Fry Dumplings: chop cabbage, knead dough > fill dough* > heat oil, place in pan*
  > flip over* | pour water
Brew Spiced Tea: crush spices, boil water > add tea leaves, pour milk, add honey? > stir mixture*
  > strain tea
Pickle Cucumbers: wash jar, slice cucumbers, add salt > boil vinegar | boil water > pour into jar*
  > close lid
Patch Bicycle Tube: remove wheel > pull out tube, find hole, wipe surface > apply glue*
  > press patch | pump air
Rewire Table Lamp: unplug lamp > remove screws, cut wire, strip wire* > solder wire | twist wire
  > tighten screws
Change Tap Washer: close valve, wipe surface? > remove screws, clean seat > fit washer
  > tighten screws* > open tap
Hang Shelf: measure wall, mark holes*, wipe surface? > drill hole* > insert plugs | apply glue
  > tighten screws*, fit shelf
Bind Notebook: fold paper*, cut cover, punch holes > mark holes?, thread needle > sew pages*
  > apply glue | press pages
Pour Candle: melt wax, cut wick > add dye | add scent, stir mixture*, place wick > pour into mold*
Repot Plant: fill with soil*, loosen roots?, remove plant > place plant
  > press soil, pour water*, wipe surface
"""


@dataclass(frozen=True)
class Slot:
    """A place in a task's step graph."""

    names: tuple[str, ...]  # its action, or two alternatives, the usual one first
    stage: int  # slots of a lower stage come first
    optional: bool  # may be left out
    repeated: bool  # may be repeated, at once or one step later


@dataclass(frozen=True, kw_only=True)
class WorldKnobs:
    """Size and difficulty of the embedded world."""

    train: int = 420  # videos, assigned to the tasks in turn
    val: int = 60
    test: int = 120
    order_freedom: float = 0.45  # probability of a stage in random instead of usual order
    optional: float = 0.5  # probability of an optional slot
    repeat: float = 0.35  # probability that a repeated slot is repeated
    alternative: float = 0.4  # probability that a slot takes its alternative action
    pace: float = 1.0  # factor of all times
    observations: ObservationKnobs = field(
        default_factory=lambda: ObservationKnobs(
            task=5.0,
            progress=3.5,
            memory=0.8,
            step=9.0,
            confusion_start=0.05,
            confusion_end=0.08,
            style=1.5,
            noise_spread=0.0,
            hidden=96,
        )
    )
    dim: int = 128  # E, the number of features of an observation


def write_world(
    folder: Path | str, *, seed: int = 0, knobs: WorldKnobs | None = None
) -> PreparedDataset:
    """Write the embedded world as a prepared data set, without action text.

    Args:
        folder: New folder.
        seed: Seed of the videos and observations.
        knobs: Settings of the world.
    """
    knobs = knobs or WorldKnobs()
    annotations = make_world(seed=seed, knobs=knobs)
    start, end = observe(annotations, knobs.observations, dim=knobs.dim, seed=seed)
    return write_dataset(
        folder,
        name=WORLD_NAME,
        annotations=annotations,
        start=start,
        end=end,
        provenance={
            "observations": "simulated",
            "generator": "cefito.data.simulation.world.write_world",
            "seed": seed,
            "knobs": asdict(knobs),
        },
    )


def make_world(*, seed: int, knobs: WorldKnobs, tasks: Sequence[str] = ()) -> Annotations:
    """Draw the videos of some tasks of the embedded world, by default all, without observations.

    Args:
        seed: Seed of the videos.
        knobs: Settings of the world.
        tasks: Names of the tasks.
    """
    check_seed(seed)
    graphs = world_tasks()
    graphs = {name: graphs[name] for name in tasks or graphs}
    taxonomy, ids = _taxonomy(graphs)
    generator = np.random.default_rng([seed, SimulationStream.WORLD])
    splits = ["train"] * knobs.train + ["val"] * knobs.val + ["test"] * knobs.test
    videos = []
    for index, split in enumerate(splits):
        task = index % len(graphs)
        names = _draw_steps(list(graphs.values())[task], knobs, generator)
        steps = _timed([ids[task][name] for name in names], knobs.pace, generator)
        videos.append(Video(f"world-{index:04d}", split, task, steps))
    return Annotations(taxonomy=taxonomy, videos=tuple(videos))


def world_tasks() -> dict[str, tuple[Slot, ...]]:
    """The step graph of every task, slots in their usual order."""
    graphs: dict[str, tuple[Slot, ...]] = {}
    for line in _TASKS.strip().replace("\n  ", " ").splitlines():
        name, graph = line.split(": ")
        graphs[name] = tuple(
            Slot(
                names=tuple(variant.strip(" ?*") for variant in text.split("|")),
                stage=stage,
                optional="?" in text,
                repeated="*" in text,
            )
            for stage, group in enumerate(graph.split(">"))
            for text in group.split(",")
        )
    return graphs


def _taxonomy(graphs: dict[str, tuple[Slot, ...]]) -> tuple[Taxonomy, list[dict[str, int]]]:
    """The taxonomy, and for each task the ids of its actions by name."""
    actions: list[str] = []
    ids: list[dict[str, int]] = []
    for slots in graphs.values():
        names = dict.fromkeys(name for slot in slots for name in slot.names)
        ids.append({name: len(actions) + place for place, name in enumerate(names)})
        actions += names
    tasks = [(task, task_ids.values()) for task, task_ids in zip(graphs, ids, strict=True)]
    return Taxonomy.from_names("synthetic world", tasks, actions), ids


def _draw_steps(
    slots: tuple[Slot, ...], knobs: WorldKnobs, generator: np.random.Generator
) -> list[str]:
    """The action names of one video."""
    drawn: list[tuple[str, bool]] = []  # whether it may be repeated
    for stage in range(slots[-1].stage + 1):
        members = [slot for slot in slots if slot.stage == stage]
        if generator.random() < knobs.order_freedom:
            members = [members[place] for place in generator.permutation(len(members))]
        for slot in members:
            if slot.optional and generator.random() >= knobs.optional:
                continue
            other = len(slot.names) > 1 and generator.random() < knobs.alternative
            drawn.append((slot.names[int(other)], slot.repeated))
    result: list[str] = []
    due: list[str] = []  # the step that is repeated after the next one
    for name, again in drawn:
        result += [name, *due]
        due = []
        if again and generator.random() < knobs.repeat:
            if generator.random() < 0.5:
                result.append(name)
            else:
                due = [name]
    return result + due


def _timed(actions: list[int], pace: float, generator: np.random.Generator) -> tuple[Step, ...]:
    """Steps with times in seconds, to a tenth, one after the other."""
    steps, now = [], 0.0
    for action in actions:
        start = now + pace * (1 + generator.exponential(5))
        now = start + pace * (2 + generator.gamma(2, 4))
        steps.append(Step(start=round(start, 1), end=round(now, 1), action=action))
    return tuple(steps)
