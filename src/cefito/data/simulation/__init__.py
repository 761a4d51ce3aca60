"""Simulated observations and worlds, always called simulated where their name is shown."""
