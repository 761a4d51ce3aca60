"""The documentation against the program: commands, options, settings, names in Python, links.

What is code in a page (fenced blocks and spans between backticks) is read; a page that says
`cefito plan --nonsense` fails here, and so does a list that lacks what the program has.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import cache
from inspect import signature
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from cyclopts import CycloptsError

import cefito
from cefito.batch.sources import Columns
from cefito.cli import build_app, main
from cefito.cli.compare import StudyOptions
from cefito.cli.console import VOLUMES, split_volume
from cefito.cli.options import Settings
from cefito.cli.share import report
from cefito.cli.train import train
from cefito.data import open_dataset
from cefito.data.readers import frame_folder
from cefito.encoders.video import ENCODERS
from cefito.errors import ConfigError
from cefito.evaluation.metrics import METRICS, metric_heads
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS
from cefito.evaluation.records import WindowPlans
from cefito.inference import next_films
from cefito.inference.following import _LONGER, _SURE_END
from cefito.inference.plan_formats import PlanRow
from cefito.inference.whole_videos import Reading
from cefito.planners.cefito.hypotheses import _PLAUSIBLE
from cefito.planners.methods import METHODS, load_config, run_settings
from cefito.progress import silent
from cefito.recognition import segmental, stream
from cefito.recognition.methods import RECOGNISERS
from cefito.recognition.settings import MSTCNConfig, OnlineConfig, RecogniserConfig
from cefito.report.frames import TOTAL
from cefito.runs.options import TrainOptions
from cefito.runs.settings_export import settings_values
from cefito.runs.train import train_run
from cefito.search.constraints import Constraints
from cefito.search.guided import GuidedSearch
from cefito.search.settings import SEARCHES
from cefito.settings import flattened
from cefito.study import costs
from cefito.study.recognition import recogniser_rows
from cefito.study.rendering import markdown
from cefito.study.results import Results
from cefito.study.tables import result_tables
from cefito.study.trials import ROWS
from cefito.study.verifiers import VERIFIERS
from cefito.tracks.formats import WRITERS
from cefito.tracks.writing import format_of
from cefito.verification import findings
from cefito.verification.settings import VerifierConfig
from tiny_runs import TINY_RUN

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"--[a-z][\w-]*")
EVERYWHERE = {"--help", *VOLUMES}
OPEN = METHODS, RECOGNISERS, SEARCHES, METRICS, RECOGNISER_METRICS, ENCODERS
GROUPS = [registry.group.removeprefix("cefito.") for registry in OPEN]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str = "") -> list[str]:
    """Fenced blocks, of one language or of none."""
    text = page.read_text(encoding="utf-8")
    wanted = (language,) if language else ("", "sh", "bash", "console")
    return [found[2] for found in FENCED.finditer(text) if found[1] in wanted]


def spans(page: Path) -> list[str]:
    """What stands between backticks outside fenced blocks, on one line each."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(found.split()) for found in SPAN.findall(text)]


def words(line: str) -> list[str]:
    """A line of a shell as words; comments are left out."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def lines_of_shell(page: Path) -> list[str]:
    """The lines of the blocks of a page that are a shell's, or of no named language."""
    return [line for block in blocks(page) for line in block.replace("\\\n", " ").splitlines()]


def calls(page: Path, program: str, *, whole: bool = False) -> list[list[str]]:
    """The words behind a program's name, one list a call; without those in sentences if `whole`."""
    found = []
    for line in [*lines_of_shell(page), *([] if whole else spans(page))]:
        for part in re.split(r"&&|;|\||>", line):
            given = [
                word for word in words(part) if word != "$" and not re.match(r"[A-Z_]+=", word)
            ]
            if given and Path(given[0]).name == program:
                found.append(given[1:])
    return found


