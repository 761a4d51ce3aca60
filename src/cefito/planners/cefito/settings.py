"""Settings of CEFITO."""

from __future__ import annotations

from cefito.field.settings import FieldConfig
from cefito.planners.chain.settings import ChainSettings
from cefito.planners.shared.settings import ClassifierSettings, PlanningConfig
from cefito.training.settings import FieldTrainingConfig


class CefitoSettings(ClassifierSettings, ChainSettings):
    """The sections that CEFITO reads."""

    field: FieldConfig = FieldConfig()
    training: FieldTrainingConfig = FieldTrainingConfig()
    search: PlanningConfig = PlanningConfig()
