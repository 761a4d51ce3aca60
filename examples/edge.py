"""Recognise the steps of a video on a device, with onnxruntime and NumPy alone.

cefito export RUN --onnx ONNX
python examples/edge.py ONNX ROWS.npy
"""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime


def session(path):
    """Open a file of ONNX on one core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def recognise(folder, rows):
    """Return p(label) of each row [n, K + 1] and p(task) [C] of all rows [n, D] of a video."""
    return session(folder / "recogniser.onnx").run(["labels", "tasks"], {"rows": rows})


def follow(folder, rows):
    """Yield p(label) [K + 1], p(task) [C] and p(next action) [K] after each row [D]."""
    follower = session(folder / "follower.onnx")
    with np.load(folder / "follower-start.npz") as start:
        state = dict(start)
    for row in rows:
        label, task, coming, *after = follower.run(None, {"row": row, **state})
        state = dict(zip(state, after, strict=True))
        yield label, task, coming


def steps(labels, names, rate):
    """Return name, start and end in seconds of each run of equal labels, but of no step."""
    best = labels.argmax(axis=1)
    borders = [0, *(np.flatnonzero(np.diff(best)) + 1).tolist(), len(best)]
    return [
        (names[best[a]], a / rate, b / rate) for a, b in pairwise(borders) if best[a] < len(names)
    ]


if __name__ == "__main__":  # print the steps of a video, and what its last row shows
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, rows = Path(sys.argv[1]), np.load(sys.argv[2]).astype(np.float32)
    about = json.loads((folder / "onnx.json").read_text("utf-8"))
    names, rate = about["actions"], about["rate"]
    labels, tasks = recognise(folder, rows)
    print("task:", about["tasks"][tasks.argmax()])
    for name, start, end in steps(labels, names, rate):
        print(f"{start:7.1f} to {end:7.1f} s  {name}")
    *_, (label, _, coming) = follow(folder, rows)
    now = [*names, "no step"][label.argmax()]
    print("now:", now, "| next:", names[coming.argmax()])
