"""`cefito import-checkpoint` and `export-checkpoint`: weights for and from the authors' code."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cefito.cli.console import log_warnings, talk
from cefito.errors import ConfigError

__all__ = ["export_checkpoint", "import_checkpoint"]


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


def export_checkpoint(
    run: Path,
    /,
    *,
    out: Path,
    action_text: Path | None = None,
    classifier: Path | None = None,
) -> None:
    """Write a run's energy field as a checkpoint that the authors' code reads.

    The field must be one of the paper (presets released and paper with text embeddings of the
    actions).

    Args:
        run: Folder of a finished run of cefito.
        out: Checkpoint of the field to write (.pth).
        action_text: .npy file to write the text embeddings of the actions to, row = action id; they
            are not in a checkpoint.
        classifier: Checkpoint of the run's task classifier to write (.pth).
    """
    from cefito.runs.checkpoints import export_classifier, export_field
    from cefito.runs.run import open_run

    opened = open_run(run)
    export_field(opened, out, action_text=action_text)
    if classifier is not None:
        export_classifier(opened, classifier)
    written = [str(path) for path in (out, action_text, classifier) if path is not None]
    talk(f"wrote {', '.join(written)}")
