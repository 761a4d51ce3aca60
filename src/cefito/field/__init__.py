"""The energy field: a small causal transformer that predicts the goal observation an action sequence leads to.

The energy of a sequence is the distance between that prediction and the observed goal (paper, Sec.
3.2). `EnergyField` evaluates whole sequences; `IncrementalField` walks the tree of prefixes, so
that sequences that begin alike share work.
"""

from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.incremental import IncrementalField
from cefito.field.predictor import Predictor
from cefito.field.settings import ClassifierConfig, FieldConfig

__all__ = [
    "ClassifierConfig",
    "EnergyField",
    "FieldConfig",
    "IncrementalField",
    "Predictor",
    "TaskClassifier",
]
