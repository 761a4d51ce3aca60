"""The picture of the README: a scene before, one after, and plans as the service's page draws them.

    python benchmarks/picture.py --out docs/images/plan.png

Videos of three kitchen tasks are drawn (there are no real ones); a run of one to four steps is
trained on thumbnails of their frames, and Chromium opens the page of `cefito serve` on a test
video. Needs `pip install '.[test]'`; CEFITO_CHROMIUM may name the browser.
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
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlencode

import av
import numpy as np
from PIL import Image, ImageDraw, ImageEnhance
from playwright.sync_api import Page, sync_playwright

import cefito
from cefito.data.readers.assemble import prepare
from cefito.data.readers.step_source import read_steps

RATE, STEP = 2, 3  # frames a second, seconds of a step
SIZE = 512, 384  # pixels in which scenes are drawn
WIDTH, HEIGHT = 256, 192
MARGIN = 24
TASKS = {
    "Make a sandwich": [
        "put bread on the board",
        "spread butter",
        "add cheese",
        "add tomato",
        "add lettuce",
        "close the sandwich",
    ],
    "Make tea": ["put a tea bag in", "pour hot water", "add milk", "add sugar", "take the bag out"],
    "Fry an egg": ["heat the pan", "add oil", "crack the egg", "add salt", "put it on the plate"],
}
# Orders of each task's steps: the likeliest first, with how often each occurs in 10 videos.
ORDERS = {
    "Make a sandwich": {(0, 1, 2, 3, 4, 5): 5, (0, 1, 3, 2, 4, 5): 3, (0, 1, 4, 2, 3, 5): 2},
    "Make tea": {(0, 1, 4, 2, 3): 5, (0, 1, 4, 3, 2): 3, (0, 1, 2, 4, 3): 2},
    "Fry an egg": {(0, 1, 2, 3, 4): 6, (1, 0, 2, 3, 4): 3, (0, 1, 2, 4, 3): 1},
}


def scene(task: str, done: set[int], light: float, corner: tuple[int, int]) -> Image.Image:
    """Draw the table of a task after the steps `done`, by a light, cut out at a corner."""
    image = Image.new("RGB", SIZE, (236, 228, 214))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 250, *SIZE), fill=(188, 150, 108))
    for line in range(265, 384, 24):
        draw.line((0, line, SIZE[0], line), fill=(174, 136, 96), width=2)
    {"Make a sandwich": _sandwich, "Make tea": _tea, "Fry an egg": _egg}[task](draw, done)
    left, top = corner
    cut = image.crop((left, top, left + SIZE[0] - MARGIN, top + SIZE[1] - MARGIN * 3 // 4))
    return ImageEnhance.Brightness(cut).enhance(light).resize((WIDTH, HEIGHT), Image.LANCZOS)


def _sandwich(draw: ImageDraw.ImageDraw, done: set[int]) -> None:
    draw.rounded_rectangle((60, 285, 450, 315), 12, fill=(142, 94, 58))
    if 0 in done:
        draw.rounded_rectangle((135, 245, 375, 285), 16, fill=(214, 160, 92))
        draw.rounded_rectangle((143, 250, 367, 280), 12, fill=(244, 218, 168))
    if 1 in done:
        draw.rounded_rectangle((145, 238, 365, 248), 5, fill=(252, 236, 120))
    if 2 in done:
        draw.polygon([(132, 228), (378, 228), (390, 250), (346, 238), (128, 238)], (246, 178, 40))
    if 3 in done:
        for left in (150, 222, 294):
            draw.rounded_rectangle((left, 212, left + 68, 228), 8, fill=(206, 58, 44))
    if 4 in done:
        for left in range(132, 372, 24):
            draw.ellipse((left, 196, left + 34, 216), fill=(112, 172, 66))
    if 5 in done:
        draw.rounded_rectangle((130, 150, 380, 202), 26, fill=(206, 150, 84))
    else:
        draw.rounded_rectangle((405, 225, 490, 285), 20, fill=(206, 150, 84))


def _tea(draw: ImageDraw.ImageDraw, done: set[int]) -> None:
    draw.ellipse((110, 300, 400, 345), fill=(226, 226, 230))
    draw.arc((325, 170, 430, 270), 270, 90, fill=(238, 240, 244), width=18)
    draw.polygon([(140, 150), (370, 150), (335, 315), (175, 315)], fill=(238, 240, 244))
    liquid = (120, 62, 24) if 2 not in done else (196, 146, 100)
    draw.ellipse((140, 130, 370, 172), fill=(214, 218, 224))
    if 1 in done:
        draw.ellipse((152, 136, 358, 168), fill=liquid)
        for left in (200, 250, 300):
            draw.arc((left, 60, left + 30, 120), 90, 270, fill=(214, 208, 200), width=6)
    if 0 in done and 4 not in done:
        draw.line((255, 148, 130, 215), fill=(250, 250, 250), width=4)
        draw.rectangle((105, 205, 145, 250), fill=(96, 168, 110))
    if 4 in done:
        draw.rounded_rectangle((60, 315, 112, 350), 8, fill=(132, 80, 42))
    if 3 not in done:
        for left in (420, 450):
            draw.rectangle(
                (left, 300, left + 26, 326), fill=(252, 252, 252), outline=(190, 190, 190)
            )
    draw.rectangle((20, 170, 80, 290), fill=(250, 250, 252), outline=(170, 190, 214), width=4)
    draw.rectangle((24, 240 if 2 in done else 190, 76, 286), fill=(226, 236, 248))


def _egg(draw: ImageDraw.ImageDraw, done: set[int]) -> None:
    draw.ellipse((50, 210, 310, 340), fill=(52, 54, 60))
    draw.rounded_rectangle((0, 262, 70, 286), 10, fill=(38, 38, 42))
    draw.ellipse((70, 222, 290, 326), fill=(92, 66, 60) if 0 in done else (74, 78, 86))
    draw.ellipse((350, 240, 500, 330), fill=(246, 246, 248), outline=(206, 206, 214), width=6)
    if 1 in done:
        draw.ellipse((90, 232, 270, 316), fill=(166, 138, 58))
    left, top = (380, 258) if 4 in done else (130, 244)
    if 2 in done:
        draw.ellipse((left, top, left + 96, top + 56), fill=(252, 252, 246))
        draw.ellipse((left + 32, top + 12, left + 66, top + 42), fill=(248, 180, 32))
    else:
        draw.ellipse((440, 325, 486, 372), fill=(232, 196, 160))
    if 3 in done:
        for dot in range(14):
            place = left + 8 + dot * 37 % 80, top + 8 + dot * 23 % 40
            draw.ellipse((*place, place[0] + 5, place[1] + 5), fill=(120, 120, 128))


def draw_videos(folder: Path, count: int) -> None:
    """Write `count` videos with features [seconds, 3 · 24 · 32] of each, and the table of steps."""
    random = np.random.default_rng(0)
    (folder / "videos").mkdir()
    (folder / "features").mkdir()
    lines = ["video,task,step,start,end"]
    for number in range(count):
        name, task = f"kitchen-{number:03}", list(TASKS)[number % 3]
        orders = [order for order, times in ORDERS[task].items() for _ in range(times)]
        order = orders[random.integers(len(orders))]
        light = random.uniform(0.8, 1.1)
        corner = random.integers(MARGIN), random.integers(MARGIN * 3 // 4)
        frames, done = [scene(task, set(), light, corner)] * STEP * RATE, set()
        for place, step in enumerate(order):
            start = STEP * (place + 1)
            lines.append(f"{name},{task},{TASKS[task][step]},{start},{start + STEP - 1}")
            done.add(step)
            frames += [frames[-1]] * RATE + [scene(task, done, light, corner)] * (STEP - 1) * RATE
        write_video(folder / "videos" / f"{name}.mp4", frames)
        small = [np.asarray(frame.resize((32, 24))) for frame in frames[RATE // 2 :: RATE]]
        noise = random.normal(0, 12, (len(small), 24, 32, 3))
        rows = (np.stack(small) + noise).reshape(len(small), -1) / 64 - 2
        np.save(folder / "features" / f"{name}.npy", rows.astype(np.float32))
    (folder / "steps.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_video(path: Path, frames: list[Image.Image]) -> None:
    """Write frames as an MP4."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"crf": "14"}
        for number, image in enumerate(frames):
            frame = av.VideoFrame.from_image(image)
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def shoot(address: str, video: str, step: int) -> dict[str, Image.Image]:
    """Plan a window on the page; pictures of its timeline, frames, numbers of steps and plans."""
    names = (os.environ.get("CEFITO_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, (shutil.which(name) for name in names if name)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": 1120, "height": 1600}, device_scale_factor=2, color_scheme="light"
        )
        query = {"run": "RUN", "horizon": 4, "video": video, "first": step}
        page.goto(f"{address}/?{urlencode(query)}")  # plans at once
        page.locator("#frames img").nth(1).wait_for()
        page.wait_for_function("[...document.images].every(one => one.complete)")
        page.locator("#plans ol").first.wait_for()
        boxes = {
            "timeline": _around(page, "#timeline, #timeline > p"),
            "frames": _around(page, "#frames figure"),
            "shares": _around(page, "#shares"),
            "plans": _around(page, "#plans li"),
        }
        boxes["plans"] |= {"x": page.locator("#plans").bounding_box()["x"]}
        boxes["plans"]["width"] += _around(page, "#plans li")["x"] - boxes["plans"]["x"]
        shots = {name: page.screenshot(clip=box, full_page=True) for name, box in boxes.items()}
        browser.close()
    return {name: Image.open(io.BytesIO(shot)).convert("RGB") for name, shot in shots.items()}


