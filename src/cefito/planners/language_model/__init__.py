"""Planners that ask a language model, which is told in words what trained networks recognise."""
