"""Pictures and videos into queries of a run, by the encoder that its features were made with.

`Recipe` says how a run's observations are made; it is small and can be handed to another process.
`Observer` is the recipe with its encoder opened, so that many queries need to open it only once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cefito.errors import ConfigError
from cefito.planners.queries import Queries
from cefito.progress import Progress, silent

if TYPE_CHECKING:
    import torch

    from cefito.encoders.video import VideoEncoder
    from cefito.runs.run import Run

__all__ = ["Observer", "Recipe"]

# Of what features were made with: what an encoder of each kind is opened with again.
_S3D_SETTINGS = ("frames", "rate", "size")
_PICTURE_SETTINGS = ("layer",)


@dataclass(frozen=True)
class Recipe:
    """How the observations of a run are made of videos.

    Attributes:
        place: What messages call the run.
        made_with: The encoder of its features and its settings; empty where the run does not say.
        seconds: Seconds that make one observation.
        size: E, numbers in an observation.
    """

    place: str
    made_with: Mapping[str, Any]
    seconds: int
    size: int

    @classmethod
    def of(cls, run: Run) -> Recipe:
        """That of a run."""
        observed = run.info.dataset.observed or {}
        return cls(
            place=str(run.folder),
            made_with=observed.get("features") or {},
            seconds=observed.get("seconds", 3),
            size=run.planner.observation_dim,
        )

    def encoder(self, given: str | None = None) -> str:
        """Name of the encoder: the one that is given, otherwise that of the run's features.

        Raises:
            ConfigError: None is given, and the run does not say which, or its model lay in a
                folder.
        """
        if given is not None:
            return given
        learned = str(self.made_with.get("model", ""))
        if not learned:
            raise ConfigError(
                f"{self.place}: does not say what the features it learned from were made with. "
                "Name that encoder: s3d, clip, dinov2, or the folder of a model of pictures; or "
                "give features of the video instead.",
                setting="encoder",
            )
        if learned != "s3d" and "/" not in learned:  # it lay in a folder, and not on the hub
            raise ConfigError(
                f"{self.place}: learned from features of the model '{learned}'. Give its folder as "
                "the encoder.",
                setting="encoder",
            )
        return learned

    def open(
        self,
        encoder: str | None = None,
        *,
        weights: Path | str | None = None,
        device: torch.device | None = None,
    ) -> Observer:
        """The recipe with its encoder, set as that of the run.

        Args:
            encoder: As in `encoder`.
            weights: File of the weights of the encoder s3d.
            device: Where it runs; the CPU by default.

        Raises:
            ConfigError: As `encoder` and `cefito.encoders.video.open_encoder`.
            RunError: The encoder's weights are missing or do not fit.
        """
        from cefito.encoders.video import open_encoder

        name = self.encoder(encoder)
        settings = _S3D_SETTINGS if name == "s3d" else _PICTURE_SETTINGS
        kept = {key: self.made_with[key] for key in settings if key in self.made_with}
        opened = open_encoder(
            name,
            weights=None if weights is None else Path(weights),
            device=device or "cpu",
            **kept,
        )
        return Observer(self, name, opened)


@dataclass(frozen=True)
class Observer:
    """Makes queries of pictures and videos.

    Attributes:
        recipe: How.
        name: Name of the encoder.
        encoder: The encoder.
    """

    recipe: Recipe
    name: str
    encoder: VideoEncoder

    @property
    def sees_pictures(self) -> bool:
        """Whether its encoder sees single pictures, and not only clips of videos."""
        from cefito.encoders.video import Pictures

        return isinstance(self.encoder, Pictures)

    def of_pictures(self, initial: Path | str, goal: Path | str) -> Queries:
        """The query of two pictures in files.

        Raises:
            ConfigError: Another encoder than the run's, or one that does not see pictures.
            DataError: A picture cannot be read.
        """
        from cefito.encoders.images import observations_from_images
        from cefito.encoders.video import Pictures

        if not isinstance(self.encoder, Pictures):
            raise ConfigError(
                f"the encoder {self.name} sees clips of videos, not pictures. Give a video file "
                "and its two times, or train on features of a model of pictures.",
                setting="encoder",
            )
        first, second = observations_from_images(
            Path(initial),
            Path(goal),
            self.encoder.images,
            made_with=self.recipe.made_with or None,
            size=self.recipe.size,
        )
        self._warn_unknown()
        return Queries(initial=first[None], goal=second[None])

    def of_video(
        self, video: Path | str, start: float, end: float, *, progress: Progress = silent
    ) -> Queries:
        """The query of two moments of a video file, in seconds.

        Raises:
            ConfigError: Another encoder than the run's, or times that the video lacks.
            DataError: The video cannot be read.
        """
        from cefito.encoders.video import observations_from_video

        initial, goal = observations_from_video(
            Path(video),
            start,
            end,
            self.encoder,
            seconds=self.recipe.seconds,
            made_with=self.recipe.made_with or None,
            progress=progress,
        )
        self._warn_unknown()
        return Queries(initial=initial[None], goal=goal[None])

    def _warn_unknown(self) -> None:
        if not self.recipe.made_with:
            logging.getLogger(__name__).warning(
                "the run does not say what its features were made with; plans make sense only if "
                "that was %s",
                self.name,
            )
