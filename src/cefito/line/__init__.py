"""The line: events of a film that is followed, their delivery, and steps that are confirmed."""
