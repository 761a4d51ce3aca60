"""What the words of names are worth to ViterbiPlanNet, by folds of videos.

Its alignment compares observations with vectors of actions. Without a text encoder these are hashed
from whole names; here the vectors of words that several names have are added (as `chain.words`
weighs them, the sum as long as the name's own). Each is trained on the other folds of the training
and validation videos, one network each; the test split is not read.

    python benchmarks/viterbi_words.py DATA --out FILE [--seeds 2]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.cli.console import talk
from cefito.data import Taxonomy, open_dataset
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.crf.words import shared_words
from cefito.planners.methods import METHODS, load_config
from cefito.planners.shared.descriptions import name_vectors
from chain_parts import Folds, interval


def vectors_with_words(taxonomy: Taxonomy, width: int) -> NDArray[np.float32]:
    """Vectors of names and of their words [K, 6, W]."""

    def units(vectors: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(1e-9)

    names = [action.name for action in taxonomy.actions]
    words = shared_words(names).numpy()  # [K, V]
    of_words = name_vectors([f"word {word}" for word in range(words.shape[1])], width)
    summed = np.einsum("kv,vsw->ksw", words, of_words)  # [K, 6, W]
    joined = units(units(name_vectors(names, width)) + units(summed))
    return (width**0.5 * joined).astype(np.float32)  # as long as standard normal vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    given.horizon, given.folds = 3, 3
    data, method = open_dataset(given.data), METHODS["viterbi"].planner
    folds = Folds.of_data(data, given)
    right = np.zeros((2, given.seeds, len(folds.windows)))  # without and with words
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.npy"
        width = load_config("small", method="viterbi").settings.viterbi.name_width
        np.save(path, vectors_with_words(data.taxonomy, width))
        for kind, descriptions in enumerate(("names", str(path))):
            changes = {"viterbi.members": 1, "viterbi.descriptions": descriptions}
            config = load_config("small", method="viterbi", dataset=data.name, overrides=changes)
            for seed in range(given.seeds):
                for fold in range(given.folds):
                    train, val, held = folds.parts(fold)
                    planner = method.fit(train, val, settings=config.settings, seed=seed).planner
                    plans = planner.plan(Queries.from_windows(held), 1)
                    best = np.array([one.actions[0] for one in plans])
                    right[kind, seed, folds.of == fold] = (best == held.actions).all(axis=1)
                talk(f"{descriptions}, seed {seed}: {100 * right[kind, seed].mean():.2f}")
    value = {
        "command": "python benchmarks/viterbi_words.py DATA",
        "dataset": {"name": data.name, "fingerprint": data.fingerprint},
        "seeds": given.seeds,
        "success_rate": {
            "names": 100 * float(right[0].mean()),
            "words": 100 * float(right[1].mean()),
        },
        "gain of success_rate": interval(100 * (right[1] - right[0]), folds.windows.video),
    }
    talk(str(value))
    write_json(given.out, value)


if __name__ == "__main__":
    main()
