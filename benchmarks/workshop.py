"""A drawn workshop: films of two procedures, some with a step skipped or two exchanged.

Draws `--films` right films to learn from and twenty to check, eight of which have a mistake: four
skip a step, four exchange two neighbours whose order is always the same. A step of each procedure
comes at any of some places. Six more films are of procedures that are not learned (those of the
quickstart). Prepares, trains and verifies by the commands, from films alone. Worlds, whose
procedures look different, are in workshop.toml.

    python benchmarks/workshop.py --out FILE [--films 10] [--draws 3] [--world shapes]

A mistake counts as `named` if a finding names the step that was skipped as missing, or one of both
exchanged steps as out of order; as `found` if any finding names one of these steps. `silent` films
with a mistake have neither a finding nor a word of doubt. `false` counts findings in right films.
`own_doubted` of the twenty films, and `other_doubted` of those of other procedures, are said to
show another task, none that is known, or no step; `other_findings` counts findings in the latter.
`live` is the same of all that a live session ever tells of the films, row by row and once they are
over (`before_the_end`: row by row), with `wrong`, findings of other steps in films with a mistake,
and `delay`, seconds from the start of the step that came instead of the right one to the first
finding that names the mistake.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import cefito
import common
from cefito.data.simulation.films import FILMS, film, write_films
from cefito.files import write_json

World = dict[str, dict[str, Any]]
"""Scenes of procedures by name, each also with its free steps."""
_WORLDS: dict[str, World] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_CHECKED, _SKIPS, _SWAPS = 20, 4, 4
_OTHERS = 6
_LEFT_OUT: dict[str, Any] = {
    "deviations": [],
    "limits": ["no step"],
    "steps": [],
    "task_probability": 0.0,
}
_FIRST = 100  # seed of the first draw; the settings were chosen on draws 0 to 2
_HOW = ("named", "found")
# the planner of the run is not asked
_QUICK = ("--set", "any_length_training.optimiser.epochs=1", "--set", "any_length.members=1")


def right(scene: dict[str, Any], generator: np.random.Generator) -> list[str]:
    """Return the steps of a right film; free ones come at places of their own."""
    steps = [name for name in scene if name not in ("at first", "free", *scene["free"])]
    for name, (after, before, share) in scene["free"].items():
        last = steps.index(before) if before else len(steps)
        if share == 1 or generator.random() < share:
            steps.insert(int(generator.integers(steps.index(after) + 1, last + 1)), name)
    return steps


def mistaken(
    steps: list[str], free: Collection[str], kind: str, generator: np.random.Generator
) -> tuple[list[str], list[str], int]:
    """Return steps with a mistake, the steps that may be named for it, and its place."""
    fixed = [place for place, name in enumerate(steps) if name not in free]
    if kind == "skip":
        place = int(generator.choice(fixed))
        return steps[:place] + steps[place + 1 :], [steps[place]], place
    place = int(generator.choice([a for a in fixed if a + 1 in fixed]))
    pair = [steps[place + 1], steps[place]]
    return steps[:place] + pair + steps[place + 2 :], pair, place


def timed(steps: Sequence[str], generator: np.random.Generator) -> list[tuple[str, float, float]]:
    """Return steps with their start and end in seconds."""
    now, found = float(generator.uniform(1, 3)), []
    for name in steps:
        seconds = float(np.exp(generator.normal(np.log(5.0), 0.3)))
        found.append((name, round(now, 1), round(now + seconds, 1)))
        now += seconds + float(generator.uniform(0, 2.5))
    return found


def drawn(folder: Path, world: World, films: int, seed: int) -> list[dict[str, Any]]:
    """Draw the films and the table of those to learn from; return what those to check hold."""
    generator = np.random.default_rng(seed)
    (folder / "learn").mkdir(parents=True)
    (folder / "check").mkdir()
    tasks = [*world]
    with (folder / "steps.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("video", "task", "step", "start", "end", "split"))
        for number in range(films):
            task = tasks[number % len(tasks)]
            steps = timed(right(world[task], generator), generator)
            rows.writerows((f"l{number:02}", task, *step, "train") for step in steps)
            made = film(world[task], steps, generator)
            (folder / "learn" / f"l{number:02}.mp4").write_bytes(made)
    kinds = ["skip"] * _SKIPS + ["swap"] * _SWAPS + ["right"] * (_CHECKED - _SKIPS - _SWAPS)
    checked = []
    for number, kind in enumerate(kinds):
        task = tasks[number % len(tasks)]
        steps, named, at = right(world[task], generator), list[str](), 0
        if kind != "right":
            steps, named, at = mistaken(steps, world[task]["free"], kind, generator)
        name, moments = f"{kind}{number:02}", timed(steps, generator)
        (folder / "check" / f"{name}.mp4").write_bytes(film(world[task], moments, generator))
        checked.append(
            {"video": name, "task": task, "kind": kind, "named": named, "steps": moments}
            | {"instead": moments[at][1] if at < len(moments) else moments[-1][2]}
        )
    return checked


def command(*words: object) -> str:
    """Run a command of the library and return what it prints."""
    asked = [sys.executable, "-m", "cefito", *map(str, words), "--threads", "1"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode not in (0, 3, 4) and not (done.returncode == 2 and done.stdout):
        raise SystemExit(done.stderr)
    return done.stdout


def measured(world: World, films: int, seed: int) -> dict[str, Any]:
    """Draw a workshop, learn from it, and score what is said of the films to check."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checked = drawn(folder, world, films, seed)
        data, run = folder / "DATA", folder / "RUN"
        command(
            "data", "prepare", "custom", folder / "steps.csv", data, "--videos", folder / "learn"
        )
        command("train", data, "--steps", "1-4", "--out", run, *_QUICK)
        names = [folder / "check" / f"{one['video']}.mp4" for one in checked]
        others = replace(FILMS, train=_OTHERS, val=0, test=0)
        write_films(folder / "others", seed=seed, knobs=others)
        names += sorted((folder / "others" / "videos").iterdir())
        videos = {name.stem: _LEFT_OUT for name in names}
        videos |= {
            one["video"]: one for one in json.loads(command("verify", run, *names, "--json"))
        }
        command("extract", folder / "check", "--run", run, "--out", folder / "rows")
        live = followed(run, folder / "rows", checked)
    counts: dict[str, Any] = {f"{kind}_{how}": 0 for kind in ("skip", "swap") for how in _HOW}
    counts |= {"false": 0, "false_films": 0, "silent": 0, "sequences": 0, "right_films_in_doubt": 0}
    films_of: list[dict[str, Any]] = []
    own = {one["video"]: one for one in checked}
    counts |= {"own_doubted": 0, "other_doubted": 0, "other_findings": 0}
    for name, video in videos.items():
        unknown = video.get("task_probability", 1.0) <= 0.5
        counts["own_doubted" if name in own else "other_doubted"] += unknown
        counts["other_findings"] += 0 if name in own else len(video["deviations"])
    for one in checked:
        video, kind = videos[one["video"]], one["kind"]
        said = [(finding["kind"], finding["name"]) for finding in video["deviations"]]
        doubt = [step["name"] for step in video.get("unsure", [])] + video.get("limits", [])
        counts["sequences"] += [s["name"] for s in video["steps"]] == [s[0] for s in one["steps"]]
        if kind == "right":
            counts["false"] += len(said)
            counts["false_films"] += bool(said)
            counts["right_films_in_doubt"] += bool(doubt) and not said
        else:
            as_named = "missing" if kind == "skip" else "order"
            counts[f"{kind}_named"] += any((as_named, name) in said for name in one["named"])
            counts[f"{kind}_found"] += any(name in one["named"] for _, name in said)
            counts["silent"] += not said and not doubt
        films_of.append(
            {"video": one["video"], "mistake": one["named"], "said": said, "doubt": doubt}
        )
    return {"seed": seed, **counts, "live": live, "videos": films_of}


