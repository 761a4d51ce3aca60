"""Random annotations, written by small writers of their own in every format, are read back.

Files that are cut or damaged afterwards are refused in one line, or lose no more than the place of
the damage.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cefito.data.vocabulary import nfc
from cefito.errors import CefitoError
from cefito.tracks import reading
from cefito.tracks.document import Choices

Steps = list[tuple[str, int, int]]  # name, start and end in milliseconds, of one video
Film = tuple[str, Steps]
FILES = 10_000
RATE = 25  # frames a second
FRAME = 1000 // RATE  # milliseconds
NAMES = [
    *("boil water", "pour", "Stir 2 times", "add, tea", "mélanger à feu doux", "お湯を沸かす"),
    *("cut; peel", 'the "big" pot', "a & b", "50 % off", "𝒙 in the plane", "e\u0301tape", "x" * 90),
    *("it's done", "tab-free", "#hash", "C:/path", "NA", "true", "step/part", "=1+1", "a|b"),
]


def films(draw: random.Random, *, touching: bool = False) -> list[Film]:
    """One to three videos with steps that overlap, touch, leave gaps or are in no order."""
    found = []
    for number in range(draw.randint(1, 3)):
        times = sorted(draw.sample(range(1, 20_000), 2 * draw.randint(1, 6)))
        times = [FRAME * time for time in times]
        apart = zip(times[::2], times[1::2], strict=True)
        pairs = [*pairwise([0, *times])] if touching else [*apart]
        if not touching and draw.random() < 0.5:
            pairs += [(start, end + FRAME * draw.randint(1, 900)) for start, end in pairs[:2]]
            draw.shuffle(pairs)
        chosen = draw.choices(NAMES, k=len(pairs))
        video = f"{draw.choice(['P01', 'é 2', 'cam', 'tea.v1', '007'])}-{number}"
        found.append((video, [(name, *pair) for name, pair in zip(chosen, pairs, strict=True)]))
    return found


def clock(time: int, sign: str = ".") -> str:
    rest, milli = divmod(time, 1000)
    return f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}{sign}{milli:03d}"


def cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def table(draw, videos):
    sign = draw.choice(",;\t")
    unit = draw.choice(["s", "ms", "clock", "length"])
    columns = ["video", "step", "start", "end", "note"]
    draw.shuffle(columns)
    heads_of = {"ms": {"start": "start_ms", "end": "end_ms"}, "length": {"end": "duration"}}
    heads = heads_of.get(unit, {})
    lines = [sign.join(heads.get(name, name) for name in columns)]
    for video, steps in videos:
        for name, start, end in steps:
            times = start, end - start if unit == "length" else end
            write: Any = {"ms": str, "clock": clock}.get(unit, lambda time: f"{time / 1000:.3f}")
            cells = {"video": video, "step": name, "note": "x,;\ty"}
            cells |= dict(zip(("start", "end"), map(write, times), strict=True))
            lines.append(sign.join(cell(cells[name]) for name in columns))
    before = draw.choice(["", "# a comment, with: signs; of\tcells\n", "\n"])
    chosen = {"columns": heads} if unit == "ms" else {}
    return [("any.csv", before + "\n".join(lines) + "\n")], chosen


def by_file(draw, videos):
    return [
        (f"{video}.csv", "".join(f"{cell(n)},{s / 1000},{e / 1000}\n" for n, s, e in [*steps]))
        for video, steps in videos
    ], {}


def tables_by_file(draw, videos):
    written, _ = by_file(draw, videos)
    return [(name, "step,start,end\n" + text) for name, text in written], {"by_file": True}


def elan(draw, videos):
    from pympi.Elan import Eaf

    found = []
    for video, steps in videos:
        eaf = Eaf()
        eaf.remove_tier("default")
        eaf.add_linked_file(f"file:///D:/rec/{video}.mp4", mimetype="video/mp4")
        for tier in ("Steps", "Notes"):
            eaf.add_tier(tier)
        eaf.add_annotation("Notes", 0, 9, "no step")
        for number, (name, start, end) in enumerate(steps, 1):  # pympi forbids overlaps
            slots = eaf.generate_ts_id(start), eaf.generate_ts_id(end)
            eaf.tiers["Steps"][0][f"s{number}"] = (*slots, name, None)
        path = Path(draw.folder) / "pympi.eaf"
        path.unlink(missing_ok=True)
        eaf.to_file(str(path))
        found.append((f"{video}.eaf", path.read_text("utf-8")))
        path.unlink()
    return found, {"tier": "Steps"}


def elan_text(draw, videos):
    units = {"ss.msec": lambda t: t / 1000, "msec": str, "hh:mm:ss.ms": clock}
    unit, write = draw.choice([*units.items()])
    head = f"Tier\tBegin Time - {unit}\tEnd Time - {unit}\tAnnotation\n"
    return [
        (f"{v}.txt", head + "".join(f"S\t{write(s)}\t{write(e)}\t{cell(n)}\n" for n, s, e in steps))
        for v, steps in videos
    ], {}


def via(draw, videos):
    metadata = {
        f"{number}_{place}": {"vid": f"{number}", "z": [s / 1000, e / 1000], "av": {"1": name}}
        for number, (_, steps) in enumerate(videos, 1)
        for place, (name, s, e) in enumerate(steps)
    }
    numbers = {f"{number}": video for number, (video, _) in enumerate(videos, 1)}
    project = {
        "project": {"vid_list": [*numbers]},
        "attribute": {"1": {"aname": "step", "type": 1, "options": {}}},
        "file": {key: {"fname": f"{video}.mp4", "src": ""} for key, video in numbers.items()},
        "view": {key: {"fid_list": [key]} for key in numbers},
        "metadata": metadata,
    }
    return [("via.json", json.dumps(project, ensure_ascii=draw.random() < 0.5, indent=1))], {}


def boris(draw, videos):
    head = "Observation id,Source,Time offset (s),Subject,Behavior,Behavior type,Media file name"
    offset = draw.choice([0, 0, 100])
    aggregated = draw.random() < 0.5
    lines = [head + (",Start (s),Stop (s)" if aggregated else ",Time")]
    for video, steps in videos:
        for name, start, end in steps:
            film = f"/rec/{video}.mp4"
            for kind, time in (("START", start), ("STOP", end)):
                kind = "STATE" if aggregated else kind
                cells = [video, f"player #1:{film}", f"{offset}", "A", cell(name), kind, film]
                times = (start, end) if aggregated else (time,)
                cells += [f"{time / 1000 + offset:.3f}" for time in times]
                if not (aggregated and time == end):
                    lines.append(",".join(cells))
    return [("events.csv", "\n".join(lines) + "\n")], {}


def label_studio(draw, videos):
    kind = draw.choice(["annotations", "predictions"])
    frames = draw.random() < 0.5
    tasks = []
    for number, (video, steps) in enumerate(videos, 1):
        results = []
        for name, start, end in steps:
            span = {"start": start // FRAME + 1, "end": end // FRAME}
            tag = "timelinelabels" if frames else "labels"
            value = {"ranges": [span]} if frames else {"start": start / 1000, "end": end / 1000}
            value |= {tag: [name]}
            results.append({"type": tag, "from_name": "s", "to_name": "v", "value": value})
        data = {"video": f"/data/upload/1/0a1b2c3d-{video}.mp4"}
        tasks.append({"id": number, "data": data, kind: [{"result": results}]})
    return [("export.json", json.dumps(tasks, indent=1))], {"frame_rate": RATE}


def label_studio_csv(draw, videos):
    lines = ["actor,annotation_id,annotator,id,labels,video"]
    for number, (video, steps) in enumerate(videos, 1):
        values = [
            {"ranges": [{"start": s // FRAME + 1, "end": e // FRAME}], "timelinelabels": [name]}
            for name, s, e in steps
        ]
        lines.append(f"P,{number},1,{number},{cell(json.dumps(values))},/u/{video}.mp4")
    return [("export.csv", "\n".join(lines) + "\n")], {"frame_rate": RATE}


def captions(draw, videos):
    form = draw.choice(["vtt", "srt", "sbv"])
    found = []
    for video, steps in videos:
        blocks = ["WEBVTT"] * (form == "vtt")
        for number, (name, start, end) in enumerate(steps, 1):
            arrow, sign = (",", ".") if form == "sbv" else (" --> ", "," if form == "srt" else ".")
            times = clock(start, sign) + arrow + clock(end, sign)
            label = escape(name, quote=False) if form == "vtt" else name
            blocks.append(f"{number}\n" * (form == "srt") + f"{times}\n{label}")
        found.append((f"{video}.{form}", "\n\n".join(blocks) + "\n"))
    return found, {}


def chapters(draw, videos):
    front = draw.random() < 0.7
    found = []
    for video, steps in videos:
        lines = [
            f"{clock(s)} - {clock(e)} {name}" if front else f"{name} ({clock(s)} - {clock(e)})"
            for name, s, e in steps
        ]
        found.append((f"{video}.txt", "\n".join(lines) + "\n"))
    return found, {}


def cvat(draw, videos):
    found = []
    for video, steps in videos:
        tags: dict[int, list[str]] = {}
        for name, start, end in steps:
            for frame in range(start // FRAME // 100, max(end // FRAME // 100, 1)):
                tags.setdefault(frame, []).append(name)
        size = max(tags, default=0) + 1
        images = "".join(
            f'<image id="{frame}" name="frame_{frame:06d}">'
            + "".join(f'<tag label="{escape(name)}"/>' for name in tags.get(frame, ()))
            + "</image>\n"
            for frame in range(size)
        )
        meta = f"<meta><task><size>{size}</size><source>{video}.mp4</source></task></meta>"
        text = f"<annotations><version>1.1</version>{meta}\n{images}</annotations>\n"
        found.append((f"{video}.xml", text))
    return found, {"frame_rate": RATE / 100}


def activitynet(draw, videos):
    database = {
        video: {
            "subset": "training",
            "annotations": [{"segment": [s / 1000, e / 1000], "label": n} for n, s, e in steps],
        }
        for video, steps in videos
    }
    return [("anet.json", json.dumps({"version": "1", "database": database}, indent=1))], {}


def frame_labels(draw, videos):
    found = []
    for video, steps in videos:
        lines = [name.replace(" ", "_") for name, s, e in steps for _ in range((e - s) // FRAME)]
        found.append((f"{video}.txt", "\n".join(lines) + "\n"))
    return found, {"frame_rate": RATE}


def observer(draw, videos):
    lines = ["Time_Relative_sf,Duration_sf,Observation,Subject,Behavior,Event_Type"]
    for video, steps in videos:
        for name, s, e in steps:
            lines.append(f"{s / 1000},{(e - s) / 1000:.3f},{video},A,{cell(name)},State start")
            lines.append(f"{e / 1000},0,{video},A,{cell(name)},State stop")
    return [("observer.csv", "\n".join(lines) + "\n")], {}


def segments(draw, videos):
    sign = draw.choice(["\t", " "])
    return [
        (f"{v}.txt", "".join(f"{s / 1000:.3f}{sign}{e / 1000:.3f}{sign}{n}\n" for n, s, e in steps))
        for v, steps in videos
    ], {}


def code(frame: int, sign: str = ":") -> str:
    rest, frames = divmod(frame, RATE)
    parts = rest // 3600, rest // 60 % 60, rest % 60, frames
    return sign.join(f"{part:02d}" for part in parts)


def premiere(draw, videos):
    sign, found = draw.choice(":;"), []
    for video, steps in videos:
        lines = ["Marker Name\tDescription\tIn\tOut\tDuration\tMarker Type"]
        for name, *times in steps:
            start, end = (time // FRAME for time in times)
            codes = [code(frame, sign) for frame in (start, end, end - start)]
            lines.append("\t".join([cell(name), "", *codes, "Comment"]))
        found.append((f"{video}.csv", "\n".join(lines) + "\n"))
    return found, {"frame_rate": RATE}


def edl_markers(draw, videos):
    hour, found = draw.choice([0, 3600 * RATE]), []
    for video, steps in videos:
        late = all(start >= 3_600_000 for _, start, _ in steps)
        begin = 3600 * RATE if late else hour
        lines = [f"TITLE: {video}", "FCM: NON-DROP FRAME", ""]
        for number, (name, start, end) in enumerate(steps, 1):
            first = begin + start // FRAME
            codes = " ".join([code(first), code(first + 1)] * 2)
            length = (end - start) // FRAME
            lines += [f"{number:03d}  001      V     C        {codes}"]
            lines += [f" |C:ResolveColorBlue |M:{name} |D:{length}", ""]
        found.append((f"{video}.edl", "\r\n".join(lines) + "\r\n"))
    return found, {"frame_rate": RATE}


def fiftyone(draw, videos):
    classes = [*dict.fromkeys(name for _, steps in videos for name, *_ in steps)]
    numbered, frames = draw.random() < 0.5, draw.random() < 0.5

    def detection(name, start, end):
        label = {"label": classes.index(name) if numbered else name}
        span = {"support": [start // FRAME + 1, end // FRAME]}
        return label | (span if frames else {"timestamps": [start / 1000, end / 1000]})

    labels = {video: [detection(*step) for step in steps] for video, steps in videos}
    export = {"classes": classes} if numbered else {}
    text = json.dumps({**export, "labels": labels}, indent=draw.choice([None, 4]))
    return [("labels.json", text)], {"frame_rate": RATE}


def fiftyone_samples(draw, videos):
    samples, kind = [], "TemporalDetection"
    about = {"tags": [], "metadata": {"_cls": "VideoMetadata", "frame_rate": RATE}}
    for video, steps in videos:
        spans = [(name, [start // FRAME + 1, end // FRAME]) for name, start, end in steps]
        found = [{"_cls": kind, "label": name, "support": span} for name, span in spans]
        events = {"_cls": f"{kind}s", "detections": found}
        samples.append({"filepath": f"/data/{video}.mp4", **about, "events": events})
    return [("samples.json", json.dumps({"samples": samples}, indent=1))], {}


WRITERS: dict[str, Callable] = {
    **{"table": table, "tables by file": tables_by_file, "ELAN": elan, "ELAN text": elan_text},
    **{"VIA": via, "BORIS": boris, "Label Studio": label_studio, "captions": captions},
    **{"Label Studio CSV": label_studio_csv, "chapters": chapters, "ActivityNet": activitynet},
    **{"labels of frames": frame_labels, "Observer XT": observer, "segments": segments},
    **{"CVAT": cvat, "Premiere": premiere, "EDL markers": edl_markers},
    **{"FiftyOne": fiftyone, "samples of FiftyOne": fiftyone_samples},
}
TOUCHING = ("labels of frames",)
PLAIN = {  # names that a format cannot hold
    "chapters": lambda name: name[0].isalpha() and ":" not in name and name[-1].isalpha(),
    "labels of frames": lambda name: not set(name) & set(',;|"=') and name[0].isalpha(),
    "EDL markers": lambda name: "|" not in name,
}


def expected(form: str, videos: list[Film]) -> Counter:
    """The steps that must come out: in Unicode's form C, runs of frames joined, each once."""
    found = []
    for video, steps in videos:
        runs: dict[str, set[int]] = {}
        for name, start, end in steps:
            label = nfc(" ".join(name.split()))
            if form == "CVAT":
                spread = range(start // FRAME // 100, max(end // FRAME // 100, 1))
                runs.setdefault(label, set()).update(spread)
            else:
                found.append((video, label, start, end))
        for label, frames in runs.items():
            firsts = [frame for frame in sorted(frames) if frame - 1 not in frames]
            lasts = [frame for frame in sorted(frames) if frame + 1 not in frames]
            found += [
                (video, label, first * FRAME * 100, (last + 1) * FRAME * 100)
                for first, last in zip(firsts, lasts, strict=True)
            ]
    if form == "labels of frames":
        joined: list[tuple[str, str, int, int]] = []
        for video, label, start, end in found:
            label = label.replace(" ", "_")
            if joined and joined[-1][:2] == (video, label) and joined[-1][3] == start:
                joined[-1] = (video, label, joined[-1][2], end)
            else:
                joined.append((video, label, start, end))
        found = joined
    return Counter(dict.fromkeys(found, 1))


MOST = {"CVAT": 6, "labels of frames": 99}
"""Steps that one damage may change, if more than two: those of a frame, or all behind it."""


def read(folder: Path, files: list[tuple[str, bytes]], choices: dict) -> Counter | str:
    """The steps of files, or the message that refuses them."""
    for old in folder.iterdir():
        old.unlink()
    for name, data in files:
        (folder / name).write_bytes(data)
    try:
        found = reading.read([folder / name for name, _ in files], Choices(task="tea", **choices))
    except CefitoError as problem:
        return str(problem)
    return Counter(
        (track.video, step.name, round(step.start * 1000), round(step.end * 1000))
        for track in found.tracks
        for step in track.steps
    )


def damaged(draw: random.Random, data: bytes) -> bytes:
    """A file that is cut, lacks or repeats a line, or has other bytes somewhere."""
    place = draw.randrange(len(data))
    lines = data.splitlines(keepends=True)
    number = draw.randrange(len(lines))
    return draw.choice(
        [
            data[:place],
            data[:place] + draw.choice([b"\x00", b"<", b"{", b'"', b"\n"]) + data[place:],
            b"".join([*lines[:number], *lines[number + 1 :]]),
            b"".join([*lines[: number + 1], *lines[number:]]),
        ]
    )


class Draw(random.Random):
    """Random numbers, and a folder for libraries that write files themselves."""

    folder: Path


def outcomes(form: str, seed: int, count: int, folder: Path) -> Counter:
    """Read back that many files and damaged copies; the counts of what came out."""
    draw, counts = Draw(f"{form}-{seed}"), Counter()
    draw.folder = folder
    if form == "ELAN":
        pytest.importorskip("pympi.Elan")
    while counts["written"] < count:
        videos: Any = films(draw, touching=form in TOUCHING)
        if usual := PLAIN.get(form):
            videos = [
                (video, [(n if usual(n) else "pour slowly", *times) for n, *times in steps])
                for video, steps in videos
            ]
        files, choices = WRITERS[form](draw, videos)
        whole = [(name, text.encode()) for name, text in files]
        wanted = expected(form, videos)
        found = read(folder, whole, choices)
        assert found == wanted, (form, files, found)
        counts["written"] += len(files)
        at = draw.randrange(len(whole))
        broken = [*whole]
        broken[at] = (whole[at][0], damaged(draw, whole[at][1]))
        found = read(folder, broken, choices)
        if isinstance(found, str):
            assert "\n" not in found
            counts["refused"] += 1
        elif found == wanted:
            counts["same"] += 1
        else:
            others = len({step[1:] for step in found} - {step[1:] for step in wanted})
            assert others <= MOST.get(form, 2), (form, broken[at], whole[at])
            counts["fewer" if not others else f"{others} other"] += 1
        counts["damaged"] += 1
    return counts


@pytest.mark.parametrize("form", WRITERS)
def test_random_annotations_are_read_back(form, tmp_path):
    outcomes(form, 0, 8, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("form", WRITERS)
def test_ten_thousand_files(form, tmp_path):
    outcomes(form, 1, FILES // len(WRITERS) + 1, tmp_path)
