"""Label Studio's exports JSON, JSON-MIN, CSV and TSV: frames of the timeline, spans in seconds."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from pydantic import Field

from cefito.data.vocabulary import folded
from cefito.errors import DataError, explained
from cefito.markup import Seconds, parse_seconds
from cefito.settings import Record
from cefito.tracks.document import Document, Format, LooseRecord, StepRow, Told
from cefito.tracks.track import TimedStep, Track

_TASKS = (
    re.compile(r'"(?:annotations|predictions)"\s*:'),
    re.compile(r'"data"\s*:'),
    re.compile(r'"(?:result|was_cancelled|completed_by|total_annotations)"\s*:|:\s*\[\s*\]'),
)
_MIN = re.compile(r'"annotation_id"\s*:'), re.compile(r'"(?:annotator|lead_time)"\s*:')
_VIDEO = re.compile(r"\.(?:mp4|m4v|mov|mkv|webm|avi|mpe?g|ogv)(?:$|[?&#])", re.I)
_SOUND = re.compile(r"\.(?:ogg|wav|mp3)(?:$|[?&#])", re.I)
_KINDS = ("timelinelabels", "labels", "timeserieslabels", "choices", "taxonomy")
_MEDIA = ("Video", "Audio", "AudioPlus")  # tags that play
_BOXES = "boxes of tracked objects, which have no steps"
_FRAME_RATE = 24  # of the Video tag, unless it is changed
_RECOGNISED = "cefito"  # version of the model in predictions that are written
_LONGEST = 1e7  # seconds; more are dates


class _Range(LooseRecord):
    start: Seconds
    end: Seconds


class _Frames(LooseRecord):
    """Frames, counted from 1; the last one belongs to the step."""

    ranges: tuple[_Range, ...]


class _Result(LooseRecord):
    id: str = ""  # of the region, which several results may describe
    type: str = ""
    from_name: str = ""
    to_name: str = ""
    value: dict[str, Any] = Field(default_factory=dict)


class _Annotation(LooseRecord):
    result: tuple[_Result, ...] | None = ()
    was_cancelled: bool | None = False
    ground_truth: bool | None = False
    created_at: str | None = ""
    updated_at: str | None = ""
    model_version: str | None = ""


class _Task(LooseRecord):
    id: int | str = ""
    data: dict[str, Any]
    annotations: tuple[_Annotation, ...] = ()
    predictions: tuple[Any, ...] | None = ()


def _read(document: Document) -> Iterator[StepRow]:
    """Yield the labels of each task's best annotation: the ground truth, or else the newest.

    If nobody has annotated any task, predictions are read, with a note.
    """
    unnamed: list[str] = []
    tasks = _tasks(document)
    unchecked = not any(task.annotations for task in tasks)
    for task in tasks:
        where = f"task {task.id}"
        predicted = _prediction(document, task, where) if unchecked else None
        if predicted is not None:
            model = f"of '{predicted.model_version}' " if predicted.model_version else ""
            document.notes[f"tasks with predictions {model}that nobody has checked"] += 1
            task = task.model_copy(update={"annotations": (predicted,)})
        done = [
            annotation
            for annotation in task.annotations
            if annotation.result and not annotation.was_cancelled
        ]
        if not done:
            why = "with predictions alone" if task.predictions else "without an annotation"
            document.left_out[f"tasks {why}"] += 1
            continue
        best = max(
            done,
            key=lambda annotation: (bool(annotation.ground_truth), annotation.updated_at or ""),
        )
        if len(done) > 1:
            document.left_out["older annotations of a task"] += len(done) - 1
        if not document.film(_location(task.data)):
            unnamed.append(where)
            continue
        times = _times(document, task.data, best, where)
        task_name, source = _task_of(task.data, best, times)
        for count, result in enumerate(best.result or (), 1):
            labels = _labels(result)
            spans = times.get(count) or times.get(result.id, [])
            if (not spans or labels is None) and count != source:
                document.left_out[_unread(result)] += 1
            place = document.place(f"{where}, region {count}")
            location = _location(task.data, result.to_name)
            for start, end in spans if labels is not None else ():
                for label in labels or ("",):
                    yield StepRow(
                        document.film(location),
                        label,
                        start,
                        end,
                        place,
                        task_name,
                        _text(task.data, "split"),
                        tier=result.from_name,
                        coding=f"{where}, {location}",
                    )
    if unnamed:
        others = f", nor do those of {', '.join(unnamed[1:])}" if len(unnamed) > 1 else ""
        problem = f"its data name no video{others}. Put the address of the video into the entry"
        raise document.wrong(f"{problem} 'video'.", unnamed[0])


def _prediction(document: Document, task: _Task, where: str) -> _Annotation | None:
    """Return the prediction of `cefito recognise`, or else the newest one; None without any."""
    made = [
        document.record(_Annotation, value, f"{where}, prediction {number}")
        for number, value in enumerate(task.predictions or (), 1)
        if isinstance(value, dict) and value.get("result")
    ]
    if len(made) > 1:
        document.left_out["further predictions of a task"] += len(made) - 1

    def rank(prediction: _Annotation) -> tuple[bool, str]:
        changed = prediction.updated_at or prediction.created_at or ""
        return (prediction.model_version or "").startswith(_RECOGNISED), changed

    return max(reversed(made), key=rank, default=None)


def _tasks(document: Document) -> list[_Task]:
    """Tasks of any export, each with all its annotations; ids are those of one server."""
    if document.text.lstrip()[:1] in ("[", "{"):
        items = document.json()
    else:
        csv.field_size_limit(max(csv.field_size_limit(), len(document.text)))  # cells hold JSON
        delimiter = max(",;\t", key=document.text.partition("\n")[0].count)
        items = [
            {
                name: document.json(cell) if cell[:2] == "[{" else cell
                for name, cell in row.items()
                if name is not None
            }
            for row in csv.DictReader(io.StringIO(document.text), restval="", delimiter=delimiter)
        ]
    tasks: dict[tuple[Any, str], _Task] = {}
    for number, item in enumerate(items if isinstance(items, list) else [items], 1):
        task = document.record(_Task, _with_annotations(item), f"task {number}")
        if not task.id:
            task = task.model_copy(update={"id": f"{number} (without an id)"})
        key = task.id, _location(task.data)
        if key in tasks:
            both = tasks[key].annotations + task.annotations
            task = task.model_copy(update={"annotations": both})
        tasks[key] = task
    return list(tasks.values())


def _with_annotations(item: Any) -> Any:
    """A task of an export with one annotation an entry, as in the export JSON."""
    if not isinstance(item, dict) or "annotations" in item or "predictions" in item:
        return item
    results = [
        {"type": kind, "from_name": name, "value": value}
        for name, values in item.items()
        if isinstance(values, list)
        for value in values
        for kind in _KINDS
        if isinstance(value, dict) and kind in value
    ]
    annotation = {"result": results, "updated_at": item.get("updated_at", "")}
    return {"id": item.get("id", ""), "data": item, "annotations": [annotation]}


def _times(
    document: Document, data: dict[str, Any], annotation: _Annotation, where: str
) -> dict[str | int, list[tuple[float, float]]]:
    """Starts and ends in seconds that results have, by their number, and by the region's id."""
    times: dict[str | int, list[tuple[float, float]]] = {}
    names: dict[str | int, list[tuple[float, float]]] = {}
    for count, result in enumerate(annotation.result or (), 1):
        value, at = result.value, f"{where}, region {count}"
        if result.type in ("videorectangle", "paragraphlabels"):
            continue
        if result.type == "timelinelabels" or "ranges" in value:
            frames = document.record(_Frames, value, at)
            video = document.film(_location(data, result.to_name))
            rate = _rate(document, video, data, at)
            if any(span.start == 0 for span in frames.ranges):
                document.notes["ranges from frame 0, read from frame 1, the first one"] += 1
            times[count] = [
                ((span.start - (span.start != 0)) / rate, span.end / rate) for span in frames.ranges
            ]
        elif {"start", "end"} <= value.keys() and "text" not in value:
            seconds = document.record(_Range, value, at) if _is_time(value) else None
            times[count] = [(seconds.start, seconds.end)] if seconds is not None else []
        if (spans := times.get(count)) and names.setdefault(result.id, spans) != spans:
            names[result.id] = []  # several regions have the id
    names.pop("", None)
    return names | times


