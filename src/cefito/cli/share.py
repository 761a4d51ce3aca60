"""`cefito export`, and checkpoints of the authors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from cefito.cli.console import log_warnings, talk

Licence = Annotated[str, Parameter(name="--license")]


def export(run: Path, file: Path, /, *, license_name: Licence = "") -> None:
    """Write the files for planning with a run into a zip file, with a model card.

    Checkpoints and the data set's path on this machine are left out. Every command that takes a run
    folder also takes the file.

    Args:
        run: Run folder, as cefito train makes it.
        file: Zip file to write.
        license_name: Licence of the weights, an SPDX identifier such as CC-BY-4.0, for the card.
    """
    from cefito.evaluation.sharing import export_run

    with log_warnings():
        export_run(run, file, license_name=license_name)
    talk(f"wrote {file}: {file.stat().st_size:,} bytes; plan with: cefito plan {file} …")


def import_checkpoint(
    file: Path,
    /,
    *,
    taxonomy: Path,
    action_text: Path,
    out: Path,
    classifier: Path | None = None,
    weights: Literal["ema", "raw"] = "ema",
) -> None:
    """Make a run of a checkpoint of an energy field that the authors' code wrote.

    The run plans by the energy alone over the actions that the taxonomy lists for a task. Horizon,
    sizes and heads follow from the file. Nothing that a pickle names is run.

    Args:
        file: The checkpoint (.pth).
        taxonomy: The taxonomy with the checkpoint's action ids, taxonomy.json or as the authors
            write it.
        action_text: Text embeddings of the action names that it was trained with, .npy [K, W], row
            = action id, or as the authors write them.
        out: New run folder.
        classifier: Checkpoint of a task classifier to go with it; without one, tasks must be given
            to plan.
        weights: ema (averaged, which the authors evaluate) or raw.
    """
    from cefito.runs.checkpoints import import_field

    with log_warnings():
        run = import_field(
            file,
            out,
            taxonomy=taxonomy,
            action_text=action_text,
            classifier=classifier,
            weights=weights,
        )
    parameters = run.info.parameters
    sizes = ", ".join(f"{title} of {count:,} parameters" for title, count in parameters.items())
    task = " --task ID" if classifier is None else ""
    talk(
        f"wrote {out}: T = {run.horizon}, {sizes}; plan with: cefito plan {out} --initial A.npy "
        f"--goal B.npy{task}"
    )
