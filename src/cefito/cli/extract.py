"""`cefito extract`: features of videos, one vector a second."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cefito.cli.console import print_json, progress, talk

__all__ = ["extract"]


def extract(source: Path, /, *, out: Path, encoder: str = "s3d", weights: Path | None = None, frames: int | None = None,
            rate: float | None = None, size: int | None = None, layer: str | None = None, revision: str | None = None,
            batch: int = 4, device: str = "auto", json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Extract features of videos: one .npy file a video, float32 [seconds, D].

    Call it again to go on after an interruption: complete files are kept. Videos that cannot be read are left out and listed
    at the end, and the exit code is 1. From the files, cefito data prepare table makes a data set.

    Args:
        source: A video, or a folder of videos.
        out: Folder to write.
        encoder: s3d (the benchmarks', D = 512, clips), or a model of pictures, which sees the middle frame of each second:
            clip, dinov2, the folder of such a model, or its name on the Hugging Face hub (OWNER/MODEL).
        weights: Of s3d: the file s3d_howto100m.pth of the project antoine77340/S3D_HowTo100M.
        frames: Of s3d: frames of the clip that gives one vector; 32 by default.
        rate: Of s3d: frames a second in it; by default as many as frames, so that the clip lasts a second.
        size: Of s3d: height and width of the pictures that it sees; 224 by default.
        layer: Of models of pictures: projected (CLIP, the default) or pooled (CLIP, DINOv2).
        revision: Of models of pictures on the hub: branch, tag or commit.
        batch: Clips encoded at a time.
        device: auto, cpu or cuda.
        json: Print what became of each video as JSON.
    """
    from cefito.encoders.extraction import extract_videos
    from cefito.encoders.video import open_encoder
    from cefito.planners.run import pick_device

    opened = open_encoder(encoder, weights=weights, frames=frames, rate=rate, size=size, layer=layer, revision=revision,
                          device=pick_device(device))
    result = extract_videos(source, out, opened, batch=batch, progress=progress)
    for problem in result.failed.values():
        talk(f"left out: {problem}")
    counts = [(len(result.written), "written"), (len(result.kept), "there already"), (len(result.failed), "left out")]
    talk(f"{out}: " + ", ".join(f"{count} {words}" for count, words in counts if count))
    if json:
        print_json({"out": str(out), "written": result.written, "kept": result.kept, "failed": result.failed})
    return 1 if result.failed else 0