def _task_of(
    data: dict[str, Any], annotation: _Annotation, times: Mapping[str | int, object]
) -> tuple[str, int]:
    """Name of a video's task, in the data or chosen for the whole video, and the result's number.

    The name is empty if there is none, or if several controls have a choice; the number is then 0.
    """
    chosen = [
        (labels[0], count)
        for count, result in enumerate(annotation.result or (), 1)
        if result.type == "choices" and not (times.get(count) or times.get(result.id))
        if len(labels := _labels(result) or []) == 1
    ]
    named = _text(data, "task")
    return chosen[0] if len(chosen) == 1 and any(times.values()) and not named else (named, 0)


def _text(data: dict[str, Any], key: str) -> str:
    return text if isinstance(text := data.get(key), str) else ""


def _is_time(value: dict[str, Any]) -> bool:
    """Whether a region has seconds, not dates, and lasts."""
    both = value["start"], value["end"]
    numbers = all(isinstance(time, int | float) and abs(time) <= _LONGEST for time in both)
    return numbers and not value.get("instant")


def _labels(result: _Result) -> list[str] | None:
    """Labels of a region; None if the result says something else of it."""
    labels = result.value.get(result.type) if result.type in _KINDS else None
    if result.type in _KINDS and labels is None:
        return []
    if not isinstance(labels, list):
        return None
    return [
        "/".join(map(str, label)) if isinstance(label, list) else str(label) for label in labels
    ]


