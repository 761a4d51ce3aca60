"""What every recogniser does, as tests for packages that add one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cefito.data.prepared import PreparedDataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.timeline import Timeline, row_labels
from cefito.errors import ConfigError, DataError, RunError
from cefito.recognition.methods import RECOGNISERS
from cefito.recognition.recogniser import RECOGNISER_FILE, SETTINGS_FILE, Recogniser
from cefito.recognition.settings import RecogniserSettings
from cefito.training.trainer import TrainingContext

_WIDTH = 12  # D


class RecogniserContract:
    """Tests of a recogniser; derive a class `Test…` from it.

    Attributes:
        method: Name of the registered recogniser.
        config: Settings with which it trains in seconds.
    """

    method: ClassVar[str]
    config: ClassVar[RecogniserSettings]

    @pytest.fixture(scope="class")
    @classmethod
    def films(cls, tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
        """Simulated videos with rows: a direction for each action, and noise."""
        knobs = WorldKnobs(train=12, val=4, test=4, dim=4)
        world = write_world(tmp_path_factory.mktemp("data") / "world", seed=0, knobs=knobs)
        count, rows = len(world.taxonomy.actions), []
        directions = np.random.default_rng(0).normal(size=(count + 1, _WIDTH))
        for place, video in enumerate(world.videos):
            labels = row_labels(video.steps, int(video.steps[-1].end) + 3, 1.0, count)
            noise = np.random.default_rng([1, place]).normal(size=(len(labels), _WIDTH))
            rows.append((3 * directions[labels] + noise).astype(np.float16))
        films = replace(world, hashes=dict(world.hashes))
        vars(films)["timeline"] = Timeline(tuple(rows))
        return films

    @classmethod
    def fit(cls, films: PreparedDataset, **given: Any) -> Recogniser:
        """Train on all videos but those of test."""
        videos = [place for place, video in enumerate(films.videos) if video.split != "test"]
        kind: Any = RECOGNISERS.named(cls.method).kind
        recogniser: Recogniser = kind.fit(films, videos, config=cls.config, seed=3, **given)
        return recogniser

    @pytest.fixture(scope="class")
    @classmethod
    def recogniser(cls, films: PreparedDataset) -> Recogniser:
        return cls.fit(films)

    @pytest.fixture
    def rows(self, films: PreparedDataset) -> Any:
        """Rows [n, D] of a test video."""
        place = next(n for n, video in enumerate(films.videos) if video.split == "test")
        assert films.timeline is not None
        return films.timeline.videos[place].astype(np.float32)

    def test_distributions(self, recogniser: Recogniser, films: PreparedDataset, rows: Any) -> None:
        found, count = recogniser.recognise(rows), len(films.taxonomy.actions)
        assert found.rows.shape == (len(rows), count + 1)
        assert found.begin.shape == (len(rows), count)
        assert found.tasks.shape == (len(films.taxonomy.tasks),)
        for sums in (found.rows.sum(axis=1), found.tasks.sum()):
            np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-6)
        assert (found.begin >= -1e-9).all()
        assert (found.begin <= 1 + 1e-9).all()
        steps = found.steps()
        assert all(0 <= step.start < step.end <= len(rows) for step in steps)
        assert all(step.action in range(count) for step in steps)
        assert (recogniser.width, recogniser.rate) == (_WIDTH, 1.0)

    def test_a_task_that_is_given(
        self, recogniser: Recogniser, films: PreparedDataset, rows: Any
    ) -> None:
        for task in films.taxonomy.tasks:
            found = recogniser.recognise(rows, task=task.id)
            assert found.tasks[task.id] == pytest.approx(1)
            assert {step.action for step in found.steps()} <= {*task.actions}
        with pytest.raises(ConfigError):
            recogniser.recognise(rows, task=len(films.taxonomy.tasks))

    def test_saved_and_read(
        self, recogniser: Recogniser, films: PreparedDataset, rows: Any, tmp_path: Path
    ) -> None:
        recogniser.save(tmp_path)
        assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"recogniser"}
        kind, expected = RECOGNISERS.named(self.method).kind, recogniser.recognise(rows)
        found = kind.load(tmp_path, films.taxonomy).recognise(rows)
        np.testing.assert_allclose(found.rows, expected.rows, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.tasks, expected.tasks, rtol=0, atol=1e-9)
        header = json.loads((tmp_path / SETTINGS_FILE).read_text())
        (tmp_path / SETTINGS_FILE).write_text(json.dumps({**header, "width": 1}))
        with pytest.raises(RunError):
            kind.load(tmp_path, films.taxonomy)
        (tmp_path / RECOGNISER_FILE).write_bytes(b"")
        with pytest.raises(RunError):
            kind.load(tmp_path, films.taxonomy)

    def test_trained_again_and_from_what_was_kept(
        self, recogniser: Recogniser, films: PreparedDataset, rows: Any, tmp_path: Path
    ) -> None:
        context = TrainingContext(folder=tmp_path, key="a")
        for _ in range(2):
            again = self.fit(films, context=context).recognise(rows)
            np.testing.assert_array_equal(again.rows, recogniser.recognise(rows).rows)

    def test_rows_that_cannot_be_used(self, recogniser: Recogniser, rows: Any) -> None:
        for wrong in (rows[:, 1:], rows[:0], rows[0], np.full_like(rows, np.nan)):
            with pytest.raises(DataError):
                recogniser.recognise(wrong)
        with pytest.raises(ConfigError, match="rows a second"):
            recogniser.recognise(rows, rate=0.0)
        assert len(recogniser.recognise(rows, rate=2.0).rows) == round(len(rows) / 2)
        assert recogniser.recognise(rows[:1]).rows.shape[0] == 1

    def test_row_by_row(self, recogniser: Recogniser, rows: Any) -> None:
        if not recogniser.follows:
            with pytest.raises(ConfigError, match="cannot recognise row by row"):
                recogniser.stream()
            return
        whole, part = recogniser.stream(), recogniser.stream()
        for count, row in enumerate(rows):
            whole.observe(row)
            part.observe(row if count < len(rows) // 2 else -row)
            if count < len(rows) // 2:  # later rows change nothing
                np.testing.assert_array_equal(whole.now, part.now)
        assert whole.now.sum() == pytest.approx(1)

    def test_orders_are_used_or_refused(
        self, recogniser: Recogniser, films: PreparedDataset, rows: Any
    ) -> None:
        first, second, *_ = films.taxonomy.tasks[0].actions
        orders = {0: [(second, first)]}
        try:
            ordered = recogniser.given_orders(orders)
        except ConfigError as refusal:
            assert "cannot make use of orders" in str(refusal)  # noqa: PT017
            return
        counts = []
        for own in (recogniser, ordered):
            actions = [step.action for step in own.recognise(rows, task=0).steps()]
            counts.append([*pairwise(actions)].count((first, second)))
        assert counts[1] <= counts[0]
