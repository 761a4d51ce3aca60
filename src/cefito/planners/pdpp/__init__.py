"""PDPP: projected diffusion of the matrix of task, actions and observations."""
