"""Downloads of weights, annotations and features: a catalogue, resumable transfers, safe unpacking."""
