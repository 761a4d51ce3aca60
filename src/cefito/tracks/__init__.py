"""Steps in time: one record a video, and one file a format that holds it."""
