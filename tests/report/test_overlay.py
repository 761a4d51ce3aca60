"""Films with their steps drawn in: pictures change where they should, times and sound stay."""

import struct
from fractions import Fraction

import numpy as np
import pytest

from cefito.encoders.frames import probe
from cefito.errors import ConfigError, DataError
from cefito.tracks import TimedStep, Track
from cefito.verification.findings import Deviation
from encoders.drawn_videos import mux_silence, steady, write_video

av = pytest.importorskip("av")

from cefito.report.overlay import (  # noqa: E402
    check_overlay,
    fonts_for,
    overlay_film,
    overlay_targets,
)

SIZE = 160, 120
BOX = slice(100, 120), slice(0, 60)  # of the first line, without its end
ABOVE = slice(0, 60), slice(0, 160)


def step(name, start, end, probability=0.5):
    return TimedStep(action=0, name=name, start=start, end=end, probability=probability)


def track(*steps):
    return Track(video="film", task="tea", seconds=6, steps=steps or (step("boil", 1, 3),))


def finding(start=None, end=None):
    return Deviation(
        kind="long",
        words="too long",
        action=0,
        name="boil",
        start=start,
        end=end,
        probability=0.9,
        evidence="seen",
    )


def pictures(path):
    """The grey pictures of a film and their times."""
    with av.open(str(path)) as film:
        frames = [*film.decode(video=0)]
    return np.array([frame.to_ndarray(format="gray") for frame in frames], np.int16), [
        Fraction(frame.pts * frame.time_base) for frame in frames
    ]


def sound(path):
    with av.open(str(path)) as film:
        stream = film.streams.audio[0]
        packets = [packet for packet in film.demux(stream) if packet.size]
        return stream.codec_context.name, [
            (bytes(packet), packet.pts * packet.time_base, packet.duration * packet.time_base)
            for packet in packets
        ]


def announced(path):
    """Seconds of pictures that a film announces."""
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        return float(stream.duration * stream.time_base)


@pytest.fixture
def overlay(tmp_path):
    """Draw into a film, and return the pictures and times before and after."""

    def overlay(film, *steps, findings=(), ending=".mp4"):
        out = tmp_path / f"out{ending}"
        assert overlay_film(film, out, track(*steps), findings) == ""
        return *pictures(film), *pictures(out), out

    return overlay


def changed(before, after, place=BOX):
    """Whether each picture differs in a place, by more than the encoder changes it."""
    rows, columns = place
    return (np.abs(before - after)[:, rows, columns].max(axis=(1, 2)) > 40).tolist()


def test_the_step_is_drawn_while_it_lasts(overlay, tmp_path):
    film = write_video(tmp_path / "film.mp4", steady(6, 10), width=160, height=120, audio=6)
    before, times, after, same, out = overlay(film)
    assert same == times
    assert changed(before, after) == [1 <= time < 3 for time in times]
    assert not any(changed(before, after, ABOVE))
    assert sound(out) == sound(film)
    assert probe(out).duration == announced(out) == probe(film).duration


def test_findings_are_drawn_above_one_another(overlay, tmp_path):
    """One with a time while its step lasts, one without in the whole film."""
    film = write_video(tmp_path / "film.mp4", steady(6, 10), width=160, height=120)
    before, times, after, *_ = overlay(film, findings=[finding(4, 5)])
    assert changed(before, after) == [1 <= time < 3 or 4 <= time < 5 for time in times]
    before, times, after, *_ = overlay(film, findings=[finding()] * 9)
    second = slice(86, 100), slice(0, 60)
    assert all(changed(before, after))
    assert changed(before, after, second) == [True] * len(times)  # five lines at most
    assert not any(changed(before, after, (slice(0, 30), slice(0, 160))))


