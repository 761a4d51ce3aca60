"""The table of odd inputs: what each call is given, and what it should come to.

Every function below gives a part of the table; `all_cases` joins them. Add a value to a tuple to
try it everywhere, or a `Case` for something of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bad_files import ARRAYS, TABLES, TEXTS, Maker, annotations, raw
from bad_inputs import Case

NO_WHOLE_NUMBERS = (
    *("3.7", "3.0", "1e2", "true", "nan", "inf", "-inf", "", " ", "abc", "0x10", "--3", "3 4"),
    *("\u0663", "\u00bd", "3,4", "9" * 5000, "1" + "0" * 30),
)
NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "", " ", "abc", "1,5", "0x10", "9" * 5000, "true")
TRAIN = ("train", "{data}", "--horizon", "3", "--out", "{out}")
QUICK = ("--method", "frequent", "--set", "classifier_training.optimiser.epochs=1")
PLAN = ("plan", "{run}", "--initial", "{a}", "--goal", "{b}")
BATCH = ("plan-batch", "{simple}", "{data}", "--out", "{here}/plans.jsonl")
PREPARE = ("data", "prepare", "custom", "{table}", "{out}", "--features", "{features}")
COMPARE = ("compare", "{data}", "--planners", "frequent", "--out", "{out}", "--no-published")
COMPARE = (*COMPARE, *QUICK[2:])

# Calls to which an option is added, and the options that take whole numbers there.
WHOLE: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("train", "{data}", "--out", "{out}", *QUICK), ("--horizon",)),
    ((*TRAIN, *QUICK), ("--seed",)),
    (PLAN, ("--top-k", "--from-step", "--task", "--tasks", "--pruning", "--width")),
    (BATCH, ("--top-k", "--workers", "--threads", "--shard")),
    (("evaluate", "{simple}"), ("--sample",)),
    (("llm-prompt", "{simple}"), ("--window", "--sample", "--horizon")),
    (("report", "{simple}", "--json"), ("--sample", "--queries", "--horizon")),
    ((*COMPARE, "--horizons", "3"), ("--seeds",)),
    ((*COMPARE, "--horizons", "3", "--seeds", "1"), ("--sample", "--costly-sample", "--workers")),
    (PREPARE, ("--seconds", "--workers")),
    (("data", "pad", "{data}", "{out}"), ("--horizon",)),
    (("data", "world", "{out}"), ("--seed",)),
    (("embed", "{data}", "--out", "{out}", "--encoder", "{a}"), ("--batch-size",)),
    (("extract", "{features}", "--out", "{out}"), ("--batch", "--frames", "--size")),
    (("quickstart", "--out", "{out}"), ("--seed",)),
    (("serve", "{run}"), ("--port", "--workers", "--threads", "--together", "--queue")),
)
REAL: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (PLAN, ("--min-probability", "--budget", "--memory-mib", "--prior-weight", "--diversity")),
    (("plan", "{run}", "--video", "x.mp4", "--end", "9"), ("--start",)),
    (("extract", "{features}", "--out", "{out}"), ("--rate",)),
    (("evaluate", "{run}"), ("--min-probability",)),
    (("serve", "{run}"), ("--max-gflop", "--deadline", "--max-deadline", "--drain")),
    (("plan-batch", "{run}", *BATCH[2:]), ("--min-probability", "--budget")),
)


def options() -> Iterator[Case]:
    """Options that take numbers, given what is none."""
    for table, values in ((WHOLE, NO_WHOLE_NUMBERS), (REAL, NO_NUMBERS)):
        for call, names in table:
            for name in names:
                for value in values:
                    said = value if len(value) < 40 else f"{value[:3]}… of {len(value)}"
                    title = f"{call[0]} {call[1] if call[0] == 'data' else ''} {name}={said!r}"
                    several = call[0] == "train" and name == "--horizon" and value == "3,4"
                    wanted = "answered" if several else "refused"
                    yield Case(title, (*call, f"{name}={value}"), wanted=wanted)


ABSURD = (
    (*TRAIN[:3], "1000000000", *TRAIN[4:]),
    (*TRAIN, *QUICK, "--seed", "-1"),
    (*TRAIN, *QUICK, "--seed", str(2**63)),
    (*TRAIN, "--set", "field.width=1000000"),
    (*TRAIN, "--set", "field.width=1000000000000000000"),
    (*TRAIN, "--set", "field.depth=1000000000"),
    (*TRAIN, "--set", "field.mlp_ratio=1e300"),
    (*TRAIN, "--set", "field.mlp_ratio=1e9"),
    (*TRAIN, "--set", "field.action_dim=100000000000"),
    (*TRAIN, "--set", "field.members=1000000000"),
    (*TRAIN, "--set", "field.goal_projection=100000000000"),
    (*TRAIN, "--set", "chain.hidden=100000000000"),
    (*TRAIN, "--set", "chain.width=100000000000"),
    (*TRAIN, "--set", "chain.members=1000000000"),
    (*TRAIN, "--set", "training.negatives.count=1000000000000"),
    (*TRAIN, "--set", "training.optimiser.epochs=10000000000000000000000"),
    (*TRAIN, "--method", "viterbi", "--set", "viterbi.hidden=100000000000"),
    (*TRAIN, "--method", "viterbi", "--set", "viterbi.name_width=100000000000"),
    (*TRAIN, "--method", "pdpp", "--set", "pdpp.widths=[100000000000, 8, 8]"),
    (*TRAIN, "--method", "pdpp", "--set", "pdpp.steps=100000000000"),
    (*TRAIN, "--method", "mtid", "--set", "mtid.widths=[100000000000, 8, 8]"),
    (*TRAIN, "--method", "mtid", "--set", "mtid.layers=1000000000"),
    (*TRAIN, "--method", "mtid", "--set", "mtid.encodings=1000000000"),
    (*TRAIN, "--method", "mtid", "--set", "mtid_classifier.width=1000000000"),
    (*TRAIN, "--method", "kepp", "--set", "kepp.plan.widths=[100000000000, 8, 8]"),
    (*TRAIN, "--method", "kepp", "--set", "kepp.walks=100000000000"),
    (*TRAIN, "--method", "kepp", "--set", "kepp.folds=100000000000"),
    (*TRAIN, "--method", "p3iv", "--set", "p3iv.width=100000000000"),
    (*TRAIN, "--method", "p3iv", "--set", "p3iv.rows=7"),
    (*TRAIN, "--method", "p3iv", "--set", "p3iv.samples=100000000000"),
    (*TRAIN, "--method", "schema", "--set", "schema_model.width=100000000000"),
    (*TRAIN, "--method", "planllm", "--set", "planllm.query_layers=100000000000"),
    (*TRAIN, "--method", "pkg", "--set", "pkg.network.hidden=[100000000000, 8]"),
    (*PLAN, "--top-k", "1000000000000"),
    (*PLAN, "--width", "1000000000000", "--search", "beam"),
    (*PLAN, "--memory-mib", "1e300"),
    (*PLAN, "--task", "999999999"),
    (*PLAN, "--task", "-1"),
    (*PLAN, "--pin", "0=1"),
    (*PLAN, "--pin", "1=99999"),
    (*PLAN, "--pin", "9" * 5000 + "=1"),
    (*PLAN, "--require", "9" * 5000),
    (*PLAN, "--before", "1"),
    ("evaluate", "{simple}", "--sample", "0"),
    ("evaluate", "{simple}", "--sample", "-3"),
    (*COMPARE, "--seeds", "1000000000"),
    (*COMPARE, "--seeds", "0"),
    (*COMPARE, "--horizons", "3", "--seeds", "1", "--workers", "1000000"),
    (*COMPARE, "--horizons", "3,1000000000"),
    (*COMPARE, "--horizons", "9" * 5000),
    (*COMPARE, "--horizons", "3,\u0663"),
    (*COMPARE, "--horizons", "²"),
    (*COMPARE, "--horizons", "3,3"),
    (*COMPARE, "--planners", ","),
    (*PREPARE, "--seconds", "0"),
    (*PREPARE, "--seconds", "1000000000000"),
    (*PREPARE, "--workers", "1000000000"),
    ("data", "pad", "{data}", "{out}", "--horizon", "1000000000000"),
    ("data", "world", "{out}", "--seed", "-1"),
    ("embed", "{data}", "--out", "{out}", "--encoder", "{a}", "--batch-size", "0"),
)


def absurd() -> Iterator[Case]:
    """Numbers that are numbers, but of sizes that cannot be meant."""
    either = ("--memory-mib", "--top-k", "--workers", "--width")
    for call in ABSURD:
        end = " ".join(part for part in call[1:] if not part.startswith("{"))[-60:]
        wanted = "either" if call[-2] in either or "--width" in call else "refused"
        yield Case(f"absurd: {call[0]} {end}", call, wanted=wanted)


SETTINGS_OF_NO_WHOLE = ("true", "3.7", "3.0", "nan", "-1", "'3'", "[3]", "9" * 5000, "{a=1}")
SETTINGS_OF_NO_TRUTH = ("1", "0", "'yes'", "2", "nan", "[]")
SETTINGS_OF_NO_REAL = ("true", "nan", "inf", "-inf", "1e999", "'0.5'", "[]", "9" * 5000)


def settings() -> Iterator[Case]:
    """Every third setting of every method, given values of other kinds."""
    from cefito.planners.settings import load_config

    found: list[tuple[str, Any]] = []

    def walk(values: dict[str, Any], above: str) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                walk(value, f"{above}{name}.")
            elif not isinstance(value, str | list | tuple):
                found.append((above + name, value))

    walk(load_config("paper").sections, "")
    for number, (key, value) in enumerate(found):
        table = SETTINGS_OF_NO_REAL if isinstance(value, float) else SETTINGS_OF_NO_WHOLE
        table = SETTINGS_OF_NO_TRUTH if isinstance(value, bool) else table
        for place, odd in enumerate(table):
            if (number + place) % 3 or (odd == "-1" and key == "search.pruning"):
                continue
            yield Case(f"--set {key}={odd[:9]}", (*TRAIN, *QUICK, "--set", f"{key}={odd}"))
    whole = "expected KEY=VALUE"
    for odd in ("", "=", "=1", "a", "field", "field=1", "field.=1", ".=1", "field..width=8"):
        yield Case(f"--set {odd!r} {whole}", (*TRAIN, *QUICK, "--set", odd))
    for odd in ("preset=1", "unknown.key=1", "field.width=8\nfield.depth=1", "a" * 100_000 + "=1"):
        yield Case(f"--set {odd[:20]!r}", (*TRAIN, *QUICK, "--set", odd))
    deep = ".".join("a" * 20_000)
    yield Case("--set a key of 20,000 parts", (*TRAIN, *QUICK, "--set", f"{deep}=1"))
    yield Case("--set a deep list", (*TRAIN, *QUICK, "--set", "field.width=" + "[" * 50_000))


def arrays() -> Iterator[Case]:
    """Arrays for every place that takes one."""
    good = ("1e30",)
    for title, make in ARRAYS.items():
        file: Callable[[Path], object] = lambda here, make=make: make(here / "x.npy")  # noqa: E731
        yield Case(f"plan --initial: {title}", (*PLAN[:3], "{here}/x.npy", *PLAN[4:]), file)
        call = ("embed", "{data}", "--out", "{out}", "--no-cache", "--encoder", "{here}/x.npy")
        yield Case(f"embed: {title}", call, file)
        yield Case(
            f"features: {title}",
            ("data", "prepare", "custom", "{here}/t.csv", "{out}", "--features", "{here}/f"),
            _one_video(make),
            wanted="either" if title in good else "refused",
        )
        yield Case(
            f"features.npz: {title}",
            ("data", "prepare", "custom", "{here}/s", "{out}"),
            lambda here, make=make: annotations(features=make)(here / "s"),
        )
        call = ("import-checkpoint", "{here}/x.pth", "--kind", "cefito", "--out", "{out}")
        call = (*call, "--taxonomy", "{data}/taxonomy.json", "--action-text", "{here}/x.npy")
        yield Case(f"import-checkpoint: {title}", call, _both(make))


def _one_video(make: Maker) -> Callable[[Path], object]:
    def write(here: Path) -> None:
        (here / "f").mkdir()
        make(here / "f" / "a.npy")
        (here / "t.csv").write_text("video,task,step,start,end\na,tea,boil,0,1\na,tea,pour,2,3\n")

    return write


def _both(make: Maker) -> Callable[[Path], object]:
    def write(here: Path) -> None:
        make(here / "x.npy")
        make(here / "x.pth")

    return write


_OF_DATA = ("dataset.json", "taxonomy.json", "videos.jsonl", "features.safetensors")
_OF_RUN = ("run.json", "taxonomy.json", "planner.json", "field.safetensors", "chain.safetensors")


def texts() -> Iterator[Case]:
    """Files that are no JSON, no TOML, no tensors, in the place of each that is read."""
    for title, make in TEXTS.items():
        for name in _OF_DATA:
            yield Case(
                f"{name} of a data set: {title}",
                ("data", "info", "{here}/data"),
                _changed("data", name, make),
                # without dataset.json it is a folder of annotations, which are described too
                "either" if name == "dataset.json" and title.startswith("link") else "refused",
            )
        for name in _OF_RUN:
            call = ("plan", "{here}/run", *PLAN[2:])
            gone = name == "taxonomy.json" and title.startswith("link")  # as of earlier versions
            wanted = "either" if gone or name == "planner.json" else "refused"
            yield Case(f"{name} of a run: {title}", call, _changed("run", name, make), wanted)
        file: Callable[[Path], object] = lambda here, make=make: make(here / "x.toml")  # noqa: E731
        wanted = "either" if title in ("empty", "blank") else "refused"
        call = (*TRAIN, *QUICK, "--preset", "{here}/x.toml")
        yield Case(f"preset: {title}", call, file, wanted=wanted)
        call = (*BATCH[:2], "{here}/x.parquet", *BATCH[3:])
        yield Case(f"queries: {title}", call, lambda here, make=make: make(here / "x.parquet"))
        for command, extra in (("crosstask", ()), ("coin", ())):
            call = ("data", "prepare", command, "--annotations", "{here}/x.json", "--out", "{out}")
            call = (*call, "--features", "{features}", *extra)
            yield Case(f"{command}: {title}", call, lambda here, make=make: make(here / "x.json"))
        call = ("data", "prepare", "captaincook4d", "--annotations", "{here}/x.json")
        call = (*call, "--split", "{here}/x.json", "--out", "{out}", "--features", "{features}")
        yield Case(f"captaincook4d: {title}", call, lambda here, make=make: make(here / "x.json"))
        call = ("import-checkpoint", "{here}/x.json", "--kind", "task-classifier")
        yield Case(
            f"task-classifier: {title}",
            (*call, "--out", "{here}/run"),
            _also(_changed("run", "run.json", None), lambda here, make=make: make(here / "x.json")),
        )


def _also(*makers: Callable[[Path], object]) -> Callable[[Path], object]:
    def write(here: Path) -> None:
        for maker in makers:
            maker(here)

    return write


def _changed(part: str, name: str, make: Maker | None) -> Callable[[Path], object]:
    """A copy of a part of the world with one file replaced."""

    def write(here: Path) -> None:
        shutil.copytree(here.parents[1] / "world" / part, here / part)
        if make is not None:
            (here / part / name).unlink(missing_ok=True)
            make(here / part / name)

    return write


def tables() -> Iterator[Case]:
    """Tables of steps."""
    both = {**TABLES, **{f"text: {title}": make for title, make in TEXTS.items()}}
    either = ("name with", "name of", "two splits", "huge time", "long field", "repeated column")
    for title, make in both.items():
        for suffix in ("csv", "parquet"):
            if suffix == "parquet" and not title.startswith("text"):
                continue
            call = ("data", "prepare", "custom", "{here}/x." + suffix, "{out}")
            yield Case(
                f"{suffix}: {title}",
                (*call, "--features", "{features}"),
                lambda here, make=make, suffix=suffix: make(here / f"x.{suffix}"),
                wanted="either" if title.startswith(either) else "refused",
            )


ANNOTATIONS: dict[str, dict[str, Any]] = {
    "task without actions": {"tasks": [{"id": 0, "name": "tea", "actions": []}]},
    "repeated action id": {"actions": [{"id": 0, "name": "a"}, {"id": 0, "name": "b"}]},
    "gap of ids": {"actions": [{"id": 0, "name": "a"}, {"id": 2, "name": "b"}]},
    "action id true": {"actions": [{"id": False, "name": "a"}, {"id": True, "name": "b"}]},
    "action id 1.0": {"actions": [{"id": 0.0, "name": "a"}, {"id": 1.0, "name": "b"}]},
    "action unnamed": {"actions": [{"id": 0}, {"id": 1, "name": "b"}]},
    "action name a number": {"actions": [{"id": 0, "name": 5}, {"id": 1, "name": "b"}]},
    "action name empty": {"actions": [{"id": 0, "name": ""}, {"id": 1, "name": "b"}]},
    "lone surrogate": {"actions": [{"id": 0, "name": "\ud800"}, {"id": 1, "name": "b"}]},
    "unknown action of a task": {"tasks": [{"id": 0, "name": "tea", "actions": [0, 1, 2]}]},
    "tasks null": {"tasks": None},
    "dataset a number": {"dataset": 5},
    "taxonomy a list": {"taxonomy": "[]"},
    "taxonomy deep": {"taxonomy": "[" * 100_000},
    "videos a list": {"videos": "[]"},
    "videos deep": {"videos": '{"a":' * 100_000},
    "video id a number": {"video_id": 5},
    "video id empty": {"video_id": ""},
    "split unknown": {"split": "dev"},
    "split a list": {"split": []},
    "task unknown": {"task_id": 7},
    "task true": {"task_id": False},
    "task 0.0": {"task_id": 0.0},
    "steps null": {"steps": None},
    "step of two": {"steps": [[0, 1], [1, 2, 1]]},
    "step of words": {"steps": [["a", "b", 0], [1, 2, 1]]},
    "step of text numbers": {"steps": [["0", "1", 0], [1, 2, 1]]},
    "step of truths": {"steps": [[False, True, 0], [1, 2, 1]]},
    "step action 1.0": {"steps": [[0, 1, 0.0], [1, 2, 1]]},
    "step action true": {"steps": [[0, 1, 0], [1, 2, True]]},
    "step NaN": {"videos": '{"video_id":"a","split":"train","task_id":0,"steps":[[NaN,1,0]]}'},
    "step 1e999": {"videos": '{"video_id":"a","split":"train","task_id":0,"steps":[[0,1e999,0]]}'},
    "step of 5,000 digits": {
        "videos": '{"video_id":"a","split":"train","task_id":0,"steps":[[0,' + "9" * 5000 + ",0]]}"
    },
    "step of 400 digits": {
        "videos": '{"video_id":"a","split":"train","task_id":0,"steps":[[0,' + "9" * 400 + ",0]]}"
    },
    "step before 0": {"steps": [[-5, -1, 0], [1, 2, 1]]},
    "step backwards": {"steps": [[3, 1, 0], [1, 2, 1]]},
    "more steps than rows": {"steps": [[0, 1, 0], [1, 2, 1], [2, 3, 0]]},
}


def sources() -> Iterator[Case]:
    """Folders of annotations that do not fit together."""
    for title, changes in ANNOTATIONS.items():
        yield Case(
            f"annotations: {title}",
            ("data", "prepare", "custom", "{here}/s", "{out}"),
            lambda here, changes=changes: annotations(**changes)(here / "s"),
        )


PATHS = (
    *("", " ", "{here}", "/", "/dev/null", "/dev/zero", "{here}/pipe", "{here}/loop", "/dev/full"),
    *("{here}/" + "a" * 300, "{here}/" + "a/" * 3000, "{here}/nul\x00byte", "{here}/new\nline"),
    *(
        "{here}/esc\x1b[31mred",
        "{here}/sur\udcffrogate",
        "~nobody-of-this-name/x",
        "{here}/nowhere",
    ),
    *("/proc/self/mem", "-", "{here}/text/below", "{here}/\u202eright", "{here}/" + "é" * 130),
)
READ: tuple[tuple[str, ...], ...] = (
    ("data", "info", "@"),
    ("data", "check", "@"),
    ("data", "pad", "@", "{out}", "--horizon", "3"),
    ("data", "simulate", "@", "{out}"),
    ("data", "prepare", "custom", "@", "{out}"),
    ("data", "prepare", "custom", "{table}", "{out}", "--features", "@"),
    ("data", "prepare", "coin", "--annotations", "@", "--out", "{out}", "--features", "{features}"),
    ("train", "@", "--horizon", "3", "--out", "{out}", *QUICK),
    (*TRAIN, *QUICK, "--preset", "@"),
    ("evaluate", "@"),
    ("report", "@", "--json"),
    ("report", "{simple}", "--json", "--videos", "@"),
    ("evaluate", "{simple}", "--dataset", "@"),
    ("plan", "@", *PLAN[2:]),
    ("plan-batch", "@", *BATCH[2:]),
    (*BATCH[:2], "@", *BATCH[3:]),
    (*PLAN[:3], "@", *PLAN[4:]),
    ("plan", "{run}", "--video", "@", "--start", "1", "--end", "2", "--encoder", "s3d"),
    ("plan", "{run}", "--video", "@"),
    ("plan", "{run}", "--initial-image", "@", "--goal-image", "@", "--encoder", "s3d"),
    ("extract", "@", "--out", "{out}"),
    ("embed", "@", "--out", "{out}", "--encoder", "{a}"),
    ("import-checkpoint", "@", "--kind", "task-classifier", "--out", "{out}"),
)
WRITTEN: tuple[tuple[str, ...], ...] = (
    ("train", "{data}", "--horizon", "3", *QUICK, "--out", "@"),
    ("data", "world", "@"),
    (*BATCH[:4], "@"),
    ("data", "pad", "{data}", "@", "--horizon", "3"),
    ("data", "prepare", "custom", "{table}", "@", "--features", "{features}"),
    (*COMPARE[:4], *QUICK[2:], "--horizons", "3", "--seeds", "1", "--out", "@"),
    ("evaluate", "{run}", "--reliability", "@"),
    ("report", "{simple}", "--out", "@"),
    ("data", "download", "coin-features", "@"),
)
_WRITABLE = ("esc", "new\n", "sur\udcff", "\u202e", "nowhere", "é", "~")


def _odd_places(here: Path) -> None:
    import os

    os.mkfifo(here / "pipe")
    (here / "loop").symlink_to("loop")
    (here / "text").write_text("text")


def paths() -> Iterator[Case]:
    """Paths of every kind, where something is read and where something is written."""
    for calls, reads in ((READ, True), (WRITTEN, False)):
        for call in calls:
            for path in PATHS:
                if path == "/" and not reads:
                    continue  # whoever may write there would find it full of results
                free = any(mark in path for mark in _WRITABLE)
                wanted = "either" if not reads and (free or path in ("{here}", " ", "-")) else ""
                argv = tuple(path if part == "@" else part for part in call)
                title = " ".join(call)[:60]
                yield Case(
                    f"path of {title}: {path[:40]!a}", argv, _odd_places, wanted or "refused"
                )


NAMES = (
    *(
        "",
        " ",
        "nobody",
        "\x1b]0;title\x07",
        "a\nb",
        "a\x00b",
        "sur\udcff",
        "[bold]x[/bold]",
        "{x}",
    ),
    *("%s%n", "../../x", "a" * 100_000, "\u202eabc", "\u0661", "None", "nan", "--", "-h x"),
)
NAMED: tuple[tuple[str, ...], ...] = (
    ("plan", "{run}", "--video=@"),
    (*PLAN, "--search=@"),
    (*PLAN, "--objective=@"),
    (*PLAN, "--device=@"),
    (*PLAN, "--forbid=@"),
    (*PLAN, "--pin=@"),
    (*PLAN, "--before=@"),
    (*BATCH, "--split=@"),
    (*BATCH, "--executor=@"),
    (*BATCH, "--executor=serial", "--address=@"),
    (*TRAIN, "--method=@"),
    (*TRAIN, *QUICK, "--preset=@"),
    (*TRAIN, *QUICK, "--selection=@"),
    ("evaluate", "{simple}", "--split=@"),
    ("compare", "{data}", "--out", "{out}", "--planners=@"),
    ("compare", "{data}", "--out", "{out}", "--planners", "frequent", "--against=@"),
    ("reproduce", "@", "{data}", "--out", "{out}"),
    ("data", "download", "@"),
    ("data", "download", "s3d", "{out}", "--address=@"),
    ("data", "download", "s3d", "{out}", "--sha256=@"),
    ("data", "simulate", "{data}", "{out}", "--like=@"),
    ("embed", "{data}", "--out", "{out}", "--layer=@"),
    ("extract", "{features}", "--out", "{out}", "--encoder=@"),
    ("@",),
    ("data", "@"),
)


def names() -> Iterator[Case]:
    """Names that nothing has, with letters that change a terminal or a format."""
    for call in NAMED:
        for name in NAMES:
            argv = tuple(part.replace("@", name) for part in call)
            wanted = "either" if "=@" not in call[-1] and name in ("", "--", "-h x") else "refused"
            wanted = "either" if name == "None" else wanted  # no value for options that have none
            yield Case(f"name in {' '.join(call)[:60]}: {name[:20]!a}", argv, wanted=wanted)


def queries() -> Iterator[Case]:
    """Options of `plan` that do not go together, or ask for what cannot be."""
    for extra in (
        ("--pin", "1=0", "--pin", "1=1"),
        ("--pin", "4=0"),
        ("--require", "0", "--forbid", "0"),
        ("--require", "0", "--require", "1", "--require", "2", "--require", "3"),
        ("--before", "0,0"),
        ("--pin", "1=0", "--pin", "2=0", "--no-repeats"),
        ("--forbid", "0", "--forbid", "1", "--forbid", "2", "--forbid", "3", "--task", "0"),
        ("--min-probability", "1.5"),
        ("--min-probability", "-0.1"),
        ("--top-k", "0"),
        ("--memory-mib", "0"),
        ("--tasks", "-1"),
        ("--start", "1"),
        ("--video", "v0"),
        ("--initial-image", "{a}"),
        ("--search", "beam", "--proposals", "3"),
        ("--device", "cuda:99"),
        ("--device", "meta"),
        ("--device", "cpu:7"),
        ("--unknown", "1"),
        ("extra",),
        ("--json=maybe",),
        ("--initial", "{a}"),
    ):
        either = extra[0] == "--initial" or extra[1:] == ("cpu:7",)
        yield Case(
            f"plan {' '.join(extra)}", (*PLAN, *extra), wanted="either" if either else "refused"
        )
    for start in ("-1", "3", "999999999999", str(2**63)):
        call = ("plan", "{run}", "--video", "v0", "--from-step", start)
        yield Case(f"plan --from-step {start}", call)


def consoles() -> Iterator[Case]:
    """Where results go to is full, closed or knows few letters."""
    calls = (
        ("data", "info", "{data}"),
        ("data", "info", "{data}", "--json"),
        (*PLAN,),
        (*PLAN, "--json"),
        ("data", "download"),
        ("--help",),
        ("train", "--help"),
        ("--version",),
    )
    for call in calls:
        title = " ".join(part for part in call if "{" not in part)
        for encoding in ("ascii", "cp1252", "utf-8"):
            yield Case(f"{encoding} console: {title}", call, wanted="answered", encoding=encoding)
        for target in ("/dev/full", "closed"):
            yield Case(f"stdout {target}: {title}", call, wanted="either", stdout=target)


ADDRESSES = (
    *("http://example.org/x", "ftp://example.org/x", "file:///etc/passwd", "https://", "x"),
    *("https://u:p@example.org/x", "https://exa mple.org/", "https://[::1", "https://a:99999999/"),
    *("data:text/plain,x", "https://\x1b[31m/", "//example.org/x", "HTTP://example.org/x"),
)


def downloads() -> Iterator[Case]:
    """Addresses that are refused before the network is asked."""
    for address in ADDRESSES:
        call = ("data", "download", "s3d", "{out}", "--address", address)
        yield Case(f"address {address!a}", call)


def runs() -> Iterator[Case]:
    """Entries of run.json and dataset.json of other types."""
    values: tuple[Any, ...] = (None, True, -1, 1.5, "3", [], {}, "\x1b[31m")
    for place, name, keys in (
        ("simple", "run.json", ("format_version", "method", "horizon", "seed", "config")),
        ("simple", "run.json", ("dataset", "finished", "preset", "selection", "versions")),
        ("data", "dataset.json", ("format_version", "name", "observation_dim", "hashes")),
    ):
        for key in keys:
            for value in values:
                harmless = (key, type(value)) in (
                    *(("name", str), ("preset", str), ("versions", dict), ("finished", bool)),
                    *(("seed", int), ("dataset", dict), ("seed", type(None))),
                    ("selection", type(None)),
                )
                call = ("evaluate", "{here}/simple", "--dataset", "{data}")
                call = call if place == "simple" else ("data", "info", "{here}/data")
                yield Case(
                    f"{name}: {key} = {value!a}",
                    call,
                    _with_entry(place, name, key, value),
                    wanted="either" if harmless else "refused",
                )


def _with_entry(part: str, name: str, key: str, value: Any) -> Callable[[Path], object]:
    def write(here: Path) -> None:
        _changed(part, name, None)(here)
        path = here / part / name
        content = json.loads(path.read_text())
        content[key] = value
        path.write_text(json.dumps(content))

    return write


def numbers_of_tensors() -> Iterator[Case]:
    """Tensors of a data set with odd numbers."""
    for title, value in (("NaN", np.nan), ("infinity", np.inf)):

        def write(here: Path, value: float = value) -> None:
            from safetensors.numpy import load_file, save_file

            _changed("data", "dataset.json", None)(here)
            path = here / "data" / "features.safetensors"
            tensors = load_file(path)
            tensors["start"][0, 0] = value
            save_file(tensors, path)

        yield Case(f"features of a data set: {title}", ("data", "info", "{here}/data"), write)


_PRESETS = {
    "wrong base": 'base = "nowhere"',
    "own base": 'base = "{here}/x.toml"',
    "base a number": "base = 5",
    "variant a number": "variant = 5",
    "variant data set a number": "[[variant]]\ndataset = 5",
    "section a number": "field = 5",
    "deep key": ".".join("a" * 5000) + " = 1",
    "deep list": "a = " + "[" * 50_000,
    "long number": "seed = " + "9" * 5000,
    "date": "[field]\nwidth = 2020-01-01",
    "escape": '"\\u001b[31m" = 1',
    "twice": "[field]\nwidth = 8\nwidth = 8",
    "infinite": "[field]\nmlp_ratio = inf",
    "name of preset": 'preset = "x"',
}


def presets() -> Iterator[Case]:
    """Presets that are TOML and make no sense."""
    for title, text in _PRESETS.items():

        def write(here: Path, text: str = text) -> None:
            raw(text.replace("{here}", str(here)))(here / "x.toml")

        call = (*TRAIN, *QUICK, "--preset", "{here}/x.toml")
        wanted = "either" if title in ("name of preset",) else "refused"
        yield Case(f"preset: {title}", call, write, wanted=wanted)


PARTS: tuple[Callable[[], Iterator[Case]], ...] = (
    *(options, absurd, settings, arrays, texts, tables, sources, paths, names, queries),
    *(consoles, downloads, runs, numbers_of_tensors, presets),
)


def all_cases() -> list[Case]:
    """The whole table."""
    return [case for part in PARTS for case in part()]
