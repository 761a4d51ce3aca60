"""`cefito config`: settings of presets, and differences of runs from them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from cefito.cli.console import print_json, table, talk
from cefito.cli.options import Flag, Settings, known_settings

__all__ = ["app"]

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
