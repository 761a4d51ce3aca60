"""The energy field: a small causal transformer predicts the goal that a sequence leads to.

The energy of the sequence is the distance of that prediction from the observed goal (paper, Sec.
3.2).
"""

from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.fields import (
    CompositeField,
    IncrementalComposite,
    IncrementalField,
    incremental_field,
    make_field,
)
from cefito.field.predictor import Predictor
from cefito.field.settings import ClassifierConfig, FieldConfig

__all__ = [
    "ClassifierConfig",
    "CompositeField",
    "EnergyField",
    "FieldConfig",
    "IncrementalComposite",
    "IncrementalField",
    "Predictor",
    "TaskClassifier",
    "incremental_field",
    "make_field",
]