@cache
def options(*chain: str) -> frozenset[str]:
    """The options of a command."""
    _, apps, _ = build_app().parse_commands(list(chain))
    if apps[-1].default_command is None:
        return frozenset({"--version", "--install-completion"} if not chain else ())
    arguments = apps[-1].assemble_argument_collection()
    return frozenset(name for argument in arguments for name in argument.names if name[:2] == "--")


@cache
def commands() -> tuple[tuple[str, ...], ...]:
    """Every command, by the words that call it."""

    def below(app, chain):
        yield chain
        for name in app:
            if not name.startswith("-"):
                yield from below(app[name], (*chain, name))

    return tuple(below(build_app(), ()))


@cache
def options_of_benchmarks() -> frozenset[str]:
    scripts = (ROOT / "benchmarks").glob("*.py")
    return frozenset(name for script in scripts for name in options_of_script(script))


def options_of_script(script: Path) -> set[str]:
    """The options that a script of the benchmarks takes."""
    return {text[1:-1] for text in re.findall(r'"--[a-z][\w-]*"', script.read_text("utf-8"))}


def problems(given: list[str]) -> list[str]:
    """What is wrong with a call of cefito."""
    chains = (tuple(given[:length]) for length in range(len(given), -1, -1))
    chain = next(chain for chain in chains if chain in commands())
    call = " ".join(["cefito", *given])
    rest = given[len(chain) :]
    wrong = []
    group = any(other[:-1] == chain for other in commands() if other)
    if group and rest and not rest[0].startswith(("-", "…")):
        wrong.append(f"`{call}`: there is no command {rest[0]!r}")
    for word in rest:
        option = word.partition("=")[0]
        if OPTION.fullmatch(option) and option not in options(*chain) | EVERYWHERE:
            wrong.append(f"`{call}`: {' '.join(chain) or 'cefito'} has no option {option}")
    return wrong


def for_every_page(check):
    """Make one test of a check of a page."""

    def test():
        failures = {}
        for page in PAGES:
            try:
                check(page)
            except AssertionError as problem:
                failures[name_of(page)] = str(problem)
        assert failures == {}

    test.__doc__ = check.__doc__
    return test


def test_every_command_takes_the_gpu_if_there_is_one():
    """As docs/gpu.md says of `--device`."""
    for chain in commands():
        if "--device" in options(*chain):
            _, apps, _ = build_app().parse_commands(list(chain))
            (device,) = [
                argument.field_info.default
                for argument in apps[-1].assemble_argument_collection()
                if "--device" in argument.names
            ]
            assert device == "auto", chain


def test_help_lists_every_option(capsys):
    for chain in commands():
        assert main([*chain, "--help"]) == 0
        said = set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
        assert options(*chain) <= said | {"--install-completion"}, chain


def test_help_of_options_mentions_none_that_the_command_lacks():
    for chain in commands():
        _, apps, _ = build_app().parse_commands(list(chain))
        with suppress(ValueError):  # a group of commands has no options
            for argument in apps[-1].assemble_argument_collection():
                said = re.findall(r"--[a-z][a-z-]*", str(argument.parameter.help))
                assert {*said} <= {*options(*chain)}, (chain, argument.name)


@for_every_page
def test_commands_and_their_options_exist(page):
    assert [line for given in calls(page, "cefito") for line in problems(given)] == []


def refusal(given: list[str]) -> str:
    """The parser's error for a call, without making it; empty if it takes it."""
    rest, _ = split_volume(given)
    app = build_app()
    try:
        app.parse_args(rest, print_error=False, exit_on_error=False)
    except CycloptsError as problem:
        return f"`cefito {' '.join(given)}`: {' '.join(str(problem).split())}"
    return ""


@for_every_page
def test_calls_in_blocks_are_taken_by_the_command_line(page):
    assert [line for given in calls(page, "cefito", whole=True) if (line := refusal(given))] == []


@for_every_page
def test_targets_of_make_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    given = {words[0] for words in calls(page, "make") if words and words[0].islower()}
    assert given <= targets


