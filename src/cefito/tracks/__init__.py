"""Steps in time: one record a video, and one file a format that holds it."""

from cefito.tracks.track import TimedStep, Track

__all__ = ["TimedStep", "Track"]
