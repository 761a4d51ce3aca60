"""Tables that tools write with their own names of columns: ELAN, The Observer XT and Premiere."""

from __future__ import annotations

from collections.abc import Sequence

from cefito.markup import csv_text, plain
from cefito.tracks.document import Format, Told, timecode
from cefito.tracks.formats.table import BIDS, ELAN_TEXT, OBSERVER, PREMIERE, Tool, read_table
from cefito.tracks.track import Track


def _elan(videos: Sequence[Track]) -> str:
    """Return ELAN's tab-delimited text, with the tier `steps`."""
    heads = ("Tier", "Begin Time - ss.msec", "End Time - ss.msec", "Annotation", "File Path")
    rows = [
        (video.tier_name, f"{step.start:.3f}", f"{step.end:.3f}", plain(step.name), video.media)
        for video in videos
        for step in video.steps
    ]
    return csv_text([heads, *rows], "\t")


def _observer(videos: Sequence[Track]) -> str:
    """Return events of The Observer XT: the start and the stop of each step."""
    heads = ("Observation", "Time_Relative_sf", "Duration_sf", "Subject", "Behavior", "Event_Type")
    rows = [
        (video.video, f"{time:.3f}", f"{length:.3f}", "", plain(step.name), kind)
        for video in videos
        for step in video.steps
        for time, length, kind in (
            (step.start, step.end - step.start, "State start"),
            (step.end, 0, "State stop"),
        )
    ]
    return csv_text([heads, *rows])


def _premiere(videos: Sequence[Track], frame_rate: float) -> str:
    """Return the steps of one video as markers of Premiere, with tabs, as it exports them."""
    (video,) = videos
    heads = ("Marker Name", "Description", "In", "Out", "Duration", "Marker Type")
    rows = []
    for step in video.steps:
        first, after = (round(time * frame_rate) for time in (step.start, step.end))
        frames = (first, after, after - first)
        codes = (timecode(frame, frame_rate) for frame in frames)
        rows.append((plain(step.name), "", *codes, "Comment"))
    return csv_text([heads, *rows], "\t")


def _declared(tool: Tool, ending: str, **more: object) -> Format:
    return Format(
        name=tool.name,
        endings=(ending,),
        told=Told.MARKS,
        recognises=tool.wrote,
        read=read_table,
        tier="tier",
        **more,  # type: ignore[arg-type]
    )


FORMATS = (
    _declared(ELAN_TEXT, ".txt", key="elantext", write=_elan),
    _declared(OBSERVER, ".csv", key="observer", write=_observer),
    _declared(PREMIERE, ".csv", key="premiere", write=_premiere, single=True, frames=True),
    _declared(BIDS, ".tsv"),
)