@for_every_page
def test_extras_exist(page):
    """What `pip install` is given in brackets."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"(?:cefito|\.)\[([\w,]+)\]", page.read_text(encoding="utf-8"))
    extras = {extra for names in named for extra in names.split(",")}
    assert extras <= set(project["optional-dependencies"])


@for_every_page
def test_blocks_can_be_read(page):
    for language, read in (("toml", tomllib.loads), ("json", json.loads), ("python", ast.parse)):
        for text in blocks(page, language):
            read(text)


@for_every_page
def test_options_named_alone_exist(page):
    known = EVERYWHERE.union(*(options(*chain) for chain in commands())) | options_of_benchmarks()
    named = {
        option for span in spans(page) if span.startswith("--") for option in OPTION.findall(span)
    }
    assert named <= known, f"no command has {sorted(named - known)}"


@for_every_page
def test_settings_exist(page):
    """What `--set` is given is a setting, and a value that it can have."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for entry in re.findall(r"--set[ \n=]+('[^']+'|[^\s`]+)", text):
        key, sign, value = entry.strip("'").partition("=")
        if sign and key != "KEY":
            load_config("paper", overrides={key: value}, shared=True)


@for_every_page
def test_rows_and_methods_exist(page):
    if page.name in ("own-planners.md", "measured.md"):  # to be written; of earlier versions
        return
    names = {"planners": {*ROWS, "all"}, "recognisers": recogniser_rows(), "method": METHODS}
    names |= {"verifiers": VERIFIERS}
    given = rf"--({'|'.join(names)})[ =]([\w,+-]+)"
    for option, value in re.findall(given, page.read_text(encoding="utf-8")):
        rows = {row.removesuffix("-true-task") for row in value.split(",")} - {"", "NAME"}
        assert rows <= {*names[option]}, f"--{option} {value}"


@for_every_page
def test_scripts_and_their_options_exist(page):
    for given in [*calls(page, "python"), *calls(page, "python3")]:
        if given and given[0].endswith(".py"):
            script = ROOT / given[0]
            assert script.is_file(), f"{given[0]} is named, but not there"
            named = {
                option for word in given[1:] for option in OPTION.findall(word.partition("=")[0])
            }
            assert named <= options_of_script(script), f"{given[0]}: {sorted(named)}"


def resolve(dotted: str) -> None:
    """See that a dotted name below cefito exists; AttributeError or ImportError otherwise."""
    parts = dotted.split(".")
    thing = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(thing, part):
            thing = importlib.import_module(".".join(parts[:number]))
        else:
            thing = getattr(thing, part)


