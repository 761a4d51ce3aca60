"""KEPP: walks of a graph between predicted ends, and a diffusion over plans that sees them."""
