"""`cefito planners`, `new-planner`, `llm-prompt` and `config`: methods and their settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from cefito.cli.console import log_warnings, print_json, printable, table, talk
from cefito.cli.options import Flag, Settings, check_split, given_options, known_settings
from cefito.errors import ConfigError

if TYPE_CHECKING:
    from cefito.planners.methods import PlannerVariant
    from cefito.study.method_catalogue import ListedMethod


def planners(*, json: Flag = False) -> None:
    """List every method: its paper, what it needs and can do, parameters at the published size.

    A second table lists the rows of cefito compare by method. Parameters are counted with preset
    paper on CrossTask (133 actions, 18 tasks) at T = 3.

    Args:
        json: Print JSON instead of tables.
    """
    from cefito.study.method_catalogue import listed_methods

    with log_warnings():
        methods = listed_methods()
    if json:
        print_json([method.to_dict() for method in methods])
        return
    table(
        "methods, as cefito train --method takes them",
        ("method", "title", "can", "needs", "parameters", "paper"),
        [_cells(listed) for listed in methods],
    )
    table(
        "rows, as cefito compare --planners takes them; all: those without a kind",
        ("planner", "title", "method", "kind"),
        [
            (row.name, row.title, row.method, _kind(row))
            for listed in methods
            for row in listed.method.variants
        ],
    )


def _cells(listed: ListedMethod) -> tuple[str, ...]:
    method, paper, size = listed.method, listed.method.paper, sum(listed.parameters.values())
    needs = [*method.needs, *(f"{use} (if given)" for use in method.uses)]
    place = f" ({paper.place})" if paper is not None and paper.place else ""
    source = ["" if paper is None else paper.title + place]
    source += [f"package {listed.package}"] if listed.package else []
    return (
        method.name,
        method.title or method.name,
        ", ".join(listed.can),
        ", ".join(needs) or "–",
        f"{size / 1e6:.2f} M" if size else "not published",
        "; ".join(filter(None, source)) or "–",
    )


def _kind(row: PlannerVariant) -> str:
    """Return why "all" leaves a row out; empty if it does not."""
    from cefito.planners.methods import SERVER, find_method

    if row.oracle:
        return "oracle"
    if row.ablation:
        return "ablation"
    return "asks llm.model" if SERVER in find_method(row.method).needs else ""


def new_planner(name: str, /, *, out: Path | None = None) -> None:
    """Write a package that adds a planner: module, metadata, README and test.

    It holds a small planner that works, to be replaced by your own. Once it is installed, every
    command knows the planner by its name.

    Args:
        name: Name of the planner for --method, such as my-planner.
        out: Folder to write; by default the name.
    """
    from cefito.planners.example.new_package import write_package

    folder = Path(name) if out is None else out
    written = write_package(name, folder)
    talk(f"wrote {', '.join(str(path) for path in written)}")
    talk(f"next: cd {folder}; pip install -e '.[test]'; pytest")


_Given = given_options("oracle_task", "oracle_ends")
_OBSERVATIONS = _Given()


def llm_prompt(
    run: Path,
    /,
    *,
    window: int = 0,
    split: str = "test",
    sample: int | None = None,
    given: _Given = _OBSERVATIONS,  # type: ignore[valid-type]
    dataset: Path | None = None,
    horizon: int | None = None,
    json: Flag = False,
) -> None:
    """Show the request for one window of a run that asks a language model; nothing is asked.

    Also say how many requests cefito evaluate with the same options would make at most.

    Args:
        run: Run folder of llm-ends or llm-ranked.
        window: Number of the window in the split or sample, counted from 0.
        split: train, val or test.
        sample: Size of a fixed random sample of windows, as in cefito evaluate.
        given: What the planner is given.
        dataset: The data set, if not that of the run.
        horizon: Number of actions, for a folder with runs of several.
        json: Print JSON, with the answer schema and all other request fields.
    """
    from cefito.evaluation.runs import SAMPLE_SEED
    from cefito.planners.language_model.dialogue import preview
    from cefito.planners.language_model.planner import LlmPlanner
    from cefito.planners.queries import Queries
    from cefito.runs.matching import match_dataset
    from cefito.runs.run import open_run

    check_split(split)
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.", setting="sample")
    with log_warnings():
        opened = open_run(run, horizon=horizon)
        planner = opened.planner
        if not isinstance(planner, LlmPlanner):
            raise ConfigError(f"{planner.name} asks no language model. Name a run that does.")
        windows, _ = match_dataset(opened, opened.dataset(dataset)).windows(split)
        known = given.given()  # type: ignore[attr-defined]
        queries = Queries.from_windows(windows.sample(sample, SAMPLE_SEED), **known)
        found = preview(planner.requests(queries), planner.config, window)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        for message in found.messages:
            lines = [f"{message['role']}:", *message["content"].split("\n"), ""]
            sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    talk(
        f"{found.queries:,} windows: {found.different:,} different requests, {found.known:,} of "
        f"them cached; {found.model} at {found.server} would be asked at most {found.most:,} "
        f"times, the budget is {found.budget:,}"
    )


app = App(name="config", help="Show the settings of presets, and compare those of runs.")


@app.command
def show(
    preset: str = "small",
    /,
    *,
    dataset: str = "",
    horizon: int = 0,
    method: Annotated[str, Parameter(name=("--method", "--planner"))] = "",
    set_: Settings = (),
    json: Flag = False,
) -> None:
    """Print all settings of a preset, as a file that --preset takes.

    Each setting has the comment of the file that settled it; a default says what it is.

    Args:
        preset: paper, released, small, quickstart, or the path of a .toml file of the same form.
        dataset: Name or folder of a data set; presets have variants for some.
        horizon: Number of actions of a plan; some variants are for one only.
        method: Only the settings of this method, as listed by cefito planners.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
        json: Print JSON instead of TOML.
    """
    given: dict[str, Any] = {
        "dataset": _dataset_name(dataset),
        "horizon": horizon,
        "overrides": known_settings(set_),
        "method": method,
    }
    from cefito.runs.settings_export import settings_text, settings_values

    if json:
        print_json(settings_values(preset, **given))
    else:
        sys.stdout.write(settings_text(preset, **given))


@app.command
def diff(run: Path, preset: str, /, *, set_: Settings = (), json: Flag = False) -> None:
    """Print differences between the settings of a run and a preset, or another run.

    The preset's variants for the run's data set and horizon are applied; only settings of the run's
    method are compared.

    Args:
        run: Run folder, or a zip file of one.
        preset: paper, released, small, quickstart, the path of a .toml file, or another run.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
        json: Print JSON instead of a table.
    """
    changes = known_settings(set_)
    from cefito.runs.settings_export import compare_settings

    found = compare_settings(run, preset, overrides=changes)
    if json:
        print_json([vars(difference) for difference in found])
    elif found:
        table(
            "",
            ("setting", str(run), preset),
            [(one.setting, _shown(one.ours), _shown(one.theirs)) for one in found],
        )
    else:
        talk(f"{run} has the settings of {preset}.")


def _dataset_name(given: str) -> str:
    """The name that variants of presets go by, from a data set's name or folder."""
    from cefito.data.annotations import Taxonomy

    path = Path(given) / "taxonomy.json"
    return Taxonomy.read(path).dataset if given and path.is_file() else given


def _shown(value: object) -> str:
    return "–" if value is None else str(value)
