"""Downloads of weights, annotations, features: catalogue, resumable transfers, safe unpacking."""