def test_text_is_drawn_once_a_step(overlay, tmp_path, monkeypatch):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn, draw = [], FigureCanvasAgg.draw
    monkeypatch.setattr(
        FigureCanvasAgg, "draw", lambda canvas: [drawn.append(canvas.figure.texts), draw(canvas)]
    )
    film = write_video(tmp_path / "film.mp4", steady(6, 10), width=320, height=120)
    steps = step("boil", 0, 2), step("pour", 2, 3, 0.75), step("wait", 4, 6)
    overlay(film, *steps, findings=[finding(4, 6)])
    assert [[text.get_text() for text in texts] for texts in drawn] == [
        ["1. boil (50.0 %)"],
        ["2. pour (75.0 %)"],
        ["3. wait (50.0 %)", "boil: too long (90.0 %)"],
    ]


def test_times_of_a_variable_rate(overlay, tmp_path):
    times = [0, 0.04, 0.5, 1.7, 1.701, 2.25, 5]
    film = write_video(tmp_path / "film.mp4", times, width=160, height=120)
    before, _, after, same, out = overlay(film)
    assert [float(time) for time in same] == times
    assert changed(before, after) == [1 <= time < 3 for time in times]
    assert probe(out).duration == announced(out) == probe(film).duration


def test_a_film_that_begins_late_and_its_sound(overlay, tmp_path):
    film = write_video(
        tmp_path / "film.ts", [1 + time for time in steady(2, 10)], width=160, height=120, audio=3
    )
    before, times, after, same, out = overlay(film, step("boil", 1.25, 2.05), ending=".mkv")
    apart = {round(float(ours - theirs), 2) for ours, theirs in zip(same, times, strict=True)}
    assert len(apart) == 1  # the clock of the film may begin at 0
    (shift,) = apart
    sounds = [[time for _, time, _ in sound(path)[1]] for path in (film, out)]
    assert [float(time) + shift for time in sounds[0]] == pytest.approx(
        [float(time) for time in sounds[1]], abs=0.011
    )
    assert 7 <= sum(changed(before, after)) <= 9


@pytest.mark.parametrize("ending", [".mp4", ".mkv"])
def test_odd_sides_and_pixels_that_are_not_square(ending, overlay, tmp_path):
    film = write_video(
        tmp_path / "film.mp4", steady(4, 5), width=161, height=119, crf=5, aspect="4/3"
    )
    before, times, after, same, out = overlay(film, ending=ending)
    assert after.shape[1:] == (120, 162)
    assert np.abs(after[:, 119, :161].astype(int) - after[:, 118, :161]).mean() < 4  # repeated
    assert np.abs(after[:, :119, 161].astype(int) - after[:, :119, 160]).mean() < 4
    assert same == times
    assert changed(before, after[:, :119, :161], (slice(100, 118), slice(0, 60))) == [
        1 <= time < 3 for time in times
    ]
    with av.open(str(out)) as written:
        assert written.streams.video[0].sample_aspect_ratio == Fraction(4, 3)


def test_a_turned_film_is_upright(overlay, tmp_path):
    """The display matrix of a quarter turn is written into the file by hand."""
    film = write_video(
        tmp_path / "film.mp4",
        steady(4, 5),
        width=160,
        height=120,
        aspect="4/3",
        picture=lambda _: np.repeat(
            np.linspace(0, 255, 160, dtype=np.uint8)[None, :, None], 120, axis=0
        ).repeat(3, axis=2),
    )
    one, content = 1 << 16, film.read_bytes()
    plain, turn = (
        struct.pack(">9i", *matrix, 1 << 30)
        for matrix in ((one, 0, 0, 0, one, 0, 0, 0), (0, one, 0, -one, 0, 0, 0, 0))
    )
    place = content.index(plain, content.index(b"tkhd"))
    film.write_bytes(content[:place] + turn + content[place + len(turn) :])
    *_, after, times, out = overlay(film)
    assert after.shape[1:] == (160, 120)
    rows = after[-1].mean(axis=1)  # dark rows above
    assert rows[5] < 20
    assert rows[-5] > 235
    expected = np.repeat(after[-1:], len(after), axis=0)
    low = slice(150, 160), slice(0, 50)
    assert changed(after, expected, low) == [1 <= time < 3 for time in times]
    with av.open(str(out)) as written:
        frame = next(written.decode(video=0))
        assert written.streams.video[0].sample_aspect_ratio == Fraction(3, 4)
        assert frame.rotation == 0