def _unread(result: _Result) -> str:
    """What a result is that no step can be made of, in words."""
    if result.type == "videorectangle":
        return _BOXES
    why = "without seconds or frames" if result.type in _KINDS else "which are no labels"
    return f"results of the type '{result.type}', {why}"


def _rate(document: Document, video: str, data: dict[str, Any], where: str) -> float:
    """Frames per second of the timeline: the Video tag's, which only `frameRate` in the data is."""
    written = data.get("frameRate")
    if isinstance(written, str):
        written = parse_seconds(written)
    film = f", not the film's ({data['fps']!r:.40} fps in the data)" if "fps" in data else ""
    problem = (
        f"counts frames and holds no frame rate. Give the frameRate of the Video tag{film}; it is "
        f"{_FRAME_RATE:g} if the tag has none."
    )
    return document.rate(video, written, problem, where)


def _location(data: dict[str, Any], tag: str = "") -> str:
    """Address of a task's video: that of a tag, the entry `video`, or the first media file."""
    texts = {name: text for name, text in data.items() if isinstance(text, str) and text.strip()}
    films = {name: text for name, text in texts.items() if _VIDEO.search(text)}
    media = (text for text in texts.values() if _VIDEO.search(text) or _SOUND.search(text))
    return films.get(tag) or texts.get("video") or next(media, "")


def _recognises(document: Document) -> bool:
    text = document.head
    if text.lstrip()[:1] not in ("[", "{"):
        columns = document.columns
        return "annotation_id" in columns and bool(columns & {"annotator", "lead_time"})
    return all(pattern.search(text) for pattern in _TASKS) or all(
        pattern.search(text) for pattern in _MIN
    )


