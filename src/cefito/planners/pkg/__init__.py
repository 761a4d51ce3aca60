"""PKG: the likeliest path on the graph of transitions between a first and a last action."""
