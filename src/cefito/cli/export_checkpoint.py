"""`cefito export-checkpoint`: weights of a run for the code of the paper's authors."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import talk

__all__ = ["export_checkpoint"]


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
        action_text: Write the text embeddings of the actions here, a .npy file, row = action id; no
            checkpoint holds them.
        classifier: Write the run's task classifier here as a checkpoint of its own (.pth).
    """
    from cefito.runs.checkpoints import export_classifier, export_field
    from cefito.runs.run import open_run

    opened = open_run(run)
    export_field(opened, out, action_text=action_text)
    if classifier is not None:
        export_classifier(opened, classifier)
    written = [str(path) for path in (out, action_text, classifier) if path is not None]
    talk(f"wrote {', '.join(written)}")
