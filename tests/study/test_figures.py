import json
import struct

import numpy as np
import pytest

from cefito.study.figures import EnergyCurve, draw_energies, draw_training


def check_png(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", content[16:24])
    assert width > 300
    assert height > 200
    return width


def write_metrics(run, epochs, *, every=1):
    for name, score in (("classifier", "val_task_accuracy"), ("field", "val_success_rate")):
        (run / name).mkdir(parents=True)
        for epoch in range(1, epochs + 1):
            line = {"epoch": epoch, "loss": 1 / epoch}
            line |= {score: 10.0 * epoch} if epoch % every == 0 else {}
            with (run / name / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
    return run


@pytest.mark.parametrize(("epochs", "every"), [(1, 1), (1, 5), (7, 3)])
def test_training(epochs, every, tmp_path):
    """Also of one epoch, and without any validation."""
    draw_training(write_metrics(tmp_path, epochs, every=every), tmp_path / "training.png")
    check_png(tmp_path / "training.png")


def test_energies(tmp_path):
    curves = [
        EnergyCurve("Brew tea", np.sort(np.random.default_rng(0).random(100)), 3),
        EnergyCurve("Save $5_ or $6", np.array([0.5, 0.5, 0.5]), 0),
        EnergyCurve("Unknown", np.arange(9.0), None),
    ]
    draw_energies(curves, tmp_path / "three.png")
    draw_energies([EnergyCurve("One candidate", np.array([0.1]), 0)], tmp_path / "one.png")
    assert check_png(tmp_path / "three.png") > 2 * check_png(tmp_path / "one.png")  # a panel each
