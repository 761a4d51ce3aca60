"""Queries from pictures and videos, by the encoder that made the features of a run."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import Border
from cefito.data.prepared import Scene
from cefito.errors import CefitoError, ConfigError
from cefito.inference.query import query_of_ends
from cefito.parts.matching import DECIDING
from cefito.planners.queries import Queries
from cefito.progress import Progress, silent
from cefito.runtime import pick_device

if TYPE_CHECKING:
    import torch

    from cefito.encoders.images import ImageEncoder
    from cefito.encoders.text import GoalTexts
    from cefito.encoders.video import VideoEncoder
    from cefito.parts.opened import OpenedRun

Observation: TypeAlias = NDArray[np.floating[Any]] | Sequence[float] | Path | str | tuple[str, int]
"""Features [E], the path of a .npy file of them or of a picture, or a video id and a step.

Steps of a video are counted from 1. A plan begins at the start of one and leads to the end of one.
"""

_SETTINGS = ("frames", "rate", "size", "layer")  # with which an encoder is opened again


def _features_of(data: Path) -> Path:
    """Return where `data prepare --videos` or `quickstart --films` writes features of films."""
    beside = Path(f"{data}-features"), data.parent.parent / "features"
    return next((folder for folder in beside if folder.is_dir()), beside[0])


@dataclass(frozen=True)
class ObservationRecipe:
    """How the observations of a run are made of videos; can be sent to another process."""

    place: str  # the run, for messages
    made_with: Mapping[str, Any]  # encoder and its settings; empty if the run does not say
    seconds: int  # that make one observation
    size: int  # E, numbers in an observation
    border: Border = "nearest"  # row repeated beyond a border, as in `FeatureLayout`
    # mean observation [E], if the planner knows it, and names of tasks and actions
    mean: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    stored: Path | None = field(default=None, compare=False)  # features of films, if there are any

    @classmethod
    def of(cls, run: OpenedRun) -> ObservationRecipe:
        """Return the recipe of a run."""
        observed, data = run.info.dataset.observed or {}, run.info.dataset.path
        taxonomy = run.taxonomy
        return cls(
            place=run.place,
            made_with=observed.get("features") or {},
            seconds=observed.get("seconds", 3),
            size=run.planner.observation_dim,
            border=observed.get("border", "nearest"),
            mean=run.planner.mean_observation,
            names=(
                *(task.name for task in taxonomy.tasks),
                *(action.name for action in taxonomy.actions),
            ),
            stored=None if data is None else _features_of(Path(data)),
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that observations depend on, in hex."""
        values = self.made_with, self.seconds, self.size, self.border, self.names
        mean = b"" if self.mean is None else self.mean.tobytes()
        return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass") + mean).hexdigest()

    def open(
        self,
        encoder: str | None = None,
        *,
        weights: Path | str | None = None,
        device: torch.device | str | None = None,
    ) -> Observer:
        """Open the encoder (by default the run's, from its place) with the settings of the run.

        Args:
            encoder: Its name.
            weights: File of its weights, for s3d.
            device: Where it works; the CPU by default, "auto" takes CUDA if available.

        Raises:
            ConfigError: Unknown encoder, another than the run's, or none is given and the run does
                not say which.
            RunError: The encoder's weights are missing or do not fit.
        """
        from cefito.encoders.images import FILE
        from cefito.encoders.video import open_encoder, settings_of

        name = self._encoder() if encoder is None else encoder
        taken = {*settings_of(name)}
        settings = set(_SETTINGS) & taken & {*self.made_with}
        file = str(self.made_with.get(FILE, ""))
        if weights is None and "weights" in taken and Path(file).is_file():
            weights = file
        opened = open_encoder(
            name,
            weights=None if weights is None else Path(weights),
            device=pick_device(str(device or "cpu"), float64=False),
            **{key: self.made_with[key] for key in settings},
        )
        self._check(name, opened)
        return Observer(self, name, opened)

    def _check(self, name: str, encoder: VideoEncoder) -> None:
        """Refuse an encoder other than the run's (ConfigError); warn if the run does not say."""
        from cefito.encoders.video import record

        made_with = self.made_with
        if not made_with:
            logging.getLogger(__name__).warning(
                "the run does not say what its features were made with; answers make sense only "
                "if it was %s",
                name,
            )
            return
        # names are not compared: a local copy of a hub's model has another one
        described = record(encoder)
        for key in {"weights": None, "layer": None, **made_with}:
            if key in DECIDING and made_with.get(key) != described.get(key):
                trained, other = (
                    f"{made.get('model', made.get('encoder'))} ({key} {str(made.get(key))[:12]})"
                    for made in (made_with, described)
                )
                message = f"the run was trained on features of {trained}, not of {other}"
                raise ConfigError(f"{message}. Give the same encoder.", setting="encoder")

    def check_text(self, encoder: str | None = None) -> None:
        """Refuse goals in words for features whose space texts do not share (ConfigError)."""
        from cefito.encoders.text import SHARED_LAYER

        if self.made_with.get("layer") == SHARED_LAYER or (encoder and not self.made_with):
            return
        made = self.made_with.get("model", "an unknown encoder")
        raise ConfigError(
            f"{self.place}: its features are of {made}, and a goal in words needs features of "
            "CLIP's projected layer. Extract features with the encoder clip, prepare the data set "
            "with them, and train on it.",
            setting="goal_text",
        )

    def _encoder(self) -> str:
        """Return the name of the encoder that made the run's features."""
        from cefito.encoders.images import FOLDER, IMAGE_MODELS
        from cefito.encoders.video import ENCODERS

        model = str(self.made_with.get("model", ""))
        if not model:
            raise ConfigError(
                f"{self.place}: does not say what its features were made with. Name the encoder "
                f"({', '.join(ENCODERS)}, or the folder of an image model), or give features.",
                setting="encoder",
            )
        named = "/" in model or (model in ENCODERS and model not in IMAGE_MODELS)
        if named:
            return model
        folder = str(self.made_with.get(FOLDER, ""))  # a model that is not on the hub
        if folder and Path(folder).is_dir():
            return folder
        gone = f", which is no longer in {folder}" if folder else ""
        raise ConfigError(
            f"{self.place}: its features are of the model '{model}'{gone}. Give its folder.",
            setting="encoder",
        )