class Tags(Record):
    """The tags of a labelling configuration that take steps: a control tag and what it labels."""

    kind: str = "timelinelabels"  # or labels, which count seconds
    control: str = "steps"
    media: str = "video"  # name of the tag
    entry: str = "video"  # of the data, which holds the film's address
    frame_rate: float | str = _FRAME_RATE  # frames a second, or the entry of the data that says it
    labels: tuple[str, ...] | None = None  # None for any

    @classmethod
    def of(cls, configuration: str) -> Tags:
        """Read a labelling configuration; one that labels no parts of films is a DataError."""
        place, remedy = "the labelling configuration", "Correct it."
        problems = ElementTree.ParseError, ValueError, RecursionError
        with explained(place, "cannot be read", remedy, *problems):
            tags = list(ElementTree.fromstring(configuration).iter())
            media = {tag.get("name"): tag for tag in tags if tag.tag in _MEDIA}
            for control in tags:
                target = media.get(control.get("toName"))
                kind = control.tag.lower()
                if target is None or kind not in ("timelinelabels", "labels"):
                    continue
                written = {name.lower(): value for name, value in target.attrib.items()}
                rate = written.get("framerate", "")
                return cls(
                    kind=kind,
                    control=control.get("name", ""),
                    media=target.get("name", ""),
                    entry=target.get("value", "").removeprefix("$"),
                    frame_rate=rate[1:] if rate[:1] == "$" else float(rate or _FRAME_RATE),
                    labels=tuple(label.get("value", "") for label in control.iter("Label")),
                )
        expected = "TimelineLabels of a Video tag, or Labels of a Video or Audio tag"
        raise DataError(f"{place}: has no control tag for steps. Add {expected}.")

    def rate(self, data: Mapping[str, Any]) -> float:
        """Return the frames a second of a task by its data."""
        rate = data.get(self.frame_rate) if isinstance(self.frame_rate, str) else self.frame_rate
        return float(rate) if isinstance(rate, int | float) and rate > 0 else _FRAME_RATE

    def label(self, name: str) -> str | None:
        """Return the label of a step's name; None if there is none."""
        if self.labels is None:
            return name
        return next((label for label in self.labels if folded(label) == folded(name)), None)


def configuration(names: Iterable[str]) -> str:
    """Return a labelling configuration with a label for each name of a step."""
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in names)
    return f"""<View>
  <TimelineLabels name="steps" toName="video">
{labels}  </TimelineLabels>
  <Video name="video" value="$video"/>
</View>
"""


def prediction(
    steps: Sequence[TimedStep], tags: Tags, *, rate: float, version: str, score: float
) -> dict[str, Any]:
    """Return the prediction of a film's steps; those that the tags have no label for are left out.

    Args:
        steps: The steps.
        tags: Tags of the labelling configuration.
        rate: Frames a second that its timeline counts.
        version: Version of the model.
        score: How sure the steps are, 0 to 1.
    """
    regions = []
    for number, step in enumerate(steps, 1):
        label = tags.label(step.name)
        if label is None:
            continue
        seconds = {"start": round(step.start, 3), "end": round(step.end, 3)}
        times = {"ranges": [_frames_of(step, rate)]} if tags.kind == "timelinelabels" else seconds
        region = {
            "id": f"step{number}",
            "type": tags.kind,
            "from_name": tags.control,
            "to_name": tags.media,
            "score": round(step.probability, 4),
            "value": {**times, tags.kind: [label]},
        }
        regions.append(region)
    return {"model_version": version, "score": round(score, 4), "result": regions}


def _write(videos: Sequence[Track]) -> str:
    """Return tasks with predictions of a control tag of the Video tag `video`.

    The control tag is `steps`, or that of the labels that the run has learned from.

    Frames are counted at the tag's own rate, 24 a second, whatever that of the film is.
    """
    tasks = []
    for video in videos:
        tags = Tags(control=video.tier_name)
        mean = sum(step.probability for step in video.steps) / max(len(video.steps), 1)
        data = {"video": video.media, "task": video.task, "frameRate": _FRAME_RATE}
        predicted = prediction(video.steps, tags, rate=_FRAME_RATE, version=_RECOGNISED, score=mean)
        tasks.append({"data": data, "annotations": [], "predictions": [predicted]})
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def _frames_of(step: TimedStep, rate: float) -> dict[str, int]:
    """Return the first and the last frame of a step, counted from 1."""
    first = round(step.start * rate) + 1
    return {"start": first, "end": max(first, round(step.end * rate))}


FORMATS = (
    Format(
        name="Label Studio",
        endings=(".json", ".csv", ".tsv"),
        told=Told.COLUMNS_OF_TOOLS,
        recognises=_recognises,
        read=_read,
        step="region",
        tier="control tag",
        key="labelstudio",
        write=_write,
    ),
)