def _around(page: Page, selector: str) -> dict[str, float]:
    """The box around all elements of a selector."""
    boxes = [one.bounding_box() for one in page.locator(selector).all()]
    left, top = min(box["x"] for box in boxes), min(box["y"] for box in boxes)
    right = max(box["x"] + box["width"] for box in boxes)
    bottom = max(box["y"] + box["height"] for box in boxes)
    return {"x": left, "y": top - 4, "width": right - left + 8, "height": bottom - top + 8}


def wait_for(address: str) -> None:
    """Wait until a service answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the service did not start")


def join(shots: dict[str, Image.Image], out: Path) -> None:
    """One picture: the timeline, the numbers of steps beside the frames, the plans below."""
    edge, frames, shares, plans = 24, shots["frames"], shots["shares"], shots["plans"]
    width = max(frames.width + edge + shares.width, plans.width) + 2 * edge
    timeline = shots["timeline"]
    timeline = timeline.resize(
        (width - 2 * edge, round(timeline.height * (width - 2 * edge) / timeline.width)),
        Image.LANCZOS,
    )
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
    parser.add_argument("--videos", type=int, default=150)
    parser.add_argument("--video", default="", help="test video to plan; the first by default")
    parser.add_argument("--from-step", type=int, default=3)
    parser.add_argument("--port", type=int, default=8123)
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    if not (work / "RUN").is_dir():
        work.mkdir(exist_ok=True)
        draw_videos(work, given.videos)
        table, features = read_steps(work / "steps.csv"), work / "features"
        dataset = prepare(table, features, work / "DATA", seconds=1, videos=work / "videos")
        config = cefito.load_config("small", method="any-length")
        cefito.train_run(dataset, work / "RUN", config=config, horizon=4, shortest=1, seed=0)
    videos = cefito.open_dataset(work / "DATA").videos
    tests = [video.video_id for video in videos if video.split == "test"]
    command = [sys.executable, "-m", "cefito", "serve", work / "RUN", "--dataset", work / "DATA"]
    service = subprocess.Popen([*command, "--port", str(given.port), "--quiet"])
    try:
        address = f"http://127.0.0.1:{given.port}"
        wait_for(f"{address}/ready")
        shots = shoot(address, given.video or tests[0], given.from_step)
    finally:
        service.terminate()
        service.wait()
    join(shots, given.out)


if __name__ == "__main__":
    main()
