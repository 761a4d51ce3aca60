from dataclasses import replace

import numpy as np
import torch

from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import Windows
from cefito.field.predictor import normalise
from cefito.training.augmentation import ActionMeans, Observations
from cefito.training.settings import AugmentationConfig
from made_windows import windows_of

from .made import generator

E, CPU = 6, torch.device("cpu")
NAMES = [f"action {index}" for index in range(5)]
TAXONOMY = Taxonomy.from_names("made", [("a", (0, 1, 2)), ("b", (2, 3))], NAMES)
# (task, first action, last action) of each window; two windows a video
ENDS = [(0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 0, 1), (1, 2, 3), (1, 2, 2), (1, 3, 3), (1, 2, 3)]


def windows(copies: int = 1) -> Windows:
    rows = ENDS * copies
    generator = np.random.default_rng(0)
    observations = generator.normal(3, [1, 2, 3, 4, 5, 6], (2, len(rows), E))
    actions, tasks = [[first, 0, last] for _, first, last in rows], [task for task, _, _ in rows]
    made = windows_of(actions, observations, TAXONOMY, tasks=tasks)
    return replace(made, video=made.video // 2, start=made.video % 2)


def test_nothing_is_changed_by_default():
    made = windows()
    observations = Observations(made, AugmentationConfig(), CPU)
    rows = torch.tensor([3, 0, 7])
    initial, goal = observations.draw(rows, generator())
    np.testing.assert_array_equal(initial.numpy(), made.initial[rows])
    np.testing.assert_array_equal(goal.numpy(), made.goal[rows])
    _, later = observations.draw(rows, generator(), torch.tensor([4, 1, 7]))
    np.testing.assert_array_equal(later.numpy(), made.goal[[4, 1, 7]])
    mean = np.concatenate([made.initial, made.goal]).mean(axis=0)
    np.testing.assert_allclose(observations.mean.numpy(), mean, rtol=1e-5)


def test_noise_is_measured_in_deviations_of_each_feature():
    made = windows(copies=500)
    observations = Observations(made, AugmentationConfig(noise=0.3), CPU)
    initial, goal = observations.draw(torch.arange(len(made)), generator())
    deviation = np.concatenate([made.initial, made.goal]).std(axis=0)
    noises = [initial.numpy() - made.initial, goal.numpy() - made.goal]
    for noise in noises:
        np.testing.assert_allclose(noise.std(axis=0), 0.3 * deviation, rtol=0.06)
        np.testing.assert_allclose(noise.mean(axis=0) / deviation, 0, atol=0.02)
    assert abs(np.corrcoef(noises[0][:, 0], noises[1][:, 0])[0, 1]) < 0.06


def test_swaps_stay_within_task_and_action():
    made = windows()
    observations = Observations(made, AugmentationConfig(swap=1.0), CPU)
    sources = [
        {row.tobytes(): index for index, row in enumerate(part)}
        for part in (made.initial, made.goal)
    ]
    seen: list[dict[int, set[int]]] = [{row: set() for row in range(len(made))} for _ in range(2)]
    for seed in range(60):
        drawn = observations.draw(torch.arange(len(made)), generator(seed))
        for part, source, members in zip(drawn, sources, seen, strict=True):
            for row, observation in enumerate(part.numpy()):
                members[row].add(source[observation.tobytes()])
    for place, members in zip((1, 2), seen, strict=True):  # of ENDS: the first action, the last
        for row, drawn_rows in members.items():
            same_ends = {
                other
                for other, end in enumerate(ENDS)
                if (end[0], end[place]) == (ENDS[row][0], ENDS[row][place])
            }
            assert drawn_rows == same_ends


def test_a_goal_from_another_window_is_swapped_with_its_own_like():
    made = windows()
    observations = Observations(made, AugmentationConfig(swap=1.0), CPU)
    drawn = {
        observations.draw(torch.tensor([0]), generator(seed), torch.tensor([2]))[1]
        .numpy()
        .tobytes()
        for seed in range(30)
    }
    # windows of task 0 that end with action 2
    assert drawn == {made.goal[row].tobytes() for row in (1, 2)}


def slow_means(made: Windows, mean: np.ndarray, videos: set[int]) -> np.ndarray:
    rows: dict[int, list[np.ndarray]] = {action: [] for action in range(5)}
    for index in range(len(made)):
        if int(made.video[index]) in videos:
            for observation, action in (
                (made.initial[index], made.actions[index, 0]),
                (made.goal[index], made.actions[index, -1]),
            ):
                rows[int(action)].append(normalise(torch.from_numpy(observation - mean)).numpy())
    return np.stack([np.mean(row, axis=0) if row else np.zeros(E) for row in rows.values()])


def test_mean_observations_of_actions():
    made = windows()
    mean = made.initial.mean(axis=0)
    means = ActionMeans(made, torch.from_numpy(mean), normalise)
    np.testing.assert_allclose(
        means.all().numpy(), slow_means(made, mean, {0, 1, 2, 3}), rtol=1e-4, atol=1e-6
    )
    assert not means.all()[4].any()  # ends no window
    without = means.without(torch.tensor([2, 7]), 0.0, generator()).numpy()  # of the videos 1 and 3
    np.testing.assert_allclose(without, slow_means(made, mean, {0, 2}), rtol=1e-4, atol=1e-6)


def test_means_learned_before_count_as_ten_observations():
    made = windows()
    known = torch.full((3, E), 2.0)
    known[1] = 0.0  # nothing was known of it
    means = ActionMeans(made, torch.zeros(E), normalise, known)
    plain = ActionMeans(made, torch.zeros(E), normalise)
    counts = torch.bincount(torch.from_numpy(made.actions[:, [0, -1]]).flatten(), minlength=5)
    expected = plain.all().clone()
    for action in (0, 2):
        weight = counts[action] / (counts[action] + 10)
        expected[action] = weight * expected[action] + (1 - weight) * 2.0
    torch.testing.assert_close(means.all(), expected)
    # what is known stays, even where every video is left out
    nothing = means.without(torch.arange(len(made)), 0.0, generator())
    torch.testing.assert_close(nothing[:3], known)
    assert not nothing[3:].any()
