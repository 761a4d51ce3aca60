import json

import numpy as np
import pytest
import torch

from cefito.encoders.s3d import S3D
from cefito.encoders.video import extract_features, open_encoder
from grey_videos import draw_greys

pytest.importorskip("av")
TINY = ["--frames", "16", "--size", "32", "--device", "cpu"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Random weights under the names of the released ones."""
    path = tmp_path_factory.mktemp("weights") / "s3d.pth"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(S3D().state_dict(), path)
    return path


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    for name, seconds in (("tea.mp4", 2), ("toast.mkv", 1)):
        draw_greys(folder / name, seconds)
    return folder


def test_extract_again_and_again(videos, weights, tmp_path, ran, refused):
    out = tmp_path / "features"
    argv = ("extract", videos, "--encoder", "s3d", "--weights", weights, "--out", out, *TINY)
    captured = ran(*argv)
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("videos: 2/2, ")
    assert captured.err.splitlines()[-1] == f"{out}: 2 written"
    found = np.load(out / "tea.npy", allow_pickle=False)
    assert (found.shape, found.dtype) == ((2, 512), np.float32)
    assert open_encoder("s3d", weights=weights).sampling.frames == 32  # by default
    encoder = open_encoder("s3d", weights=weights, frames=16, size=32)
    wanted = extract_features(videos / "tea.mp4", encoder)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert np.load(out / "toast.npy").shape == (1, 512)

    captured = ran(*argv, "--json")
    lists = {"written": [], "kept": ["tea.mp4", "toast.mkv"], "failed": {}}
    assert json.loads(captured.out) == {"out": str(out), **lists}
    assert captured.err.splitlines()[-1] == f"{out}: 2 there already"

    assert "made with rate = 16.0, not 8.0" in refused(*argv, "--rate", 8)


def test_videos_left_out_are_listed_and_exit_1(videos, weights, tmp_path, call):
    (videos / "broken.mp4").write_bytes(b"nothing at all")
    out = tmp_path / "features"
    code, found, err = call("extract", videos, "--weights", weights, "--out", out, *TINY, "--json")
    assert code == 1
    value = json.loads(found)
    assert value["written"] == ["tea.mp4", "toast.mkv"]
    assert list(value["failed"]) == ["broken.mp4"]
    *_, left_out, counts, error = err.splitlines()
    assert left_out.startswith(f"left out: {videos / 'broken.mp4'}: cannot be opened as a video")
    assert counts == f"{out}: 2 written, 1 left out"
    assert error == "error: 1 of 3 videos could not be read."
    assert not (out / "broken.npy").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--weights", "nowhere.pth"], "nowhere.pth: no such file. Fetch s3d_howto100m.pth"),
        (["--weights", None], "frames: the encoder efficientnet-lite0 has no such setting."),
        (
            ["--encoder", "i3d"],
            "unknown encoder 'i3d'; expected efficientnet-lite0, s3d, clip, dinov2, the folder of",
        ),
        (["--encoder", "dinov2"], "weights: the encoder dinov2 has no such setting."),
        (["--layer", "pooled"], "layer: the encoder s3d has no such setting."),
        (["--frames", "15"], "15 frames a clip: S3D takes even numbers only"),
        (["--batch", "0"], "a batch of 0 clips: expected at least 1."),
        (["--device", "abacus"], "device 'abacus': is unknown"),
    ],
)
def test_wrong_calls_are_one_line(videos, weights, tmp_path, call, changed, message):
    given = {"--weights": weights, "--out": tmp_path / "features"}
    given |= dict(zip(TINY[::2], TINY[1::2], strict=True)) | dict([changed])
    options = [part for pair in given.items() if None not in pair for part in pair]
    code, out, err = call("extract", videos, *options)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert not (tmp_path / "features").exists()
