"""The two observations of `cefito plan` where they are made on the spot.

From a video file, or from two pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from cefito.cli.console import passing_progress, talk
from cefito.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from cefito.encoders.video import VideoEncoder
    from cefito.planners.base import Queries
    from cefito.planners.cefito.planner import CefitoPlanner
    from cefito.planners.run import Run

__all__ = ["NOT_OBSERVED", "ObserveOptions", "query_from_observations"]

_OF_S3D, _OF_PICTURES = ("frames", "rate", "size"), ("layer",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ObserveOptions:
    """Observations that are made on the spot, from a video file or from two pictures.

    Attributes:
        start: Second of the video file at which the first step begins.
        end: Second of the video file at which the last step ends.
        initial_image: Picture of the scene before the first step.
        goal_image: Picture of the scene after the last step.
        encoder: As in cefito extract; by default the one that the features of the run's data set
            were made with.
        weights: Of the encoder s3d: the file of its weights.
    """

    start: float | None = None
    end: float | None = None
    initial_image: Path | None = None
    goal_image: Path | None = None
    encoder: str | None = None
    weights: Path | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in astuple(self))


NOT_OBSERVED = ObserveOptions()


def query_from_observations(
    run: Run[CefitoPlanner], video: str | None, options: ObserveOptions, *, device: torch.device
) -> Queries:
    """Encode a video around two moments, or two pictures, as the run's data set was observed.

    Args:
        run: The run; what its features were made with decides encoder, layer, sampling and seconds.
        video: The video file, or None for pictures.
        options: What to observe, and by what where the run does not say.
        device: Where the encoder runs.

    Raises:
        ConfigError: Neither a video with two moments nor two pictures, no encoder known, or another
            one than the run's.
        DataError: Video or picture cannot be read.
        RunError: The encoder's weights are missing or do not fit.
    """
    observed = run.info["dataset"].get("observed") or {}
    made_with: Mapping[str, Any] = observed.get("features") or {}
    name, learned = options.encoder, str(made_with.get("model", ""))
    if name is None:
        if not learned:
            raise ConfigError(
                f"{run.folder}: does not say what the features it learned from were made with. "
                "Name that encoder with --encoder: s3d, clip, dinov2, or the folder of a model of "
                "pictures."
            )
        if learned != "s3d" and "/" not in learned:  # it lay in a folder, and not on the hub
            raise ConfigError(
                f"{run.folder}: learned from features of the model '{learned}'. Give its folder "
                "with --encoder."
            )
        name = learned
    from cefito.planners.base import Queries

    initial_image, goal_image = options.initial_image, options.goal_image
    if (
        video is not None
        and options.start is not None
        and options.end is not None
        and initial_image is goal_image is None
    ):
        from cefito.encoders.video import observations_from_video

        initial, goal = observations_from_video(
            Path(video),
            options.start,
            options.end,
            _open(name, made_with, options.weights, device),
            seconds=observed.get("seconds", 3),
            made_with=made_with or None,
            progress=passing_progress,
        )
    elif (
        initial_image is not None
        and goal_image is not None
        and not (video or options.start or options.end)
    ):
        from cefito.encoders.images import observations_from_images
        from cefito.encoders.video import Pictures

        encoder = _open(name, made_with, options.weights, device)
        if not isinstance(encoder, Pictures):
            raise ConfigError(
                f"the encoder {name} sees clips of videos, not pictures. Give --video FILE with "
                "--start and --end, or train on features of a model of pictures (cefito extract "
                "--encoder clip)."
            )
        assert run.planner.field is not None
        initial, goal = observations_from_images(
            initial_image,
            goal_image,
            encoder.images,
            made_with=made_with or None,
            size=run.planner.field.predictor.observation_dim,
        )
    else:
        raise ConfigError(
            "give --video FILE with --start and --end in seconds, or --initial-image and "
            "--goal-image."
        )
    if not made_with:
        talk(
            "the run does not say what its features were made with; plans make sense only if that "
            f"was {name}"
        )
    return Queries(initial=initial[None], goal=goal[None])


def _open(
    name: str, made_with: Mapping[str, Any], weights: Path | None, device: torch.device
) -> VideoEncoder:
    """The encoder, set as that of the run."""
    from cefito.encoders.video import open_encoder

    kept = {
        key: made_with[key]
        for key in (_OF_S3D if name == "s3d" else _OF_PICTURES)
        if key in made_with
    }
    return open_encoder(name, weights=weights, device=device, **kept)
