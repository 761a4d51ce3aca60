"""Random files of annotation tools with known steps: what is written is what is read."""

from __future__ import annotations

import csv
import io
import json
import random
from xml.sax.saxutils import quoteattr

import pytest

from cefito.data.readers.formats import Choices
from cefito.data.readers.step_source import read_steps

RATE = 25
LETTERS = "abcé漢ß ,;'&<>\"-_()🍵"


def drawn_videos(draw, most):
    """Steps (label, first frame, frame after) of films, by their addresses."""
    labels = [draw_name(draw) for _ in range(draw.randint(1, 6))]
    videos = {}
    for _ in range(draw.randint(1, most)):
        depth = draw.randint(1, 3)
        folders = [f"P{draw.randint(1, 3)}" for _ in range(depth)]
        steps, frame = [], draw.randint(0, 50)
        for _ in range(draw.randint(1, 8)):
            last = frame + draw.randint(1, 400)
            steps.append((draw.choice(labels), frame, last))
            frame = last + draw.randint(1, 60)
        videos["/".join(["rec", *folders, draw.choice(["cam", "top view", "ä.b"])])] = steps
    ends = [f"/{address}" for address in videos]
    return {  # without an address that ends as another
        address: steps
        for address, steps in videos.items()
        if sum(end.endswith(f"/{address}") for end in ends) == 1
    }


def draw_name(draw):
    while True:
        name = " ".join("".join(draw.choices(LETTERS, k=draw.randint(1, 12))).split())
        if any(letter.isalpha() for letter in name):
            return name


def shuffled(draw, value):
    """JSON with keys in another order."""
    if isinstance(value, dict):
        keys = draw.sample(list(value), len(value))
        return {key: shuffled(draw, value[key]) for key in keys}
    return [shuffled(draw, each) for each in value] if isinstance(value, list) else value


def element(draw, tag, *content, **attributes):
    """XML with attributes in another order."""
    names = draw.sample(list(attributes), len(attributes))
    given = "".join(f" {name}={quoteattr(str(attributes[name]))}" for name in names)
    return f"<{tag}{given}>{''.join(content)}</{tag}>"


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def seconds(frame):
    return frame / RATE


def label_studio(draw, videos):
    tasks = []
    for number, (address, steps) in enumerate(videos.items(), 1):
        results = [
            {
                "id": f"r{frame}",
                "type": "timelinelabels",
                "from_name": "steps",
                "value": {
                    "ranges": [{"start": frame + 1, "end": after}],
                    "timelinelabels": [label],
                },
            }
            for label, frame, after in draw.sample(steps, len(steps))
        ]
        one = {"id": number, "result": results, "updated_at": "2026-02-02", "was_cancelled": False}
        old = {"id": 0, "result": results[:1], "updated_at": "2026-01-01", "was_cancelled": False}
        data = {"video": f"s3://{address}.mp4?X-Amz-Date={number}"}
        both = draw.sample([one, old], 2) if draw.random() < 0.3 else [one]
        tasks.append({"id": draw.choice([number, 1]), "data": data, "annotations": both})
    return json.dumps(shuffled(draw, tasks), ensure_ascii=draw.random() < 0.5)


