"""A folder in the form of the repository of the paper's authors, with everything made up.

`dataset/{CrossTask,COIN,NIV}` hold window files, taxonomies, features and action embeddings in
exactly their forms; 8 actions of 3 tasks with ids in no order, features of 4 numbers a second.
"""

import json

import numpy as np

DIM, TEXT, ACTIONS = 4, 5, 8
TASKS = {
    "CrossTask": ("0_23521_Make Jello", "1_59684_Build 2 Shelves", "2_71781_Make Taco Salad"),
    "COIN": ("0_UseBalance", "1_UseEpinephrineAuto-injector", "2_MakeRJ45Cable"),
    "NIV": ("0_Changing a car tire", "1_making coffee", "2_jump car battery"),
}
OWNED = ([2, 0, 1], [7, 3, 4], [5, 6])
NAMES = (
    *("pour water", "stir mixture", "pour jello", "sand shelve", "cut shelve"),
    *("add onion", "stir mixture", "paint shelve"),
)
FEATURES = {
    "CrossTask": "crosstask_features/processed_data",
    "COIN": "full_npy",
    "NIV": "processed_data",
}
FILES = {
    "CrossTask": ("train_list_{}_133", "test_list_{}_133"),
    "COIN": ("coin_train_70_{}", "coin_test_30_{}"),
    "NIV": ("train70_{}", "test30_{}"),
}
TAXONOMY = {"CrossTask": "crosstask_taxonomy_133", "COIN": "coin_taxonomy", "NIV": "niv_taxonomy"}
TEXTS = {
    "CrossTask": "action_embeddings_133",
    "COIN": "action_embeddings",
    "NIV": "action_embeddings",
}


def videos(benchmark, split):
    """Videos by the name of the feature file: id (None for NIV), task and steps."""
    generator = np.random.default_rng([len(benchmark), len(split)])
    found = {}
    for number in range(12 if split == "train" else 5):
        task = number % 3
        count = 3 + number % 4
        starts = np.sort(generator.choice(60, count, replace=False))
        if benchmark == "NIV":
            starts = starts[::-1]  # annotation order is not always the order of the times
        actions = generator.choice(OWNED[task], count)
        steps = [[int(s), int(s) + 4, int(a)] for s, a in zip(starts, actions, strict=True)]
        vid = f"{split[:2]}_{number}-x"
        index, *_, name = TASKS[benchmark][task].split("_")
        feature = {
            "CrossTask": f"{TASKS[benchmark][task].split('_')[1]}_{vid}",
            "COIN": f"{name}_{index}_{vid}",
            "NIV": f"{name.replace(' ', '_')}_{split}{number:04}",
        }[benchmark]
        found[feature] = (None if benchmark == "NIV" else vid, task, steps)
    return found


def windows(benchmark, split, horizon, *, predicted=False):
    """The content of a window file, and the predicted tasks: wrong for every fourth window."""
    found = []
    for feature, (vid, task, steps) in videos(benchmark, split).items():
        _, *number, name = TASKS[benchmark][task].split("_")
        for first in range(len(steps) - horizon + 1):
            part = steps[first : first + horizon]
            entry = {} if vid is None else {"vid": vid}
            entry |= {"task": number[0]} if number else {}
            entry |= {
                "feature": f"./dataset/{benchmark}/{FEATURES[benchmark]}/{feature}.npy",
                "legal_range": part,
                "task_id": task,
                "task_name": name,
                "actions": [NAMES[action] for *_, action in part],
            }
            if predicted:
                wrong = (len(found) + horizon) % 4 == 0
                entry["event_class_top1"] = (task + wrong) % 3
            found.append({"id": entry, "instruction_len": len(steps)})
    return found


def embeddings():
    generator = np.random.default_rng(7)
    vectors = {
        number: generator.standard_normal(TEXT, dtype=np.float32) for number in range(ACTIONS)
    }
    return {number: vectors[number] for number in (3, 1, 2, 0, 7, 6, 5, 4)}


def write_repository(root, *, horizons=(3, 4), seconds=70):
    """Write the repository into a folder."""
    for benchmark in TASKS:
        folder = root / "dataset" / benchmark
        (folder / FEATURES[benchmark]).mkdir(parents=True)
        taxonomy = {
            key: {str(action): NAMES[action] for action in owned}
            for key, owned in zip(TASKS[benchmark], OWNED, strict=True)
        }
        (folder / f"{TAXONOMY[benchmark]}.json").write_text(json.dumps(taxonomy, indent=4))
        np.save(folder / f"{TEXTS[benchmark]}.npy", embeddings(), allow_pickle=True)
        for split, file in zip(("train", "test"), FILES[benchmark], strict=True):
            for horizon in horizons:
                given = [False] + [True] * (split == "test" and benchmark != "NIV")
                for predicted in given:
                    content = windows(benchmark, split, horizon, predicted=predicted)
                    name = file.format(horizon) + "_with_predictions" * predicted
                    (folder / f"{name}.json").write_text(json.dumps(content))
            for feature in videos(benchmark, split):
                generator = np.random.default_rng(list(feature.encode()))
                rows = generator.standard_normal((seconds, DIM), dtype=np.float32)
                np.save(folder / FEATURES[benchmark] / f"{feature}.npy", rows)
    return root