@dataclass(frozen=True)
class Observer:
    """Makes queries of pictures and videos: a recipe with its encoder opened."""

    recipe: ObservationRecipe
    name: str
    encoder: VideoEncoder

    @property
    def _images(self) -> ImageEncoder | None:
        """Its encoder of single pictures; None if it takes only clips of videos."""
        from cefito.encoders.video import Pictures

        return self.encoder.images if isinstance(self.encoder, Pictures) else None

    @property
    def sees_pictures(self) -> bool:
        """Whether its encoder takes single pictures, not only clips of videos."""
        return self._images is not None

    @property
    def reads_texts(self) -> bool:
        """Whether goals in words can be encoded."""
        try:
            return bool(self._texts.tower.describe())
        except CefitoError:
            return False

    def of_pictures(self, initial: Path | str | None, goal: Path | str | None) -> Queries:
        """Make the query of two pictures in files, or of one.

        If an observation spans several seconds, the vector of a picture is repeated for each, as if
        nothing moved.

        Raises:
            ConfigError: The encoder takes no pictures, or its vectors do not fit the run.
            DataError: A picture cannot be read.
        """
        from cefito.encoders.images import repeats

        vectors = self._vectors([path for path in (initial, goal) if path is not None])
        model = self.encoder.describe()["model"]
        times = repeats(self.recipe.size, vectors.shape[1], model)
        query = query_of_ends(np.tile(vectors, times), initial, goal, size=self.recipe.size)
        return query.with_scenes(
            *(None if path is None else Scene(Path(path)) for path in (initial, goal))
        )

    def of_picture(self, picture: Path | str) -> NDArray[np.float32]:
        """Encode a picture in a file as the row [D] of a second; errors as of `of_pictures`."""
        row: NDArray[np.float32] = self._vectors([picture])[0]
        return row

    def _vectors(self, pictures: Sequence[Path | str]) -> NDArray[np.float32]:
        """Encode pictures in files [N, D]."""
        from cefito.encoders.images import encode_pictures

        if self._images is None:
            raise ConfigError(
                f"the encoder {self.name} takes videos, not pictures. Give one and two times.",
                setting="encoder",
            )
        return encode_pictures(pictures, self._images)

    def of_video(
        self,
        video: Path | str,
        start: float | None,
        end: float | None,
        *,
        progress: Progress = silent,
    ) -> Queries:
        """Make the query of two times of a video file, in seconds, or of one.

        As in the benchmarks, an observation joins the vectors of the seconds around its time.

        Args:
            video: The file.
            start: Second at which the first step begins; None if it is not known.
            end: Second at which the last step ends; None if it is not known.
            progress: Shows how much of the video was read.

        Raises:
            ConfigError: Times outside of the video or in the wrong order.
            DataError: The video cannot be read.
        """
        from cefito.encoders.video import extract_features

        if start is not None and end is not None and not start < end:
            order = f"the end (second {end:g}) must be after the start ({start:g})"
            raise ConfigError(f"{video}: {order}.")
        observed = extract_features(
            Path(video),
            self.encoder,
            at=[time for time in (start, end) if time is not None],
            seconds=self.recipe.seconds,
            border=self.recipe.border,
            progress=progress,
        )
        joined = observed.reshape(len(observed), -1)
        query = query_of_ends(joined, start, end, size=self.recipe.size)
        times = (None if time is None else Scene(Path(video), time) for time in (start, end))
        return query.with_scenes(*times)

    def rows(
        self,
        video: Path | str,
        *,
        part: tuple[float, float] | None = None,
        progress: Progress = silent,
    ) -> NDArray[np.float32]:
        """Return a whole video file, or a part, one row a second [n, D], encoded if not stored.

        Args:
            video: The file.
            part: Start and end of the part, in seconds of the file's clock.
            progress: Shows how much was read.
        """
        from cefito.encoders.extraction import stored_rows
        from cefito.encoders.video import extract_features

        folder, path = self.recipe.stored, Path(video)
        rows = None if folder is None else stored_rows(folder, path, self.encoder, part)
        if rows is None:
            rows = extract_features(path, self.encoder, part=part, progress=progress)
        return rows

    def of_text(self, text: str) -> NDArray[np.float32]:
        """Make the goal observation [E] of a text."""
        return self._texts.observe(text)

    @cached_property
    def _texts(self) -> GoalTexts:
        from cefito.encoders.images import PretrainedImages
        from cefito.encoders.text import GoalTexts

        recipe, images = self.recipe, self._images
        recipe.check_text(self.name)
        if not isinstance(images, PretrainedImages):
            raise ConfigError(
                f"the encoder {self.name} takes no texts. Give clip.", setting="goal_text"
            )
        return GoalTexts(images, recipe.size, recipe.mean, recipe.names)
