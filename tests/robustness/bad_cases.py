"""The odd inputs: each call of the command line, and its expected outcome.

Every function in `PARTS` makes a part of the cases. Options are read from the application, so that
new ones are tried without a change here; a new command needs a line in `CALLS`. To try something
else, add a value to a tuple.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from robustness.bad_files import ARRAYS, PRESETS, TABLES, TEXTS, Maker, annotated
from robustness.bad_inputs import Case

TRAIN = ("train", "{data}", "--horizon", "3", "--out", "{out}", "--method", "frequent")
TRAIN = (*TRAIN, "--set", "classifier_training.optimiser.epochs=1")
PLAN = ("plan", "{run}", "--initial", "{a}", "--goal", "{b}")
BATCH = ("plan-batch", "{simple}", "{data}", "--out", "{here}/plans.jsonl")
CUSTOM = ("data", "prepare", "custom", "{table}", "{out}", "--features", "{features}")
COMPARE = ("compare", "{data}", "--planners", "frequent", "--out", "{out}", "--no-published")
COMPARE = (*COMPARE, "--horizons", "3", "--seeds", "1", *TRAIN[-2:])
ANNOTATED = ("--annotations", "{here}/none", "--out", "{out}", "--features", "{features}")

# One call of each command; long ones are refused for another reason.
CALLS: tuple[tuple[str, ...], ...] = (
    *(TRAIN, PLAN, BATCH, CUSTOM, COMPARE),
    *(("data", "prepare", name, *ANNOTATED) for name in ("crosstask", "coin", "niv")),
    ("data", "prepare", "captaincook4d", "{here}/none", "{out}", "--features", "{features}"),
    ("data", "info", "{data}"),
    ("data", "simulate", "{data}", "{out}"),
    ("data", "steps", "{table}", "--out", "{here}/steps.csv"),
    ("data", "world", "{out}"),
    ("config", "show", "small"),
    ("new-planner", "Bad", "--out", "{out}"),
    ("evaluate", "{run}", "--sample", "2"),
    ("cross-validate", "{data}", "--horizon", "none"),
    ("finetune", "{run}", "{here}/none", "--out", "{out}"),
    ("report", "{simple}", "--json"),
    ("reproduce", "none", "{data}", "--out", "{out}"),
    ("export", "{simple}", "{here}/run.zip"),
    ("import-checkpoint", "{a}", "--out", "{out}"),
    ("embed", "{data}", "--out", "{out}", "--encoder", "{a}"),
    ("extract", "{features}", "--out", "{out}"),
    ("quickstart", "--out", "{out}", "--seed", "none"),
    ("serve", "{here}/none"),
    ("mcp", "{here}/none"),
    ("token", "add", "{here}/tokens.json", "bench"),
    ("token", "remove", "{here}/tokens.json", "bench"),
    ("token", "list", "{here}/tokens.json"),
)

NO_WHOLE_NUMBERS = (
    *("3.7", "3.0", "1e2", "true", "nan", "inf", "-inf", "", " ", "abc", "0x10", "--3", "3 4"),
    *("\u0663", "\u00bd", "3,4", "9" * 5000, "1" + "0" * 30),
)
NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "", " ", "abc", "1,5", "0x10", "9" * 5000, "true")
NAMES = (
    *("", " ", "nobody", "\x1b]0;title\x07", "a\nb", "a\x00b", "sur\udcff", "[bold]x[/bold]"),
    *("{x}", "%s%n", "../../x", "a" * 100_000, "\u202eabc", "\u0661", "nan", "--", "-h x"),
)
PATHS = (
    *("", " ", "{here}", "/dev/null", "/dev/zero", "{here}/pipe", "{here}/loop", "/dev/full"),
    *("{here}/" + "a" * 300, "{here}/" + "a/" * 3000, "{here}/nul\x00byte", "{here}/new\nline"),
    *("{here}/esc\x1b[31mred", "{here}/sur\udcffrogate", "~nobody-of-this-name/x"),
    *("{here}/nowhere", "/proc/self/mem", "-", "{here}/text/below", "{here}/\u202eright"),
    "{here}/" + "é" * 130,
)
EACH = 5  # values for each option; together the options see all of them


def options() -> Iterator[Case]:
    """Every option and positional argument, with values that it cannot or hardly have."""
    from cefito.cli import build_app

    values = {"whole": NO_WHOLE_NUMBERS, "real": NO_NUMBERS, "path": PATHS, "text": NAMES}
    rounds = {kind: cycle(several) for kind, several in values.items()}
    app, words = build_app(), ("data", "prepare", "config", "token")
    for call in CALLS:
        count = next(n for n, word in enumerate(call, 1) if word not in words)
        positional = count
        for argument in app.parse_commands(call[:count])[1][-1].assemble_argument_collection():
            kind = _kind(argument.hint)
            name = next((name for name in argument.names if name.startswith("--")), "")
            if kind is None or (name == "" and positional >= len(call)):
                continue
            for value in islice(rounds[kind], EACH):
                if name == "--token-file" and "pipe" in value:
                    continue  # a pipe is a good place for a secret, and a reader waits for it
                said = value if len(value) < 40 else f"{value[:12]}… of {len(value)}"
                argv = _replaced(call, name, positional, value)
                title = f"{' '.join(call[:count])} {name or positional}={said!a}"
                time = name in ("--start", "--end") and value == "1,5"
                wanted = "refused" if kind in ("whole", "real") and not time else "either"
                yield Case(title, argv, _odd_places if kind == "path" else None, wanted)
            positional += not name


def _kind(hint: Any) -> str | None:
    """The values that an argument takes; None for flags and groups of options."""
    shown = str(getattr(hint, "__name__", "")) + str(hint)
    for mark, kind in (("bool", None), ("int", "whole"), ("float", "real"), ("Path", "path")):
        if mark in shown and "Literal" not in shown:
            return kind
    return "text" if any(mark in shown for mark in ("str", "Literal")) else None


def _replaced(call: tuple[str, ...], name: str, place: int, value: str) -> tuple[str, ...]:
    """A call with another value of an option, or of the positional argument at a place."""
    if not name:
        return (*call[:place], value, *call[place + 1 :])
    if name in call and name != "--set":
        at = call.index(name)
        call = (*call[:at], *call[at + 2 :])
    return (*call, f"{name}={value}")


def _odd_places(here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "loop").symlink_to("loop")
    (here / "text").write_text("text")


HUGE = 10**11
ABSURD_SETTINGS = (
    *("field.width=1000000", f"field.width={10**18}", f"field.depth={10**9}"),
    *("field.mlp_ratio=1e300", "field.mlp_ratio=1e9", f"field.action_dim={HUGE}"),
    f"chain.hidden={HUGE}",
    *(f"chain.width={HUGE}", f"chain.members={10**9}", f"training.negatives.count={10**12}"),
    f"training.optimiser.epochs={10**22}",
    *(f"viterbi: viterbi.hidden={HUGE}", f"viterbi: viterbi.name_width={HUGE}"),
    *(f"pdpp: pdpp.widths=[{HUGE}, 8, 8]", f"pdpp: pdpp.steps={HUGE}"),
    *(f"mtid: mtid.widths=[{HUGE}, 8, 8]", f"mtid: mtid.layers={10**9}"),
    f"mtid: mtid.encodings={10**9}",
    *(f"kepp: kepp.plan.widths=[{HUGE}, 8, 8]", f"kepp: kepp.walks={HUGE}"),
    *(f"kepp: kepp.folds={HUGE}", f"p3iv: p3iv.width={HUGE}", "p3iv: p3iv.rows=7"),
    *(f"p3iv: p3iv.samples={HUGE}", f"schema: schema_model.width={HUGE}"),
    *(f"planllm: planllm.query_layers={HUGE}", f"pkg: pkg.network.hidden=[{HUGE}, 8]"),
)
ABSURD_OPTIONS = (
    (TRAIN, "--horizon", "1000000000"),
    (TRAIN, "--seed", "-1"),
    (TRAIN, "--seed", str(2**63)),
    (PLAN, "--top-k", "1000000000000"),
    (PLAN, "--memory-mib", "1e300"),
    *((PLAN, "--task", value) for value in ("999999999", "-1")),
    *((PLAN, "--pin", value) for value in ("0=1", "1=99999", "9" * 5000 + "=1")),
    (PLAN, "--require", "9" * 5000),
    (PLAN, "--before", "1"),
    *((PLAN, "--device", value) for value in ("cuda:99", "meta", "cpu:7")),
    *((("evaluate", "{simple}"), "--sample", value) for value in ("0", "-3")),
    *((COMPARE, "--seeds", value) for value in ("1000000000", "0")),
    *((COMPARE, "--horizons", value) for value in ("3,1000000000", "9" * 5000, "²", "3,3")),
    (COMPARE, "--workers", "1000000"),
    (COMPARE, "--planners", ","),
    *((CUSTOM, "--seconds", value) for value in ("0", "1000000000000")),
    (CUSTOM, "--workers", "1000000000"),
    (("data", "world", "{out}"), "--seed", "-1"),
)


def absurd() -> Iterator[Case]:
    """Numbers of sizes that cannot be meant."""
    for setting in ABSURD_SETTINGS:
        method, _, entry = setting.rpartition(": ")
        call = (*TRAIN[:6], "--method", method or "cefito", "--set", entry)
        yield Case(f"absurd: {setting}", call)
    for call, name, value in ABSURD_OPTIONS:
        either = name in ("--memory-mib", "--top-k", "--workers") or value == "cpu:7"
        words = " ".join(call[: 2 if call[0] == "data" else 1])
        title = f"absurd: {words} {name}={value[:20]}"
        yield Case(title, _replaced(call, name, 0, value), wanted="either" if either else "refused")


NO_WHOLE_SETTINGS = ("true", "3.7", "3.0", "nan", "-1", "'3'", "[3]", "9" * 5000, "{a=1}")
NO_TRUTHS = ("1", "0", "'yes'", "2", "nan", "[]")
NO_REAL_SETTINGS = ("true", "nan", "inf", "-inf", "1e999", "'0.5'", "[]", "9" * 5000)
NO_ENTRIES = (
    *("", "=", "=1", "a", "field", "field=1", "field.=1", ".=1", "field..width=8", "preset=1"),
    *("unknown.key=1", "field.width=8\nfield.depth=1", "a" * 100_000 + "=1"),
    *(".".join("a" * 20_000) + "=1", "field.width=" + "[" * 50_000),
)


def settings() -> Iterator[Case]:
    """Every setting of every method, with values of other kinds; malformed entries."""
    from cefito.planners.methods import METHODS

    found: dict[str, tuple[str, Any]] = {}

    def walk(values: dict[str, Any], above: str, method: str) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                walk(value, f"{above}{name}.", method)
            elif not isinstance(value, str | list | tuple):
                found.setdefault(above + name, (method, value))

    for method, entry in METHODS.items():
        walk(entry.settings().model_dump(mode="json"), "", method)
    for number, (key, (method, value)) in enumerate(found.items()):
        table = NO_REAL_SETTINGS if isinstance(value, float) else NO_WHOLE_SETTINGS
        table = NO_TRUTHS if isinstance(value, bool) else table
        for odd in table[number % 4 :: 4]:
            if odd != "-1":  # some settings have a meaning for it
                call = (*TRAIN[:6], "--method", method, "--set", f"{key}={odd}")
                yield Case(f"--set {key}={odd[:9]}", call)
    for odd in NO_ENTRIES:
        yield Case(f"--set {odd[:20]!a} of {len(odd)}", (*TRAIN[:6], "--set", odd))


def arrays() -> Iterator[Case]:
    """Arrays of every odd kind, wherever an array is read."""
    for title, make in ARRAYS.items():
        one = _file("x.npy", make)
        yield Case(f"plan --initial: {title}", (*PLAN[:3], "{here}/x.npy", *PLAN[4:]), one)
        call = ("embed", "{data}", "--out", "{out}", "--encoder", "{here}/x.npy")
        yield Case(f"embed: {title}", call, one)
        call = ("data", "prepare", "custom", "{here}/t.csv", "{out}", "--features", "{here}/f")
        either = title == "1e30"
        yield Case(f"features: {title}", call, _video(make), "either" if either else "refused")
        call = ("data", "prepare", "custom", "{here}/s", "{out}")
        yield Case(f"features.npz: {title}", call, _file("s", annotated(features=make)))
        call = ("import-checkpoint", "{here}/x.pth", "--out", "{out}")
        call = (*call, "--taxonomy", "{data}/taxonomy.json", "--action-text", "{here}/x.npy")
        yield Case(f"import-checkpoint: {title}", call, _all(one, _file("x.pth", make)))


def _file(name: str, make: Maker) -> Maker:
    return lambda here: make(here / name)


def _all(*makers: Maker) -> Maker:
    return lambda here: [make(here) for make in makers]


def _video(make: Maker) -> Maker:
    def write(here: Path) -> None:
        (here / "f").mkdir()
        make(here / "f" / "a.npy")
        (here / "t.csv").write_text("video,task,step,start,end\na,tea,boil,0,1\na,tea,pour,2,3\n")

    return write


def _changed(part: str, name: str, make: Maker) -> Maker:
    """A copy of a part of the world with one file replaced."""

    def write(here: Path) -> None:
        shutil.copytree(here.parents[1] / "world" / part, here / part)
        (here / part / name).unlink(missing_ok=True)
        make(here / part / name)

    return write


OF_DATA = ("dataset.json", "taxonomy.json", "videos.jsonl", "features.safetensors")
OF_RUN = ("run.json", "taxonomy.json", "planner.json", "field.safetensors", "chain.safetensors")


def texts() -> Iterator[Case]:
    """Files that are not JSON, TOML or tensors, in the place of each that is read."""
    for title, make in TEXTS.items():
        gone = title.startswith("link")
        for name in OF_DATA:
            # without dataset.json it is a folder of annotations, which are described too
            wanted = "either" if name == "dataset.json" and gone else "refused"
            call = ("data", "info", "{here}/data")
            yield Case(f"{name} of a data set: {title}", call, _changed("data", name, make), wanted)
        for name in OF_RUN:
            wanted = "either" if gone or name == "planner.json" else "refused"
            call = ("plan", "{here}/run", *PLAN[2:])
            yield Case(f"{name} of a run: {title}", call, _changed("run", name, make), wanted)
        call = (*BATCH[:2], "{here}/x.parquet", *BATCH[3:])
        yield Case(f"queries: {title}", call, _file("x.parquet", make))
        prepare = ("--annotations", "{here}/x.json", "--out", "{out}", "--features", "{features}")
        for source in ("crosstask", "coin"):
            call = ("data", "prepare", source, *prepare)
            yield Case(f"{source}: {title}", call, _file("x.json", make))
    presets = {**{f"text: {title}": make for title, make in TEXTS.items()}, **PRESETS}
    for title, make in presets.items():
        either = title in ("text: empty", "text: blank", "name of preset")
        # sections of other methods are ignored, so one that reads "field" must refuse it
        call = (*(TRAIN if either else (*TRAIN[:7], "cefito")), "--preset", "{here}/x.toml")
        wanted = "either" if either else "refused"
        yield Case(f"preset: {title}", call, _file("x.toml", make), wanted)


def tables() -> Iterator[Case]:
    """Tables of steps."""
    either = ("name with", "name of", "huge time", "long field")
    both = {**TABLES, **{f"text: {title}": make for title, make in TEXTS.items()}}
    for title, make in both.items():
        for suffix in ("csv", "parquet") if title.startswith("text") else ("csv",):
            call = ("data", "prepare", "custom", "{here}/x." + suffix, "{out}", *CUSTOM[-2:])
            wanted = "either" if title.startswith(either) else "refused"
            yield Case(f"{suffix}: {title}", call, _file(f"x.{suffix}", make), wanted)


PARTS: tuple[Callable[[], Iterator[Case]], ...] = (
    *(options, absurd, settings, arrays, texts, tables),
)


def all_cases() -> list[Case]:
    """All odd inputs."""
    return [case for part in PARTS for case in part()]
