"""Films to label: greys that are drawn, and a run that recognises their steps."""

from __future__ import annotations

import numpy as np

from cefito.data.readers.custom import prepare
from cefito.encoders.extraction import extract_videos
from cefito.encoders.video import open_encoder
from grey_videos import draw_levels
from tiny_models import tiny_dinov2
from tiny_runs import TINY_LENGTHS, TINY_ROWS, small_run

GREYS = {"boil": 60, "pour": 120, "wait": 180, "stir": 230}
PLAN, LONGER = ("boil", "pour", "wait"), ("boil", "pour", "wait", "stir")
SMALL = TINY_LENGTHS | TINY_ROWS


def draw(path, plan, seed):
    """Draw a film of steps, each of its own grey, and return them: name, start, end in seconds."""
    rng, levels, steps = np.random.default_rng(seed), [20], []
    for name in plan:
        count = int(rng.integers(4, 7))
        steps.append((name, len(levels), len(levels) + count))
        levels += [GREYS[name]] * count + [20]
    draw_levels(path, levels)
    return steps


def make_place(folder, new=5, **options):
    """Make RUN of films that are drawn, and new films, which have a step more; their steps."""
    (folder / "videos").mkdir()
    lines = ["video,task,step,start,end,split"]
    for number in range(8):
        steps = draw(folder / "videos" / f"v{number}.mp4", PLAN, number)
        split = "val" if number > 5 else "train"
        lines += [f"v{number},tea,{name},{at},{end},{split}" for name, at, end in steps]
    (folder / "STEPS.csv").write_text("\n".join(lines))
    encoder = open_encoder(str(tiny_dinov2(folder / "dinov2")))
    extract_videos(folder / "videos", folder / "features", encoder)
    sources = {"features": folder / "features", "videos": folder / "videos", "seconds": 1} | options
    data = prepare(folder / "STEPS.csv", folder / "DATA", **sources)
    small_run(data, folder / "RUN", "any-length", overrides=SMALL, horizon=3, shortest=1)
    (folder / "new").mkdir()
    return {
        f"n{number}.mp4": draw(folder / "new" / f"n{number}.mp4", LONGER, 100 + number)
        for number in range(new)
    }
