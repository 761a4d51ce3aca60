"""Settings of CEFITO."""

from __future__ import annotations

from cefito.field.settings import FieldConfig, ProposalConfig
from cefito.planners.task_model import ClassifierSettings
from cefito.search.settings import SearchConfig
from cefito.training.settings import FieldTrainingConfig, ProposalTrainingConfig

__all__ = ["CefitoSettings"]


class CefitoSettings(ClassifierSettings):
    """The sections that CEFITO reads."""

    field: FieldConfig = FieldConfig()
    training: FieldTrainingConfig = FieldTrainingConfig()
    proposal: ProposalConfig = ProposalConfig()
    proposal_training: ProposalTrainingConfig = ProposalTrainingConfig()
    search: SearchConfig = SearchConfig()
