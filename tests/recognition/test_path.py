"""A stranger's path: label ten videos in ELAN, train, have proposals corrected, and go on."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from cefito.cli import main
from cefito.tracks import TimedStep, Track
from cefito.tracks.formats import WRITERS

STEPS = ("boil water", "add tea", "pour", "stir")
SCENES = np.random.default_rng(0).normal(size=(len(STEPS) + 1, 12))
FEW = ("--set", "any_length_training.optimiser.epochs=2", "--set", "any_length.members=1")


def filmed(folder: Path, number: int) -> list[tuple[int, int, int]]:
    """Write the rows of a video, and return its steps: action, start and end."""
    draw = np.random.default_rng(number)
    labels, steps, now = [len(STEPS)] * int(draw.integers(2, 6)), [], 0
    order = [0, 1, 2, 3] if number % 2 else [1, 0, 2, 3]
    for action in order:
        now = len(labels)
        labels += [action] * int(draw.integers(8, 16))
        steps.append((action, now, len(labels)))
        labels += [len(STEPS)] * int(draw.integers(0, 4))
    rows = SCENES[labels] + 0.6 * draw.normal(size=(len(labels), 12))
    folder.mkdir(exist_ok=True)
    np.save(folder / f"film{number}.npy", rows.astype(np.float32))
    return steps


def labelled(path: Path, name: str, steps: list[tuple[int, int, int]]) -> None:
    """Write steps as ELAN does."""
    own = tuple(
        TimedStep(action=a, name=STEPS[a], start=start, end=end, probability=1.0)
        for a, start, end in steps
    )
    facts = {"task_id": 0, "task": "tea", "task_probability": 1.0, "seconds": 90.0}
    path.write_text(WRITERS["eaf"].write([Track(video=name, steps=own, **facts)]), encoding="utf-8")


@pytest.mark.nightly
def test_the_path_of_a_stranger(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    features, elan_files = Path("features"), Path("elan")
    elan_files.mkdir()
    for number in range(10):
        labelled(elan_files / f"film{number}.eaf", f"film{number}", filmed(features, number))
    truth = filmed(features, 11)
    given = ["data", "prepare", "custom", *map(str, sorted(elan_files.iterdir())), "--task", "tea"]

    assert main([*given, "data", "--features", "features"]) == 0
    assert main(["train", "data", "--out", "run", "--steps", "1-3", *FEW]) == 0
    assert main(["annotate", "run", "features/film11.npy", "--out", "new", "--format", "eaf"]) == 0

    proposed = new_steps(Path("new/film11.eaf"))
    assert [name for name, _, _ in proposed] == [STEPS[action] for action, _, _ in truth]
    labelled(Path("new/film11.eaf"), "film11", truth)  # the person corrects the borders
    capsys.readouterr()
    again = ["annotate", "run", "--out", "new", "--corrected", "new/film11.eaf"]
    assert main(again) == 0
    assert "1 film, 4 steps" in capsys.readouterr().err
    more = [*given[:3], *given[3:13], "new/film11.eaf", "--task", "tea", "more"]
    assert main([*more, "--features", "features"]) == 0
    assert main(["verify", "run", "features/film11.npy", "--json"]) == 0


def new_steps(path: Path) -> list[tuple[str, float, float]]:
    """Read the steps of a proposal."""
    root = ElementTree.parse(path).getroot()
    slots = {
        one.attrib["TIME_SLOT_ID"]: float(one.attrib["TIME_VALUE"])
        for one in root.iter("TIME_SLOT")
    }
    return [
        (
            one.findtext("ANNOTATION_VALUE", ""),
            slots[one.get("TIME_SLOT_REF1")],
            slots[one.get("TIME_SLOT_REF2")],
        )
        for one in root.iter("ALIGNABLE_ANNOTATION")
    ]
