"""Planners: one folder for each method, behind one protocol."""
