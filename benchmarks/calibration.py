"""Which windows the chain's temperature and power of tasks are best fitted on, by folds of videos.

Each fold is held out, as in all_videos.py; the chain of `small` is trained on the others. Its two
numbers are fitted on validation windows (`validation`, as the preset does); on three inner folds in
turn, by one network trained on the others (`folds`, geometric means); or on the held-out windows
themselves (`held-out`), to see how well two numbers can do.

    python benchmarks/calibration.py DATA --out FILE
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from all_videos import scored, summary
from cefito.cli.console import talk
from cefito.data import Windows, open_dataset
from cefito.data.windows import action_space, joined_windows, video_folds
from cefito.files import write_json
from cefito.planners.crf.model import ChainModel
from cefito.planners.methods import load_config
from cefito.training.trainer import TrainingContext
from chain_parts import Folds

calibrated, on_all_videos = ChainModel._calibrated, ChainModel.on_all_videos


def by_folds(networks: Any, train: Windows, val: Windows) -> ChainModel:
    """Networks with the numbers of single networks on windows that those were not trained on."""
    both = joined_windows(train, val)
    for_val, of, numbers = np.isin(both.video, val.video), video_folds(both.video, 3), []
    settings = load_config("small", method="chain", overrides={"chain.members": 1}).settings
    for fold in range(3):
        masks = (~for_val & (of != fold), for_val & (of != fold), of == fold)
        parts = [both.subset(np.flatnonzero(mask)) for mask in masks]
        shared = {"settings": settings, "seed": 10 * (fold + 1), "context": TrainingContext()}
        known = joined_windows(*parts[:2])
        with patch.object(ChainModel, "_calibrated", lambda own, *_: ChainModel(own, 1.0)):
            space = action_space(known, "training")
            model, _ = ChainModel.fit(*parts[:2], space=space, **shared)
        model = calibrated(model.on_all_videos(*parts[:2], **shared).networks, known, parts[2])
        numbers.append(np.log([model.temperature, model.task_power]))
    return ChainModel(networks, *np.exp(np.mean(numbers, axis=0)).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    given = parser.parse_args()
    given.planner, given.horizon, given.folds, given.seeds = "chain", 3, 3, 1
    folds = Folds.of_data(open_dataset(given.data), given)

    def on_held_out(model: ChainModel, train: Windows, val: Windows, **shared: Any) -> ChainModel:
        both = joined_windows(train, val)
        held = folds.windows.subset(np.flatnonzero(~np.isin(folds.windows.video, both.video)))
        return calibrated(on_all_videos(model, train, val, **shared).networks, both, held)

    changes: dict[str, dict[str, Any]] = {
        "validation": {},
        "folds": {"_calibrated": by_folds},
        "held-out": {"on_all_videos": on_held_out},
    }
    found = {}
    for row, change in changes.items():
        with ExitStack() as stack:
            for name, value in change.items():
                stack.enter_context(patch.object(ChainModel, name, value))
            found[row] = scored(folds, 0.5, [], given)
    value = {
        "command": "python benchmarks/calibration.py DATA",
        "dataset": {"name": folds.data.name, "fingerprint": folds.data.fingerprint},
        "fitted on": {row: summary(own, found["validation"], folds) for row, own in found.items()},
    }
    talk(str(value))
    write_json(given.out, value)


if __name__ == "__main__":
    main()
