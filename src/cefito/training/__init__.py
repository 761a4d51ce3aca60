"""Training: negatives, losses, the trainer, its checkpoints, and the settings of a run."""
