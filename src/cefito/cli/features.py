"""`cefito extract` and `embed`: features of videos, and of the names of actions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from cefito.cli.console import passing_progress, print_json, progress, table, talk, wrote
from cefito.cli.options import AnyDevice, DataFolder, given_names
from cefito.cli.values import Flag, said_as_json
from cefito.data.action_text import read_action_text, with_action_text
from cefito.data.prepared import open_dataset
from cefito.data.robots import episode_name, is_robot, open_robot
from cefito.errors import ConfigError
from cefito.files import has_ending, sha256
from cefito.locks import check_new
from cefito.runtime import pick_device

if TYPE_CHECKING:
    from cefito.encoders.extraction import Extraction
    from cefito.encoders.video import VideoEncoder


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """The video encoder.

    Attributes:
        encoder: s3d (the benchmarks', D = 512, clips), or an image model, which sees the middle
            frame of each second: efficientnet-lite0 (D = 1280, installed with its weights), clip,
            dinov2, the folder of such a model, or its name on the Hugging Face hub (OWNER/MODEL).
            By default s3d with --weights, efficientnet-lite0 without.
        weights: For s3d: the file s3d_howto100m.pth of the project antoine77340/S3D_HowTo100M.
        frames: For s3d: frames of the clip that gives one vector; 32 by default.
        rate: For s3d: frames per second of a clip; by default as many as frames, so that the clip
            lasts a second.
        size: For s3d: height and width of its pictures; 224 by default.
        layer: For image models: projected (CLIP, the default) or pooled (CLIP, DINOv2).
        revision: For image models on the hub: branch, tag or commit.
        batch: Clips per batch.
        camera: Camera of a LeRobot data set, as observation.images.front or front; needed if it has
            several.
    """

    encoder: str | None = None
    weights: Path | None = None
    frames: int | None = None
    rate: float | None = None
    size: int | None = None
    layer: str | None = None
    revision: str | None = None
    batch: int = 4
    device: AnyDevice = "auto"
    camera: str | None = None


DEFAULT_ENCODER = EncoderOptions()


def extract(
    source: Path,
    /,
    *,
    out: Path,
    run: Path | None = None,
    options: EncoderOptions = DEFAULT_ENCODER,
    json: Flag = False,
) -> int:
    """Extract features of videos: one .npy file a video, float32 [seconds, D].

    Args:
        source: A video, a folder of videos, or a LeRobot data set.
        out: Folder to write.
        run: A run whose encoder and settings are used, instead of those below.
        json: Print the outcome of each video as JSON.
    """
    result = extract_folder(source, out, options, run)
    if json:
        print_json({"out": str(out), **asdict(result)})
    if failed := len(result.failed):
        total = failed + len(result.written) + len(result.kept)
        talk(f"error: {failed} of {total} videos could not be read.", urgent=True)
    return 1 if failed else 0


def _encoder(run: Path | None, options: EncoderOptions) -> VideoEncoder:
    """Open the encoder of a run's features; without a run, the encoder of the options."""
    from cefito.encoders.video import open_encoder
    from cefito.inference.observer import ObservationRecipe
    from cefito.runs.run import open_run

    device = pick_device(options.device, float64=False)
    if run is None:
        settings = {**asdict(options), "device": device}
        del settings["batch"], settings["camera"]
        return open_encoder(settings.pop("encoder"), **settings)
    for name in given_names(options):
        if name not in ("weights", "device", "batch", "camera"):
            message = f"--run gives the encoder's settings. Leave {name} out."
            raise ConfigError(message, setting=name)
    return ObservationRecipe.of(open_run(run)).open(weights=options.weights, device=device).encoder


def extract_folder(
    source: Path,
    out: Path,
    options: EncoderOptions,
    run: Path | None = None,
    *,
    videos: Collection[str] | None = None,
) -> Extraction:
    """Extract features, and report the written, kept and failed videos.

    Args:
        source: A video file, a folder of them, or a LeRobot data set.
        out: Folder of the files of features.
        options: The encoder, its settings, and the camera of a LeRobot data set.
        run: Run whose encoder is taken, with its settings.
        videos: Names of the episodes of a LeRobot data set that are wanted; all if None.
    """
    from cefito.encoders.extraction import Parts, extract_videos

    camera, films = None, dict[str, Any]()
    if is_robot(source):
        robot = open_robot(source)
        camera = robot.camera(options.camera)
        for number in robot.episodes:
            if videos is None or episode_name(number) in videos:
                film = robot.film(number, camera)
                films[episode_name(number)] = film.path, film.part
    elif options.camera is not None:
        raise ConfigError("a camera is of a LeRobot data set. Leave it out.", setting="camera")
    wanted: Path | Parts = source if camera is None else films
    asked: dict[str, Any] = {"batch": options.batch, "camera": camera, "progress": progress}
    result = extract_videos(wanted, out, _encoder(run, options), **asked)
    for problem in result.failed.values():
        talk(f"left out: {problem}", urgent=True)
    parts = {"written": result.written, "there already": result.kept, "left out": result.failed}
    talk(f"{out}: " + ", ".join(f"{len(videos)} {how}" for how, videos in parts.items() if videos))
    return result


@said_as_json
def embed(
    dataset: DataFolder,
    /,
    *,
    out: Path,
    encoder: str = "clip",
    layer: str | None = None,
    revision: str | None = None,
    device: AnyDevice = "auto",
) -> dict[str, Any]:
    """Write a copy of a data set with text embeddings of its actions' names.

    Args:
        out: Folder to write, empty or new.
        encoder: clip (the paper's, ViT-B/32), t5 (Flan-T5-base), wordllama (installed with its
            weights), the folder of a CLIP or T5 model, its name on the Hugging Face hub
            (OWNER/MODEL), or a .npy file of embeddings, row = action id.
        layer: pooled (CLIP, before its projection: the default), projected (CLIP, after it), mean
            (T5, over the tokens).
        revision: Branch, tag or commit of a model on the hub.
    """
    from cefito.encoders.text import PretrainedText, WordLlamaText

    source, path = open_dataset(dataset), Path(encoder).expanduser()
    check_new(out)
    is_file = has_ending(path, (".npy",))
    if (is_file or encoder == "wordllama") and (layer, revision) != (None, None):
        raise ConfigError("--layer and --revision apply to other models. Leave them out.")
    if is_file:
        text = read_action_text(path, source.taxonomy)
        made_with = {"model": path.name, "layer": "as given", "revision": f"sha256:{sha256(path)}"}
    else:
        model: WordLlamaText | PretrainedText = WordLlamaText()
        if encoder != "wordllama":
            chosen = pick_device(device, float64=False)
            model = PretrainedText(
                encoder, layer=layer, revision=revision, device=chosen, progress=passing_progress
            )
        text = model.encode([action.name for action in source.taxonomy.actions])
        made_with = model.describe()
    written = with_action_text(source, out, text, made_with)
    facts = {**made_with, "actions": len(text), "size": text.shape[1]}
    table("Action text", ("what", "value"), list(facts.items()))
    return {**wrote(out, written), **facts}