def label_studio_table(draw, videos):
    rows = [
        {
            "annotation_id": str(number),
            "annotator": "1",
            "id": str(number),
            "steps": json.dumps(
                [
                    {"ranges": [{"start": frame + 1, "end": after}], "timelinelabels": [label]}
                    for label, frame, after in steps
                ]
            ),
            "updated_at": "2026",
            "video": f"s3://{address}.mp4",
            draw.choice(["actor", "zone"]): "x",
        }
        for number, (address, steps) in enumerate(videos.items(), 1)
    ]
    names = sorted({name for row in rows for name in row})
    text = io.StringIO()
    writer = csv.DictWriter(text, names, delimiter=draw.choice(",\t"), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def via(draw, videos):
    labels = list(dict.fromkeys(step[0] for steps in videos.values() for step in steps))
    ids = {label: str(number) for number, label in enumerate(draw.sample(labels, len(labels)))}
    files = {
        str(number): {
            "fid": str(number),
            "fname": address.rpartition("/")[2],
            "src": f"/{address}.mp4",
        }
        for number, address in enumerate(videos, 1)
    }
    metadata = {
        f"{number}_{frame}": {
            "vid": str(number),
            "z": [seconds(frame), seconds(after)],
            "av": {"1": ids[label]},
        }
        for number, steps in enumerate(videos.values(), 1)
        for label, frame, after in steps
    }
    options = {number: label for label, number in ids.items()}
    attribute = {"aname": "S", "type": draw.choice([2, 3, 4]), "options": options}
    project = {
        "project": {"vid_list": list(files)},
        "attribute": {"1": attribute},
        "file": files,
        "metadata": metadata,
        "view": {number: {"fid_list": [number]} for number in files},
    }
    if draw.random() < 0.5:
        return json.dumps(shuffled(draw, project))
    text = io.StringIO()
    text.write(f"# ATTRIBUTE = {json.dumps(project['attribute'])}\n")
    text.write("# CSV_HEADER = metadata_id,file_list,flags,temporal_coordinates,metadata\n")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for number, entry in metadata.items():
        film = json.dumps([files[entry["vid"]]["src"]])
        writer.writerow([number, film, 0, json.dumps(entry["z"]), json.dumps(entry["av"])])
    return "# Exported\n" + text.getvalue()


def boris(draw, videos):
    tabular = draw.random() < 0.5
    columns = [
        "Observation id",
        "Source",
        "Time offset (s)",
        "Subject",
        "Behavior",
        "Behavior type",
    ]
    columns += ["Media file name", *(["Time"] if tabular else ["Start (s)", "Stop (s)"])]
    rows = []
    for number, (address, steps) in enumerate(videos.items()):
        offset = draw.choice([0, 0, 100, 7.52, -3])
        film = f"/{address}.mp4"
        said = {
            "Observation id": f"o{number}",
            "Source": f"player #1:{film}",
            "Subject": "No focal",
        }
        said |= {"Time offset (s)": f"{offset:.3f}"}
        own = []
        for label, frame, after in steps:
            media = film if draw.random() < 0.7 and not offset else "Not found"
            both = [f"{seconds(each) + offset:.3f}" for each in (frame, after)]
            line = said | {"Behavior": label, "Media file name": media}
            kinds = ("START", "STOP") if tabular else ("STATE",)
            times = (
                [{"Time": time} for time in both]
                if tabular
                else [{"Start (s)": both[0], "Stop (s)": both[1]}]
            )
            own += [
                line | {"Behavior type": kind} | at for kind, at in zip(kinds, times, strict=True)
            ]
        rows.append(own)
    lines = [line for own in draw.sample(rows, len(rows)) for line in own]
    text = io.StringIO()
    order = draw.sample(columns, len(columns))
    writer = csv.DictWriter(text, order, delimiter=draw.choice(",\t"), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def elan(draw, videos):
    ((address, steps),) = videos.items()
    origin = draw.choice([0, 0, 1500])
    film = {"MEDIA_URL": f"file:///{address}.mp4", "MIME_TYPE": "video/mp4", "TIME_ORIGIN": origin}
    sound = {"MEDIA_URL": "file:///rec/mic.wav", "MIME_TYPE": "audio/x-wav"}
    media = [element(draw, "MEDIA_DESCRIPTOR", **film)]
    if draw.random() < 0.3:
        media.insert(0, element(draw, "MEDIA_DESCRIPTOR", **sound))
    slots, body = [], []
    for number, (label, *frames) in enumerate(steps):
        for side, frame in enumerate(frames, 1):
            at = {"TIME_SLOT_ID": f"ts{number}_{side}", "TIME_VALUE": frame * 1000 // RATE - origin}
            slots.append(element(draw, "TIME_SLOT", **at))
        refs = {f"TIME_SLOT_REF{side}": f"ts{number}_{side}" for side in (1, 2)}
        value = element(draw, "ANNOTATION_VALUE", escaped(label))
        refs |= {"ANNOTATION_ID": f"a{number}"}
        inner = element(draw, "ALIGNABLE_ANNOTATION", value, **refs)
        body.append(element(draw, "ANNOTATION", inner))
    draw.shuffle(body)
    header = element(draw, "HEADER", *media, TIME_UNITS="milliseconds")
    tier = element(draw, "TIER", *body, TIER_ID="Steps", LINGUISTIC_TYPE_REF="lt")
    order = element(draw, "TIME_ORDER", *slots)
    return element(draw, "ANNOTATION_DOCUMENT", header, order, tier, AUTHOR="x", VERSION="3.0")


def anvil(draw, videos):
    ((address, steps),) = videos.items()
    parts = []
    for number, (label, frame, after) in enumerate(steps):
        inner = element(draw, "attribute", escaped(label), name="action")
        times = {"start": seconds(frame), "end": seconds(after), "index": number}
        parts.append(element(draw, "el", inner, **times))
    film = "\\".join(["C:", *address.split("/")]) + ".avi"
    head = element(draw, "head", element(draw, "video", src=film))
    track = element(draw, "track", *parts, name="Steps", type="primary")
    return f"<annotation>{head}<body>{track}</body></annotation>"


def vidat(draw, videos):
    ((address, steps),) = videos.items()
    labels = list(dict.fromkeys(label for label, *_ in steps))
    actions = [
        {"start": seconds(frame), "end": seconds(after), "action": labels.index(label)}
        for label, frame, after in steps
    ]
    draw.shuffle(actions)
    named = [{"id": number, "name": label} for number, label in enumerate(labels)]
    video = {"src": f"/{address}.mp4", "fps": 10}
    file = {"annotation": {"video": video, "actionAnnotationList": actions}}
    return json.dumps(
        shuffled(draw, file | {"config": {"actionLabelData": draw.sample(named, len(named))}})
    )


def cvat(draw, videos):
    every = draw.choice([1, 1, 5])
    tasks, images = [], []
    for number, (address, steps) in enumerate(videos.items()):
        step = f"step={every}" if every > 1 else ""
        tasks.append(
            f"<task><id>{number}</id><name>n</name><frame_filter>{step}</frame_filter>"
            f"<source>/{address}.mp4</source></task>"
        )
        for label, frame, after in steps:
            for each in range(frame, after):
                tag = element(draw, "tag", label=label, source="manual")
                name = f"frame_{each * every:06d}"
                images.append(element(draw, "image", tag, id=each, name=name, task_id=number))
    draw.shuffle(images)
    meta = f"<meta><project><tasks>{''.join(tasks)}</tasks></project></meta>"
    return every, f"<annotations><version>1.1</version>{meta}{''.join(images)}</annotations>"


MANY = (label_studio, label_studio_table, via, boris, cvat)
ONE = (elan, anvil, vidat)


def expected(videos, every):
    """Steps by the shortest ends of addresses that one address has."""
    found = {}
    for address, steps in videos.items():
        parts = address.split("/")
        for count in range(1, len(parts) + 1):
            end = "/".join(parts[-count:])
            if sum(f"/{other}".endswith(f"/{end}") for other in videos) == 1:
                break
        found[end] = sorted(
            (round(seconds(frame * every), 6), round(seconds(after * every), 6), label)
            for label, frame, after in steps
        )
    return found


def check(seed, folder):
    draw = random.Random(seed)
    write = draw.choice(MANY + ONE)
    videos = drawn_videos(draw, 5 if write in MANY else 1)
    every, text = 1, write(draw, videos)
    if write is cvat:
        every, text = text
    path = folder / "random.txt"
    path.write_text(
        text, encoding=draw.choice(["utf-8", "utf-8-sig"]), newline=draw.choice(["\n", "\r\n"])
    )
    rate = None if write in (via, boris, elan, anvil, vidat) else RATE
    found = read_steps(path, choices=Choices(task="tea", frame_rate=rate))
    names = [action.name for action in found.annotations.taxonomy.actions]
    steps = {
        video.video_id: sorted((step.start, step.end, names[step.action]) for step in video.steps)
        for video in found.annotations.videos
    }
    assert steps == expected(videos, every), (seed, write.__name__)


def test_a_sample_of_random_files(tmp_path):
    for seed in range(24):
        check(seed, tmp_path)


@pytest.mark.nightly
def test_ten_thousand_random_files(tmp_path):
    for seed in range(1000, 11_000):
        check(seed, tmp_path)
