"""`cefito data steps`: annotations of any known format as one table, and their options."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from cefito.cli.console import print_json, table, talk
from cefito.cli.options import Flag, Several, pairs

if TYPE_CHECKING:
    from cefito.data.readers.formats import Choices

__all__ = ["NO_CHOICES", "StepOptions", "steps"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """What files of annotated steps leave open.

    Attributes:
        task: Task of all videos, of files that hold no tasks.
        tier: Tier, track or control tag with the steps, of files with several.
        frame_rate: Frames per second, of files that count frames.
        video_table: CSV with the column video and any of task, split, seconds (length of the
            video) and frame_rate, which the files do not hold.
        encoding: Encoding of text, such as cp1252; by default Unicode, or else Windows-1252.
        by_file: Name each video by its file of annotations, not by the film that the file names.
        column: OURS=THEIRS, a table's name of a column, as in step=action; may be repeated.
    """

    task: str | None = None
    tier: str | None = None
    frame_rate: float | None = None
    video_table: Path | None = None
    encoding: str | None = None
    by_file: Flag = False
    column: Several = ()

    @property
    def given(self) -> list[str]:
        """Names of the options that are given."""
        return [
            "--" + one.name.replace("_", "-")
            for one in fields(self)
            if getattr(self, one.name) != one.default
        ]

    @property
    def choices(self) -> Choices:
        """The choices for the readers."""
        from cefito.data.readers.formats import Choices

        columns = pairs("--column", self.column, "OURS=THEIRS, as in --column step=action")
        values = asdict(self)
        del values["column"]
        return Choices(columns=columns, **values)


NO_CHOICES = StepOptions()


def steps(*files: Path, out: Path, options: StepOptions = NO_CHOICES, json: Flag = False) -> None:
    """Convert annotations to a table of steps, which cefito data prepare custom reads.

    The format of each file is recognised by its content: ELAN, ANVIL, CVAT, VIA, Vidat, BORIS,
    Label Studio, LeRobotDataset, WebVTT, SRT, SBV, Datavyu, chapters, or a table, CSV or Parquet,
    with the columns video, task, step, start, end (seconds), and optionally split.

    Args:
        files: One or several files, each with one or several videos.
        out: CSV to write.
        options: What the files leave open.
        json: Print what was read as JSON instead of a table.
    """
    from cefito.data.readers.source import irregularities
    from cefito.data.readers.step_source import convert_steps

    source = convert_steps(files, out, choices=options.choices)
    for note in source.notes:
        talk(f"note: {note}")
    odd = irregularities(source.annotations.videos)
    counts = {
        "tasks": len(source.annotations.taxonomy.tasks),
        "actions": len(source.annotations.taxonomy.actions),
        "videos": len(source.annotations.videos),
        "steps": source.annotations.step_count,
    }
    if json:
        print_json({"out": str(out), "form": source.form, **counts, "noticed": odd})
    else:
        rows = [[f"{entry['reason']}, videos", len(entry["videos"])] for entry in odd]
        table(source.form, ("what", "number"), [*map(list, counts.items()), *rows])
    talk(f"wrote {out}")
