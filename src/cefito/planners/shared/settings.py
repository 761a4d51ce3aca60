"""Settings that several methods read."""

from __future__ import annotations

from cefito.field.settings import ClassifierConfig
from cefito.settings import Settings
from cefito.training.settings import ClassifierTrainingConfig


class ClassifierSettings(Settings):
    """The sections that every method with a task classifier reads."""

    classifier: ClassifierConfig = ClassifierConfig()
    classifier_training: ClassifierTrainingConfig = ClassifierTrainingConfig()