def followed(run: Path, rows: Path, checked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count what a live session tells of the films to check, in all and before their end."""
    told = list[tuple[dict[tuple[str, str], int], int]]()  # seconds of findings; length of the film
    for one in checked:
        session, seconds = cefito.follow(run), dict[tuple[str, str], int]()
        film_rows = np.load(rows / f"{one['video']}.npy")
        for place, row in enumerate(film_rows, 1):
            session.observe(row, at=place - 1)
            for finding in session.followed().findings:
                seconds.setdefault((finding.kind, finding.name), place)
        session.finish()
        for finding in session.followed().findings:
            seconds.setdefault((finding.kind, finding.name), len(film_rows) + 1)
        told.append((seconds, len(film_rows)))
    before = [{key: at for key, at in seconds.items() if at <= length} for seconds, length in told]
    whole = [seconds for seconds, _ in told]
    return counted(checked, whole) | {"before_the_end": counted(checked, before)}


def counted(
    checked: Sequence[dict[str, Any]], told: Sequence[dict[tuple[str, str], int]]
) -> dict[str, Any]:
    """Count findings of films, by their kind, name and second."""
    counts: dict[str, Any] = {f"{kind}_{how}": 0 for kind in ("skip", "swap") for how in _HOW}
    counts |= {"false": 0, "false_films": 0, "wrong": 0, "delay": []}
    for one, seconds in zip(checked, told, strict=True):
        kind, named = one["kind"], one["named"]
        if kind == "right":
            counts["false"] += len(seconds)
            counts["false_films"] += bool(seconds)
            continue
        as_named = "missing" if kind == "skip" else "order"
        counts[f"{kind}_named"] += any((as_named, name) in seconds for name in named)
        moments = [moment for (_, name), moment in seconds.items() if name in named]
        counts[f"{kind}_found"] += bool(moments)
        counts["wrong"] += len(seconds) - len(moments)
        if moments:
            counts["delay"].append(round(min(moments) - one["instead"], 1))
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--films", type=int, default=10)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--world", choices=_WORLDS, default="shapes")
    given = parser.parse_args(arguments)
    asked = f"--films {given.films} --draws {given.draws}"
    asked += f" --world {given.world}" * (given.world != "shapes")
    report = {
        "command": f"python benchmarks/workshop.py {asked}",
        "machine": common.machine(),
        "films to check": {"skip": _SKIPS, "swap": _SWAPS, "right": _CHECKED - _SKIPS - _SWAPS}
        | {"other": _OTHERS},
        "draws": [
            measured(_WORLDS[given.world], given.films, _FIRST + draw)
            for draw in range(given.draws)
        ],
    }
    if given.out is not None:
        write_json(given.out, report)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
