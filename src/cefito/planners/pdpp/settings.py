"""Settings of PDPP; the defaults are the published ones."""

from __future__ import annotations

from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.planners.shared.settings import ClassifierSettings


class PdppConfig(DiffusionConfig):
    """PDPP: a matrix of task, actions and observations over time, denoised by a temporal U-Net."""


class PdppSettings(ClassifierSettings):
    """The sections that PDPP reads."""

    pdpp: PdppConfig = PdppConfig()