def names_in_python(code: str) -> set[str]:
    """Dotted names below cefito that a piece of code imports or uses."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cefito":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "cefito"}
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("cefito."):
            found |= set(re.findall(r"^cefito(?:\.\w+)+$", ast.unparse(node)))
    return found


@for_every_page
def test_python_names_exist(page):
    names = {name for code in blocks(page, "python") for name in names_in_python(code)}
    for span in spans(page):
        names |= {name.rstrip(".") for name in re.findall(r"(?<![\w/.-])cefito(?:\.\w+)+", span)}
    missing = []
    for name in sorted(names):
        try:
            resolve(name)
        except (ImportError, AttributeError) as problem:
            missing.append(f"{name}: {problem}")
    assert not missing


@for_every_page
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    local = [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


def first_cells(page: str, head: str) -> list[str]:
    """What stands between backticks in the first column of tables whose first head is `head`."""
    _, *tables = (ROOT / "docs" / page).read_text(encoding="utf-8").split(f"\n| {head} |")
    rows = (table.partition("\n\n")[0].splitlines()[1:] for table in tables)
    return [cell for lines in rows for line in lines for cell in SPAN.findall(line.split("|")[1])]


@pytest.mark.parametrize(
    ("page", "head", "expected"),
    [
        ("searches.md", "search", SEARCHES),
        ("compare.md", "name", ROWS),
        ("recognise.md", "row", recogniser_rows()),
        ("plan-batch.md", "column", [*Columns.model_fields, *PlanRow.model_fields]),
        ("searches.md", "`Constraints`", [field.name for field in dataclasses.fields(Constraints)]),
        ("evaluate.md", "name", WindowPlans.model_fields),
        ("own-planners.md", "group, after `cefito.`", GROUPS),
    ],
)
def test_lists_are_whole(page, head, expected):
    listed = [cell.partition("=")[0] for cell in first_cells(page, head)]
    assert sorted(listed) == sorted(expected)
    for command in ("quickstart", "verify"):
        assert options("data", "steps") - options(command) == {"--format"}  # of labels


def test_the_table_of_formats_is_that_of_the_program(tmp_path):
    """Endings, what needs --format, what a file holds of one video, and what counts frames."""
    page, listed = (ROOT / "docs" / "recognise.md").read_text(encoding="utf-8"), []
    for row in page.partition("\n| ending |")[2].partition("\n\n")[0].splitlines()[2:]:
        ending, key, content = (cell.strip() for cell in row.strip("|").split(" | "))
        writer = WRITERS[key.strip("`")]
        listed.append(writer.key)
        assert SPAN.findall(ending)[0] == writer.ending
        assert ("one video a file" in content) == writer.single
        chosen = format_of(tmp_path / f"x{writer.ending}", None, 1) is writer
        assert ending.partition(" with ")[2] == ("" if chosen else f"`--format {writer.key}`")
    assert sorted(listed) == sorted(WRITERS)
    before, counted, _ = page.partition(" count frames and need `--frame-rate`")
    named = SPAN.findall(before.rpartition("\n")[2])
    assert counted
    assert {*named} == {key for key, writer in WRITERS.items() if writer.frames}


def test_the_table_of_recognisers_is_that_of_the_program():
    """Method and settings of each row; those of several rows stand in the last column."""
    page = (ROOT / "docs" / "recognise.md").read_text(encoding="utf-8")
    for line in page.partition("\n| row |")[2].partition("\n\n")[0].splitlines()[2:]:
        names, (method, *shared), what = (SPAN.findall(c) for c in line.strip("|").split(" | "))
        own = [span for span in what if "=" in span]
        for place, name in enumerate(names):
            listed = dict(span.split("=") for span in [*shared, *own[place : place + 1]])
            settings = RECOGNISERS[method].rows[name].settings
            assert {key: str(value).lower() for key, value in settings.items()} == listed
    assert load_config("small", method="any-length").parts["recogniser"].method == "segmental"
    taken = page.partition("takes what the command line takes: ")[2].partition(". A `cefito")[0]
    taken = {name for name in SPAN.findall(taken) if name.isidentifier()}
    given = signature(cefito.recognise).parameters.keys() | Reading.__annotations__
    assert taken <= given
    assert given - taken == {
        "run",
        "source",
        "video",
        "reading",
        "device",
        "camera",
        "failed",
        "progress",
    }


def test_numbers_of_the_pages_are_those_of_the_program():
    for page, sentence in (
        ("recognise", "three stretches of up to {cefito.inference.next_films._STRETCH:g} s"),
        ("your-own-data", "5 % of the labels plus {cefito.data.readers.frame_folder._SLACK}"),
        ("serve", "more than {cefito.recognition.stream.LOST:,} and ten for each row sent"),
        ("compare", "for eight steps, until these networks make a fifth of the training"),
        ("compare", "an epoch on at most {cefito.study.costs.WINDOWS} windows"),
        ("compare", "plan {cefito.study.costs._QUERIES} queries"),
        ("compare", "--planners {cefito.cli.compare._OF_HORIZONS} --horizons 3,4 --seeds 5"),
        ("gpu", "{cefito.planners.network.WORTH_A_PROCESS:,} examples or more in all epochs"),
        ("compare", "(by default `{cefito.cli.compare._OF_LENGTHS}`, which train quickly)"),
        ("compare", "more than {cefito.study.study.Study.costly:,} candidates on average"),
        ("compare", "over {cefito.evaluation.statistics._BINS} bins"),
        ("plan-batch", "Shards of {cefito.batch.batch._SHARD} queries"),
        ("plan-batch", "in groups of {cefito.batch.planning.PIECE},"),
        ("verify", "less than {cefito.recognition.held_out._LEAST_RATIO:.0%} of the 5th"),
        ("verify", "median is below {cefito.recognition.held_out._LEAST_RATIO:.0%} of their 5th"),
        ("verify", "less than {cefito.verification.correction._SLIP:.0%} of its usual length"),
        ("verify", "fewer than {cefito.recognition.trials._ENOUGH:.0%} of either kind are seen"),
        ("verify", "(from {cefito.verification.findings.LEAST:.0%} on, and at most ten points"),
        ("verify", "A track has at most {cefito.serve.whole_videos._MOST_STEPS:,} steps"),
        ("verify", "Of tasks with more than {cefito.verification.order.MOST} steps"),
        ("recognise", "another one ({cefito.inference.recordings._CLEAR:.0%}) is named"),
        ("searches", "keep the {cefito.search.screening._KEPT:,} best"),
        ("searches", "a width of {cefito.field.fields._WIDE} or more"),
        ("searches", "the chain's {cefito.planners.cefito.fit.CANDIDATES} likeliest sequences of"),
        ("searches", "less than {cefito.inference.contradictions.UNLIKELY:.0%} together"),
        ("planners", "names are cut to {cefito.planners.planllm.planner._NAME_TOKENS} tokens"),
        ("planners", "captions to {cefito.planners.planllm.planner._CAPTION_TOKENS}."),
        ("recognise", "within {cefito.inference.proposals.TOLERANCE:g} s"),
        ("verify", "its rows for that, at most {cefito.recognition.stream.FILM:,}, of"),
        ("recognise", "the edit score was below {cefito.recognition.scores._ENOUGH:g}"),
        ("recognise", "With fewer than {cefito.data.folds.FEW_VIDEOS} videos"),
        ("recognise", "at most {cefito.serve.whole_videos.MOST_VIDEO_ROWS:,} rows"),
        ("your-own-data", "of fewer than {cefito.data.folds.FEW_VIDEOS} videos, all train"),
        ("recognise", "the findings (from {cefito.inference.following.FINDING:.0%} on by default"),
        ("recognise", "by default; `verify` from {cefito.verification.findings.LEAST:.0%} on)"),
        ("report", "with fewer than {cefito.data.folds.FEW_VIDEOS} labelled films"),
        ("your-own-data", "training on fewer than {cefito.data.windows.FEW_VIDEOS}, it warns"),
        ("your-own-data", "otherwise {cefito.data.source.TEST_SHARE:.0%} of the videos"),
        ("your-own-data", "{cefito.data.windows.HELD_OUT_SHARE:.0%} of the training videos are"),
    ):
        for name in re.findall(r"{(cefito[\w.]+)", sentence):
            resolve(name)  # imports it
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        told = re.sub(r"(\d)%", r"\1 %", sentence.format(cefito=cefito))
        assert told in " ".join(text.split())
    assert (next_films._STRETCHES, stream.LOST_MORE, frame_folder._SPREAD) == (3, 10, 0.05)
    assert (costs._STEPS, costs._SHARE) == (8, 0.2)  # eight steps, a fifth
    assert (findings._AS_SURE, segmental._MOST_TRIED) == (0.1, 30)
    gallery = signature(report).parameters["queries"].default
    assert (gallery, TOTAL, StudyOptions.seeds, StudyOptions.preset) == (300, 3e6, 5, "small")
    assert StudyOptions.selection == "held-out"
    assert signature(train).parameters["preset"].default == "small"
    assert (TrainOptions.progress, TrainOptions.keep_checkpoints) == (silent, False)
    for command in ("train", "finetune", "compare", "reproduce"):
        assert "--track" in options(command)
    assert (GuidedSearch().budget_gflop, np.exp(_PLAUSIBLE)) == (35, pytest.approx(0.001))
    scores = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    heads = re.findall(r"^\| ([^|]+) \| `(\w+)` \|", scores, re.MULTILINE)
    assert [(name, head) for head, name in heads[:-1]] == [*metric_heads().items()]
    assert heads[-1][1] == [*METRICS][-1]
    following, judging = RecogniserConfig(), VerifierConfig()
    assert (MSTCNConfig().epochs, OnlineConfig().units) == (100, 128)
    assert (OnlineConfig().sure, OnlineConfig().shortest) == (0.4, 1)
    assert (following.drawn, judging.unsure, judging.mistakes, _SURE_END) == (64, 0.2, 1, 2)
    assert (judging.fewest_errors, judging.online, following.directions) == (20, False, 300)
    assert (following.lag, following.sure_step, following.shortest_step) == (30, 0.2, 0.4)
    assert round(1 / (_LONGER - 1)) == 20  # "once the film is a twentieth longer"
    small = flattened(settings_values("small"))
    units, members = small["chain.hidden"], small["chain.members"]
    page = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    assert f"networks with different seeds are averaged (`small`: {members})" in page
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"The trained chain has {units:,} units after" in page
    assert round(stream.FILM * following.directions * 4e-6) == 4  # MB of an hour, in operate.md
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for_tests = " ".join(project["optional-dependencies"]["test"])
    assert "schemathesis" in for_tests  # which attack_service.py needs, says serve.md
    least = project["requires-python"].removeprefix(">=")
    shared = {"cefito+chain", "any-length", "pkg-beam"}  # with another method of the list
    methods = METHODS.keys() - shared - {"nearest", "frequent"}
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    (named,) = re.findall(r"for eleven methods\*\*: (.*?) are trained, or asked", readme)
    named = {re.sub(r"the |\[|s\]\(.*", "", name) for name in re.split(", | and ", named)}
    assert named == {METHODS[name].title.removesuffix(", exact") for name in methods}
    assert len(named) == 11
    others = named & {one.title.removesuffix(", exact") for one in METHODS.values() if one.paper}
    page = (ROOT / "docs" / "planners.md").read_text(encoding="utf-8")
    heads = {
        name for head in re.findall("^## (.*)", page, re.M) for name in re.split("[:, ]+", head)
    }
    assert others - {"CEFITO"} <= heads
    assert f"You need Python {least} or newer." in readme
    assert readme.endswith(f"Licence: {project['license']}.")
    further = [f"`{name}`" for name, method in METHODS.items() if method.abilities.finetuning]
    *first, last = further
    own_data = (ROOT / "docs" / "your-own-data.md").read_text(encoding="utf-8")
    assert f"Runs of {', '.join(first)} and {last} (`--steps`) can be finetuned." in own_data


def test_precisions_of_presets():
    """As docs/gpu.md lists them."""
    own = {"released": {"training", "classifier_training"}, "paper": set()}
    for preset in ("paper", "small", "released"):
        for key, value in flattened(settings_values(preset)).items():
            if key.endswith(".precision"):
                part = key.removesuffix(".precision")
                exact = preset == "small" or part in {"recogniser"} | own[preset]
                assert value == ("float32" if exact else "auto"), (preset, key)


def test_settings_of_presets_that_searches_and_planners_name():
    keys = ("schema_model.descriptions", "planllm.captions", "p3iv.samples", "p3iv.rows")
    for preset, search, expected in (
        ("small", "auto", ["observations", 0.003, 100, 1]),
        ("paper", "exhaustive", ["names", 1, 1500, 3]),
        ("released", "exhaustive", None),
    ):
        values = flattened(settings_values(preset))
        assert expected in (None, [values[key] for key in keys])
        assert values["viterbi.descriptions"] == "names"  # docs/compare.md
        assert values["pdpp.sampling"] == values["mtid.sampling"] == 10  # deterministic steps
        for method, given in (("cefito", search), ("cefito+chain", "guided")):
            chosen = flattened(load_config(preset, method=method).sections)
            assert (chosen["search.method"], chosen["search.budget_gflop"]) == (given, 50)
            plain = (chosen["search.objective"], chosen["search.tasks"]) == ("energy", 1)
            assert plain == (method == "cefito")  # the energy alone, in the likeliest task
            task_model = "chain" if preset == "small" else "classifier"
            assert not plain or chosen["search.task_model"] == task_model
        assert chosen["search.refinements"] == 0
        assert (values["coverage.few_videos"], values["coverage.most_folds"]) == (50, 10)


def test_the_keys_of_epochs_are_all_listed():
    """In docs/training.md, in one sentence; and its commands are taken by their default methods."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    sentence = text.partition("The epochs of planners are ")[2].partition(" A method refuses")[0]
    first, behind, *others = (span for span in SPAN.findall(sentence) if span not in ROWS)
    assert first == f"chain_training{behind}"
    keys = {key for key in flattened(settings_values("small")) if key.endswith(".optimiser.epochs")}
    assert {first, *(other + behind for other in others)} == keys
    readers = {name for name in METHODS if "classifier_training" in run_settings(name).model_fields}
    assert readers == {*SPAN.findall(sentence)} & METHODS.keys() | {"llm", "cefito+chain"}
    told = text.partition("A recogniser is trained by ")[2].partition("\n\n")[0]
    fields = {key.removeprefix("recogniser.") for key in SPAN.findall(told)}
    assert fields <= RecogniserConfig.model_fields.keys()
    assert len(fields) == 4
    for given in calls(ROOT / "docs" / "training.md", "cefito", whole=True):
        for word in given:
            if given[0] == "train" and word.startswith("chain_training"):
                load_config("small", method="chain", overrides=dict([word.split("=")]))
    with pytest.raises(ConfigError, match="is not read by chain"):
        load_config("small", method="chain", overrides={"training.optimiser.epochs": 20})
    shown = re.findall(r"--set ([\w.]+)=(\w+)", get_args(Settings)[1].help)
    for method, (key, value) in zip(("any-length", "chain"), shown, strict=True):
        assert load_config("small", method=method, overrides={key: value})


