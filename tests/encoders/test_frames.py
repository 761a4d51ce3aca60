"""Pictures at given times, against a slow reference, over containers, from damaged files."""

from __future__ import annotations

import itertools
import re
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.encoders import frames as module
from cefito.encoders.frames import Sampling, camera_clips, clips, gather, part_of, probe
from cefito.errors import ConfigError, DataError
from encoders.drawn_videos import grey, mux_silence, steady, write_video
from refusals import refusal

av = pytest.importorskip("av")
SMALL = Sampling(frames=8, rate=8, size=32)


def slow_clip(path, second, sampling):
    """Brightness of the pictures of a clip, of which all are decoded."""
    with av.open(str(path)) as container:
        origin = container.start_time / 1e6
        decoded = [
            (frame.time - origin, frame.to_ndarray(format="rgb24").mean())
            for frame in container.decode(video=0)
        ]
    times = [
        second + 0.5 - sampling.frames / sampling.rate / 2 + (place + 0.5) / sampling.rate
        for place in range(sampling.frames)
    ]
    return [
        ([level for begin, level in decoded if begin <= time + 1e-9] or [decoded[0][1]])[-1]
        for time in times
    ]


def levels(clip):
    return clip.float().mean(dim=(0, 2, 3)).numpy()


def test_times_of_a_second():
    assert Sampling(frames=4, rate=4).times(7) == [7.125, 7.375, 7.625, 7.875]
    assert Sampling(frames=4, rate=2).times(0) == [-0.25, 0.25, 0.75, 1.25]
    assert Sampling(frames=1, rate=9).times(3) == [3.5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frames": 257}, "257 frames a clip: expected a number from 1 to 256"),
        ({"rate": float("nan")}, "nan frames a second"),
        ({"size": 2}, "pictures of 2 pixels: expected 16 to 1024"),
        ({"size": None}, "32 frames a clip: give them one size"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError, match=message):
        Sampling(**settings)


@given(
    begins=st.lists(st.floats(0, 12), min_size=1, max_size=40),
    seconds=st.sets(st.integers(0, 11), min_size=1),
    frames=st.sampled_from([2, 4, 10]),
    rate=st.sampled_from([1.0, 4.0, 30.0]),
)
def test_gather_equals_a_slow_search(begins, seconds, frames, rate):
    begins, sampling, made = sorted(begins), Sampling(frames=frames, rate=rate), []

    def picture(number):
        made.append(number)
        return torch.tensor(number)

    stream = ((time, number) for number, time in enumerate(begins))
    found = [
        [int(number) for number in clip]
        for clip in gather(stream, sorted(seconds), sampling, picture)
    ]
    wanted = [
        [max(sum(begin <= time for begin in begins) - 1, 0) for time in sampling.times(second)]
        for second in sorted(seconds)
    ]
    assert found == wanted
    assert sorted(set(made)) == made  # no frame is converted twice
    assert set(made) == {number for clip in wanted for number in clip}


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.ts"])
def test_clips_of_every_container(name, tmp_path):
    path = write_video(tmp_path / name, steady(3.2))
    info = probe(path)
    assert info.duration == pytest.approx(3.2, abs=0.05)
    assert info.seconds == 3
    found = list(clips(info, range(3), SMALL))
    assert len(found) == 3
    for second, clip in enumerate(found):
        assert clip.shape == (3, 8, 32, 32)
        assert clip.dtype == torch.uint8
        np.testing.assert_allclose(levels(clip), slow_clip(path, second, SMALL), atol=1)


def test_packets_without_times_are_counted(tmp_path):
    path = write_video(tmp_path / "clip.h264", steady(3))
    info = probe(path)
    assert not info.timed
    assert info.duration == pytest.approx(3, abs=0.1)
    found = list(clips(info, [0, 2], SMALL))
    times = np.array(SMALL.times(2))
    np.testing.assert_allclose(levels(found[1]), [grey(int(time * 25)) for time in times], atol=2)


def test_counted_frames_have_the_rate_of_the_stream(tmp_path, caplog):
    path = write_pictures(tmp_path / "slow.h264", 40, codec="libx264", rate=10)
    assert probe(path).duration == pytest.approx(4, abs=0.1)
    assert not caplog.messages
    path = write_pictures(tmp_path / "camera.mjpeg", 50)
    assert probe(path).seconds == 2
    assert "has no times; its pictures are counted at 25 a second" in caplog.messages[0]


def write_pictures(path, count, *, codec="mjpeg", rate=25):
    """Pictures one after another without times, as many cameras send JPEG."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height = 48, 32
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for number in range(count):
            pixels = np.full((32, 48, 3), grey(number), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mov", "clip.mkv", "clip.ts"])
def test_a_picture_that_stands_still_is_no_end(name, tmp_path):
    """Packets of an MP4 file last until the next one in the order of decoding."""
    path = write_video(tmp_path / name, [*steady(3), *(time + 63 for time in steady(3))])
    assert probe(path).duration == pytest.approx(66, abs=0.05)
    shown = [float(clip.float().mean()) for clip in clips(probe(path), [30, 64], SMALL)]
    assert shown[0] == pytest.approx(grey(74), abs=2)
    times = [*steady(2), 3, 9, 20]
    assert probe(write_video(path, times)).duration == pytest.approx(20, abs=0.6)


def test_variable_frame_rate(tmp_path):
    """The duration of frames counts, not their number."""
    times = [0, 0.04, 0.08, 0.6, 0.62, 2.3, 2.9, 2.95, 3.4, 3.45]
    path = write_video(tmp_path / "clip.mkv", times)
    info = probe(path)
    for second, clip in enumerate(clips(info, range(info.seconds), SMALL)):
        shown = [
            max(number for number, begin in enumerate(times) if begin <= time)
            for time in SMALL.times(second)
        ]
        np.testing.assert_allclose(levels(clip), [grey(number) for number in shown], atol=2)
    assert second == 2  # the fourth second does not reach its middle


@pytest.mark.parametrize(("length", "seconds"), [(0.2, 1), (1.48, 1), (1.52, 2), (3.0, 3)])
def test_a_second_counts_if_its_middle_is_in_the_video(length, seconds, tmp_path):
    times = steady(length, rate=50 if length < 3 else 25)
    assert probe(write_video(tmp_path / "clip.mkv", times)).seconds == seconds


def test_clips_reach_into_neighbouring_seconds_and_repeat_at_the_borders(tmp_path):
    path = write_video(tmp_path / "clip.mp4", steady(4))
    info, wide = probe(path), Sampling(frames=12, rate=4, size=32)
    for second, clip in enumerate(clips(info, range(4), wide)):
        np.testing.assert_allclose(levels(clip), slow_clip(path, second, wide), atol=1)
    first = next(clips(info, [0], wide))
    assert torch.equal(first[:, 0], first[:, 3])  # before the video begins
    assert not torch.equal(first[:, 0], first[:, 8])


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.ts"])
def test_some_seconds_of_a_long_video_are_the_same_as_in_all(name, tmp_path, monkeypatch):
    path = write_video(tmp_path / name, steady(40, rate=10))
    info, decoded = probe(path), []
    every = list(clips(info, range(40), SMALL))
    original = module.decoded

    def counting(*arguments):
        for time, frame in original(*arguments):
            decoded.append(time)
            yield time, frame

    monkeypatch.setattr(module, "decoded", counting)
    wanted = [0, 1, 19, 20, 21, 39]
    for second, clip in zip(wanted, clips(info, wanted, SMALL), strict=True):
        assert torch.equal(clip, every[second])
    if name != "clip.ts":  # which has no index to seek by
        assert len(decoded) < 150


def turned(path, matrix):
    """Write another display matrix into an MP4 file, by hand."""
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 4 + 40
    data[place : place + 36] = struct.pack(
        ">9i", *(round(value * 65536) for value in matrix[:8]), 1 << 30
    )
    path.write_bytes(data)
    return path


def corners(number):
    """Red top left, green top right, blue bottom left, grey bottom right."""
    pixels = np.full((32, 32, 3), 128, np.uint8)
    pixels[:16, :16], pixels[:16, 16:], pixels[16:, :16] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    return pixels


def seen(clip):
    """Colours of the four corners, clockwise from the top left."""
    names = {0: "red", 1: "green", 2: "blue"}
    picture = clip[:, 0].int()
    found = []
    for row, column in ((4, 4), (4, -4), (-4, -4), (-4, 4)):
        pixel = picture[:, row, column]
        found.append(names[int(pixel.argmax())] if pixel.max() - pixel.min() > 100 else "grey")
    return found


# [a b u; c d v; x y w]: (x, y) is shown at (a x + c y, b x + d y), y downwards
@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ((1, 0, 0, 0, 1, 0, 0, 0), ["red", "green", "grey", "blue"]),
        # a quarter clockwise: a phone held upright
        ((0, 1, 0, -1, 0, 0, 0, 0), ["blue", "red", "green", "grey"]),
        ((-1, 0, 0, 0, -1, 0, 0, 0), ["grey", "blue", "red", "green"]),
        ((0, -1, 0, 1, 0, 0, 0, 0), ["green", "grey", "blue", "red"]),
        # mirrored: a front camera; upside down; and both with a quarter
        ((-1, 0, 0, 0, 1, 0, 0, 0), ["green", "red", "blue", "grey"]),
        ((1, 0, 0, 0, -1, 0, 0, 0), ["blue", "grey", "green", "red"]),
        ((0, 1, 0, 1, 0, 0, 0, 0), ["red", "blue", "grey", "green"]),
        ((0, -1, 0, -1, 0, 0, 0, 0), ["grey", "green", "red", "blue"]),
    ],
)
def test_the_eight_orientations(matrix, expected, tmp_path):
    path = write_video(tmp_path / "clip.mp4", steady(1), picture=corners, width=32)
    assert seen(next(clips(probe(turned(path, matrix)), [0], SMALL))) == expected


def bands(width, height):
    """Red, green and blue side by side, a third each."""

    def picture(number):
        pixels = np.zeros((height, width, 3), np.uint8)
        for channel in range(3):
            pixels[:, channel * width // 3 : (channel + 1) * width // 3, channel] = 255
        return pixels

    return picture


def shares(clip):
    picture = clip[:, 0, 16].float()
    return [float((picture.argmax(dim=0) == channel).float().mean()) for channel in range(3)]


@pytest.mark.parametrize(
    ("width", "height", "aspect", "expected"),
    [
        (96, 32, None, [0, 1, 0]),
        (48, 96, None, [1 / 3] * 3),
        (64, 64, 3, [0, 1, 0]),  # pixels that are thrice as wide as high
    ],
)
def test_the_long_side_is_cut_about_the_middle(tmp_path, width, height, aspect, expected):
    sizes = {"picture": bands(width, height), "width": width, "height": height, "aspect": aspect}
    info = probe(write_video(tmp_path / "clip.mp4", steady(1), **sizes))
    assert info.aspect == (aspect or 1)
    assert shares(next(clips(info, [0], SMALL))) == pytest.approx(expected, abs=0.07)


def test_whole_pictures(tmp_path):
    """At their own size, upright, with square pixels."""
    whole = Sampling(frames=1, size=None)
    path = write_video(tmp_path / "clip.mp4", steady(2), picture=bands(48, 32))
    first, second = clips(probe(path), [0, 1], whole)
    assert first.shape == second.shape == (3, 1, 32, 48)
    assert shares(first) == pytest.approx([1 / 3] * 3, abs=0.05)
    upright = probe(turned(path, (0, 1, 0, -1, 0, 0, 0, 0)))
    assert next(clips(upright, [0], whole)).shape == (3, 1, 48, 32)
    path = write_video(tmp_path / "wide.mp4", steady(1), aspect=3)
    assert next(clips(probe(path), [0], whole)).shape == (3, 1, 32, 144)


def decode(path):
    info = probe(path)
    return list(clips(info, range(info.seconds), SMALL))


def refused(path, read=probe):
    message = refusal(DataError, read, path)
    assert message.startswith(f"{path}: ")
    assert message.endswith(".")
    return message


@pytest.mark.parametrize(
    ("name", "options"), [("clip.mkv", {}), ("clip.mp4", {"movflags": "faststart"})]
)
def test_truncated_files(name, options, tmp_path):
    path = write_video(tmp_path / name, steady(10), options=options)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    found = re.search(r"is truncated: it ends at second (.*), but announces 10.0", refused(path))
    assert 3 < float(found[1]) < 7
    path.write_bytes(content[:20])  # before its index
    assert "cannot be opened as a video" in refused(path)


def test_a_short_picture_beside_longer_sound_is_no_fault(tmp_path):
    path = write_video(tmp_path / "clip.mp4", steady(2), audio=9)
    info = probe(path)
    assert info.duration == pytest.approx(2, abs=0.1)
    assert info.seconds == 2


def decoded_again(path):
    """Decode a film five times: FFmpeg's threads can lose that a picture is damaged."""
    for _ in range(5):
        decode(path)


@pytest.mark.parametrize(
    ("share", "length", "fault"),
    [(0, 3000, "cannot be decoded at second"), (0.5, 40, "is damaged at second")],
)
def test_damage_is_reported_with_its_second(share, length, fault, tmp_path):
    """Damage of whole pictures, and of a part of one, which a decoder hides."""
    noise = np.random.default_rng(0).integers(0, 255, (100, 32, 48, 3), np.uint8)
    path = write_video(tmp_path / "clip.mp4", steady(4), picture=lambda number: noise[number])
    with av.open(str(path)) as container:
        position, size = min(
            (packet.pos, packet.size)
            for packet in container.demux(video=0)
            if packet.size and packet.pts * packet.time_base >= 2
        )
    content = bytearray(path.read_bytes())
    begin = position + int(share * size)
    content[begin : begin + length] = b"\xff" * length
    path.write_bytes(content)
    message = refused(path, decoded_again)
    second = float(message.split(" at second ")[1].split(" ")[0].rstrip("."))
    assert 1.5 <= second <= 3.2
    assert fault in message
    assert len(list(clips(probe(path), [0], SMALL))) == 1  # earlier seconds can be read


def test_sound_alone(tmp_path):
    path = sound(tmp_path / "sound.mp4")
    assert "has no video stream (streams found: audio). Give" in refused(path)


def sound(path):
    with av.open(str(path), "w") as container:
        mux_silence(container, container.add_stream("aac", rate=8000, layout="mono"), 2)
    return path


def test_files_of_other_kinds(tmp_path):
    assert "no such file" in refused(tmp_path / "nowhere.mp4")
    assert "it is a folder" in refused(tmp_path)
    path = tmp_path / "file.mp4"
    path.write_bytes(b"hello " * 100)
    assert "cannot be opened as a video" in refused(path)


def test_timestamps_that_jump(tmp_path):
    path = write_video(tmp_path / "clip.mkv", [0, 0.1, 0.2, 90_000, 90_000.1])
    assert re.search(r"timestamps jump from second 0\.\d to 90000\.\d", refused(path))


def joined(path, *offsets):
    """Recordings of three seconds one after another, whose clocks begin at these times."""
    content = b""
    for offset in offsets:
        times = [offset + time for time in steady(3, rate=10)]
        content += write_video(path, times).read_bytes()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("offsets", [(0, 0), (0, 0, 0), (0, 300), (300, 0), (95_000, 0)])
def test_a_clock_that_restarts(offsets, tmp_path):
    """Recordings that were joined; 2^33 ticks of such a clock are 95443.7 seconds."""
    path = joined(tmp_path / "clip.ts", *offsets)
    assert re.search(r"timestamps jump from second 2\.\d to .*, as in joined", refused(path))


@pytest.mark.parametrize("begin", [95_435, 95_442])
def test_a_clock_that_wraps(begin, tmp_path):
    path = joined(tmp_path / "clip.ts", begin)
    assert probe(path).duration == pytest.approx(3, abs=0.05)
    found = [float(clip.float().mean()) for clip in clips(probe(path), [0, 2], Sampling(frames=1))]
    assert found == pytest.approx([grey(5), grey(25)], abs=4)


@pytest.mark.parametrize(("width", "aspect", "size"), [(20_000, 1, 224), (2000, 50_000, None)])
def test_long_frames_do_not_become_enormous(tmp_path, width, aspect, size):
    info = module.VideoInfo(
        path=tmp_path / "long.mp4", origin=0, duration=1, aspect=aspect, timed=True
    )
    frame = av.VideoFrame(width, 2, "gray")
    with pytest.raises(DataError, match=r"long\.mp4: a frame of "):
        module._picture(frame, size, info)


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.ts"])
def test_a_clock_that_starts_late(name, tmp_path):
    path = write_video(tmp_path / name, [time + 3600 for time in steady(3)])
    info = probe(path)
    assert (round(info.origin), info.seconds) == (3600, 3)
    assert abs(info.duration - 3) < 0.1
    middle = Sampling(frames=1, rate=1, size=32)
    found = [float(clip.float().mean()) for clip in clips(probe(path), [0, 2], middle)]
    assert found == pytest.approx([grey(12), grey(62)], abs=4)


def test_a_camera_gives_a_picture_a_second(tmp_path):
    """The device is a file here, which is read in the same way."""
    path, pictures = tmp_path / "camera.mp4", Sampling(frames=1, rate=1, size=None)
    write_video(path, [place / 10 for place in range(35)])
    found = list(camera_clips(str(path), pictures))
    assert [time for time, _ in found] == pytest.approx([0, 1, 2, 3], abs=0.11)
    assert all(clip.shape == (3, 1, 32, 48) for _, clip in found)
    with pytest.raises(DataError, match="gives no pictures"):
        list(camera_clips("/dev/no-such-camera", pictures))
    with pytest.raises(ConfigError, match="the encoder takes clips"):
        list(camera_clips(str(path), Sampling(frames=4, rate=4, size=32)))
    with pytest.raises(DataError, match="has no video stream"):
        list(camera_clips(str(sound(tmp_path / "sound.mp4")), pictures))


def test_a_camera_shows_what_a_film_shows(tmp_path):
    """Upright, and with square pixels."""
    whole = Sampling(frames=1, rate=1, size=None)
    path = write_video(tmp_path / "clip.mp4", steady(1), picture=corners, width=32, aspect=3)
    (film,) = clips(probe(turned(path, (0, 1, 0, -1, 0, 0, 0, 0))), [0], whole)
    for device in path, path.as_uri():
        ((_, picture),) = camera_clips(str(device), whole)
        assert picture.shape == film.shape == (3, 1, 96, 32)
        assert seen(picture) == seen(film) == ["blue", "red", "green", "grey"]


def test_a_camera_without_a_clock_has_the_wall_clock(tmp_path, monkeypatch, caplog):
    ticks = itertools.count()
    monkeypatch.setattr(module, "monotonic", lambda: next(ticks) / 4)
    pictures = Sampling(frames=1, rate=1, size=None)
    device = write_pictures(tmp_path / "camera.mjpeg", 14).as_uri()
    found = [(time, float(clip.float().mean())) for time, clip in camera_clips(device, pictures)]
    assert [time for time, _ in found] == [0, 1, 2, 3]
    assert [level for _, level in found] == pytest.approx([grey(4 * n) for n in range(4)], abs=4)
    assert not caplog.messages


def test_a_camera_whose_clock_restarts(tmp_path, monkeypatch):
    """As after a new connection: by the wall clock, it was there again at once."""
    monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    pictures = Sampling(frames=1, rate=1, size=None)
    for offsets in (0, 0), (0, 300):
        device = joined(tmp_path / "camera.ts", *offsets).as_uri()
        times = [time for time, _ in camera_clips(device, pictures)]
        assert times == pytest.approx([0, 1, 2, 3, 4, 5], abs=0.11)


def test_a_part_is_seen_as_a_film_of_its_own(tmp_path):
    """Of three films in one file, each clip is as of the film alone, also at its borders."""
    lengths, rate, begin = (24, 21, 30), 8, 0

    def written(name, first, count):
        picture = lambda number: np.full((32, 48, 3), grey(first + number), np.uint8)  # noqa: E731
        return probe(write_video(tmp_path / name, steady(count / rate, rate), picture=picture))

    whole = written("all.mp4", 0, sum(lengths))
    for number, count in enumerate(lengths):
        start, end = begin / rate, (begin + count) / rate
        part, alone = part_of(whole, start, end), written(f"{number}.mp4", begin, count)
        for moved in (0, 2e-4, -2e-4):  # of rounded times
            part = part_of(whole, max(start + moved, 0), end + moved)
            assert part.seconds == alone.seconds
            for sampling in (SMALL, Sampling(frames=4, rate=2.1, size=32)):
                pairs = zip(
                    clips(part, range(part.seconds), sampling),
                    clips(alone, range(part.seconds), sampling),
                    strict=True,
                )
                for seen, expected in pairs:
                    np.testing.assert_allclose(levels(seen), levels(expected), atol=3)
        begin += count
    with pytest.raises(DataError, match=r"lacks 9\.0 to 10\.0"):
        part_of(whole, 9.0, 10.0)
