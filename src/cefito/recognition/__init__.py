"""Steps of whole videos that nobody has cut: recognised offline, or row by row."""