def test_the_preset_of_the_page_lists_its_differences_alone(tmp_path):
    (block,) = blocks(ROOT / "docs" / "training.md", "toml")
    (tmp_path / "mine.toml").write_text(block, encoding="utf-8")
    ours = flattened(load_config(str(tmp_path / "mine.toml"), method="chain").sections)
    small = flattened(load_config("small", method="chain").sections)
    differ = {key: value for key, value in ours.items() if small[key] != value}
    assert differ == {"chain_training.optimiser.epochs": 40}


def test_the_preset_for_proposals_is_small_with_few_networks():
    small, ours = (flattened(settings_values(name)) for name in ("small", "proposal"))
    assert ours.keys() == small.keys()
    fewer = {key for key, value in small.items() if ours[key] != value}
    parts = ("members", "folds", "temporal_layers", "changes")  # each is a network, or has some
    assert fewer == {"any_length.members", *(f"recogniser.{part}" for part in parts)}
    assert all(ours[key] < small[key] for key in fewer)


def test_further_epochs_on_all_videos_are_half_as_many_in_small_alone():
    listed = spans(ROOT / "docs" / "training.md")
    keys = {key for key in listed if key.endswith(".all_videos")}
    for preset, share in (("small", 0.5), ("paper", 0)):
        values = flattened(settings_values(preset))
        shares = {key: value for key, value in values.items() if key.endswith(".all_videos")}
        assert shares == dict.fromkeys(keys, share)
        words = [values[f"{network}.words"] for network in ("chain", "any_length")]
        assert words == [preset == "small", False]  # docs/measured.md


