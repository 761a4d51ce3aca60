import json
from fractions import Fraction

import numpy as np
import pytest
import torch

from cefito.cli import main
from cefito.encoders.s3d import S3D
from cefito.encoders.video import extract_features, open_encoder

av = pytest.importorskip("av")
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
        with av.open(str(folder / name), "w") as container:
            stream = container.add_stream("libx264", rate=10)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for number in range(10 * seconds):
                pixels = np.full((48, 64, 3), 10 * number, np.uint8)
                frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
                frame.pts, frame.time_base = number, Fraction(1, 10)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
    return folder


def test_extract_again_and_again(videos, weights, tmp_path, capsys):
    out = tmp_path / "features"
    argv = [
        "extract",
        str(videos),
        "--encoder",
        "s3d",
        "--weights",
        str(weights),
        "--out",
        str(out),
        *TINY,
    ]
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("videos: 2/2, ")
    assert captured.err.splitlines()[-1] == f"{out}: 2 written"
    found = np.load(out / "tea.npy", allow_pickle=False)
    assert found.shape == (2, 512)
    assert found.dtype == np.float32
    wanted = extract_features(
        videos / "tea.mp4", open_encoder("s3d", weights=weights, frames=16, size=32)
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert np.load(out / "toast.npy").shape == (1, 512)

    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "out": str(out),
        "written": [],
        "kept": ["tea.mp4", "toast.mkv"],
        "failed": {},
    }
    assert captured.err.splitlines()[-1] == f"{out}: 2 there already"

    assert main([*argv, "--rate", "8"]) == 2
    assert "made with rate = 16.0, not 8.0" in capsys.readouterr().err


def test_videos_left_out_are_listed_and_exit_1(videos, weights, tmp_path, capsys):
    (videos / "broken.mp4").write_bytes(b"nothing at all")
    out = tmp_path / "features"
    assert (
        main(
            ["extract", str(videos), "--weights", str(weights), "--out", str(out), *TINY, "--json"]
        )
        == 1
    )
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    assert value["written"] == ["tea.mp4", "toast.mkv"]
    assert list(value["failed"]) == ["broken.mp4"]
    *_, left_out, counts = captured.err.splitlines()
    assert left_out.startswith(f"left out: {videos / 'broken.mp4'}: cannot be opened as a video")
    assert counts == f"{out}: 2 written, 1 left out"
    assert not (out / "broken.npy").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            ["--weights", "nowhere.pth"],
            "nowhere.pth: no such file. Fetch s3d_howto100m.pth (project "
            "antoine77340/S3D_HowTo100M) by 'cefito data download s3d FOLDER'",
        ),
        (
            ["--encoder", "i3d"],
            "unknown encoder 'i3d'; expected s3d, clip, dinov2, the folder of a CLIP or DINOv2 "
            "model",
        ),
        (
            ["--encoder", "dinov2"],
            "weights: does not go with the encoder dinov2, only with s3d. Leave it out.",
        ),
        (["--layer", "pooled"], "layer: does not go with the encoder s3d"),
        (["--frames", "15"], "15 frames a clip: S3D takes even numbers only"),
        (["--batch", "0"], "a batch of 0 clips: expected at least 1."),
        (["--device", "abacus"], "unknown device 'abacus'"),
    ],
)
def test_wrong_calls_are_one_line(videos, weights, tmp_path, capsys, changed, message):
    given = {
        "--weights": str(weights),
        "--out": str(tmp_path / "features"),
        "--frames": "16",
        "--size": "32",
        "--device": "cpu",
        **dict([changed]),
    }
    assert main(["extract", str(videos), *(part for pair in given.items() for part in pair)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err.splitlines()[-1]
    assert not list(tmp_path.rglob("*.npy"))


def test_weights_are_required(videos, tmp_path, capsys):
    assert main(["extract", str(videos), "--out", str(tmp_path / "features")]) == 2
    assert (
        "the encoder s3d needs the file of its weights, s3d_howto100m.pth"
        in capsys.readouterr().err
    )


def test_a_model_of_pictures(videos, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    folder, out = tmp_path / "model", tmp_path / "features"
    shape = {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.CLIPVisionModelWithProjection(
            transformers.CLIPVisionConfig(**shape, image_size=24, patch_size=8, projection_dim=6)
        )
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "size": {"shortest_edge": 24},
                "crop_size": {"height": 24, "width": 24},
                "resample": 3,
                "image_mean": [0.5, 0.5, 0.5],
                "image_std": [0.2, 0.2, 0.2],
                "do_resize": True,
                "do_center_crop": True,
            }
        )
    )
    for layer, width in (("projected", 6), ("pooled", 8)):
        target = out / layer
        argv = [
            "extract",
            str(videos),
            "--encoder",
            str(folder),
            "--layer",
            layer,
            "--out",
            str(target),
            "--device",
            "cpu",
        ]
        assert main(argv) == 0
        assert capsys.readouterr().err.splitlines()[-1] == f"{target}: 2 written"
        assert np.load(target / "tea.npy").shape == (2, width)
        record = json.loads((target / "extract.json").read_text())
        assert (record["layer"], record["frames"], record["size"]) == (layer, 1, None)
