"""From videos to a plan: extract, prepare, train, plan, each by the command line.

The videos are drawn: every action is a shape of its own colour that moves in its own direction, and
the steps of a task have a fixed order. The encoder is S3D in its full size with random weights, on
few and small frames.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from cefito.arrays import observed_rows
from cefito.cli import main
from cefito.data import open_dataset
from cefito.encoders.s3d import S3D
from tiny_runs import as_arguments

av = pytest.importorskip("av")

# action: colour and direction (right, down) in pixels a frame
ACTIONS = {
    "fill kettle": ((230, 30, 30), (2, 0)),
    "boil water": ((30, 220, 40), (0, 2)),
    "add tea leaves": ((40, 60, 240), (-2, 0)),
    "pour water": ((230, 220, 30), (0, -2)),
    "remove leaves": ((220, 40, 220), (2, 2)),
    "slice bread": ((40, 220, 220), (2, 0)),
    "toast slices": ((240, 240, 240), (0, 2)),
    "spread butter": ((250, 140, 20), (-2, 0)),
    "add jam": ((120, 20, 160), (0, -2)),
    "cut in half": ((20, 20, 20), (-2, 2)),
}
TASKS = {"make tea": range(5), "make toast": range(5, 10)}
STEP, RATE, SIDE = 2, 8, 32  # seconds a step, frames a second, pixels
CLIP = {"frames": 8, "size": SIDE}
EPOCHS = {"training": 4, "chain_training": 6, "classifier_training": 10}
SETTINGS = {
    **{f"{part}.optimiser.epochs": epochs for part, epochs in EPOCHS.items()},
    "chain.members": 1,
    "training.stopping.every": 4,
    "training.ema.warmup": 20,
    "training.negatives.count": 12,
    "field.depth": 1,
    "field.width": 32,
}


def draw(path, actions, generator):
    """A video of these actions, `STEP` seconds each, between a second of nothing and another."""
    names = list(ACTIONS)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    background = generator.integers(90, 130)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        stream.options = {"crf": "12", "preset": "ultrafast"}
        for number in range(RATE * (STEP * len(actions) + 2)):
            pixels = np.full((SIDE, SIDE, 3), background, np.uint8)
            place = (number - RATE) // (RATE * STEP)
            if 0 <= place < len(actions):
                colour, (right, down) = ACTIONS[names[actions[place]]]
                x, y = (16 + right * number) % SIDE, (16 + down * number) % SIDE
                across, along = np.abs(columns - x), np.abs(rows - y)
                # a diamond or a square
                near = across + along if actions[place] % 2 else np.maximum(across, along)
                pixels[near < 10] = colour
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def random_weights(path):
    """S3D with random weights under which signals neither vanish nor explode."""
    generator = torch.Generator().manual_seed(3)
    state = S3D().state_dict()
    for value in state.values():
        if value.ndim > 1:
            drawn = torch.randn(value.shape, generator=generator)
            value.copy_(drawn * math.sqrt(2 / math.prod(value.shape[1:])))
    torch.save(state, path)
    return path


def make_videos(folder, table):
    """Draw 16 videos, the last four for test, and write the table of their steps.

    Return the id and the steps (start, end, action) of each video.
    """
    generator = np.random.default_rng(0)
    folder.mkdir()
    videos, lines = [], ["video,task,step,start,end,split"]
    for number in range(16):
        task, first = list(TASKS)[number % 2], int(generator.integers(0, 2))
        name, split = f"video-{number:02d}", "test" if number >= 12 else "train"
        actions = TASKS[task][first : first + 4]
        draw(folder / f"{name}.mp4", actions, generator)
        times = [1.0 + STEP * place for place in range(len(actions) + 1)]
        videos.append((name, list(zip(times[:-1], times[1:], actions, strict=True))))
        for start, end, action in videos[-1][1]:
            lines.append(f"{name},{task},{list(ACTIONS)[action]},{start},{end},{split}")
    table.write_text("\n".join(lines) + "\n")
    return videos


def test_from_videos_to_a_plan(tmp_path, capsys):
    def call(*argv, code=0):
        capsys.readouterr()
        assert main([str(part) for part in argv]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.err.splitlines()[-1] if code else captured.out

    folder, features, data, run = (
        tmp_path / name for name in ("videos", "data-features", "data", "run")
    )
    weights = random_weights(tmp_path / "s3d.pth")
    videos = make_videos(folder, tmp_path / "steps.csv")
    how = ("--videos", folder, "--precision", "float32", "--weights", weights, "--batch", 16)
    clips = ("--frames", CLIP["frames"], "--size", CLIP["size"], "--device", "cpu")
    call("data", "prepare", "custom", tmp_path / "steps.csv", data, *how, *clips)
    dataset = open_dataset(data)
    for number, (video, steps) in enumerate(videos):  # the rows of the seconds around each time
        vectors = np.load(features / f"{video}.npy")
        assert vectors.shape == (STEP * len(steps) + 2, 512)
        starts, ends, _ = zip(*steps, strict=True)
        for side, times in ((dataset.start, starts), (dataset.end, ends)):
            np.testing.assert_array_equal(
                side[4 * number : 4 * number + 4],
                vectors[observed_rows(times, rows=len(vectors), seconds=3)].reshape(4, -1),
            )

    how = ("--preset", "small", "--device", "cpu", *as_arguments(SETTINGS))
    call("train", data, "--horizon", 3, "--out", run, *how)
    correct, last = 0, ("--device", "cpu", "--json")
    for number, (video, (_, *steps)) in enumerate(videos[12:]):
        annotated = json.loads(call("plan", run, "--video", video, "--from-step", 2, *last))
        names = [list(ACTIONS)[action] for _, _, action in steps]
        correct += annotated["plans"][0]["names"] == names
        if number:
            continue  # one is enough to see that clips of a file give the same
        clip = folder / f"{video}.mp4"
        span = ("--video", clip, "--start", steps[0][0], "--end", steps[-1][1])
        value = json.loads(call("plan", run, *span, *last))  # the run remembers the weights
        assert len(value["plans"]) == 5
        assert [entry["actions"] for entry in value["plans"]] == [
            entry["actions"] for entry in annotated["plans"]
        ]
        assert value["plans"][0]["energy"] == pytest.approx(
            annotated["plans"][0]["energy"], rel=1e-3, abs=1e-5
        )
    assert correct >= 3  # of four; six sequences of three steps occur

    query = ("plan", run, "--video", clip, "--start", 1, "--end", 7)
    other = tmp_path / "other.pth"
    torch.save(S3D().state_dict(), other)
    pictures = ("plan", run, "--initial-image", "a.png", "--goal-image", "b.png")
    for argv, message in (
        ((*query, "--weights", other), "Give the same encoder"),
        ((*query[:-1], 70, "--weights", weights), "second 70 is outside it"),
        ((*query, "--from-step", 2), "--from-step: does not go with a video file"),
        (query[:-2], "needs both observations"),
        ((*pictures, "--weights", weights), "the encoder s3d takes videos, not pictures"),
        ((*pictures, "--video", clip), "does not go with a video of a data set"),
    ):
        assert message in call(*argv, code=2)
