"""A service over drawn videos, whose pictures can be uploaded too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("fastapi")
pytest.importorskip("av")
pytest.importorskip("transformers")

from browsing import WAIT, chromium, open_page
from cefito.data import PreparedDataset, Video
from cefito.data.readers.assemble import prepare
from cefito.data.readers.step_source import read_steps
from cefito.data.timeline import Timeline, row_labels
from cefito.encoders.extraction import extract_videos
from cefito.encoders.video import open_encoder
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.runs.run import Run
from cefito.serve.settings import ServiceSettings
from grey_videos import LEVELS, draw_greys
from tiny_models import tiny_dinov2
from tiny_runs import TINY_LENGTHS, TINY_RUN, small_run

TASKS = {
    "make tea": ["boil water", "warm the pot", "add leaves", "pour water", "take leaves out"],
    "make toast": ["slice bread", "toast slices", "spread butter", "add jam <& honey>", "cut"],
}
ORDERS = [[0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [0, 2, 1, 3, 4]]
STEP = 2  # seconds


@dataclass(frozen=True)
class Drawn:
    """Drawn videos and runs trained on them."""

    folder: Path  # the videos are in `films`
    dataset: PreparedDataset
    run: Run  # of CEFITO, T = 3
    nearest: Run  # of the nearest window, T = 2, which takes no constraints
    lengths: Run  # of 1 to 4 steps, with a recogniser of greys
    encoder: Path  # of its features

    def levels(self, video: str) -> list[int]:
        """Grey of each second of a video whose steps the recogniser knows."""
        found = next(one for one in self.dataset.videos if one.video_id == video)
        return [LEVELS[label] for label in _labels(found)]

    def settings(self, **changes) -> ServiceSettings:
        """Settings of a service of it."""
        given = {"runs": (self.run.folder,), "datasets": (self.dataset.folder,)}
        return ServiceSettings(**(given | changes))


def _labels(video: Video) -> NDArray[np.int64]:
    """The action that each second of a video shows to the recogniser, 10 for none."""
    return row_labels(video.steps, round(video.steps[-1].end) + 1, 1.0, 10)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory) -> Drawn:
    folder = tmp_path_factory.mktemp("drawn")
    encoder = tiny_dinov2(folder / "encoder")
    (folder / "films").mkdir()
    lines = ["video,task,step,start,end,split"]
    for number in range(14):
        task, actions = list(TASKS.items())[number % 2]
        order = ORDERS[number // 2 % len(ORDERS)]
        draw_greys(folder / "films" / f"film-{number}.mp4", 2 + STEP * len(order), first=number % 5)
        for place, action in enumerate(order):
            start = 1 + STEP * place
            split = "test" if number >= 10 else "train"
            lines.append(f"film-{number},{task},{actions[action]},{start},{start + STEP},{split}")
    (folder / "steps.csv").write_text("\n".join(lines) + "\n")
    extract_videos(folder / "films", folder / "features", open_encoder(str(encoder)))
    table, films = read_steps(folder / "steps.csv"), folder / "films"
    dataset = prepare(table, folder / "features", folder / "data", seconds=1, videos=films)
    settings = TINY_RUN | {"chain.members": 1, "search.fitting_windows": 5}
    run = small_run(dataset, folder / "tea-and-toast", "cefito+chain", overrides=settings)
    nearest = small_run(dataset, folder / "nearest", horizon=2)
    given: dict[str, Any] = {"overrides": TINY_LENGTHS, "horizon": 4, "shortest": 1}
    lengths = small_run(dataset, folder / "lengths", "any-length", **given)
    labels = [_labels(video) for video in dataset.videos]
    greys = torch.tensor(LEVELS).div(255).view(-1, 1, 1, 1, 1).expand(-1, 3, 1, 48, 64)
    rows = open_encoder(str(encoder)).encode(greys).astype(np.float16)
    shown = replace(dataset, hashes=dict(dataset.hashes))
    vars(shown)["timeline"] = Timeline(tuple(rows[one] for one in labels))
    # a grey is a step by itself, however it changes
    small = RecogniserConfig(
        members=1,
        width=64,
        training_steps=300,
        learning_rate=1e-2,
        folds=2,
        trusts=(0.6,),
        temporal_steps=60,
        temporal_passes=20,
        attention_layers=0,
        changes=0,
    )
    recogniser = SegmentalRecogniser.fit(shown, range(10), config=small)
    lengths = replace(lengths, recogniser=recogniser).written()
    return Drawn(folder, dataset, run, nearest, lengths, encoder)


@pytest.fixture(scope="module")
def browser():
    """A browser of Debian's; tests are skipped where there is none."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(browser, drawn, listening, encoding_here):
    """Address of a service of all runs."""
    runs = (drawn.run.folder, drawn.lengths.folder, drawn.nearest.folder)
    with listening(drawn.settings(runs=runs, encoder=str(drawn.encoder))) as address:
        yield address


@pytest.fixture(scope="module")
def tab(browser):
    """A tab that the tests of a module share, what it asked for and what it said."""
    page = browser.new_context().new_page()
    page.set_default_timeout(WAIT)
    asked, said = [], []
    page.on("request", lambda one: asked.append(one.url))
    page.on("pageerror", lambda problem: said.append(str(problem)))
    page.on("console", lambda one: said.append(one.text))
    yield page, asked, said
    page.context.close()


@pytest.fixture
def page(tab, address, request):
    """The opened page; at the end, no other host was contacted and nothing was logged.

    Only what begins as one of the module's WANTED may be logged.
    """
    page, asked, said = tab
    page.set_viewport_size({"width": 1280, "height": 1100})
    open_page(page, address)
    page.locator("#options").evaluate("one => { one.open = true; }")
    yield page
    page.unroute_all()
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    hosts = {urlsplit(url).netloc for url in asked if url.startswith("http")}
    said_now = [one for one in said if not one.startswith(getattr(request.module, "WANTED", "\0"))]
    asked.clear()
    said.clear()
    assert hosts == {urlsplit(address).netloc}
    assert said_now == []
