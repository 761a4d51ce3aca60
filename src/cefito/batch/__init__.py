"""Many queries in a file, many plans in a file: read in pieces, planned anywhere, written whole."""