def test_sound_alone_is_refused_by_its_name(tmp_path):
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        mux_silence(container, container.add_stream("aac", rate=8000, layout="mono"), 2)
    with pytest.raises(DataError, match=r"sound\.mp4: has no video stream"):
        overlay_film(tmp_path / "sound.mp4", tmp_path / "out.mp4", track())
    assert not (tmp_path / "out.mp4").exists()


def test_sound_that_does_not_fit_is_refused_by_its_name(overlay, tmp_path):
    film = tmp_path / "film.avi"
    with av.open(str(film), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        waves = container.add_stream("pcm_u8", rate=8000, layout="mono")
        for number in range(20):
            picture = np.full((120, 160, 3), 90, np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 5)
            container.mux(stream.encode(frame))
        silence = av.AudioFrame.from_ndarray(
            np.full((1, 1024), 128, np.uint8), format="u8", layout="mono"
        )
        silence.sample_rate = 8000
        container.mux(waves.encode(silence))
        for stream in container.streams:
            container.mux(stream.encode())
    with pytest.raises(DataError, match=r"film\.avi: has sound that does not fit.*\.mkv"):
        overlay(film)
    *_, times, out = overlay(film, ending=".mkv")
    assert len(times) == 20
    assert [part[0] for part in sound(out)[1]] == [part[0] for part in sound(film)[1]]


def test_letters_that_no_font_has_are_said(tmp_path, monkeypatch):
    from matplotlib.font_manager import fontManager

    latin = [font for font in fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", latin)
    film = write_video(tmp_path / "film.mp4", steady(1, 5), width=160, height=120)
    steps = [step(name, 0, 1) for name in ("Öl, чай, お湯", "湯 お茶")]
    assert overlay_film(film, tmp_path / "out.mp4", track(*steps)) == "お湯茶"
    same = [step(name, 0, 1) for name in ("Öl, чай, ??", "? ??")]
    assert overlay_film(film, tmp_path / "same.mp4", track(*same)) == ""
    assert (tmp_path / "same.mp4").read_bytes() == (tmp_path / "out.mp4").read_bytes()
    assert fonts_for("Öl чай α") == (["DejaVu Sans"], "")
    assert fonts_for("ℵ𝔸")[1] == ""


def test_long_names_and_small_pictures(overlay, tmp_path):
    film = write_video(tmp_path / "film.mp4", steady(1, 5), width=48, height=32)
    before, _, after, *_ = overlay(film, *(step("boil " * 50, 0, 1) for _ in range(5)))
    assert after.shape == before.shape
    assert all(changed(before, after, (slice(0, 32), slice(0, 48))))


def test_targets(tmp_path):
    one, other, rows = (tmp_path / name for name in ("films/a.mp4", "films/b.mp4", "c.npy"))
    one.parent.mkdir()
    for path in (one, other, rows):
        path.touch()
    check_overlay(tmp_path / "out.mkv", [str(one)])
    check_overlay(tmp_path / "new", [str(one), str(other)])
    assert overlay_targets(tmp_path / "out.mkv", ["a"]) == [tmp_path / "out.mkv"]
    expected = [tmp_path / "new" / name for name in ("x%2Fa.mp4", "b.mp4")]
    assert overlay_targets(tmp_path / "new", ["x/a", "b"]) == expected
    for out, films, words in (
        ("out.mp4", [one, other], "holds one film, not 2"),
        ("out.avi", [one], "ends in .mp4 or .mkv"),
        ("films/a.mp4", [one], "would replace the film"),
        ("films", [one], "would replace the film"),
        ("out.mp4", [rows], "is no video file"),
        ("out.mp4", ["v1"], "is no video file"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_overlay(tmp_path / out, [*map(str, films)])
