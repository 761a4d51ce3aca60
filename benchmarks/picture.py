"""The picture of the README: a scene before, one after, and plans as the service's page draws them.

    python benchmarks/picture.py --out docs/images/plan.png

The films are drawn, as those of `cefito quickstart --pixels`. A run of one to four steps is trained
on features of EfficientNet-Lite0, and Chromium opens the page of `cefito serve` on the first window
of the test films whose annotated plan is among the plans shown; the script says at which place.
Needs `pip install '.[test]'`; CEFITO_CHROMIUM may name the browser.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import cefito
from cefito.progress import silent
from cefito.study.quickstart import of_films


def shoot(address: str, windows: Iterable[tuple[str, int]]) -> dict[str, Image.Image]:
    """Plan windows (video, first step) until one is in the plans; pictures of parts of its page."""
    found = os.environ.get("CEFITO_CHROMIUM") or shutil.which("chromium")
    parts = {"timeline": "#timeline, #timeline > p", "frames": "#frames figure"}
    parts |= {"shares": "#shares", "plans": "#plans .p > span, #plans li"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": 1120, "height": 1600}, device_scale_factor=2, color_scheme="light"
        )
        place = next(place for one in windows if (place := _place(page, address, *one)))
        print(f"{page.url}: the annotated plan is plan {place}")
        page.locator("#frames img").nth(1).wait_for()
        page.wait_for_function("[...document.images].every(one => one.complete)")
        shots = {
            name: page.screenshot(clip=_around(page, part), full_page=True)
            for name, part in parts.items()
        }
        browser.close()
    return {name: Image.open(io.BytesIO(shot)).convert("RGB") for name, shot in shots.items()}


def _place(page: Page, address: str, video: str, step: int) -> int:
    """Plan a window; the place of the annotated plan among those shown, 0 if it is not there."""
    query = {"run": "RUN", "horizon": 4, "video": video, "first": step}
    page.goto(f"{address}/?{urlencode(query)}")  # plans at once
    page.locator("#compare").check()
    found = [" · annotated" in row for row in page.locator("#plans .p").all_inner_texts()]
    page.locator("#compare").uncheck()
    return found.index(True) + 1 if any(found) else 0


def _around(page: Page, selector: str) -> Any:
    """The box around all elements of a selector."""
    boxes = [one.bounding_box() for one in page.locator(selector).all()]
    left, top = min(box["x"] for box in boxes), min(box["y"] for box in boxes)
    right = max(box["x"] + box["width"] for box in boxes)
    bottom = max(box["y"] + box["height"] for box in boxes)
    return {"x": left, "y": top - 4, "width": right - left + 8, "height": bottom - top + 8}


def wait_for(address: str) -> None:
    """Wait until a service answers."""
    for _ in range(300):
        with suppress(OSError):
            return urllib.request.urlopen(address).close()
        time.sleep(0.2)
    raise SystemExit("the service did not start")


def join(shots: dict[str, Image.Image], out: Path) -> None:
    """One picture: the timeline, the numbers of steps beside the frames, the plans below."""
    edge, frames, shares, plans = 24, shots["frames"], shots["shares"], shots["plans"]
    width = max(frames.width + edge + shares.width, plans.width) + 2 * edge
    inner, timeline = width - 2 * edge, shots["timeline"]
    size = inner, round(timeline.height * inner / timeline.width)
    timeline = timeline.resize(size, Image.Resampling.LANCZOS)
    below = timeline.height + 2 * edge
    joined = Image.new("RGB", (width, below + frames.height + plans.height + 2 * edge), "white")
    joined.paste(timeline, (edge, edge))
    joined.paste(frames, (edge, below))
    joined.paste(shares, (width - edge - shares.width, below))
    joined.paste(plans, (edge, below + frames.height + edge))
    joined.quantize(128).save(out, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/plan.png"))
    parser.add_argument("--work", type=Path, help="folder to keep videos, data and run in")
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    if not (work / "RUN").is_dir():
        dataset = of_films(work / "DATA", seed=0, progress=silent)
        config = cefito.load_config("quickstart", method="any-length")
        cefito.train_run(dataset, work / "RUN", config=config, horizon=4, shortest=1, seed=0)
    tests = [one for one in cefito.open_dataset(work / "DATA").videos if one.split == "test"]
    windows = [(one.video_id, step + 1) for one in tests for step in range(len(one.steps) - 3)]
    command = [sys.executable, "-m", "cefito", "serve", work / "RUN", "--dataset", work / "DATA"]
    service = subprocess.Popen([*command, "--port", "8123", "--quiet"])
    try:
        address = "http://127.0.0.1:8123"
        wait_for(f"{address}/ready")
        shots = shoot(address, windows)
    finally:
        service.terminate()
        service.wait()
    join(shots, given.out)


if __name__ == "__main__":
    main()
