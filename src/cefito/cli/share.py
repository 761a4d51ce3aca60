"""`cefito export`, `check`, and checkpoints of the authors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from cefito.cli.console import log_warnings, print_json, table, talk
from cefito.cli.options import Flag
from cefito.errors import ConfigError

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


def check(path: Path, /, *, json: Flag = False) -> None:
    """Check a data set or a run: its structure, its values, and the SHA-256 of every file.

    Prints which of them it is. The exit code is 2 if something is damaged or has changed.

    Args:
        path: Folder of a prepared data set, or a run folder.
        json: Print JSON instead of a table.
    """
    from cefito.study.checking import check as run

    with log_warnings():
        found = run(path)
    if json:
        print_json(found.to_dict())
        return
    table(f"{found.kind} '{found.name}': whole", ("what", "value"), list(found.facts.items()))
    table("", ("file", "SHA-256"), sorted(found.files.items()))
    for note in found.notes:
        talk(f"note: {note}")


def import_checkpoint(
    file: Path,
    /,
    *,
    kind: Literal["cefito", "task-classifier"],
    out: Path,
    taxonomy: Path | None = None,
    action_text: Path | None = None,
    classifier: Path | None = None,
    weights: Literal["ema", "raw"] | None = None,
) -> None:
    """Make a run of a checkpoint that the authors' code wrote.

    The run plans by the energy alone over the actions that the taxonomy lists for a task. Horizon,
    sizes and heads follow from the file. Nothing that a pickle names is run.

    Args:
        file: The checkpoint (.pth).
        kind: cefito: an energy field, which makes a new run; task-classifier: replace the task
            classifier of the run at --out.
        out: Run folder: a new one for a field, an existing one for a classifier.
        taxonomy: For a field: the taxonomy with the checkpoint's action ids, taxonomy.json or as
            the authors write it.
        action_text: For a field: text embeddings of the action names that it was trained with, .npy
            [K, W], row = action id, or as the authors write them.
        classifier: For a field: checkpoint of a task classifier to go with it; without one, tasks
            must be given to plan.
        weights: For a field: ema (averaged, which the authors evaluate: the default) or raw.
    """
    if kind == "cefito" and (taxonomy is None or action_text is None):
        raise ConfigError(
            "--kind cefito needs --taxonomy (taxonomy.json) and --action-text (a .npy file): a "
            "checkpoint holds neither names nor text embeddings of its actions."
        )
    if kind == "task-classifier" and any(
        given is not None for given in (taxonomy, action_text, classifier, weights)
    ):
        raise ConfigError(
            "--kind task-classifier takes --out only: the run there knows tasks and actions."
        )
    from cefito.planners.shared.task_model import TaskModel
    from cefito.runs.checkpoints import import_classifier, import_field

    if taxonomy is not None and action_text is not None:
        with log_warnings():
            run = import_field(
                file,
                out,
                taxonomy=taxonomy,
                action_text=action_text,
                classifier=classifier,
                weights=weights or "ema",
            )
    else:
        run = import_classifier(file, out)
    parameters = run.info.parameters
    sizes = ", ".join(f"{title} of {count:,} parameters" for title, count in parameters.items())
    task = "" if TaskModel.title in parameters else " --task ID"
    talk(
        f"wrote {out}: T = {run.horizon}, {sizes}; plan with: cefito plan {out} --initial A.npy "
        f"--goal B.npy{task}"
    )