def test_the_table_of_results_is_that_of_the_files(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("results_table")
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert script.table() in page, "run benchmarks/results_table.py"
    file = ROOT / "benchmarks" / "results" / "chain-niv-simulated-T3.json"
    monkeypatch.setattr(sys, "argv", ["results_table.py", str(file)])
    script.main()
    printed, tables = capsys.readouterr().out, result_tables(Results.read(file))
    assert len(tables) > 1
    for one in tables:
        assert markdown(one) in printed


SETTINGS = TINY_RUN | {"viterbi.hidden": 16, "viterbi.training.optimiser.epochs": 1}
# Of each page what is smaller here than in it: trainings.
SMALLER = {
    "README.md": ("", ""),
    "docs/searches.md": ("", ""),
    "docs/report.md": ("", ""),
    "docs/plan-batch.md": ("workers=4", "workers=1"),
    "docs/compare.md": ("seeds=(0, 1, 2),", "seeds=(0,), settings=SETTINGS,"),
    "docs/training.md": (
        'load_config("small")',
        'load_config("small", method="cefito+chain", overrides=SETTINGS, shared=True)',
    ),
}


@pytest.fixture(scope="module")
def place(world, tmp_path_factory):
    """A folder with a data set DATA and a finished RUN."""
    folder = tmp_path_factory.mktemp("docs")
    world = open_dataset(shutil.copytree(world.folder, folder / "DATA"))
    config = load_config("small", method="cefito+chain", overrides=SETTINGS, shared=True)
    train_run(world, folder / "RUN", config=config, horizon=3, seed=0)
    np.save(folder / "before.npy", world.start[0].astype(np.float32))
    np.save(folder / "after.npy", world.end[2].astype(np.float32))
    (folder / "QUERIES.jsonl").write_text('{"initial": "before.npy", "goal": "after.npy"}\n')
    return folder


@pytest.mark.parametrize("page", SMALLER)
def test_the_python_of_a_page_runs(page, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    names = {"SETTINGS": SETTINGS}
    codes = blocks(ROOT / page, "python")
    assert codes
    old, new = SMALLER[page]
    assert any(old in code for code in codes)
    for code in codes:
        exec(code.replace(old, new) if old else code, names)
    assert capsys.readouterr().out
    if page == "docs/searches.md":
        assert len(names["plans"]) == 5


@pytest.mark.nightly
@pytest.mark.slow
def test_the_python_of_pages_has_right_types(pytestconfig, tmp_path):
    """Each page is a module; mypy's cache is kept where pytest keeps its own.

    `make check` checks the package. Types of torch and transformers take most of the time, and are
    not read: a page may derive a class from one of theirs.
    """
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'cefito[test]'")
    for page in PAGES:
        if codes := blocks(page, "python"):
            name = re.sub(r"\W", "_", page.stem.lower())
            (tmp_path / f"{name}.py").write_text("\n".join(codes), encoding="utf-8")
    modules = sorted(tmp_path.glob("*.py"))
    assert len(modules) > 5
    (tmp_path / "wrong.py").write_text('import cefito\n\ncefito.open_run("RUN").plan(stepz=3)\n')
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nplugins = pydantic.mypy\nfollow_imports = silent\n"
        "disallow_subclassing_any = false\n"
        "[mypy-torch.*,transformers.*]\nfollow_imports = skip\n"
    )
    kept = getattr(pytestconfig, "cache", None)  # None under -p no:cacheprovider
    cache = tmp_path / "cache" if kept is None else kept.mkdir("mypy")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini")),
            *("--cache-dir", str(cache), *map(str, modules), str(tmp_path / "wrong.py")),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = done.stdout  # the folder may be that of an earlier run, from the cache
    assert "wrong.py:3: error: Unexpected keyword argument" in found, found + done.stderr
    assert "Found 1 error in 1 file" in found, found


# the finders themselves
