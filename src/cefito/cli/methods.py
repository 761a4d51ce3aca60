"""`cefito planners`, `new-planner` and `config`: methods, recognisers and their settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from cefito.cli.console import log_warnings, print_json, table, talk
from cefito.cli.options import Settings, known_settings
from cefito.cli.values import Flag, Json, said_as_json
from cefito.data.vocabulary import Taxonomy
from cefito.planners.methods import METHODS, SERVER, Method, PlannerVariant, listed_methods
from cefito.recognition.methods import RECOGNISERS


def planners(*, json: Json = False) -> None:
    """List every method: its paper, what it needs and can do, parameters at the published size.

    Recognisers follow, but not in JSON.
    """
    with log_warnings():
        methods = listed_methods()
    if json:
        print_json(methods)
        return
    lines = []
    for listed in methods:
        paper, size = METHODS[listed["name"]].paper, sum((listed["parameters"] or {}).values())
        source = [] if paper is None else [paper.title + f" ({paper.place})" * bool(paper.place)]
        source += [f"package {listed['package']}"] if listed["package"] else []
        needs = [*listed["needs"], *(f"{use} (if given)" for use in listed["uses"])]
        lines.append(
            (
                listed["name"],
                listed["title"],
                ", ".join(listed["can"]) or "–",
                ", ".join(needs) or "–",
                f"{size / 1e6:.2f} M" if size else "not published",
                "; ".join(source) or "–",
            )
        )
    heads = ("method", "title", "can", "needs", "parameters", "paper")
    table("methods, as cefito train --method takes them", heads, lines)
    table(
        "rows, as cefito compare --planners takes them; all: those without a kind",
        ("planner", "title", "method", "kind"),
        [
            (row.name, row.title, row.method, _kind(row, method))
            for method in METHODS.values()
            for row in method.variants
        ],
    )
    table(
        "recognisers, as cefito compare --recognisers and --set recogniser.method=METHOD take them",
        ("recogniser", "title", "method", "package"),
        [
            (row, of.line, name, " ".join(RECOGNISERS.package(name) or ()) or "–")
            for name, method in RECOGNISERS.items()
            for row, of in method.rows.items()
        ],
    )


def _kind(row: PlannerVariant, method: Method) -> str:
    """Return why "all" leaves a row out, or may; empty if it does not."""
    asks = "needs llm.server" if SERVER in method.needs else ""
    return "ablation" if row.ablation else asks


@said_as_json
def new_planner(name: str, /, *, out: Path | None = None) -> dict[str, Any]:
    """Write a package that adds a planner: module, metadata, README and test.

    Args:
        name: Name of the planner for --method, such as my-planner.
        out: Folder to write; by default the name.
    """
    from cefito.planners.example.new_package import write_package

    folder = Path(name) if out is None else out
    written = write_package(name, folder)
    talk(f"wrote {', '.join(str(path) for path in written)}")
    talk(f"next: cd {folder}; pip install -e '.[test]'; pytest")
    return {"out": str(folder), "files": [str(path) for path in written]}


app = App(name="config", help="Show the settings of presets.")


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

    Args:
        preset: paper, released, small, proposal, quickstart, or the path of a .toml file of the
            same form.
        dataset: Name or folder of a data set; presets have variants for some.
        horizon: Number of actions of a plan; some variants are for one only.
        method: Only the settings of this method, as listed by cefito planners.
        json: Print JSON instead of TOML.
    """
    changes = known_settings(set_)
    from cefito.runs.settings_export import settings_text, settings_values

    path = Path(dataset) / "taxonomy.json"
    name = Taxonomy.read(path).dataset if dataset and path.is_file() else dataset
    values = settings_values(
        preset, dataset=name, horizon=horizon, overrides=changes, method=method
    )
    if json:
        print_json(values)
        return
    which = [f"preset {Path(preset).stem}"]
    which += [f"data set {name}"] * bool(name) + [f"T = {horizon}"] * bool(horizon)
    which += [f"of {method}"] * bool(method)
    sys.stdout.write(settings_text(values, ", ".join(which)))
